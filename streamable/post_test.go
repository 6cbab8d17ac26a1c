package streamable_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

const modernInfo = `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"test","version":"1"}}`

// TestModern checks the responses to modern requests.
//
// Spec: S30 S33 S35 S68 S69 S70 S71 S72 S73 S86 S87 S90 S91 S92 S93 S94 S95 S96 S97 S98 T56
func TestModern(t *testing.T) {
	e := newEndpoint(t, nil, nil)
	echo, echoHeaders := callPost(1, "echo", `{"text":"x"}`)
	list, listHeaders := modernPost(1, "tools/list", "")
	discover, discoverHeaders := modernPost(`"a"`, "server/discover", "")
	region, regionHeaders := callPost(1, "region", `{"region":"Hello"}`)
	regionNull, _ := callPost(1, "region", `{"region":null}`)
	regionNone, _ := callPost(1, "region", `{"level":1}`)
	task, taskHeaders := modernPost(1, "tasks/get", `"taskId":"1"`)
	sample, sampleHeaders := callPost(1, "sample", `{}`)
	unknown, unknownHeaders := modernPost(7, "unknown/method", "")
	initialize, initializeHeaders := modernPost(1, "initialize", "")
	read, readHeaders := modernPost(1, "resources/read", `"uri":"test://nothing"`)
	readHeaders["Mcp-Name"] = "test://nothing"
	const v999 = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"v999","io.modelcontextprotocol/clientCapabilities":{}}}}`
	const noCaps = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
	const noMeta = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`
	for _, tt := range []struct {
		name    string
		body    string
		headers map[string]string
		status  int
		has     string // part of the body; empty for an empty body
	}{
		{"call", echo, echoHeaders, 200, `"text":"x"`},
		{"string id", discover, discoverHeaders, 200, `"id":"a"`},
		{"tool that panics", strings.Replace(strings.Replace(echo, "echo", "panic", 1), `"text":"x"`, "", 1), with(echoHeaders, "Mcp-Name", "panic"), 200, `-32603`},
		{"unknown tool", strings.Replace(echo, "echo", "nope", 1), with(echoHeaders, "Mcp-Name", "nope"), 200, `-32602`},
		{"no such resource", read, readHeaders, 200, `-32602`},
		{"capability missing", sample, sampleHeaders, 400, `"code":-32021,`},
		{"task method with another name", task, with(taskHeaders, "Mcp-Name", "2"), 400, `-32020`},
		{"task method without a name", task, taskHeaders, 400, `-32020`},
		{"unknown method, only streams accepted", unknown, with(unknownHeaders, "Accept", "text/event-stream"), 404, `-32601`},
		{"argument null", regionNull, regionHeaders, 200, `"result"`},
		{"argument absent", regionNone, regionHeaders, 200, `"result"`},
		{"argument null, with a header", regionNull, with(regionHeaders, "Mcp-Param-Region", "x"), 400, `-32020`},
		{"unknown method", unknown, unknownHeaders, 404, `{"jsonrpc":"2.0","id":7,"error":{"code":-32601,`},
		{"initialize with modern metadata", initialize, initializeHeaders, 404, `-32601`},
		{"no metadata", noMeta, listHeaders, 400, `-32602`},
		{"metadata without a version", strings.Replace(noCaps, "protocolVersion", "x", 1), listHeaders, 400, `-32602`},
		{"metadata without capabilities", noCaps, listHeaders, 400, `-32602`},
		{"unsupported version", v999, with(listHeaders, "MCP-Protocol-Version", "v999"), 400, `"code":-32022,`},
		{"unsupported version in the body only", v999, listHeaders, 400, `-32020`},
		{"other version in the header only", list, with(listHeaders, "MCP-Protocol-Version", "2025-11-25"), 400, `-32020`},
		{"no version header", list, with(listHeaders, "MCP-Protocol-Version", ""), 400, `-32020`},
		{"no method header", list, with(listHeaders, "Mcp-Method", ""), 400, `-32020`},
		{"another method", list, with(listHeaders, "Mcp-Method", "prompts/list"), 400, `-32020`},
		{"method in capitals", list, with(listHeaders, "Mcp-Method", "TOOLS/LIST"), 400, `-32020`},
		{"no name header", echo, with(echoHeaders, "Mcp-Name", ""), 400, `-32020`},
		{"another name", echo, with(echoHeaders, "Mcp-Name", "other"), 400, `-32020`},
		{"name with spaces around", echo, with(echoHeaders, "Mcp-Name", "  echo "), 200, `"text":"x"`},
		{"name in Base64", echo, with(echoHeaders, "Mcp-Name", "=?base64?ZWNobw==?="), 200, `"text":"x"`},
		{"name in bad Base64", echo, with(echoHeaders, "Mcp-Name", "=?base64?ZWNobw?="), 400, `-32020`},
		{"parameter", region, with(regionHeaders, "Mcp-Param-Region", "Hello"), 200, `"text":"Hello"`},
		{"parameter in Base64", region, with(regionHeaders, "Mcp-Param-Region", "=?base64?SGVsbG8=?="), 200, `"text":"Hello"`},
		{"parameter with bad padding", region, with(regionHeaders, "Mcp-Param-Region", "=?base64?SGVsbG8?="), 400, `-32020`},
		{"parameter with bad characters", region, with(regionHeaders, "Mcp-Param-Region", "=?base64?SGVs!!!bG8=?="), 400, `-32020`},
		{"parameter missing", region, regionHeaders, 400, `-32020`},
		{"parameter differs", region, with(regionHeaders, "Mcp-Param-Region", "hello"), 400, `-32020`},
		{"unknown parameter", echo, with(echoHeaders, "Mcp-Param-Other", "x"), 200, `"text":"x"`},
		{"a response", `{"jsonrpc":"2.0","id":1,"result":{}}`, discoverHeaders, 400, `-32600`},
		{"a batch", "[" + list + "]", listHeaders, 400, `-32600`},
		{"no JSON", `{"jsonrpc":`, listHeaders, 400, `"code":-32700,`},
		{"two values", list + list, listHeaders, 400, `-32700`},
		{"not a message", `{}`, listHeaders, 400, `-32600`},
		{"notification", `{"jsonrpc":"2.0","method":"notifications/x","params":{` + modernMeta + `}}`, map[string]string{"MCP-Protocol-Version": "2026-07-28"}, 202, ""},
		{"session and last event id ignored", list, with(listHeaders, "Mcp-Session-Id", "nope", "Last-Event-ID", "1"), 200, `"tools"`},
		{"other content type", list, with(listHeaders, "Content-Type", "text/plain"), 415, `application/json`},
		{"content type with a charset", list, with(listHeaders, "Content-Type", "application/json; charset=UTF-8"), 200, `"tools"`},
		{"content type that contains another", list, with(listHeaders, "Content-Type", "text/plain; a=application/json"), 415, `application/json`},
		{"compressed", list, with(listHeaders, "Content-Encoding", "gzip"), 415, `compressed`},
		{"accepts nothing", list, with(listHeaders, "Accept", "text/html"), 406, `Accept`},
		{"accepts anything", list, with(listHeaders, "Accept", ""), 200, `"tools"`},
		{"origin", list, with(listHeaders, "Origin", "http://evil.example.com"), 403, `-32600`},
		{"host", list, with(listHeaders, "Host", "evil.example.com"), 403, `-32600`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := *e
			e.t = t
			got := e.do("POST", tt.body, tt.headers)
			if got.status != tt.status || !strings.Contains(got.body, tt.has) || tt.has == "" && got.body != "" {
				t.Errorf("status %d, %s\nwant %d, %s", got.status, got.body, tt.status, tt.has)
			}
			if got.header.Get("Mcp-Session-Id") != "" {
				t.Error("there is a session id")
			}
			if ct := got.header.Get("Content-Type"); got.body != "" && ct != "application/json" {
				t.Errorf("content type %q", ct)
			}
		})
	}
	if t.Failed() {
		return
	}
	for _, name := range []string{"resources/subscribe", "resources/unsubscribe", "ping", "logging/setLevel"} {
		body, headers := modernPost(1, name, `"uri":"test://a","level":"info"`)
		if got := e.do("POST", body, headers); got.status != 404 || !strings.Contains(got.body, "-32601") {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
}

// TestModernStream shows that a message before the result turns the response into a stream.
//
// Spec: S73 S88 S89
func TestModernStream(t *testing.T) {
	e := newEndpoint(t, nil, nil)
	body := strings.Replace(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"steps",META}}`, "META",
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":"p"}`, 1)
	_, headers := callPost(5, "steps", "{}")
	f := e.flow(e.start("POST", body, headers))
	progress := func(n string) string {
		return `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":` + n + `,"total":3}}`
	}
	result := `{"jsonrpc":"2.0","id":5,"result":{"content":[{"type":"text","text":"done"}],"resultType":"complete",` + modernInfo + `}}`
	f.want(progress("1"), progress("2"), progress("3"), result, "EOF")
	if got := f.resp.Header.Get("X-Accel-Buffering"); got != "no" {
		t.Errorf("X-Accel-Buffering: %q", got)
	}
	// A client that does not accept streams gets the result.
	got := e.do("POST", body, with(headers, "Accept", "application/json"))
	if got.status != 200 || got.body != result {
		t.Errorf("%d %s", got.status, got.body)
	}
	// A client that accepts only streams gets a stream.
	list, headers := modernPost(1, "server/discover", "")
	f = e.flow(e.start("POST", list, with(headers, "Accept", "text/event-stream")))
	if _, data := f.next(); !strings.Contains(data, "supportedVersions") {
		t.Errorf("event %s", data)
	}
	f.want("EOF")
}

