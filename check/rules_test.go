package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// find runs an example through a checker.
func find(t *testing.T, x Example, opts *Options) []Finding {
	t.Helper()
	head, events, err := x.Events()
	if err != nil {
		t.Fatal(err)
	}
	k := New(opts)
	var all []Finding
	for _, e := range events {
		all = append(all, k.Add(head, e)...)
	}
	return append(all, k.Close()...)
}

func brief(findings []Finding) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "\t%s at event %d %s: %s\n", f.Rule.ID, f.Event, f.Pointer, f.Message)
	}
	return b.String()
}

// ids returns the ids of the rules of findings, each once, sorted.
func ids(findings []Finding) []string {
	var list []string
	for _, f := range findings {
		list = append(list, f.Rule.ID)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func TestExamples(t *testing.T) {
	for _, table := range ruleTables() {
		for i := range table {
			r := &table[i]
			t.Run(r.ID, func(t *testing.T) {
				want := append([]string{r.ID}, r.consequences...)
				slices.Sort(want)
				if found := find(t, r.Bad, nil); cmp.Diff(want, ids(found)) != "" {
					t.Errorf("bad example: rules (-want +got):\n%s\nfindings:\n%s\n%s", cmp.Diff(want, ids(found)), brief(found), r.Bad.Transcript())
				}
				if found := find(t, r.Good, nil); len(found) > 0 {
					t.Errorf("good example: findings:\n%s\n%s", brief(found), r.Good.Transcript())
				}
			})
		}
	}
}

// TestStatusMessage shows that the message names the status that was sent, and then the right one.
func TestStatusMessage(t *testing.T) {
	rule, _ := Lookup("http/status")
	var got []string
	for _, f := range find(t, rule.Bad, nil) {
		got = append(got, f.Message)
	}
	want := []string{"the error with code -32601 has status 200; want 404"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
