package archtest

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// verb is a formatting directive of fmt that would print a value into the JSON.
var verb = regexp.MustCompile(`%[-+# 0]*\d*(\.\d+)?[qsvdxt]`)

// checkJSON complains of JSON that is built with fmt: its %q writes Go syntax,
// which is not JSON for control characters and invalid UTF-8, and the others
// escape nothing. Tests may.
func checkJSON(s source) []string {
	if !s.inProduct() || s.test() {
		return nil
	}
	var complaints []string
	for lit := range stringLiterals(s.file) {
		text := literalValue(lit)
		if i := strings.Index(text, `{"`); i >= 0 && verb.MatchString(text[i:]) {
			complaints = append(complaints, fmt.Sprintf("%s: JSON is built with fmt; use jsonwire.AppendQuote or encoding/json", s.at(lit)))
		}
	}
	return complaints
}

func TestNoFormattedJSON(t *testing.T) {
	for _, s := range sources(t) {
		report(t, checkJSON(s))
	}
}

func TestCheckJSON(t *testing.T) {
	for _, tt := range []struct {
		path, expr string
		bad        bool
	}{
		{"mcp/a.go", "`{\"name\":%q}`", true},
		{"mcp/a.go", `"{\"id\":%d}"`, true},
		{"mcp/a.go", "`\"%s\": [{\"type\":%-10s}]`", true},
		{"mcp/a.go", "`{\"name\":\"fixed\"}`", false},
		{"mcp/a.go", `"want {%s} at 100%"`, false},
		{"mcp/a_test.go", "`{\"name\":%q}`", false},
		{"tools/bench/compare/a.go", "`{\"name\":%q}`", false},
	} {
		s, err := parse(tt.path, "package p\n\nvar _ = "+tt.expr+"\n")
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		if tt.bad {
			want = []string{tt.path + ":3: JSON is built with fmt; use jsonwire.AppendQuote or encoding/json"}
		}
		if diff := cmp.Diff(want, checkJSON(s)); diff != "" {
			t.Errorf("%s in %s: complaints (-want +got):\n%s", tt.expr, tt.path, diff)
		}
	}
}
