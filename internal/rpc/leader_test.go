package rpc

import (
	"context"
	"fmt"
	"runtime"
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

// inlinePeer runs a test, for each framing, with handlers that the leader runs.
func inlinePeer(t *testing.T, test func(t *testing.T, p *peer), o Options) {
	for _, wire := range wires {
		t.Run(wire, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newPeer(t, runModes[0], wire, o, nil).play(test) })
		})
	}
}

// TestLeaderRunsFastHandlers shows that the leader runs handlers that are known to be fast: no
// goroutine starts and no request is in flight.
func TestLeaderRunsFastHandlers(t *testing.T) {
	inlinePeer(t, func(t *testing.T, p *peer) {
		var onGoroutine atomic.Int32
		p.methods["where"] = func(context.Context, *Request) (string, error) {
			onGoroutine.Add(p.conn.inFlight.running.Load())
			return "1", nil
		}
		for i := range 100 {
			p.send(request(i, "where"))
			p.want(result(i, "1"))
		}
		if n := onGoroutine.Load(); n != 0 {
			t.Errorf("%d of 100 handlers ran on other goroutines", n)
		}
	}, Options{})
}

// TestTakeOver shows that a slow handler loses the lead within two or three ticks, so that later
// requests get responses.
func TestTakeOver(t *testing.T) {
	inlinePeer(t, func(t *testing.T, p *peer) {
		for round := range 3 {
			p.send(request(1, "wait"), request(2, "ping!"), request(3, "echo", "[]"))
			elapse(3 * tick)
			p.want(result(2, "{}"), result(3, "[]"))
			p.send(request(1, "ping!")) // the slow request is listed by now
			p.want(failure(1, jsonrpc.CodeInvalidRequest, errDuplicateID.Message, ""))
			p.send(cancelOf(1))
			p.want()
			p.send(request(1, "ping!"))
			p.want(result(1, "{}"))
			p.send(request(4, "slow"), request(5, "slow"), request(6, "ping!"))
			elapse(6 * tick)
			p.want(result(6, "{}"))
			elapse(2 * time.Second)
			p.want(result(4, `"slow"`), result(5, `"slow"`))
			if t.Failed() {
				t.Fatalf("in round %d", round)
			}
		}
		p.checkCounts()
	}, Options{})
}

// TestTakeOverWritesEarlierResponses shows that a slow handler does not delay the responses to
// earlier requests.
func TestTakeOverWritesEarlierResponses(t *testing.T) {
	inlinePeer(t, func(t *testing.T, p *peer) {
		p.send(request(1, "ping!"), request(2, "echo", "[]"), request(3, "no such"), request(4, "wait"))
		elapse(3 * tick)
		p.want(result(1, "{}"), result(2, "[]"), failure(3, jsonrpc.CodeMethodNotFound, "method not found: no such", ""))
	}, Options{})
}

// TestTakeOverKeepsFrame shows that the frame of a handler that lost the lead does not change
// when later frames are read.
func TestTakeOverKeepsFrame(t *testing.T) {
	inlinePeer(t, func(t *testing.T, p *peer) {
		p.methods["late echo"] = func(_ context.Context, r *Request) (string, error) {
			elapse(time.Second)
			x, _ := r.Param("x")
			return fmt.Sprintf(`{"id":%s,"method":%q,"params":%s,"x":%s}`, r.ID, r.Method, r.Params, x), nil
		}
		var frames, want []string
		for i := range 30 {
			params := fmt.Sprintf(`{"x":"%s"}`, strings.Repeat(string(rune('a'+i%26)), i*100))
			frames = append(frames, request(i, "late echo", params), request(100+i, "echo", params))
			x := params[5 : len(params)-1]
			want = append(want, result(i, fmt.Sprintf(`{"id":%d,"method":"late echo","params":%s,"x":%s}`, i, params, x)), result(100+i, params))
		}
		p.send(frames...)
		for i := range 50 {
			elapse(20 * time.Millisecond)
			p.send(notification("echo", `["`+strings.Repeat("!", i*2000)+`"]`))
		}
		elapse(2 * time.Second)
		p.wantAnyOrder(want...)
	}, Options{})
}

// TestTakeOverRacesWithEnd shows that a handler that ends while it loses the lead sends one
// response, and that later requests get one each.
func TestTakeOverRacesWithEnd(t *testing.T) {
	inlinePeer(t, func(t *testing.T, p *peer) {
		var d time.Duration
		p.methods["nap"] = func(context.Context, *Request) (string, error) {
			elapse(d)
			return "1", nil
		}
		for i := range 200 {
			d = 2*tick + time.Duration(i-100)*time.Nanosecond
			if i%2 == 0 {
				d = tick + time.Duration(i-100)*time.Nanosecond
			}
			p.send(request(i, "nap"), request("-1", "ping!"))
			elapse(4 * tick)
			got := p.received()
			if diff := cmp.Diff([]string{result(i, "1"), result(-1, "{}")}, got); diff != "" && cmp.Diff([]string{result(-1, "{}"), result(i, "1")}, got) != "" {
				t.Fatalf("after %v: %s", d, diff)
			}
		}
	}, Options{})
}

