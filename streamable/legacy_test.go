package streamable_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"mcpwire/internal/test/wait"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

// A legacySession is a session of a legacy client.
type legacySession struct {
	*endpoint
	headers map[string]string
}

func initialize(version, capabilities string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,"capabilities":%s,"clientInfo":{"name":"a","version":"1"}}}`, version, capabilities)
}

// visit opens a session.
func (e *endpoint) visit(version, capabilities string, headers map[string]string) *legacySession {
	e.t.Helper()
	got := e.do("POST", initialize(version, capabilities), headers)
	id := got.header.Get("Mcp-Session-Id")
	if strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c > '~' }) {
		e.t.Errorf("session %q", id)
	}
	if got.status != 200 || id == "" || !strings.Contains(got.body, `"protocolVersion":"`+version+`"`) {
		e.t.Fatalf("initialize: %d %s, session %q", got.status, got.body, id)
	}
	v := &legacySession{e, with(headers, "Mcp-Session-Id", id, "Mcp-Protocol-Version", version)}
	if got := v.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`); got.status != 202 || got.body != "" {
		e.t.Fatalf("initialized: %d %s", got.status, got.body)
	}
	return v
}

func (v *legacySession) post(body string) answer { v.t.Helper(); return v.do("POST", body, v.headers) }

func request(id any, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"method":%q,"params":%s}`, id, method, params)
}

// open sends a POST whose response is a stream.
func (v *legacySession) open(body string) *eventReader {
	v.t.Helper()
	return v.flow(v.start("POST", body, v.headers))
}

// listen opens the GET stream. last may be empty.
func (v *legacySession) listen(last string) *eventReader {
	v.t.Helper()
	return v.flow(v.start("GET", "", with(v.headers, "Last-Event-ID", last)))
}

var legacyVersions = []string{"2025-03-26", "2025-06-18", "2025-11-25"}

// Spec: S68 S71 S72 S73 S74 S80 S81 S84
func TestLegacy(t *testing.T) {
	for _, version := range legacyVersions {
		t.Run(version, func(t *testing.T) {
			v := newEndpoint(t, nil, nil).visit(version, "{}", nil)
			for _, tt := range []struct {
				name   string
				body   string
				set    []string // headers
				status int
				has    string
			}{
				{"call", request(1, "tools/call", `{"name":"echo","arguments":{"text":"x"}}`), nil, 200, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"x"}]}}`},
				{"ping", request(2, "ping", "{}"), nil, 200, `{"jsonrpc":"2.0","id":2,"result":{}}`},
				{"list", request(3, "tools/list", "{}"), nil, 200, `"name":"echo"`},
				{"unknown method", request(4, "nope", "{}"), nil, 200, `-32601`},
				{"panic", request(5, "tools/call", `{"name":"panic","arguments":{}}`), nil, 200, `-32603`},
				{"response with an unknown id", `{"jsonrpc":"2.0","id":99,"result":{}}`, nil, 400, `no request with the id`},
				{"notification", `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`, nil, 202, ""},
				{"another supported version", request(6, "ping", "{}"), []string{"Mcp-Protocol-Version", "2025-06-18"}, 200, `{}`},
				{"no version", request(7, "ping", "{}"), []string{"Mcp-Protocol-Version", ""}, 200, `{}`},
				{"bad version", request(8, "ping", "{}"), []string{"Mcp-Protocol-Version", "1900-01-01"}, 400, `MCP-Protocol-Version`},
				{"no session", request(9, "ping", "{}"), []string{"Mcp-Session-Id", ""}, 400, `Mcp-Session-Id`},
				{"unknown session", request(10, "ping", "{}"), []string{"Mcp-Session-Id", "nope"}, 404, `session not found`},
				{"second initialize", initialize(version, "{}"), nil, 200, `already answered`},
				{"no JSON", `{`, nil, 400, `-32700`},
			} {
				got := v.do("POST", tt.body, with(v.headers, tt.set...))
				if got.status != tt.status || !strings.Contains(got.body, tt.has) || tt.has == "" && got.body != "" {
					t.Errorf("%s: status %d, %s\nwant %d, %s", tt.name, got.status, got.body, tt.status, tt.has)
				}
			}
			for _, named := range []string{"2026-07-28", "2031-01-01", "", version} {
				other := v.endpoint.visit(version, "{}", nil)
				if got := other.do("DELETE", "", with(other.headers, "Mcp-Protocol-Version", named)); got.status != 204 {
					t.Errorf("DELETE with version %q: %d %s", named, got.status, got.body)
				}
				if got := other.post(request(1, "ping", "{}")); got.status != 404 {
					t.Errorf("after a DELETE with version %q: %d %s", named, got.status, got.body)
				}
			}
			if got := v.do("DELETE", "", v.headers); got.status != 204 {
				t.Errorf("DELETE: %d %s", got.status, got.body)
			}
			for _, method := range []string{"POST", "GET", "DELETE"} {
				if got := v.do(method, request(1, "ping", "{}"), v.headers); got.status != 404 {
					t.Errorf("%s after the end: %d %s", method, got.status, got.body)
				}
			}
		})
	}
}

