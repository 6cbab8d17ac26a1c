package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// TestBackoff: waits double up to a bound, each up to half shorter, at random.
func TestBackoff(t *testing.T) {
	for _, failures := range []int{1, 2, 3, 10, 1000} {
		want := min(time.Second<<min(failures-1, 30), 30*time.Second)
		seen := make(map[time.Duration]bool)
		for range 100 {
			d := backoff(time.Second, 30*time.Second, failures)
			if d > want || d < want/2 {
				t.Errorf("after %d failures: %v, want %v to %v", failures, d, want/2, want)
			}
			seen[d] = true
		}
		if len(seen) < 50 {
			t.Errorf("after %d failures: only %d different waits of 100", failures, len(seen))
		}
	}
	if d := backoff(time.Minute, time.Second, 1); d > time.Second {
		t.Errorf("%v is more than the bound", d)
	}
}

// TestRetryWaits: a call that is repeated waits longer each time.
func TestRetryWaits(t *testing.T) {
	everyEra(t, func(t *testing.T, r mcp.Revision) {
		var times []time.Time
		dies := func(open func(s *script, r mcp.Revision)) func(*script) {
			return func(s *script) {
				open(s, r)
				s.expect("m")
				times = append(times, time.Now())
			}
		}
		scripts := []func(*script){dies((*script).opening)}
		for range 5 {
			scripts = append(scripts, dies((*script).again))
		}
		c := dial(t, &Options{
			Revisions: []mcp.Revision{r}, Retry: RetryPolicy{MaxAttempts: 6, MaxBackoff: time.Second},
			Reconnect: ReconnectPolicy{MinBackoff: 1, MaxBackoff: 1, MaxFailures: 100},
		}, scripts...)
		if err := c.Call(t.Context(), "m", nil, nil, WithRetry()); !isLost(err) || len(times) != 6 {
			t.Fatalf("%d attempts, %v", len(times), err)
		}
		for i, want := range []time.Duration{100, 200, 400, 800, 1000} {
			want *= time.Millisecond
			if d := times[i+1].Sub(times[i]); d < want/2 || d > want+time.Millisecond {
				t.Errorf("wait %d: %v, want %v to %v", i, d, want/2, want)
			}
		}
	})
}

// TestPeerErrors: what the server answered is told in full, and apart from what went wrong on this side.
func TestPeerErrors(t *testing.T) {
	everyRevision(t, Options{}, func(s *script, _ mcp.Revision) {
		for range 2 {
			s.refuse(s.expect("tools/call"), -32000, `{"why":["a",null]}`)
		}
		s.answer(s.expect("tools/call"), "[]")
		s.expect("tools/call")
		s.expect("notifications/cancelled")
		s.expectEnd()
	}, func(t *testing.T, c *Client, _ mcp.Revision) {
		_, typed := CallTool[int](t.Context(), c, "x", nil)
		for _, err := range []error{c.Call(t.Context(), "tools/call", nil, nil), typed} {
			e, ok := errors.AsType[*jsonrpc.Error](err)
			if !ok || e.Code != -32000 || e.Message != "no" || string(e.Data) != `{"why":["a",null]}` || !IsPeer(err) {
				t.Errorf("got %v", err)
			}
		}
		if err := c.Call(t.Context(), "tools/call", nil, nil); IsPeer(err) || !is[*ProtocolError](err) {
			t.Errorf("no result: got %v", err)
		}
		if err := c.Call(t.Context(), "tools/call", nil, nil, WithTimeout(time.Second)); IsPeer(err) || !is[*TimeoutError](err) {
			t.Errorf("no answer: got %v", err)
		}
		synctest.Wait()
		c.Close()
		if err := c.Call(context.Background(), "tools/call", nil, nil); IsPeer(err) || !errors.Is(err, jsonrpc.ErrClosed) {
			t.Errorf("closed: got %v", err)
		}
	})
}
