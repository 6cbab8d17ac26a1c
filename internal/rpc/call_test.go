package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/internal/test/pipes"
	"mcpwire/jsonrpc"

	"github.com/google/go-cmp/cmp"
)

// An outcome is the result of a call.
type outcome struct {
	result string
	err    error
}

// call makes a call on its own goroutine and returns a channel for its outcome.
func (p *peer) call(ctx context.Context, method string, params ...string) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		var text []byte
		if len(params) > 0 {
			text = []byte(params[0])
		}
		r, err := p.conn.Call(ctx, method, text)
		done <- outcome{string(r), err}
	}()
	return done
}

// greet sends a message so that the connection knows the peer's framing.
func (p *peer) greet() {
	p.send(request(0, "ping!"))
	p.want(result(0, "{}"))
}

// Spec: S3 S4 S5 C2 C3 C4
func TestCallsAnsweredInAnyOrder(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		p.greet()
		var calls []<-chan outcome
		for i := range 10 {
			calls = append(calls, p.call(t.Context(), "m", fmt.Sprintf("[%d]", i)))
			synctest.Wait()
		}
		var want []string
		for i := range 10 {
			want = append(want, request(i+1, "m", fmt.Sprintf("[%d]", i)))
		}
		p.want(want...)
		for i := 9; i >= 0; i -= 2 {
			p.send(result(i+1, fmt.Sprintf(`{"call": %d}`, i)), failure(i, jsonrpc.Code(i), "no", `[1]`))
		}
		for i, done := range calls {
			got := <-done
			if i%2 == 1 {
				if got.err != nil || got.result != fmt.Sprintf(`{"call": %d}`, i) {
					t.Errorf("call %d: %+v", i, got)
				}
				continue
			}
			var e *jsonrpc.Error
			if !errors.As(got.err, &e) {
				t.Fatalf("call %d: %v", i, got.err)
			}
			if diff := cmp.Diff(&jsonrpc.Error{Code: jsonrpc.Code(i + 1), Message: "no", Data: []byte("[1]")}, e); diff != "" {
				t.Errorf("call %d (-want +got):\n%s", i, diff)
			}
		}
		p.want()
	}, Options{}, nil)
}

// TestUnmatchedResponses shows which call a response ends whose id is not that of a pending call.
func TestUnmatchedResponses(t *testing.T) {
	for name, response := range map[string]string{
		"string":             result(`"2"`, "{}"),
		"fraction":           `{"jsonrpc":"2.0","id":2.0,"result":{}}`,
		"null":               result("null", "{}"),
		"null, an error":     failure("null", 1, "x", ""),
		"missing":            `{"jsonrpc":"2.0","result":{}}`,
		"missing, an error":  `{"jsonrpc":"2.0","error":{"code":1,"message":"x"}}`,
		"object":             result("{}", "{}"),
		"another":            result(99, "{}"),
		"another, an error":  failure(99, 1, "x", ""),
		"negative":           result(-1, "{}"),
		"large":              result("18446744073709551617", "{}"),
		"text":               result(`"server-error"`, "{}"),
		"in a batch":         "[" + result(`"2"`, "{}") + "]",
		"NaN":                `{"jsonrpc":"2.0","id":2,"result":{"x":NaN}}`,
		"NaN, id missing":    `{"jsonrpc":"2.0","result":{"x":NaN}}`,
		"cut off":            `{"jsonrpc":"2.0","id":2,"result":{"x":[1,2`,
		"control character":  `{"jsonrpc":"2.0","id":2,"result":"` + "\x1b[2K" + `"}`,
		"not UTF-8":          `{"jsonrpc":"2.0","id":2,"result":"` + "\xff" + `"}`,
		"something after it": result(2, "{}") + "}",
	} {
		t.Run(name, func(t *testing.T) {
			everyMode(t, func(t *testing.T, p *peer) {
				p.greet()
				first := p.call(t.Context(), "m")
				p.want(request(1, "m"))
				p.send(result(1, "{}"))
				<-first
				done := p.call(t.Context(), "m")
				p.want(request(2, "m"))
				p.send(result(1, "{}")) // again: it ends no other call
				p.want()
				p.send(response)
				if got := <-done; !errors.Is(got.err, jsonrpc.ErrMalformed) {
					t.Errorf("got %+v, want ErrMalformed", got)
				}
				p.want()
				p.logged("late response dropped")
			}, Options{}, nil)
		})
	}
}

