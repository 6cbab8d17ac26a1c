package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/internal/test/pipes"
	"mcpwire/jsonrpc"
)

// onGoroutines are the run modes that run slow handlers on goroutines from the start.
var onGoroutines = runModes[1:]

// TestMaxInFlight shows that the number of running handlers is limited, that other requests wait in
// order, and that waiting requests do not delay fast requests or notifications.
func TestMaxInFlight(t *testing.T) {
	const limit = 5
	for _, way := range onGoroutines {
		t.Run(way.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t, way, "line", Options{MaxInFlight: limit}, nil)
				var running, most atomic.Int32
				var order []string
				var mu sync.Mutex
				p.methods["work"] = func(_ context.Context, r *Request) (string, error) {
					n := running.Add(1)
					defer running.Add(-1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					mu.Lock()
					order = append(order, r.ID.String())
					mu.Unlock()
					elapse(time.Second)
					return "1", nil
				}
				p.play(func(t *testing.T, p *peer) {
					var want, wantOrder []string
					for i := range 100 {
						p.send(request(i, "work"))
						if i < 50 || i >= 60 {
							want = append(want, result(i, "1"))
							wantOrder = append(wantOrder, fmt.Sprint(i))
						}
						synctest.Wait() // fixes the order in which the first ones start
					}
					for i := 50; i < 60; i++ {
						p.send(cancelOf(i))
					}
					p.send(request(`"x"`, "ping!"))
					p.want(result(`"x"`, "{}"))
					call := p.call(t.Context(), "m")
					p.want(request(1, "m"))
					p.send(result(1, `"answer"`))
					if got := <-call; got.result != `"answer"` {
						t.Errorf("call while no slot is free: %+v", got)
					}
					elapse(18*time.Second + time.Millisecond)
					p.wantAnyOrder(want...)
					if most.Load() != limit {
						t.Errorf("%d ran at once, limit %d", most.Load(), limit)
					}
					for i := range wantOrder {
						if i%limit == 0 && wantOrder[i] > "" && !sameSet(order[i:i+limit], wantOrder[i:i+limit]) {
							t.Errorf("requests %v ran, want %v", order[i:i+limit], wantOrder[i:i+limit])
						}
					}
				})
			})
		})
	}
}

func sameSet(a, b []string) bool {
	seen := make(map[string]int)
	for i := range a {
		seen[a[i]]++
		seen[b[i]]--
	}
	for _, n := range seen {
		if n != 0 {
			return false
		}
	}
	return true
}

// TestOverload shows that requests above the queue's limit are rejected at once, and accepted ones
// get responses.
func TestOverload(t *testing.T) {
	for _, way := range onGoroutines {
		t.Run(way.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := Options{MaxInFlight: 2, MaxQueueBytes: 4 * (requestCost + 100)}
				newPeer(t, way, "line", o, nil).play(func(t *testing.T, p *peer) {
					const message = "overloaded: 2 requests are in flight and 2448 bytes are queued"
					for i := range 6 { // two run, four wait
						p.send(request(i, "deaf", `["`+strings.Repeat("x", 30)+`"]`))
					}
					p.want()
					p.send(request(7, "deaf", `["`+strings.Repeat("x", 300)+`"]`), request(8, "echo", `["`+strings.Repeat("x", 300)+`"]`))
					p.want(failure(7, jsonrpc.CodeInternalError, message, ""), failure(8, jsonrpc.CodeInternalError, message, ""))
					p.send("[" + request(9, "deaf", `["`+strings.Repeat("x", 300)+`"]`) + "," + request(10, "ping!") + "]")
					p.want("[" + failure(9, jsonrpc.CodeInternalError, message, "") + "," + result(10, "{}") + "]")
					p.send(request(11, "ping!"), cancelOf(3), request(3, "ping!"))
					p.want(result(11, "{}"), result(3, "{}"))
					p.open()
					p.wantAnyOrder(result(0, `"deaf"`), result(1, `"deaf"`), result(2, `"deaf"`), result(4, `"deaf"`), result(5, `"deaf"`))
					// one request is always accepted, however large
					p.send(request(1, "echo", `["`+strings.Repeat("x", 3000)+`"]`))
					p.want(result(1, `["`+strings.Repeat("x", 3000)+`"]`))
				})
			})
		})
	}
}