// TestCostEstimateRises shows that a cost estimate is not trusted after its method has delayed the
// leader twice.
func TestCostEstimateRises(t *testing.T) {
	inlinePeer(t, func(t *testing.T, p *peer) {
		cost := knowsNothing()
		conn := p.conn
		conn.handler.(*mux).way.cost = func() *CostEstimate { return cost }
		for i := range 10 {
			p.send(request(i, "echo", "[]"))
			p.want(result(i, "[]"))
		}
		if !cost.fast() {
			t.Fatal("the handler is not known to be fast")
		}
		for i := range 4 {
			p.send(request(i, "slow"), request(9, "ping!"))
			if got := len(p.received()); (got == 0) != (i < 2) {
				t.Errorf("call %d: %d pings got a response at once", i, got)
			}
			elapse(2 * time.Second)
			p.received()
		}
		if cost.fast() {
			t.Error("it is still trusted")
		}
	}, Options{})
}

func TestCostEstimate(t *testing.T) {
	p := new(CostEstimate)
	var fast []bool
	for _, d := range []time.Duration{0, 1, maxInlineCost, 10, time.Second, 10} {
		fast = append(fast, p.fast())
		p.observe(d, 0)
	}
	if diff := cmp.Diff([]bool{false, false, false, false, true, false}, fast); diff != "" {
		t.Errorf("fast (-want +got):\n%s", diff)
	}
	n := 0
	for ; !p.fast() && n < 100; n++ {
		p.observe(time.Microsecond, 0)
	}
	if n < 30 || n == 100 {
		t.Errorf("one run of a second is ignored after %d fast runs", n)
	}
	for want, i := 0, 0; i < 15; i++ {
		p.recordOverrun()
		for n = 0; !p.fast(); n++ {
			p.observe(time.Microsecond, 0)
		}
		if i > 0 && n <= want && n < 16<<12 {
			t.Errorf("overrun %d: %d observations, %d before", i, n, want)
		}
		want = n
	}
	if n != 16<<12 {
		t.Errorf("many overruns: trusted again after %d observations", n)
	}
	runs := 0
	for range 160 {
		if p.sample() {
			runs++
		}
	}
	if runs != 10 {
		t.Errorf("%d of 160 runs are timed", runs)
	}
}

// TestWatchdogSleeps shows that an idle server has no running timer, and that the watchdog starts
// again when it is needed.
func TestWatchdogSleeps(t *testing.T) {
	inlinePeer(t, func(t *testing.T, p *peer) {
		for range 3 {
			p.send(request(1, "echo", "[]"))
			p.want(result(1, "[]"))
			if !p.conn.leader.armed.Load() {
				t.Error("the watchdog sleeps while there is traffic")
			}
			elapse((maxIdleTicks + 3) * tick)
			synctest.Wait()
			if p.conn.leader.armed.Load() {
				t.Error("the watchdog is awake without traffic")
			}
			p.send(request(1, "wait"), request(2, "ping!"))
			elapse(3 * tick)
			p.want(result(2, "{}"))
			elapse((maxIdleTicks + 3) * tick)
			synctest.Wait()
			if p.conn.leader.armed.Load() {
				t.Error("the watchdog is awake for a handler on another goroutine")
			}
			p.send(cancelOf(1))
		}
	}, Options{})
}

// TestWatchdogFallsAsleepTooSoon starts a handler at the moment when the watchdog stops.
func TestWatchdogFallsAsleepTooSoon(t *testing.T) {
	inlinePeer(t, func(t *testing.T, p *peer) {
		for i := range 60 {
			p.send(request(1, "echo", "[]"))
			p.want(result(1, "[]"))
			elapse(maxIdleTicks*tick + time.Duration(i-30)*tick/20)
			p.send(request(2, "wait"), request(3, "ping!"))
			elapse(3*tick + tick/2)
			p.want(result(3, "{}"))
			p.send(cancelOf(2))
			elapse(time.Second)
		}
	}, Options{})
}