func TestLegacyBatch(t *testing.T) {
	e := newEndpoint(t, nil, nil)
	batch := "[" + request(1, "ping", "{}") + `,{"jsonrpc":"2.0","method":"notifications/x"},{"a":1},` + request(2, "tools/call", `{"name":"echo","arguments":{"text":"x"}}`) + "]"
	for version, want := range map[string]int{"2025-03-26": 200, "2025-06-18": 400, "2025-11-25": 400} {
		v := e.visit(version, "{}", nil)
		got := v.post(batch)
		if got.status != want {
			t.Errorf("%s: %d %s", version, got.status, got.body)
		}
		if want != 200 {
			continue
		}
		const answers = `[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","error":{"code":-32600,"message":"invalid request: `
		if !strings.HasPrefix(got.body, answers) || !strings.HasSuffix(got.body, `{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"x"}]}}]`) {
			t.Errorf("%s", got.body)
		}
		if got := v.post(`[{"jsonrpc":"2.0","method":"notifications/x"}]`); got.status != 202 {
			t.Errorf("only notifications: %d %s", got.status, got.body)
		}
	}
	if got := e.do("POST", "["+initialize("2025-03-26", "{}")+"]", nil); got.status != 400 {
		t.Errorf("initialize in a batch: %d %s", got.status, got.body)
	}
}

// TestLegacyBatchOrder shows that each message of a batch is checked in the state that the messages
// before it left.
func TestLegacyBatchOrder(t *testing.T) {
	e := newEndpoint(t, nil, nil)
	err := server.AddTool(e.srv, "forever", "", func(ctx context.Context, _ struct{}) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	const version = "2025-03-26"
	echo := func(id int) string { return request(id, "tools/call", `{"name":"echo","arguments":{"text":"x"}}`) }
	for range 20 {
		got := e.do("POST", initialize(version, "{}"), nil)
		v := &legacySession{e, with(nil, "Mcp-Session-Id", got.header.Get("Mcp-Session-Id"), "Mcp-Protocol-Version", version)}
		got = v.post("[" + echo(1) + `,{"jsonrpc":"2.0","method":"notifications/initialized"},` + echo(2) + "]")
		var answers []struct {
			ID     int
			Error  *jsonrpc.Error
			Result json.RawMessage
		}
		if err := json.Unmarshal([]byte(got.body), &answers); err != nil {
			t.Fatalf("%v: %d %s", err, got.status, got.body)
		}
		if len(answers) != 2 || answers[0].Error == nil || answers[0].Error.Code != jsonrpc.CodeInvalidRequest || answers[1].Result == nil {
			t.Fatalf("%s", got.body)
		}
		const cancel = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`
		got = v.post("[" + request(3, "tools/call", `{"name":"forever"}`) + "," + cancel + "," + request(4, "ping", "{}") + "]")
		if want := `[{"jsonrpc":"2.0","id":4,"result":{}}]`; got.body != want {
			t.Fatalf("got %s, want %s", got.body, want)
		}
	}
}

// TestLegacyInput shows that a handler's input request is sent on the stream of its call, and the
// response comes as a separate POST.
func TestLegacyInput(t *testing.T) {
	e := newEndpoint(t, nil, nil)
	err := server.AddTool(e.srv, "ask", "", func(ctx context.Context, _ struct{}) (string, error) {
		roots, err := server.CallOf(ctx).Roots(ctx, "roots")
		if err != nil {
			return "", err
		}
		return roots[0].URI, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range legacyVersions {
		v := e.visit(version, `{"roots":{}}`, nil)
		f := v.open(request(1, "tools/call", `{"name":"ask"}`))
		if version == "2025-11-25" {
			if id, data := f.next(); id == "" || data != "" {
				t.Fatalf("the first event is %q %q, want only an id", id, data)
			}
		}
		f.want(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
		if got := v.post(`{"jsonrpc":"2.0","id":1,"result":{"roots":[{"uri":"file:///a"}]}}`); got.status != 202 {
			t.Fatalf("answer: %d %s", got.status, got.body)
		}
		f.want(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"file:///a"}]}}`, "EOF")
	}
}

