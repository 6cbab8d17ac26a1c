package streamable_test

import (
	"context"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/internal/test/pipes"
	"mcpwire/server"
	"mcpwire/streamable"
)

// addSlow adds a tool that takes some time.
func (e *endpoint) addSlow(d time.Duration) {
	e.t.Helper()
	err := server.AddTool(e.srv, "slow", "", func(context.Context, struct{}) (string, error) {
		advance(d)
		return "done", nil
	})
	if err != nil {
		e.t.Fatal(err)
	}
}

// TestRawRequests sends raw requests to net/http.
//
// Spec: S90 S91 S92 S94 S99
func TestRawRequests(t *testing.T) {
	e := newEndpoint(t, nil, &streamable.Options{Limits: streamable.Limits{MaxBody: 2000}})
	list, _ := modernPost(1, "tools/list", "")
	read, _ := modernPost(1, "resources/read", `"uri":"test://\u00e9"`)
	region, _ := callPost(1, "region", `{"region":"h\u00e9"}`)
	const version = "MCP-Protocol-Version: 2026-07-28"
	for _, tt := range []struct {
		name   string
		text   string
		status int
		has    string
	}{
		{"header names in any case", rawPost(list, "mcp-PROTOCOL-version: 2026-07-28", "MCP-METHOD: tools/list"), 200, `"tools"`},
		{"duplicate method header", rawPost(list, version, "Mcp-Method: tools/list", "Mcp-Method: tools/list"), 400, "-32020"},
		{"duplicate version header", rawPost(list, version, version, "Mcp-Method: tools/list"), 400, "-32020"},
		{"duplicate name header", rawPost(read, version, "Mcp-Method: resources/read", "Mcp-Name: test://é", "Mcp-Name: test://é"), 400, "-32020"},
		{"name header beyond ASCII", rawPost(read, version, "Mcp-Method: resources/read", "Mcp-Name: test://é"), 400, "-32020"},
		{"name header in wrong Base64", rawPost(read, version, "Mcp-Method: resources/read", "Mcp-Name: =?base64?dGVzdDovL8OpPT0=?="), 400, "-32020"},
		{"name header in Base64", rawPost(read, version, "Mcp-Method: resources/read", "Mcp-Name: =?base64?dGVzdDovL8Op?="), 200, "-32602"},
		{"argument header beyond ASCII", rawPost(region, version, "Mcp-Method: tools/call", "Mcp-Name: region", "Mcp-Param-Region: hé"), 400, "-32020"},
		{"duplicate argument header", rawPost(region, version, "Mcp-Method: tools/call", "Mcp-Name: region", "Mcp-Param-Region: =?base64?aMOp?=", "Mcp-Param-Region: =?base64?aMOp?="), 400, "-32020"},
		{"argument header in Base64", rawPost(region, version, "Mcp-Method: tools/call", "Mcp-Name: region", "mcp-param-region: =?base64?aMOp?="), 200, "hé"},
		{"two content types", rawPost(list, version, "Mcp-Method: tools/list", "Content-Type: text/plain"), 415, ""},
		{"two session ids", rawPost(request(1, "ping", "{}"), "Mcp-Session-Id: a", "Mcp-Session-Id: b"), 400, "Mcp-Session-Id"},
		{"too large", rawPost(list + strings.Repeat(" ", 2000)), 413, "2000 bytes"},
		{"too large, chunked", strings.Replace(rawPost("", "Transfer-Encoding: chunked"), "Content-Length: 0\n", "", 1) + "fff\n" + strings.Repeat(" ", 0xfff) + "\n0\n\n", 413, "2000 bytes"},
		{"body longer than Content-Length", rawPost(list+"   ", version, "Mcp-Method: tools/list"), 200, `"tools"`},
		{"HEAD", "HEAD / HTTP/1.1\nHost: localhost\nConnection: close\n\n", 405, ""},
		{"duplicate Last-Event-ID", "GET / HTTP/1.1\nHost: localhost\nAccept: text/event-stream\nLast-Event-ID: 1\nLast-Event-ID: 2\n\n", 400, "Last-Event-ID"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := *e
			e.t = t
			_, r := e.raw(tt.text)
			if tt.name == "HEAD" {
				resp, err := http.ReadResponse(r, &http.Request{Method: "HEAD"})
				if err != nil || resp.StatusCode != tt.status || resp.Header.Get("Allow") == "" {
					t.Errorf("%+v, %v", resp, err)
				}
				return
			}
			if got := e.response(r); got.status != tt.status || !strings.Contains(got.body, tt.has) {
				t.Errorf("%d %s, want %d %s", got.status, got.body, tt.status, tt.has)
			}
		})
	}
	// A client that expects 100-continue gets it, unless its request is rejected anyway.
	_, r := e.raw(strings.Replace(rawPost(list, version, "Mcp-Method: tools/list", "Expect: 100-continue"), list, "", 1))
	if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != 100 {
		t.Errorf("%+v, %v", resp, err)
	}
	_, r = e.raw(strings.Replace(rawPost(list, "Content-Encoding: gzip", "Expect: 100-continue"), list, "", 1))
	if got := e.response(r); got.status != 415 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestKeepAlive shows that a slow response becomes a stream with keep-alive comments, and that a