// TestUnmatchedResponseOfSeveral shows that a response whose call is unknown ends none of several
// calls, and one with another spelling of an id ends that call.
func TestUnmatchedResponseOfSeveral(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		p.greet()
		one := p.call(t.Context(), "m")
		p.want(request(1, "m"))
		two := p.call(t.Context(), "m")
		p.want(request(2, "m"))
		p.send(result("null", "{}"), result(7, "{}"), `{"jsonrpc":"2.0","id":1.5,"result":{}}`, `not a message`, `{"jsonrpc":"2.0","id":7,"result":{"x":NaN}}`)
		p.received()
		p.send(result(`"2"`, "{}"))
		if got := <-two; !errors.Is(got.err, jsonrpc.ErrMalformed) || !strings.Contains(got.err.Error(), `the id is "2", want 2`) {
			t.Errorf("got %+v", got)
		}
		p.send(result(1, "1"))
		if got := <-one; got.result != "1" || got.err != nil {
			t.Errorf("got %+v", got)
		}
		p.logged("response matches no request")
	}, Options{}, nil)
}

// TestAnsweredNotification shows that a response without an id ends no call if it may answer a
// notification.
func TestAnsweredNotification(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		p.greet()
		if err := p.conn.Notify(t.Context(), "n", nil); err != nil {
			t.Fatal(err)
		}
		p.received()
		done := p.call(t.Context(), "m")
		p.want(request(1, "m"))
		p.send(failure("null", 1, "no such method", ""))
		p.want()
		p.send(result(1, "1"))
		if got := <-done; got.result != "1" || got.err != nil {
			t.Errorf("got %+v", got)
		}
		done = p.call(t.Context(), "m")
		p.want(request(2, "m"))
		p.send(failure("null", 1, "x", "")) // the peer has handled the notification
		if got := <-done; !errors.Is(got.err, jsonrpc.ErrMalformed) {
			t.Errorf("got %+v", got)
		}
		p.logged("response matches no request")
	}, Options{}, nil)
}

func TestMalformedResponses(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		p.greet()
		for i, response := range []string{
			`{"jsonrpc":"2.0","id":%d,"result":1,"error":{"code":1,"message":"x"}}`,
			`{"id":%d,"result":1}`,
			`{"jsonrpc":"1.0","id":%d,"result":1}`,
			`{"jsonrpc":"2.0","id":%d,"result":1,"result":2}`,
			`{"jsonrpc":"2.0","id":%d,"method":"m","result":2}`,
			`[{"jsonrpc":"1.0","id":%d,"result":1}]`,
		} {
			done := p.call(t.Context(), "m")
			p.want(request(i+1, "m"))
			p.send(fmt.Sprintf(response, i+1))
			var e *jsonrpc.Error
			if got := <-done; got.err == nil || errors.As(got.err, &e) || !strings.Contains(got.err.Error(), "malformed response") {
				t.Errorf("%s: got %+v", response, got)
			}
		}
		done := p.call(t.Context(), "m")
		p.received()
		p.send(`{"jsonrpc":"2.0","id":7,"error":null}`)
		if got := <-done; !errors.Is(got.err, &jsonrpc.Error{Code: jsonrpc.CodeInternalError}) {
			t.Errorf("error null: got %+v", got)
		}
		p.want()
	}, Options{}, nil)
}

