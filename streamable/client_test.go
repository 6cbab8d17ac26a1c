package streamable_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpwire/client"
	"mcpwire/internal/test/pipes"
	"mcpwire/streamable"
)

const (
	modernDate = "2026-07-28"
	legacyDate = "2025-11-25"
)

// A sentRequest is an HTTP request that a fakeServer got.
type sentRequest struct {
	HTTP   string // the method
	Header http.Header
	Body   string
	ID     json.RawMessage
	Method string
	Params json.RawMessage
}

// A fakeServer is an HTTP server whose handlers are set by the test, by JSON-RPC method, or by HTTP
// method for requests without a body.
type fakeServer struct {
	*httptest.Server
	t         testing.TB
	answers   map[string]http.HandlerFunc
	transport *http.Transport // for an in-memory network, else nil

	mu   sync.Mutex
	seen []sentRequest
}

type sentKey struct{}

func newFakeServer(t testing.TB, answers map[string]http.HandlerFunc) *fakeServer {
	f := &fakeServer{t: t, answers: answers}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Server.Close)
	return f
}

// newPiped returns a fakeServer with an in-memory network, for tests in a synctest bubble.
func newPiped(t testing.TB, answers map[string]http.HandlerFunc) *fakeServer {
	f := &fakeServer{t: t, answers: answers}
	l := pipes.Listen()
	f.Server = &httptest.Server{Listener: l, Config: &http.Server{Handler: f}}
	f.Server.Start()
	f.transport = &http.Transport{DialContext: l.DialContext}
	return f
}

// end closes a client and a piped server within the bubble of the test.
func (f *fakeServer) end(c *client.Client) {
	c.Close()
	f.transport.CloseIdleConnections()
	f.Server.Config.Close()
}

func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s := sentRequest{HTTP: r.Method, Header: r.Header.Clone(), Body: string(body)}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &s); err != nil {
			f.t.Errorf("the client sent %q: %v", body, err)
		}
	}
	name := s.name()
	f.mu.Lock()
	f.seen = append(f.seen, s)
	f.mu.Unlock()
	answer := f.answers[name]
	switch {
	case answer != nil:
		answer(w, r.WithContext(context.WithValue(r.Context(), sentKey{}, s)))
	case name == http.MethodGet || name == http.MethodDelete:
		http.Error(w, "no", http.StatusMethodNotAllowed)
	case strings.HasPrefix(name, "notifications/") || name == "answer":
		w.WriteHeader(http.StatusAccepted)
	default:
		f.t.Errorf("unexpected %s", name)
		http.Error(w, "no", http.StatusInternalServerError)
	}
}

// name returns the JSON-RPC method of the request, "answer" for a response, or the HTTP method if
// there is no body.
func (s *sentRequest) name() string {
	switch {
	case s.Body == "":
		return s.HTTP
	case s.Method == "":
		return "answer"
	}
	return s.Method
}

// requests returns the requests with the given name.
func (f *fakeServer) requests(name string) (all []sentRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.seen {
		if s.name() == name {
			all = append(all, s)
		}
	}
	return all
}

// methods returns the names of all requests, in order.
func (f *fakeServer) methods() (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.seen {
		all = append(all, s.name())
	}
	return all
}

func message(r *http.Request) sentRequest { return r.Context().Value(sentKey{}).(sentRequest) }

// reply returns a handler that responds with a result.
func reply(result string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, message(r).ID, result)
	}
}

// raw returns a handler that responds with the given body, in which $ID is the request's id.
func raw(status int, kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		io.WriteString(w, strings.ReplaceAll(body, "$ID", string(message(r).ID)))
	}
}

// inTurn returns a handler that calls each of the given handlers once, in order, and the last one
// from then on.
func inTurn(answers ...http.HandlerFunc) http.HandlerFunc {
	var mu sync.Mutex
	n := 0
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		next := answers[min(n, len(answers)-1)]
		n++
		mu.Unlock()
		next(w, r)
	}
}

