package mcptest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/mcptest"
	"mcpwire/server"
)

// A consent is the form of the handlers in these tests.
type consent struct {
	Agree bool `json:"agree"`
}

// agreeingClient returns the options of a client whose user accepts every form.
func agreeingClient() *client.Options {
	return &client.Options{Input: client.InputOptions{Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: []byte(`{"agree":true}`)}, nil
	}}}
}

// requestConsent requests the user's consent.
func requestConsent(ctx context.Context, key, message string) error {
	_, err := server.Elicit[consent](ctx, key, message)
	return err
}

// A handler is the function of the tool of newTool.
type handler func(ctx context.Context) (string, error)

// newTool returns a server with the tool t.
func newTool(t testing.TB, opts *server.Options, h handler) *server.Server {
	t.Helper()
	srv := server.MustNew("test", "1", opts)
	err := server.AddTool(srv, "t", "", func(ctx context.Context, _ struct{}) (string, error) { return h(ctx) })
	if err != nil {
		t.Fatal(err)
	}
	return srv
}

// callTool calls t and returns the text of its result.
func callTool(t testing.TB, c *client.Client, opts ...client.CallOption) string {
	t.Helper()
	r, err := c.CallTool(t.Context(), "t", nil, opts...)
	if err != nil {
		return err.Error()
	}
	return r.Content[0].(mcp.TextContent).Text
}

const advice = `
In modern revisions a handler that asks the client runs again from its beginning with each answer.
Put side effects after the last input request or into server.Once, and take random values and times from server.Once.
mcptest ran it twice to find this; see mcptest.RerunCheck.`

// wantFailure returns the expected failure of a target with these differences.
func wantFailure(target string, differences ...string) []string {
	return []string{target + ": the handler does something else when it runs again, before the client has answered:\n    " +
		strings.Join(differences, "\n    ") + advice}
}