// Spec: S50 S51 C83 C84
func TestCallTimeout(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		p.greet()
		began := time.Now()
		done := p.call(t.Context(), "m") // uses the connection's CallTimeout
		p.want(request(1, "m"))
		got := <-done
		if d := time.Since(began); !errors.Is(got.err, context.DeadlineExceeded) || d != time.Minute {
			t.Errorf("after %v: %+v", d, got)
		}
		p.want(cancelOf(1))
		p.send(result(1, "{}")) // after the timeout
		p.want()

		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		done = p.call(ctx, "m")
		p.want(request(2, "m"))
		if got := <-done; !errors.Is(got.err, context.DeadlineExceeded) || time.Since(began) != 3*time.Minute {
			t.Errorf("deadline of the context, after %v: %+v", time.Since(began), got)
		}
		p.want(cancelOf(2))

		ctx, stop := context.WithCancelCause(t.Context())
		done = p.call(ctx, "m")
		p.want(request(3, "m"))
		stop(errors.New("no longer wanted"))
		if got := <-done; !errors.Is(got.err, context.Canceled) {
			t.Errorf("cancelled: %+v", got)
		}
		p.want(cancelOf(3))

		if got := <-p.call(ctx, "m"); !errors.Is(got.err, context.Canceled) {
			t.Errorf("cancelled before: %+v", got)
		}
		p.want()
		p.logged("late response dropped")
	}, Options{CallTimeout: time.Minute}, nil)
}

// altCancellation cancels with another notification, and does not cancel some methods.
type altCancellation struct{ CancelRequest }

func (altCancellation) Notice(id jsonrpc.ID, method, reason string) (string, []byte) {
	if method == "never" {
		return "", nil
	}
	return "cancelled", fmt.Appendf(nil, "[%s,%q]", id, reason)
}

func TestCancellationNotice(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		p.greet()
		for i, method := range []string{"never", "m"} {
			ctx, cancel := context.WithCancelCause(t.Context())
			done := p.call(ctx, method)
			p.want(request(i+1, method))
			cancel(errors.New("why"))
			if got := <-done; !errors.Is(got.err, context.Canceled) {
				t.Errorf("%s: %+v", method, got)
			}
		}
		p.want(notification("cancelled", `[2,"why"]`))
	}, Options{Cancellation: altCancellation{}}, nil)
}

// TestCallAnsweredAtTimeout shows that a call has one result if its response arrives when its
// context ends.
//
// Spec: C84
func TestCallAnsweredAtTimeout(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		p.greet()
		for i := range 50 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			done := p.call(ctx, "m")
			synctest.Wait()
			elapse(time.Second)
			p.send(result(i+1, "1"))
			if got := <-done; got.result != "1" && !errors.Is(got.err, context.DeadlineExceeded) {
				t.Fatalf("got %+v", got)
			}
			cancel()
		}
	}, Options{}, nil)
}

// TestCallFromHandler shows that the connection reads the peer's response and other messages while
// a handler waits for the peer, whichever goroutine runs the handler.
func TestCallFromHandler(t *testing.T) {
	m := methods{
		"ask": func(ctx context.Context, r *Request) (string, error) {
			got, err := r.Conn().Call(ctx, "question", r.Params)
			return string(got), err
		},
		"ask with another context": func(_ context.Context, r *Request) (string, error) {
			got, err := r.Conn().Call(context.Background(), "question", r.Params)
			return string(got), err
		},
		"ask with a derived context": func(ctx context.Context, r *Request) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			got, err := r.Conn().Call(ctx, "question", r.Params)
			return string(got), err
		},
	}
	everyMode(t, func(t *testing.T, p *peer) {
		p.greet()
		id := 0
		for method := range m {
			for range 6 { // enough runs for the cost estimate to consider the handler fast
				id++
				p.send(request(id, method, "[5]"), request(`"x"`, "ping!"))
				p.pause()
				p.wantAnyOrder(request(id, "question", "[5]"), result(`"x"`, "{}"))
				p.send(request(`"y"`, "ping!"), result(id, `"answer"`))
				p.wantAnyOrder(result(`"y"`, "{}"), result(id, `"answer"`))
			}
		}
		// Several calls at once get their responses in reverse order.
		for i := range 5 {
			p.send(request(fmt.Sprintf(`"%d"`, i), "ask"))
			p.pause()
		}
		p.received()
		for i := 4; i >= 0; i-- {
			p.send(result(id+1+i, strconv.Itoa(i)))
		}
		p.wantAnyOrder(result(`"0"`, "0"), result(`"1"`, "1"), result(`"2"`, "2"), result(`"3"`, "3"), result(`"4"`, "4"))
		// When a request is canceled, the call of its handler is canceled too.
		p.send(request(`"z"`, "ask"))
		p.pause()
		p.want(request(id+6, "question"))
		p.send(cancelOf(`"z"`))
		p.want(cancelOf(id + 6))
	}, Options{}, m)
}

