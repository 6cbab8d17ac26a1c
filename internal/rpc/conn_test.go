package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
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

func TestCloseWhileBusy(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		var ended atomic.Int32
		watch := func(ctx context.Context, _ *Request) (string, error) {
			<-ctx.Done()
			ended.Add(1)
			return "1", nil
		}
		p.greet()
		p.methods["watch"] = watch
		p.methods["ask"] = func(ctx context.Context, r *Request) (string, error) {
			_, err := r.Conn().Call(ctx, "m", nil)
			if errors.Is(err, jsonrpc.ErrClosed) || errors.Is(err, context.Canceled) {
				ended.Add(1)
			}
			return "", err
		}
		call := p.call(t.Context(), "m")
		p.send(request(1, "watch"), request(2, "watch"), notification("watch"), notification("watch"), request(3, "ask"), "["+request(4, "watch")+"]", request(5, "ping!"))
		p.pause()
		p.received()
		began := time.Now()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { p.conn.Close() })
		}
		wg.Wait()
		if d := time.Since(began); d != 0 {
			t.Errorf("Close took %v", d)
		}
		if got := <-call; !errors.Is(got.err, jsonrpc.ErrClosed) {
			t.Errorf("call: %+v", got)
		}
		if n := ended.Load(); n != 5 {
			t.Errorf("the contexts of %d of 5 handlers ended", n)
		}
		p.wantEnd(nil)
		for _, msg := range p.received() { // a handler's call may have sent its cancellation
			if msg != cancelOf(1) && msg != cancelOf(2) {
				t.Errorf("got %s", msg)
			}
		}
		if _, err := p.conn.Call(t.Context(), "m", nil); !errors.Is(err, jsonrpc.ErrClosed) {
			t.Errorf("call after the end: %v", err)
		}
		if err := p.conn.Notify(t.Context(), "m", nil); !errors.Is(err, jsonrpc.ErrClosed) {
			t.Errorf("notification after the end: %v", err)
		}
		<-p.conn.Done()
		<-p.conn.Draining()
		if err := p.conn.Run(t.Context()); err != nil {
			t.Errorf("Run once more: %v", err)
		}
	}, Options{}, nil)
}

func TestCloseBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t, runModes[0], "line", Options{}, nil)
		if p.conn.Err() != nil {
			t.Error("the connection ended before Run")
		}
		call := p.call(t.Context(), "m")
		synctest.Wait()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { p.conn.Close() })
		}
		wg.Wait()
		<-p.conn.Done()
		<-p.conn.Draining()
		if got := <-call; !errors.Is(got.err, jsonrpc.ErrClosed) {
			t.Errorf("call: %+v", got)
		}
		if err := p.conn.Run(t.Context()); err != nil {
			t.Errorf("Run: %v", err)
		}
		if _, err := p.link.Write([]byte("x")); err != io.ErrClosedPipe {
			t.Errorf("the framer was not closed: %v", err)
		}
	})
}

// TestCloseFromHandler shows that a handler that closes its own connection waits for itself only
// for a limited time.
func TestCloseFromHandler(t *testing.T) {
	closing := func(_ context.Context, r *Request) (string, error) { return "1", r.Conn().Close() }
	everyMode(t, func(t *testing.T, p *peer) {
		for _, msg := range []string{request(1, "close"), request(1, "close!"), notification("close"), notification("close!"), "[" + request(1, "close!") + "]"} {
			q := newPeer(t, p.conn.handler.(*mux).way, p.wire, Options{DrainTimeout: time.Second}, methods{"close": closing, "close!": closing})
			began := time.Now()
			q.start(context.Background())
			q.send(msg)
			q.wantEnd(nil)
			if d := time.Since(began); d > 4*time.Second {
				t.Errorf("%s: it took %v", msg, d)
			}
			q.want()
		}
	}, Options{}, nil)
}