// client that accepts no stream gets the response when it is ready.
//
// Spec: S73
func TestKeepAlive(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		inBubble(t, h2, nil, func(e *endpoint) {
			e.addSlow(50 * time.Second)
			v := e.visit("2025-11-25", "{}", nil)
			body, headers := callPost(1, "slow", "{}")
			legacy := request(1, "tools/call", `{"name":"slow"}`)
			const signs = ": keep-alive\n\n: keep-alive\n\n: keep-alive\n\ndata: {"
			if got := e.do("POST", body, headers); !strings.HasPrefix(got.body, signs) || !strings.Contains(got.body, "done") {
				e.t.Errorf("modern: %q", got.body)
			}
			if got := v.post(legacy); !strings.HasPrefix(got.body, "id: ") || strings.Count(got.body, ": keep-alive\n\n") != 3 || !strings.Contains(got.body, "done") {
				e.t.Errorf("legacy: %q", got.body)
			}
			if got := e.do("POST", body, with(headers, "Accept", "application/json")); !strings.HasPrefix(got.body, "{") || !strings.Contains(got.body, "done") {
				e.t.Errorf("modern: %q", got.body)
			}
			if got := v.do("POST", legacy, with(v.headers, "Accept", "application/json")); !strings.HasPrefix(got.body, "{") || !strings.Contains(got.body, "done") {
				e.t.Errorf("legacy: %q", got.body)
			}
		})
	}
}

// TestWriteTimeout shows that the WriteTimeout of the user's http.Server cuts off neither slow
// handlers nor streams, although it starts with the request.
func TestWriteTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := server.MustNew("test", "1", nil)
		h := streamable.MustHandler(srv, nil)
		l := pipes.Listen()
		web := &http.Server{Handler: h, WriteTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second}
		served := make(chan error)
		go func() { served <- web.Serve(l) }()
		transport := &http.Transport{DialContext: l.DialContext}
		e := &endpoint{t: t, srv: srv, h: h, url: "http://localhost", client: &http.Client{Transport: transport}}
		e.addSlow(40 * time.Second)
		body, headers := callPost(1, "slow", "{}")
		for _, accept := range []string{"application/json", "application/json, text/event-stream"} {
			for range 2 {
				if got := e.do("POST", body, with(headers, "Accept", accept)); !strings.Contains(got.body, "done") {
					t.Errorf("%s: %q", accept, got.body)
				}
			}
		}
		transport.CloseIdleConnections()
		h.Shutdown(t.Context())
		web.Shutdown(t.Context())
		<-served
	})
}

// TestSlowBody shows that reading a body has a time limit.
func TestSlowBody(t *testing.T) {
	inBubble(t, false, nil, func(e *endpoint) {
		_, r := e.raw("POST / HTTP/1.1\nHost: localhost\nContent-Type: application/json\nContent-Length: 100\n\n{")
		var got answer
		if d := took(func() { got = e.response(r) }); d != 30*time.Second || got.status != 408 {
			e.t.Errorf("after %v: %d %s", d, got.status, got.body)
		}
	})
}

