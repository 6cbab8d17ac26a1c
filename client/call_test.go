package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// opening performs the server side of the opening of a connection.
func (s *script) opening(r mcp.Revision) {
	s.t.Helper()
	if r.Modern() {
		s.discovers()
		return
	}
	s.handshake(r.String())
}

// everyRevision runs a test in a bubble for each revision, with a client that supports only that
// one.
func everyRevision(t *testing.T, opts Options, serve func(*script, mcp.Revision), test func(t *testing.T, c *Client, r mcp.Revision)) {
	for _, r := range mcp.Revisions() {
		t.Run(r.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts.Revisions = []mcp.Revision{r}
				c := dial(t, &opts, func(s *script) {
					s.opening(r)
					serve(s, r)
				})
				test(t, c, r)
			})
		})
	}
}

const ourMeta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"me","version":"1"}`

// TestCallParams checks the messages of a call: each is one line with a numeric id that is used
// once.
//
// Spec: C1 C2 C3 C4 C10 C11 C36 C37
func TestCallParams(t *testing.T) {
	for _, tt := range []struct {
		name   string
		params any
		opts   []CallOption
		legacy string // params on the wire
		modern string
	}{
		{"nothing", nil, nil, `{}`, `{"_meta":{` + ourMeta + `}}`},
		{"raw", json.RawMessage(" {\"a\" : 1}\n"), nil, `{"a" : 1}`, `{"_meta":{` + ourMeta + `},"a" : 1}`},
		{"raw with line breaks", json.RawMessage("{\"a\":\n\r1}"), nil, `{"a":1}`, `{"_meta":{` + ourMeta + `},"a":1}`},
		{"marshalled", map[string]any{"a": []int{1}}, nil, `{"a":[1]}`, `{"_meta":{` + ourMeta + `},"a":[1]}`},
		{"of package mcp", &mcp.SetLevelRequestParams{Level: mcp.LevelInfo}, nil, `{"level":"info"}`, `{"_meta":{` + ourMeta + `},"level":"info"}`},
		{"with _meta", json.RawMessage(`{"_meta":{"a.b/c":1,"d":{}},"e":2}`), nil, `{"_meta":{"a.b/c":1,"d":{}},"e":2}`, `{"_meta":{` + ourMeta + `,"a.b/c":1,"d":{}},"e":2}`},
		{"with _meta, escaped", json.RawMessage(`{"e":2,"\u005fmeta":{"a":1}}`), nil, `{"_meta":{"a":1},"e":2}`, `{"_meta":{` + ourMeta + `,"a":1},"e":2}`},
		{"WithMeta", nil, []CallOption{WithMeta("x", "y"), WithMeta("n", nil)}, `{"_meta":{"x":"y","n":null}}`, `{"_meta":{` + ourMeta + `,"x":"y","n":null}}`},
		{"WithProgress", json.RawMessage(`{"a":1}`), []CallOption{WithProgress(func(*mcp.ProgressNotificationParams) {})}, `{"_meta":{"progressToken":1},"a":1}`, `{"_meta":{` + ourMeta + `,"progressToken":1},"a":1}`},
		{"WithLog", nil, []CallOption{WithLog(mcp.LevelWarning, func(*mcp.LoggingMessageNotificationParams) {})}, `{}`, `{"_meta":{` + ourMeta + `,"io.modelcontextprotocol/logLevel":"warning"}}`},
		{"all", nil, []CallOption{WithMeta("x", 1), WithProgress(func(*mcp.ProgressNotificationParams) {}), WithLog(mcp.LevelDebug, func(*mcp.LoggingMessageNotificationParams) {})},
			`{"_meta":{"progressToken":1,"x":1}}`, `{"_meta":{` + ourMeta + `,"progressToken":1,"io.modelcontextprotocol/logLevel":"debug","x":1}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			everyRevision(t, Options{Info: mcp.Implementation{Name: "me", Version: "1"}}, func(s *script, r mcp.Revision) {
				want := tt.legacy
				if r.Modern() {
					want = tt.modern
				}
				for id := 2; id < 4; id++ {
					m := s.expect("custom/method")
					if want := strings.ReplaceAll(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"custom/method","params":%s}`, id, want), `"progressToken":1`, fmt.Sprintf(`"progressToken":%d`, id-1)); m.line != want {
						if id == 2 || strings.Contains(tt.name, "With") {
							s.fail("\ngot  %s\nwant %s", m.line, want)
						}
					}
					s.answer(m, `{"b":[2]}`)
				}
				s.expectEnd()
			}, func(t *testing.T, c *Client, _ mcp.Revision) {
				for range 2 {
					var got struct{ B []int }
					if err := c.Call(t.Context(), "custom/method", tt.params, &got, tt.opts...); err != nil || len(got.B) != 1 {
						t.Errorf("got %v, %v", got, err)
					}
				}
			})
		})
	}
}

// TestBadCalls shows that invalid calls are not sent, and that their error is not a peer's.
//
// Spec: C16
func TestBadCalls(t *testing.T) {
	everyRevision(t, Options{}, func(s *script, _ mcp.Revision) { s.expectEnd() }, func(t *testing.T, c *Client, _ mcp.Revision) {
		for _, tt := range []struct {
			params any
			opt    CallOption
			want   string
		}{
			{params: json.RawMessage(`{`), want: "params"},
			{params: json.RawMessage(`[1]`), want: "must be a JSON object"},
			{params: 5, want: "must be a JSON object"},
			{params: func() {}, want: "unsupported type"},
			{params: json.RawMessage(`{"_meta":1}`), want: "_meta must be an object"},
			{params: json.RawMessage(`{"_meta":{"progressToken":1}}`), want: "is set by the client itself"},
			{opt: WithMeta("io.modelcontextprotocol/protocolVersion", "x"), want: "is set by the client itself"},
			{opt: WithMeta("-", 1), want: "_meta key"},
			{opt: WithMeta("a", make(chan int)), want: "unsupported type"},
			{opt: WithLog(mcp.LevelNone, func(*mcp.LoggingMessageNotificationParams) {}), want: "no such logging level"},
		} {
			opt := tt.opt
			if opt == nil {
				opt = WithRetry(false)
			}
			err := c.Call(t.Context(), "m", tt.params, nil, opt)
			if err == nil || IsServerError(err) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Call(ctx, "m", nil, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that has ended: %v", err)
		}
	})
}

// TestAnswers checks the results and errors that the client derives from responses.
//
// Spec: C12 C13 C14 C15
func TestAnswers(t *testing.T) {
	type result struct{ A int }
	for _, tt := range []struct {
		method, answer string
		modern, legacy string // text of the error; empty for success
	}{
		{"m", `"result":{"a":1}`, "", ""},
		{"m", `"result":{"a":1,"resultType":"complete"}`, "", ""},
		{"m", `"result":{"a":1,"resultType":"\u0063omplete"}`, "", ""},
		{"m", `"result":{"a":1,"resultType":"weird"}`, `invalid resultType "weird"`, ""},
		{"m", `"result":{"a":1,"resultType":null}`, `resultType "?"`, ""},
		{"m", `"result":{"a":1,"resultType":"ours"}`, "", ""},
		{"m", `"result":{"a":1,"resultType":"task"}`, `resultType "task"`, ""},
		{"tools/call", `"result":{"a":1,"resultType":"task"}`, "", ""},
		{"m", `"result":{"a":1,"resultType":"input_required","requestState":"x"}`, `resultType "input_required"`, ""},
		{"m", `"result":[]`, "the result is not an object", "the result is not an object"},
		{"m", `"result":null`, "the result is not an object", "the result is not an object"},
		{"m", `"result":{"a":"x"}`, "unexpected result", "unexpected result"},
		{"m", `"result":{},"error":{"code":1,"message":"x"}`, "malformed response", "malformed response"},
		{"m", `"error":{"code":-32007,"message":"odd","data":[1]}`, "odd (-32007)", "odd (-32007)"},
		{"m", `"error":{"code":-32001,"message":"Request timed out"}`, "(-32001)", "(-32001)"},
		{"m", `"error":"x"`, "malformed error", "malformed error"},
	} {
		t.Run(tt.method+" "+tt.answer, func(t *testing.T) {
			opts := Options{
				Extensions:  map[string]json.RawMessage{"io.modelcontextprotocol/tasks": json.RawMessage("{}"), "com.example/x": json.RawMessage("{}")},
				ResultTypes: []mcp.ResultType{"ours"},
			}
			everyRevision(t, opts, func(s *script, _ mcp.Revision) {
				m := s.expect(tt.method)
				s.send(`{"jsonrpc":"2.0","id":%s,%s}`, m.ID, tt.answer)
				s.expectEnd()
			}, func(t *testing.T, c *Client, r mcp.Revision) {
				var got result
				err := c.Call(t.Context(), tt.method, nil, &got, WithRetry(true))
				want := tt.legacy
				if r.Modern() {
					want = tt.modern
				}
				switch {
				case want == "":
					if err != nil || got.A != 1 {
						t.Errorf("got %+v, %v", got, err)
					}
				case err == nil || !strings.Contains(err.Error(), want):
					t.Errorf("got %v, want %q", err, want)
				case IsServerError(err) != strings.Contains(tt.answer, `"error"`) && !strings.Contains(tt.answer, `"result"`):
					t.Errorf("IsServerError(%v) is %t", err, IsServerError(err))
				case is[*ProtocolError](err) == IsServerError(err):
					t.Errorf("%T: %v", err, err)
				case errors.Is(err, context.DeadlineExceeded):
					t.Errorf("a peer's error counts as a timeout: %v", err)
				}
				if strings.HasPrefix(want, "odd") {
					e, _ := errors.AsType[*jsonrpc.Error](err)
					if diff := cmp.Diff(&jsonrpc.Error{Code: -32007, Message: "odd", Data: []byte("[1]")}, e); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
				}
			})
		})
	}
}

// TestCancel shows that a call whose context ends is canceled once, and that a response on its way
// is dropped. The reason is the cause of the context.
//
// Spec: C5 C40 C83 C84
func TestCancel(t *testing.T) {
	everyRevision(t, Options{}, func(s *script, _ mcp.Revision) {
		m := s.expect("slow")
		n := s.expect("notifications/cancelled")
		if got := memberOf(s.t, string(n.Params), "requestId"); got != string(m.ID) || n.ID != nil {
			s.fail("cancelled %s, want %s: %s", got, m.ID, n.line)
		}
		if got := memberOf(s.t, string(n.Params), "reason"); got != `"the user pressed a key"` {
			s.fail("reason %s", got)
		}
		s.answer(m, `{"late":true}`)
		s.answer(s.expect("next"), `{"next":true}`)
		s.expectEnd()
	}, func(t *testing.T, c *Client, _ mcp.Revision) {
		why := errors.New("the user pressed a key")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			elapse(time.Second)
			cancel(why)
		}()
		err := c.Call(ctx, "slow", nil, nil, WithRetry(true))
		if !errors.Is(err, context.Canceled) || !errors.Is(err, why) || IsServerError(err) {
			t.Errorf("got %v", err)
		}
		var got json.RawMessage
		if err := c.Call(t.Context(), "next", nil, &got); err != nil || string(got) != `{"next":true}` {
			t.Errorf("got %s, %v", got, err)
		}
	})
}

// TestTimeouts shows that calls time out, and are canceled at the server.
func TestTimeouts(t *testing.T) {
	progress := WithProgress(func(*mcp.ProgressNotificationParams) {})
	for _, tt := range []struct {
		name  string
		opts  Options
		call  []CallOption
		every time.Duration // interval of progress notifications
		want  time.Duration // zero means a response after an hour
		max   bool
	}{
		{name: "default", want: 5 * time.Minute},
		{name: "option", opts: Options{Timeouts: Timeouts{Call: time.Second}}, want: time.Second},
		{name: "none", opts: Options{Timeouts: Timeouts{Call: -1}}},
		{name: "WithTimeout", call: []CallOption{WithTimeout(time.Minute)}, want: time.Minute},
		{name: "WithTimeout(-1)", opts: Options{Timeouts: Timeouts{Call: time.Second}}, call: []CallOption{WithTimeout(-1)}},
		{name: "progress", call: []CallOption{WithTimeout(time.Minute), progress}, every: 59 * time.Second},
		{name: "progress that the call has not requested", call: []CallOption{WithTimeout(time.Minute)}, every: 59 * time.Second, want: time.Minute},
		{name: "progress and WithTotalTimeout", call: []CallOption{WithTimeout(time.Minute), progress, WithTotalTimeout(10 * time.Minute)}, every: 59 * time.Second, want: 10 * time.Minute, max: true},
		{name: "Timeouts.MaxCall", opts: Options{Timeouts: Timeouts{MaxCall: 10 * time.Minute}}, call: []CallOption{WithTimeout(-1)}, want: 10 * time.Minute, max: true},
		{name: "WithTotalTimeout(-1)", opts: Options{Timeouts: Timeouts{MaxCall: 10 * time.Minute}}, call: []CallOption{WithTimeout(-1), WithTotalTimeout(-1)}},
		{name: "timeout below the maximum", call: []CallOption{WithTimeout(time.Second), WithTotalTimeout(time.Minute)}, want: time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			everyRevision(t, tt.opts, func(s *script, _ mcp.Revision) {
				m := s.expect("slow")
				began := time.Now()
				if tt.every > 0 {
					for n := 1; time.Since(began)+tt.every < time.Hour && (tt.want == 0 || time.Since(began)+tt.every < tt.want); n++ {
						elapse(tt.every)
						s.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":%d}}`, n)
					}
				}
				if tt.want == 0 {
					elapse(time.Hour - time.Since(began))
					s.answer(m, "{}")
				} else if got := memberOf(s.t, string(s.expect("notifications/cancelled").Params), "requestId"); got != string(m.ID) {
					s.fail("cancelled %s", got)
				}
				s.expectEnd()
			}, func(t *testing.T, c *Client, _ mcp.Revision) {
				began := time.Now()
				err := c.Call(t.Context(), "slow", nil, nil, tt.call...)
				took := time.Since(began)
				synctest.Wait()
				if tt.want == 0 {
					if err != nil || took != time.Hour {
						t.Errorf("got %v after %v", err, took)
					}
					return
				}
				e, ok := errors.AsType[*TimeoutError](err)
				if !ok || took != tt.want || e.After != tt.want || e.Max != tt.max || e.Method != "slow" || !errors.Is(err, context.DeadlineExceeded) || IsServerError(err) {
					t.Errorf("got %v after %v", err, took)
				}
			})
		})
	}
}