// TestRerunCheck calls a tool, and checks the failures of the test, the number of runs of the
// handler, and the result.
func TestRerunCheck(t *testing.T) {
	// Snapshot returns the number of effects.
	type effects struct{ n atomic.Int32 }
	order := func(e *effects) string { return fmt.Sprintf("Pay for order %d?", e.n.Add(1)) }
	tests := []struct {
		name    string
		opts    *server.Options
		check   mcptest.RerunCheck
		handler func(e *effects) handler
		// want are the differences in the failure.
		want   []string
		runs   int
		result string
	}{
		{"an effect in the input request", nil, mcptest.RerunCheck{}, func(e *effects) handler {
			return func(ctx context.Context) (string, error) { return "paid", requestConsent(ctx, "pay", order(e)) }
		}, []string{`inputRequests.pay.params.message: got "Pay for order 2?", want "Pay for order 1?"`}, 17, "t still has"},
		{"an effect in the key", nil, mcptest.RerunCheck{}, func(e *effects) handler {
			return func(ctx context.Context) (string, error) {
				return "paid", requestConsent(ctx, fmt.Sprint(e.n.Add(1)), "Pay?")
			}
		}, []string{
			`inputRequests["1"]: missing, want {"method":"elicitation/create","params":{"mode":"form","message":"Pay?","requestedSchema":{"type":"object","properties":{"agree":{"type":"boolean"}},"required":["agree"]}}}`,
			`inputRequests["2"]: got {"method":"elicitation/create","params":{"mode":"form","message":"Pay?","requestedSchema":{"type":"object","properties":{"agree":{"type":"boolean"}},"required":["agree"]}}}, want no such member`,
		}, 17, "t still has"},
		{"an effect without a difference", nil, mcptest.RerunCheck{}, func(e *effects) handler {
			return func(ctx context.Context) (string, error) { order(e); return "paid", requestConsent(ctx, "pay", "Pay?") }
		}, nil, 3, "paid"},
		{"an effect that Snapshot shows", nil, mcptest.RerunCheck{Snapshot: func() any { return nil }}, func(e *effects) handler {
			return func(ctx context.Context) (string, error) { order(e); return "paid", requestConsent(ctx, "pay", "Pay?") }
		}, []string{"RerunCheck.Snapshot: got 2 after the second run, want 1 as after the first"}, 3, "paid"},
		{"an effect before the second input request", nil, mcptest.RerunCheck{Snapshot: func() any { return nil }}, func(e *effects) handler {
			return func(ctx context.Context) (string, error) {
				if err := requestConsent(ctx, "order", "Order?"); err != nil {
					return "", err
				}
				order(e)
				return "paid", requestConsent(ctx, "pay", "Pay?")
			}
		}, []string{"RerunCheck.Snapshot: got 2 after the second run, want 1 as after the first"}, 5, "paid"},
		{"Once", &server.Options{Input: server.InputOptions{MaxRounds: 1, SingleUseState: true}}, mcptest.RerunCheck{Snapshot: func() any { return nil }}, func(e *effects) handler {
			return func(ctx context.Context) (string, error) {
				message, err := server.Once(ctx, "order", func(context.Context) (string, error) { return order(e), nil })
				if err != nil {
					return "", err
				}
				return "paid", requestConsent(ctx, "pay", message)
			}
		}, nil, 3, "paid"},
		{"an effect after the last input request", nil, mcptest.RerunCheck{Snapshot: func() any { return nil }}, func(e *effects) handler {
			return func(ctx context.Context) (string, error) {
				if err := errors.Join(requestConsent(ctx, "a", "A?"), requestConsent(ctx, "b", "B?")); err != nil {
					return "", err
				}
				return order(e), nil
			}
		}, nil, 3, "Pay for order 1?"},
		{"no input request", nil, mcptest.RerunCheck{Snapshot: func() any { panic("nothing to compare") }}, func(e *effects) handler {
			return func(context.Context) (string, error) { return order(e), nil }
		}, nil, 1, "Pay for order 1?"},
		{"as many rounds as allowed", nil, mcptest.RerunCheck{}, func(*effects) handler {
			return func(ctx context.Context) (string, error) {
				for i := range 8 {
					if err := requestConsent(ctx, fmt.Sprint(i), "And?"); err != nil {
						return "", err
					}
				}
				return "done", nil
			}
		}, nil, 17, "done"},
		{"an error in the second run", nil, mcptest.RerunCheck{}, func(e *effects) handler {
			return func(ctx context.Context) (string, error) {
				if e.n.Add(1) == 2 {
					return "", errors.New("it exists")
				}
				return "made", requestConsent(ctx, "make", "Make?")
			}
		}, []string{`the first run asked the client, the second returned a result: {"content":[{"type":"text","text":"it exists"}],"isError":true,"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"test","version":"1"}}}`}, 3, "made"},
		{"a protocol error", nil, mcptest.RerunCheck{}, func(e *effects) handler {
			return func(ctx context.Context) (string, error) {
				if e.n.Add(1) == 2 {
					return "", jsonrpc.Errorf(7, "it exists")
				}
				return "made", requestConsent(ctx, "make", "Make?")
			}
		}, []string{`the first run asked the client, the second failed: {"code":7,"message":"it exists"}`}, 3, "made"},
		{"a rate limit", &server.Options{Callers: server.CallerLimits{PerSecond: 0.01, Burst: 1, Methods: []string{"tools/call"}}}, mcptest.RerunCheck{}, func(*effects) handler {
			return func(ctx context.Context) (string, error) { return "", requestConsent(ctx, "a", "A?") }
		}, nil, 1, "too many"},
		{"disabled", nil, mcptest.RerunCheck{Disabled: true}, func(e *effects) handler {
			return func(ctx context.Context) (string, error) {
				return "paid", requestConsent(ctx, "pay", fmt.Sprint("Order ", e.n.Add(1)/2)) // once 0, then 1 and 1
			}
		}, nil, 3, "paid"},
		{"a time", nil, mcptest.RerunCheck{Pause: time.Second}, func(*effects) handler {
			return func(ctx context.Context) (string, error) {
				return "booked", requestConsent(ctx, "now", "Book for "+time.Now().UTC().Format(time.TimeOnly)+"?")
			}
		}, []string{`inputRequests.now.params.message: got "Book for 00:00:01?", want "Book for 00:00:00?"`}, 3, "booked"},
		{"a time from Once", nil, mcptest.RerunCheck{Pause: time.Second}, func(*effects) handler {
			return func(ctx context.Context) (string, error) {
				now, err := server.Once(ctx, "now", func(context.Context) (time.Time, error) { return time.Now().UTC(), nil })
				if err != nil {
					return "", err
				}
				return "booked", requestConsent(ctx, "now", "Book for "+now.Format(time.TimeOnly)+"?")
			}
		}, nil, 3, "booked"},
		{"a handler that blocks in the second run", nil, mcptest.RerunCheck{}, func(e *effects) handler {
			return func(ctx context.Context) (string, error) {
				time.Sleep(5 * time.Second)
				if e.n.Add(1) == 2 {
					<-ctx.Done()
				}
				return "made", requestConsent(ctx, "make", "Make?")
			}
		}, []string{"the first run asked the client after 5s, the second has not returned after 15s"}, 3, "made"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var e effects
				runs, result := 0, ""
				got := failures(t, func(t testing.TB) {
					check, h := tt.check, tt.handler(&e)
					check.Server = newTool(t, tt.opts, func(ctx context.Context) (string, error) { runs++; return h(ctx) })
					if check.Snapshot != nil && tt.runs > 1 {
						check.Snapshot = func() any { return e.n.Load() }
					}
					opts := agreeingClient()
					opts.Retry.MaxAttempts = 1
					result = callTool(t, mcptest.Connect(t, check, opts))
				})
				var want []string
				if tt.want != nil {
					want = wantFailure(`tools/call "t"`, tt.want...)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("failures (-want +got):\n%s", diff)
				}
				if runs != tt.runs || !strings.Contains(result, tt.result) {
					t.Errorf("got %q after %d runs, want %q after %d", result, runs, tt.result, tt.runs)
				}
			})
		})
	}
}

