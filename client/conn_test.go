package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/internal/base/wait"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// again performs the server side of an opening by a client that knows the server.
func (s *script) again(r mcp.Revision) {
	s.t.Helper()
	if !r.Modern() {
		s.handshake(r.String())
	}
}

// everyEra runs a test in a bubble for a legacy and a modern server.
func everyEra(t *testing.T, test func(t *testing.T, r mcp.Revision)) {
	for _, r := range []mcp.Revision{mcp.Revision20241105, mcp.Revision20251125, mcp.Revision20260728} {
		t.Run(r.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, r) })
		})
	}
}

// TestReconnect shows that a server that ends is started again, and is not probed again. Calls that
// can be repeated are sent again with new ids, and others fail. A response meant for the old
// connection matches no call on the new one.
//
// Spec: C4 C34
func TestReconnect(t *testing.T) {
	everyEra(t, func(t *testing.T, r mcp.Revision) {
		var first []string
		c := dial(t, &Options{Revisions: []mcp.Revision{r}}, func(s *script) {
			s.opening(r)
			for range 2 {
				first = append(first, string(s.expect("m").ID))
			}
		}, func(s *script) {
			s.again(r)
			m := s.expect("m")
			if slices.Contains(first, string(m.ID)) {
				s.t.Errorf("id %s was used before", m.ID)
			}
			for _, id := range first {
				s.send(`{"jsonrpc":"2.0","id":%s,"result":{"stale":true}}`, id)
			}
			s.answer(m, `{"from":"second"}`)
			s.answer(s.expect("after"), `{}`)
			s.expectEnd()
		})
		reconnected := c.subs.nextConnection()
		var wg sync.WaitGroup
		wg.Go(func() {
			var got json.RawMessage
			if err := c.Call(t.Context(), "m", nil, &got, WithRetry(true)); err != nil || string(got) != `{"from":"second"}` {
				t.Errorf("repeatable: got %s, %v", got, err)
			}
		})
		wg.Go(func() {
			err := c.Call(t.Context(), "m", nil, nil)
			if !isConnectionLost(err) || IsServerError(err) {
				t.Errorf("not repeatable: %v", err)
			}
		})
		wg.Wait()
		if !wait.Closed(reconnected, 0) {
			t.Error("the subscriptions were not notified of the new connection")
		}
		if err := c.Call(t.Context(), "after", nil, nil); err != nil {
			t.Error(err)
		}
		if c.Err() != nil || c.Revision() != r {
			t.Errorf("%v, %v", c.Err(), c.Revision())
		}
	})
}