// TestCallbacks shows that progress and log messages reach only the call that requested them, in
// order and before it returns.
//
// Spec: C85
func TestCallbacks(t *testing.T) {
	everyRevision(t, Options{}, func(s *script, _ mcp.Revision) {
		calls := []message{s.expect("m"), s.expect("m"), s.expect("m")}
		var tokens []string
		for _, m := range calls {
			tokens = append(tokens, memberOf(s.t, string(m.Params), "_meta", "progressToken"))
		}
		if tokens[0] == tokens[1] || tokens[1] == tokens[2] || tokens[0] == tokens[2] {
			s.fail("tokens %v", tokens)
		}
		for i := range 3 {
			for k, m := range calls {
				s.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":"%s"}}`, tokens[k], i, m.ID)
			}
			s.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":%d}}`, i)
		}
		for _, stray := range []string{`{"progressToken":99,"progress":1}`, `{"progressToken":"1","progress":1}`, `{"progress":1}`, `{"progressToken":1}`, `[]`, `{"progressToken":null,"progress":1}`} {
			s.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":%s}`, stray)
		}
		s.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug","data":"too low"}}`)
		s.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"odd","data":1}}`)
		s.send(`{"jsonrpc":"2.0","method":"notifications/message"}`)
		s.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"emergency","logger":"l","data":null}}`)
		for _, m := range calls {
			s.answer(m, fmt.Sprintf(`{"id":%s}`, m.ID))
		}
		elapse(time.Millisecond)
		s.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":9,"message":"late"}}`, tokens[0])
		s.expectEnd()
	}, func(t *testing.T, c *Client, _ mcp.Revision) {
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				var got, logs []string
				var id string
				var answer struct{ ID json.RawMessage }
				err := c.Call(t.Context(), "m", nil, &answer, WithProgress(func(p *mcp.ProgressNotificationParams) {
					got = append(got, fmt.Sprint(p.Progress))
					id = p.Message
				}), WithLog(mcp.LevelInfo, func(p *mcp.LoggingMessageNotificationParams) {
					logs = append(logs, p.Level.String()+" "+string(p.Data))
				}))
				if diff := cmp.Diff([]string{"0", "1", "2"}, got); diff != "" || id != string(answer.ID) || err != nil {
					t.Errorf("%v, call %s, progress of %s (-want +got):\n%s", err, answer.ID, id, diff)
				}
				if diff := cmp.Diff([]string{"info 0", "info 1", "info 2", "emergency null"}, logs); diff != "" {
					t.Errorf("log (-want +got):\n%s", diff)
				}
			})
		}
		wg.Wait()
		elapse(time.Second)
	})
}