// TestRerunOfTimes checks times with fractions, which differ without a pause, like random values.
// Connect checks an unwrapped server, and one that is wrapped in a RerunCheck.
func TestRerunOfTimes(t *testing.T) {
	for _, wrap := range []func(jsonrpc.Server) jsonrpc.Server{
		func(srv jsonrpc.Server) jsonrpc.Server { return srv },
		func(srv jsonrpc.Server) jsonrpc.Server { return &mcptest.RerunCheck{Server: srv} },
	} {
		got := failures(t, func(t testing.TB) {
			callTool(t, mcptest.Connect(t, wrap(newTool(t, nil, func(ctx context.Context) (string, error) {
				return "booked", requestConsent(ctx, "now", "Book for "+time.Now().String()+"?")
			})), agreeingClient()))
		})
		if len(got) != 1 || !strings.Contains(got[0], "inputRequests.now.params.message: got ") {
			t.Errorf("failures %q", got)
		}
	}
}

// TestRerunOfOtherMethods checks a prompt and a resource, and that a second failure of the same
// handler is not reported.
func TestRerunOfOtherMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := failures(t, func(t testing.TB) {
			n := 0
			ask := func(ctx context.Context) (string, error) {
				n++
				return "done", requestConsent(ctx, "n", fmt.Sprint(n))
			}
			srv := server.MustNew("test", "1", nil)
			err := errors.Join(
				server.AddResource(srv, mcp.Resource{URI: "test:r", Name: "r"}, ask),
				server.AddPrompt(srv, mcp.Prompt{Name: "p"}, func(ctx context.Context, _ map[string]string) (string, error) { return ask(ctx) }))
			if err != nil {
				t.Fatal(err)
			}
			opts := agreeingClient()
			opts.Input.MaxRounds = 2
			c := mcptest.Connect(t, srv, opts)
			for range 2 {
				c.ReadResource(t.Context(), "test:r")
				c.GetPrompt(t.Context(), "p", nil)
			}
		})
		want := append(
			wantFailure(`resources/read "test:r"`, `inputRequests.n.params.message: got "2", want "1"`),
			wantFailure(`prompts/get "p"`, `inputRequests.n.params.message: got "8", want "7"`)...)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("failures (-want +got):\n%s", diff)
		}
	})
}

// TestRerunInLegacyRevisions checks that the handler of a legacy call does not run twice.
func TestRerunInLegacyRevisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		opts := agreeingClient()
		opts.Revisions = []mcp.Revision{mcp.LatestLegacyRevision}
		c := mcptest.Connect(t, newTool(t, nil, func(ctx context.Context) (string, error) {
			runs++
			return "done", requestConsent(ctx, "n", fmt.Sprint(runs))
		}), opts)
		if got := callTool(t, c); got != "done" || runs != 1 {
			t.Errorf("got %q after %d runs", got, runs)
		}
	})
}

