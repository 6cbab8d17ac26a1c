package uritemplate

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

type vars = map[string][]string

func TestMatch(t *testing.T) {
	one := func(pairs ...string) vars {
		v := vars{}
		for i := 0; i < len(pairs); i += 2 {
			v[pairs[i]] = []string{pairs[i+1]}
		}
		return v
	}
	for _, tt := range []struct {
		template, uri string
		want          vars // nil if it does not match
	}{
		{"a:b", "a:b", vars{}},
		{"a:b", "a:bc", nil},
		{"a:b", "xa:b", nil},
		{"", "", vars{}},
		{"a.b:{x}", "acb:1", nil},

		{"db://{table}/{id}", "db://users/42", one("table", "users", "id", "42")},
		{"db://{table}/{id}", "db://us%2Fers/4%c3%a9", one("table", "us/ers", "id", "4é")},
		{"db://{table}/{id}", "db:///42", nil},
		{"db://{table}/{id}", "db://users/", nil},
		{"db://{table}/{id}", "db://users/4/2", nil},
		{"db://{table}/{id}", "db://u,v/42", nil},
		{"db://{table}/{id}", "db://users/4%zz", nil},
		{"db://{table}/{id}", "db://users/4%2", nil},
		{"db://{table}/{id}", "db://users/%ff", nil},
		{"db://{table}/{id}", "db://users/é", nil},
		{"db://{table}/{id}", "db://users/4 2", nil},
		{"db://{table}/{id}", "db://users/42\n", nil},
		{"db://{table}/{id}", "DB://users/42", nil},
		{"db://{table}/{id}", "db://../%2e%2E", one("table", "..", "id", "..")},
		{"db://{table}/{id}", "db://a/%00", one("table", "a", "id", "\x00")},
		{"s:{a}{b}", "s:xyz", one("a", "xy", "b", "z")},
		{"s:{a}-{b}", "s:x-y-z", one("a", "x-y", "b", "z")},
		{"s:{a,b}", "s:1,2", one("a", "1", "b", "2")},
		{"s:{a,b}", "s:1", nil},
		{"s:{a,b}", "s:1,2,3", nil},
		{"s:{a*}", "s:1,2,3", vars{"a": {"1", "2", "3"}}},
		{"s:{a*}", "s:1,,3", nil},
		{"s:{a*}", "s:1%2C2", one("a", "1,2")},
		{"s:{a:3}", "s:abc", one("a", "abc")},
		{"s:{a:3}", "s:abcd", nil},
		{"s:{a:3}", "s:%C3%A9%F0%9F%98%80x", one("a", "é😀x")},
		{"s:{a:3}", "s:%C3%A9%C3%A9%C3%A9%C3%A9", nil},
		{"s:{a:3}{b}", "s:abcdef", one("a", "abc", "b", "def")},
		{"s:{a:5000}", "s:" + strings.Repeat("x", 5000), one("a", strings.Repeat("x", 5000))},
		{"s:{a:5000}", "s:" + strings.Repeat("x", 5001), nil},
		{"s:é/{a}", "s:%c3%A9/b", one("a", "b")},
		{"s:%c3%a9/{a}", "s:%C3%A9/b", one("a", "b")},
		{"s:é/{a}", "s:é/b", nil},

		{"file:///{+path}", "file:///a/b.txt", one("path", "a/b.txt")},
		{"file:///{+path}", "file:///", nil},
		{"file:///{+path}", "file:///a%2Fb", one("path", "a/b")},
		{"file:///{+path}", "file:///../a?b#c", one("path", "../a?b#c")},
		{"file:///{+path}", "file:///a\\b", nil},
		{"file:///{+path}", "file:///a%5Cb", one("path", `a\b`)},
		{"s:{+p}.{e}", "s:a/b.c.txt", one("p", "a/b.c", "e", "txt")},
		{"s:{+p}{?q}", "s:a/b?q=1", one("p", "a/b", "q", "1")},
		{"s:{+p}{?q}{#f}", "s:a#b?c", one("p", "a", "f", "b?c")},
		{"s:{+p}{#f}", "s:a?b#c", one("p", "a?b", "f", "c")},
		{"s:{+p,q}", "s:a,b,c", one("p", "a,b", "q", "c")},
		{"s:{+p*}", "s:a/b,c", vars{"p": {"a/b", "c"}}},
		{"s:x{#f}", "s:x", vars{}},
		{"s:x{#f}", "s:x#", nil},
		{"s:x{#f,g}", "s:x#1,2", one("f", "1", "g", "2")},

		{"s:f{.e}", "s:f", vars{}},
		{"s:f{.e}", "s:f.tar.gz", one("e", "tar.gz")},
		{"s:f{.a,b}", "s:f.tar.gz", one("a", "tar", "b", "gz")},
		{"s:f{.a,b}", "s:f.tar", one("a", "tar")},
		{"s:f{.a*}", "s:f.tar.gz", vars{"a": {"tar", "gz"}}},
		{"s:f{.a*}", "s:f..gz", nil},
		{"s:f{/a,b}", "s:f/x", one("a", "x")},
		{"s:f{/a,b}", "s:f/x/y", one("a", "x", "b", "y")},
		{"s:f{/a,b}", "s:f/x/y/z", nil},
		{"s:f{/a*}", "s:f/x/y%2Fz", vars{"a": {"x", "y/z"}}},
		{"s:f{/a*}", "s:f//y", nil},
		{"s:f{/a*}", "s:f/", nil},
		{"s:f{/a*}", "s:f", vars{}},

		{"s:f{;a,b}", "s:f;b=2;a", one("a", "", "b", "2")},
		{"s:f{;a,b}", "s:f;c=2", nil},
		{"s:f{;a*}", "s:f;a=1;a=2", vars{"a": {"1", "2"}}},
		{"s:x{?q,lang}", "s:x", vars{}},
		{"s:x{?q,lang}", "s:x?q=a&lang=de", one("q", "a", "lang", "de")},
		{"s:x{?q,lang}", "s:x?lang=de&q=a", one("q", "a", "lang", "de")},
		{"s:x{?q,lang}", "s:x?lang=", one("lang", "")},
		{"s:x{?q,lang}", "s:x?", nil},
		{"s:x{?q,lang}", "s:x?q=1&q=2", nil},
		{"s:x{?q,lang}", "s:x?q=1&other=2", nil},
		{"s:x{?q,lang}", "s:x?q=1&", nil},
		{"s:x{?q,lang}", "s:x?q=a%26b%3dc=d+e", one("q", "a&b=c=d+e")},
		{"s:x{?q*}", "s:x?q=1&q=2", vars{"q": {"1", "2"}}},
		{"s:x{?q:2}", "s:x?q=abc", nil},
		{"s:x?a=1{&q}", "s:x?a=1&q=2", one("q", "2")},
		{"s:x?a=1{&q}", "s:x?a=1", vars{}},
		{"s:x{?a%c3%a9}", "s:x?a%C3%a9=1", vars{"a%c3%a9": {"1"}}},
		{"{+all}", "any:thing", one("all", "any:thing")},

		{"s:{a:60}{b:60}", "s:" + strings.Repeat("x", 120), one("a", strings.Repeat("x", 60), "b", strings.Repeat("x", 60))},
		{"s:{a:60}{b:60}", "s:" + strings.Repeat("x", 121), nil},
		{"s:{a:60}{b:60}{c}", "s:" + strings.Repeat("x", 122), nil}, // b is not counted, and takes as much as it can
		{"s:{a:60}{b:40}{c}", "s:" + strings.Repeat("x", 101), one("a", strings.Repeat("x", 60), "b", strings.Repeat("x", 40), "c", "x")},

		{"a:b{x}", "a:%62c", one("x", "c")},
		{"a:%62{x}", "a:bc", one("x", "c")},
		{"a:%62{x}", "a:%62%63", one("x", "c")},
		{"a:{x}", "a:%2541", one("x", "%41")},
		{"s:f{.a*}", "s:f%2Etar%2egz", vars{"a": {"tar", "gz"}}},
		{"s:f{.a*}", "s:f.%2E", nil},
		{"s:x{?q}", "s:x?%71=1", one("q", "1")},
	} {
		p, err := Parse(tt.template)
		if err != nil {
			t.Errorf("%s: %v", tt.template, err)
			continue
		}
		got, ok := p.Match(Normalize(tt.uri))
		if diff := cmp.Diff(tt.want, got); diff != "" || ok != (tt.want != nil) {
			t.Errorf("%s matches %.80q: %t (-want +got):\n%s", tt.template, tt.uri, ok, diff)
		}
	}
}