// Spec: S85
func TestModernOnly(t *testing.T) {
	e := newEndpoint(t, &server.Options{Revisions: modernRevisions()}, nil)
	for _, method := range []string{"GET", "DELETE", "PUT"} {
		if got := e.do(method, "", map[string]string{"Mcp-Session-Id": "x"}); got.status != 405 || got.header.Get("Allow") != "POST" {
			t.Errorf("%s: %d, Allow: %q", method, got.status, got.header.Get("Allow"))
		}
	}
	for _, body := range []string{`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `{"jsonrpc":"2.0","method":"notifications/x"}`} {
		if got := e.do("POST", body, map[string]string{"Mcp-Session-Id": "x"}); got.status != 400 || !strings.Contains(got.body, `"code":-32020,`) {
			t.Errorf("no version: %d %s", got.status, got.body)
		}
	}
	got := e.do("POST", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}`, nil)
	if got.status != 400 || !strings.Contains(got.body, "2026-07-28") {
		t.Errorf("initialize: %d %s", got.status, got.body)
	}
	// If sessions require a version in each request, a request without one belongs to no revision.
	newer := append(modernRevisions(), mcp.Revision20250618, mcp.Revision20251125)
	e = newEndpoint(t, &server.Options{Revisions: newer}, nil)
	if got := e.do("POST", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, nil); got.status != 400 || !strings.Contains(got.body, `"code":-32020,`) {
		t.Errorf("no version: %d %s", got.status, got.body)
	}
	e.visit("2025-06-18", "{}", nil)
}

