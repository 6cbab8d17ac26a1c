package streamable_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

func toolList(tools string) string {
	return `{"resultType":"complete","tools":[` + tools + `],"ttlMs":0,"cacheScope":"private"}`
}

// annotated is a tool with one argument of each type that is mirrored in a header.
const annotated = `{"name":"t","inputSchema":{"type":"object","properties":{
	"region":{"type":"string","x-mcp-header":"Region"},
	"n":{"type":"integer","x-mcp-header":"N"},
	"b":{"type":"boolean","x-mcp-header":"method"},
	"in":{"type":"object","properties":{"side":{"type":"string","x-mcp-header":"Side"}}},
	"query":{"type":"string"}}}}`

// TestClientParams checks the headers that mirror arguments.
//
// Spec: C57 C58 C59 C60 C64 C65
func TestClientParams(t *testing.T) {
	f := newFakeServer(t, modern(map[string]http.HandlerFunc{"tools/list": reply(toolList(annotated))}))
	c := f.dial(nil, nil)
	call := func(args string) map[string]string {
		t.Helper()
		if _, err := c.CallTool(t.Context(), "t", json.RawMessage(args)); err != nil {
			t.Fatal(err)
		}
		calls := f.requests("tools/call")
		got := map[string]string{}
		for name, values := range calls[len(calls)-1].Header {
			if param, ok := strings.CutPrefix(name, "Mcp-Param-"); ok {
				got[param] = strings.Join(values, "|")
			}
		}
		return got
	}
	if got := call(`{"region":"eu"}`); len(got) > 0 {
		t.Errorf("call before tools/list: %v", got)
	}
	if _, err := c.ListTools(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args string
		want map[string]string
	}{
		{`{}`, map[string]string{}},
		{`{"region":"eu west","n":42,"b":false,"in":{"side":"left"},"query":"q"}`, map[string]string{"Region": "eu west", "N": "42", "Method": "false", "Side": "left"}},
		{`{"region":"","n":-0,"b":true}`, map[string]string{"Region": "", "N": "-0", "Method": "true"}},
		{`{"region":null,"n":null,"b":null,"in":null}`, map[string]string{}},
		{`{"region":"世界\r\nX: y","n":42.0}`, map[string]string{"Region": "=?base64?5LiW55WMDQpYOiB5?=", "N": "42"}},
		{`{"region":7,"n":"seven","b":{},"in":[1]}`, map[string]string{"Region": "7", "N": "seven"}},
		{`{"n":9007199254740991}`, map[string]string{"N": "9007199254740991"}},
		{`{"n":1e3}`, map[string]string{"N": "1000"}},
		{`{"\u0072egion":"x"}`, map[string]string{"Region": "x"}},
		{`{"region":"a","region":"b"}`, map[string]string{"Region": "b"}}, // as handlers take it
	} {
		if got := call(test.args); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %v, want %v", test.args, got, test.want)
		}
	}
	if _, err := c.CallTool(t.Context(), "t", json.RawMessage(`{"n":9007199254740992}`)); err == nil {
		t.Error("an integer above 2^53 was sent")
	}
}

// TestClientRelists shows that the client lists the tools once to learn the headers that a call
// lacks.
func TestClientRelists(t *testing.T) {
	mismatch := raw(400, jsonType, `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32020,"message":"header mismatch"}}`)
	strict := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Param-Region") == "eu" {
			reply(done)(w, r)
			return
		}
		mismatch(w, r)
	}
	first := strings.Replace(toolList(`{"name":"other","inputSchema":{"type":"object"}}`), `"tools"`, `"nextCursor":"2","tools"`, 1)
	f := newFakeServer(t, modern(map[string]http.HandlerFunc{
		"tools/call": strict, "tools/list": inTurn(reply(first), reply(toolList(annotated)), reply(toolList(annotated)), reply(toolList(""))),
	}))
	c := f.dial(nil, nil)
	if _, err := c.CallTool(t.Context(), "t", map[string]string{"region": "eu"}); err != nil {
		t.Error(err)
	}
	if _, err := c.CallTool(t.Context(), "t", map[string]string{"region": "us"}); err == nil {
		t.Error("the second call succeeded")
	}
	want := []string{"server/discover", "tools/call", "tools/list", "tools/list", "tools/call", "tools/call", "tools/list", "tools/call"}
	if got := f.methods(); !slices.Equal(got, want) {
		t.Errorf("sent %q, want %q", got, want)
	}
}