func TestNormalize(t *testing.T) {
	for _, tt := range []struct{ uri, want string }{
		{"", ""},
		{"a:b", "a:b"},
		{"a:%2f%2F%c3%A9", "a:%2F%2F%C3%A9"},
		{"a:%41%7a%30%2d%2E%5f%7e", "a:Az0-._~"},
		{"a:%40%5B%60%7B%2f%3a%20%7f", "a:%40%5B%60%7B%2F%3A%20%7F"},
		{"a:%2541%25", "a:%2541%25"},
		{"a:%", "a:%"},
		{"a:%4", "a:%4"},
		{"a:%4g%%41", "a:%4g%A"},
		{"a:\xff%41", "a:\xffA"},
	} {
		if got := Normalize(tt.uri); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.uri, got, tt.want)
		}
	}
}

// names returns expressions with n variables.
func names(n int, open, between, end string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("v%d", i)
	}
	return open + strings.Join(list, between) + end
}

func TestParseErrors(t *testing.T) {
	for _, tt := range []struct{ template, want string }{
		{"a:{", "URI template: at byte 2: { without }"},
		{"a:{x", "URI template: at byte 2: { without }"},
		{"a:}", "URI template: at byte 2: '}' is not allowed outside braces"},
		{"a:{}", "URI template: at byte 2: {}: it contains no variable"},
		{"a:{+}", `URI template: at byte 2: {+}: "" is not a variable`},
		{"a:{x,}", `URI template: at byte 2: {x,}: "" is not a variable`},
		{"a:{=x}", `URI template: at byte 2: {=x}: "=x" is not a variable`},
		{"a:{x y}", `URI template: at byte 2: {x y}: "x y" is not a variable`},
		{"a:{x..y}", `URI template: at byte 2: {x..y}: "x..y" is not a variable`},
		{"a:{.x.}", `URI template: at byte 2: {.x.}: "x." is not a variable`},
		{"a:{%zz}", `URI template: at byte 2: {%zz}: "%zz" is not a variable`},
		{"a:{x:0}", `URI template: at byte 2: {x:0}: "x:0" is not a variable: the number after the colon must be from 1 to 9999`},
		{"a:{x:10000}", `URI template: at byte 2: {x:10000}: "x:10000" is not a variable: the number after the colon must be from 1 to 9999`},
		{"a:{x:}", `URI template: at byte 2: {x:}: "x:" is not a variable: the number after the colon must be from 1 to 9999`},
		{"a:{x:+1}", `URI template: at byte 2: {x:+1}: "x:+1" is not a variable: the number after the colon must be from 1 to 9999`},
		{"a:{x*:1}", `URI template: at byte 2: {x*:1}: "x*:1" is not a variable: the number after the colon must be from 1 to 9999`},
		{"a:{x}/{x}", `URI template: at byte 6: {x}: the variable "x" appears twice, so a URI could give it two values`},
		{"a:{x:1}{x}", `URI template: at byte 7: {x}: the variable "x" appears twice, so a URI could give it two values`},
		{"a b", "URI template: at byte 1: ' ' is not allowed outside braces"},
		{"a:%", "URI template: at byte 2: '%' is not allowed outside braces"},
		{"a:\xff", `URI template: at byte 2: 'ÿ' is not allowed outside braces`},
		{names(65, "{", "}{", "}"), `URI template: at byte 310: {v64}: more than 64 variables`},
	} {
		_, err := Parse(tt.template)
		if err == nil || err.Error() != tt.want {
			t.Errorf("%q: got %v, want %s", tt.template, err, tt.want)
		}
	}
}

