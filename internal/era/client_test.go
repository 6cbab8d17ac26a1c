package era

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// TestOfferCapabilities checks that the declared capabilities alone decide which requests are
// allowed.
func TestOfferCapabilities(t *testing.T) {
	all := ClientProfile{Form: true, URL: true, Sampling: true, SamplingTools: true, Roots: true}
	urlOnly := ClientProfile{URL: true}
	raw := ClientProfile{Sampling: true, Extra: map[string]json.RawMessage{"elicitation": json.RawMessage(`{"url": {}}`), "sampling": json.RawMessage("null")}}
	everything := InputSupport{true, true, true, true, true}
	for _, tt := range []struct {
		name     string
		offer    ClientProfile
		revision mcp.Revision
		want     string
		accepts  InputSupport
	}{
		{"nothing", ClientProfile{}, mcp.Revision20241105, `{}`, InputSupport{}},
		{"nothing", ClientProfile{SamplingTools: true}, mcp.Revision20260728, `{}`, InputSupport{}},
		{"all", all, mcp.Revision20241105, `{"roots":{"listChanged":true},"sampling":{}}`, InputSupport{Sampling: true, Roots: true}},
		{"all", all, mcp.Revision20250618, `{"elicitation":{},"roots":{"listChanged":true},"sampling":{}}`, InputSupport{Form: true, Sampling: true, Roots: true}},
		{"all", all, mcp.Revision20251125, `{"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true},"sampling":{"tools":{}}}`, everything},
		{"all", all, mcp.Revision20260728, `{"elicitation":{"form":{},"url":{}},"roots":{},"sampling":{"tools":{}}}`, everything},
		{"form", ClientProfile{Form: true}, mcp.Revision20251125, `{"elicitation":{"form":{}}}`, InputSupport{Form: true}},
		{"url", urlOnly, mcp.Revision20250618, `{}`, InputSupport{}},
		{"url", urlOnly, mcp.Revision20260728, `{"elicitation":{"url":{}}}`, InputSupport{URL: true}},
		{"raw", raw, mcp.Revision20260728, `{"elicitation":{"url":{}},"sampling":null}`, InputSupport{URL: true}},
		{"raw, without modes", ClientProfile{Extra: map[string]json.RawMessage{"elicitation": json.RawMessage(`{}`)}}, mcp.Revision20260728, `{"elicitation":{}}`, InputSupport{Form: true}},
	} {
		text, accepts := tt.offer.Capabilities(Of(tt.revision))
		if string(text) != tt.want || accepts != tt.accepts {
			t.Errorf("%s, %v: got %s, %+v; want %s, %+v", tt.name, tt.revision, text, accepts, tt.want, tt.accepts)
		}
	}
}