// TestCloseAtAnyMoment checks Close, the end of ctx and the end of input at any moment while
// requests are read.
func TestCloseAtAnyMoment(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		way := p.conn.handler.(*mux).way
		for i := range 60 {
			q := newPeer(t, way, p.wire, Options{DrainTimeout: time.Second}, nil)
			ctx, cancel := context.WithCancel(context.Background())
			q.start(ctx)
			q.greet()
			var wg sync.WaitGroup
			wg.Go(func() {
				for k := range 50 {
					q.send(request(k, []string{"echo", "ping!", "slow", "wait"}[k%4], "[]"), cancelOf(k-10))
				}
			})
			wg.Go(func() {
				for range i {
					elapse(0)
				}
				switch i % 4 {
				case 0:
					cancel()
				case 1:
					q.hangUp()
				case 2:
					q.link.In.Close()
				}
				q.conn.Close()
			})
			wg.Go(func() { q.conn.Call(t.Context(), "m", nil) })
			wg.Go(func() { q.conn.Notify(t.Context(), "m", nil) })
			wg.Wait()
			q.ended()
			cancel()
			synctest.Wait()
			q.checkCounts()
			seen := make(map[string]bool)
			for _, msg := range q.received() {
				if seen[msg] {
					t.Errorf("%s came twice", msg)
				}
				seen[msg] = true
			}
		}
	}, Options{}, nil)
}

// A stubborn transport does not interrupt a read when it is closed, like a blocking standard input.
type stubborn struct{ idleTransport }

func (s *stubborn) Close() error {
	s.Out.End(io.EOF)
	return nil
}

// TestReaderThatDoesNotReturn shows that Close abandons a reader that does not return within a
// timeout, and still waits for handlers. Such a transport violates its contract.
func TestReaderThatDoesNotReturn(t *testing.T) {
	for _, busy := range []bool{false, true} {
		t.Run(fmt.Sprint("busy: ", busy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				local, remote := pipes.Memory(0)
				ctx, cancel := context.WithCancel(context.Background())
				p := newPeer(t, runModes[0], "line", Options{}, nil)
				p.conn = NewConn(jsonrpc.NewFramer(&stubborn{idleTransport{End: local}}, nil), &p.conn.opts)
				p.link = remote
				p.start(ctx)
				p.greet()
				if busy {
					p.send(request(1, "slow"))
					synctest.Wait()
				}
				cancel()
				p.wantEnd(context.Canceled)
				if busy {
					p.want(result(1, `"slow"`))
				}
				p.hangUp() // unblocks the reader
				synctest.Wait()
			})
		})
	}
}

// TestCloseCancelsCalls shows that Close sends one cancellation for each pending call, and does not
// wait for a peer that does not read.
func TestCloseCancelsCalls(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		p.greet()
		one, two := p.call(t.Context(), "m"), p.call(t.Context(), "m")
		p.pause()
		p.received()
		if _, err := p.conn.NewCall("never sent"); err != nil {
			t.Fatal(err)
		}
		p.conn.Close()
		for _, call := range []<-chan outcome{one, two} {
			if got := <-call; !errors.Is(got.err, jsonrpc.ErrClosed) {
				t.Errorf("call: %+v", got)
			}
		}
		p.wantEnd(nil)
		got := p.received()
		slices.Sort(got)
		if want := []string{cancelOf(1), cancelOf(2)}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}, Options{}, nil)
}

// TestDrainAtEndOfInput shows that every accepted request gets a response at the end of input,
// whether it runs, is queued or has not been read yet.
func TestDrainAtEndOfInput(t *testing.T) {
	for _, limit := range []int{0, 2} {
		everyMode(t, func(t *testing.T, p *peer) {
			var notes atomic.Int32
			p.methods["note"] = func(context.Context, *Request) (string, error) {
				elapse(10 * time.Millisecond)
				notes.Add(1)
				return "", nil
			}
			var want []string
			for i := range 10 {
				p.send(request(i, "slow"), request(100+i, "echo", "[]"), request(200+i, "ping!"), notification("note"))
				want = append(want, result(i, `"slow"`), result(100+i, "[]"), result(200+i, "{}"))
			}
			p.send("["+request(300, "slow")+"]", request(301, "wait"), cancelOf(301), request(302, "wait"))
			p.hangUp()
			elapse(8 * time.Second)
			select {
			case <-p.conn.Draining():
			default:
				t.Error("Ending is not closed")
			}
			p.open()
			p.wantEnd(nil)
			if p.conn.Err() != nil || notes.Load() != 10 {
				t.Errorf("ended with %v after %d notifications", p.conn.Err(), notes.Load())
			}
			p.wantAnyOrder(append(want, "["+result(300, `"slow"`)+"]", result(302, `"waited"`))...)
		}, Options{MaxInFlight: limit}, nil)
	}
}