// TestPeerThatDoesNotRead shows that the memory for a peer that sends requests but does not read is
// limited, and that the peer gets all responses once it reads.
func TestPeerThatDoesNotRead(t *testing.T) {
	const limit = 20000
	for _, way := range runModes {
		for _, method := range []string{"ping!", "echo", "no such", ""} {
			t.Run(way.name+", "+method, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPeer(t, way, "line", Options{MaxInFlight: 10, MaxPendingBytes: limit, MaxQueueBytes: 10 * requestCost}, nil)
					p.link.In.Limit = 1000
					p.link.Out.Limit = 1000
					p.play(func(t *testing.T, p *peer) {
						const n = 5000
						var sent sync.WaitGroup
						sent.Go(func() {
							for i := range n {
								if method == "" {
									p.send("{}")
									continue
								}
								p.send(request(i, method, `["`+strings.Repeat("x", 20)+`"]`))
							}
						})
						for range 100 {
							p.pause()
							if got := p.conn.w.queued(); got > 2*limit+maxUnflushed+1000 {
								t.Fatalf("%d bytes are pending, limit %d", got, limit)
							}
						}
						if p.link.Out.Len() != 1000 {
							t.Fatal("the connection continues to read")
						}
						var got []string
						for len(got) < n {
							msgs := p.received()
							if len(msgs) == 0 {
								t.Fatalf("%d of %d answers came", len(got), n)
							}
							got = append(got, msgs...)
						}
						sent.Wait()
						seen := make(map[string]bool)
						for _, msg := range got {
							if seen[msg] && method != "" {
								t.Fatalf("%s came twice", msg)
							}
							seen[msg] = true
						}
						p.want()
					})
				})
			})
		}
	}
}

// TestBothSidesBusy shows that callers block neither side if both send more than the buffers hold.
func TestBothSidesBusy(t *testing.T) {
	everyPair(t, func(t *testing.T, way runMode) {
		m := methods{"echo": func(_ context.Context, r *Request) (string, error) { return string(r.Params), nil }}
		p := newPair(t, way, Options{MaxPendingBytes: 2000, MaxInFlight: 20}, m, 100)
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				for k := range 10 {
					params := fmt.Sprintf(`["%d %d %s"]`, i, k, strings.Repeat("x", 500))
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
					got, err := p.a.Call(ctx, "echo", []byte(params))
					cancel()
					if err != nil || string(got) != params {
						t.Errorf("caller %d: %.50s, %v", i, got, err)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

// TestSlowWriter shows that a slow writer gets all messages in the end.
func TestSlowWriter(t *testing.T) {
	for _, way := range runModes {
		t.Run(way.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t, way, "line", Options{}, nil)
				p.link.In.Limit = 100
				p.play(func(t *testing.T, p *peer) {
					var got []string
					var want []string
					for i := range 200 {
						p.send(request(i, "echo", `["some text"]`), cancelOf(i-1))
						want = append(want, result(i, `["some text"]`))
						elapse(time.Millisecond)
						got = append(got, p.received()...)
					}
					for more := p.received(); len(more) > 0; more = p.received() {
						got = append(got, more...)
					}
					if len(got) < len(want)/2 {
						t.Errorf("%d of %d answers came", len(got), len(want))
					}
				})
			})
		})
	}
}

func TestWriterFails(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		p.greet()
		call := p.call(t.Context(), "m")
		p.send(request(1, "wait"), request(2, "deaf"))
		p.pause()
		p.received()
		p.link.In.Close() // the peer stops reading and reports it
		p.send(request(3, "ping!"))
		p.pause()
		got := <-call
		if !errors.Is(got.err, jsonrpc.ErrClosed) || !strings.Contains(got.err.Error(), "io: read/write on closed pipe") {
			t.Errorf("the call ended with %+v", got)
		}
		p.open()
		if err := p.ended(); err == nil || !strings.Contains(err.Error(), "send: io: read/write on closed pipe") {
			t.Errorf("Run returned %v", err)
		}
	}, Options{}, nil)
}

// failures records the errors of a writer.
type failures []error

func (f *failures) stop(cause error) { *f = append(*f, cause) }

func TestWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local, remote := pipes.Memory(10)
		var failed failures
		var w writer
		w.init(sourceOf(jsonrpc.NewFramer(local, nil)), 100, &failed, new(sync.WaitGroup), new(atomic.Int32))
		buf := []byte(strings.Repeat("a", 50))
		text := buf
		if err := w.put(&buf); err != nil || len(buf) != 0 {
			t.Fatalf("put: %v, leaves %d bytes", err, len(buf))
		}
		if w.queued() != 50 {
			t.Errorf("%d bytes are queued", w.queued())
		}
		var done atomic.Int32
		for range 5 {
			go func() {
				b := []byte(strings.Repeat("b", 80))
				if err := w.send(&b, nil); err != nil {
					t.Errorf("send: %v", err)
				}
				done.Add(1)
			}()
		}
		synctest.Wait()
		if n := w.queued(); n > 200 || w.leaderBlocked() {
			t.Errorf("%d bytes are queued, stuck: %v", n, w.leaderBlocked())
		}
		refused := []byte("c")
		go func() {
			if err := w.send(&refused, func() bool { return false }); err != jsonrpc.ErrRequestEnded {
				t.Errorf("rejected send: %v", err)
			}
			done.Add(1)
		}()
		for range 200 {
			remote.In.Take()
			synctest.Wait()
		}
		if n := done.Load(); n != 6 || w.queued() != 0 {
			t.Errorf("%d of 6 senders are done, %d bytes are queued", n, w.queued())
		}
		if string(text) == "" || w.flush() != nil {
			t.Error("flush of nothing")
		}
		remote.In.Close()
		b := []byte("d")
		if err := w.send(&b, nil); err == nil {
			t.Error("no error")
		}
		b = []byte("e")
		if err := w.put(&b); err == nil || len(failed) != 1 {
			t.Errorf("put after the end: %v; failed: %v", err, failed)
		}
		if w.flush() == nil || w.queued() != 0 {
			t.Error("flush after the end")
		}
		w.close()
		w.wait(func() bool { return false })
	})
}

