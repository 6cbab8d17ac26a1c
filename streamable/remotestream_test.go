package streamable_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/server"
	"mcpwire/streamable"
)

// A followedStore is an EventFollower.
type followedStore struct{ *faultyStore }

func (s followedStore) StreamOf(id string) (stream string, ok bool) {
	i := strings.LastIndexByte(id, '-')
	return id[:max(i, 0)], i > 0
}

func (s followedStore) After(ctx context.Context, session, id string) (stream string, events iter.Seq2[streamable.StoredEvent, error], err error) {
	if err := s.fault(ctx); err != nil {
		return "", nil, err
	}
	return s.faultyStore.After(ctx, session, id)
}

func (s followedStore) Follow(ctx context.Context, session, id string) (stream string, events iter.Seq2[streamable.StoredEvent, error], err error) {
	stream, first, err := s.After(ctx, session, id)
	return stream, func(yield func(streamable.StoredEvent, error) bool) {
		for found := first; ; {
			for e, err := range found {
				if id = e.ID; !yield(e, err) {
					return
				}
			}
			select {
			case <-ctx.Done():
				yield(streamable.StoredEvent{}, ctx.Err())
				return
			case <-time.After(100 * time.Millisecond):
			}
			if _, found, err = s.After(ctx, session, id); err != nil {
				yield(streamable.StoredEvent{}, err)
				return
			}
		}
	}, err
}

// A job is the tool "job" of each node. It reports progress for each item of steps until the
// channel is closed.
type job struct {
	steps chan int
	// canceled has an item for each canceled call.
	canceled chan struct{}
}