func TestTemplate(t *testing.T) {
	p, err := Parse("s://é/{x}/{+y,z*}{?a:3}")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"x", "y", "z", "a"}, p.Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if got, want := p.Prefix(), "s://%C3%A9/"; got != want {
		t.Errorf("prefix: got %q, want %q", got, want)
	}
	if got, want := p.LiteralLen(), len("s://%C3%A9//"); got != want {
		t.Errorf("literals: got %d, want %d", got, want)
	}
}

// TestHostileURIs shows that the time for a URI is bounded.
func TestHostileURIs(t *testing.T) {
	done := make(chan bool)
	go func() {
		defer close(done)
		for _, template := range []string{"s:{+a}{+b}{+c}{+d}{+e}{/f*}{?g}!", names(64, "s:{", ":100}{", ":100}!"), names(64, "s:{/", ",", "}!"), names(64, "s:{/", "*}{/", "*}!")} {
			p, err := Parse(template)
			if err != nil {
				t.Error(err)
				return
			}
			for _, unit := range []string{"a", "/", "?", "%C3", "a/b?", "/a"} {
				if _, ok := p.Match("s:" + strings.Repeat(unit, 8192/len(unit))); ok {
					t.Errorf("%.20s: %q, many times, matches", template, unit)
				}
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("matching takes more than a minute")
	}
}

// TestExpansions has the RFC's own expansions, sections 1.2 and 3.2, as far as this direction
// allows them.
func TestExpansions(t *testing.T) {
	values := vars{
		"var": {"value"}, "hello": {"Hello World!"}, "half": {"50%"}, "who": {"fred"}, "base": {"http://example.com/home/"},
		"path": {"/foo/bar"}, "list": {"red", "green", "blue"}, "v": {"6"}, "x": {"1024"}, "y": {"768"}, "dom": {"example", "com"},
	}
	for template, uri := range map[string]string{
		"{var}": "value", "{hello}": "Hello%20World%21", "{half}": "50%25", "?{x,hello,y}": "?1024,Hello%20World%21,768",
		"O{+hello}": "OHello%20World!", "{+half}": "50%25", "{base}index": "http%3A%2F%2Fexample.com%2Fhome%2Findex",
		"{+base}index": "http://example.com/home/index", "here?ref={+path}": "here?ref=/foo/bar", "up{+path}{var}/here": "up/foo/barvalue/here",
		"{+path}/here": "/foo/bar/here", "{list*}": "red,green,blue", "{+list*}": "red,green,blue", "{#list*}": "#red,green,blue",
		"X{#var}": "X#value", "X{#hello}": "X#Hello%20World!", "{#path,x}/here": "#/foo/bar,1024/here",
		"{.who}": ".fred", "{.x,y}": ".1024.768", "www{.dom*}": "www.example.com", "X{.list*}": "X.red.green.blue",
		"{/who}": "/fred", "{/half,who}": "/50%25/fred", "{/var,x}/here": "/value/1024/here", "{/list*}": "/red/green/blue",
		"{;who}": ";who=fred", "{;half}": ";half=50%25", "{;hello,v}": ";hello=Hello%20World%21;v=6", "{;list*}": ";list=red;list=green;list=blue",
		"{?who}": "?who=fred", "{?x,y}": "?x=1024&y=768", "{?list*}": "?list=red&list=green&list=blue", "?fixed=yes{&x}": "?fixed=yes&x=1024",
	} {
		p, err := Parse(template)
		if err != nil {
			t.Errorf("%s: %v", template, err)
			continue
		}
		if got := expand(p, values); got != uri {
			t.Errorf("%s: the test expands to %s, not %s", template, got, uri)
		}
		want := vars{}
		for _, name := range p.Names() {
			want[name] = values[name]
		}
		got, _ := p.Match(uri)
		if template == "up{+path}{var}/here" { // the first takes as much as it can
			want = vars{"path": {"/foo/barvalu"}, "var": {"e"}}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s matches %s (-want +got):\n%s", template, uri, diff)
		}
	}
}

// expand is what RFC 6570, section 3 says of templates, the other way round, for strings and lists
// with a star.
func expand(t *Template, values vars) string {
	var b strings.Builder
	for _, p := range t.components {
		if p.vars == nil {
			b.WriteString(p.literal)
			continue
		}
		first, sep := "", ","
		switch p.op {
		case '#':
			first = "#"
		case '.', '/', ';':
			first, sep = string(p.op), string(p.op)
		case '?', '&':
			first, sep = string(p.op), "&"
		}
		for _, v := range p.vars {
			for _, value := range values[v.name] {
				b.WriteString(first)
				first = sep
				b.WriteString(expandValue(p.op, v, value))
			}
		}
	}
	return b.String()
}

func expandValue(op byte, v variable, value string) string {
	text := ""
	if strings.IndexByte(";?&", op) >= 0 {
		if text = v.name; value != "" || op != ';' {
			text += "="
		}
	}
	n := 0
	for _, r := range value {
		if n++; v.maxLen > 0 && n > v.maxLen {
			break
		}
		c := string(r)
		switch {
		case r < utf8.RuneSelf && isAlphanumeric(byte(r)) || strings.Contains("-._~", c):
			text += c
		case (op == '+' || op == '#') && strings.Contains(":/?#[]@!$&'()*+,;=", c):
			text += c
		default:
			for i := range len(c) {
				text += fmt.Sprintf("%%%02X", c[i])
			}
		}
	}
	return text
}