// TestStandingStream shows that messages that belong to no request are sent on the GET stream, even
// if it is opened later.
//
// Spec: S74 S75
func TestStandingStream(t *testing.T) {
	e := newEndpoint(t, nil, nil)
	for _, version := range legacyVersions {
		v := e.visit(version, "{}", nil)
		announce := func(name string) {
			if err := server.AddTool(e.srv, name, "", func(context.Context, struct{}) (string, error) { return "", nil }); err != nil {
				t.Fatal(err)
			}
			e.srv.RemoveTools(name)
		}
		const changed = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
		f := v.listen("")
		var last string
		if version == "2025-11-25" {
			if id, data := f.next(); id == "" || data != "" {
				t.Fatalf("the first event is %q %q, want only an id", id, data)
			}
		}
		announce("x")
		id, data := f.next()
		if data != changed || id == "" {
			t.Fatalf("%s: event %q %s", version, id, data)
		}
		last = id
		// A new stream replaces the old one, whose connection may be dead without the server's
		// knowledge.
		g := v.listen(last)
		for {
			if _, data := f.next(); data == "EOF" {
				break
			}
		}
		g.resp.Body.Close()
		wait.Until(t, "the server to notice", func() bool {
			announce("y")
			h := v.listen(last)
			defer h.resp.Body.Close()
			id, data := h.next()
			return data == changed && id != last
		})
		if got := v.do("GET", "", with(v.headers, "Last-Event-ID", "nope")); got.status != 400 {
			t.Errorf("bad Last-Event-ID: %d %s", got.status, got.body)
		}
		if got := v.do("GET", "", with(v.headers, "Accept", "application/json")); got.status != 406 {
			t.Errorf("GET that accepts no stream: %d %s", got.status, got.body)
		}
	}
}