// TestListen shows that subscription streams begin with an acknowledgment, and end with a result
// when the server shuts down.
func TestListen(t *testing.T) {
	e := newEndpoint(t, nil, nil)
	body, headers := modernPost(1700000000000, "subscriptions/listen", `"notifications":{"toolsListChanged":true}`)
	f := e.flow(e.start("POST", body, headers))
	f.want(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1700000000000},"notifications":{"toolsListChanged":true}}}`)
	e.srv.RemoveTools("echo")
	f.want(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1700000000000}}}`)
	if err := e.h.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, data := f.next(); !strings.Contains(data, `"id":1700000000000,"result":{"resultType":"complete"`) {
		t.Errorf("the last event is %s", data)
	}
	f.want("EOF")
	if got := e.do("POST", body, headers); got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("after the shutdown: %d %s", got.status, got.body)
	}
}

// TestDisconnectCancels shows that a request is canceled when its client disconnects.
//
// Spec: S54
func TestDisconnectCancels(t *testing.T) {
	e := newEndpoint(t, nil, nil)
	started, ended := make(chan struct{}), make(chan error)
	addWaiter(t, e.srv, started, ended)
	body, headers := callPost(1, "wait", "{}")
	r := newRequest(t, e, body, headers)
	go func() {
		<-started
		r.cancel()
	}()
	r.do()
	if err := <-ended; err != jsonrpc.ErrDisconnected {
		t.Errorf("the handler's context ended because of %v, want a disconnect", err)
	}
}