// TestSlowCallback checks that a callback may be slow, and may make calls. Meanwhile the client
// keeps the newest notifications, up to a limit.
func TestSlowCallback(t *testing.T) {
	const many = 3 * maxPendingNotifications
	everyRevision(t, Options{}, func(s *script, _ mcp.Revision) {
		m := s.expect("m")
		token := memberOf(s.t, string(m.Params), "_meta", "progressToken")
		s.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, token)
		inner := s.expect("inner")
		for i := range many {
			s.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, token, i+2)
		}
		s.answer(inner, "{}")
		s.answer(m, "{}")
		s.expectEnd()
	}, func(t *testing.T, c *Client, _ mcp.Revision) {
		n, last := 0, 0.0
		err := c.Call(t.Context(), "m", nil, nil, WithProgress(func(p *mcp.ProgressNotificationParams) {
			if n++; n == 1 {
				if err := c.Call(t.Context(), "inner", nil, nil); err != nil {
					t.Error(err)
				}
			}
			if p.Progress <= last {
				t.Errorf("progress %v after %v", p.Progress, last)
			}
			last = p.Progress
		}))
		if err != nil || n != 1+maxPendingNotifications || last != many+1 {
			t.Errorf("%v: %d notifications, the last is %v", err, n, last)
		}
	})
}

