package web

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"mcpwire/auth"
	"mcpwire/internal/test/wait"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// meta is the metadata of modern requests, with a progress token.
const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":"p"}`

// post returns a fetch of the endpoint with the headers that MCP requires.
func (e *endpoint) post(name, body string, header map[string]string) step {
	all := map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
	maps.Copy(all, header)
	return step{Name: name, Kind: "fetch", URL: e.url, Method: http.MethodPost, Header: all, Body: body}
}

// modern returns a modern request. params are the members of its params without _meta, each
// followed by a comma.
func (e *endpoint) modern(name, method, tool, params string, header map[string]string) step {
	all := map[string]string{"MCP-Protocol-Version": mcp.LatestRevision.String(), "Mcp-Method": method}
	if tool != "" {
		all["Mcp-Name"] = tool
	}
	maps.Copy(all, header)
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":%q,"params":{%s%s}}`, name, method, params, meta)
	return e.post(name, body, all)
}

// count returns a call of the tool count.
func (e *endpoint) count(name string, header map[string]string) step {
	return e.modern(name, "tools/call", "count", `"name":"count","arguments":{},`, header)
}

// initialize returns a request that begins a session.
func (e *endpoint) initialize() step {
	return e.post("initialize", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"page","version":"1"}}}`,
		mcp.LatestLegacyRevision.String()), nil)
}

// legacy returns a message in the session that initialize begins.
func (e *endpoint) legacy(name, body string) step {
	return e.post(name, body, map[string]string{"Mcp-Session-Id": "$session", "MCP-Protocol-Version": mcp.LatestLegacyRevision.String()})
}

// result returns the result in the last message of a response.
func (o outcome) result(t *testing.T) string {
	t.Helper()
	text := o.Body
	if len(o.Events) > 0 {
		text = o.Events[len(o.Events)-1]
	}
	var m struct{ Result json.RawMessage }
	if err := json.Unmarshal([]byte(text), &m); err != nil || m.Result == nil || o.Status != http.StatusOK {
		t.Errorf("%s: outcome = %+v, want a result", o.Name, o)
	}
	return string(m.Result)
}

// requestSteps returns requests of both eras to the endpoint.
func (e *endpoint) requestSteps() []step {
	watch := func(path string) string { return `"name":"watch","arguments":{"page":"/ack/` + path + `"}` }
	legacyStream := e.legacy("legacy stream", `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{`+watch("legacy")+`,"_meta":{"progressToken":1}}}`)
	modernStream := e.modern("modern stream", "tools/call", "watch", watch("modern")+",", nil)
	legacyStream.Ack, modernStream.Ack = e.origin+"/ack/legacy", e.origin+"/ack/modern"
	listen := e.modern("listen", "subscriptions/listen", "", `"notifications":{"toolsListChanged":true},`, nil)
	listen.Events = 1
	return []step{
		e.initialize(),
		e.legacy("initialized", `{"jsonrpc":"2.0","method":"notifications/initialized"}`),
		e.legacy("legacy call", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"count","arguments":{}}}`),
		legacyStream,
		{Name: "end", Kind: "fetch", URL: e.url, Method: http.MethodDelete, Header: map[string]string{"Mcp-Session-Id": "$session"}},
		e.legacy("after the end", `{"jsonrpc":"2.0","id":4,"method":"tools/list"}`),
		e.count("modern call", nil),
		e.modern("modern header", "tools/call", "region", `"name":"region","arguments":{"region":"Nord"},`, map[string]string{"Mcp-Param-Region": "Nord"}),
		modernStream,
		listen,
		e.count("wrong header", map[string]string{"Mcp-Name": "region"}),
	}
}