// TestLastLineWithoutEnd shows that a last line without a newline is a message.
func TestLastLineWithoutEnd(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		p.link.Write([]byte(strings.TrimSuffix(p.framed(request(1, "slow")), "\n")))
		p.hangUp()
		p.wantEnd(nil)
		p.want(result(1, `"slow"`))
	}, Options{}, nil)
}

// cutOffResponse is the response to a request that the drain timeout canceled after 5 s.
func cutOffResponse(id any) string {
	return failure(id, jsonrpc.CodeInternalError, "shutting down: the request did not finish within 5s", "")
}

// TestDrainHandlesQueue shows that each request that the drain timeout cancels gets one response,
// whether it runs or is queued, alone or in a batch, and whatever its handler returns later. A
// request that the peer has canceled gets none.
func TestDrainHandlesQueue(t *testing.T) {
	for _, end := range []string{"input", "context"} {
		for _, limit := range []int{0, 3} {
			t.Run(fmt.Sprint(end, limit), func(t *testing.T) {
				for _, way := range runModes {
					for _, wire := range wires {
						synctest.Test(t, func(t *testing.T) {
							stop := errors.New("stop")
							ctx, cancel := context.WithCancelCause(context.Background())
							p := newPeer(t, way, wire, Options{MaxInFlight: limit, DrainTimeout: 5 * time.Second}, nil)
							p.start(ctx)
							defer p.conn.Close()
							var want []string
							p.send(request(1, "deaf"), cancelOf(1), request(2, "deaf"), request(3, "wait"))
							p.send("[" + strings.Join([]string{request(4, "ping!"), request(5, "deaf"), request(6, "wait"), request(7, "deaf")}, ",") + "]")
							p.send("["+request(8, "deaf")+"]", cancelOf(8), cancelOf(7), "["+request(9, "ping!")+","+request(10, "wait")+"]")
							for i := range 20 {
								p.send(request(100+i, "wait"))
								want = append(want, cutOffResponse(100+i))
							}
							p.pause()
							if cut := 25; end == "input" {
								p.hangUp()
								if late, ok := errors.AsType[*jsonrpc.DrainError](p.ended()); !ok || *late != (jsonrpc.DrainError{Requests: cut, After: 5 * time.Second}) {
									t.Errorf("%s: ended with %v", way.name, late)
								}
							} else {
								cancel(stop)
								if late, ok := errors.AsType[*jsonrpc.DrainError](p.ended()); !ok || *late != (jsonrpc.DrainError{Requests: cut, After: 5 * time.Second, Cause: stop}) || !errors.Is(late, stop) {
									t.Errorf("%s: ended with %v", way.name, late)
								}
							}
							cancel(nil)
							p.open()
							var got []string
							for _, msg := range p.received() {
								if !strings.HasPrefix(msg, "[") {
									got = append(got, msg)
									continue
								}
								var members []json.RawMessage
								if err := json.Unmarshal([]byte(msg), &members); err != nil {
									t.Fatalf("%v: %s", err, msg)
								}
								for _, m := range members {
									got = append(got, string(m))
								}
							}
							want = append(want, cutOffResponse(2), cutOffResponse(3), result(4, "{}"), cutOffResponse(5), cutOffResponse(6), result(9, "{}"), cutOffResponse(10))
							slices.Sort(got)
							slices.Sort(want)
							if diff := cmp.Diff(want, got); diff != "" {
								t.Errorf("%s, %s: (-want +got):\n%s", way.name, wire, diff)
							}
						})
					}
				}
			})
		}
	}
}

// TestDrainPeerDoesNotRead shows that the responses to canceled requests do not wait for a peer.
func TestDrainPeerDoesNotRead(t *testing.T) {
	for _, way := range runModes {
		synctest.Test(t, func(t *testing.T) {
			p := newPeer(t, way, "line", Options{DrainTimeout: 5 * time.Second}, nil)
			p.link.In.Limit = 10
			p.start(context.Background())
			p.send(request(1, "wait"), request(2, "wait"), request(3, "wait"))
			p.pause()
			began := time.Now()
			p.hangUp()
			if _, ok := errors.AsType[*jsonrpc.DrainError](p.ended()); !ok {
				t.Error("no DrainError")
			}
			if d := time.Since(began); d != 6*time.Second {
				t.Errorf("it took %v", d)
			}
			p.open()
		})
	}
}

