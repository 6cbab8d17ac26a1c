package streamable_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

const jsonType = "application/json"

// TestClientEra checks which era the client infers from each response to the probe
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning#backward-compatibility).
//
// Spec: C45
func TestClientEra(t *testing.T) {
	quick := client.RetryPolicy{MinBackoff: 1, MaxBackoff: 1}
	for _, test := range []struct {
		name   string
		probe  http.HandlerFunc
		modern bool
		fails  bool // whether Dial fails without sending initialize
	}{
		{name: "DiscoverResult", probe: reply(discovered), modern: true},
		{name: "DiscoverResult in a stream", probe: raw(200, "text/event-stream; charset=utf-8", "data: {\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":"+discovered+"}\n\n"), modern: true},
		{name: "400 with an unsupported version", probe: inTurn(
			raw(400, jsonType, `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"],"requested":"2026-07-28"}}}`),
			reply(discovered)), modern: true},
		{name: "400 with an unsupported version and no id", probe: inTurn(
			raw(400, jsonType, `{"jsonrpc":"2.0","error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"],"requested":"2026-07-28"}}}`),
			reply(discovered)), modern: true},
		{name: "400 with legacy versions", probe: raw(400, jsonType, `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32022,"message":"no","data":{"supported":["2025-11-25"],"requested":"2026-07-28"}}}`)},
		{name: "400 with header mismatch", probe: raw(400, jsonType, `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32020,"message":"no"}}`), fails: true},
		{name: "400 with another error", probe: raw(400, jsonType, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no session"}}`)},
		{name: "400 with an error for another id", probe: raw(400, jsonType, `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"no session"}}`)},
		{name: "400 without a body", probe: raw(400, jsonType, "")},
		{name: "404 in HTML", probe: raw(404, "text/html", "<h1>Not found</h1>")},
		{name: "404 method not found", probe: raw(404, jsonType, `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32601,"message":"no"}}`)},
		{name: "405", probe: raw(405, "text/plain", "no")},
		{name: "406", probe: raw(406, "text/plain", "no")},
		{name: "200 method not found", probe: raw(200, jsonType, `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32601,"message":"no"}}`)},
		{name: "200 with another result", probe: reply(`{}`)},
		{name: "200 in HTML", probe: raw(200, "text/html", "<h1>Hello</h1>")},
		{name: "200 with an unknown id", probe: raw(200, jsonType, `{"jsonrpc":"2.0","id":"x","result":{}}`)},
		{name: "202", probe: raw(202, "", "")},
		{name: "401", probe: raw(401, "text/plain", "no"), fails: true},
		{name: "403", probe: raw(403, jsonType, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"bad origin"}}`), fails: true},
		{name: "407", probe: raw(407, "text/plain", "no"), fails: true},
		{name: "429", probe: raw(429, "text/plain", "no")},
		{name: "500", probe: raw(500, "text/plain", "no")},
		{name: "502", probe: raw(502, "text/html", "no")},
		{name: "503", probe: raw(503, "text/html", "no")},
		{name: "504", probe: raw(504, "text/html", "no")},
		{name: "500, then DiscoverResult", probe: inTurn(raw(500, "text/html", "no"), reply(discovered)), modern: true},
		{name: "closed connection", probe: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		{name: "closed connection, then DiscoverResult", probe: inTurn(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, reply(discovered)), modern: true},
		{name: "503, then DiscoverResult", probe: inTurn(raw(503, "text/html", "no"), reply(discovered)), modern: true},
		{name: "429, then DiscoverResult", probe: inTurn(raw(429, "text/html", "no"), reply(discovered)), modern: true},
		{name: "503 with Retry-After of two hours", probe: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "7200")
			w.WriteHeader(503)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFakeServer(t, legacy(map[string]http.HandlerFunc{"server/discover": test.probe}))
			c, err := f.tryDial(nil, &client.Options{Retry: quick})
			if test.fails {
				if err == nil || slices.Contains(f.methods(), "initialize") {
					t.Fatalf("Dial: %v, after %q", err, f.methods())
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.Revision().Modern() != test.modern {
				t.Errorf("modern is %v after %q", c.Revision().Modern(), f.methods())
			}
		})
	}
}

// TestClientStatus checks the outcome of a call for each HTTP status, and how often the call is
// sent.
func TestClientStatus(t *testing.T) {
	later := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(status)
		}
	}
	for _, test := range []struct {
		status     int
		answer     http.HandlerFunc
		outcome    jsonrpc.Outcome
		once, many int // how often a call with a side effect is sent, and one that may be repeated
	}{
		{400, nil, jsonrpc.OutcomeRejected, 1, 1},
		{401, nil, jsonrpc.OutcomeDenied, 1, 1},
		{403, nil, jsonrpc.OutcomeDenied, 1, 1},
		{404, nil, jsonrpc.OutcomeRejected, 1, 1},
		{405, nil, jsonrpc.OutcomeRejected, 1, 1},
		{407, nil, jsonrpc.OutcomeDenied, 1, 1},
		{408, nil, jsonrpc.OutcomeUnknown, 1, 3},
		{413, nil, jsonrpc.OutcomeRejected, 1, 1},
		{429, nil, jsonrpc.OutcomeUnprocessed, 3, 3},
		{431, nil, jsonrpc.OutcomeRejected, 1, 1},
		{500, nil, jsonrpc.OutcomeUnknown, 1, 3},
		{502, nil, jsonrpc.OutcomeUnknown, 1, 3},
		{503, nil, jsonrpc.OutcomeUnknown, 1, 3},
		{503, later(503), jsonrpc.OutcomeUnprocessed, 3, 3},
		{504, nil, jsonrpc.OutcomeUnknown, 1, 3},
		{301, nil, jsonrpc.OutcomeRejected, 1, 1},
	} {
		t.Run(fmt.Sprint(test.status, test.answer != nil), func(t *testing.T) {
			answer := test.answer
			if answer == nil {
				answer = raw(test.status, "text/html", "<h1>secret</h1>")
			}
			f := newFakeServer(t, modern(map[string]http.HandlerFunc{"tools/call": answer, "tools/list": answer}))
			c := f.dial(nil, &client.Options{Retry: client.RetryPolicy{MinBackoff: 1, MaxBackoff: 1}})
			_, err := c.CallTool(t.Context(), "x", nil)
			e, ok := errors.AsType[*jsonrpc.CallError](err)
			if !ok || e.Outcome != test.outcome {
				t.Errorf("CallTool: %v, want a CallError that is %v", err, test.outcome)
			}
			if s, ok := errors.AsType[*streamable.StatusError](err); !ok || s.StatusCode != test.status || strings.Contains(err.Error(), "secret") {
				t.Errorf("CallTool: %v, want a StatusError %d", err, test.status)
			}
			if client.IsServerError(err) {
				t.Errorf("%v counts as the server's response", err)
			}
			if n := len(f.requests("tools/call")); n != test.once {
				t.Errorf("tools/call was sent %d times, want %d", n, test.once)
			}
			if _, err := c.ListTools(t.Context(), nil); err == nil {
				t.Error("ListTools succeeded")
			}
			if n := len(f.requests("tools/list")); n != test.many {
				t.Errorf("tools/list was sent %d times, want %d", n, test.many)
			}
		})
	}
}

// TestClientErrorResponses shows that an error in the body is the response, whatever the HTTP
// status, and that the connection continues.
func TestClientErrorResponses(t *testing.T) {
	f := newFakeServer(t, modern(map[string]http.HandlerFunc{"tools/call": inTurn(
		raw(404, jsonType, `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32601,"message":"no such thing"}}`),
		raw(400, jsonType, `{"jsonrpc":"2.0","error":{"code":-32602,"message":"no id"}}`),
		raw(500, jsonType, `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32603,"message":"broken"}}`),
		raw(200, jsonType, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what"}}`),
		reply(done),
	)}))
	c := f.dial(nil, nil)
	for _, want := range []jsonrpc.Code{-32601, -32602, -32603, -32700} {
		_, err := c.CallTool(t.Context(), "x", nil)
		if e, ok := errors.AsType[*jsonrpc.Error](err); !ok || e.Code != want {
			t.Errorf("CallTool: %v, want the server's error %d", err, want)
		}
	}
	if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
		t.Error(err)
	}
}

