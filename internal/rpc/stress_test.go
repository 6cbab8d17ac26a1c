package rpc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mcpwire/internal/test/pipes"
	"mcpwire/jsonrpc"
)

// A stressHandler serves both sides of a connection under stress. Its cost estimates change, so
// each method runs in different ways over time.
type stressHandler struct {
	costs map[string]*CostEstimate
	ticks sync.Map // number of requests by token
}

func newStressHandler() *stressHandler {
	h := &stressHandler{costs: make(map[string]*CostEstimate)}
	for _, name := range []string{"echo", "moody", "back", "progress", "hang", "panic"} {
		h.costs[name] = knownFast()
	}
	return h
}

func (h *stressHandler) Prepare(r *Request) *CostEstimate {
	switch name := string(r.Method); name {
	case "tick", "ping":
		return Immediate
	case "note":
		return nil
	default:
		return h.costs[name]
	}
}

func (h *stressHandler) Handle(r *Request, dst []byte) ([]byte, error) {
	ctx := new(Context)
	r.InitContext(ctx, TraceOf(r.Params))
	switch string(r.Method) {
	case "moody":
		if ms, _ := r.Param("ms"); string(ms) != "0" {
			select {
			case <-time.After(time.Duration(len(ms)) * 4 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	case "back":
		got, err := r.Conn().Call(ctx, "echo", r.Params)
		return append(dst, got...), err
	case "progress":
		for i := range 3 {
			if err := ctx.Notify("tick", fmt.Appendf(nil, `{"token":%s,"n":%d}`, r.Params, i)); err != nil {
				return dst, err
			}
		}
	case "hang":
		<-ctx.Done()
		return dst, ctx.Err()
	case "panic":
		panic("stress")
	case "tick":
		token, _ := r.Param("token")
		n, _ := h.ticks.LoadOrStore(string(token), new(atomic.Int32))
		n.(*atomic.Int32).Add(1)
		return dst, nil
	}
	return append(dst, r.Params...), nil
}

// once makes a call of a random kind and checks its result.
func (h *stressHandler) once(c *Conn, who, i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	text := fmt.Sprintf("%d %d", who, i)
	if rand.IntN(20) == 0 {
		text += strings.Repeat("x", rand.IntN(100<<10))
	}
	params := fmt.Sprintf(`["%s"]`, text)
	method := []string{"echo", "echo", "ping", "back", "panic", "hang", "progress", "moody", "note", "no such"}[rand.IntN(10)]
	switch method {
	case "moody":
		params = fmt.Sprintf(`{"ms":%s,"t":"%s"}`, []string{"0", "0", "0", "0", "0", "0", "1", "22"}[rand.IntN(8)], text)
	case "note":
		return c.Notify(ctx, method, []byte(params))
	case "hang":
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(3000))*time.Microsecond)
		defer cancel()
	}
	got, err := c.Call(ctx, method, []byte(params))
	switch {
	case method == "hang" && errors.Is(err, context.DeadlineExceeded):
		return nil
	case method == "panic" && errors.Is(err, &jsonrpc.Error{Code: jsonrpc.CodeInternalError}):
		return nil
	case method == "no such":
		return nil // without an estimate, always on its own goroutine
	case err != nil:
		return fmt.Errorf("%s: %w", method, err)
	case string(got) != params:
		return fmt.Errorf("%s: got %.60s, want %.60s", method, got, params)
	case method == "progress":
		if n, ok := h.ticks.LoadAndDelete(params); !ok || n.(*atomic.Int32).Load() != 3 {
			return errors.New("progress behind the answer, or lost")
		}
	}
	return nil
}

// TestStress runs everything at once over real transports in real time, and ends the connections in
// different ways.
func TestStress(t *testing.T) {
	length := 250 * time.Millisecond
	if testing.Short() {
		length /= 4
	}
	for _, procs := range []int{runtime.GOMAXPROCS(0), 1} {
		for k, transport := range pipes.Transports {
			for _, threads := range []bool{false, true} {
				if strings.Contains(transport.Name, "10 bytes") || threads && k%2 == 0 {
					continue
				}
				t.Run(fmt.Sprintf("GOMAXPROCS=%d, %s, goroutines=%v", procs, transport.Name, threads), func(t *testing.T) {
					defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
					x, y := transport.Open(t)
					stress(t, jsonrpc.NewFramer(x, &jsonrpc.FramerOptions{Framing: jsonrpc.Framing(1 + k%2)}), jsonrpc.NewFramer(y, nil), threads, k, length)
				})
			}
		}
	}
}

func stress(t *testing.T, fa, fb jsonrpc.Framer, threads bool, how int, length time.Duration) {
	ha, hb := newStressHandler(), newStressHandler()
	o := Options{Goroutines: threads, MaxInFlight: 20, MaxPendingBytes: 100 << 10, DrainTimeout: 5 * time.Second}
	oa, ob := o, o
	oa.Handler, ob.Handler = ha, hb
	a, b := NewConn(fa, &oa), NewConn(fb, &ob)
	var wg, callers sync.WaitGroup
	wg.Go(func() { a.Run(context.Background()) })
	wg.Go(func() { b.Run(context.Background()) })
	if _, err := a.Call(context.Background(), "ping", nil); err != nil { // tells b the framing
		t.Fatal(err)
	}
	stop := time.Now().Add(length)
	var calls atomic.Int64
	var ending atomic.Bool
	for who := range 16 {
		callers.Go(func() {
			c, h := a, ha
			if who%2 == 1 {
				c, h = b, hb
			}
			for i := 0; ; i++ {
				// The last callers continue while the connection ends.
				if time.Now().After(stop) && (who < 12 || ending.Load()) {
					return
				}
				if err := h.once(c, who, i); err != nil {
					// At the end calls fail, and with them handlers of the other side.
					if !ending.Load() || !errors.Is(err, jsonrpc.ErrClosed) && !errors.Is(err, &jsonrpc.Error{Code: jsonrpc.CodeInternalError}) && !strings.Contains(err.Error(), "send: ") {
						t.Errorf("caller %d: %v", who, err)
					}
					return
				}
				calls.Add(1)
			}
		})
	}
	<-time.After(time.Until(stop))
	ending.Store(true)
	switch how % 3 {
	case 0:
		a.Close()
	case 1:
		b.Close()
	default:
		fa.Close()
	}
	callers.Wait()
	a.Close()
	b.Close()
	wg.Wait()
	for _, c := range []*Conn{a, b} {
		if n, m := c.inFlight.running.Load(), c.inFlight.count.Load(); n != 0 || m != 0 {
			t.Errorf("%d handlers are counted as running, %d requests as in flight", n, m)
		}
	}
	t.Logf("%d calls", calls.Load())
}
