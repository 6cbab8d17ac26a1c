package streamable

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"mcpwire/internal/era"
	"mcpwire/mcp"
	"mcpwire/server"
)

// A spyStore calls a function before it stores an event.
type spyStore struct {
	EventStore
	before func(data []byte)
}

func (s *spyStore) Append(ctx context.Context, session, stream string, data []byte) (string, error) {
	s.before(data)
	return s.EventStore.Append(ctx, session, stream, data)
}

// TestStreamFoundUntilStored shows that a stream is found until all of its events are in the store,
// so that a client that resumes it at that moment gets the response.
func TestStreamFoundUntilStored(t *testing.T) {
	store := &spyStore{EventStore: NewMemoryEvents(nil).(*memoryEvents)}
	h := MustHandler(server.MustNew("test", "1", nil), &Options{Events: store})
	defer h.Shutdown(t.Context())
	r := httptest.NewRequest("POST", "http://localhost/", nil)
	s := h.newSession(r, "", newSessionKey())
	defer s.close(true)
	p := h.newResponse(httptest.NewRecorder(), r, acceptedTypes{json: true, stream: true})
	st := &stream{session: s, out: p}
	found := 0
	store.before = func([]byte) {
		if s.findStream("1") == st {
			found++
		}
	}
	if err := st.Send([]byte(`{"jsonrpc":"2.0","method":"a"}`)); err != nil {
		t.Fatal(err)
	}
	st.finish([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`), nil, false)
	if found != 2 || s.findStream("1") != nil {
		t.Errorf("found for %d events of 2, and %v after the end", found, s.findStream("1"))
	}
	if err := st.Send([]byte(`{"jsonrpc":"2.0","method":"late"}`)); err == nil {
		t.Error("a message was sent after the response")
	}
}

// TestLoneResponseStored shows that a response that is the only event of a stream is stored only
// for clients that have an earlier id to resume from.
func TestLoneResponseStored(t *testing.T) {
	for revision, want := range map[mcp.Revision]int{mcp.Revision20250618: 0, mcp.Revision20251125: 2} {
		kept := 0
		store := &spyStore{NewMemoryEvents(nil).(*memoryEvents), func([]byte) { kept++ }}
		h := MustHandler(server.MustNew("test", "1", nil), &Options{Events: store})
		r := httptest.NewRequest("POST", "http://localhost/", nil)
		s := h.newSession(r, "", newSessionKey())
		s.features.Store(era.Of(revision))
		w := httptest.NewRecorder()
		st := &stream{session: s, out: h.newResponse(w, r, acceptedTypes{stream: true})}
		st.finish([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`), nil, false)
		body := w.Body.String()
		if kept != want || strings.Contains(body, "id: ") != (want > 0) || !strings.Contains(body, "data: {\"jsonrpc") {
			t.Errorf("%v: %d events were stored, want %d; the client got %q", revision, kept, want, body)
		}
		s.close(true)
		h.Shutdown(t.Context())
	}
}

// TestNothingStoredAfterTheEnd shows that no event of a session that has ended is returned.
func TestNothingStoredAfterTheEnd(t *testing.T) {
	store := NewMemoryEvents(nil).(*memoryEvents)
	h := MustHandler(server.MustNew("test", "1", nil), &Options{Events: store})
	defer h.Shutdown(t.Context())
	s := h.newSession(httptest.NewRequest("POST", "http://localhost/", nil), "", newSessionKey())
	st := &stream{session: s, streaming: true, name: "1"}
	s.standalone.Send([]byte(`{}`))
	s.close(true)
	for _, st := range []*stream{&s.standalone, st} {
		if err := st.Send([]byte(`{}`)); err == nil {
			t.Errorf("stream %q accepts a message", st.name)
		}
	}
	if store.bytes != 0 || len(store.sessions) != 0 {
		t.Errorf("the store has %d bytes of %d sessions", store.bytes, len(store.sessions))
	}
}

// TestAddressOf shows that an IPv6 client is counted by its /64 network.
func TestAddressOf(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "[2001:db8::1]:80": "2001:db8::/64", "[2001:db8::ffff:1]:80": "2001:db8::/64", "[2001:db8:0:1::1]:80": "2001:db8:0:1::/64",
		"[::ffff:192.0.2.1]:80": "192.0.2.1", "[fe80::1%eth0]:80": "fe80::/64", "@": "@", "pipe": "pipe",
	} {
		r := httptest.NewRequest("GET", "/", nil)
		if r.RemoteAddr = remote; peerAddress(r) != want {
			t.Errorf("%s: %s, want %s", remote, peerAddress(r), want)
		}
	}
}

func TestAccepted(t *testing.T) {
	for header, want := range map[string]acceptedTypes{
		"":                                      {},
		"application/json, text/event-stream":   {true, true},
		"text/event-stream,APPLICATION/JSON":    {true, true},
		"application/json":                      {json: true},
		"application/*;q=0.1":                   {json: true},
		"text/*":                                {stream: true},
		"*/*":                                   {true, true},
		"*/*;q=0":                               {},
		"text/event-stream;q=0, */*":            {json: true},
		"*/*, text/event-stream; q=0.000":       {json: true},
		"application/json;q=0, application/*":   {},
		"application/json;charset=utf-8;q=0.5":  {json: true},
		"application/jsonp, text/event-streams": {},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Accept", header)
		if got := parseAccept(r); got != want {
			t.Errorf("Accept: %s: %+v, want %+v", header, got, want)
		}
		r.Header["Accept"] = strings.Split(header, ",")
		if got := parseAccept(r); got != want {
			t.Errorf("Accept in several lines: %s: %+v, want %+v", header, got, want)
		}
	}
}