// TestUnsentCalls shows that a call that could not be sent waits for the next connection within its
// time limit, and that sending it does not count as a repetition.
func TestUnsentCalls(t *testing.T) {
	everyEra(t, func(t *testing.T, r mcp.Revision) {
		gate := make(chan struct{})
		connects := 0
		transport := scriptTransport(t, func(s *script) { s.opening(r) }, func(s *script) {
			s.again(r)
			s.answer(s.expect("m"), "{}")
			s.expectEnd()
		})
		c, err := Dial(t.Context(), TransportFunc(func(ctx context.Context) (jsonrpc.Framer, error) {
			if connects++; connects > 1 {
				<-gate
			}
			return transport.Connect(ctx)
		}), &Options{Revisions: []mcp.Revision{r}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		synctest.Wait() // the connection is lost, and the next one hangs
		if err := c.Call(t.Context(), "m", nil, nil, WithTimeout(time.Second)); !is[*TimeoutError](err) || !strings.Contains(err.Error(), "not connected") {
			t.Errorf("with a timeout: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Call(ctx, "m", nil, nil); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not connected") {
			t.Errorf("with a deadline: %v", err)
		}
		if err := c.Notify(ctx, "n", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("notification with a deadline: %v", err)
		}
		go func() {
			elapse(time.Second)
			close(gate)
		}()
		if err := c.Call(t.Context(), "m", nil, nil, WithRetry(false)); err != nil {
			t.Error(err)
		}
	})
}

// TestRetries checks how often a call is repeated.
func TestRetries(t *testing.T) {
	dies := func(r mcp.Revision, first bool) func(*script) {
		return func(s *script) {
			if first {
				s.opening(r)
			} else {
				s.again(r)
			}
			s.expect("m")
		}
	}
	for _, tt := range []struct {
		name   string
		policy RetryPolicy
		opt    CallOption
		deaths int // lost connections before the response
		want   string
	}{
		{"two lost connections", RetryPolicy{}, WithRetry(true), 2, ""},
		{"three lost connections", RetryPolicy{}, WithRetry(true), 3, "connection closed"},
		{"never", RetryPolicy{MaxAttempts: 1}, WithRetry(true), 1, "connection closed"},
		{"negative number of attempts", RetryPolicy{MaxAttempts: -1}, WithRetry(true), 1, "connection closed"},
		{"often", RetryPolicy{MaxAttempts: 6}, WithRetry(true), 5, ""},
		{"WithRetry(false)", RetryPolicy{}, WithRetry(false), 1, "connection closed"},
		{"call not known to be repeatable", RetryPolicy{}, WithTimeout(0), 1, "connection closed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			everyEra(t, func(t *testing.T, r mcp.Revision) {
				var scripts []func(*script)
				for i := range tt.deaths {
					scripts = append(scripts, dies(r, i == 0))
				}
				scripts = append(scripts, func(s *script) {
					s.again(r)
					if tt.want == "" {
						s.answer(s.expect("m"), "{}")
					}
					s.expectEnd()
				})
				c := dial(t, &Options{Retry: tt.policy, Revisions: []mcp.Revision{r}}, scripts...)
				err := c.Call(t.Context(), "m", nil, nil, tt.opt)
				if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
				elapse(time.Minute)
				if c.Err() != nil {
					t.Errorf("the client has ended: %v", c.Err())
				}
			})
		})
	}
}

// TestPeerErrorsAreFinal checks that a request is not repeated after an error response.
func TestPeerErrorsAreFinal(t *testing.T) {
	everyRevision(t, Options{}, func(s *script, _ mcp.Revision) {
		for _, code := range []jsonrpc.Code{-32603, -32000, -32601, 503} {
			s.reject(s.expect("m"), code, "")
		}
		s.expectEnd()
	}, func(t *testing.T, c *Client, _ mcp.Revision) {
		for range 4 {
			if err := c.Call(t.Context(), "m", nil, nil, WithRetry(true)); !IsServerError(err) {
				t.Errorf("got %v", err)
			}
		}
	})
}

// TestGivingUp checks when, and with which error, a client stops reconnecting to a server that
// ends.
func TestGivingUp(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy ReconnectPolicy
		deaths int           // lost connections after a negotiation
		live   time.Duration // lifetime of each
		then   error         // error of Connect
		dials  int           // total number of attempts
		want   string
		check  func(error) bool
	}{
		{name: "disabled", policy: ReconnectPolicy{Disabled: true}, deaths: 1, dials: 1, want: "connection lost: the server closed the connection"},
		{name: "transport cannot reconnect", deaths: 1, then: fmt.Errorf("%w: once only", ErrNoReconnect), dials: 2, want: "once only", check: func(err error) bool { return errors.Is(err, ErrNoReconnect) }},
		{name: "transport fails", deaths: 1, then: errors.New("no such program"), dials: 1 + 7, want: "8 times in a row, giving up: no such program"},
		{name: "transport fails, fewer times", policy: ReconnectPolicy{MaxFailures: 2}, deaths: 1, then: errors.New("no such program"), dials: 1 + 1, want: "2 times in a row"},
		{name: "one failure", policy: ReconnectPolicy{MaxFailures: 1}, deaths: 100, dials: 1, want: "1 times in a row"},
		{name: "ends at once", deaths: 100, dials: 1 + 7, want: "8 times in a row"},
		{name: "ends after some seconds", deaths: 100, live: 9 * time.Second, dials: 1 + 7, want: "8 times in a row"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			everyEra(t, func(t *testing.T, r mcp.Revision) {
				dials := 0
				var times []time.Time
				c, err := Dial(t.Context(), TransportFunc(func(context.Context) (jsonrpc.Framer, error) {
					dials++
					times = append(times, time.Now())
					if dials > tt.deaths {
						return nil, tt.then
					}
					clientEnd, serverEnd := net.Pipe()
					go func() {
						defer serverEnd.Close()
						s := newScript(t, serverEnd)
						if dials == 1 {
							s.opening(r)
						} else {
							s.again(r)
						}
						elapse(tt.live)
					}()
					return jsonrpc.NewFramer(clientEnd, nil), nil
				}), &Options{Revisions: []mcp.Revision{r}, Reconnect: tt.policy})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				<-c.Done()
				if dials != tt.dials || c.Err() == nil || !strings.Contains(c.Err().Error(), tt.want) || tt.check != nil && !tt.check(c.Err()) {
					t.Errorf("%d times, %v; want %d times, %q", dials, c.Err(), tt.dials, tt.want)
				}
				checkBackoff(t, times, tt.live)
				err = c.Call(t.Context(), "m", nil, nil, WithRetry(true))
				if !isConnectionLost(err) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("a call after the end: %v", err)
				}
				if err := c.Notify(t.Context(), "m", nil); !isConnectionLost(err) {
					t.Errorf("a notification after the end: %v", err)
				}
				if c.Revision() != r {
					t.Error("the client has lost the negotiated revision")
				}
			})
		})
	}
}

