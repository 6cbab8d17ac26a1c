package uritemplate

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var fuzzSeeds = []string{
	"db://{table}/{id}", "file:///{+path}", "s:{a,b}", "s:{a*}", "s:{a:3}{b}", "s:x{?q,lang*}", "s:x{;a,b}", "s:f{.a,b}", "s:f{/a*}", "s:{+p}{?q}{#f}", "s:é{x}", "{", "{x", "a}b",
}

// FuzzMatch shows that whatever the template and the URI, what matches expands to a URI that
// matches with the same values.
func FuzzMatch(f *testing.F) {
	for _, template := range fuzzSeeds {
		for _, uri := range []string{"db://us%2fers/42", "file:///../../etc/passwd", "s:1,2", "s:x?q=1&lang=2&lang=3", "s:%c3%a9%00", "s:f/a//b"} {
			f.Add(template, uri)
		}
	}
	f.Fuzz(func(t *testing.T, template, uri string) {
		if len(template) > 200 || strings.Count(template, ":") > 3 { // large prefixes make large expressions
			return
		}
		p, err := Parse(template)
		if err != nil {
			return
		}
		got, ok := p.Match(Normalize(uri))
		if !ok {
			return
		}
		for name, values := range got {
			for _, value := range values {
				if !utf8.ValidString(value) {
					t.Errorf("%q, %q: %s is %q", template, uri, name, value)
				}
			}
		}
		again := expand(p, got)
		twice, ok := p.Match(again)
		if !ok {
			t.Fatalf("%q matches %q, but not %q, which is the same: %q", template, uri, again, got)
		}
		if third := expand(p, twice); third != again {
			t.Errorf("%q: %q means %q, but that means %q", template, again, twice, third)
		}
	})
}

// FuzzExpand checks that Match returns the values that Expand got, where the template separates
// them.
func FuzzExpand(f *testing.F) {
	f.Add("users", "42")
	f.Add("a/b", "..")
	f.Add("é😀", "%2F&=?#")
	f.Add("\x00", ",;")
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" || !utf8.ValidString(a) || !utf8.ValidString(b) || len(a)+len(b) > 1000 {
			return
		}
		want := vars{"a": {a}, "b": {b}}
		for _, template := range []string{"s://{a}/{b}", "s:x{?a,b}", "s:x{?b,a}", "s:x;y{;a,b}", "s:x{/a,b}", "s:x{/a}{?b}", "s:x{?a}{#b}", "s:{a}?x{&b}", "s:{a,b}", "s:/{a}{#b}"} {
			p, err := Parse(template)
			if err != nil {
				t.Fatal(err)
			}
			uri := expand(p, want)
			got, _ := p.Match(uri)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s matches %q (-want +got):\n%s", template, uri, diff)
			}
		}
		list := vars{"a": {a, b, a}}
		for _, template := range []string{"s:{a*}", "s:x{/a*}", "s:x{?a*}", "s:x{;a*}"} {
			p, err := Parse(template)
			if err != nil {
				t.Fatal(err)
			}
			uri := expand(p, list)
			got, _ := p.Match(uri)
			if diff := cmp.Diff(list, got); diff != "" {
				t.Errorf("%s matches %q (-want +got):\n%s", template, uri, diff)
			}
		}
	})
}