// TestNotifications shows that the handlers of notifications run in order, and that a change is
// taken in before a later response is delivered.
// Spec: C7 C8
func TestNotifications(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	opts := Options{OnNotification: func(method string, params json.RawMessage) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, method+" "+string(params))
	}}
	everyRevision(t, opts, func(s *script, r mcp.Revision) {
		m := s.expect("m")
		for i := range 3 {
			s.send(`{"jsonrpc":"2.0","method":"a","params":{"n":%d}}`, i)
			s.send(`{"jsonrpc":"2.0","method":"b"}`)
		}
		s.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		s.answer(m, "{}")
		want := `{"y":1}`
		if r.Modern() {
			want = `{"_meta":{` + strings.Replace(ourMeta, `{"name":"me","version":"1"}`, `{"name":"mcpwire","version":"0"}`, 1) + `},"y":1}`
		}
		if n := s.expect("notifications/x"); n.ID != nil || string(n.Params) != want {
			s.fail("got %s", n.line)
		}
		s.expectEnd()
	}, func(t *testing.T, c *Client, _ mcp.Revision) {
		seen = nil
		before := c.tools.currentGeneration()
		if err := c.Call(t.Context(), "m", nil, nil); err != nil {
			t.Error(err)
		}
		if got := c.tools.currentGeneration(); got != before+1 {
			t.Errorf("the tools have changed %d times when the call returns, want once", got-before)
		}
		if err := c.Notify(t.Context(), "notifications/x", map[string]int{"y": 1}); err != nil {
			t.Error(err)
		}
		if err := c.Notify(t.Context(), "notifications/x", 5); err == nil {
			t.Error("sent a number")
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{`a {"n":0}`, "b ", `a {"n":1}`, "b ", `a {"n":2}`, "b ", "notifications/tools/list_changed "}, seen); diff != "" {
			t.Errorf("OnNotification (-want +got):\n%s", diff)
		}
	})
}