func TestDrainTimeout(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		var ended atomic.Int32
		p.methods["note"] = func(ctx context.Context, _ *Request) (string, error) {
			<-ctx.Done()
			ended.Add(1)
			return "", nil
		}
		p.send(request(1, "wait"), request(2, "wait"), request(3, "slow"), notification("note"), notification("note"))
		p.hangUp()
		began := time.Now()
		err := p.ended()
		if late, ok := errors.AsType[*jsonrpc.DrainError](err); !ok || *late != (jsonrpc.DrainError{Requests: 2, After: 5 * time.Second}) {
			t.Errorf("Run returned %v", err)
		}
		if want := "2 requests were aborted 5s after the end of input"; err.Error() != want {
			t.Errorf("Run returned %v, want %s", err, want)
		}
		if d := time.Since(began); d < 5*time.Second || d > 5*time.Second+10*tick {
			t.Errorf("it took %v", d)
		}
		p.wantAnyOrder(result(3, `"slow"`), cutOffResponse(1), cutOffResponse(2))
		if n := ended.Load(); n != 1 {
			t.Errorf("the context of %d notifications ended, want 1: the one in a handler", n)
		}
	}, Options{DrainTimeout: 5 * time.Second}, nil)
}

// TestDrainAbandonsStuckHandlers shows that handlers that ignore their context are abandoned and
// that the error names them.
func TestDrainAbandonsStuckHandlers(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		p.send(request(1, "deaf"))
		p.pause()
		p.hangUp()
		began := time.Now()
		p.ended()
		if d := time.Since(began); d != 10*time.Second {
			t.Errorf("it took %v", d)
		}
		p.logged("goroutines leak")
		p.logged("methods=[deaf]")
		p.open()
		p.want(cutOffResponse(1))
	}, Options{DrainTimeout: 5 * time.Second}, nil)
}

// TestContextEnds shows that the connection stops reading when ctx ends, and finishes accepted
// requests.
func TestContextEnds(t *testing.T) {
	stop := errors.New("stop")
	for _, busy := range []bool{false, true} {
		for _, way := range runModes {
			for _, wire := range wires {
				t.Run(fmt.Sprint(way.name, wire, busy), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						ctx, cancel := context.WithCancelCause(context.Background())
						p := newPeer(t, way, wire, Options{DrainTimeout: 5 * time.Second}, nil)
						p.start(ctx)
						defer p.conn.Close()
						var want []string
						if busy {
							p.send(request(1, "slow"), request(2, "slow"), request(3, "ping!"))
							want = []string{result(1, `"slow"`), result(2, `"slow"`), result(3, "{}")}
							elapse(20 * time.Millisecond)
						}
						synctest.Wait()
						call := p.call(context.Background(), "m")
						synctest.Wait()
						cancel(stop)
						synctest.Wait()
						if got := <-call; !errors.Is(got.err, jsonrpc.ErrClosed) || !errors.Is(got.err, stop) {
							t.Errorf("call: %+v", got)
						}
						p.send(request(4, "ping!"), request(5, "ping!"))
						p.wantEnd(stop)
						got := p.received()
						for _, msg := range want {
							if !contains(got, msg) {
								t.Errorf("%s is missing", msg)
							}
						}
						for _, msg := range got {
							if strings.Contains(msg, `"id":4`) || strings.Contains(msg, `"id":5`) {
								t.Errorf("read after the end: %s", msg)
							}
						}
						p.checkCounts()
					})
				})
			}
		}
	}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// TestContextEndsWhileReading ends ctx at any moment while frames are read.
