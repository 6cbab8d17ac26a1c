package streamable_test

import (
	"net/http"
	"strings"
	"testing"

	"mcpwire/internal/test/wait"
	"mcpwire/streamable"
)

// Spec: S66 S67 S69
func TestSSETransport(t *testing.T) {
	e := newEndpoint(t, nil, nil)
	mux := http.NewServeMux()
	old := e.h.SSE("/messages")
	mux.Handle("/sse", old)
	mux.Handle("/messages", old)
	e.serve(mux)
	root := e.url
	e.url = root + "/sse"
	f := e.flow(e.start("GET", "", nil))
	ev, err := f.r.Read()
	if err != nil || ev.Name != "endpoint" || !strings.HasPrefix(string(ev.Data), "/messages?sessionId=") {
		t.Fatalf("event %q %s, %v", ev.Name, ev.Data, err)
	}
	e.url = root + string(ev.Data)
	for _, tt := range []struct{ post, event string }{
		{initialize("2024-11-05", "{}"), `"protocolVersion":"2024-11-05"`},
		{`{"jsonrpc":"2.0","method":"notifications/initialized"}`, ""},
		{request(1, "tools/call", `{"name":"echo","arguments":{"text":"x"}}`), `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"x"}]}}`},
	} {
		if got := e.do("POST", tt.post, nil); got.status != 202 {
			t.Fatalf("%s: %d %s", tt.post, got.status, got.body)
		}
		if tt.event == "" {
			continue
		}
		if _, data := f.next(); !strings.Contains(data, tt.event) {
			t.Fatalf("event %s\nwant %s", data, tt.event)
		}
	}
	for _, tt := range []struct {
		method, body string
		headers      map[string]string
		status       int
	}{
		{"POST", "{", nil, 400},
		{"POST", `{"jsonrpc":"2.0","id":5,"result":{}}`, nil, 400},
		{"POST", "{}", map[string]string{"Content-Type": "text/plain"}, 415},
		{"POST", "{}", map[string]string{"Origin": "http://evil.example.com"}, 403},
		{"PUT", "", nil, 405},
		{"GET", "", map[string]string{"Accept": "application/json"}, 406},
	} {
		if got := e.do(tt.method, tt.body, tt.headers); got.status != tt.status {
			t.Errorf("%s %s: %d %s, want %d", tt.method, tt.body, got.status, got.body, tt.status)
		}
	}
	f.resp.Body.Close()
	wait.Until(t, "the end of the session", func() bool { return e.do("POST", request(2, "ping", "{}"), nil).status == 404 })
}

// TestNDJSON shows that several messages in one body get their responses as they are ready, in both
// eras.
func TestNDJSON(t *testing.T) {
	e := newEndpoint(t, nil, &streamable.Options{NDJSON: true})
	modern, _ := modernPost(2, "tools/list", "")
	body := initialize("2025-06-18", "{}") + "\n" + `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" + request(1, "tools/call", `{"name":"echo","arguments":{"text":"x"}}`) + "\n" + modern + "\n"
	got := e.do("POST", body, map[string]string{"Content-Type": "application/x-ndjson"})
	lines := strings.Split(got.body, "\n")
	if got.status != 200 || len(lines) != 3 || !strings.Contains(got.body, `"text":"x"`) || !strings.Contains(got.body, `"resultType"`) {
		t.Errorf("%d\n%s", got.status, got.body)
	}
	off := newEndpoint(t, nil, nil)
	if got := off.do("POST", body, map[string]string{"Content-Type": "application/x-ndjson"}); got.status != 415 {
		t.Errorf("where it is off: %d", got.status)
	}
}