// TestResume shows that an interrupted stream is resumed, and that the handler does not notice.
//
// Spec: S75 S78 S79
func TestResume(t *testing.T) {
	e := newEndpoint(t, nil, nil)
	goOn := make(chan struct{})
	err := server.AddTool(e.srv, "slow", "", func(ctx context.Context, _ struct{}) (string, error) {
		c := server.CallOf(ctx)
		c.Progress(1, 0, "")
		<-goOn
		c.Progress(2, 0, "")
		return "done", c.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range legacyVersions {
		v := e.visit(version, "{}", nil)
		f := v.open(request(7, "tools/call", `{"name":"slow","_meta":{"progressToken":1}}`))
		id, data := f.next()
		if data == "" {
			id, data = f.next()
		}
		if !strings.Contains(data, `"progress":1`) {
			t.Fatalf("event %s", data)
		}
		f.resp.Body.Close()
		goOn <- struct{}{}
		g := v.listen(id)
		if _, data := g.next(); !strings.Contains(data, `"progress":2`) {
			t.Fatalf("event %s", data)
		}
		last, data := g.next()
		if data != `{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"done"}]}}` {
			t.Fatalf("event %s", data)
		}
		g.want("EOF")
		h := v.listen(id) // the store still has the events
		h.next()
		h.next()
		h.want("EOF")
		if got := v.do("GET", "", with(v.headers, "Last-Event-ID", last)); got.status != http.StatusNoContent || got.header.Get("Content-Type") != "text/event-stream" || got.body != "" {
			t.Errorf("after the end: %d %q %q", got.status, got.header, got.body)
		}
	}
}

func TestCloseStream(t *testing.T) {
	e := newEndpoint(t, nil, nil)
	goOn := make(chan struct{})
	err := server.AddTool(e.srv, "later", "", func(ctx context.Context, _ struct{}) (string, error) {
		if err := streamable.CloseStream(ctx, 20*time.Millisecond); err != nil {
			return "", err
		}
		<-goOn
		return "done", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	v := e.visit("2025-11-25", "{}", nil)
	f := v.open(request(1, "tools/call", `{"name":"later"}`))
	id, data := f.next()
	if id == "" || data != "" {
		t.Fatalf("event %q %q", id, data)
	}
	ev, err := f.r.Read()
	if err != nil || ev.Retry != 20*time.Millisecond {
		t.Fatalf("event %+v, %v", ev, err)
	}
	f.want("EOF")
	g := v.listen(id)
	close(goOn)
	g.want(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"done"}]}}`, "EOF")

	old := e.visit("2025-06-18", "{}", nil)
	if got := old.post(request(1, "tools/call", `{"name":"later"}`)); !strings.Contains(got.body, "the client cannot resume the stream") {
		t.Errorf("with clients that do not resume: %s", got.body)
	}
}

// TestLegacyDisconnect shows that a disconnect does not cancel a legacy request, and that a
// notification does.
func TestLegacyDisconnect(t *testing.T) {
	e := newEndpoint(t, nil, nil)
	started, ended := make(chan struct{}), make(chan error, 1)
	addWaiter(t, e.srv, started, ended)
	v := e.visit("2025-06-18", "{}", nil)
	r := newRequest(t, e, request(1, "tools/call", `{"name":"wait"}`), v.headers)
	go func() {
		<-started
		r.cancel()
	}()
	r.do()
	if got := v.post(request(2, "ping", "{}")); got.status != 200 {
		t.Fatalf("ping: %d %s", got.status, got.body)
	}
	select {
	case <-ended:
		t.Fatal("the request was canceled")
	default:
	}
	v.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	if err := <-ended; err == nil {
		t.Error("the request was not canceled")
	}
}

// TestSessionLimits shows that the number of sessions and the size of bodies are limited.
func TestSessionLimits(t *testing.T) {
	e := newEndpoint(t, nil, &streamable.Options{Limits: streamable.Limits{MaxSessions: 2, MaxBody: 1000}})
	v := e.visit("2025-11-25", "{}", nil)
	e.visit("2025-11-25", "{}", nil)
	got := e.do("POST", initialize("2025-11-25", "{}"), nil)
	if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("a third session: %d %s", got.status, got.body)
	}
	v.do("DELETE", "", v.headers)
	e.visit("2025-11-25", "{}", nil)
	if got := e.do("POST", request(1, "ping", `{"a":"`+strings.Repeat("x", 1000)+`"}`), nil); got.status != 413 {
		t.Errorf("large body: %d %s", got.status, got.body)
	}
	one := newEndpoint(t, nil, &streamable.Options{Limits: streamable.Limits{MaxPerCaller: 1}})
	one.visit("2025-11-25", "{}", nil)
	if got := one.do("POST", initialize("2025-11-25", "{}"), nil); got.status != http.StatusTooManyRequests {
		t.Errorf("a second session of one caller: %d %s", got.status, got.body)
	}
}

// TestTakeOver shows that two handlers with one store are one server to the client.
func TestTakeOver(t *testing.T) {
	sessions := streamable.NewMemorySessions()
	events := streamable.NewMemoryEvents(nil)
	first := newEndpoint(t, nil, &streamable.Options{Sessions: sessions, Events: events})
	second := newEndpoint(t, nil, &streamable.Options{Sessions: sessions, Events: events})
	v := first.visit("2025-06-18", "{}", nil)
	w := &legacySession{second, v.headers}
	if got := w.post(request(1, "tools/call", `{"name":"echo","arguments":{"text":"x"}}`)); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := w.do("DELETE", "", w.headers); got.status != 204 {
		t.Errorf("%d %s", got.status, got.body)
	}
	third := newEndpoint(t, nil, &streamable.Options{Sessions: sessions})
	if got := (&legacySession{third, v.headers}).post(request(1, "ping", "{}")); got.status != 404 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestTakeOverRequests checks that each of two processes that serve one session accepts only
// responses to its own requests.
func TestTakeOverRequests(t *testing.T) {
	o := &streamable.Options{Sessions: streamable.NewMemorySessions(), Events: streamable.NewMemoryEvents(nil)}
	first, second := newEndpoint(t, nil, o), newEndpoint(t, nil, o)
	for _, e := range []*endpoint{first, second} {
		err := server.AddTool(e.srv, "roots", "", func(ctx context.Context, _ struct{}) (string, error) {
			roots, err := server.CallOf(ctx).Roots(ctx, "roots")
			if err != nil {
				return "", err
			}
			return roots[0].Name, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	v := first.visit("2025-06-18", `{"roots":{}}`, nil)
	w := &legacySession{second, v.headers}
	asked := func(f *eventReader) string {
		t.Helper()
		for {
			_, data := f.next()
			if data == "" {
				continue
			}
			var m struct {
				ID     json.RawMessage
				Method string
			}
			if err := json.Unmarshal([]byte(data), &m); err != nil || m.Method != "roots/list" {
				t.Fatalf("event %s (%v)", data, err)
			}
			return string(m.ID)
		}
	}
	f := v.open(request("1", "tools/call", `{"name":"roots"}`))
	g := w.open(request("2", "tools/call", `{"name":"roots"}`))
	one, two := asked(f), asked(g)
	if one == two {
		t.Fatalf("both processes used the request id %s", one)
	}
	answer := func(v *legacySession, id, name string, status int) {
		t.Helper()
		if got := v.post(`{"jsonrpc":"2.0","id":` + id + `,"result":{"roots":[{"uri":"file:///x","name":"` + name + `"}]}}`); got.status != status {
			t.Errorf("%s: %d %s, want %d", name, got.status, got.body, status)
		}
	}
	answer(v, two, "wrong", 400)
	answer(w, one, "wrong", 400)
	answer(v, one, "one", 202)
	answer(w, two, "two", 202)
	answer(v, one, "late", 202) // nobody waits for it any longer, but it is at the right process
	for want, f := range map[string]*eventReader{"one": f, "two": g} {
		if _, data := f.next(); !strings.Contains(data, `"text":"`+want+`"`) {
			t.Errorf("want %s: %s", want, data)
		}
	}
}

// TestOneStreamForEach shows that each of two concurrent requests has its own stream, and that each
// message is sent on the stream of its request only.
//
// Spec: S76 S77 S78 S82
func TestOneStreamForEach(t *testing.T) {
	e := newEndpoint(t, nil, nil)
	sessions := make(map[string]bool)
	for _, version := range legacyVersions {
		v := e.visit(version, "{}", nil)
		sessions[v.headers["Mcp-Session-Id"]] = true
		news := v.listen("")
		ids := make(map[string]bool)
		for _, token := range []string{"a", "b"} {
			f := v.open(request(`"`+token+`"`, "tools/call", `{"name":"steps","_meta":{"progressToken":"`+token+`"}}`))
			for n := 0; n < 4; {
				id, data := f.next()
				if ids[id] {
					t.Errorf("%s: the id %q appears twice", version, id)
				}
				ids[id] = true
				if data == "" {
					continue
				}
				n++
				if !strings.Contains(data, `"progressToken":"`+token+`"`) && !strings.Contains(data, `"id":"`+token+`"`) {
					t.Errorf("%s: on the stream of %s: %s", version, token, data)
				}
			}
			f.want("EOF")
		}
		e.announce()
		for {
			id, data := news.next()
			if ids[id] {
				t.Errorf("%s: the id %q appears twice", version, id)
			}
			if data == listChanged {
				break
			}
			if data != "" {
				t.Errorf("%s: a message of a request is on the standing stream: %s", version, data)
			}
		}
	}
	for id := range sessions {
		if len(id) < 26 || len(sessions) != len(legacyVersions) {
			t.Errorf("session %q of %d", id, len(sessions)) // 128 bits in Base32
		}
	}
}

func legacyRevisions() []mcp.Revision {
	var list []mcp.Revision
	for _, r := range mcp.Revisions() {
		if !r.Modern() {
			list = append(list, r)
		}
	}
	return list
}

func TestLegacyOnly(t *testing.T) {
	e := newEndpoint(t, &server.Options{Revisions: legacyRevisions()}, nil)
	body, headers := modernPost(1, "server/discover", "")
	got := e.do("POST", body, headers)
	if got.status != 400 || strings.Contains(got.body, "-3202") {
		t.Errorf("%d %s", got.status, got.body)
	}
	e.visit("2025-11-25", "{}", nil)
}