// TestServingResetsFailures shows that a server that responds to calls and crashes between them is
// always restarted after the smallest backoff. The handshake and the client's own requests do not
// count.
func TestServingResetsFailures(t *testing.T) {
	for _, calls := range []bool{true, false} {
		everyEra(t, func(t *testing.T, r mcp.Revision) {
			const many = 30
			var scripts []func(*script)
			for i := range many {
				scripts = append(scripts, func(s *script) {
					if i == 0 {
						s.opening(r)
					} else {
						s.again(r)
					}
					if calls {
						if i%2 == 0 {
							s.answer(s.expect("m"), "{}")
						} else {
							s.reject(s.expect("m"), jsonrpc.CodeInvalidParams, "")
							if r.Modern() {
								// the client checks whether the server is still modern
								s.discovers()
							}
						}
					}
				})
			}
			if calls {
				scripts = append(scripts, func(s *script) {
					s.again(r)
					s.answer(s.expect("m"), "{}")
					s.expectEnd()
				})
			}
			opts := &Options{Revisions: []mcp.Revision{r}}
			if calls {
				opts.Reconnect.MaxFailures = 1
			}
			c := dial(t, opts, scripts...)
			if !calls {
				<-c.Done()
				if err := c.Err(); err == nil || !strings.Contains(err.Error(), "8 times in a row") {
					t.Errorf("without calls: %v", err)
				}
				return
			}
			began := time.Now()
			for range many + 1 {
				synctest.Wait() // until the client knows that the connection is lost
				if err := c.Call(t.Context(), "m", nil, nil); err != nil && !IsServerError(err) {
					t.Error(err)
				}
			}
			if d := time.Since(began); d > many*200*time.Millisecond {
				t.Errorf("%d crashes cost %v", many, d)
			}
		})
	}
}

// TestKeepAliveIsNotActivity shows that a response to the client's own subscription does not count
// as activity that resets the failures of a crashing server.
func TestKeepAliveIsNotActivity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var scripts []func(*script)
		for range 30 {
			scripts = append(scripts, func(s *script) {
				m := s.expect("initialize")
				s.answer(m, strings.Replace(initialized(legacyDate), `"tools":{}`, `"resources":{"subscribe":true}`, 1))
				s.expect("notifications/initialized")
				s.answer(s.expect("resources/subscribe"), "{}")
			})
		}
		c, err := Dial(t.Context(), scriptTransport(t, scripts...), &Options{Revisions: []mcp.Revision{mcp.Revision20251125}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Listen(t.Context(), mcp.SubscriptionFilter{ResourceSubscriptions: []string{"test://a"}}); err != nil {
			t.Fatal(err)
		}
		<-c.Done()
		if err := c.Err(); err == nil || !strings.Contains(err.Error(), "8 times in a row") {
			t.Errorf("the client ended with %v", err)
		}
	})
}