// A pair is two connections to each other.
type pair struct{ a, b *Conn }

// newPair runs two connections with the same methods.
func newPair(t *testing.T, way runMode, o Options, m methods, limit int) *pair {
	x, y := pipes.Memory(limit)
	o.Handler, o.Goroutines = &mux{way, m}, way.threads
	p := &pair{NewConn(jsonrpc.NewFramer(x, nil), &o), NewConn(jsonrpc.NewFramer(y, nil), &o)}
	go p.a.Run(context.Background())
	go p.b.Run(context.Background())
	t.Cleanup(func() {
		p.a.Close()
		p.b.Close()
	})
	return p
}

// everyPair runs a test in a synctest bubble for each kind of pair.
func everyPair(t *testing.T, test func(t *testing.T, way runMode)) {
	for _, way := range runModes {
		t.Run(way.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, way) })
		})
	}
}

// TestReentrancy shows that both sides can call each other from handlers at any depth, with many
// calls at once.
func TestReentrancy(t *testing.T) {
	bounce := func(ctx context.Context, r *Request) (string, error) {
		n, err := strconv.Atoi(strings.Trim(string(r.Params), "[]"))
		if err != nil || n == 0 {
			return "0", err
		}
		got, err := r.Conn().Call(ctx, "bounce", fmt.Appendf(nil, "[%d]", n-1))
		if err != nil {
			return "", err
		}
		depth, err := strconv.Atoi(string(got))
		return strconv.Itoa(depth + 1), err
	}
	everyPair(t, func(t *testing.T, way runMode) {
		p := newPair(t, way, Options{}, methods{"bounce": bounce}, 1000)
		var wg sync.WaitGroup
		for i := range 8 {
			for _, c := range []*Conn{p.a, p.b} {
				wg.Go(func() {
					for depth := range 15 {
						got, err := c.Call(t.Context(), "bounce", fmt.Appendf(nil, "[%d]", depth))
						if err != nil || string(got) != strconv.Itoa(depth) {
							t.Errorf("caller %d, depth %d: got %s, %v", i, depth, got, err)
						}
					}
				})
			}
		}
		wg.Wait()
	})
}

// TestCallAcrossConnections shows that a handler that the leader runs may wait for another
// connection, whose handler waits for the first connection.
func TestCallAcrossConnections(t *testing.T) {
	everyPair(t, func(t *testing.T, way runMode) {
		m := methods{"echo": func(_ context.Context, r *Request) (string, error) { return string(r.Params), nil }}
		back := newPair(t, way, Options{}, m, 0)
		var front *pair
		m2 := methods{
			"echo": m["echo"],
			"forward": func(ctx context.Context, r *Request) (string, error) {
				got, err := back.a.Call(ctx, "ask", r.Params)
				return string(got), err
			},
		}
		front = newPair(t, way, Options{}, m2, 0)
		// calls back over the connection whose handler waits for this one
		m["ask"] = func(ctx context.Context, r *Request) (string, error) {
			got, err := front.a.Call(ctx, "echo", r.Params)
			return string(got), err
		}
		began := time.Now()
		for i := range 10 {
			params := fmt.Sprintf("[%d]", i)
			if got, err := front.a.Call(t.Context(), "forward", []byte(params)); err != nil || string(got) != params {
				t.Fatalf("got %s, %v", got, err)
			}
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("took %v, so a call waited for a watchdog", d)
		}
	})
}

// TestTracePropagation shows that a trace is passed on over several connections.
func TestTracePropagation(t *testing.T) {
	m := methods{"hop": func(ctx context.Context, r *Request) (string, error) {
		if TraceOf(r.Params).Parent != traceA || TraceFrom(ctx).Parent != traceA {
			return "", errors.New("the trace is lost")
		}
		if strings.Contains(string(r.Params), `"last":true`) {
			return string(r.Params), nil
		}
		got, err := r.Conn().Call(ctx, "hop", []byte(`{"last":true}`))
		return string(got), err
	}}
	everyPair(t, func(t *testing.T, way runMode) {
		p := newPair(t, way, Options{}, m, 0)
		ctx := WithTrace(t.Context(), Trace{Parent: traceA, State: "a=b"})
		got, err := p.a.Call(ctx, "hop", nil)
		if want := `{"_meta":{"traceparent":"` + traceA + `","tracestate":"a=b"},"last":true}`; err != nil || string(got) != want {
			t.Errorf("got %s, %v\nwant %s", got, err, want)
		}
		kept := `{"_meta":{"x":1,"traceparent":"` + traceA + `"},"last":true}`
		got, err = p.a.Call(WithTrace(t.Context(), Trace{Parent: traceB}), "hop", []byte(kept))
		if err != nil || string(got) != kept {
			t.Errorf("got %s, %v\nwant %s", got, err, kept)
		}
	})
}

