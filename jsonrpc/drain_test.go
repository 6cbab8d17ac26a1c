package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// At the end of input everything that was accepted is answered, whether it runs, waits in the queue or has not been read yet.
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

// The last message counts though its end is missing.
func TestLastLineWithoutEnd(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		p.link.Write([]byte(strings.TrimSuffix(p.framed(request(1, "slow")), "\n")))
		p.hangUp()
		p.wantEnd(nil)
		p.want(result(1, `"slow"`))
	}, Options{}, nil)
}

// cutOffAnswer is the answer to a request that was cut off after 5 s.
func cutOffAnswer(id any) string {
	return failure(id, CodeInternalError, "shutting down: the request was not finished within 5s", "")
}

// TestDrainAnswersWhatIsQueued: each request that the time to drain cuts off gets one answer,
// whether it runs or is queued, alone or in a batch, and whatever its handler says afterwards. One
// that the peer has cancelled gets none.
func TestDrainAnswersWhatIsQueued(t *testing.T) {
	for _, end := range []string{"input", "context"} {
		for _, limit := range []int{0, 3} {
			t.Run(fmt.Sprint(end, limit), func(t *testing.T) {
				for _, way := range runModes {
					for _, wire := range wires {
						synctest.Test(t, func(t *testing.T) {
							stop := errors.New("told to stop")
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
								want = append(want, cutOffAnswer(100+i))
							}
							p.pause()
							if cut := 25; end == "input" {
								p.hangUp()
								if late, ok := errors.AsType[*DrainError](p.ended()); !ok || *late != (DrainError{Requests: cut, After: 5 * time.Second}) {
									t.Errorf("%s: ended with %v", way.name, late)
								}
							} else {
								cancel(stop)
								if late, ok := errors.AsType[*DrainError](p.ended()); !ok || *late != (DrainError{cut, 5 * time.Second, stop}) || !errors.Is(late, stop) {
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
							want = append(want, cutOffAnswer(2), cutOffAnswer(3), result(4, "{}"), cutOffAnswer(5), cutOffAnswer(6), result(9, "{}"), cutOffAnswer(10))
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

// TestDrainPeerDoesNotRead: the answers to what was cut off wait for no peer.
func TestDrainPeerDoesNotRead(t *testing.T) {
	for _, way := range runModes {
		synctest.Test(t, func(t *testing.T) {
			p := newPeer(t, way, "line", Options{DrainTimeout: 5 * time.Second}, nil)
			p.link.in.limit = 10
			p.start(context.Background())
			p.send(request(1, "wait"), request(2, "wait"), request(3, "wait"))
			p.pause()
			began := time.Now()
			p.hangUp()
			if _, ok := errors.AsType[*DrainError](p.ended()); !ok {
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
		if late, ok := errors.AsType[*DrainError](err); !ok || *late != (DrainError{Requests: 2, After: 5 * time.Second}) {
			t.Errorf("Run returned %v", err)
		}
		if want := "2 requests were cut off 5s after the end of input"; err.Error() != want {
			t.Errorf("Run returned %v, want %s", err, want)
		}
		if d := time.Since(began); d < 5*time.Second || d > 5*time.Second+10*tick {
			t.Errorf("it took %v", d)
		}
		p.wantAnyOrder(result(3, `"slow"`), cutOffAnswer(1), cutOffAnswer(2))
		if n := ended.Load(); n != 1 {
			t.Errorf("the context of %d notifications ended, want the one that is being handled", n)
		}
	}, Options{DrainTimeout: 5 * time.Second}, nil)
}

// Handlers that ignore everything are left behind, and named.
func TestDrainLeavesDeafHandlersBehind(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		p.send(request(1, "deaf"))
		p.pause()
		p.hangUp()
		began := time.Now()
		p.ended()
		if d := time.Since(began); d != 10*time.Second {
			t.Errorf("it took %v", d)
		}
		p.logged("are left behind")
		p.logged("methods=[deaf]")
		p.open()
		p.want(cutOffAnswer(1))
	}, Options{DrainTimeout: 5 * time.Second}, nil)
}

// When ctx ends nothing more is read, and what was accepted is finished.
func TestContextEnds(t *testing.T) {
	stop := errors.New("told to stop")
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
						if got := <-call; !errors.Is(got.err, ErrClosed) || !errors.Is(got.err, stop) {
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

// ctx ends at any moment while frames are being read.
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

// The input breaks while a handler runs that had the lead before: that is finished all the same, but in no more than the time it has.
func TestReadErrorWhileHandlersRun(t *testing.T) {
	broken := errors.New("cable cut")
	everyMode(t, func(t *testing.T, p *peer) {
		p.greet()
		call := p.call(t.Context(), "m")
		p.send(request(1, "wait"), request(2, "slow"))
		p.pause()
		began := time.Now()
		p.link.out.end(broken)
		if got := <-call; !errors.Is(got.err, ErrClosed) || !errors.Is(got.err, broken) || time.Since(began) > time.Second {
			t.Errorf("call, after %v: %+v", time.Since(began), got)
		}
		if err := p.ended(); !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "1 requests were cut off 5s") {
			t.Errorf("Run returned %v", err)
		}
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("it took %v", d)
		}
		p.wantAnyOrder(request(1, "m"), result(2, `"slow"`), cutOffAnswer(1))
	}, Options{DrainTimeout: 5 * time.Second}, nil)
}

// A peer that does not read cannot keep the connection from ending. (Where so much is pending that nothing is read any more, its hanging up
// goes unnoticed; hence no limit then.)
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
					p.link.in.limit = 100
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
					if got := <-call; !errors.Is(got.err, ErrClosed) {
						t.Errorf("call: %+v", got)
					}
					p.open()
				})
			})
		}
	}
}

// Answers that are finished but not yet written when the end comes are written.
func TestEndWritesWhatIsFinished(t *testing.T) {
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

// An input that is closed by this side ends like any other.
func TestFramerClosedFromOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t, runModes[0], "line", Options{}, nil)
		p.start(context.Background())
		synctest.Wait()
		p.link.in.end(io.EOF)
		p.link.out.close()
		p.wantEnd(io.ErrClosedPipe)
	})
}