// TestListAndComplete checks the tables for a request that loses the lead before, between and after
// the steps of its end.
func TestListAndComplete(t *testing.T) {
	newRequest := func(c *Conn) *Request {
		return &Request{conn: c, Message: jsonrpc.Message{Kind: jsonrpc.KindRequest, ID: jsonrpc.ID("1")}, reply: []byte("x\n")}
	}
	tests := []struct {
		name string
		run  func(c *Conn, r *Request)
	}{
		{"listed before the handler ends", func(c *Conn, r *Request) {
			c.inFlight.track(r)
			if !c.inFlight.contains(r.ID) || c.inFlight.running.Load() != 1 {
				t.Error("not in flight")
			}
			c.inFlight.complete(r)
		}},
		{"listed between the handler's end and the response", func(c *Conn, r *Request) {
			c.inFlight.untrack(r)
			c.inFlight.track(r)
			if c.inFlight.contains(r.ID) || c.inFlight.running.Load() != 1 {
				t.Error("the request is not waited for, or still in flight")
			}
			c.inFlight.complete(r)
		}},
		{"listed after the response", func(c *Conn, r *Request) {
			c.inFlight.complete(r)
			c.inFlight.track(r)
		}},
		{"cancelled", func(c *Conn, r *Request) {
			c.inFlight.track(r)
			if !c.inFlight.cancel(r.ID, nil) || c.inFlight.cancel(r.ID, nil) {
				t.Error("cancel")
			}
			c.inFlight.complete(r)
		}},
		{"id used again", func(c *Conn, r *Request) {
			c.inFlight.track(r)
			c.inFlight.cancel(r.ID, nil)
			again := newRequest(c)
			c.inFlight.track(again)
			c.inFlight.complete(r)
			if !c.inFlight.contains(r.ID) {
				t.Error("the end of one request removed another")
			}
			c.inFlight.complete(again)
		}},
	}
	for _, test := range tests {
		local, _ := pipes.Memory(0)
		c := NewConn(jsonrpc.NewFramer(local, nil), nil)
		idle := c.inFlight.whenIdle()
		<-idle
		r := newRequest(c)
		test.run(c, r)
		if n, listed := c.inFlight.running.Load(), c.inFlight.count.Load(); n != 0 || listed != 0 || c.inFlight.requests.len() != 0 {
			t.Errorf("%s: running %d, listed %d", test.name, n, listed)
		}
		<-c.inFlight.whenIdle()
		c.Close()
	}
}

// An idleTransport counts calls of Read and of ReadIdle.
type idleTransport struct {
	pipes.End
	mu         sync.Mutex
	idle, busy int
}

func (c *idleTransport) Read(p []byte) (int, error) {
	c.mu.Lock()
	c.busy++
	c.mu.Unlock()
	return c.End.Read(p)
}

func (c *idleTransport) ReadIdle(p []byte) (int, error) {
	c.mu.Lock()
	c.idle++
	c.mu.Unlock()
	return c.End.Read(p)
}

func (c *idleTransport) take() (idle, busy int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	idle, busy = c.idle, c.busy
	c.idle, c.busy = 0, 0
	return idle, busy
}

// TestIdleReading shows that the reader uses ReadIdle unless the processor has other work.
func TestIdleReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local, remote := pipes.Memory(0)
		transport := &idleTransport{End: local}
		p := &peer{t: t, link: remote, run: make(chan error, 1), gate: make(chan struct{})}
		p.conn = NewConn(jsonrpc.NewFramer(transport, nil), &Options{Handler: &mux{runModes[1], methods{
			"wait":  func(context.Context, *Request) (string, error) { <-p.gate; return "1", nil },
			"ping!": func(context.Context, *Request) (string, error) { return "{}", nil },
		}}})
		p.start(context.Background())
		want := func(what string, idle, busy int) {
			t.Helper()
			synctest.Wait()
			if i, b := transport.take(); i != idle || b != busy {
				t.Errorf("%s: %d idle and %d busy reads, want %d and %d", what, i, b, idle, busy)
			}
			p.received()
		}
		want("at first", 1, 0)
		p.send(request(1, "ping!"))
		want("ping", 1, 0)
		p.send(request(2, "wait"))
		want("request on a goroutine", 0, 1)
		p.send(request(1, "ping!"))
		want("ping during a request", 0, 1)
		p.open()
		synctest.Wait()
		p.send(request(1, "ping!"))
		want("ping after it", 1, 0)
		done := p.call(t.Context(), "m")
		want("a call is made", 0, 0)
		p.send(request(1, "ping!"))
		want("ping during a call", 0, 1)
		p.send(result(1, "1"))
		<-done
		want("a caller was woken", 0, 1)
		p.send(request(1, "ping!"))
		want("ping after it", 1, 0)
		p.hangUp()
		p.wantEnd(nil)
	})
}

// TestGoexitOfFormerLeader shows that a handler may end the goroutine of a former leader that runs
// queued requests. Earlier responses are sent.
func TestGoexitOfFormerLeader(t *testing.T) {
	inlinePeer(t, func(t *testing.T, p *peer) {
		p.methods["exit"] = func(context.Context, *Request) (string, error) {
			runtime.Goexit()
			return "", nil
		}
		h := p.conn.handler.(*mux)
		for range 3 {
			h.way.cost = knownFast
			p.send(request(1, "slow"))
			elapse(10 * tick)
			synctest.Wait()
			h.way.cost = knowsNothing
			p.send(request(2, "exit"), request(3, "echo", "[]"), request(4, "ping!"))
			elapse(2 * time.Second)
			p.wantAnyOrder(result(1, `"slow"`), failure(2, jsonrpc.CodeInternalError, "internal error", ""), result(3, "[]"), result(4, "{}"))
			p.checkCounts()
		}
	}, Options{MaxInFlight: 1})
}
