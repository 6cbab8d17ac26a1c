package client

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A mortal is a server that returns the arguments of the call, and ends after a number of requests.
type mortal struct {
	mu   sync.Mutex
	ids  map[string]int // requests on all connections
	left int
}

// Prepare implements rpc.Handler.
func (m *mortal) Prepare(*rpc.Request) *rpc.CostEstimate { return nil }

// Handle implements rpc.Handler.
func (m *mortal) Handle(r *rpc.Request, dst []byte) ([]byte, error) {
	if r.Kind == jsonrpc.KindNotification {
		return dst, nil
	}
	m.mu.Lock()
	m.ids[r.ID.String()]++
	m.left--
	dies := m.left == 0
	m.mu.Unlock()
	switch {
	case string(r.Method) == mcp.MethodDiscover:
		return append(dst, discovered(modernDate)...), nil
	case string(r.Method) == mcp.MethodInitialize:
		return append(dst, initialized(legacyDate)...), nil
	case dies:
		go r.Conn().Close()
	}
	n, _ := r.Param("n")
	elapse(time.Millisecond)
	return append(append(append(dst, `{"n":`...), n...), '}'), nil
}

// TestStress makes many calls while the server ends again and again. Each call that may be repeated
// gets its own response, and no id is used twice.
//
// Spec: C4 C34
func TestStress(t *testing.T) {
	for _, r := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
		t.Run(r.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &mortal{ids: map[string]int{}}
				var wg sync.WaitGroup
				defer wg.Wait()
				transport := TransportFunc(func(context.Context) (jsonrpc.Framer, error) {
					clientEnd, serverEnd := net.Pipe()
					m.mu.Lock()
					m.left = 50
					m.mu.Unlock()
					conn := rpc.NewConn(jsonrpc.NewFramer(serverEnd, nil), &rpc.Options{Handler: m})
					wg.Go(func() { conn.Run(context.Background()) })
					return jsonrpc.NewFramer(clientEnd, nil), nil
				})
				c, err := Dial(t.Context(), transport, &Options{
					Revisions: []mcp.Revision{r}, Retry: RetryPolicy{MaxAttempts: 1000}, Reconnect: ReconnectPolicy{MaxFailures: -1},
				})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				var lost atomic.Int32
				var calls sync.WaitGroup
				for g := range 16 {
					calls.Go(func() {
						for i := range 100 {
							opt := WithRetry(true)
							if i%4 == 0 {
								opt = WithRetry(false)
							}
							var got struct{ N int }
							n := 1000*g + i
							err := c.Call(t.Context(), "m", map[string]int{"n": n}, &got, opt)
							switch {
							case err == nil && got.N == n:
							case i%4 == 0 && isConnectionLost(err):
								lost.Add(1)
							default:
								t.Errorf("call %d: got %d, %v", n, got.N, err)
							}
						}
					})
				}
				calls.Wait()
				if lost.Load() == 0 {
					t.Error("the server never died")
				}
				for id, n := range m.ids {
					if n > 1 {
						t.Errorf("id %s was used %d times", id, n)
					}
				}
			})
		})
	}
}