func (j *job) addTo(t *testing.T) func(*server.Server) {
	return func(srv *server.Server) {
		if j.steps == nil { // must belong to the bubble
			j.steps, j.canceled = make(chan int), make(chan struct{}, 8)
		}
		err := server.AddTool(srv, "job", "", func(ctx context.Context, _ struct{}) (string, error) {
			for {
				select {
				case n, ok := <-j.steps:
					if !ok {
						return "done", nil
					}
					if err := server.CallOf(ctx).Progress(float64(n), 0, ""); err != nil {
						return "", err
					}
				case <-ctx.Done():
					j.canceled <- struct{}{}
					return "", ctx.Err()
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// start calls the tool at the first node and returns the id of the first progress event. The client
// then disconnects.
func (j *job) start(all []*endpoint, v *legacySession, id any) (lastID string) {
	f := v.open(request(id, "tools/call", `{"name":"job","_meta":{"progressToken":1}}`))
	j.steps <- 1
	for data := ""; !strings.Contains(data, `"progress":1`); {
		lastID, data = f.next()
	}
	f.resp.Body.Close()
	synctest.Wait()
	return lastID
}

// wantMessage reads events until one with a message, and checks that it contains text.
func (f *eventReader) wantMessage(text string) {
	f.t.Helper()
	data := ""
	for data == "" {
		_, data = f.next()
	}
	if !strings.Contains(data, text) {
		f.t.Errorf("event %s, want one with %s", data, text)
	}
}

// forFollowedStores runs a test with two nodes, with and without an EventFollower.
func forFollowedStores(t *testing.T, test func(version string, j *job, store *faultyStore, net *network, all []*endpoint)) {
	for _, version := range legacyVersions {
		for _, follows := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s %v", version, follows), func(t *testing.T) {
				faulty, j := newFaultyStore(), new(job)
				var store streamable.EventStore = faulty
				if follows {
					store = followedStore{faulty}
				}
				inNetworkWith(t, store, 2, j.addTo(t), func(net *network, all []*endpoint) { test(version, j, faulty, net, all) })
			})
		}
	}
}

// TestRemoteStream shows that a client that resumes a stream at another node than that of its
// request gets the remaining events, once and in order, including the response.
func TestRemoteStream(t *testing.T) {
	forFollowedStores(t, func(version string, j *job, _ *faultyStore, _ *network, all []*endpoint) {
		v := all[0].visit(version, "{}", nil)
		w := &legacySession{all[1], v.headers}
		last := j.start(all, v, 7)
		j.steps <- 2
		synctest.Wait()
		f := w.listen(last)
		f.wantMessage(`"progress":2`)
		j.steps <- 3
		f.wantMessage(`"progress":3`)
		fourth := make(chan string)
		go func() { // reads the keep-alives
			_, data := f.next()
			fourth <- data
		}()
		// Longer than Timeouts.Abandon: the client waits at the other node.
		advance(20 * time.Minute)
		j.steps <- 4
		if data := <-fourth; !strings.Contains(data, `"progress":4`) {
			t.Errorf("event %s", data)
		}
		close(j.steps)
		f.wantMessage(`"text":"done"`)
		f.want("EOF")
		g := w.listen(last)
		for _, text := range []string{`"progress":2`, `"progress":3`, `"progress":4`, `"text":"done"`} {
			g.wantMessage(text)
		}
		g.want("EOF")
	})
}

// TestRemoteStreamLost shows that a client that resumes the stream of a node that is gone soon gets
// an error, and the same error on each further attempt, even if the node comes back.
func TestRemoteStreamLost(t *testing.T) {
	for id, want := range map[any]string{
		7:                                        `"id":7,`,
		`"a-é"`:                                  `"id":"a-é",`,
		`"550e8400-e29b-41d4-a716-446655440000"`: `"id":"550e8400-e29b-41d4-a716-446655440000",`,
		`"` + strings.Repeat("long", 20) + `"`:   "",
		`"\"]} ` + strings.Repeat(`\u0000`, 5) + `"`: `\u0000`,
	} {
		forFollowedStores(t, func(version string, j *job, _ *faultyStore, net *network, all []*endpoint) {
			v := all[0].visit(version, "{}", nil)
			w := &legacySession{all[1], v.headers}
			last := j.start(all, v, id)
			net.mu.Lock()
			back := net.nodes["node1"]
			delete(net.nodes, "node1")
			net.mu.Unlock()
			if want == "" {
				if got := w.do("GET", "", with(w.headers, "Last-Event-ID", last)); got.status != 400 {
					t.Errorf("a request with a long id: %d %s", got.status, got.body)
				}
				close(j.steps)
				return
			}
			began := time.Now()
			f := w.listen(last)
			f.wantMessage(`"data":{"reason":"node lost","mayHaveRun":true}`)
			f.want("EOF")
			if d := time.Since(began); d > 3500*time.Millisecond {
				t.Errorf("the client has waited %v", d)
			}
			net.mu.Lock()
			net.nodes["node1"] = back
			net.mu.Unlock()
			close(j.steps) // the node sends its response
			synctest.Wait()
			for _, at := range []*legacySession{v, w} {
				g := at.listen(last)
				g.wantMessage("node lost")
				g.want("EOF")
			}
			h := w.listen(last)
			h.wantMessage(want)
		})
	}
}

// TestRemoteStreamLostSilently shows that the error is not delayed for long by a request to a node
// that was just killed and does not respond.
func TestRemoteStreamLostSilently(t *testing.T) {
	forFollowedStores(t, func(version string, j *job, _ *faultyStore, net *network, all []*endpoint) {
		v := all[0].visit(version, "{}", nil)
		w := &legacySession{all[1], v.headers}
		last := j.start(all, v, 7)
		net.leave("node1")
		net.mu.Lock()
		net.silent = time.Now().Add(100 * time.Millisecond)
		net.mu.Unlock()
		began := time.Now()
		f := w.listen(last)
		f.wantMessage(`"data":{"reason":"node lost","mayHaveRun":true}`)
		f.want("EOF")
		if d := time.Since(began); d > 3500*time.Millisecond {
			t.Errorf("the client has waited %v", d)
		}
		close(j.steps)
	})
}

// TestRemoteStreamLostLater shows that a client that follows a stream is notified when the node of
// the stream ends.
func TestRemoteStreamLostLater(t *testing.T) {
	forFollowedStores(t, func(version string, j *job, store *faultyStore, net *network, all []*endpoint) {
		v := all[0].visit(version, "{}", nil)
		w := &legacySession{all[1], v.headers}
		f := w.listen(j.start(all, v, 7))
		ended := make(chan string)
		go func() { // reads the keep-alives
			_, data := f.next()
			ended <- data
		}()
		advance(time.Minute)
		net.leave("node1")
		store.fails.Store(true) // no node can end the stream for all clients
		if data := <-ended; !strings.Contains(data, `"data":{"reason":"node lost","mayHaveRun":true}`) {
			t.Errorf("event %s", data)
		}
		f.want("EOF")
		close(j.steps)
	})
}

// forUnavailableStores runs a test with an EventFollower, and a function that makes it fail, hang
// or work again.
func forUnavailableStores(t *testing.T, test func(j *job, setDown func(bool), net *network, all []*endpoint)) {
	for _, hangs := range []bool{false, true} {
		t.Run(fmt.Sprintf("hangs %v", hangs), func(t *testing.T) {
			faulty, j := newFaultyStore(), new(job)
			down := &faulty.fails
			if hangs {
				down = &faulty.hangs
			}
			inNetworkWith(t, followedStore{faulty}, 2, j.addTo(t), func(net *network, all []*endpoint) { test(j, down.Store, net, all) })
		})
	}
}

// TestRemoteStreamLostWithoutStore shows that a client that resumes the stream of a node that is
// gone soon gets an error, even while the store of events is unavailable.
func TestRemoteStreamLostWithoutStore(t *testing.T) {
	forUnavailableStores(t, func(j *job, setDown func(bool), net *network, all []*endpoint) {
		v := all[0].visit("2025-11-25", "{}", nil)
		w := &legacySession{all[1], v.headers}
		last := j.start(all, v, 7)
		net.leave("node1")
		setDown(true)
		began := time.Now()
		f := w.listen(last)
		f.wantMessage(`"id":7,"error":{"code":-32603,"message":"neither the process`)
		f.want("EOF")
		if d := time.Since(began); d > 3*time.Second {
			t.Errorf("the client has waited %v", d)
		}
		setDown(false)
		close(j.steps)
	})
}

// TestRemoteStreamUnavailable shows that a client that resumes a stream at another node while the
// store of events is unavailable gets the remaining events when the store is available again.
func TestRemoteStreamUnavailable(t *testing.T) {
	forUnavailableStores(t, func(j *job, setDown func(bool), _ *network, all []*endpoint) {
		v := all[0].visit("2025-11-25", "{}", nil)
		w := &legacySession{all[1], v.headers}
		last := j.start(all, v, 7)
		setDown(true)
		f := w.listen(last)
		told := make(chan struct{})
		go func() { // reads the keep-alives
			defer close(told)
			f.wantMessage(`"progress":2`)
			f.wantMessage(`"text":"done"`)
			f.want("EOF")
		}()
		advance(9 * time.Second)
		setDown(false)
		j.steps <- 2
		close(j.steps)
		<-told
		if got := w.do("GET", "", with(w.headers, "Last-Event-ID", "no-id")); got.status != 400 {
			t.Errorf("an unknown id: %d %s", got.status, got.body)
		}
		setDown(true)
		if got := w.do("GET", "", with(w.headers, "Last-Event-ID", last)); got.status != 503 {
			t.Errorf("a complete stream without the store: %d %s", got.status, got.body)
		}
		setDown(false)
	})
}

// TestRemoteStreamShutdown shows that a node ends the streams of the requests that it cancels at
// shutdown.
func TestRemoteStreamShutdown(t *testing.T) {
	forFollowedStores(t, func(version string, j *job, _ *faultyStore, _ *network, all []*endpoint) {
		v := all[0].visit(version, "{}", nil)
		w := &legacySession{all[1], v.headers}
		last := j.start(all, v, 7)
		f := w.listen(last)
		ctx, cancel := context.WithTimeout(all[0].t.Context(), time.Second)
		defer cancel()
		if err := all[0].h.Shutdown(ctx); err == nil {
			t.Error("Shutdown has not waited for the call")
		}
		<-j.canceled
		f.wantMessage(`"id":7,"error"`)
		f.want("EOF")
	})
}

// TestRemoteStreamCanceled shows that the stream of a call that the client has canceled ends
// without a response.
func TestRemoteStreamCanceled(t *testing.T) {
	forFollowedStores(t, func(version string, j *job, _ *faultyStore, _ *network, all []*endpoint) {
		v := all[0].visit(version, "{}", nil)
		w := &legacySession{all[1], v.headers}
		last := j.start(all, v, 7)
		f := w.listen(last)
		if got := w.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`); got.status != 202 {
			t.Errorf("%d %s", got.status, got.body)
		}
		<-j.canceled
		f.want("EOF")
		if got := w.do("GET", "", with(w.headers, "Last-Event-ID", last)); got.status != 204 {
			t.Errorf("again: %d %s", got.status, got.body)
		}
	})
}

// TestStreamShort shows that a client that resumes a stream that has ended gets an error as response
// if the store has lost the end, and all of it if a machine that answers for the store lags behind.
func TestStreamShort(t *testing.T) {
	for _, lost := range []bool{true, false} {
		forFollowedStores(t, func(version string, j *job, store *faultyStore, _ *network, all []*endpoint) {
			v := all[0].visit(version, "{}", nil)
			last := j.start(all, v, 7)
			j.steps <- 2
			j.steps <- 3
			close(j.steps)
			synctest.Wait()
			for _, e := range all {
				store.short.Store(true)
				f := (&legacySession{e, v.headers}).listen(last)
				f.wantMessage(`"progress":2`)
				f.wantMessage(`"progress":3`)
				began := time.Now()
				if lost {
					f.wantMessage(`"id":7,"error":{"code":-32603,"message":"the rest of the stream is no longer stored`)
				} else {
					advance(time.Second)
					store.short.Store(false)
					f.wantMessage(`"id":7,"result":`)
				}
				if d := time.Since(began); d > 10*time.Second {
					t.Errorf("the client waits %v", d)
				}
				f.want("EOF")
			}
		})
	}
}

// TestRemoteStreamIncomplete shows that a stream that lacks an event cannot be resumed at any node.
func TestRemoteStreamIncomplete(t *testing.T) {
	forFollowedStores(t, func(version string, j *job, store *faultyStore, _ *network, all []*endpoint) {
		v := all[0].visit(version, "{}", nil)
		w := &legacySession{all[1], v.headers}
		last := j.start(all, v, 7)
		f := w.listen(last)
		store.fails.Store(true)
		j.steps <- 2
		synctest.Wait()
		store.fails.Store(false)
		for {
			if _, data := f.next(); data == "EOF" {
				break
			} else if data != "" {
				t.Errorf("event %s", data)
			}
		}
		got := w.do("GET", "", with(w.headers, "Last-Event-ID", last))
		if got.status != 400 || !strings.Contains(got.body, "cannot be resumed") {
			t.Errorf("%d %s", got.status, got.body)
		}
		close(j.steps)
	})
}

// TestLocalStreamUnavailable shows that a client that resumes a stream at the process that handles
// its request gets a response while the store does not respond, and the rest when it does.
func TestLocalStreamUnavailable(t *testing.T) {
	forUnavailableStores(t, func(j *job, setDown func(bool), _ *network, all []*endpoint) {
		v := all[0].visit("2025-11-25", "{}", nil)
		last := j.start(all, v, 7)
		j.steps <- 2
		synctest.Wait() // it is stored
		setDown(true)
		began := time.Now()
		f := v.listen(last)
		if d := time.Since(began); d > time.Second {
			t.Errorf("the response begins after %v", d)
		}
		told := make(chan struct{})
		go func() { // which reads the keep-alives
			defer close(told)
			f.wantMessage(`"progress":2`)
			f.wantMessage(`"progress":3`)
			f.wantMessage(`"text":"done"`)
			f.want("EOF")
		}()
		advance(9 * time.Second)
		setDown(false)
		advance(time.Second)
		j.steps <- 3
		close(j.steps)
		<-told
		setDown(true)
		complete := v.listen(last)
		time.AfterFunc(5*time.Second, func() { setDown(false) })
		for _, text := range []string{`"progress":2`, `"progress":3`, `"text":"done"`} {
			complete.wantMessage(text)
		}
		complete.want("EOF")
	})
}

// TestStandaloneUnavailable shows that a client that resumes the standalone stream while the store
// does not respond gets what is new at once, and what is stored when the store responds.
func TestStandaloneUnavailable(t *testing.T) {
	forUnavailableStores(t, func(_ *job, setDown func(bool), _ *network, all []*endpoint) {
		v := all[0].visit("2025-11-25", "{}", nil)
		f := v.listen("")
		last := ""
		next := func(f *eventReader, text string) {
			t.Helper()
			for data := ""; !strings.Contains(data, text); {
				var id string
				if id, data = f.next(); id != "" {
					last = id
				}
				if data == "EOF" {
					t.Fatalf("the stream ends before %s", text)
				}
			}
		}
		all[0].announce()
		next(f, "tools/list_changed")
		f.resp.Body.Close()
		synctest.Wait()
		all[0].announce() // is stored
		advance(time.Minute)
		setDown(true)
		began := time.Now()
		f = v.listen(last)
		if d := time.Since(began); d > time.Second {
			t.Errorf("the response begins after %v", d)
		}
		synctest.Wait()
		all[0].announce()
		next(f, "tools/list_changed")
		if d := time.Since(began); d > 10*time.Second {
			t.Errorf("a new message comes after %v", d)
		}
		setDown(false)
		next(f, "tools/list_changed") // the stored one
		f.resp.Body.Close()
		synctest.Wait()
	})
}