// TestRerunNotifications checks that the progress and the log messages of the two runs are
// compared, and that the client gets those of one run.
func TestRerunNotifications(t *testing.T) {
	send := func(ctx context.Context, text string) error {
		c := server.CallOf(ctx)
		return errors.Join(c.Log(mcp.LevelInfo, "", text), c.Progress(float64(len(text)), 0, text))
	}
	note := func(text string) (progress, log string) {
		return fmt.Sprintf(`the second run sent what the first did not: notifications/progress {"progress":%d,"message":%q}`, len(text), text),
			fmt.Sprintf(`the second run sent what the first did not: notifications/message {"level":"info","data":%q}`, text)
	}
	aaProgress, aaLog := note("aa")
	tests := []struct {
		name    string
		handler func(run int) handler
		want    []string
		// shown has the texts that the client gets as progress and as log messages.
		shown []string
	}{
		{"the same", func(int) handler {
			return func(ctx context.Context) (string, error) {
				return "done", errors.Join(send(ctx, "a"), send(ctx, "aa"), requestConsent(ctx, "k", "?"))
			}
		}, nil, []string{"a", "aa", "a", "aa"}},
		{"fewer", func(int) handler {
			return func(ctx context.Context) (string, error) {
				_, err := server.Once(ctx, "o", func(ctx context.Context) (int, error) { return 0, send(ctx, "a") })
				return "done", errors.Join(err, send(ctx, "aa"), requestConsent(ctx, "k", "?"))
			}
		}, nil, []string{"a", "aa", "aa"}},
		{"more", func(run int) handler {
			return func(ctx context.Context) (string, error) {
				return "done", errors.Join(send(ctx, strings.Repeat("a", run)), requestConsent(ctx, "k", "?"))
			}
		}, []string{aaProgress, aaLog}, []string{"a", "aaa"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				var progress, logs []string
				got := failures(t, func(t testing.TB) {
					c := mcptest.Connect(t, newTool(t, nil, func(ctx context.Context) (string, error) {
						runs++
						return tt.handler(runs)(ctx)
					}), agreeingClient())
					result := callTool(t, c,
						client.WithProgress(func(p *mcp.ProgressNotificationParams) { progress = append(progress, p.Message) }),
						client.WithLog(mcp.LevelInfo, func(p *mcp.LoggingMessageNotificationParams) {
							logs = append(logs, strings.Trim(string(p.Data), `"`))
						}))
					if result != "done" {
						t.Errorf("got %q", result)
					}
				})
				var want []string
				if tt.want != nil {
					want = wantFailure(`tools/call "t"`, tt.want...)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("failures (-want +got):\n%s", diff)
				}
				if !slices.Equal(progress, tt.shown) || !slices.Equal(logs, tt.shown) {
					t.Errorf("got progress %q, log %q; want %q", progress, logs, tt.shown)
				}
			})
		})
	}
}

// TestRerunOfManyNotifications checks that notifications above the limit are not compared.
func TestRerunOfManyNotifications(t *testing.T) {
	for _, tt := range []struct {
		n     int
		fails bool
	}{{999, true}, {1000, false}} {
		synctest.Test(t, func(t *testing.T) {
			runs := 0
			got := failures(t, func(t testing.TB) {
				c := mcptest.Connect(t, newTool(t, nil, func(ctx context.Context) (string, error) {
					runs++
					for range tt.n {
						if err := server.CallOf(ctx).Log(mcp.LevelInfo, "", runs); err != nil {
							return "", err
						}
					}
					return "done", requestConsent(ctx, "k", "?")
				}), agreeingClient())
				callTool(t, c, client.WithLog(mcp.LevelInfo, func(*mcp.LoggingMessageNotificationParams) {}))
			})
			if len(got) > 0 != tt.fails {
				t.Errorf("%d messages: failures %q", tt.n, got)
			}
		})
	}
}

// TestRerunWithConcurrentCall checks that the effects and log messages of another call in flight
// are ignored.
func TestRerunWithConcurrentCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		var logs []string
		srv := newTool(t, nil, func(ctx context.Context) (string, error) {
			n := runs.Add(1)
			return "done", errors.Join(server.CallOf(ctx).Log(mcp.LevelInfo, "", n), requestConsent(ctx, "k", "?"))
		})
		release := make(chan struct{})
		err := server.AddTool(srv, "other", "", func(context.Context, struct{}) (string, error) { <-release; return "", nil })
		if err != nil {
			t.Fatal(err)
		}
		c := mcptest.Connect(t, mcptest.RerunCheck{Server: srv, Snapshot: func() any { return runs.Load() }}, agreeingClient())
		other := make(chan error)
		go func() {
			_, err := c.CallTool(t.Context(), "other", nil)
			other <- err
		}()
		synctest.Wait()
		got := callTool(t, c, client.WithLog(mcp.LevelInfo, func(p *mcp.LoggingMessageNotificationParams) { logs = append(logs, string(p.Data)) }))
		close(release)
		if err := <-other; err != nil || got != "done" || runs.Load() != 3 {
			t.Errorf("got %q after %d runs; %v", got, runs.Load(), err)
		}
		if want := []string{"1", "3"}; !slices.Equal(logs, want) {
			t.Errorf("log messages: got %q, want %q", logs, want)
		}
	})
}

