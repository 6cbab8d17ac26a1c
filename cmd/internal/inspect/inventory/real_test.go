package inventory_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/cmd/internal/inspect/inventory"
	"mcpwire/mcp"
)

// of takes the inventory of a server with one item of a kind.
func of(method, list, thing string) *inventory.Inventory {
	v := inventory.New("x")
	v.Add(method, nil, []byte(`{"`+list+`":[`+thing+`]}`), nil, 0)
	return v
}

// lines formats differences for people.
func lines(list []inventory.Difference) []string {
	var out []string
	for _, d := range list {
		out = append(out, strings.TrimSpace(string(d.Impact)+" "+d.Pointer+" "+d.Why))
	}
	return out
}

func TestCompareItems(t *testing.T) {
	const gone = `breaking /inputSchema/type "type": "object" was removed, which the protocol requires here: clients reject the tool`
	for _, tt := range []struct {
		name, kind, old, new string
		want                 []string
	}{
		{"no root type", "tools", `"inputSchema":{"type":"object"}`, `"inputSchema":{"$schema":"x"}`, []string{gone, "words /inputSchema/$schema the $schema changed"}},
		{"another root type", "tools", `"inputSchema":{"type":"object"}`, `"inputSchema":{"type":"string"}`, []string{gone}},
		{"a list of types", "tools", `"inputSchema":{"type":"object"}`, `"inputSchema":{"type":["object","null"]}`, []string{gone}},
		{"a reference", "tools", `"inputSchema":{"type":"object"}`, `"inputSchema":{"$ref":"#/$defs/a","$defs":{"a":{"type":"object"}}}`, []string{gone, `unclear /inputSchema/$ref the keyword "$ref" differs`}},
		{"anything", "tools", `"inputSchema":{"type":"object"}`, `"inputSchema":true`, []string{gone}},
		{"a root type", "tools", `"inputSchema":{}`, `"inputSchema":{"type":"object"}`, []string{`compatible /inputSchema/type "type": "object" was added, which the protocol requires`}},
		{"a result of any type", "tools", `"outputSchema":{"type":"object"}`, `"outputSchema":{}`, []string{"breaking /outputSchema/type array, boolean, integer, null, number, string is allowed now"}},
		{"forbidden is absent", "tools", `"title":"a"`, `"title":"a","execution":{"taskSupport":"forbidden"}`, nil},
		{"absent is forbidden", "tools", `"title":"a","execution":{"taskSupport":"forbidden"}`, `"title":"a","execution":{}`, nil},
		{"an empty one", "tools", `"title":"a","execution":{}`, `"title":"a"`, nil},
		{"tasks", "tools", `"title":"a"`, `"title":"a","execution":{"taskSupport":"required"}`, []string{"unclear /execution added"}},
		{"no tasks", "tools", `"execution":{"taskSupport":"optional"}`, `"execution":{"taskSupport":"forbidden"}`, []string{"unclear /execution/taskSupport changed"}},
		{"something else", "tools", `"title":"a"`, `"title":"a","execution":{"taskSupport":"forbidden","x":1}`, []string{"unclear /execution added"}},
		{"not required", "prompts", `"arguments":[{"name":"a"}]`, `"arguments":[{"name":"a","required":false}]`, nil},
		{"required no more", "prompts", `"arguments":[{"name":"a","required":true}]`, `"arguments":[{"name":"a"}]`, []string{"compatible /arguments/0/required removed"}},
		{"required", "prompts", `"arguments":[{"name":"a"}]`, `"arguments":[{"name":"a","required":true}]`, []string{"breaking /arguments/0/required added"}},
		{"no description", "prompts", `"arguments":[{"name":"a","description":"x"}]`, `"arguments":[{"name":"a"}]`, []string{"words /arguments/0/description removed"}},
		{"another name", "prompts", `"arguments":[{"name":"a"}]`, `"arguments":[{"name":"b"}]`, []string{"breaking /arguments/0/name changed"}},
		{"an argument gone", "prompts", `"arguments":[{"name":"a"},{"name":"b"}]`, `"arguments":[{"name":"a"}]`, []string{"breaking /arguments/1 removed"}},
		{"no arguments", "prompts", `"title":"a"`, `"title":"a","arguments":[]`, nil},
		{"the first arguments", "prompts", `"title":"a"`, `"title":"a","arguments":[{"name":"a","required":true}]`, []string{"breaking /arguments added"}},
	} {
		method := mcp.MethodToolsList
		if tt.kind == "prompts" {
			method = mcp.MethodPromptsList
		}
		thing := func(member string) string { return `{"name":"x",` + member + `}` }
		got := lines(inventory.Compare(of(method, tt.kind, thing(tt.old)), of(method, tt.kind, thing(tt.new)), nil))
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// fits reports whether redacted is text with one part replaced by a placeholder.
func fits(redacted, text string) bool {
	const placeholder = "~redacted:token:0123456789ab:8~"
	start, end, ok := strings.Cut(redacted, placeholder)
	return ok && strings.HasPrefix(text, start) && strings.HasSuffix(text, end)
}

func TestCompareHidden(t *testing.T) {
	const p = "~redacted:token:0123456789ab:8~"
	for _, tt := range []struct {
		name, method, kind, old, new string
		want                         []string
	}{
		{"a description", "tools/list", "tools", `{"name":"x","description":"webhook: ` + p + ` URL"}`, `{"name":"x","description":"webhook: **optional** URL"}`, nil},
		{"in the second", "tools/list", "tools", `{"name":"x","description":"webhook: **optional** URL"}`, `{"name":"x","description":"webhook: ` + p + ` URL"}`, nil},
		{"and another word", "tools/list", "tools", `{"name":"x","description":"webhook: ` + p + ` URL"}`, `{"name":"x","description":"webhook: **optional** URI"}`, []string{"words /description changed"}},
		{"in a schema", "tools/list", "tools", `{"name":"x","inputSchema":{"type":"object","properties":{"a":{"enum":["` + p + `"]}}}}`, `{"name":"x","inputSchema":{"type":"object","properties":{"a":{"enum":["b"]}}}}`, nil},
		{"a number", "tools/list", "tools", `{"name":"x","title":"` + p + `"}`, `{"name":"x","title":17}`, nil},
		{"a URI", "resources/list", "resources", `{"uri":"a://` + p + `","name":"a"}`, `{"uri":"a://secret","name":"a"}`, []string(nil)},
		{"no URI", "resources/list", "resources", `{"uri":"a://` + p + `"}`, `{"uri":"b://secret"}`, []string{"breaking  removed", "compatible  added"}},
	} {
		got := lines(inventory.Compare(of(tt.method, tt.kind, tt.old), of(tt.method, tt.kind, tt.new), &inventory.Options{MatchesRedacted: fits}))
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestCompareShowsTheDifference(t *testing.T) {
	long := strings.Repeat("ä", 1000)
	a := of("tools/list", "tools", `{"name":"x","description":"`+long+`one`+long+`"}`)
	b := of("tools/list", "tools", `{"name":"x","description":"`+long+`two`+long+`"}`)
	got := inventory.Compare(a, b, nil)
	if len(got) != 1 {
		t.Fatalf("got %v", got)
	}
	want := "…" + strings.Repeat("ä", 20)
	if !strings.HasPrefix(got[0].Old, want+"one") || !strings.HasPrefix(got[0].New, want+"two") {
		t.Errorf("cut to\n%s\n%s", got[0].Old, got[0].New)
	}
	if len(got[0].Old) > 310 {
		t.Errorf("%d bytes are shown", len(got[0].Old))
	}
}

func TestOmitted(t *testing.T) {
	full := func(capabilities string, methods ...string) *inventory.Inventory {
		v := inventory.New("x")
		if capabilities != "" {
			v.Add(mcp.MethodInitialize, nil, []byte(`{"capabilities":`+capabilities+`}`), nil, 0)
		}
		for _, m := range methods {
			list := map[string]string{mcp.MethodToolsList: "tools", mcp.MethodPromptsList: "prompts", mcp.MethodResourcesList: "resources", mcp.MethodResourceTemplatesList: "resourceTemplates"}[m]
			v.Add(m, nil, []byte(`{"`+list+`":[]}`), nil, 0)
		}
		return v
	}
	const all = `{"tools":{},"prompts":{},"resources":{}}`
	a := full(all, mcp.MethodToolsList, mcp.MethodResourcesList)
	b := full(all, mcp.MethodToolsList, mcp.MethodPromptsList, mcp.MethodResourceTemplatesList)
	want := []inventory.Omission{{"prompts", "a"}, {"resources", "b"}, {"resourceTemplates", "a"}}
	if diff := cmp.Diff(want, inventory.Omitted(a, b)); diff != "" {
		t.Errorf("two (-want +got):\n%s", diff)
	}
	if got := inventory.Omitted(a, full(`{"tools":{}}`, mcp.MethodToolsList)); len(got) != 2 || got[0].Kind != "prompts" || got[0].Missing != "a" {
		t.Errorf("a server without prompts: %v", got)
	}
	if got := inventory.Omitted(a, a); got != nil {
		t.Errorf("the same: %v", got)
	}
	if diff := cmp.Diff([]inventory.Omission{{"capabilities", "a"}, {"tools", "b"}}, inventory.Omitted(full("", mcp.MethodToolsList), full(all))); diff != "" {
		t.Errorf("no handshake (-want +got):\n%s", diff)
	}
}