// TestMaxWait shows that calls and notifications wait for a connection as long as the policy
// allows, and return the reason why there is no connection.
func TestMaxWait(t *testing.T) {
	for _, tt := range []struct {
		name string
		max  time.Duration
		opts []CallOption
		want time.Duration
		see  string
	}{
		{"default", 0, nil, time.Minute, "ReconnectPolicy.MaxWait"},
		{"shorter", time.Second, nil, time.Second, "ReconnectPolicy.MaxWait"},
		{"calls without a timeout", 0, []CallOption{WithTimeout(-1)}, time.Minute, "ReconnectPolicy.MaxWait"},
		{"shorter timeout of the call", 0, []CallOption{WithTimeout(2 * time.Second)}, 2 * time.Second, "WithTimeout"},
		{"none", -1, nil, 5 * time.Minute, "WithTimeout"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dials := 0
				transport := scriptTransport(t, func(s *script) { s.opening(mcp.Revision20260728) })
				c, err := Dial(t.Context(), TransportFunc(func(ctx context.Context) (jsonrpc.Framer, error) {
					if dials++; dials == 2 {
						return nil, errors.New("no such program")
					}
					if dials > 2 {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return transport.Connect(ctx)
				}), &Options{Revisions: []mcp.Revision{mcp.Revision20260728}, Reconnect: ReconnectPolicy{MaxWait: tt.max}})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				elapse(10 * time.Second) // the third attempt hangs
				began := time.Now()
				check := func(what string, err error, want time.Duration) {
					t.Helper()
					e, ok := errors.AsType[*NotConnectedError](err)
					if !ok || !is[*TimeoutError](err) || e.Method != "m" || e.Last == nil || !strings.Contains(err.Error(), "no such program") || !strings.Contains(err.Error(), tt.see) {
						t.Errorf("%s: %v", what, err)
					}
					if d := time.Since(began); d != want {
						t.Errorf("%s waited %v, want %v", what, d, want)
					}
					began = time.Now()
				}
				check("call", c.Call(t.Context(), "m", nil, nil, tt.opts...), tt.want)
				if tt.max >= 0 && tt.opts == nil {
					check("notification", c.Notify(t.Context(), "m", nil), tt.want)
				}
			})
		})
	}
}

// TestOver shows that a client has only the connection that Over got.
func TestOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientEnd, serverEnd := net.Pipe()
		transport := FramerTransport(jsonrpc.NewFramer(clientEnd, nil))
		go func() {
			defer serverEnd.Close()
			s := newScript(t, serverEnd)
			s.discovers()
			s.answer(s.expect("m"), "{}")
		}()
		c, err := Dial(t.Context(), transport, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Call(t.Context(), "m", nil, nil); err != nil {
			t.Error(err)
		}
		<-c.Done()
		if !errors.Is(c.Err(), ErrNoReconnect) || !strings.Contains(c.Err().Error(), "the server closed the connection") {
			t.Errorf("got %v", c.Err())
		}
		if _, err := Dial(t.Context(), transport, nil); !errors.Is(err, ErrNoReconnect) {
			t.Errorf("dialled twice: %v", err)
		}
	})
}

// checkBackoff checks that the gaps double up to 30 s, and that each is shortened at random by up
// to half.
func checkBackoff(t *testing.T, times []time.Time, live time.Duration) {
	t.Helper()
	most := 200 * time.Millisecond
	for i := 1; i < len(times); i++ {
		if gap := times[i].Sub(times[i-1]) - live; gap < most/2 || gap > most {
			t.Errorf("attempt %d came after %v, want %v to %v", i+1, gap, most/2, most)
		}
		most = min(2*most, 30*time.Second)
	}
}