// TestBatchesFromServer shows that batches are read in every revision, since to reject one would
// lose the responses in it.
//
// Spec: C9
func TestBatchesFromServer(t *testing.T) {
	everyRevision(t, Options{}, func(s *script, _ mcp.Revision) {
		a, b := s.expect("m"), s.expect("m")
		s.send(`[{"jsonrpc":"2.0","id":%s,"result":{"x":2}},{"jsonrpc":"2.0","id":%s,"error":{"code":7,"message":"no"}}]`, b.ID, a.ID)
		s.expectEnd()
	}, func(t *testing.T, c *Client, _ mcp.Revision) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		var errs []error
		for range 2 {
			wg.Go(func() {
				err := c.Call(t.Context(), "m", nil, nil)
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			})
		}
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Errorf("got %v", errs)
		}
	})
}

// TestBackoff shows that the wait doubles up to a maximum, and that each wait is shortened at
// random by up to half.
func TestBackoff(t *testing.T) {
	p := RetryPolicy{MinBackoff: time.Second, MaxBackoff: 30 * time.Second}
	for _, failures := range []int{1, 2, 3, 10, 1000} {
		want := min(time.Second<<min(failures-1, 30), 30*time.Second)
		seen := make(map[time.Duration]bool)
		for range 100 {
			d := p.backoff(failures)
			if d > want || d < want/2 {
				t.Errorf("after %d failures: %v, want %v to %v", failures, d, want/2, want)
			}
			seen[d] = true
		}
		if len(seen) < 50 {
			t.Errorf("after %d failures: only %d different waits of 100", failures, len(seen))
		}
	}
}