func TestReadProfile(t *testing.T) {
	type facts struct {
		Versions           string
		Name, Caps, Advice string
		Err                string
	}
	const info = `{"name":"n","version":"v"}`
	for _, tt := range []struct {
		name   string
		read   func([]byte) (*ServerProfile, error)
		result string
		want   facts
	}{
		{"discover", ReadDiscover, `{"supportedVersions":["a","b"],"capabilities": {"x":1} ,"instructions":"i\n","resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":` + info + `}}`,
			facts{"[a b]", "n", `{"x":1}`, "i\n", ""}},
		{"discover, bare", ReadDiscover, `{"supportedVersions":[]}`, facts{"[]", "", "{}", "", ""}},
		{"discover, as an old draft has it", ReadDiscover, `{"supportedVersions":["a"],"serverInfo":` + info + `,"capabilities":null,"instructions":5,"_meta":null}`, facts{"[a]", "n", "{}", "", ""}},
		{"discover, empty", ReadDiscover, `{}`, facts{Err: "supportedVersions is missing"}},
		{"discover, one version", ReadDiscover, `{"supportedVersions":"a"}`, facts{Err: "not an array of strings"}},
		{"discover, no strings", ReadDiscover, `{"supportedVersions":["a",1]}`, facts{Err: "not an array of strings"}},
		{"discover, another type", ReadDiscover, `{"supportedVersions":["a"],"resultType":"task"}`, facts{Err: `resultType is "task"`}},
		{"discover, no type", ReadDiscover, `{"supportedVersions":["a"],"resultType":1}`, facts{Err: `resultType is "?"`}},
		{"discover, no object", ReadDiscover, `["supportedVersions"]`, facts{Err: "not an object"}},
		{"initialize", ReadInitialize, `{"protocolVersion":"a","capabilities":{},"serverInfo":` + info + `,"instructions":"i"}`, facts{"[a]", "n", "{}", "i", ""}},
		{"initialize, without a version", ReadInitialize, `{"capabilities":{}}`, facts{Err: "protocolVersion is missing"}},
		{"initialize, version of a wrong type", ReadInitialize, `{"protocolVersion":null}`, facts{Err: "protocolVersion is not a string"}},
		{"initialize, nothing", ReadInitialize, ``, facts{Err: "not an object"}},
	} {
		h, err := tt.read([]byte(tt.result))
		var got facts
		if err == nil {
			got = facts{fmt.Sprint(h.Versions), h.Info.Name, string(h.Capabilities), h.Instructions, ""}
		} else if got.Err = err.Error(); strings.Contains(got.Err, tt.want.Err) && tt.want.Err != "" {
			got.Err = tt.want.Err
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestModernErrors(t *testing.T) {
	for code, want := range map[jsonrpc.Code]bool{-32020: true, -32021: true, -32022: true, -32019: false, -32023: false, -32601: false, -32602: false, -32001: false, -32004: false, 0: false} {
		if got := IsModernError(&jsonrpc.Error{Code: code}); got != want {
			t.Errorf("%d: got %t", code, got)
		}
	}
	for data, want := range map[string][]string{
		``: nil, `[]`: nil, `{}`: nil, `{"supported":"a"}`: nil, `{"supported":[1]}`: nil, `{"supported":[]}`: {}, `{"requested":"x","supported":["a","b\u0063"]}`: {"a", "bc"},
	} {
		if diff := cmp.Diff(want, SupportedVersions(&jsonrpc.Error{Data: []byte(data)})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", data, diff)
		}
	}
}

func TestMethodsWithInput(t *testing.T) {
	for _, tt := range []struct {
		method         string
		modern, legacy bool
	}{
		{mcp.MethodToolsCall, true, true},
		{mcp.MethodPromptsGet, true, true},
		{mcp.MethodResourcesRead, true, true},
		{mcp.MethodComplete, false, true},
		{mcp.MethodToolsList, false, false},
	} {
		if modern, legacy := AllowsInput(tt.method), ServerMayAsk(tt.method); modern != tt.modern || legacy != tt.legacy {
			t.Errorf("%s: got %t, %t; want %t, %t", tt.method, modern, legacy, tt.modern, tt.legacy)
		}
	}
}

func TestCommon(t *testing.T) {
	ours := []mcp.Revision{mcp.Revision20260728, mcp.Revision20250326, mcp.Revision20251125}
	for _, tt := range []struct {
		theirs         string
		modern, legacy mcp.Revision
	}{
		{"", mcp.RevisionNone, mcp.RevisionNone},
		{"2026-07-28", mcp.Revision20260728, mcp.RevisionNone},
		{"2025-03-26 2025-11-25 2025-06-18", mcp.RevisionNone, mcp.Revision20251125},
		{"2025-06-18 2024-11-05 none 2099-01-01", mcp.RevisionNone, mcp.RevisionNone},
		{"2025-03-26 2026-07-28", mcp.Revision20260728, mcp.Revision20250326},
	} {
		modern, legacy := Common(ours, strings.Fields(tt.theirs))
		if modern != tt.modern || legacy != tt.legacy {
			t.Errorf("%s: got %v and %v", tt.theirs, modern, legacy)
		}
	}
	if modern, legacy := Newest(ours); modern != mcp.Revision20260728 || legacy != mcp.Revision20251125 {
		t.Errorf("newest: %v and %v", modern, legacy)
	}
	if modern, legacy := Newest(ours[1:2]); modern != mcp.RevisionNone || legacy != mcp.Revision20250326 {
		t.Errorf("newest of one: %v and %v", modern, legacy)
	}
}

func TestResultType(t *testing.T) {
	for result, want := range map[string]mcp.ResultType{
		`{}`: "", `{"resultType":"complete"}`: "complete", `{"a":{"resultType":"x"},"resultType":"input_required"}`: "input_required",
		`{"resultType":"t\u0061sk"}`: "task", `{"r\u0065sultType":"x"}`: "x", `{"resultType":null}`: "?", `{"resultType":""}`: "?",
	} {
		if got := ResultType([]byte(result)); got != want {
			t.Errorf("%s: got %q", result, got)
		}
	}
	complete := []byte(`{"content":[],"resultType":"complete"}`)
	if n := testing.AllocsPerRun(100, func() { ResultType(complete) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestClientPolicy(t *testing.T) {
	for _, r := range mcp.Revisions() {
		if got := ClientPolicy(Of(r)); got.DropRequests != r.Modern() || !got.NoErrorsWithoutID || got.NoBatches {
			t.Errorf("%v: %+v", r, got)
		}
	}
	if got := ClientPolicy(nil); got.DropRequests {
		t.Errorf("before anything is known: %+v", got)
	}
}

func TestImplementation(t *testing.T) {
	icons := []mcp.Icon{{Src: "https://example.com/i.png", MIMEType: "image/png", Sizes: []string{"any"}}, {Src: "data:,x", Theme: mcp.ThemeDark}}
	full := mcp.Implementation{Name: "n", Version: "v", Title: "T", Description: "D\n", WebsiteURL: "https://example.com", Icons: icons}
	for _, tt := range []struct {
		text string
		want mcp.Implementation
	}{
		{string(mcp.Append(nil, &full, mcp.RevisionNone)), full},
		{`{"name":"a\u0062","version":7,"title":null,"description":{},"icons":[1]}`, mcp.Implementation{Name: "ab"}},
		{`{"icons":[{},{"src":"data:,x","theme":"dark"},{"src":7}]}`, mcp.Implementation{Icons: icons[1:]}},
		{`{"icons":{"src":"data:,x"}}`, mcp.Implementation{}},
		{`{"n\u0061me":"x","Version":"1"}`, mcp.Implementation{Name: "x"}},
		{`{}`, mcp.Implementation{}},
		{`[]`, mcp.Implementation{}},
		{`null`, mcp.Implementation{}},
		{`"x"`, mcp.Implementation{}},
		{``, mcp.Implementation{}},
	} {
		if diff := cmp.Diff(tt.want, parseImplementation([]byte(tt.text))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.text, diff)
		}
	}
}
