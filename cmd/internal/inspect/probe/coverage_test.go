package probe_test

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"mcpwire/check"
	"mcpwire/cmd/internal/inspect/probe"
)

// requirementIDs returns the ids of requirements.txt.
func requirementIDs(t *testing.T) (ids []string) {
	text, err := os.ReadFile("../../../../internal/test/compliance/requirements.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		id, _, ok := strings.Cut(line, " [")
		if ok && id != "" && strings.Contains("SCT", id[:1]) && !strings.ContainsAny(id, " \t") {
			ids = append(ids, id)
		}
	}
	return ids
}

// spread returns the ids of a range: S2-S4 is S2, S3 and S4.
func spread(t *testing.T, s string) (ids []string) {
	first, last, ok := strings.Cut(s, "-")
	if !ok {
		return []string{s}
	}
	from, err1 := strconv.Atoi(first[1:])
	to, err2 := strconv.Atoi(strings.TrimPrefix(last, first[:1]))
	if err1 != nil || err2 != nil || to <= from {
		t.Errorf("coverage.txt: %s is no range", s)
	}
	for n := from; n <= to; n++ {
		ids = append(ids, first[:1]+strconv.Itoa(n))
	}
	return ids
}

// TestCoverage compares coverage.txt with the requirements and the rules.
func TestCoverage(t *testing.T) {
	text, err := os.ReadFile("../../../../check/coverage.txt")
	if err != nil {
		t.Fatal(err)
	}
	covered, named := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		what, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		if what != "+" {
			for _, id := range spread(t, what) {
				if covered[id] {
					t.Errorf("coverage.txt: %s appears twice", id)
				}
				covered[id] = true
			}
		}
		if strings.HasPrefix(rest, "- ") {
			continue
		}
		for _, id := range strings.Fields(rest) {
			_, seen := check.Lookup(id)
			_, asked := probe.Lookup(id)
			if !seen && !asked {
				t.Errorf("coverage.txt: %s: there is no rule %s", what, id)
			}
			named[id] = true
		}
	}
	ids := requirementIDs(t)
	if len(ids) < 400 {
		t.Fatalf("only %d requirements found", len(ids))
	}
	for _, id := range ids {
		if !covered[id] {
			t.Errorf("coverage.txt: %s is missing", id)
		}
		delete(covered, id)
	}
	for id := range covered {
		t.Errorf("coverage.txt: there is no requirement %s", id)
	}
	var rest []string
	for _, r := range check.Rules() {
		if !named[r.ID] {
			rest = append(rest, r.ID)
		}
	}
	if slices.Sort(rest); len(rest) > 0 {
		t.Errorf("coverage.txt: these rules are missing: %s", strings.Join(rest, " "))
	}
}
