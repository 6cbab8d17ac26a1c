package rpc

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/jsonrpc"
)

func TestCancelRunning(t *testing.T) {
	var ended atomic.Int32
	m := methods{"note the end": func(ctx context.Context, r *Request) (string, error) {
		<-ctx.Done()
		if !errors.Is(ctx.Err(), context.Canceled) || !errors.Is(context.Cause(ctx), context.Canceled) {
			return "", errors.New("not cancelled")
		}
		ended.Add(1)
		return `"answered all the same"`, nil
	}}
	everyMode(t, func(t *testing.T, p *peer) {
		ended.Store(0)
		p.send(request(1, "note the end"), request(`"b\u0063"`, "note the end"), request(3, "wait"))
		p.pause()
		p.send(cancelOf(1), cancelOf(`"\u0062c"`), cancelOf(`"1"`), cancelOf(4))
		p.want()
		if n := ended.Load(); n != 2 {
			t.Errorf("%d handlers saw the cancellation, want 2", n)
		}
		// the second cancellation has no effect
		p.send(cancelOf(1), request(1, "echo", `["the id is free"]`))
		p.pause()
		p.want(result(1, `["the id is free"]`))
		p.open()
		p.want(result(3, `"waited"`))
		p.send(cancelOf(3), request(3, "ping!")) // cancels a finished request
		p.want(result(3, "{}"))
	}, Options{}, m)
}

// TestCancelRacesWithEnd shows that a request gets one response or none if it is canceled while its
// handler ends.
//
// Spec: S51
func TestCancelRacesWithEnd(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		for i := range 20 {
			p.send(request(i, "slow"))
			elapse(time.Second - time.Duration(i-10)*time.Nanosecond)
			p.send(cancelOf(i))
			elapse(time.Second)
			switch got := p.received(); {
			case len(got) > 1, len(got) == 1 && got[0] != result(i, `"slow"`):
				t.Fatalf("got %q", got)
			}
		}
	}, Options{}, nil)
}

// TestCancelDeaf shows that a handler that ignores its cancellation keeps its slot and sends no
// response.
func TestCancelDeaf(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		p.send(request(1, "deaf"))
		p.pause()
		// reuses the id while the old request still runs
		p.send(cancelOf(1), request(1, "wait"), request(2, "ping!"))
		p.pause()
		p.want(result(2, "{}"))
		p.send(cancelOf(1), request(1, "deaf"))
		p.pause()
		p.open()
		p.want(result(1, `"deaf"`))
	}, Options{}, nil)
}

func TestCancelQueued(t *testing.T) {
	var ran atomic.Int32
	m := methods{"count": func(context.Context, *Request) (string, error) {
		ran.Add(1)
		return "1", nil
	}}
	everyMode(t, func(t *testing.T, p *peer) {
		ran.Store(0)
		p.send(request(1, "deaf"), request(2, "deaf"))
		p.pause()
		p.send(request(3, "count"), request(4, "count"), request(5, "count"), request(6, "ping!"), cancelOf(4), cancelOf(5), cancelOf(5))
		p.pause()
		if p.conn.handler.(*mux).way.name == "inline" {
			return // the leader runs fast handlers even if no slot is free
		}
		p.want(result(6, "{}"))
		// id 3 is still in flight, id 5 is free
		p.send(request(3, "echo", "[]"), request(5, "echo", "[]"))
		p.want(failure(3, jsonrpc.CodeInvalidRequest, errDuplicateID.Message, ""))
		p.open()
		p.wantAnyOrder(result(1, `"deaf"`), result(2, `"deaf"`), result(3, "1"), result(5, "[]"))
		if n := ran.Load(); n != 1 {
			t.Errorf("%d of the queued requests ran, want 1", n)
		}
	}, Options{MaxInFlight: 2}, m)
}

func TestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errCause := errors.New("cause")
		c := &Conn{base: context.WithValue(context.Background(), traceKey{}, Trace{Parent: traceB})}
		r := &Request{conn: c}
		ctx := new(Context)
		r.InitContext(ctx, Trace{Parent: traceA})
		if _, ok := ctx.Deadline(); ok || ctx.Err() != nil || ctx.conn != c || RequestContext(ctx) != ctx || RequestContext(context.Background()) != nil {
			t.Error("a new context has a deadline, an error or a value")
		}
		var ran atomic.Int32
		stop := ctx.AfterFunc(func() { ran.Add(1) })
		ctx.AfterFunc(func() { ran.Add(10) })
		derived, cancel := context.WithCancel(ctx)
		defer cancel()
		if !stop() || stop() {
			t.Error("stop")
		}
		r.cancel(errCause)
		synctest.Wait()
		ctx.AfterFunc(func() { ran.Add(100) })
		synctest.Wait()
		if n := ran.Load(); n != 110 {
			t.Errorf("AfterFuncs: %d", n)
		}
		<-ctx.Done()
		if context.Cause(ctx) != errCause || context.Cause(derived) != errCause || ctx.Value(traceKey{}) == nil || RequestContext(derived) != ctx {
			t.Errorf("cause after the end: %v, derived %v", context.Cause(ctx), context.Cause(derived))
		}
		if ctx.Err() != context.Canceled || derived.Err() != context.Canceled || ctx.active() {
			t.Errorf("after the end: %v, derived %v", ctx.Err(), derived.Err())
		}
		ctx.finish(context.DeadlineExceeded, nil)
		if ctx.Err() != context.Canceled {
			t.Error("it ended twice")
		}

		early := &Request{conn: c}
		early.cancel(errCause) // before the context is created
		ctx = new(Context)
		early.InitContext(ctx, Trace{})
		if ctx.Err() != context.Canceled || context.Cause(ctx) != errCause {
			t.Error("the context missed the cancellation that came before it")
		}
	})
}
