package probe

import (
	"slices"
	"strings"
	"testing"

	"mcpwire/check"
)

// TestRules holds the descriptions to what tools and people rely on.
func TestRules(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Rules() {
		if seen[r.ID] || !strings.HasPrefix(r.ID, prefix) {
			t.Errorf("%s: twice, or without the prefix", r.ID)
		}
		seen[r.ID] = true
		if _, taken := check.Lookup(r.ID); taken {
			t.Errorf("%s: package check has it too", r.ID)
		}
		for what, text := range map[string]string{"Title": r.Title, "Why": r.Why, "Fix": r.Fix} {
			if text == "" || strings.HasSuffix(text, ".") == (what == "Title") {
				t.Errorf("%s: %s is %q", r.ID, what, text)
			}
		}
		if !strings.HasPrefix(r.URL, "https://") {
			t.Errorf("%s: URL is %q", r.ID, r.URL)
		}
		for name, x := range map[string]check.Example{"Good": r.Good, "Bad": r.Bad} {
			if _, events, err := x.Events(); err != nil || len(events) == 0 {
				t.Errorf("%s: %s example: %d events, %v", r.ID, name, len(events), err)
			}
			if !appliesTo(r, x.Revision) {
				t.Errorf("%s: %s example is of %v, which does not have the rule", r.ID, name, x.Revision)
			}
		}
		// The good one must be good in the eyes of the other rules, too.
		head, events, _ := r.Good.Events()
		k := check.New(nil)
		var all []check.Finding
		for _, e := range events {
			all = append(all, k.Add(head, e)...)
		}
		all = slices.DeleteFunc(append(all, k.Close()...), func(f check.Finding) bool { return !aboutServer(&f) || f.Rule.Severity == check.Info })
		if len(all) > 0 {
			t.Errorf("%s: good example: %s", r.ID, verbose(all))
		}
	}
}

func TestChosen(t *testing.T) {
	for _, tt := range []struct {
		only, disabled []string
		want           bool
	}{
		{nil, nil, true},
		{[]string{"probe/*"}, nil, true},
		{[]string{"probe/eof"}, nil, true},
		{[]string{"stdio/*"}, nil, false},
		{nil, []string{"probe/*"}, false},
		{[]string{"probe/*"}, []string{"probe/eof"}, false},
		{[]string{"probe/e*"}, nil, false}, // only whole groups
	} {
		if got := Enabled("probe/eof", tt.only, tt.disabled); got != tt.want {
			t.Errorf("Chosen(only %v, disabled %v) = %v, want %v", tt.only, tt.disabled, got, tt.want)
		}
	}
}