func TestStreamAlways(t *testing.T) {
	e := newEndpoint(t, nil, &streamable.Options{StreamAlways: true})
	body, headers := callPost(1, "echo", `{"text":"x"}`)
	f := e.flow(e.start("POST", body, headers))
	if _, data := f.next(); !strings.Contains(data, `"text":"x"`) {
		t.Errorf("event %s", data)
	}
	f.want("EOF")
	body, headers = modernPost(1, "unknown", "")
	if got := e.do("POST", body, headers); got.status != 404 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestBodyTimeoutEnds shows that the body timeout does not cancel a handler that runs longer,
// although the connection is read to detect a disconnect.
func TestBodyTimeoutEnds(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		inBubbleOf(t, h2, nil, nil, func(e *endpoint) {
			err := server.AddTool(e.srv, "long", "", func(ctx context.Context, _ struct{}) (string, error) {
				select {
				case <-time.After(10 * time.Minute):
					return "done", nil
				case <-ctx.Done():
					return "", ctx.Err()
				}
			})
			if err != nil {
				e.t.Fatal(err)
			}
			for range 2 { // on one connection, so that a left-over deadline would matter
				body, headers := callPost(1, "long", "{}")
				if got := e.do("POST", body, headers); !strings.Contains(got.body, "done") {
					e.t.Errorf("h2 %v, modern: %d %s", h2, got.status, got.body)
				}
				v := e.visit("2025-06-18", "{}", nil)
				if got := v.post(request(1, "tools/call", `{"name":"long"}`)); !strings.Contains(got.body, "done") {
					e.t.Errorf("h2 %v, legacy: %d %s", h2, got.status, got.body)
				}
			}
		})
	}
}

// TestLongBodies shows that bodies with and without a known length arrive complete, and that
// responses have a length.
func TestLongBodies(t *testing.T) {
	inBubbleOf(t, false, nil, nil, func(e *endpoint) {
		for _, n := range []int{1 << 10, 3 << 10, 60 << 10, 64 << 10, 100_000, 700_000} {
			text := strings.Repeat("x", n)
			body, headers := callPost(1, "echo", `{"text":"`+text+`"}`)
			for _, known := range []bool{true, false} {
				got := e.do("POST", body, headers)
				if !known {
					got = e.unmeasured(body, headers)
				}
				if got.status != 200 || strings.Count(got.body, text) != 1 || strings.Count(got.body, "x") < n {
					t.Errorf("%d bytes, length known %v: status %d, %d bytes returned", n, known, got.status, len(got.body))
				}
				if length := got.header.Get("Content-Length"); length != strconv.Itoa(len(got.body)) {
					t.Errorf("%d bytes: the length of the response is %q, want %d", n, length, len(got.body))
				}
			}
		}
	})
}

