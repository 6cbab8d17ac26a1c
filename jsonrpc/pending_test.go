package jsonrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A call in its steps: it has its id before anything is sent, and can be given up with and without a word.
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
			t.Error("an answered call was given up")
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

// Connections that share their ids use none twice.
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

// TestCallPrefix: the ids of calls are strings by which no answer to another connection's call
// fits.
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
		if got := <-calls[2]; !errors.Is(got.err, ErrMalformed) {
			t.Errorf("call 3: %+v", got)
		}
	}, Options{CallPrefix: `no"de`}, nil)
}

// TestCallPrefixOnTheWire: the request and its cancellation have the same id.
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

// A quiet side answers requests, and nothing else. One that may not answer at all is silent.
func TestQuiet(t *testing.T) {
	traffic := []string{
		"a stray line", `{"jsonrpc":"2.0"}`, `{"jsonrpc":"2.0","id":null,"method":"ping!"}`, `{"jsonrpc":"2.0","id":1,"method":2}`, request(2, "ping!"), request(3, "nope"),
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

// A peer that does not read keeps nobody for longer than they want to wait: neither a call, nor a notification, nor the wait for all to be written.
func TestWaitsForReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		c := NewConn(NewFramer(near, nil), &Options{MaxPendingBytes: 10, DrainTimeout: time.Second})
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
		for range 2 { // one is being written, one fills the queue
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
		go io.Copy(io.Discard, far)
		within("flush to one who reads", 0, c.Flush)
		far.Close()
		c.Close()
		within("flush after the end", 0, c.Flush)
		if err := c.Notify(t.Context(), "d", nil); !errors.Is(err, ErrClosed) {
			t.Errorf("notification after the end: %v", err)
		}
	})
}
