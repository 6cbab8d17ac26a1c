package jsonrpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// What a handler says is on the wire before its answer, in order, and nothing is behind it.
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
			if late = kept.Notify("progress", nil); !errors.Is(late, ErrRequestEnded) {
				t.Errorf("Notify after the answer: %v", late)
			}
		}
		p.want()
	}, Options{}, m)
}

// What a handler says cannot break the stream.
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

// Many goroutines of one handler notify while it ends.
func TestContextNotifyRace(t *testing.T) {
	var wg sync.WaitGroup
	m := methods{"talk": func(ctx context.Context, _ *Request) (string, error) {
		for range 4 {
			wg.Go(func() {
				for {
					if err := RequestContext(ctx).Notify("n", nil); err != nil {
						if !errors.Is(err, ErrRequestEnded) {
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
		if e, _ := err.Load().(error); !errors.Is(e, ErrRequestEnded) {
			t.Errorf("got %v, want %v", e, ErrRequestEnded)
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
			t.Error("params 1 were let through")
		}
		p.wire = "line" // nothing has been read, so the peer's framing is not known
		p.want(notification("n", `{"a":1}`), notification("n", `{"_meta":{"traceparent":"`+traceA+`"}}`))
		p.conn.Close()
		if err := p.conn.Notify(ctx, "n", nil); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}, Options{}, nil)
}

// Notifications are handled one after the other, in order, and do not hold up requests.
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
			t.Errorf("%d of 10 pings were answered while notifications are handled", n)
		}
		p.hangUp()
		p.wantEnd(nil) // all are handled first
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

// More notifications than may wait are dropped, with a word in the log.
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
			t.Error("nothing is handled after the flood")
		}
	}, Options{MaxQueueBytes: 10 * requestCost}, nil)
}

// A place that notifications took is free for a request again when they are done.
func TestNotificationsGiveTheirPlaceBack(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		p.send(notification("slow"), request(1, "slow"), request(2, "slow"))
		elapse(4 * time.Second)
		p.wantAnyOrder(result(1, `"slow"`), result(2, `"slow"`))
	}, Options{MaxInFlight: 1}, nil)
}