// unmeasured posts a chunked body.
func (e *endpoint) unmeasured(body string, headers map[string]string) answer {
	e.t.Helper()
	r, err := http.NewRequestWithContext(e.t.Context(), http.MethodPost, e.url, io.MultiReader(strings.NewReader(body)))
	if err != nil {
		e.t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Content-Type", "application/json")
	for k, v := range headers {
		r.Header.Set(k, v)
	}
	resp, err := e.client.Do(r)
	if err != nil {
		e.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(text)}
}

// TestBadChunks shows that a body with invalid chunks is rejected at once, and an incomplete one
// after a timeout.
func TestBadChunks(t *testing.T) {
	text, headers := callPost(1, "echo", `{"text":"x"}`)
	head := "POST / HTTP/1.1\nHost: localhost\nContent-Type: application/json\nAccept: application/json, text/event-stream\nTransfer-Encoding: chunked\n"
	for k, v := range headers {
		head += k + ": " + v + "\n"
	}
	chunk := fmt.Sprintf("%x\n%s\n", len(text), text)
	for _, tt := range []struct {
		name, body string
		want       int
		after      time.Duration
	}{
		{"good", chunk + "0\n\n", 200, 0},
		{"size without digits", "zz\n" + text + "\n0\n\n", 400, 0},
		{"empty size", "\n" + text + "\n0\n\n", 400, 0},
		{"negative size", "-5\n" + text + "\n0\n\n", 400, 0},
		{"size of 17 digits", "fffffffffffffffff\n" + text + "\n0\n\n", 400, 0},
		{"size too small", "5\n" + text + "\n0\n\n", 400, 0},
		{"bad second size", chunk + "0x0\n\n", 400, 0},
		{"no end", chunk, 408, 30 * time.Second},
	} {
		inBubble(t, false, nil, func(e *endpoint) {
			_, r := e.raw(head + "\n" + tt.body)
			var got answer
			if d := took(func() { got = e.response(r) }); got.status != tt.want || d != tt.after {
				e.t.Errorf("%s: %d after %v, want %d after %v: %s", tt.name, got.status, d, tt.want, tt.after, got.body)
			}
		})
	}
}

// TestModernMethods shows that the modern era has neither GET nor DELETE.
func TestModernMethods(t *testing.T) {
	e := newEndpoint(t, nil, nil)
	v := e.visit("2025-11-25", "{}", nil)
	session := v.headers["Mcp-Session-Id"]
	for _, tt := range []struct {
		name, method string
		headers      map[string]string
		want         int
		allow        string
	}{
		{"modern", "GET", map[string]string{"MCP-Protocol-Version": "2026-07-28"}, 405, "POST"},
		{"modern", "DELETE", map[string]string{"MCP-Protocol-Version": "2026-07-28"}, 405, "POST"},
		{"modern", "PUT", map[string]string{"MCP-Protocol-Version": "2026-07-28"}, 405, "POST"},
		{"unknown version", "GET", map[string]string{"MCP-Protocol-Version": "2099-01-01"}, 405, "POST"},
		{"legacy without session", "GET", map[string]string{"MCP-Protocol-Version": "2025-11-25"}, 400, ""},
		{"no version", "DELETE", nil, 400, ""},
		{"legacy", "PUT", map[string]string{"MCP-Protocol-Version": "2025-11-25"}, 405, "POST, GET, DELETE"},
		{"a session and a modern version", "GET", map[string]string{"MCP-Protocol-Version": "2026-07-28", "Mcp-Session-Id": session}, 400, ""},
		{"legacy with session", "DELETE", map[string]string{"MCP-Protocol-Version": "2025-11-25", "Mcp-Session-Id": session}, 204, ""},
	} {
		got := e.do(tt.method, "", tt.headers)
		if got.status != tt.want || got.header.Get("Allow") != tt.allow {
			t.Errorf("%s of %s: %d, Allow %q, want %d, %q: %s", tt.method, tt.name, got.status, got.header.Get("Allow"), tt.want, tt.allow, got.body)
		}
	}
}

// TestBodyReplaced checks that the server does not wait for the rest of a body if a middleware has
// replaced the body by a shorter one.
func TestBodyReplaced(t *testing.T) {
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	around := func(e *endpoint) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Body = io.NopCloser(io.LimitReader(r.Body, int64(len(ping))))
			r.ContentLength = int64(len(ping))
			e.h.ServeHTTP(w, r)
		})
	}
	inBubbleOf(t, false, nil, around, func(e *endpoint) {
		_, r := e.raw("POST / HTTP/1.1\nHost: localhost\nContent-Type: application/json\nContent-Length: 1000\n\n" + ping)
		got := took(func() {
			if a := e.response(r); a.status != 400 { // a ping without a session
				e.t.Errorf("status %d: %s", a.status, a.body)
			}
			if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
				e.t.Errorf("%q, %v, want the end of the connection", rest, err)
			}
		})
		if got > 6*time.Second {
			e.t.Errorf("the server waited %v for the rest of the body", got)
		}
	})
}
