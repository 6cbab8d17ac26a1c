package streamable_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"mcpwire/internal/net/sse"
	"mcpwire/internal/rpc/rpcbatch"
	"mcpwire/jsonrpc"
	"mcpwire/server"
	"mcpwire/streamable"
)

// FuzzPost posts any body and headers. Nothing panics, the status is a documented one, and the
// response has at most one JSON-RPC response, or is a stream of messages.
func FuzzPost(f *testing.F) {
	modern, headers := callPost(1, "echo", `{"text":"x"}`)
	var lines []string
	for k, v := range headers {
		lines = append(lines, k+": "+v)
	}
	f.Add(modern, strings.Join(lines, "\n"))
	f.Add(initialize("2025-11-25", "{}"), "")
	f.Add("["+request(1, "ping", "{}")+"]", "Mcp-Session-Id: SESSION\nMCP-Protocol-Version: 2025-03-26")
	f.Add(request(1, "tools/call", `{"name":"steps","_meta":{"progressToken":1}}`), "Mcp-Session-Id: SESSION\nAccept: text/event-stream, application/json;q=0")
	f.Add(request(1, "ping", "{}")+"\n"+modern+"\n", "Content-Type: application/x-ndjson")
	f.Add(modern, "MCP-Protocol-Version: 2026-07-28\nMcp-Method: tools/call\nMcp-Name: =?base64?ZWNobw==?=\nMcp-Param-X: \xff")
	srv := server.MustNew("test", "1", nil)
	if err := server.AddTool(srv, "echo", "", func(_ context.Context, in echoIn) (string, error) { return in.Text, nil }); err != nil {
		f.Fatal(err)
	}
	h := streamable.MustHandler(srv, &streamable.Options{NDJSON: true, Limits: streamable.Limits{MaxSessions: 100, MaxPerCaller: 100}})
	f.Cleanup(func() { h.Shutdown(context.Background()) })
	session := post(h, initialize("2025-03-26", "{}"), "").Header().Get("Mcp-Session-Id")
	post(h, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "Mcp-Session-Id: "+session)
	f.Fuzz(func(t *testing.T, body, headers string) {
		if strings.Contains(body, "subscriptions") || strings.Contains(body, `\`) {
			return // it would not end
		}
		w := post(h, body, strings.ReplaceAll(headers, "SESSION", session))
		text := w.Body.Bytes()
		switch w.Code {
		case 200, 202, 400, 403, 404, 406, 413, 415, 503, 429:
		default:
			t.Fatalf("status %d", w.Code)
		}
		switch ct := w.Header().Get("Content-Type"); ct {
		case "application/json":
			checkAnswer(t, text)
		case "text/event-stream":
			r, answers := sse.NewReader(bytes.NewReader(text), 0), 0
			for {
				e, err := r.Read()
				if err != nil {
					break
				}
				if len(e.Data) > 0 && checkAnswer(t, e.Data) {
					answers++
				}
			}
			if answers > 1 {
				t.Errorf("%d answers: %s", answers, text)
			}
		case "application/x-ndjson":
			for line := range bytes.Lines(text) {
				checkAnswer(t, line)
			}
		default:
			if len(text) > 0 || ct != "" {
				t.Errorf("%s: %q", ct, text)
			}
		}
	})
}

// post makes a request without a connection. headers are lines.
func post(h http.Handler, body, headers string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "http://localhost/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for line := range strings.Lines(headers) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			r.Header.Set(name, strings.TrimSpace(value))
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// checkAnswer checks a message, or the array of responses to a batch, and reports whether it
// contains a response.
func checkAnswer(t *testing.T, text []byte) (answers bool) {
	t.Helper()
	if rpcbatch.Is(text) {
		entries, err := rpcbatch.Parse(text, 0)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for _, e := range entries {
			if e.Invalid != nil || e.Kind != jsonrpc.KindResponse && e.Kind != jsonrpc.KindError {
				t.Errorf("in a batch of responses: %s", text)
			}
		}
		return true
	}
	var m jsonrpc.Message
	if err := jsonrpc.Parse(text, &m, 0); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError
}