// TestMaxInFlightBytes shows that the size of running requests is limited, and that no request
// overtakes a large one that waits for its slot.
func TestMaxInFlightBytes(t *testing.T) {
	for _, way := range onGoroutines {
		t.Run(way.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := Options{MaxInFlightBytes: 3 * (requestCost + 100)}
				newPeer(t, way, "line", o, nil).play(func(t *testing.T, p *peer) {
					large := `["` + strings.Repeat("x", 3000) + `"]`
					p.send(request(1, "deaf"), request(2, "echo", large), request(3, "echo", "[3]"), request(4, "ping!"), request(5, "echo", large))
					p.want(result(4, "{}"))
					p.send(cancelOf(5), "["+request(6, "echo", large)+"]")
					p.want()
					p.open()
					p.wantAnyOrder(result(1, `"deaf"`), result(2, large), result(3, "[3]"), "["+result(6, large)+"]")
					p.send(request(7, "echo", large)) // one request runs, however large
					p.want(result(7, large))
				})
			})
		})
	}
}

// TestLeaderDoesNotWaitForSenders shows that the leader does not wait for queue space that senders
// use: the peer may read again only after the leader has read the peer's messages.
func TestLeaderDoesNotWaitForSenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local, remote := pipes.Memory(10)
		var w writer
		var wg sync.WaitGroup
		w.init(sourceOf(jsonrpc.NewFramer(local, nil)), 100, new(failures), &wg, new(atomic.Int32))
		post := func(n int) error {
			b := []byte(strings.Repeat("x", n))
			return w.postWithin(t.Context(), 0, &b)
		}
		var senders sync.WaitGroup
		for range 20 {
			senders.Go(func() {
				if err := post(90); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if n := w.queued(); n > 100+90 {
			t.Errorf("%d bytes are queued: senders that waited together were admitted together", n)
		}
		// the last message that finds space may be of any size
		b := []byte(strings.Repeat("y", 1000))
		if err := w.post(&b); err != nil {
			t.Fatal(err)
		}
		if w.leaderBlocked() {
			t.Error("the leader would wait for messages of senders")
		}
		answer := []byte(strings.Repeat("z", 201))
		if err := w.put(&answer); err != nil {
			t.Fatal(err)
		}
		if !w.leaderBlocked() {
			t.Error("the leader would not wait although the peer reads none of its responses")
		}
		for range 400 {
			remote.In.Take()
			synctest.Wait()
		}
		senders.Wait()
		wg.Wait()
		if w.queued() != 0 || w.leaderBlocked() {
			t.Errorf("%d bytes are left, stuck: %v", w.queued(), w.leaderBlocked())
		}
	})
}

// A shortTryWriter is a connection whose TryWrite accepts a few bytes of each message.
type shortTryWriter struct {
	pipes.End
	taken int
}

func (s *shortTryWriter) TryWrite(p []byte) int {
	n := min(len(p), 7)
	s.End.Write(p[:n])
	s.taken += n
	return n
}

// TestTryWrite shows that a single call writes as much as possible without a goroutine, and that
// the rest follows in order.
func TestTryWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := pipes.Memory(0)
		rw := &shortTryWriter{End: here}
		c := NewConn(jsonrpc.NewFramer(rw, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine}), nil)
		go c.Run(context.Background())
		defer c.Close()
		var want string
		for i, taken := range []int{7, 7, 7} {
			p, err := c.NewCall("m")
			if err == nil {
				err = p.Send(t.Context(), []byte("[1]"))
			}
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			want += request(p.ID(), "m", "[1]") + "\n"
			if got := string(there.In.Take()); got != want {
				t.Errorf("wrote %q, want %q", got, want)
			}
			want = ""
			if i == 1 {
				taken = 0 // the first call still waits, so their messages may share a write
			}
			if rw.taken != taken {
				t.Errorf("call %d: %d bytes without a wait, want %d", i, rw.taken, taken)
			}
			rw.taken = 0
			if i == 1 {
				io.WriteString(there, result(jsonrpc.ID("1"), "1")+"\n"+result(jsonrpc.ID("2"), "1")+"\n")
				synctest.Wait()
			}
		}
	})
}