// TestCallResultIsOwned shows that the caller owns a call's result: later frames do not change it,
// and changing it does not change later frames.
func TestCallResultIsOwned(t *testing.T) {
	everyPair(t, func(t *testing.T, way runMode) {
		p := newPair(t, way, Options{}, methods{"echo": func(_ context.Context, r *Request) (string, error) { return string(r.Params), nil }}, 0)
		var results [][]byte
		for i := range 100 {
			params := fmt.Appendf(nil, `["%s"]`, strings.Repeat(string(rune('a'+i%26)), i*700))
			got, err := p.a.Call(t.Context(), "echo", params)
			if err != nil {
				t.Fatal(err)
			}
			results = append(results, got)
		}
		for i, got := range results {
			if want := fmt.Sprintf(`["%s"]`, strings.Repeat(string(rune('a'+i%26)), i*700)); string(got) != want {
				t.Errorf("result %d changed", i)
			}
		}
	})
}

// TestCallToPeerThatDoesNotRead shows that a peer that does not read cannot block a caller beyond
// the end of its context.
func TestCallToPeerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local, remote := pipes.Memory(100)
		c := NewConn(jsonrpc.NewFramer(local, nil), &Options{MaxPendingBytes: 1000, CallTimeout: time.Second})
		go c.Run(context.Background())
		params := []byte(`["` + strings.Repeat("x", 400) + `"]`)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				for range 10 {
					if _, err := c.Call(t.Context(), "m", params); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("got %v", err)
					}
				}
			})
		}
		began := time.Now()
		wg.Wait()
		if d := time.Since(began); d != 10*time.Second {
			t.Errorf("10 calls of a second took %v", d)
		}
		if n := c.w.queued(); n > 10000 {
			t.Errorf("%d bytes are pending", n)
		}
		// The messages are complete once the peer reads.
		go io.Copy(io.Discard, remote)
		elapse(time.Second)
		if n := c.w.queued(); n != 0 {
			t.Errorf("%d bytes are pending although the peer reads", n)
		}
		c.Close()
		remote.Close()
	})
}

// TestPending checks the steps of a call: it has an id before it is sent, and can be abandoned with
// and without a cancellation.
func TestPending(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		p.greet()
		start := func() *Pending {
			k, err := p.conn.NewCall("m")
			if err != nil {
				t.Fatal(err)
			}
			p.want()
			if err := k.Send(t.Context(), []byte("[1]")); err != nil {
				t.Fatal(err)
			}
			p.want(request(k.ID(), "m", "[1]"))
			return k
		}
		k := start()
		select {
		case <-k.Done():
			t.Error("done before the answer")
		default:
		}
		p.send(result(k.ID(), "2"))
		<-k.Done()
		if got, err := k.Result(); string(got) != "2" || err != nil {
			t.Errorf("got %s, %v", got, err)
		}
		if k.Cancel("too late") || k.Abandon() {
			t.Error("a call with a response was abandoned")
		}
		p.want()

		if k = start(); !k.Abandon() {
			t.Error("not abandoned")
		}
		p.send(result(k.ID(), "2"))
		p.want()

		if k = start(); !k.Cancel("enough") || k.Cancel("again") {
			t.Error("not cancelled once")
		}
		p.want(cancelOf(k.ID()))

		k, err := p.conn.NewCall("m")
		if err != nil {
			t.Fatal(err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if err := k.Send(ended, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("sent with a context that has ended: %v", err)
		}
		p.want()
	}, Options{}, nil)
}