// TestRetryWaits shows that the waits of a repeated call increase.
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
		if err := c.Call(t.Context(), "m", nil, nil, WithRetry(true)); !isConnectionLost(err) || len(times) != 6 {
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

// TestPeerErrors shows that an error of the server is returned in full, and is distinct from local
// errors.
func TestPeerErrors(t *testing.T) {
	everyRevision(t, Options{}, func(s *script, _ mcp.Revision) {
		for range 2 {
			s.reject(s.expect("tools/call"), -32000, `{"why":["a",null]}`)
		}
		s.answer(s.expect("tools/call"), "[]")
		s.expect("tools/call")
		s.expect("notifications/cancelled")
		s.expectEnd()
	}, func(t *testing.T, c *Client, _ mcp.Revision) {
		_, typed := CallTool[int](t.Context(), c, "x", nil)
		for _, err := range []error{c.Call(t.Context(), "tools/call", nil, nil), typed} {
			e, ok := errors.AsType[*jsonrpc.Error](err)
			if !ok || e.Code != -32000 || e.Message != "no" || string(e.Data) != `{"why":["a",null]}` || !IsServerError(err) {
				t.Errorf("got %v", err)
			}
		}
		if err := c.Call(t.Context(), "tools/call", nil, nil); IsServerError(err) || !is[*ProtocolError](err) {
			t.Errorf("no result: got %v", err)
		}
		if err := c.Call(t.Context(), "tools/call", nil, nil, WithTimeout(time.Second)); IsServerError(err) || !is[*TimeoutError](err) {
			t.Errorf("no answer: got %v", err)
		}
		synctest.Wait()
		c.Close()
		if err := c.Call(context.Background(), "tools/call", nil, nil); IsServerError(err) || !errors.Is(err, jsonrpc.ErrClosed) {
			t.Errorf("closed: got %v", err)
		}
	})
}

// A limitedFramer fails the first requests of a method, as a transport does whose server has
// rejected them, with the server's error in its own.
type limitedFramer struct {
	jsonrpc.Framer
	method string
	left   int
	// err replaces the error of status 429.
	err   error
	times []time.Time
	in    chan any // []byte or error
	done  chan struct{}
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
		if l.left--; l.left >= 0 && l.err != nil {
			l.in <- &jsonrpc.CallError{ID: m.ID.Clone(), Outcome: jsonrpc.OutcomeUnprocessed, Err: l.err}
			return nil
		} else if l.left >= 0 {
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

// TestRefusedConnections shows that a call waits while the server's machine refuses connections, as
// it does in a restart, within the limits of the call and of ReconnectPolicy.MaxWait.
func TestRefusedConnections(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for _, tt := range []struct {
		name     string
		failures int
		err      error
		opts     []CallOption
		ok       bool
		within   time.Duration
	}{
		{"a restart", 6, refused, nil, true, 10 * time.Second},
		{"for good", 1000, refused, nil, false, 66 * time.Second},
		{"beyond the call's time", 1000, refused, []CallOption{WithTotalTimeout(3 * time.Second)}, false, 3 * time.Second},
		{"no retry", 1, refused, []CallOption{WithRetry(false)}, false, time.Millisecond},
		{"unknown host", 1000, &net.OpError{Op: "dial", Err: &net.DNSError{}}, nil, false, time.Second},
		{"another failure", 1000, &net.OpError{Op: "proxyconnect", Err: errors.New("x")}, nil, false, time.Second},
	} {
		everyEra(t, func(t *testing.T, r mcp.Revision) {
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
				f := newLimitedFramer(inner, "m", tt.failures)
				f.err = tt.err
				return f, nil
			}), &Options{Revisions: []mcp.Revision{r}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			began := time.Now()
			err = c.Call(t.Context(), "m", nil, nil, tt.opts...)
			if d := time.Since(began); tt.ok != (err == nil) || d > tt.within || err != nil && !is[*jsonrpc.CallError](err) {
				t.Errorf("%s: after %v: %v", tt.name, d, err)
			}
		})
	}
}

// TestErrorWithinCallError shows that a request that was not carried out is repeated when the
// server allows it, even if the transport's error wraps an error of the server.
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
			if tt.ok != (err == nil) || IsServerError(err) || err != nil && !is[*jsonrpc.CallError](err) {
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
