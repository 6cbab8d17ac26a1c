package compliance

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write doc/compliance.md, and remove the status open from tested requirements")

const (
	root         = "../../.."
	page         = root + "/doc/compliance.md"
	requirements = "requirements.txt"
	// reference has the ids. It is not part of the repository.
	reference = root + "/../shared/spec/WIRE.md"
)

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func report(t *testing.T, complaints []string) {
	t.Helper()
	for _, c := range complaints {
		t.Error(c)
	}
}

// TestPage checks that each requirement has a test or a status, and that doc/compliance.md is up to
// date.
func TestPage(t *testing.T) {
	s, err := scanTests(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	report(t, s.complaints)
	text := readFile(t, requirements)
	parts, complaints := parseRequirements(text)
	if *update {
		if fresh := withoutStale(text, all(parts), s.proofs); fresh != text {
			if err := os.WriteFile(requirements, []byte(fresh), 0o666); err != nil {
				t.Fatal(err)
			}
			parts, complaints = parseRequirements(fresh)
		}
		if err := os.WriteFile(page, []byte(render(parts, s.proofs)), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	report(t, complaints)
	report(t, judge(all(parts), s.proofs))
	if diff := cmp.Diff(readFile(t, page), render(parts, s.proofs)); diff != "" {
		t.Errorf("go test ./internal/test/compliance -update rewrites %s (-file +generated):\n%s", filepath.ToSlash(page), diff)
	}
}

// TestRequirements checks that requirements.txt has all requirements of the reference in its order.
func TestRequirements(t *testing.T) {
	if _, err := os.Stat(reference); errors.Is(err, fs.ErrNotExist) {
		t.Skipf("skipped: the reference is missing: no %s", reference)
	}
	chapter := regexp.MustCompile(`^8[abd]\. `) // on servers, clients and tasks
	item := regexp.MustCompile(`(?m)^- ([A-Z]\d+) `)
	var want []string
	for text := range strings.SplitSeq(readFile(t, reference), "\n### ") {
		if !chapter.MatchString(text) {
			continue
		}
		for _, m := range item.FindAllStringSubmatch(text, -1) {
			want = append(want, m[1])
		}
	}
	if len(want) == 0 {
		t.Fatalf("%s has no requirements", reference)
	}
	parts, _ := parseRequirements(readFile(t, requirements))
	got := collect(all(parts), func(r *requirement) string { return r.id })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ids (-reference +requirements.txt):\n%s", diff)
	}
}
