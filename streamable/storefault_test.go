package streamable_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

// A faultyStore is a store of events and sessions that can be made to fail or to hang.
type faultyStore struct {
	streamable.EventStore
	sessions streamable.SessionWatcher
	fails    atomic.Bool
	hangs    atomic.Bool
	loads    atomic.Int32
	// short makes After omit responses, and what follows them.
	short atomic.Bool
}

func newFaultyStore() *faultyStore {
	return &faultyStore{EventStore: streamable.NewMemoryEvents(nil), sessions: streamable.NewMemorySessions()}
}

func (s *faultyStore) fault(ctx context.Context) error {
	if s.hangs.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if s.fails.Load() {
		return errors.New("no quorum")
	}
	return nil
}

func (s *faultyStore) Append(ctx context.Context, session, stream string, data []byte) (string, error) {
	if err := s.fault(ctx); err != nil {
		return "", err
	}
	return s.EventStore.Append(ctx, session, stream, data)
}

func (s *faultyStore) After(ctx context.Context, session, id string) (stream string, events iter.Seq2[streamable.StoredEvent, error], err error) {
	stream, found, err := s.EventStore.After(ctx, session, id)
	return stream, func(yield func(streamable.StoredEvent, error) bool) {
		for e, err := range found {
			if s.short.Load() && strings.Contains(string(e.Data), `"result":`) || !yield(e, err) {
				return
			}
		}
	}, err
}

func (s *faultyStore) Update(ctx context.Context, key string, change func(*streamable.SavedSession)) error {
	return errors.Join(s.fault(ctx), s.sessions.Update(ctx, key, change))
}

func (s *faultyStore) Load(ctx context.Context, id string) (*streamable.SavedSession, error) {
	s.loads.Add(1)
	if err := s.fault(ctx); err != nil {
		return nil, err
	}
	return s.sessions.Load(ctx, id)
}

// addTwice adds a tool that logs before and after it waits for goOn.
func (e *endpoint) addTwice(goOn <-chan struct{}) {
	e.t.Helper()
	err := server.AddTool(e.srv, "twice", "", func(ctx context.Context, _ struct{}) (string, error) {
		c := server.CallOf(ctx)
		if err := c.Log(mcp.LevelError, "", "before"); err != nil {
			return "", err
		}
		<-goOn
		if err := c.Log(mcp.LevelError, "", "after"); err != nil {
			return "", err
		}
		return "through", nil
	})
	if err != nil {
		e.t.Fatal(err)
	}
}

