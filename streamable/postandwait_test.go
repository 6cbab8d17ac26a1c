package streamable_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"mcpwire/jsonrpc"
	"mcpwire/streamable"
)

// A waiter is what the bridge detects in a connection.
type waiter interface {
	jsonrpc.Framer
	Receive() ([]byte, context.Context, error)
	OnReceive(func(frame []byte, from context.Context))
	PostAndWait(ctx context.Context, frame []byte) (run func(), cancel context.CancelFunc, err error)
}

// waitedCall is a request of the modern era.
const waitedCall = `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`

const waitedAnswer = `{"jsonrpc":"2.0","id":"a","result":{"resultType":"complete"}}`

// dialWaiter connects to a server, and returns the frames that come by OnReceive.
func dialWaiter(t *testing.T, answer http.HandlerFunc) (waiter, *[]string) {
	f := newFakeServer(t, map[string]http.HandlerFunc{"tools/call": answer})
	conn, err := streamable.Dial(f.URL, nil).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	w := conn.(waiter)
	got := new([]string)
	w.OnReceive(func(frame []byte, from context.Context) {
		if from.Value(sentKey{}) != "value" {
			t.Error("the context of the response lacks the values of the request's")
		}
		*got = append(*got, string(frame))
	})
	return w, got
}

// postWaited calls PostAndWait and fails if the caller need not wait.
func postWaited(t *testing.T, w waiter) (run func(), cancel context.CancelFunc) {
	t.Helper()
	run, cancel, err := w.PostAndWait(context.WithValue(t.Context(), sentKey{}, "value"), []byte(waitedCall))
	if err != nil || run == nil {
		t.Fatalf("got %v, and that the caller need not wait", err)
	}
	return run, cancel
}

// TestPostAndWait checks that the caller's goroutine gets a JSON response.
func TestPostAndWait(t *testing.T) {
	w, got := dialWaiter(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		io.WriteString(rw, waitedAnswer)
	})
	run, _ := postWaited(t, w)
	run()
	if len(*got) != 1 || (*got)[0] != waitedAnswer {
		t.Errorf("got %q when run returned", *got)
	}
}

// TestPostAndWaitStream checks that run leaves a stream to another goroutine, and that messages
// keep their order.
func TestPostAndWaitStream(t *testing.T) {
	const progress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`
	returned := make(chan struct{})
	w, got := dialWaiter(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(rw, "data: "+progress+"\n\n")
		http.NewResponseController(rw).Flush()
		<-returned
		io.WriteString(rw, "data: "+waitedAnswer+"\n\n")
	})
	run, _ := postWaited(t, w)
	run()
	close(returned)
	for _, want := range []string{progress, waitedAnswer} {
		if frame, _, err := w.Receive(); string(frame) != want || err != nil {
			t.Errorf("got %s, %v, want %s", frame, err, want)
		}
	}
	if len(*got) != 0 {
		t.Errorf("got %q out of order", *got)
	}
}

// TestPostAndWaitOrder checks that a response does not overtake a message of another stream that is
// not handled yet.
func TestPostAndWaitOrder(t *testing.T) {
	calls := 0
	w, got := dialWaiter(t, func(rw http.ResponseWriter, _ *http.Request) {
		if calls++; calls == 1 {
			rw.WriteHeader(http.StatusTeapot)
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		io.WriteString(rw, waitedAnswer)
	})
	for range 2 {
		run, _ := postWaited(t, w)
		run()
	}
	if len(*got) != 0 {
		t.Fatalf("got %q before the error of the first call was handled", *got)
	}
	_, _, err := w.Receive()
	if failed, ok := errors.AsType[*jsonrpc.CallError](err); !ok || string(failed.ID) != `"a"` {
		t.Fatalf("got %v, want the error of the first call", err)
	}
	if frame, _, err := w.Receive(); string(frame) != waitedAnswer || err != nil {
		t.Fatalf("got %s, %v, want the response to the second call", frame, err)
	}
}

// TestPostAndWaitCancel checks that cancel makes run return, and that the server notices.
func TestPostAndWaitCancel(t *testing.T) {
	began, gone := make(chan struct{}), make(chan struct{})
	w, got := dialWaiter(t, func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
		close(gone)
	})
	run, cancel := postWaited(t, w)
	go func() {
		<-began
		cancel()
	}()
	run()
	<-gone
	if len(*got) != 0 {
		t.Errorf("got %q of a canceled call", *got)
	}
}

// TestPostAndWaitAgain checks that a request can be canceled that was sent again, with the same id,
// before run returned.
func TestPostAndWaitAgain(t *testing.T) {
	calls := 0
	began := make(chan struct{})
	w, _ := dialWaiter(t, func(rw http.ResponseWriter, r *http.Request) {
		if calls++; calls == 2 {
			close(began)
			<-r.Context().Done()
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		io.WriteString(rw, waitedAnswer)
	})
	first, _ := postWaited(t, w)
	second, _ := postWaited(t, w)
	first()
	go func() {
		<-began
		if err := w.WriteFrame([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}`)); err != nil {
			t.Error(err)
		}
	}()
	second()
}

// TestPostAndWaitLegacy checks that nobody waits for a legacy request, which goes on after its
// cancellation.
func TestPostAndWaitLegacy(t *testing.T) {
	w, _ := dialWaiter(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		io.WriteString(rw, waitedAnswer)
	})
	run, _, err := w.PostAndWait(context.WithValue(t.Context(), sentKey{}, "value"), []byte(`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"t"}}`))
	if run != nil || err != nil {
		t.Errorf("got a function to run, and %v", err)
	}
}
