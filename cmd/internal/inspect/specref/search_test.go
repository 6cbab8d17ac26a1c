package specref

import (
	"strings"
	"testing"

	"mcpwire/mcp"
)

// TestSearch shows what searches find first: lines with most of the words.
func TestSearch(t *testing.T) {
	b := Open()
	for _, tt := range []struct {
		query string
		revs  []mcp.Revision
		// want has a word of Lookup and a part of the line for each hit that must be there.
		want []string
		// not has parts of lines that must not be there.
		not []string
	}{
		{query: "404", want: []string{"-32601: 404 in", "Mcp-Session-Id: HTTP 404", "rule S81: status 404"}, not: []string{"4040"}},
		{query: "session expired", want: []string{"Mcp-Session-Id: a session that has ended"}, not: []string{"visible ASCII"}},
		{query: "SESSION", want: []string{"initialize: opens a legacy session"}},
		{query: "session", revs: []mcp.Revision{mcp.Revision20260728}, want: []string{"Mcp-Session-Id: there are no sessions"}, not: []string{"opens a legacy session"}},
		{query: "login 401", want: []string{"rule S201: authorization"}},
		{query: "zebra"},
		{query: ""},
		{query: "~ / ."},
		{query: strings.Repeat("zebra ", 1000) + "session"},
	} {
		t.Run(tt.query[:min(len(tt.query), 30)], func(t *testing.T) {
			hits := b.Search(tt.query, tt.revs)
			if (len(hits) == 0) != (tt.want == nil) || len(hits) > maxHits {
				t.Errorf("got %d hits", len(hits))
			}
			text := ""
			for _, h := range hits {
				text += h.Word + ": " + h.Text + "\n"
				if len(h.Revisions) == 0 {
					t.Errorf("%s: no revisions", h.Word)
				}
			}
			for _, want := range tt.want {
				word, part, _ := strings.Cut(want, ": ")
				found := false
				for line := range strings.Lines(text) {
					found = found || strings.HasPrefix(line, word+": ") && strings.Contains(line, part)
				}
				if !found {
					t.Errorf("no %q in:\n%s", want, text)
				}
			}
			for _, not := range tt.not {
				if strings.Contains(text, not) {
					t.Errorf("%q in:\n%s", not, text)
				}
			}
		})
	}
}
