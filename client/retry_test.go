package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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
		if err := c.Call(t.Context(), "m", nil, nil, WithRetry()); !isConnectionLost(err) || len(times) != 6 {
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

// A limitedFramer fails the first requests for a method as a transport does whose server did not take them in, with the server's own error in it.
type limitedFramer struct {
	jsonrpc.Framer
	method string
	left   int
	times  []time.Time
	in     chan any // a []byte or an error
	done   chan struct{}
}

func newLimitedFramer(f jsonrpc.Framer, method string, failures int) *limitedFramer {
	l := &limitedFramer{Framer: f, method: method, left: failures, in: make(chan any, 8), done: make(chan struct{})}
	go func() {
		defer close(l.in)
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			select {
			case l.in <- bytes.Clone(frame):
			case <-l.done:
				return
			}
		}
	}()
	return l
}

func (l *limitedFramer) ReadFrame() ([]byte, error) {
	switch v := (<-l.in).(type) {
	case []byte:
		return v, nil
	case error:
		return nil, v
	}
	return nil, io.EOF
}

func (l *limitedFramer) WriteFrame(msg []byte) error {
	var m jsonrpc.Message
	if err := jsonrpc.Parse(msg, &m, 0); err == nil && string(m.Method) == l.method {
		l.times = append(l.times, time.Now())
		if l.left--; l.left >= 0 {
			l.in <- &jsonrpc.CallError{ID: m.ID.Clone(), Outcome: jsonrpc.OutcomeUnprocessed, RetryAfter: 2 * time.Second, Err: fmt.Errorf("HTTP status 429: %w", jsonrpc.Errorf(429, "slowly"))}
			return nil
		}
	}
	return l.Framer.WriteFrame(msg)
}

func (l *limitedFramer) Close() error {
	close(l.done)
	return l.Framer.Close()
}

// TestErrorWithinCallError: a request that was not carried out is sent again when the server wants it, though the transport's error wraps one of the server's. It is no answer.
func TestErrorWithinCallError(t *testing.T) {
	for _, tt := range []struct {
		method   string
		failures int
		ok       bool
	}{{"m", 2, true}, {"m", 3, false}, {"initialize", 2, true}, {"server/discover", 2, true}} {
		everyEra(t, func(t *testing.T, r mcp.Revision) {
			if tt.method != "m" && r.Modern() != (tt.method == "server/discover") {
				return
			}
			var f *limitedFramer
			transport := scriptTransport(t, func(s *script) {
				s.opening(r)
				if tt.ok {
					s.answer(s.expect("m"), "{}")
				}
				s.expectEnd()
			})
			c, err := Dial(t.Context(), TransportFunc(func(ctx context.Context) (jsonrpc.Framer, error) {
				inner, err := transport.Connect(ctx)
				if err != nil {
					return nil, err
				}
				f = newLimitedFramer(inner, tt.method, tt.failures)
				return f, nil
			}), &Options{Revisions: []mcp.Revision{r}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			err = c.Call(t.Context(), "m", nil, nil)
			if tt.ok != (err == nil) || IsPeer(err) || err != nil && !is[*jsonrpc.CallError](err) {
				t.Errorf("%s, %d failures: %v", tt.method, tt.failures, err)
			}
			if len(f.times) != 3 {
				t.Fatalf("%s was sent %d times", tt.method, len(f.times))
			}
			for i := range 2 {
				if d := f.times[i+1].Sub(f.times[i]); d < 2*time.Second || d > 3*time.Second {
					t.Errorf("%s was sent again after %v", tt.method, d)
				}
			}
		})
	}
}