// TestSharedIDs shows that connections with a common id source use no id twice.
func TestSharedIDs(t *testing.T) {
	ids := new(atomic.Int64)
	for _, want := range []string{"1", "3"} {
		synctest.Test(t, func(t *testing.T) {
			newPeer(t, runModes[0], wires[0], Options{IDs: ids}, nil).play(func(t *testing.T, p *peer) {
				p.call(t.Context(), "a")
				p.want(request(want, "a"))
				p.call(t.Context(), "b")
				p.received()
			})
		})
	}
}

// TestCallPrefix shows that a prefix makes the ids of calls strings that match no response to
// another connection's call.
func TestCallPrefix(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		p.greet()
		var calls []<-chan outcome
		for range 3 {
			calls = append(calls, p.call(t.Context(), "m"))
			p.received()
		}
		strays := []string{"1", `"1"`, `"node.1"`, `"node2.1"`, `"no\"de.01"`, `"no\"de.+1"`, `"no\"de.1 "`, `"no\"de."`, `"no\"de"`, `"no\"de.4"`, `"other.1"`}
		for _, id := range strays {
			p.send(result(id, `"stray"`), failure(id, 1, "stray", ""))
		}
		p.send(`{"jsonrpc":"2.0","id":"no\"de.3","result":{},"error":{}}`)
		p.send(result(`"no\"de.2"`, `2`), result(`"n\u006f\u0022de.1"`, `1`))
		for i, call := range calls[:2] {
			if got := <-call; got.err != nil || string(got.result) != fmt.Sprint(i+1) {
				t.Errorf("call %d: %+v", i+1, got)
			}
		}
		if got := <-calls[2]; !errors.Is(got.err, jsonrpc.ErrMalformed) {
			t.Errorf("call 3: %+v", got)
		}
	}, Options{CallPrefix: `no"de`}, nil)
}

// TestCallPrefixOnTheWire shows that a request and its cancellation have the same id.
func TestCallPrefixOnTheWire(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		p.greet()
		ctx, cancel := context.WithCancel(t.Context())
		call := p.call(ctx, "m")
		p.want(request(`"n.1"`, "m"))
		cancel()
		<-call
		p.want(cancelOf(`"n.1"`))
		k, err := p.conn.NewCall("m")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := k.ID().String(), `"n.2"`; got != want {
			t.Errorf("id %s, want %s", got, want)
		}
		k.Abandon()
	}, Options{CallPrefix: "n"}, nil)
}

// TestQuiet shows that a quiet connection sends only responses, and that one without responses
// sends nothing.
func TestQuiet(t *testing.T) {
	traffic := []string{
		"a line that is no message", `{"jsonrpc":"2.0"}`, `{"jsonrpc":"2.0","id":null,"method":"ping!"}`, `{"jsonrpc":"2.0","id":1,"method":2}`, request(2, "ping!"), request(3, "nope"),
		"[" + request(4, "ping!") + `,5,{"jsonrpc":"2.0","id":6,"method":7},` + request(8, "echo", "[]") + "]",
	}
	everyMode(t, func(t *testing.T, p *peer) {
		p.greet()
		p.conn.SetPolicy(Policy{NoErrorsWithoutID: true})
		if p.wire == "header" {
			traffic[0] = "a stray block"
		}
		for _, msg := range traffic {
			p.send(msg)
		}
		p.pause()
		got := p.received()
		if len(got) != 4 || got[1] != result(2, "{}") {
			t.Errorf("quiet: got %q", got)
		}
		p.conn.SetPolicy(Policy{NoErrorsWithoutID: true, DropRequests: true})
		for _, msg := range traffic {
			p.send(msg)
		}
		p.pause()
		p.want()
		p.logged("request dropped")
		done := p.call(t.Context(), "m")
		p.want(request(1, "m"))
		p.send("["+result(1, "{}")+"]", cancelOf(1))
		if got := <-done; got.err != nil {
			t.Errorf("call: %v", got.err)
		}
	}, Options{}, nil)
}