// TestEventStoreFails shows that a connected client loses no event when the store of events fails.
// Only the stream of the event can no longer be resumed.
func TestEventStoreFails(t *testing.T) {
	const before = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"before"}}`
	const after = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"after"}}`
	through := func(id int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"through"}]}}`, id)
	}
	for _, hangs := range []bool{false, true} {
		for _, revision := range []string{"2025-06-18", "2025-11-25"} {
			store := newFaultyStore()
			inBubble(t, false, &streamable.Options{Events: store}, func(e *endpoint) {
				goOn := make(chan struct{})
				e.addTwice(goOn)
				v := e.visit(revision, "{}", nil)
				fault := &store.fails
				if hangs {
					fault = &store.hangs
				}
				open := func(id int) *eventReader { return v.open(request(id, "tools/call", `{"name":"twice"}`)) }
				primed := func(f *eventReader) {
					if revision == "2025-11-25" {
						f.next()
					}
				}
				complete := open(1) // resumed later
				primed(complete)
				wholeID, _ := complete.next()
				complete.resp.Body.Close()
				goOn <- struct{}{}
				synctest.Wait()       // all of its events are stored
				incomplete := open(2) // loses events
				primed(incomplete)
				tornID, _ := incomplete.next()
				fault.Store(true)
				without := open(3) // has no stored event
				if id, data := without.next(); id != "" || data != before {
					e.t.Errorf("%s: without a store: %q %s", revision, id, data)
				}
				if got := e.h.Stats().Degraded; got != 1 {
					e.t.Errorf("%s: %d open streams cannot be resumed, want 1", revision, got)
				}
				goOn <- struct{}{}
				goOn <- struct{}{}
				for i, f := range []*eventReader{incomplete, without} {
					for _, want := range []string{after, through(i + 2), "EOF"} {
						if id, data := f.next(); id != "" || data != want {
							e.t.Errorf("%s: got %q %s, want %s without an id", revision, id, data, want)
						}
					}
				}
				fault.Store(false)
				if got := v.do("GET", "", with(v.headers, "Last-Event-ID", tornID)); got.status != 400 {
					e.t.Errorf("%s: a stream with a gap is resumed: %d %s", revision, got.status, got.body)
				}
				v.listen(wholeID).want(after, through(1), "EOF")
				if got := e.h.Stats(); got.Unresumable != 2 || got.Degraded != 0 {
					e.t.Errorf("%s: %d streams cannot be resumed, %d of them open, want 2 and 0", revision, got.Unresumable, got.Degraded)
				}
			})
		}
	}
}

// TestStandingStreamGap shows that the standing stream can be resumed again after the client has
// opened it anew, but not from before the gap.
func TestStandingStreamGap(t *testing.T) {
	for _, revision := range []string{"2025-06-18", "2025-11-25"} {
		store := newFaultyStore()
		inBubble(t, false, &streamable.Options{Events: store}, func(e *endpoint) {
			v := e.visit(revision, "{}", nil)
			f := v.listen("")
			if revision == "2025-11-25" {
				f.next()
			}
			news := func(f *eventReader) string {
				e.announce()
				id, data := f.next()
				if !strings.Contains(data, "list_changed") {
					e.t.Errorf("%s: news: %s", revision, data)
				}
				return id
			}
			old := news(f)
			store.fails.Store(true)
			if id := news(f); id != "" {
				e.t.Errorf("%s: an event that is not kept has the id %q", revision, id)
			}
			store.fails.Store(false)
			if id := news(f); id != "" {
				e.t.Errorf("%s: after the gap: id %q", revision, id)
			}
			refused := func(what, id string) {
				e.t.Helper()
				if got := v.do("GET", "", with(v.headers, "Last-Event-ID", id)); got.status != 400 {
					e.t.Errorf("%s: %s: %d %s", revision, what, got.status, got.body)
				}
			}
			refused("resumed over the gap", old)
			f.resp.Body.Close()
			f = v.listen("")
			if revision == "2025-11-25" {
				f.next()
			}
			first := news(f)
			second := news(f)
			refused("resumed from before the gap", old)
			f.resp.Body.Close()
			synctest.Wait()
			e.announce()
			synctest.Wait()
			for _, id := range []string{first, second} {
				g := v.listen(id)
				if id == first {
					g.next()
				}
				if _, data := g.next(); !strings.Contains(data, "list_changed") {
					e.t.Errorf("%s: resumed: %s", revision, data)
				}
				g.resp.Body.Close()
				synctest.Wait()
			}
		})
	}
}

// TestSessionStoreFails shows that the error for a failing store of sessions differs from that for
// an unknown session.
func TestSessionStoreFails(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		store := newFaultyStore()
		o := &streamable.Options{Events: store, Sessions: store}
		inBubble(t, false, o, func(e *endpoint) {
			fault := &store.fails
			if hangs {
				fault = &store.hangs
			}
			v := e.visit("2025-11-25", "{}", nil)
			var got []string
			try := func(what, method string, h map[string]string) {
				body := ""
				if method == "POST" {
					body = request(1, "ping", "{}")
				}
				a := v.do(method, body, h)
				got = append(got, fmt.Sprintln(what, a.status, a.header["Retry-After"]))
			}
			there, away := v.headers, with(v.headers, "Mcp-Session-Id", strings.Repeat("A", 26))
			fault.Store(true)
			try("unknown", "POST", away)
			try("unknown", "DELETE", away)
			try("known", "POST", there)
			try("known", "DELETE", there)
			fault.Store(false)
			try("unknown", "POST", away)
			try("still open", "POST", there)
			try("known", "DELETE", there)
			try("deleted", "POST", there)
			want := []string{
				"unknown 503 [1]\n", "unknown 503 [1]\n", "known 200 []\n", "known 503 [1]\n",
				"unknown 404 []\n", "still open 200 []\n", "known 204 []\n", "deleted 404 []\n",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				e.t.Errorf("hangs %v (-want +got):\n%s", hangs, diff)
			}
		})
	}
}

// TestSavedSessionIsTouched shows that the record of a session does not expire while the session is
// used, and expires otherwise.
func TestSavedSessionIsTouched(t *testing.T) {
	store := newFaultyStore()
	o := &streamable.Options{Events: store, Sessions: store}
	inBubble(t, false, o, func(e *endpoint) {
		used, listens, idle := e.visit("2025-11-25", "{}", nil), e.visit("2025-11-25", "{}", nil), e.visit("2025-11-25", "{}", nil)
		f := listens.listen("")
		go func() {
			for {
				if _, data := f.next(); data == "EOF" {
					return
				}
			}
		}()
		for i := range 30 {
			advance(5 * time.Minute)
			store.fails.Store(i%4 == 0) // an outage that ends in time
			if got := used.post(request(1, "ping", "{}")); got.status != 200 {
				e.t.Fatalf("a session that is used: %d %s", got.status, got.body)
			}
		}
		store.fails.Store(false)
		if n := store.loads.Load(); n > 250 { // 40 in time, and those of the outages
			e.t.Errorf("the record was loaded %d times", n)
		}
		for _, tt := range []struct {
			name string
			v    *legacySession
			want bool
		}{{"used", used, true}, {"listens", listens, true}, {"idle", idle, false}} {
			saved, err := store.sessions.Load(e.t.Context(), tt.v.headers["Mcp-Session-Id"])
			if err != nil || (saved != nil) != tt.want {
				e.t.Errorf("%s: saved %v, %v", tt.name, saved != nil, err)
			}
		}
	})
}

// TestAbandonedSessions shows that the requests of a session whose client is gone are canceled, and
// no others.
func TestAbandonedSessions(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		for _, accept := range []string{"application/json", "application/json, text/event-stream"} {
			inBubble(t, h2, nil, func(e *endpoint) {
				started, ended := make(chan struct{}), make(chan error, 8)
				addWaiter(e.t, e.srv, started, ended)
				begin := func(v *legacySession, gone bool) *cancelableRequest {
					r := newRequest(e.t, e, request(1, "tools/call", `{"name":"wait"}`), with(v.headers, "Accept", accept))
					go func() {
						if resp, err := r.do(); err == nil {
							defer resp.Body.Close()
							var b [64]byte
							for err == nil {
								_, err = resp.Body.Read(b[:])
							}
						}
					}()
					<-started
					synctest.Wait()
					if gone {
						r.cancel()
					}
					return r
				}
				parked, pings, waits, comes := e.visit("2025-06-18", "{}", nil), e.visit("2025-06-18", "{}", nil), e.visit("2025-06-18", "{}", nil), e.visit("2025-06-18", "{}", nil)
				begin(parked, true)
				begin(pings, true)
				begin(comes, true)
				begin(waits, false)
				f := comes.listen("")
				go func() {
					for {
						if _, data := f.next(); data == "EOF" {
							return
						}
					}
				}()
				status := func() (all []int) {
					for _, v := range []*legacySession{parked, pings, waits, comes} {
						all = append(all, v.post(`{"jsonrpc":"2.0","id":7,"result":{}}`).status)
					}
					return all
				}
				for range 4 {
					advance(4 * time.Minute)
					pings.post(request(2, "ping", "{}"))
				}
				if n := len(ended); n != 1 {
					e.t.Errorf("h2 %v, %s: %d handlers were canceled, want 1", h2, accept, n)
				}
				if diff := cmp.Diff([]int{404, 400, 400, 400}, status()); diff != "" {
					e.t.Errorf("h2 %v, %s: sessions (-want +got):\n%s", h2, accept, diff)
				}
			})
		}
	}
}

// TestUnconfirmedSessions shows that a session whose client has not confirmed the handshake expires
// early.
func TestUnconfirmedSessions(t *testing.T) {
	inBubble(t, false, nil, func(e *endpoint) {
		confirmed := e.visit("2025-06-18", "{}", nil)
		open := func() map[string]string {
			a := e.do("POST", initialize("2025-06-18", "{}"), nil)
			return map[string]string{"Mcp-Session-Id": a.header.Get("Mcp-Session-Id")}
		}
		detached, late := open(), open()
		if got := e.do("POST", request(1, "tools/list", "{}"), detached); !strings.Contains(got.body, `"error"`) {
			e.t.Errorf("a request of an unconfirmed session: %d %s", got.status, got.body)
		}
		advance(25 * time.Second)
		if got := e.do("POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, late); got.status != 202 {
			e.t.Errorf("confirmed late: %d %s", got.status, got.body)
		}
		advance(40 * time.Second)
		if got := e.do("POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, detached); got.status != 404 {
			e.t.Errorf("not confirmed: %d %s", got.status, got.body)
		}
		for name, headers := range map[string]map[string]string{"confirmed": confirmed.headers, "late": late} {
			if got := e.do("POST", request(1, "ping", "{}"), headers); got.status != 200 {
				e.t.Errorf("%s: %d %s", name, got.status, got.body)
			}
		}
		if got := e.h.Stats().Sessions; got != 2 {
			e.t.Errorf("%d sessions, want 2", got)
		}
	})
}

// TestBusySessionResumes shows that a stream whose client is disconnected is resumed completely,
// whatever else the session sends at the same time.
func TestBusySessionResumes(t *testing.T) {
	for _, revision := range []string{"2025-06-18", "2025-11-25"} {
		inBubble(t, false, nil, func(e *endpoint) {
			const many = 1500
			goOn := make(chan struct{})
			e.addTwice(goOn)
			flood := func(ctx context.Context, _ struct{}) (string, error) {
				for i := range many {
					if err := server.CallOf(ctx).Log(mcp.LevelError, "", i); err != nil {
						return "", err
					}
				}
				return "through", nil
			}
			if err := server.AddTool(e.srv, "flood", "", flood); err != nil {
				e.t.Fatal(err)
			}
			v := e.visit(revision, "{}", nil)
			read := func(f *eventReader) (n int, last string) {
				for {
					_, data := f.next()
					if data == "EOF" {
						return n, last
					}
					if data != "" {
						n, last = n+1, data
					}
				}
			}
			torn := v.open(request(1, "tools/call", `{"name":"twice"}`))
			id, data := torn.next()
			if data == "" {
				id, _ = torn.next()
			}
			torn.resp.Body.Close()
			synctest.Wait()
			for i := range 2 {
				if n, _ := read(v.open(request(i+2, "tools/call", `{"name":"flood"}`))); n != many+1 {
					e.t.Errorf("%s: a flood of %d events", revision, n)
				}
				if i == 0 {
					goOn <- struct{}{} // no client reads this message now
				}
			}
			n, last := read(v.listen(id))
			if want := `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"through"}]}}`; n != 2 || last != want {
				e.t.Errorf("%s: resumed: %d events, the last is %s", revision, n, last)
			}
		})
	}
}

// TestLenientSessions shows that any request confirms a session if requests are accepted before
// notifications/initialized.
func TestLenientSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := server.MustNew("test", "1", &server.Options{Lenient: true})
		addTools(t, srv)
		h := streamable.MustHandler(srv, nil)
		e := &endpoint{t: t, srv: srv, h: h, url: "http://localhost", client: &http.Client{Transport: direct{h}}}
		a := e.do("POST", initialize("2025-06-18", "{}"), nil)
		session := map[string]string{"Mcp-Session-Id": a.header.Get("Mcp-Session-Id")}
		for range 2 {
			if got := e.do("POST", request(1, "tools/list", "{}"), session); got.status != 200 {
				t.Errorf("%d %s", got.status, got.body)
			}
			advance(5 * time.Minute)
		}
		if err := h.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