func TestContextEndsWhileReading(t *testing.T) {
	for _, way := range runModes {
		synctest.Test(t, func(t *testing.T) {
			for i := range 50 {
				ctx, cancel := context.WithCancel(context.Background())
				p := newPeer(t, way, "line", Options{DrainTimeout: 5 * time.Second}, nil)
				p.start(ctx)
				for k := range 100 {
					p.send(request(k, []string{"echo", "ping!", "slow"}[k%3], "[]"))
					if k == 2*i {
						cancel()
					}
				}
				if err := p.ended(); !errors.Is(err, context.Canceled) {
					t.Errorf("Run returned %v", err)
				}
				seen := make(map[string]bool)
				for _, msg := range p.received() {
					if seen[msg] {
						t.Errorf("%s came twice", msg)
					}
					seen[msg] = true
				}
				p.checkCounts()
				cancel()
			}
		})
	}
}

// TestReadErrorWhileHandlersRun shows that a handler that had the lead may finish after the input
// has failed, within the drain timeout.
func TestReadErrorWhileHandlersRun(t *testing.T) {
	broken := errors.New("cable cut")
	everyMode(t, func(t *testing.T, p *peer) {
		p.greet()
		call := p.call(t.Context(), "m")
		p.send(request(1, "wait"), request(2, "slow"))
		p.pause()
		began := time.Now()
		p.link.Out.End(broken)
		if got := <-call; !errors.Is(got.err, jsonrpc.ErrClosed) || !errors.Is(got.err, broken) || time.Since(began) > time.Second {
			t.Errorf("call, after %v: %+v", time.Since(began), got)
		}
		if err := p.ended(); !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "1 request was aborted 5s") {
			t.Errorf("Run returned %v", err)
		}
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("it took %v", d)
		}
		p.wantAnyOrder(request(1, "m"), result(2, `"slow"`), cutOffResponse(1))
	}, Options{DrainTimeout: 5 * time.Second}, nil)
}

// TestEndWithPeerThatDoesNotRead shows that a peer that does not read cannot delay the end of the
// connection. The test sets no limit on pending bytes, since a connection at that limit stops
// reading and does not notice that the peer has closed.
func TestEndWithPeerThatDoesNotRead(t *testing.T) {
	for _, how := range []string{"hang up", "context", "Close"} {
		for _, way := range runModes {
			t.Run(how+", "+way.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o := Options{DrainTimeout: 5 * time.Second, MaxPendingBytes: 2000}
					if how == "hang up" {
						o.MaxPendingBytes = 0
					}
					p := newPeer(t, way, "line", o, nil)
					p.link.In.Limit = 100
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					p.start(ctx)
					call := p.call(context.Background(), "m")
					for i := range 300 {
						p.send(request(i, "echo", `["some text"]`), request(1000+i, "ping!"))
					}
					p.pause()
					began := time.Now()
					switch how {
					case "hang up":
						p.hangUp()
					case "context":
						cancel()
					default:
						p.conn.Close()
					}
					p.ended()
					if d := time.Since(began); d > 20*time.Second || how == "Close" && d > time.Second {
						t.Errorf("it took %v", d)
					}
					if got := <-call; !errors.Is(got.err, jsonrpc.ErrClosed) {
						t.Errorf("call: %+v", got)
					}
					p.open()
				})
			})
		}
	}
}

// TestEndFlushesResponses shows that responses in the queue are written before the connection ends.
func TestEndFlushesResponses(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		var msgs, want []string
		for i := range 1000 {
			msgs = append(msgs, request(i, "ping!"), request(1000+i, "echo", "[]"))
			want = append(want, result(i, "{}"), result(1000+i, "[]"))
		}
		p.send(msgs...)
		p.hangUp()
		p.wantEnd(nil)
		p.wantAnyOrder(want...)
	}, Options{}, nil)
}

// TestFramerClosedFromOutside shows that a framer that is closed by its owner ends the connection
// normally.
func TestFramerClosedFromOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t, runModes[0], "line", Options{}, nil)
		p.start(context.Background())
		synctest.Wait()
		p.link.In.End(io.EOF)
		p.link.Out.Close()
		p.wantEnd(io.ErrClosedPipe)
	})
}

// A failingFramer is connected to a peer that no longer reads but still writes.
type failingFramer struct {
	inputs []string // returned one by one after a delay
	ends   bool     // whether io.EOF follows the last frame, else reads block
	closed chan struct{}
}

var errGone = errors.New("gone")

func (f *failingFramer) WriteFrame([]byte) error { return errGone }