const (
	discovered = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`
	done       = `{"resultType":"complete","content":[{"type":"text","text":"done"}]}`
	initialzd  = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{"subscribe":true}},"serverInfo":{"name":"fake","version":"1"}}`
	oldDone    = `{"content":[{"type":"text","text":"done"}]}`
)

// modern returns the handlers of a modern server, and more.
func modern(more map[string]http.HandlerFunc) map[string]http.HandlerFunc {
	all := map[string]http.HandlerFunc{"server/discover": reply(discovered), "tools/call": reply(done)}
	for name, answer := range more {
		all[name] = answer
	}
	return all
}

// legacy returns the handlers of a legacy server with sessions, and more.
func legacy(more map[string]http.HandlerFunc) map[string]http.HandlerFunc {
	var mu sync.Mutex
	sessions := 0
	all := map[string]http.HandlerFunc{
		"server/discover": raw(http.StatusBadRequest, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: no session"}}`),
		"initialize": func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			sessions++
			// in lower case
			w.Header()["mcp-session-id"] = []string{fmt.Sprintf("session-%d", sessions)}
			mu.Unlock()
			reply(initialzd)(w, r)
		},
		"DELETE":     func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"tools/call": reply(oldDone),
	}
	for name, answer := range more {
		all[name] = answer
	}
	return all
}

// dial connects a client, which is closed when the test ends.
func (f *fakeServer) dial(dial *streamable.TransportOptions, opts *client.Options) *client.Client {
	f.t.Helper()
	c, err := f.tryDial(dial, opts)
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

func (f *fakeServer) tryDial(dial *streamable.TransportOptions, opts *client.Options) (*client.Client, error) {
	f.t.Helper()
	if f.transport != nil {
		var own streamable.TransportOptions
		if dial != nil {
			own = *dial
		}
		if own.HTTPClient == nil {
			own.HTTPClient = &http.Client{Transport: f.transport}
		}
		dial = &own
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, streamable.NewTransport(f.URL+"/mcp", dial), opts)
	if err == nil {
		f.t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// Spec: C43 C44 C46 C53 C54 C55 C61
func TestClientModern(t *testing.T) {
	f := newFakeServer(t, modern(nil))
	c := f.dial(nil, nil)
	text, err := client.CallTool[string](t.Context(), c, "tést", map[string]any{"a": 1})
	if err != nil || text != "done" {
		t.Fatalf("CallTool = %q, %v", text, err)
	}
	for _, s := range f.seen {
		for name, want := range map[string]string{
			"Mcp-Protocol-Version": modernDate,
			"Mcp-Method":           s.Method,
			"Accept":               "application/json, text/event-stream",
			"Content-Type":         "application/json",
		} {
			if got := s.Header.Get(name); got != want {
				t.Errorf("%s of %s is %q, want %q", name, s.Method, got, want)
			}
		}
	}
	if got, want := f.requests("tools/call")[0].Header.Get("Mcp-Name"), "=?base64?dMOpc3Q=?="; got != want {
		t.Errorf("Mcp-Name is %q, want %q", got, want)
	}
}

// Spec: C48 C51 C67
func TestClientLegacy(t *testing.T) {
	f := newFakeServer(t, legacy(nil))
	c := f.dial(nil, nil)
	text, err := client.CallTool[string](t.Context(), c, "test", nil)
	if err != nil || text != "done" {
		t.Fatalf("CallTool = %q, %v", text, err)
	}
	c.Close()
	for _, s := range f.seen {
		wantSession, wantVersion := "session-1", legacyDate
		switch s.Method {
		case "server/discover":
			wantSession, wantVersion = "", modernDate
		case "initialize":
			wantSession, wantVersion = "", ""
		}
		if got := s.Header.Get("Mcp-Session-Id"); got != wantSession {
			t.Errorf("session of %s %s is %q, want %q", s.HTTP, s.Method, got, wantSession)
		}
		if got := s.Header.Get("Mcp-Protocol-Version"); got != wantVersion {
			t.Errorf("version of %s %s is %q, want %q", s.HTTP, s.Method, got, wantVersion)
		}
	}
	if n := len(f.requests("DELETE")); n != 1 {
		t.Errorf("%d DELETE, want 1", n)
	}
}