// TestClientDropsTools shows that tools that cannot be called over HTTP are not listed.
//
// Spec: C66
func TestClientDropsTools(t *testing.T) {
	bad := func(name, property string) string {
		return `{"name":"` + name + `","inputSchema":{"type":"object","properties":{"p":` + property + `}}}`
	}
	list := strings.Join([]string{
		annotated,
		bad("empty", `{"type":"string","x-mcp-header":""}`),
		bad("space", `{"type":"string","x-mcp-header":"a b"}`),
		bad("break", `{"type":"string","x-mcp-header":"a\r\nHost: x"}`),
		bad("number", `{"type":"number","x-mcp-header":"A"}`),
		bad("items", `{"type":"array","items":{"type":"string","x-mcp-header":"A"}}`),
		bad("escaped", `{"type":"null","\u0078-mcp-header":"A"}`),
		`{"name":"plain","inputSchema":{"type":"object"}}`,
	}, ", ")
	var log bytes.Buffer
	f := newFakeServer(t, modern(map[string]http.HandlerFunc{"tools/list": inTurn(reply(toolList(list)), reply(toolList(`{"name":"t","inputSchema":{"type":"object"}}`)))}))
	c := f.dial(&streamable.TransportOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}, nil)
	page, err := c.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range page.Tools {
		names = append(names, tool.Name)
	}
	if want := []string{"t", "plain"}; !slices.Equal(names, want) {
		t.Errorf("tools %q, want %q", names, want)
	}
	if n := strings.Count(log.String(), "tool omitted"); n != 6 {
		t.Errorf("%d warnings, want 6", n)
	}
	// this list has no header annotations
	if _, err := c.ListTools(t.Context(), nil, client.WithoutCache()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CallTool(t.Context(), "t", map[string]string{"region": "eu"}); err != nil {
		t.Fatal(err)
	}
	if h := f.requests("tools/call")[0].Header; h.Get("Mcp-Param-Region") != "" {
		t.Errorf("the old schema was used: %v", h)
	}
}

// TestClientNames checks the Mcp-Name header for each method that has one.
//
// Spec: C56 C61 C63
func TestClientNames(t *testing.T) {
	f := newFakeServer(t, modern(map[string]http.HandlerFunc{
		"resources/read": reply(`{"resultType":"complete","contents":[],"ttlMs":0,"cacheScope":"private"}`),
		"prompts/get":    reply(`{"resultType":"complete","messages":[]}`),
		"tasks/get":      reply(`{"resultType":"complete"}`),
		"x":              reply(`{"resultType":"complete"}`),
	}))
	c := f.dial(nil, nil)
	c.ReadResource(t.Context(), "file:///a b/ü")
	c.GetPrompt(t.Context(), "=?base64?x?=", nil)
	c.Call(t.Context(), mcp.MethodTasksGet, map[string]string{"taskId": "7"}, nil)
	c.Call(t.Context(), "x", map[string]string{"name": "no"}, nil)
	if err := c.Notify(t.Context(), "notifications/x", nil); err != nil {
		t.Error(err)
	}
	c.Close()
	want := map[string]string{
		"resources/read":  "=?base64?ZmlsZTovLy9hIGIvw7w=?=",
		"prompts/get":     "=?base64?PT9iYXNlNjQ/eD89?=",
		"tasks/get":       "7",
		"x":               "",
		"notifications/x": "",
	}
	for method, name := range want {
		all := f.requests(method)
		if len(all) != 1 || all[0].Header.Get("Mcp-Name") != name || all[0].Header.Get("Mcp-Method") != method || all[0].Header.Get("Mcp-Protocol-Version") != modernDate {
			t.Errorf("%s: %v, want Mcp-Name %q", method, all, name)
		}
	}
}