// TestSlowReader shows that a client that does not read, or is gone without closing the connection,
// is disconnected: its request is canceled, or its stream ends.
func TestSlowReader(t *testing.T) {
	for name, text := range map[string]string{
		"request": func() string {
			body, _ := callPost(1, "chatty", "{}")
			body = strings.Replace(body, `"_meta":{`, `"_meta":{"progressToken":1,`, 1)
			return rawPost(body, "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: chatty")
		}(),
		"listen": func() string {
			body, _ := modernPost(1, "subscriptions/listen", `"notifications":{}`)
			return rawPost(body, "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: subscriptions/listen")
		}(),
		"GET": "",
		"SSE": "GET /sse HTTP/1.1\nHost: localhost\nAccept: text/event-stream\n\n",
	} {
		inBubbleOf(t, false, nil, withSSE(&streamable.Options{Limits: streamable.Limits{MaxInFlight: 1, MaxStreams: 1}}), func(e *endpoint) {
			err := server.AddTool(e.srv, "chatty", "", func(ctx context.Context, _ struct{}) (string, error) {
				for i := 1; ; i++ {
					if err := server.CallOf(ctx).Progress(float64(i), 0, ""); err != nil || ctx.Err() != nil {
						return "", err
					}
					advance(time.Second)
				}
			})
			if err != nil {
				e.t.Fatal(err)
			}
			if text == "" {
				text = "GET / HTTP/1.1\nHost: localhost\nAccept: text/event-stream\nMcp-Session-Id: " + e.visit("2025-06-18", "{}", nil).headers["Mcp-Session-Id"] + "\n\n"
			}
			e.raw(text) // the client sends nothing more
			synctest.Wait()
			advance(30 * time.Second)
			synctest.Wait()
			body, headers := modernPost(1, "subscriptions/listen", `"notifications":{}`)
			resp := e.start("POST", body, headers)
			defer resp.Body.Close()
			if resp.StatusCode != 200 {
				e.t.Errorf("%s: the slot is still in use 30 s later: %d", name, resp.StatusCode)
			}
		})
	}
}

// TestGoexit shows that a request gets a response if its handler ends its goroutine, as t.FailNow
// does.
func TestGoexit(t *testing.T) {
	e := newEndpoint(t, nil, nil)
	err := server.AddTool(e.srv, "exit", "", func(context.Context, struct{}) (string, error) {
		runtime.Goexit()
		return "", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	body, headers := callPost(1, "exit", "{}")
	check := func(name, body string) {
		t.Helper()
		if !strings.Contains(body, `"id":1,`) || !strings.Contains(body, "-32603") {
			t.Errorf("%s: %s", name, body)
		}
	}
	// The connection ends with the goroutine, before the body is complete.
	start := func(name string, e *endpoint, body string, headers map[string]string) {
		t.Helper()
		resp := e.start("POST", body, headers)
		defer resp.Body.Close()
		b := make([]byte, 1000)
		n, _ := resp.Body.Read(b)
		check(name, string(b[:n]))
	}
	start("modern", e, body, headers)
	v := e.visit("2025-06-18", "{}", nil)
	start("legacy", e, request(1, "tools/call", `{"name":"exit"}`), v.headers)
	h2 := &endpoint{t: t, srv: e.srv, h: e.h}
	h2.serveTLS(e.h, true)
	start("legacy, HTTP/2", h2, request(1, "tools/call", `{"name":"exit"}`), v.headers)
	old := &endpoint{t: t, srv: e.srv, h: e.h}
	mux := http.NewServeMux()
	mux.Handle("/sse", e.h.SSE("/sse"))
	old.serve(mux)
	post, f := old.visitSSE()
	post.do("POST", request(1, "tools/call", `{"name":"exit"}`), nil)
	_, data := f.next()
	check("SSE", data)
}

// TestSessionEndsMeanwhile shows that the response to a request whose session ended during the call
// does not invite the client to repeat the request, which may have been carried out.
func TestSessionEndsMeanwhile(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		e := newEndpoint(t, nil, nil)
		e.serveTLS(e.h, http2)
		started, goOn := make(chan struct{}), make(chan struct{})
		err := server.AddTool(e.srv, "gate", "", func(ctx context.Context, _ struct{}) (string, error) {
			close(started)
			<-goOn
			return "", ctx.Err()
		})
		if err != nil {
			t.Fatal(err)
		}
		v := e.visit("2025-06-18", "{}", nil)
		answers := make(chan answer)
		go func() { answers <- v.post(request(1, "tools/call", `{"name":"gate"}`)) }()
		<-started
		if got := v.do("DELETE", "", v.headers); got.status != 204 {
			t.Errorf("DELETE: %d %s", got.status, got.body)
		}
		close(goOn)
		if got := <-answers; got.status != 500 || got.header.Get("Retry-After") != "" || !strings.Contains(got.body, `"id":1,`) {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
}
