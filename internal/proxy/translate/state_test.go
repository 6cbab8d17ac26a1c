package translate

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"mcpwire/mcp"
)

// TestSortedKeys checks that keys are in the order of their streams, including very large ones.
func TestSortedKeys(t *testing.T) {
	want := []requestKey{{0, "9"}, {1, "a"}, {1, "b"}, {1 << 30, "z"}, {1<<30 + 1, "b"}, {1<<30 + 2, "a"}, {1 << 62, "a"}, {math.MaxUint64, ""}}
	m := map[requestKey]*modernRequest{}
	for _, key := range want {
		m[key] = nil
	}
	for range 100 { // the order of a map varies
		if got := sortedKeys(m); !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
}

// TestStateBinding checks that a state is bound to the method, the session, and the params that the
// server gets.
func TestStateBinding(t *testing.T) {
	c := NewModernToLegacy(nil)
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":1}`
	for _, tt := range []struct{ name, method, first, again string }{
		{"a call", mcp.MethodToolsCall, `{` + meta + `,"name":"a","arguments":{"x":[1, 2]}}`, `{"arguments": {"x":[1,2]},"name":"a",` + meta + `,"requestState":"s","inputResponses":{}}`},
		{"a call with an ignored member", mcp.MethodToolsCall, `{"name":"a","task":{},` + meta + `}`, `{"name":"a","task":{"ttl":1},` + meta + `,"requestState":"s"}`},
		{"a prompt", mcp.MethodPromptsGet, `{"name":"a",` + meta + `}`, `{"name":"a","requestState":"s"}`},
		{"a prompt with another member", mcp.MethodPromptsGet, `{"name":"a","task":1}`, `{"name":"a","task":1,"requestState":"s"}`},
		{"empty params", mcp.MethodResourcesRead, `{` + meta + `}`, `{}`},
	} {
		made := c.rounds.bind(&modernCall{method: tt.method, params: legacyParams([]byte(tt.first), tt.method)})
		if !bytes.Equal(made, c.rounds.binding(tt.method, []byte(tt.again))) {
			t.Errorf("%s: the state is invalid for the same request", tt.name)
		}
		for _, other := range []string{`{"name":"b"}`, `{"name":"a","arguments":{"x":[1,3]}}`, `{"name":"a","task":2}`} {
			if tt.method == mcp.MethodToolsCall && other == `{"name":"a","task":2}` {
				continue
			}
			if bytes.Equal(made, c.rounds.binding(tt.method, []byte(other))) {
				t.Errorf("%s: the state is valid for %s", tt.name, other)
			}
		}
		if bytes.Equal(made, c.rounds.binding("other", []byte(tt.again))) || bytes.Equal(made, NewModernToLegacy(nil).rounds.binding(tt.method, []byte(tt.again))) {
			t.Errorf("%s: the state is valid for another method or session", tt.name)
		}
	}
	e := &modernCall{method: mcp.MethodToolsCall, params: []byte(`{"name":"a"}`)}
	before := c.rounds.bind(e)
	if e.params = taskParams("1"); !bytes.Equal(before, c.rounds.bind(e)) {
		t.Error("the binding has changed with the params of the call")
	}
}