// TestWaitsForReader shows that a peer that does not read delays nobody beyond the end of their
// context: no call, no notification, no flush.
func TestWaitsForReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local, remote := net.Pipe()
		c := NewConn(jsonrpc.NewFramer(local, nil), &Options{MaxPendingBytes: 10, DrainTimeout: time.Second})
		go c.Run(context.Background())
		defer c.Close()
		within := func(name string, want time.Duration, f func(ctx context.Context)) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			began := time.Now()
			f(ctx)
			if d := time.Since(began); d != want {
				t.Errorf("%s took %v, want %v", name, d, want)
			}
		}
		for range 2 { // the first is being written, the second fills the queue
			within("notification with room", 0, func(ctx context.Context) {
				if err := c.Notify(ctx, "a", nil); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		within("notification", 2*time.Second, func(ctx context.Context) {
			if err := c.Notify(ctx, "b", nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		})
		within("call", time.Second, func(ctx context.Context) {
			p, err := c.NewCall("c")
			if err != nil {
				t.Fatal(err)
			}
			if err := p.SendWithin(ctx, time.Second, nil); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
				t.Errorf("got %v", err)
			}
		})
		within("flush", 2*time.Second, c.Flush)
		go io.Copy(io.Discard, remote)
		within("flush to one who reads", 0, c.Flush)
		remote.Close()
		c.Close()
		within("flush after the end", 0, c.Flush)
		if err := c.Notify(t.Context(), "d", nil); !errors.Is(err, jsonrpc.ErrClosed) {
			t.Errorf("notification after the end: %v", err)
		}
	})
}

// A scriptFramer reads the frames and errors that a test sends to in.
type scriptFramer struct {
	in   chan any // []byte or error
	out  chan []byte
	done chan struct{}
}

func (f *scriptFramer) ReadFrame() ([]byte, error) {
	select {
	case v := <-f.in:
		if err, ok := v.(error); ok {
			return nil, err
		}
		return v.([]byte), nil
	case <-f.done:
		return nil, io.EOF
	}
}

func (f *scriptFramer) WriteFrame(msg []byte) error {
	f.out <- append([]byte(nil), msg...)
	return nil
}

func (f *scriptFramer) Close() error {
	close(f.done)
	return nil
}

// A nopTransport is a MessageTransport that leaves all messages to the framer.
type nopTransport struct{ *scriptFramer }

func (nopTransport) OnResponse(func([]byte) error) {}

func (c nopTransport) Post(_ context.Context, msg []byte) error { return c.WriteFrame(msg) }