// TestStable shows that the next connection is made at once after one that lasted, however often
// that happens.
func TestStable(t *testing.T) {
	everyEra(t, func(t *testing.T, r mcp.Revision) {
		const many = 30
		var again atomic.Int32
		var scripts []func(*script)
		for i := range many {
			scripts = append(scripts, func(s *script) {
				if i == 0 {
					s.opening(r)
				} else {
					s.again(r)
					again.Add(1)
				}
				elapse(10 * time.Second)
			})
		}
		scripts = append(scripts, func(s *script) {
			s.again(r)
			again.Add(1)
			s.expectEnd()
		})
		began := time.Now()
		c := dial(t, &Options{Revisions: []mcp.Revision{r}}, scripts...)
		elapse(many*10*time.Second + time.Second)
		if again.Load() != many || c.Err() != nil || time.Since(began) > many*10*time.Second+time.Second {
			t.Errorf("%d connections, %v", again.Load(), c.Err())
		}
	})
}

// TestServerUpgraded shows that the client negotiates again when the server has another revision
// after a restart.
func TestServerUpgraded(t *testing.T) {
	for _, tt := range []struct {
		name          string
		before, after mcp.Revision
		opening       func(*script)
	}{
		{"legacy to modern", mcp.Revision20251125, mcp.Revision20260728, func(s *script) {
			s.reject(s.expect("initialize"), -32022, `{"supported":["2026-07-28"],"requested":"2025-11-25"}`)
			s.discovers()
		}},
		{"legacy to modern, without an error that says so", mcp.Revision20251125, mcp.Revision20260728, func(s *script) {
			s.reject(s.expect("initialize"), -32601, "")
			s.discovers()
		}},
		{"to an older revision", mcp.Revision20251125, mcp.Revision20250326, func(s *script) { s.handshake("2025-03-26") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := dial(t, nil, func(s *script) {
					s.reject(s.expect("server/discover"), -32601, "")
					s.handshake(tt.before.String())
				}, func(s *script) {
					tt.opening(s)
					s.answer(s.expect("m"), "{}")
					s.expectEnd()
				})
				if c.Revision() != tt.before {
					t.Errorf("before: %v", c.Revision())
				}
				if err := c.Call(t.Context(), "m", nil, nil, WithRetry(true)); err != nil {
					t.Error(err)
				}
				if c.Revision() != tt.after {
					t.Errorf("after: %v", c.Revision())
				}
			})
		})
	}
}

// TestVersionRejectedLater shows that a modern server may reject the version of any request, and
// that the client then repeats the request in another version, if there is one.
func TestVersionRejectedLater(t *testing.T) {
	for _, tt := range []struct {
		name    string
		scripts []func(*script)
		want    string
		after   mcp.Revision
	}{
		{"the server wants the rejected version", []func(*script){func(s *script) {
			s.discovers()
			a := s.expect("m")
			s.reject(a, -32022, `{"supported":["2026-07-28"],"requested":"2026-07-28"}`)
			b := s.expect("m")
			if string(a.ID) == string(b.ID) {
				s.fail("id %s again", a.ID)
			}
			s.answer(b, "{}")
			s.expectEnd()
		}}, "", mcp.Revision20260728},
		{"always", []func(*script){func(s *script) {
			s.discovers()
			for range maxRevisionSwitches + 1 {
				s.reject(s.expect("m"), -32022, `{"supported":["2026-07-28"],"requested":"2026-07-28"}`)
			}
			s.expectEnd()
		}}, "(-32022)", mcp.Revision20260728},
		{"no common version", []func(*script){func(s *script) {
			s.discovers()
			s.reject(s.expect("m"), -32022, `{"supported":["2030-01-01"],"requested":"2026-07-28"}`)
			s.expectEnd()
		}}, "no common revision", mcp.Revision20260728},
		{"error without data", []func(*script){func(s *script) {
			s.discovers()
			s.reject(s.expect("m"), -32022, "")
			s.expectEnd()
		}}, "no common revision", mcp.Revision20260728},
		{"a legacy version", []func(*script){func(s *script) {
			s.discovers()
			s.reject(s.expect("m"), -32022, `{"supported":["2025-06-18"],"requested":"2026-07-28"}`)
			s.expectEnd()
		}, func(s *script) {
			s.handshake("2025-06-18")
			s.answer(s.expect("m"), "{}")
			s.expectEnd()
		}}, "", mcp.Revision20250618},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := dial(t, nil, tt.scripts...)
				err := c.Call(t.Context(), "m", nil, nil)
				if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) || c.Revision() != tt.after {
					t.Errorf("got %v, speaking %v", err, c.Revision())
				}
			})
		})
	}
}

