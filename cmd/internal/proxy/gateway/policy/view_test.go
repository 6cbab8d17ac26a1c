package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/cmd/internal/proxy/gateway/config"
)

// claims returns claims from their JSON texts.
func claims(pairs ...string) map[string]json.RawMessage {
	m := map[string]json.RawMessage{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = json.RawMessage(pairs[i+1])
	}
	return m
}

func TestViews(t *testing.T) {
	const tool, prompt, resource, template = gateway.KindTool, gateway.KindPrompt, gateway.KindResource, gateway.KindTemplate
	alice := &auth.Principal{Issuer: "https://idp.example.com", Subject: "alice", ClientID: "app", Scopes: []string{"read"}, Claims: claims("team", `"support"`)}
	type item struct {
		kind     gateway.Kind
		upstream string
		name     string
	}
	for _, tt := range []struct {
		name    string
		rules   []config.View
		p       *auth.Principal
		allowed []item
		hidden  []item
	}{
		{"no rules", nil, nil, []item{{tool, "files", "read"}, {resource, "files", "file:///a/../b"}, {resource, "files", "file:///%2525252525252e"}}, nil},
		{
			"everybody", []config.View{{Allow: []string{"files__read*", "notes__*"}}}, nil,
			[]item{{tool, "files", "read"}, {tool, "files", "read_all"}, {prompt, "notes", "x"}, {resource, "notes", "note://1"}},
			[]item{{tool, "files", "write"}, {tool, "files", "Read"}, {tool, "file", "s__read"}, {tool, "files", ""}},
		},
		{
			"deny wins in any order", []config.View{{Deny: []string{"*__delete*"}}, {Allow: []string{"*"}}}, alice,
			[]item{{tool, "files", "read"}}, []item{{tool, "files", "delete"}, {tool, "db", "delete_all"}},
		},
		{
			"union", []config.View{
				{Match: config.Match{Claims: map[string]config.Texts{"team": {"support"}}}, Allow: []string{"github__search_*"}},
				{Match: config.Match{Scopes: []string{"read"}}, Allow: []string{"files__read"}},
				{Match: config.Match{Scopes: []string{"admin"}}, Allow: []string{"*"}},
			}, alice,
			[]item{{tool, "github", "search_code"}, {tool, "files", "read"}}, []item{{tool, "files", "write"}, {tool, "github", "delete"}},
		},
		{
			"no rule matches", []config.View{{Match: config.Match{Scopes: []string{"admin"}}, Allow: []string{"*"}}}, alice,
			nil, []item{{tool, "files", "read"}},
		},
		{
			"kinds", []config.View{{Allow: []string{"tool:a__*", "prompt:b__*", "resource:c__*"}}}, nil,
			[]item{{tool, "a", "x"}, {prompt, "b", "x"}, {resource, "c", "x://y"}, {template, "c", "x://{y}"}},
			[]item{{prompt, "a", "x"}, {tool, "b", "x"}, {tool, "c", "x"}, {template, "a", "x://{y}"}},
		},
		{
			"literal star", []config.View{{Allow: []string{`a__\*`, `a__b\\`}}}, nil,
			[]item{{tool, "a", "*"}, {tool, "a", `b\`}}, []item{{tool, "a", "x"}},
		},
		{
			"denied URIs as servers read them", []config.View{{Allow: []string{"*"}, Deny: []string{"*__file:///etc/*", "*__https://intern/*"}}}, nil,
			[]item{{resource, "files", "file:///a"}, {resource, "files", "FILE:///a"}, {resource, "files", "note:7"}, {resource, "files", "file://server/x"}, {resource, "files", "file://server/a/etc/x"}, {template, "files", "file:///{path}"}, {resource, "files", "https://intern:8443/x"}, {resource, "files", "NOTE:x%20y"}, {resource, "files", "file:///100%"}},
			[]item{
				{resource, "files", "file:///etc/passwd"}, {resource, "files", "FILE:///etc/passwd"}, {resource, "files", "File:///%65tc/passwd"}, {resource, "files", "file:////etc//passwd"},
				{resource, "files", "file:///./etc/passwd"}, {resource, "files", "file:///a/../etc/passwd"}, {resource, "files", "https://INTERN/x"}, {resource, "files", "https://%69ntern/x"},
				{resource, "files", "file:/etc/passwd"}, {resource, "files", "file:etc/passwd"}, {resource, "files", `file:\etc\passwd`}, {resource, "files", "FILE:/a/../etc/passwd"},
				{resource, "files", "file://localhost/etc/passwd"}, {resource, "files", "file://LocalHost/%65tc/passwd"}, {resource, "files", "file://%6cocalhost/etc/passwd"},
				{resource, "files", " file:///etc/passwd"}, {resource, "files", "file:///e\ttc/passwd"}, {resource, "files", "fi\nle:///etc/passwd"}, {resource, "files", "file:///a/.%09./etc/passwd"},
				{resource, "files", "https:/intern/x"}, {resource, "files", "https:intern/x"}, {resource, "files", "https://intern:443/x"}, {resource, "files", "https://me:pw@intern/x"},
				{resource, "files", "https://intern./x"}, {resource, "files", "https:///intern/x"}, {resource, "files", "https://a@b@Intern.:443/x"},
				{resource, "files", "file://server/etc/x"}, {resource, "files", "file://127.0.0.1/etc/x"}, {resource, "files", "file://me@server:1/etc/x"}, {resource, "files", "FILE://Server/a/../%65tc/x"},
				{resource, "files", "file://etc/x"}, {resource, "files", "file://me@etc:1/x"}, {resource, "files", "file://x%2fetc/y"}, {resource, "files", `file:\\server\etc\x`}, {resource, "files", "file://server//etc//x"}, {resource, "files", "file://server/a?/../../etc/x"},
				{template, "files", "file:///etc/{x}"}, {template, "files", "file://server/etc/{x}"}, {template, "files", "file:///a/../etc/{x}"}, {template, "files", "file:///%65tc/{x}"},
			},
		},
		{
			"denied URIs of other schemes", []config.View{{Allow: []string{"*"}, Deny: []string{"*__notes:///secret/*", "*__db://secret/*", "*__doc:secret/*", "*__mem:///exact"}}}, nil,
			[]item{{resource, "a", "notes:///public/secret/b"}, {resource, "a", "db://public/secret/b"}, {resource, "a", "other:///secret/b"}, {resource, "a", "doc:public/b"}, {resource, "a", "mem:///exactly"}},
			[]item{
				{resource, "a", "notes:///secret/b"}, {resource, "a", "notes://x/secret/b"}, {resource, "a", "notes://secret/b"}, {resource, "a", "notes:/secret/b"}, {resource, "a", "notes:secret/b"}, {resource, "a", "NOTES://x:1/./secret/b"},
				{resource, "a", "db://secret/b"}, {resource, "a", "db:///secret/b"}, {resource, "a", "db:secret/b"}, {resource, "a", "db:/secret/b"}, {resource, "a", "db://me@secret:5432/b"}, {resource, "a", "db://s%65cret/b"},
				{resource, "a", "doc:secret/b"}, {resource, "a", "doc://secret/b"}, {resource, "a", "doc:///secret/b"}, {resource, "a", "doc://x/secret/b"}, {resource, "a", "doc:/secret/b"},
				{resource, "a", "mem:///exact"}, {resource, "a", "mem:///exact?x"}, {resource, "a", "mem:///exact#x"}, {resource, "a", "mem://x/exact?x"}, {resource, "a", "mem://exact"},
			},
		},
		{
			"URIs as servers read them", []config.View{{Allow: []string{"files__file:///public/*", "web__*"}, Deny: []string{"*secret*"}}}, nil,
			[]item{{resource, "files", "file:///public/a"}, {resource, "files", "file:///public/a%20b"}, {resource, "files", "file:///public/a/../b"}, {resource, "web", "https://x/?q=/../"}},
			[]item{
				{resource, "files", "file:///public/../etc/passwd"}, {resource, "files", "file:///public/%2e%2e/etc/passwd"},
				{resource, "files", "file:///public/%2E%2E%2fetc/passwd"}, {resource, "files", "file:///public/%252e%252e/etc"},
				{resource, "files", `file:///public/..%5cetc`}, {resource, "files", "file:///public/s%65cret"},
				{resource, "files", "file:///public/%2525252525252e"}, {resource, "files", "file:///etc/passwd"},
				{resource, "files", `file:///public/x\..\..\etc`}, {resource, "files", "file:///public/.\t./etc"}, {resource, "files", "file:///public/.%0a./etc"}, {resource, "files", "file:///public/%2e%2e/etc?%zz"}, {resource, "files", "file:///public/%zz/%2e%2e/%2e%2e/etc"},
				{resource, "files", "file:///public/a%3f/../../etc"}, {resource, "files", "file:///public/a%3f%2f..%2f..%2fetc"}, {resource, "files", "file:///public/a%23%2f..%2f..%2fetc"},
			},
		},
		{
			"URIs without a host", []config.View{{Allow: []string{"db__db://public/*", "db__doc:public/*", "db__urn:*", "db__get:https://x/*"}}}, nil,
			[]item{{resource, "db", "db://public/a/../b"}, {resource, "db", "db://public/a//b"}, {resource, "db", "doc:public/a"}, {resource, "db", "urn:a:b"}, {resource, "db", "get:https://x/y"}},
			[]item{
				{resource, "db", "db://public/../secret/b"}, {resource, "db", "db://public/../../secret"}, {resource, "db", "db://public/%2e%2e/secret"}, {resource, "db", "db://public/.."},
				{resource, "db", "db://public/a?/../../../secret"}, {resource, "db", "doc:public/../secret"}, {resource, "db", "doc:public/..%2fsecret"}, {resource, "db", "get:https://x/../y"},
			},
		},
		{
			"URIs that are written as they are read", []config.View{{Allow: []string{"files__file:///", "files__file:///a", "files__file:///d/"}}}, nil,
			[]item{{resource, "files", "file:///"}, {resource, "files", "file:///a"}, {resource, "files", "file:///d/"}},
			[]item{{resource, "files", "file:///a/"}, {resource, "files", "file:///d"}, {resource, "files", "file:///d/../a"}},
		},
		{
			"the host of a URI of the web", []config.View{{Allow: []string{"web__https://x/*", `web__https:\\\\x*`}}}, nil,
			[]item{{resource, "web", "https://x/../y"}, {resource, "web", "https://x/a/../../y"}, {resource, "web", `https:\\x\..\y`}},
			[]item{{resource, "web", "https://y/../x/a"}, {resource, "web", "https://y/"}},
		},
		{
			"nested escapes", []config.View{{Allow: []string{"files__file:///a*"}}}, nil,
			[]item{{resource, "files", "file:///a%20b"}, {resource, "files", "file:///a%2520b"}, {resource, "files", "file:///a%252520b"}},
			[]item{{resource, "files", "file:///a%25252520b"}},
		},
		{
			"denied hosts of files", []config.View{{Allow: []string{"*"}, Deny: []string{"*__file://server/*", "*__db://localhost/*"}}}, nil,
			[]item{{resource, "files", "file:///a"}, {resource, "files", "file://other/a"}, {resource, "files", "file://localhost/a"}},
			[]item{{resource, "files", "file://server/a"}, {resource, "files", "FILE://SERVER/a"}, {resource, "files", "file://s%65rver/a"}, {resource, "db", "DB://LocalHost/a"}},
		},
		{
			"denied URIs without a host", []config.View{{Allow: []string{"*"}, Deny: []string{"db__db://secret/*", "db__doc:secret/*"}}}, nil,
			[]item{{resource, "db", "db://public/a"}, {resource, "db", "db://public"}, {resource, "db", "doc:public/a"}},
			[]item{{resource, "db", "db://public/../secret/b"}, {resource, "db", "db://public/../../secret/b"}, {resource, "db", "db://../secret/b"}, {resource, "db", "doc:a/../secret/b"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, err := NewViews(tt.rules, nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx := t.Context()
			if tt.p != nil {
				ctx = auth.WithPrincipal(ctx, tt.p)
			}
			view := v.Of(ctx)
			for _, i := range tt.allowed {
				if !view.Allows(i.kind, i.upstream, i.name) {
					t.Errorf("%s %s__%s is hidden, want it visible", i.kind, i.upstream, i.name)
				}
			}
			for _, i := range tt.hidden {
				if view.Allows(i.kind, i.upstream, i.name) {
					t.Errorf("%s %s__%s is allowed", i.kind, i.upstream, i.name)
				}
			}
		})
	}
}

func TestFilters(t *testing.T) {
	filters := map[string]Filters{
		"files": {Tools: config.Filter{Allow: []string{"read*", "delete"}, Deny: []string{"read_secret"}}, Resources: config.Filter{Deny: []string{"file:///etc/*"}}},
		"open":  {},
	}
	allowed := func(rules []config.View) []string {
		v, err := NewViews(rules, filters)
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, i := range []struct {
			kind           gateway.Kind
			upstream, name string
		}{
			{gateway.KindTool, "files", "read"}, {gateway.KindTool, "files", "read_secret"}, {gateway.KindTool, "files", "write"}, {gateway.KindTool, "files", "delete"},
			{gateway.KindPrompt, "files", "write"}, {gateway.KindResource, "files", "file:///a"}, {gateway.KindResource, "files", "file:///etc/passwd"},
			{gateway.KindResource, "files", "file:///a/../etc/passwd"}, {gateway.KindResource, "files", "file:/etc/passwd"}, {gateway.KindResource, "files", "file://server/etc/passwd"},
			{gateway.KindTemplate, "files", "file:///etc/{x}"},
			{gateway.KindTool, "open", "write"}, {gateway.KindResource, "open", "file:///%2525252525252e"}, {gateway.KindTool, "other", "write"},
		} {
			if v.Of(t.Context()).Allows(i.kind, i.upstream, i.name) {
				list = append(list, i.kind.String()+" "+i.upstream+" "+i.name)
			}
		}
		return list
	}
	want := []string{"tool files read", "tool files delete", "prompt files write", "resource files file:///a", "tool open write", "resource open file:///%2525252525252e", "tool other write"}
	if diff := cmp.Diff(want, allowed(nil)); diff != "" {
		t.Errorf("without rules (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"tool files read"}, allowed([]config.View{{Allow: []string{"files__*"}, Deny: []string{"*delete", "prompt:*", "resource:*"}}})); diff != "" {
		t.Errorf("with rules (-want +got):\n%s", diff)
	}
	filters = map[string]Filters{"files": {
		Tools: config.Filter{Deny: []string{"write"}}, Prompts: config.Filter{Deny: []string{"write"}}, Resources: config.Filter{Allow: []string{"file:*"}, Deny: []string{"file:///etc/*"}},
	}}
	if diff := cmp.Diff([]string{"tool files read", "tool files read_secret", "tool files delete", "resource files file:///a", "tool open write", "resource open file:///%2525252525252e", "tool other write"}, allowed(nil)); diff != "" {
		t.Errorf("with filters of each kind (-want +got):\n%s", diff)
	}
	for _, bad := range []Filters{{Tools: config.Filter{Allow: []string{`\`}}}, {Prompts: config.Filter{Deny: []string{`\`}}}} {
		if _, err := NewViews(nil, map[string]Filters{"files": bad}); err == nil || !strings.HasPrefix(err.Error(), "upstreams.files: ") {
			t.Errorf("got %v", err)
		}
	}
}

func TestMatch(t *testing.T) {
	claim := func(name string, values ...string) config.Match {
		return config.Match{Claims: map[string]config.Texts{name: values}}
	}
	of := func(pairs ...string) *auth.Principal {
		return &auth.Principal{Issuer: "https://idp", Subject: "alice b", ClientID: "app", Scopes: []string{"a", "b"}, Claims: claims(pairs...)}
	}
	for _, tt := range []struct {
		name  string
		match config.Match
		p     *auth.Principal
		want  bool
	}{
		{"anybody", config.Match{}, nil, true},
		{"text", claim("team", "support"), of("team", `"support"`), true},
		{"escaped text", claim("team", "support"), of("team", `"\u0073upport"`), true},
		{"other text", claim("team", "support"), of("team", `"Support"`), false},
		{"one of several", claim("team", "sales", "support"), of("team", `"support"`), true},
		{"pattern", claim("email", "*@example.com"), of("email", `"a@example.com"`), true},
		{"pattern of another domain", claim("email", "*@example.com"), of("email", `"a@example.com.evil"`), false},
		{"array", claim("groups", "b"), of("groups", `["a", 7, {"b":"b"}, "b"]`), true},
		{"array without it", claim("groups", "b"), of("groups", `["a", ["b"], {"x":"b"}, null]`), false},
		{"empty array", claim("groups", "*"), of("groups", `[]`), false},
		{"object", claim("team", "*"), of("team", `{"support":true}`), false},
		{"null", claim("team", "*"), of("team", `null`), false},
		{"null as text", claim("team", "null"), of("team", `null`), false},
		{"absent", claim("team", "*"), of(), false},
		{"no claims", claim("team", "*"), &auth.Principal{}, false},
		{"boolean", claim("admin", "true"), of("admin", `true`), true},
		{"other boolean", claim("admin", "true"), of("admin", `false`), false},
		{"number", claim("level", "5"), of("level", `5`), true},
		{"longer number", claim("level", "5"), of("level", `50`), false},
		{"pointer", claim("/realm_access/roles", "dev"), of("realm_access", `{"roles":["ops","dev"]}`), true},
		{"pointer into nothing", claim("/realm_access/roles", "dev"), of("realm_access", `["roles","dev"]`), false},
		{"escaped pointer", claim("/a~1b/c~0d", "x"), of("a/b", `{"c~d":"x"}`), true},
		{"both claims", config.Match{Claims: map[string]config.Texts{"a": {"1"}, "b": {"2"}}}, of("a", `"1"`), false},
		{"scopes", config.Match{Scopes: []string{"a", "b"}}, of(), true},
		{"missing scope", config.Match{Scopes: []string{"a", "c"}}, of(), false},
		{"subject", config.Match{Principals: []string{"alice%20b"}}, of(), true},
		{"subject unescaped is issuer and subject", config.Match{Principals: []string{"alice b"}}, of(), false},
		{"issuer and subject", config.Match{Principals: []string{"https://idp alice*"}}, of(), true},
		{"other issuer", config.Match{Principals: []string{"https://other alice*"}}, of(), false},
		{"client", config.Match{Principals: []string{"* * app"}}, of(), true},
		{"other client", config.Match{Principals: []string{"bob", "* * app2"}}, of(), false},
		{"everybody with a principal", config.Match{Principals: []string{"*"}}, of(), true},
		{"nobody", config.Match{Principals: []string{"*"}}, nil, false},
		{"scopes of nobody", config.Match{Scopes: []string{"a"}}, nil, false},
		{"claim of nobody", claim("team", "*"), nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := compileRule(config.View{Match: tt.match, Allow: []string{"*"}})
			if err != nil {
				t.Fatal(err)
			}
			if got := r.matches(tt.p); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestViewErrors(t *testing.T) {
	for _, tt := range []struct {
		rule config.View
		want string
	}{
		{config.View{Deny: []string{"*"}}, `views: no rule allows anything, so nobody sees anything: add allow: ["*"] to a rule`},
		{config.View{Allow: []string{`a\`}}, `views[0]: allow: the pattern "a\\" ends with a backslash`},
		{config.View{Allow: []string{"*"}, Match: config.Match{Claims: map[string]config.Texts{"team": nil}}}, `views[0]: claim "team": the name or the value is missing`},
		{config.View{Allow: []string{"*"}, Match: config.Match{Scopes: []string{"a b"}}}, `views[0]: "a b" is not a scope`},
		{config.View{Allow: []string{"*"}, Match: config.Match{Principals: []string{"a b c d"}}}, `views[0]: principal "a b c d": want SUBJECT, ISSUER SUBJECT or ISSUER SUBJECT CLIENT`},
	} {
		_, err := NewViews([]config.View{tt.rule}, nil)
		if err == nil || err.Error() != tt.want {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
}

// TestManyRules checks that a caller gets what its rules allow, and nothing of others, also with
// many rules.
func TestManyRules(t *testing.T) {
	var rules []config.View
	for i := range 1000 {
		rules = append(rules, config.View{Match: config.Match{Scopes: []string{fmt.Sprint("s", i)}}, Allow: []string{fmt.Sprintf("up%d__*", i)}})
	}
	views, err := NewViews(rules, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, scopes := range [][]string{{"s1", "s12"}, {"s11", "s2"}, {"s112"}, {"s999"}, nil} {
		view := views.Of(auth.WithPrincipal(t.Context(), &auth.Principal{Issuer: "i", Subject: "a", Scopes: scopes}))
		for _, n := range []string{"1", "2", "11", "12", "112", "999"} {
			if got, want := view.Allows(gateway.KindTool, "up"+n, "t"), slices.Contains(scopes, "s"+n); got != want {
				t.Errorf("%v: up%s is allowed: %t, want %t", scopes, n, got, want)
			}
		}
	}
}

// TestViewKeys checks that callers share a view exactly if the same rules match them, and that a
// key changes with the rules.
func TestViewKeys(t *testing.T) {
	rules := []config.View{{Allow: []string{"a__*"}}, {Match: config.Match{Scopes: []string{"admin"}}, Allow: []string{"*"}}}
	key := func(rules []config.View, scopes ...string) string {
		v, err := NewViews(rules, nil)
		if err != nil {
			t.Fatal(err)
		}
		p := &auth.Principal{Subject: strings.Join(scopes, ""), Scopes: scopes}
		return v.Of(auth.WithPrincipal(t.Context(), p)).Key()
	}
	other := []config.View{{Allow: []string{"b__*"}}, rules[1]}
	got := []bool{
		key(rules, "x") == key(rules, "y"),
		key(rules, "x") == key(rules, "admin"),
		key(rules, "x") == key(other, "x"),
		key(rules) == key(nil),
	}
	if diff := cmp.Diff([]bool{true, false, false, false}, got); diff != "" {
		t.Errorf("equal keys (-want +got):\n%s", diff)
	}
}

// TestViewsAreKept checks that callers of the same rules get one view, and that the kept views are
// bounded.
func TestViewsAreKept(t *testing.T) {
	const n = 13 // each of 2^n sets of scopes has a view
	var rules []config.View
	for i := range n {
		rules = append(rules, config.View{Match: config.Match{Scopes: []string{fmt.Sprint("s", i)}}, Allow: []string{"*"}})
	}
	views, err := NewViews(rules, nil)
	if err != nil {
		t.Fatal(err)
	}
	of := func(set int) *View {
		p := &auth.Principal{Issuer: "i", Subject: "a"}
		for i := range n {
			if set>>i&1 == 1 {
				p.Scopes = append(p.Scopes, fmt.Sprint("s", i))
			}
		}
		return views.of(auth.WithPrincipal(t.Context(), p))
	}
	first := of(1)
	if of(1) != first {
		t.Error("the second caller got another view, want the first one's")
	}
	for set := range 1 << n {
		of(set)
	}
	if got := len(views.views); got != maxViews {
		t.Errorf("got %d views, want %d", got, maxViews)
	}
	last := of(1<<n - 1)
	if of(1) != first || !last.Allows(gateway.KindTool, "files", "read") {
		t.Error("with too many views: the first view is no longer kept, or another one does not work")
	}
}

// FuzzPattern compares patterns with a slow matcher.
func FuzzPattern(f *testing.F) {
	f.Add("a*b", "axb")
	f.Add("*", "")
	f.Add("ab*ab", "abab")
	f.Add("ab*ab", "ab")
	f.Add("*a*a*a", "aaa")
	f.Add(`\**`, "*x")
	f.Fuzz(func(t *testing.T, text, name string) {
		p, err := compilePattern(text)
		if err != nil || len(text) > 64 || len(name) > 64 {
			return
		}
		if got, want := p.match([]byte(name)), slowMatch(text, name); got != want {
			t.Errorf("%q and %q: got %v, want %v", text, name, got, want)
		}
	})
}

// slowMatch matches by the definition of a pattern.
func slowMatch(pattern, name string) bool {
	reachable := map[int]bool{0: true} // positions in name
	for i := 0; i < len(pattern); i++ {
		next := map[int]bool{}
		star := pattern[i] == '*'
		if pattern[i] == '\\' {
			i++
		}
		for at := range reachable {
			if star {
				for j := at; j <= len(name); j++ {
					next[j] = true
				}
			} else if at < len(name) && name[at] == pattern[i] {
				next[at+1] = true
			}
		}
		reachable = next
	}
	return reachable[len(name)]
}

// TestAllowsSome checks which upstreams a view has anything of.
func TestAllowsSome(t *testing.T) {
	for _, tt := range []struct {
		allow []string
		want  bool
	}{
		{[]string{"github__search_*"}, true}, {[]string{"tool:github__read"}, true}, {[]string{"*"}, true}, {[]string{"git*"}, true}, {[]string{"github__"}, true},
		{[]string{"*__search"}, true}, {[]string{"git"}, false}, {[]string{"gitlab__*", "github_x__*"}, false}, {[]string{"a", "github__x"}, true},
	} {
		views, err := NewViews([]config.View{{Allow: tt.allow}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := views.of(t.Context()).AllowsSome("github"); got != tt.want {
			t.Errorf("%q: got %v, want %v", tt.allow, got, tt.want)
		}
	}
}
