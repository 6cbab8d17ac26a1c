package rpc_test

import (
	"context"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
)

// exitHandler ends its goroutine on "exit", waits until canceled on "stand", and echoes other
// requests.
type exitHandler struct {
	cost rpc.CostEstimate
	exit *rpc.CostEstimate
}

func (h *exitHandler) Prepare(r *rpc.Request) *rpc.CostEstimate {
	switch string(r.Method) {
	case "stand":
		return rpc.LongRunning
	case "exit":
		return h.exit
	}
	return &h.cost
}

func (h *exitHandler) Handle(r *rpc.Request, dst []byte) ([]byte, error) {
	ctx := new(rpc.Context)
	r.InitContext(ctx, rpc.Trace{})
	switch string(r.Method) {
	case "exit":
		runtime.Goexit()
	case "stand":
		select {
		case <-ctx.Done():
		case <-r.Conn().Draining():
		}
	}
	return append(dst, `"ok"`...), nil
}

// talk calls f with a connection to a server that uses h.
func talk(t *testing.T, h rpc.Handler, opts rpc.Options, f func(ctx context.Context, c *rpc.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		local, remote := net.Pipe()
		opts.Handler = h
		answers := rpc.NewConn(jsonrpc.NewFramer(remote, nil), &opts)
		calls := rpc.NewConn(jsonrpc.NewFramer(local, nil), nil)
		done := make(chan error, 2)
		go func() { done <- answers.Run(t.Context()) }()
		go func() { done <- calls.Run(t.Context()) }()
		f(t.Context(), calls)
		calls.Close()
		for range 2 {
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		}
	})
}

func TestHandlerEndsGoroutine(t *testing.T) {
	for name, exit := range map[string]*rpc.CostEstimate{"own goroutine": nil, "learned": new(rpc.CostEstimate)} {
		t.Run(name, func(t *testing.T) {
			h := &exitHandler{exit: exit}
			if exit != nil {
				// the estimate of the other method is low, so the leader runs this one
				h.exit = &h.cost
			}
			talk(t, h, rpc.Options{MaxInFlight: 1}, func(ctx context.Context, c *rpc.Conn) {
				for range 3 {
					for range 20 {
						if _, err := c.Call(ctx, "quick", nil); err != nil {
							t.Fatal(err)
						}
					}
					_, err := c.Call(ctx, "exit", nil)
					if err == nil || !strings.Contains(err.Error(), "internal error") {
						t.Fatalf("exit: got %v, want an internal error", err)
					}
				}
			})
		})
	}
}

func TestLongRunningRequestsTakeNoSlot(t *testing.T) {
	talk(t, &exitHandler{}, rpc.Options{MaxInFlight: 1}, func(ctx context.Context, c *rpc.Conn) {
		ctx, stop := context.WithCancel(ctx)
		ended := make(chan error, 3)
		for range 3 {
			go func() {
				_, err := c.Call(ctx, "stand", nil)
				ended <- err
			}()
		}
		synctest.Wait()
		if _, err := c.Call(ctx, "slow", nil); err != nil {
			t.Errorf("a call during long-running requests: %v", err)
		}
		stop()
		for range 3 {
			if err := <-ended; err == nil {
				t.Error("a canceled long-running request got a response")
			}
		}
	})
}

// TestInFlightBytes shows that large requests wait for one another, and that small ones after them
// get slots again when a large one has ended.
func TestInFlightBytes(t *testing.T) {
	release := make(chan struct{})
	var most, now atomic.Int32
	h := rpc.HandlerFunc(func(ctx context.Context, r *rpc.Request) ([]byte, error) {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		<-release
		return nil, nil
	})
	talk(t, h, rpc.Options{MaxInFlightBytes: 4 << 10}, func(ctx context.Context, c *rpc.Conn) {
		release = make(chan struct{})
		large := []byte(`{"text":"` + strings.Repeat("x", 8<<10) + `"}`)
		done := make(chan error, 5)
		for i := range 5 {
			params := large
			if i > 1 {
				params = nil
			}
			go func() {
				_, err := c.Call(ctx, "hold", params)
				done <- err
			}()
			synctest.Wait()
		}
		if n := now.Load(); n != 1 {
			t.Errorf("%d requests run during a large one, want none", n-1)
		}
		for range 5 {
			release <- struct{}{}
			synctest.Wait()
		}
		for range 5 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if most.Load() != 3 {
			t.Errorf("at most %d requests ran at once, want the 3 small ones", most.Load())
		}
	})
}