// TestCallError shows that the error of one call does not affect the other calls or the connection.
func TestCallError(t *testing.T) {
	for _, gives := range []bool{false, true} {
		s := &scriptFramer{in: make(chan any), out: make(chan []byte, 4), done: make(chan struct{})}
		var f jsonrpc.Framer = s
		if gives {
			f = nopTransport{s}
		}
		c := NewConn(f, nil)
		go c.Run(t.Context())
		var calls []*Pending
		for range 2 {
			p, err := c.NewCall("m")
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Send(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			<-s.out
			calls = append(calls, p)
		}
		why := errors.New("why")
		s.in <- &jsonrpc.CallError{ID: jsonrpc.ID("77"), Err: why}
		s.in <- &jsonrpc.CallError{ID: calls[0].ID(), Err: why, Outcome: jsonrpc.OutcomeUnprocessed}
		_, err := calls[0].Wait(t.Context())
		var e *jsonrpc.Error
		if lost, ok := errors.AsType[*jsonrpc.CallError](err); !ok || lost.Outcome != jsonrpc.OutcomeUnprocessed || !errors.Is(err, why) || errors.Is(err, jsonrpc.ErrClosed) || errors.As(err, &e) {
			t.Errorf("the call that failed: %v", err)
		}
		frame := []byte(`{"jsonrpc":"2.0","id":2,"result":{"a":1}}`)
		s.in <- frame
		result, err := calls[1].Wait(t.Context())
		clear(frame)
		if string(result) != `{"a":1}` || err != nil {
			t.Errorf("the other call: %s, %v", result, err)
		}
		c.Close()
	}
}

// A recordingTransport is a MessageTransport that records messages.
type recordingTransport struct {
	*scriptFramer
	answer func([]byte) error
	posted []string
	values []any
	err    error
}

type transportKey struct{}

func (c *recordingTransport) OnResponse(answer func([]byte) error) { c.answer = answer }

func (c *recordingTransport) Post(ctx context.Context, msg []byte) error {
	if c.err != nil {
		return c.err
	}
	c.posted = append(c.posted, string(msg))
	c.values = append(c.values, ctx.Value(transportKey{}))
	return nil
}

// TestMessageTransport shows that messages are sent one at a time, in order, with the context of
// the sender and on its goroutine; that responses may bypass ReadFrame; and that a message that
// cannot be posted counts as unsent.
func TestMessageTransport(t *testing.T) {
	f := &recordingTransport{scriptFramer: &scriptFramer{in: make(chan any), done: make(chan struct{})}}
	gaps := make(chan struct{}, 1)
	c := NewConn(f, &Options{MaxDepth: 4, OnGap: func() { gaps <- struct{}{} }})
	run := make(chan error)
	go func() { run <- c.Run(t.Context()) }()
	f.in <- jsonrpc.ErrGap
	<-gaps
	ctx := context.WithValue(t.Context(), transportKey{}, "mine")
	p, err := c.NewCall("m")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Send(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Notify(ctx, "n", nil); err != nil {
		t.Fatal(err)
	}
	want := []string{`{"jsonrpc":"2.0","id":1,"method":"m"}`, `{"jsonrpc":"2.0","method":"n"}`}
	if !slices.Equal(f.posted, want) || !slices.Equal(f.values, []any{"mine", "mine"}) {
		t.Errorf("posted %q with %v, want %q", f.posted, f.values, want)
	}
	for _, bad := range []string{`{`, `{"jsonrpc":"2.0","id":1,"method":"x"}`, `{"jsonrpc":"2.0","id":1,"result":[[[[[]]]]]}`} {
		if f.answer([]byte(bad)) == nil {
			t.Errorf("%s was taken for a response", bad)
		}
	}
	if err := f.answer([]byte(`{"jsonrpc":"2.0","id":1,"result":{"a":1}}`)); err != nil {
		t.Error(err)
	}
	if result, err := p.Wait(t.Context()); string(result) != `{"a":1}` || err != nil {
		t.Errorf("the call: %s, %v", result, err)
	}
	f.err = errors.New("no more")
	p, err = c.NewCall("m")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Send(ctx, nil); !errors.Is(err, jsonrpc.ErrClosed) || !errors.Is(err, f.err) {
		t.Errorf("Send after Close: %v, want a closed connection", err)
	}
	if err := <-run; !errors.Is(err, f.err) {
		t.Errorf("Run: %v", err)
	}
}

func TestOutcome(t *testing.T) {
	for callOutcome, want := range map[jsonrpc.Outcome]string{jsonrpc.OutcomeUnknown: "no answer: x", jsonrpc.OutcomeUnprocessed: "not executed: x", jsonrpc.OutcomeRejected: "refused: x", jsonrpc.OutcomeDenied: "denied: x"} {
		if got := (&jsonrpc.CallError{Outcome: callOutcome, Err: errors.New("x")}).Error(); got != want {
			t.Errorf("%q: %q, want %q", callOutcome, got, want)
		}
	}
}

// TestResponseCutOff checks that a call fails with the connection if its response is cut off, as if
// nothing of the response had arrived.
func TestResponseCutOff(t *testing.T) {
	for _, framing := range []jsonrpc.Framing{jsonrpc.FramingLine, jsonrpc.FramingHeader} {
		x, y := net.Pipe()
		c := NewConn(jsonrpc.NewFramer(x, &jsonrpc.FramerOptions{Framing: framing}), nil)
		var wg sync.WaitGroup
		wg.Go(func() { c.Run(t.Context()) })
		wg.Go(func() {
			defer y.Close()
			f := jsonrpc.NewFramer(y, nil)
			frame, err := f.ReadFrame()
			if err != nil {
				t.Errorf("request: %v", err)
			}
			response := strings.Replace(string(frame), `"method":"m"`, `"result":"abc`, 1)
			if framing == jsonrpc.FramingHeader {
				response = "Content-Length: 100\r\n\r\n" + response
			}
			io.WriteString(y, strings.TrimSuffix(response, "}"))
		})
		_, err := c.Call(t.Context(), "m", nil)
		if !errors.Is(err, jsonrpc.ErrClosed) || errors.Is(err, jsonrpc.ErrMalformed) {
			t.Errorf("framing %v: got %v, want ErrClosed", framing, err)
		}
		wg.Wait()
	}
}