// TestClose shows that Close ends everything in flight, in any state, and may be called
// concurrently.
func TestClose(t *testing.T) {
	everyEra(t, func(t *testing.T, r mcp.Revision) {
		c := dial(t, &Options{Revisions: []mcp.Revision{r}}, func(s *script) {
			s.opening(r)
			s.expect("m")
			// otherwise a draining server would continue the request
			s.expect("notifications/cancelled")
			s.expectEnd()
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := c.Call(t.Context(), "m", nil, nil, WithRetry(true)); !isConnectionLost(err) || !strings.Contains(err.Error(), "closed") {
				t.Errorf("call under way: %v", err)
			}
		})
		synctest.Wait()
		for range 3 {
			wg.Go(func() {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		<-c.Done()
		if c.Err() != nil {
			t.Errorf("Err is %v", c.Err())
		}
		if err := c.Call(t.Context(), "m", nil, nil); !isConnectionLost(err) || !strings.Contains(err.Error(), "the client was closed") {
			t.Errorf("call after the end: %v", err)
		}
	})
}

// TestCloseWhileConnecting shows that Close waits neither for a connection attempt nor for the next
// one.
func TestCloseWhileConnecting(t *testing.T) {
	for _, hangs := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			first := scriptTransport(t, func(s *script) { s.discovers() })
			var once sync.Once
			c, err := Dial(t.Context(), TransportFunc(func(ctx context.Context) (f jsonrpc.Framer, err error) {
				err = errors.New("not now")
				once.Do(func() { f, err = first.Connect(ctx) })
				if f == nil && hangs {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return f, err
			}), &Options{Reconnect: ReconnectPolicy{MinBackoff: time.Hour, MaxBackoff: time.Hour, MaxFailures: -1}})
			if err != nil {
				t.Fatal(err)
			}
			elapse(3 * time.Hour)
			began := time.Now()
			c.Close()
			if d := time.Since(began); d > 0 {
				t.Errorf("closing took %v", d)
			}
		})
	}
}

// TestResponseTooLarge shows that a call whose response exceeds the frame limit fails at once,
// before the end of the response, and is not repeated. The connection continues.
func TestResponseTooLarge(t *testing.T) {
	everyEra(t, func(t *testing.T, r mcp.Revision) {
		const limit = 4000
		clientEnd, serverEnd := net.Pipe()
		x := strings.Repeat("x", limit)
		failed := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer serverEnd.Close()
			s := newScript(t, serverEnd)
			s.opening(r)
			m := s.expect("first")
			fmt.Fprintf(serverEnd, `{"jsonrpc":"2.0","id":%s,"result":{"text":"%s`, m.ID, x)
			<-failed
			s.send(`"}}`)
			m = s.expect("last")
			s.send(`{"result":{"text":"%s"},"jsonrpc":"2.0","id":%s}`, x, m.ID)
			s.answer(s.expect("m"), "{}")
			s.expectEnd()
		}()
		c, err := Dial(t.Context(), FramerTransport(jsonrpc.NewFramer(clientEnd, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine, MaxFrame: limit})), &Options{Revisions: []mcp.Revision{r}})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for _, method := range []string{"first", "last"} {
			err := c.Call(t.Context(), method, nil, nil, WithRetry(true))
			large, ok := errors.AsType[*jsonrpc.TooLargeError](err)
			if !ok || large.Limit != limit || large.Size <= limit || IsServerError(err) || is[*ProtocolError](err) {
				t.Errorf("%s: %v", method, err)
			}
			if method == "first" {
				close(failed)
			}
		}
		if err := c.Call(t.Context(), "m", nil, nil); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("it took %v", d)
		}
		c.Close()
		<-done
	})
}