// TestAllowedOrigin runs a page of an allowed origin, in both eras. The browser sends preflight
// requests, and the page can read the session id, progress while a tool runs, and errors.
func TestAllowedOrigin(t *testing.T) {
	t.Parallel()
	app := startHost(t, "localhost")
	e := newEndpoint(t, &streamable.Options{Origins: []string{app.origin}})
	closed := newEndpoint(t, nil)
	got := app.run(t, append(e.requestSteps(), closed.count("a server without origins", nil)))
	if got["initialize"].Header["mcp-session-id"] == "" {
		t.Errorf("initialize: outcome = %+v, want a readable session id", got["initialize"])
	}
	for name, want := range map[string]string{
		"initialize": mcp.LatestLegacyRevision.String(), "legacy call": "1", "legacy stream": "seen",
		"modern call": "3", "modern header": "in Nord", "modern stream": "seen",
	} {
		if text := got[name].result(t); !strings.Contains(text, want) || got[name].Type != "cors" {
			t.Errorf("%s: result = %s, type %s, want %s and cors", name, text, got[name].Type, want)
		}
	}
	for _, name := range []string{"legacy stream", "modern stream"} {
		if events := got[name].Events; len(events) != 2 || !strings.Contains(events[0], "notifications/progress") {
			t.Errorf("%s: events = %q, want progress and a result", name, events)
		}
	}
	if events := got["listen"].Events; len(events) != 1 || !strings.Contains(events[0], "acknowledged") {
		t.Errorf("listen: outcome = %+v, want an acknowledgment", got["listen"])
	}
	for name, want := range map[string]int{"initialized": http.StatusAccepted, "after the end": http.StatusNotFound, "wrong header": http.StatusBadRequest} {
		if got[name].Status != want || got[name].Error != "" {
			t.Errorf("%s: outcome = %+v, want status %d", name, got[name], want)
		}
	}
	if got["end"].Status/100 != 2 {
		t.Errorf("end: outcome = %+v, want status 2xx", got["end"])
	}
	if n := e.runs.Load(); n != 5 {
		t.Errorf("calls = %d, want 5", n)
	}
	if len(e.requestsWhere(func(v seenRequest) bool {
		return v.method == http.MethodOptions && v.origin == app.origin && v.status == http.StatusNoContent
	})) == 0 {
		t.Error("preflight requests = 0, want at least 1")
	}
	closed.checkRejected(t, got, "a server without origins", app.origin)
}

// checkRejected checks that the page could read nothing, that the endpoint rejected all requests of
// the origin, and that no tool ran.
func (e *endpoint) checkRejected(t *testing.T, got map[string]outcome, name, origin string) {
	t.Helper()
	o := got[name]
	if o.Error == "" && o.Type != "opaque" || o.Status != 0 || o.Body != "" || len(o.Events) != 0 || len(o.Header) != 0 {
		t.Errorf("%s: outcome = %+v, want nothing readable", name, o)
	}
	requests := e.requestsWhere(func(v seenRequest) bool { return v.origin == origin })
	if len(requests) == 0 {
		t.Errorf("%s: no request from %s in %+v", name, origin, e.requestsWhere(func(seenRequest) bool { return true }))
	}
	for _, v := range requests {
		if v.status != http.StatusForbidden {
			t.Errorf("%s: status = %d, want %d: %+v", name, v.status, http.StatusForbidden, v)
		}
	}
	if n := e.runs.Load(); n != 0 {
		t.Errorf("%s: calls = %d, want 0", name, n)
	}
}

// TestRejectedOrigin runs pages whose origins are not allowed: another port, which browsers count
// as the same site, and another host name. They send all kinds of requests that pages can send,
// including those without a preflight request.
func TestRejectedOrigin(t *testing.T) {
	for _, name := range []string{"127.0.0.1", "localhost", "evil.test"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := startHost(t, name)
			e := newEndpoint(t, &streamable.Options{Origins: []string{"https://app.example"}})
			call := e.count("fetch", nil)
			plain := map[string]string{"Content-Type": "text/plain"}
			steps := []step{
				call, e.initialize(),
				{Name: "simple", Kind: "fetch", URL: e.url, Method: http.MethodPost, Header: plain, Body: call.Body},
				{Name: "no-cors", Kind: "fetch", URL: e.url, Method: http.MethodPost, Header: plain, Body: call.Body, Mode: "no-cors"},
				{Name: "no-cors initialize", Kind: "fetch", URL: e.url, Method: http.MethodPost, Header: plain, Body: e.initialize().Body, Mode: "no-cors"},
				{Name: "form", Kind: "form", URL: e.url, Body: strings.TrimSuffix(call.Body, "}") + `,"x":"=` + `"}`},
				{Name: "beacon", Kind: "beacon", URL: e.url, Header: plain, Body: call.Body},
				{Name: "beacon of JSON", Kind: "beacon", URL: e.url, Header: map[string]string{"Content-Type": "application/json"}, Body: call.Body},
				{Name: "eventsource", Kind: "eventsource", URL: e.url},
				{Name: "image", Kind: "image", URL: e.url},
				{Name: "sandbox", Kind: "sandbox", URL: e.url, Method: http.MethodPost, Header: call.Header, Body: call.Body},
				{Name: "simple sandbox", Kind: "sandbox", URL: e.url, Method: http.MethodPost, Header: plain, Body: call.Body},
			}
			got := app.run(t, steps)
			for _, s := range steps {
				switch s.Kind {
				case "fetch", "eventsource":
					e.checkRejected(t, got, s.Name, app.origin)
				case "sandbox":
					e.checkRejected(t, got, s.Name, "null")
				}
			}
			// The beacon may arrive after the page has reported its outcomes.
			want := map[string]int{"OPTIONS": 4, "POST text/plain": 6}
			wait.Until(t, "all requests", func() bool {
				return len(e.requestsWhere(func(v seenRequest) bool { return v.method == http.MethodOptions })) >= want["OPTIONS"] &&
					len(e.requestsWhere(func(v seenRequest) bool {
						return v.method == http.MethodPost && strings.HasPrefix(v.contentType, "text/plain")
					})) >= want["POST text/plain"]
			})
			for _, v := range e.requestsWhere(func(v seenRequest) bool { return v.status != http.StatusForbidden }) {
				t.Errorf("status = %d, want %d: %+v", v.status, http.StatusForbidden, v)
			}
			if n := e.runs.Load(); n != 0 {
				t.Errorf("calls = %d, want 0", n)
			}
		})
	}
}

