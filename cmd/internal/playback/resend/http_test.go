package resend_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpwire/capture"
	"mcpwire/client"
	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/cmd/internal/proxy/taphttp"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// serve runs a handler and returns its URL.
func serve(t *testing.T, h http.Handler) *resend.Origin {
	t.Helper()
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	return &resend.Origin{Name: "web", Transport: capture.TransportHTTP, URL: web.URL + "/mcp", Revision: "2025-11-25", Initialize: []byte(strings.Replace(initialize, "2025-06-18", "2025-11-25", 1))}
}

// oursHTTP serves package server over HTTP: Streamable HTTP at /mcp, HTTP+SSE at other paths.
func oursHTTP(t *testing.T) *resend.Origin {
	t.Helper()
	h := streamable.MustHandler(newServer(), nil)
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	mux.Handle("/", h.SSE("/messages"))
	o := serve(t, mux)
	// before the server's, because it ends the streams
	t.Cleanup(func() { h.Shutdown(context.Background()) })
	return o
}

const (
	callGreet = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"greet","arguments":{"name":"Ann"}}}`
	callAsk   = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"ask","arguments":{}}}`
	modernAsk = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"ask","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`
)

func TestRunHTTP(t *testing.T) {
	for _, tt := range []struct {
		name, message string
		change        func(*resend.Origin)
		answer, story string
		asked         int
	}{
		{"legacy", callGreet, nil, "Hello, Ann!", "POST /mcp 200, POST /mcp 202, POST /mcp 200, DELETE /mcp 204", 0},
		{"legacy with a standing stream", callGreet, func(o *resend.Origin) { o.StandingStream = true }, "Hello, Ann!", "POST /mcp 200, POST /mcp 202, GET /mcp 200, POST /mcp 200, DELETE /mcp 204", 0},
		{"legacy with input requests", callAsk, nil, "accepted: false", "POST /mcp 200, POST /mcp 202, POST /mcp 200, POST /mcp 202, DELETE /mcp 204", 1},
		{"legacy without a recorded handshake", callGreet, func(o *resend.Origin) { o.Initialize = nil }, "Hello, Ann!", "POST /mcp 200, POST /mcp 202, POST /mcp 200, DELETE /mcp 204", 0},
		{"modern", modernAsk, func(o *resend.Origin) { o.Initialize = nil }, `"input_required"`, "POST /mcp 200", 0},
		{"HTTP+SSE", callAsk, func(o *resend.Origin) {
			o.Transport, o.URL, o.Initialize = capture.TransportSSE, strings.TrimSuffix(o.URL, "/mcp")+"/sse", []byte(strings.Replace(initialize, "2025-06-18", "2024-11-05", 1))
		}, "accepted: false", "GET /sse 200, POST /messages?sessionId 202, POST /messages?sessionId 202, POST /messages?sessionId 202", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := oursHTTP(t)
			if tt.change != nil {
				tt.change(o)
			}
			res, events, err := run(t, o, tt.message, nil)
			if err != nil {
				t.Fatalf("%v\n%s", err, story(events))
			}
			if o.Transport == capture.TransportSSE { // that revision has no elicitation
				tt.answer = `"id":7`
			}
			if !bytes.Contains(res.Response, []byte(tt.answer)) || res.Status != 200 || res.Asked != tt.asked {
				t.Errorf("result %+v, answer %s", res, res.Response)
			}
			if got := exchanges(events); got != tt.story {
				t.Errorf("exchanges %s\nwant      %s\n%s", got, tt.story, story(events))
			}
			if events[0].Head.URL != o.URL || events[0].Head.Transport != o.Transport {
				t.Errorf("head %+v", events[0].Head)
			}
			causal(t, events)
		})
	}
}