func (f *failingFramer) ReadFrame() ([]byte, error) {
	if len(f.inputs) == 0 {
		if !f.ends {
			<-f.closed
		}
		return nil, io.EOF
	}
	<-time.After(drainInputTimeout / 4)
	frame := []byte(f.inputs[0])
	f.inputs = f.inputs[1:]
	return frame, nil
}

func (f *failingFramer) Close() error {
	close(f.closed)
	return nil
}

// TestDrainInput shows that input is read for a limited time after a write has failed.
func TestDrainInput(t *testing.T) {
	word := `{"jsonrpc":"2.0","method":"farewell"}`
	tests := []struct {
		name string
		ends bool
		want time.Duration
	}{
		{"input ends", true, drainInputTimeout / 2},
		{"input stays open", false, drainInputTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				received := 0
				f := &failingFramer{inputs: []string{word, word}, ends: tt.ends, closed: make(chan struct{})}
				c := NewConn(f, &Options{Trace: func(dir jsonrpc.Direction, message []byte) {
					if dir == jsonrpc.Incoming && string(message) == word {
						received++
					}
				}})
				if err := c.Notify(t.Context(), "m", nil); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // the write fails
				began := time.Now()
				if err := c.Run(t.Context()); !errors.Is(err, errGone) {
					t.Errorf("it ended with %v", err)
				}
				if took := time.Since(began); took != tt.want {
					t.Errorf("Run took %v, want %v", took, tt.want)
				}
				if received != 2 {
					t.Errorf("%d of 2 messages were read", received)
				}
			})
		})
	}
}

// TestContextNotify shows that a handler's notifications are sent before its response, in order,
// and none after it.
func TestContextNotify(t *testing.T) {
	var late error
	var kept *Context
	m := methods{"talk": func(ctx context.Context, r *Request) (string, error) {
		kept = RequestContext(ctx)
		for i := range 5 {
			if err := kept.Notify("progress", fmt.Appendf(nil, "[%d]", i)); err != nil {
				return "", err
			}
			if string(r.Params) != "" {
				elapse(100 * time.Millisecond)
			}
		}
		return `"done"`, nil
	}}
	m["talk!"] = m["talk"]
	everyMode(t, func(t *testing.T, p *peer) {
		for _, req := range []string{request(1, "talk"), request(1, "talk!"), request(1, "talk", "[]")} {
			p.send(req)
			elapse(time.Second)
			p.want(
				notification("progress", "[0]"), notification("progress", "[1]"), notification("progress", "[2]"),
				notification("progress", "[3]"), notification("progress", "[4]"), result(1, `"done"`),
			)
			if late = kept.Notify("progress", nil); !errors.Is(late, jsonrpc.ErrRequestEnded) {
				t.Errorf("Notify after the response: %v", late)
			}
		}
		p.want()
	}, Options{}, m)
}

// TestContextNotifyChecksParams shows that invalid params of a notification cannot break the
// stream.
func TestContextNotifyChecksParams(t *testing.T) {
	m := methods{"talk": func(ctx context.Context, r *Request) (string, error) {
		c := RequestContext(ctx)
		for _, params := range []string{"", "{", "1", "[1]\n[2]", "{}}"} {
			if c.Notify("n", []byte(params)) == nil {
				return "", errors.New("it went through")
			}
		}
		return "1", errors.Join(c.Notify("n", []byte("[\n1\r]")), c.Notify("n", []byte("null")), c.Notify("n", nil))
	}}
	everyMode(t, func(t *testing.T, p *peer) {
		p.send(request(1, "talk"))
		p.want(notification("n", "[1]"), notification("n"), notification("n"), result(1, "1"))
	}, Options{}, m)
}

// TestContextNotifyRace sends notifications from many goroutines while the handler ends.
func TestContextNotifyRace(t *testing.T) {
	var wg sync.WaitGroup
	m := methods{"talk": func(ctx context.Context, _ *Request) (string, error) {
		for range 4 {
			wg.Go(func() {
				for {
					if err := RequestContext(ctx).Notify("n", nil); err != nil {
						if !errors.Is(err, jsonrpc.ErrRequestEnded) {
							panic(err)
						}
						return
					}
				}
			})
		}
		return "1", nil
	}}
	everyMode(t, func(t *testing.T, p *peer) {
		for i := range 50 {
			p.send(request(i, "talk"))
			got := p.received()
			if last := got[len(got)-1]; last != result(i, "1") {
				t.Fatalf("the last of %d messages is %s", len(got), last)
			}
		}
		wg.Wait()
	}, Options{}, m)
}

