package bridge

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"mcpwire/internal/rpc"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/streamable"
)

const (
	waitMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	waitCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",` + waitMeta + `}}`
)

// webPeer returns the peer of modern requests to a modern server over HTTP, which answers calls with
// answer. id is the id on the upstream.
func webPeer(t *testing.T, o *Options, answer func(w http.ResponseWriter, r *http.Request, id string)) relay.Peer {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := new(jsonrpc.Message)
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = jsonrpc.Parse(body, m, 0)
		}
		if err != nil {
			t.Error(err)
			return
		}
		answer(w, r, string(m.ID))
	}))
	t.Cleanup(web.Close)
	transport := streamable.Dial(web.URL, nil)
	o.HTTP, o.ServerEra, o.Shared = true, EraModern, true
	o.Connect = func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) { return transport.Connect(ctx) }
	p := newBridge(t, o).Relay().Stateless()
	t.Cleanup(p.Close)
	return p
}

// call0 makes the call waitCall.
func call0(ctx context.Context, t *testing.T, p relay.Peer, out rpc.Sender) (string, error) {
	m := new(jsonrpc.Message)
	if err := jsonrpc.Parse([]byte(waitCall), m, 0); err != nil {
		t.Fatal(err)
	}
	answer, err := p.Request(ctx, []byte(waitCall), m, out, nil)
	return string(answer), err
}

func answerJSON(w http.ResponseWriter, id string) {
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, answering(id, `{"resultType":"complete"}`))
}

// connected makes a call, so that the connection exists and later calls are sent in the goroutine of
// their caller.
func connected(t *testing.T, p relay.Peer) {
	t.Helper()
	if got, err := call0(t.Context(), t, p, nil); err != nil || !strings.Contains(got, `"id":1,"result"`) {
		t.Fatalf("got %s, %v", got, err)
	}
}

// TestWaitTimeout checks that a call without a response fails after CallTimeout, and that the
// server's request ends.
func TestWaitTimeout(t *testing.T) {
	var calls atomic.Int32
	gone := make(chan struct{})
	p := webPeer(t, &Options{CallTimeout: 50 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request, id string) {
		if calls.Add(1) == 1 {
			answerJSON(w, id)
			return
		}
		<-r.Context().Done()
		close(gone)
	})
	connected(t, p)
	got, err := call0(t.Context(), t, p, nil)
	if err != nil || !strings.Contains(got, "has not responded to tools/call for 50ms") {
		t.Errorf("got %s, %v, want the timeout", got, err)
	}
	<-gone
}

// TestWaitCancel checks that the end of the context ends the call and the server's request.
func TestWaitCancel(t *testing.T) {
	var calls atomic.Int32
	gone := make(chan struct{})
	reason := errors.New("the client is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	p := webPeer(t, &Options{}, func(w http.ResponseWriter, r *http.Request, id string) {
		if calls.Add(1) == 1 {
			answerJSON(w, id)
			return
		}
		cancel(reason)
		<-r.Context().Done()
		close(gone)
	})
	connected(t, p)
	if got, err := call0(ctx, t, p, nil); err != reason {
		t.Errorf("got %s, %v, want %v", got, err, reason)
	}
	<-gone
}

// TestWaitClose checks that the end of the bridge ends a call that waits.
func TestWaitClose(t *testing.T) {
	var calls atomic.Int32
	began := make(chan struct{})
	o := new(Options)
	p := webPeer(t, o, func(w http.ResponseWriter, r *http.Request, id string) {
		if calls.Add(1) == 1 {
			answerJSON(w, id)
			return
		}
		close(began)
		<-r.Context().Done()
	})
	connected(t, p)
	go func() {
		<-began
		p.(*statelessPeer).handler.b.Close()
	}()
	if got, err := call0(t.Context(), t, p, nil); err != nil || !strings.Contains(got, `"error"`) {
		t.Errorf("got %s, %v, want an error", got, err)
	}
}

// sentMessages takes the messages of a request.
type sentMessages chan string

func (s sentMessages) Send(message []byte) error {
	s <- string(message)
	return nil
}

// TestWaitStream checks that a client gets what a server sends before the response while the server
// still works.
func TestWaitStream(t *testing.T) {
	const note = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`
	out := make(sentMessages, 1)
	var calls atomic.Int32
	seen := make(chan struct{})
	p := webPeer(t, &Options{}, func(w http.ResponseWriter, r *http.Request, id string) {
		if calls.Add(1) == 1 {
			answerJSON(w, id)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: "+note+"\n\n")
		http.NewResponseController(w).Flush()
		select {
		case <-seen:
		case <-r.Context().Done():
		}
		io.WriteString(w, "data: "+answering(id, `{"resultType":"complete"}`)+"\n\n")
	})
	connected(t, p)
	go func() {
		if got := <-out; got != note {
			t.Errorf("got %s, want %s", got, note)
		}
		close(seen)
	}()
	if got, err := call0(t.Context(), t, p, out); err != nil || !strings.Contains(got, `"id":1,"result"`) {
		t.Errorf("got %s, %v", got, err)
	}
}

// TestBypass checks that a message never overtakes one that is queued or being written.
func TestBypass(t *testing.T) {
	first := queuedMessage{frame: []byte("1"), id: jsonrpc.ID("1")}
	tests := []struct {
		name string
		do   func(q *sendQueue)
		want bool
	}{
		{"empty", func(*sendQueue) {}, true},
		{"paused", func(q *sendQueue) { q.setPaused(true) }, false},
		{"released", func(q *sendQueue) { q.setPaused(true); q.setPaused(false) }, true},
		{"one waits", func(q *sendQueue) { q.push(first) }, false},
		{"an urgent one waits", func(q *sendQueue) { q.pushUrgent(first) }, false},
		{"one is being written", func(q *sendQueue) { q.push(first); q.next() }, false},
		{"one was written", func(q *sendQueue) { q.push(first); q.next(); q.next() }, true},
		{"one was withdrawn", func(q *sendQueue) { q.push(first); q.withdraw(first.id) }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := &sendQueue{limit: 100, keepSent: true, notify: make(chan struct{}, 1)}
			tt.do(q)
			it := queuedMessage{frame: []byte("2"), id: jsonrpc.ID("2")}
			if got := q.bypass(it); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			kept, ok := q.sent["2"]
			if ok != tt.want || ok && kept.queuedAt.IsZero() { // it may be sent again for RestartWait from then on
				t.Errorf("the request was kept: %v, want %v, from %v on", ok, tt.want, kept.queuedAt)
			}
		})
	}
}