// TestRerunIsCanceled checks the cancellation of a call during the second run of its handler, and
// that the connection works afterwards.
func TestRerunIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		var ended error
		c := mcptest.Connect(t, newTool(t, nil, func(ctx context.Context) (string, error) {
			if runs++; runs == 2 {
				<-ctx.Done()
				ended = context.Cause(ctx)
			}
			return "done", requestConsent(ctx, "k", "?")
		}), agreeingClient())
		ctx, cancel := context.WithCancel(t.Context())
		called := make(chan error)
		go func() {
			_, err := c.CallTool(ctx, "t", nil)
			called <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-called; !errors.Is(err, context.Canceled) {
			t.Errorf("call: got %v", err)
		}
		synctest.Wait()
		if ended == nil {
			t.Error("the handler was not canceled")
		}
		if got := callTool(t, c); got != "done" || runs != 5 {
			t.Errorf("got %q after %d runs", got, runs)
		}
	})
}

// TestRerunAtTheEnd checks that a handler that returns after the end of input does not run again.
func TestRerunAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		p := mcptest.NewPeer(t, mcptest.Serve(t, newTool(t, nil, func(ctx context.Context) (string, error) {
			runs++
			time.Sleep(time.Millisecond)
			return "", requestConsent(ctx, "k", "?")
		})))
		const params = `{"name":"t","_meta":{"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}`
		p.Send(mcptest.Request(mcp.LatestRevision, 1, "tools/call", params))
		p.CloseWrite()
		p.Expect(mcptest.Result(1, `{"inputRequests":{"k":"$any"},"$any":"$any"}`))
		p.ExpectClose()
		if runs != 1 {
			t.Errorf("got %d runs", runs)
		}
	})
}

// TestRerunWire checks the retry to a server of another implementation: the complete request
// without a state, or the state instead of the responses. A retry omits responses that no handler
// has requested.
func TestRerunWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		results := []string{
			`{"resultType":"input_required","inputRequests":{"a":{}}}`,
			`{"resultType":"input_required","inputRequests":{"a":{}},"requestState":"s"}`,
			`{"resultType":"input_required","inputRequests":{"a":{}},"requestState":"t"}`,
			`{"resultType":"input_required","inputRequests":{"a":{}},"requestState":"u"}`,
			`{"resultType":"input_required","inputRequests":{},"requestState":"v"}`,
			`{"resultType":"input_required","inputRequests":7}`,
			`{"resultType":"input_required","inputRequests":{"a":{}}}`,
			`{"resultType":"task","taskId":"1"}`,
		}
		srv := serverFunc(func(_ context.Context, f jsonrpc.Framer) error {
			for _, result := range results {
				frame, err := f.ReadFrame()
				if err != nil {
					return err
				}
				got = append(got, string(frame))
				var m jsonrpc.Message
				if err := jsonrpc.Parse(frame, &m, 0); err != nil {
					return err
				}
				if err := f.WriteFrame(jsonrpc.AppendResult(nil, m.ID, []byte(result))); err != nil {
					return err
				}
			}
			return nil
		})
		p := mcptest.NewPeer(t, mcptest.Serve(t, srv))
		send := func(id int, params, result string) {
			t.Helper()
			p.Send(mcptest.Request(mcp.RevisionNone, id, "tools/call", params))
			p.Expect(mcptest.Result(id, result))
		}
		send(1, `{"name":"x","inputResponses":{"b":{}}}`, results[1])
		send(2, `{"requestState":"r","inputResponses":{"b":{}},"name":"x","_meta":{"progressToken":1,"y":2}}`, results[3])
		send(3, `{"name":"x"}`, results[4])
		send(4, `{"name":"x"}`, results[5])
		send(5, `{"name":"x"}`, results[6])
		want := []string{
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","inputResponses":{"b":{}}}}`,
			`{"jsonrpc":"2.0","id":"mcptest-rerun-1","method":"tools/call","params":{"name":"x","inputResponses":{"b":{}}}}`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"requestState":"r","inputResponses":{"b":{}},"name":"x","_meta":{"progressToken":1,"y":2}}}`,
			`{"jsonrpc":"2.0","id":"mcptest-rerun-2","method":"tools/call","params":{"requestState":"t","name":"x","_meta":{"progressToken":"mcptest-rerun-2","y":2}}}`,
			`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"x"}}`,
			`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"x"}}`,
			`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"x"}}`,
			`{"jsonrpc":"2.0","id":"mcptest-rerun-3","method":"tools/call","params":{"name":"x"}}`,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("messages to the server (-want +got):\n%s", diff)
		}
		p.ExpectClose()
	})
}