// Spec: S55
func TestNotifyAfterCancel(t *testing.T) {
	var err atomic.Value
	m := methods{"talk": func(ctx context.Context, _ *Request) (string, error) {
		<-ctx.Done()
		err.Store(RequestContext(ctx).Notify("too late", nil))
		return "1", nil
	}}
	everyMode(t, func(t *testing.T, p *peer) {
		p.send(request(1, "talk"))
		p.pause()
		p.send(cancelOf(1))
		p.want()
		if e, _ := err.Load().(error); !errors.Is(e, jsonrpc.ErrRequestEnded) {
			t.Errorf("got %v, want %v", e, jsonrpc.ErrRequestEnded)
		}
	}, Options{}, m)
}

func TestNotify(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		ctx := WithTrace(context.Background(), Trace{Parent: traceA})
		if err := p.conn.Notify(context.Background(), "n", []byte("{\n\"a\":1}")); err != nil {
			t.Error(err)
		}
		if err := p.conn.Notify(ctx, "n", nil); err != nil {
			t.Error(err)
		}
		if err := p.conn.Notify(ctx, "n", []byte("1")); err == nil {
			t.Error("params 1 were accepted")
		}
		p.wire = "line" // nothing has been read, so the framing is still unknown
		p.want(notification("n", `{"a":1}`), notification("n", `{"_meta":{"traceparent":"`+traceA+`"}}`))
		p.conn.Close()
		if err := p.conn.Notify(ctx, "n", nil); !errors.Is(err, jsonrpc.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}, Options{}, nil)
}

// TestNotificationsInOrder shows that notifications are handled one at a time, in order, and do not
// delay requests.
func TestNotificationsInOrder(t *testing.T) {
	var mu sync.Mutex
	var got []string
	m := methods{"note": func(_ context.Context, r *Request) (string, error) {
		elapse(10 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		got = append(got, string(r.Params))
		return "", nil
	}}
	everyMode(t, func(t *testing.T, p *peer) {
		got = nil
		for i := range 10 {
			p.send(notification("note", fmt.Sprintf("[%d]", 2*i)), "["+notification("note", fmt.Sprintf("[%d]", 2*i+1))+"]", request(i, "ping!"))
		}
		synctest.Wait()
		if n := len(p.received()); n != 10 {
			t.Errorf("%d of 10 pings got a response while notifications were handled", n)
		}
		p.hangUp()
		p.wantEnd(nil) // all notifications are handled before the end
		if len(got) != 20 {
			t.Fatalf("%d notifications were handled", len(got))
		}
		for i, params := range got {
			if params != fmt.Sprintf("[%d]", i) {
				t.Fatalf("notification %d has params %s", i, params)
			}
		}
	}, Options{}, m)
}

// TestNotificationFlood shows that notifications above the limit are dropped and logged.
func TestNotificationFlood(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		var n atomic.Int32
		p.methods["note"] = func(context.Context, *Request) (string, error) {
			<-p.gate
			n.Add(1)
			return "", nil
		}
		for range 100 {
			p.send(notification("note"))
		}
		p.send(request(1, "ping!"))
		p.want(result(1, "{}"))
		p.open()
		p.pause()
		if got := n.Load(); got < 5 || got > 20 {
			t.Errorf("%d notifications were handled", got)
		}
		p.logged("notification dropped")
		before := n.Load()
		p.send(notification("note"))
		p.pause()
		if n.Load() != before+1 {
			t.Error("no notification is handled after the flood")
		}
	}, Options{MaxQueueBytes: 10 * requestCost}, nil)
}

// TestNotificationsReleaseSlots shows that notifications release their slots for requests.
func TestNotificationsReleaseSlots(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		p.send(notification("slow"), request(1, "slow"), request(2, "slow"))
		elapse(4 * time.Second)
		p.wantAnyOrder(result(1, `"slow"`), result(2, `"slow"`))
	}, Options{MaxInFlight: 1}, nil)
}