func TestClientOptions(t *testing.T) {
	for _, test := range []struct {
		url  string
		opts *streamable.TransportOptions
		want string
	}{
		{"ftp://x/mcp", nil, "scheme"},
		{"://secret", nil, "bad URL"},
		{"http://", nil, "no host"},
		{"https://user:secret@x/", nil, "credentials"},
		{"http://x\x00secret/", nil, "bad URL"},
		{"http://x/", &streamable.TransportOptions{Header: http.Header{"Mcp-Session-Id": {"x"}}}, "protocol"},
		{"http://x/", &streamable.TransportOptions{Header: http.Header{"accept": {"x"}}}, "protocol"},
		{"http://x/", &streamable.TransportOptions{Header: http.Header{"x-key": {"x"}}}, "X-Key"},
		{"http://x/", &streamable.TransportOptions{Header: http.Header{"Idempotency-Key": {"x"}}}, "protocol"},
		{"http://x/", &streamable.TransportOptions{Header: http.Header{"X-Idempotency-Key": {"x"}}}, "protocol"},
		{"http://x/", &streamable.TransportOptions{Header: http.Header{"X-Key": {"a\r\nsecret"}}}, "not a valid header"},
		{"http://x/", &streamable.TransportOptions{Header: http.Header{"X Key": {"secret"}}}, "not a valid header"},
	} {
		_, err := client.Dial(t.Context(), streamable.NewTransport(test.url, test.opts), nil)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("Dial(%q): %v, want an error about %q", test.url, err, test.want)
		}
	}
}

func TestClientUnreachable(t *testing.T) {
	f := newFakeServer(t, nil)
	f.Server.Close()
	_, err := client.Dial(t.Context(), streamable.NewTransport(f.URL+"/?key=secret", nil), &client.Options{Retry: client.RetryPolicy{MinBackoff: 1, MaxBackoff: 1}})
	if e, ok := errors.AsType[*jsonrpc.CallError](err); !ok || e.Outcome != jsonrpc.OutcomeUnprocessed || strings.Contains(err.Error(), "secret") {
		t.Errorf("Dial: %v, want a CallError with outcome not sent", err)
	}
}

// TestClientOfOurServer checks Dial with Handler in each revision.
func TestClientOfOurServer(t *testing.T) {
	s := server.MustNew("test", "1", nil)
	type in struct {
		Name string `json:"name"`
	}
	server.AddTool(s, "greet", "greets", func(ctx context.Context, a in) (string, error) { return "hello " + a.Name, nil })
	h := streamable.MustHandler(s, nil)
	web := httptest.NewServer(h)
	defer web.Close()
	defer h.Shutdown(t.Context())
	for _, r := range mcp.Revisions() {
		t.Run(r.String(), func(t *testing.T) {
			c, err := client.Dial(t.Context(), streamable.NewTransport(web.URL+"/mcp", nil), &client.Options{Revisions: []mcp.Revision{r}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if text, err := client.CallTool[string](t.Context(), c, "greet", in{"you"}); text != "hello you" {
				t.Errorf("CallTool = %q, %v", text, err)
			}
			if c.Revision() != r {
				t.Errorf("revision %v, want %v", c.Revision(), r)
			}
		})
	}
}