// exchanges lists the requests in order, with the status of their responses.
func exchanges(events []*capture.Event) string {
	var list []string
	at := map[uint64]int{}
	for _, e := range events {
		switch {
		case e.Request != nil:
			target, _, _ := strings.Cut(e.Request.URL, "=")
			at[e.Exchange] = len(list)
			list = append(list, e.Request.Method+" "+target)
		case e.Response != nil:
			list[at[e.Exchange]] += fmt.Sprint(" ", e.Response.Status)
		}
	}
	return strings.Join(list, ", ")
}

// causal checks that every exchange begins with its request and ends with its end, and that every
// response follows its request.
func causal(t *testing.T, events []*capture.Event) {
	t.Helper()
	state := map[uint64]capture.Kind{}
	for _, e := range events {
		if e.Exchange == 0 {
			continue
		}
		if began := state[e.Exchange] != ""; began == (e.Kind == capture.KindRequest) || state[e.Exchange] == capture.KindEnd {
			t.Errorf("event %d, %s, behind %q", e.N, e.Kind, state[e.Exchange])
		}
		state[e.Exchange] = e.Kind
	}
	for x, k := range state {
		if k != capture.KindEnd {
			t.Errorf("exchange %d ends with %s", x, k)
		}
	}
	for x, err := range capture.Pairs(func(yield func(*capture.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}) {
		if err != nil || x.Response == nil || x.Call.Latency < 0 {
			t.Errorf("request %s: %v, answered %v", x.Call.Method, err, x.Response != nil)
		}
	}
}

// TestTapped shows that requests of a client of this module can be sent again from a tap's capture.
func TestTapped(t *testing.T) {
	for _, revision := range []mcp.Revision{mcp.Revision20250618, mcp.Revision20260728} {
		t.Run(revision.String(), func(t *testing.T) {
			o := oursHTTP(t)
			upstream, _ := url.Parse(o.URL)
			var file bytes.Buffer
			rec := capture.NewWriter(&file, &capture.Options{Transport: "http", Name: "greeter", URL: upstream.String()})
			tap, err := taphttp.New(upstream, rec, nil)
			if err != nil {
				t.Fatal(err)
			}
			tapServer := httptest.NewServer(tap)
			c, err := client.Dial(t.Context(), streamable.NewTransport(tapServer.URL+"/mcp", nil), &client.Options{Revisions: []mcp.Revision{revision}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.CallTool[string](t.Context(), c, "greet", greeting{"Bob"}); err != nil {
				t.Fatal(err)
			}
			c.Close()
			tap.Shutdown(t.Context())
			tapServer.Close()
			if err := rec.Close(); err != nil {
				t.Fatal(err)
			}
			var call *capture.Event
			for e, err := range capture.NewReader(bytes.NewReader(file.Bytes()), nil).Events() {
				if err != nil {
					t.Fatal(err)
				}
				if e.Dir == capture.ToServer && bytes.Contains(e.Data, []byte("tools/call")) {
					call = e.Clone()
				}
			}
			found, message, err := resend.Find(t.Context(), capture.NewReader(&file, nil).Events(), call.Session, call.N)
			if err != nil || found.URL != o.URL || found.Revision != revision.String() || found.Modern != revision.Modern() {
				t.Fatalf("origin %+v, %v", found, err)
			}
			res, _, err := run(t, found, strings.Replace(string(message), "Bob", "Eve", 1), nil)
			if err != nil || !bytes.Contains(res.Response, []byte("Hello, Eve!")) {
				t.Errorf("the answer is %s, %v", res.Response, err)
			}
		})
	}
}

// A seen is a request that a server got.
type seen struct {
	mu   sync.Mutex
	list []*http.Request
	body []string
}

func (s *seen) add(r *http.Request) string {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list, s.body = append(s.list, r), append(s.body, string(body))
	return string(body)
}

func TestRunHeaders(t *testing.T) {
	var got seen
	o := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.add(r)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":7,"result":{}}`)
	}))
	o.Params = map[string][]mcp.HeaderParam{"t": {
		{Header: "Region", Path: []string{"a", "region"}, Type: "string"}, {Header: "Count", Path: []string{"n"}, Type: "integer"},
		{Header: "None", Path: []string{"none"}, Type: "string"}, {Header: "Null", Path: []string{"null"}, Type: "string"}, {Header: "Flag", Path: []string{"flag"}, Type: "boolean"},
	}}
	message := "{\"jsonrpc\":\"2.0\",\n\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"t\",\"arguments\":{\"a\":{\"region\":\"Zürich\"},\"n\":4.2e1,\"null\":null,\"flag\":true},\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\"}}}"
	_, events, err := run(t, o, message, &resend.Options{
		Headers: http.Header{"Authorization": {"Bearer planted-planted-planted"}, "x-tenant": {"a"}, "Host": {"virtual.example"}, "User-Agent": {""}}, Tool: "mcpwire 1.2",
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.list) != 1 || got.body[0] != message {
		t.Fatalf("the server saw %q, want the message byte for byte", got.body)
	}
	r := got.list[0]
	for name, want := range map[string]string{
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "t", "Mcp-Param-Region": "=?base64?WsO8cmljaA==?=", "Mcp-Param-Count": "42", "Mcp-Param-Flag": "true",
		"Mcp-Param-None": "", "Mcp-Param-Null": "", "Authorization": "Bearer planted-planted-planted", "X-Tenant": "a", "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if r.Host != "virtual.example" {
		t.Errorf("Host: %s", r.Host)
	}
	for _, e := range events {
		if e.Request != nil && strings.Contains(fmt.Sprint(e.Request.Headers), "planted") {
			t.Errorf("the capture has the token: %v", e.Request.Headers)
		}
	}
}

// TestRunLegacyHeaders checks that every request after the handshake has the session and the
// revision.
func TestRunLegacyHeaders(t *testing.T) {
	var got seen
	o := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch body := got.add(r); {
		case strings.Contains(body, "initialize\""):
			w.Header().Set("Mcp-Session-Id", "S1")
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "id: 1\ndata:\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":0,\"result\":"+handshake+"}\n\n")
		case strings.Contains(body, `"id":7`):
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"jsonrpc":"2.0","id":7,"result":{}}`)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	if _, _, err := run(t, o, callGreet, nil); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, r := range got.list {
		all = append(all, r.Method+" "+r.Header.Get("Mcp-Session-Id")+" "+r.Header.Get("Mcp-Protocol-Version")+r.Header.Get("Mcp-Method"))
	}
	if got, want := strings.Join(all, ", "), "POST  , POST S1 2025-11-25, POST S1 2025-11-25, DELETE S1 2025-11-25"; got != want {
		t.Errorf("the server saw %s, want %s", got, want)
	}
}

// TestRunResumes checks that the client resumes a stream that the server closed before its
// response.
func TestRunResumes(t *testing.T) {
	var got seen
	o := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := got.add(r)
		w.Header().Set("Content-Type", "text/event-stream")
		switch {
		case strings.Contains(body, "initialize\""):
			io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"id\":0,\"result\":"+handshake+"}\n\n")
		case strings.Contains(body, `"id":7`):
			io.WriteString(w, "id: one\nretry: 10\ndata:\n\n")
		case r.Header.Get("Last-Event-ID") == "one":
			io.WriteString(w, "id: two\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n")
		case r.Header.Get("Last-Event-ID") == "two":
			io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n")
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	res, events, err := run(t, o, callGreet, nil)
	if err != nil || res.ResponseN == 0 {
		t.Fatalf("%v\n%s", err, story(events))
	}
	causal(t, events)
}

func TestRunBadWeb(t *testing.T) {
	modern := func(id string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"m","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
	}
	handler := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		stream := func() {
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
		}
		switch which := string(body); {
		case strings.Contains(which, `"401"`):
			http.Error(w, "no token", http.StatusUnauthorized)
		case strings.Contains(which, `"400"`):
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"jsonrpc":"2.0","error":{"code":-32020,"message":"headers"}}`)
		case strings.Contains(which, `"hang"`):
			<-r.Context().Done()
		case strings.Contains(which, `"hangs on"`):
			stream()
			<-r.Context().Done()
		case strings.Contains(which, `"ends"`):
			stream()
			io.WriteString(w, "id: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n\n")
		case strings.Contains(which, `"breaks"`):
			panic(http.ErrAbortHandler)
		case strings.Contains(which, `"html"`):
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<h1>hello</h1>")
		case strings.Contains(which, `"large"`):
			w.Write(bytes.Repeat([]byte("x"), 5000))
		case strings.Contains(which, `"redirect"`):
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
		case strings.Contains(which, `"method":"n"`):
			w.WriteHeader(http.StatusAccepted)
		}
	}
	status := func(code int) func(error) bool {
		return func(err error) bool {
			e, ok := errors.AsType[*wireclient.StatusError](err)
			return ok && e.Status == code
		}
	}
	is := func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
	for _, tt := range []struct {
		message, response string
		want              func(error) bool
		status            int
	}{
		{modern(`"401"`), "", status(401), 401},
		{modern(`"400"`), `"code":-32020`, is(nil), 400},
		{modern(`"hang"`), "", is(resend.ErrTimeout), 0},
		{modern(`"hangs on"`), "", is(resend.ErrTimeout), 0},
		{modern(`"ends"`), "", is(resend.ErrNoAnswer), 0},
		{modern(`"breaks"`), "", func(err error) bool { _, ok := errors.AsType[*wireclient.EndedError](err); return ok }, 0},
		{modern(`"html"`), "", is(resend.ErrNoAnswer), 0},
		{modern(`"large"`), "", is(wireclient.ErrTooLarge), 0},
		{modern(`"redirect"`), "", status(307), 307},
		{`{"jsonrpc":"2.0","method":"n","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, "", is(nil), 202},
	} {
		t.Run(tt.message, func(t *testing.T) {
			o := serve(t, http.HandlerFunc(handler))
			o.Modern, o.Initialize = true, nil
			timeout := waitLimit
			if strings.Contains(tt.message, "hang") {
				timeout = time.Second
			}
			res, events, err := run(t, o, tt.message, &resend.Options{Timeout: timeout, IdleTimeout: 20 * time.Millisecond, MaxMessage: 4000})
			if !tt.want(err) || !strings.Contains(string(res.Response), tt.response) || res.Status != tt.status {
				t.Errorf("result %+v, answer %s, %v", res, res.Response, err)
			}
			if last := events[len(events)-2]; last.Kind != capture.KindEnd {
				t.Errorf("the capture ends with %s", last.Kind)
			}
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		o := serve(t, nil)
		o.URL, o.Modern = "http://127.0.0.1:1/mcp", true
		_, _, err := run(t, o, modern("1"), nil)
		if _, ok := errors.AsType[*wireclient.EndedError](err); !ok || strings.Contains(err.Error(), "/mcp") {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestRunBadSSE(t *testing.T) {
	for _, tt := range []struct{ name, event, want string }{
		{"elsewhere", "event: endpoint\ndata: http://127.0.0.1:1/messages\n\n", "the server has ended the connection: the endpoint is not at the same origin"},
		{"no stream", "", "the server has ended the connection: the server responded with HTTP status 404"},
		{"ends", ": hello\n\n", "the server has ended the connection: EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if tt.event == "" {
					http.NotFound(w, r)
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, tt.event)
			}))
			o.Transport = capture.TransportSSE
			if _, _, err := run(t, o, callGreet, nil); fmt.Sprint(err) != tt.want {
				t.Errorf("the error is %v, want %s", err, tt.want)
			}
		})
	}
}