// TestOwnPages runs pages of the server itself. With a host name that resolves to this machine but
// is not the server's (DNS rebinding), the browser treats the server as the page's origin, so the
// server must reject the requests.
func TestOwnPages(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, &streamable.Options{Hosts: []string{"own.test"}})
	for _, tt := range []struct {
		host string
		want bool
	}{{"127.0.0.1", true}, {"localhost", true}, {"own.test", true}, {"rebound.test", false}, {"own.test.evil.test", false}} {
		origin := "http://" + tt.host + ":" + e.port
		before := e.runs.Load()
		calls := []step{e.count("fetch", nil), e.initialize(), {Name: "get", Kind: "fetch", URL: "", Method: http.MethodGet}}
		for i := range calls {
			calls[i].URL = origin + "/mcp"
		}
		got := e.runAt(t, origin, calls)
		if tt.want {
			if text := got["fetch"].result(t); e.runs.Load() != before+1 || got["fetch"].Type != "basic" {
				t.Errorf("%s: result = %s, type %s, want basic and one call", tt.host, text, got["fetch"].Type)
			}
			got["initialize"].result(t)
			continue
		}
		for name, o := range got {
			if o.Status != http.StatusForbidden || !strings.Contains(o.Body, "Host header") || o.Header["mcp-session-id"] != "" {
				t.Errorf("%s, %s: outcome = %+v, want a rejected Host header", tt.host, name, o)
			}
		}
		if n := e.runs.Load(); n != before {
			t.Errorf("%s: calls = %d, want 0", tt.host, n-before)
		}
	}
}

// TestGuardedPages runs pages with a server that requires tokens. Preflight requests need none, and
// a page of an allowed origin can read the challenge. The server rejects pages of another origin
// with a token too.
func TestGuardedPages(t *testing.T) {
	t.Parallel()
	const token = "a-token-that-nobody-can-guess"
	app, evil := startHost(t, "localhost"), startHost(t, "localhost")
	verifier, err := auth.NewStatic(auth.StaticToken{Token: token, Subject: "alice"})
	if err != nil {
		t.Fatal(err)
	}
	guard, err := auth.NewGuard(&auth.GuardOptions{
		Resource: "http://127.0.0.1:1/mcp", Verifier: verifier, AuthorizationServers: []string{"https://login.example"},
	})
	if err != nil {
		t.Fatal(err)
	}
	e := newEndpoint(t, &streamable.Options{Origins: []string{app.origin}, Guard: guard})
	bearer := map[string]string{"Authorization": "Bearer " + token}
	steps := []step{e.count("no token", nil), e.count("token", bearer), e.count("wrong token", map[string]string{"Authorization": "Bearer something-else"})}
	for _, path := range guard.MetadataPaths() {
		steps = append(steps, step{Name: path, Kind: "fetch", URL: e.origin + path, Method: http.MethodGet, Header: map[string]string{"MCP-Protocol-Version": mcp.LatestRevision.String()}})
	}
	got := app.run(t, steps)
	for _, name := range []string{"no token", "wrong token"} {
		if o := got[name]; o.Status != http.StatusUnauthorized || !strings.Contains(o.Header["www-authenticate"], "resource_metadata=") {
			t.Errorf("%s: outcome = %+v, want a readable challenge", name, o)
		}
	}
	if text := got["token"].result(t); !strings.Contains(text, "1") || e.runs.Load() != 1 {
		t.Errorf("token: result = %s, calls = %d, want 1 and 1", text, e.runs.Load())
	}
	for _, path := range guard.MetadataPaths() {
		if o := got[path]; o.Status != http.StatusOK || !strings.Contains(o.Body, "https://login.example") {
			t.Errorf("%s: outcome = %+v, want the metadata", path, o)
		}
	}
	plain := step{Name: "simple", Kind: "fetch", URL: e.url, Method: http.MethodPost, Header: map[string]string{"Content-Type": "text/plain"}, Body: steps[0].Body}
	steps = []step{e.count("token", bearer), e.count("no token", nil), plain}
	for name, o := range evil.run(t, steps) {
		if o.Error == "" || o.Status != 0 {
			t.Errorf("another origin, %s: outcome = %+v, want an error", name, o)
		}
	}
	if n := e.runs.Load(); n != 1 {
		t.Errorf("calls = %d, want 1", n)
	}
}
