package jsonrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestCloseWhileAllIsUnderWay(t *testing.T) {
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
			if errors.Is(err, ErrClosed) || errors.Is(err, context.Canceled) {
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
		if got := <-call; !errors.Is(got.err, ErrClosed) {
			t.Errorf("call: %+v", got)
		}
		if n := ended.Load(); n != 5 {
			t.Errorf("%d of 5 handlers were told", n)
		}
		p.wantEnd(nil)
		for _, msg := range p.received() { // the peer may be told that a handler gave its call up
			if msg != cancelOf(1) && msg != cancelOf(2) {
				t.Errorf("got %s", msg)
			}
		}
		if _, err := p.conn.Call(t.Context(), "m", nil); !errors.Is(err, ErrClosed) {
			t.Errorf("call after the end: %v", err)
		}
		if err := p.conn.Notify(t.Context(), "m", nil); !errors.Is(err, ErrClosed) {
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
			t.Error("it has ended before it began")
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
		if got := <-call; !errors.Is(got.err, ErrClosed) {
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

// A handler that closes its connection waits for itself, but not for ever.
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

// Close and the end of ctx or of input come while requests are being taken, at any moment.
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
					q.link.in.close()
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

// A stubborn transport goes on waiting for input though it was closed, as a blocking read of standard input does.
type stubborn struct{ idleTransport }

func (s *stubborn) Close() error {
	s.out.end(io.EOF)
	return nil
}

// A transport whose reader does not return when it is closed breaks its contract. The reader is left behind, after a while; handlers are not.
func TestReaderThatDoesNotReturn(t *testing.T) {
	for _, busy := range []bool{false, true} {
		t.Run(fmt.Sprint("busy: ", busy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := memoryPipe(0)
				ctx, cancel := context.WithCancel(context.Background())
				p := newPeer(t, runModes[0], "line", Options{}, nil)
				p.conn = NewConn(NewFramer(&stubborn{idleTransport{duplex: near}}, nil), &p.conn.opts)
				p.link = far
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
				p.hangUp() // lets the reader go
				synctest.Wait()
			})
		})
	}
}

// TestCloseCallsOff: the peer is told that nobody waits any more, once for each call that was sent. One that does not read is not waited for.
func TestCloseCallsOff(t *testing.T) {
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
			if got := <-call; !errors.Is(got.err, ErrClosed) {
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
