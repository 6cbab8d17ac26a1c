package client

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/internal/rpc"
	"mcpwire/internal/test/race"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// TestServerDoesNotRead shows that calls to a server that does not read end when their time limits
// pass.
func TestServerDoesNotRead(t *testing.T) {
	everyEra(t, func(t *testing.T, r mcp.Revision) {
		c := dial(t, &Options{Revisions: []mcp.Revision{r}}, func(s *script) {
			s.opening(r)
			elapse(time.Hour)
		})
		params := json.RawMessage(`{"a":"` + strings.Repeat("x", 9<<20) + `"}`)
		began := time.Now()
		check := func(name string, want time.Duration, err error, ok bool) {
			t.Helper()
			if d := time.Since(began); d != want || !ok {
				t.Errorf("%s: %v after %v, want an end after %v", name, err, d, want)
			}
			began = time.Now()
		}
		// fills the queue
		err := c.Call(t.Context(), "first", params, nil, WithTimeout(time.Second))
		check("first call", time.Second, err, is[*TimeoutError](err))
		err = c.Call(t.Context(), "second", params, nil, WithTimeout(-1), WithTotalTimeout(2*time.Second))
		e, ok := errors.AsType[*TimeoutError](err)
		check("second call", 2*time.Second, err, ok && e.Max)
		err = c.Call(t.Context(), "third", params, nil, WithTimeout(time.Second))
		check("third call", time.Second, err, is[*TimeoutError](err) && strings.Contains(err.Error(), "does not read"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = c.Notify(ctx, "fourth", nil)
		check("notification", time.Second, err, errors.Is(err, context.DeadlineExceeded))
		c.Close()
		check("closing", flushTimeout, nil, true)
	})
}

// TestCallbackPanics shows that a panic of a callback reaches the caller, the call is canceled at
// the server, and the client continues.
func TestCallbackPanics(t *testing.T) {
	everyEra(t, func(t *testing.T, r mcp.Revision) {
		c := dial(t, &Options{Revisions: []mcp.Revision{r}}, func(s *script) {
			s.opening(r)
			m := s.expect("m")
			s.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`)
			s.expect("notifications/cancelled")
			s.answer(m, "{}")
			s.answer(s.expect("m"), "{}")
			s.expectEnd()
		})
		func() {
			defer func() {
				if recover() != "oh" {
					t.Error("the panic was swallowed")
				}
			}()
			c.Call(t.Context(), "m", nil, nil, WithProgress(func(*mcp.ProgressNotificationParams) { panic("oh") }))
		}()
		if err := c.Call(t.Context(), "m", nil, nil); err != nil {
			t.Error(err)
		}
		if n := len(c.callbacks.byToken); n != 0 {
			t.Errorf("%d calls are still registered for progress", n)
		}
	})
}

// TestAbandonedTaskCall checks that a call that requests a task from a legacy server is never
// canceled by notifications/cancelled, whatever ends it.
//
// Spec: T33
func TestAbandonedTaskCall(t *testing.T) {
	const task = `"taskId":"t","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttl":null`
	called, over := make(chan struct{}), make(chan struct{})
	open := func(s *script) (call message) {
		s.answer(s.expect("initialize"), `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"s","version":"1"}}`)
		s.expect("notifications/initialized")
		s.answer(s.expect("tools/list"), `{"tools":[{"name":"slow","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}]}`)
		return s.expect("tools/call")
	}
	t.Run("callback panics", func(t *testing.T) {
		c := dial(t, &Options{Revisions: []mcp.Revision{mcp.Revision20251125}}, func(s *script) {
			defer close(over)
			m := open(s)
			s.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`)
			<-called
			s.answer(m, `{"task":{"status":"working",`+task+`}}`)
			s.answer(s.expect("tasks/cancel"), `{"status":"cancelled",`+task+`}`)
		})
		defer func() {
			if recover() != "oh" {
				t.Error("the panic was swallowed")
			}
			close(called)
			<-over
		}()
		c.StartTool(t.Context(), "slow", nil, WithProgress(func(*mcp.ProgressNotificationParams) { panic("oh") }))
	})
	t.Run("client closes", func(t *testing.T) {
		asked := make(chan struct{})
		c := dial(t, &Options{Revisions: []mcp.Revision{mcp.Revision20251125}}, func(s *script) {
			open(s)
			close(asked)
			s.expectEnd()
		})
		done := make(chan error, 1)
		go func() {
			_, err := c.StartTool(t.Context(), "slow", nil)
			done <- err
		}()
		<-asked
		c.Close()
		if err := <-done; err == nil {
			t.Error("a call of a closed client succeeded")
		}
	})
}

// TestCallAllocations shows that a call allocates no more than package rpc does for it, in either
// era. A tool call reuses that memory, and allocates for its texts instead.
func TestCallAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	params := []byte(`{"name":"echo","arguments":{"text":"hello, world"}}`)
	open := func() jsonrpc.Framer {
		clientEnd, serverEnd := benchPipes[0].open()
		conn := rpc.NewConn(jsonrpc.NewFramer(serverEnd, nil), &rpc.Options{Handler: constant{benchResult}})
		go conn.Run(context.Background())
		t.Cleanup(func() { conn.Close() })
		return jsonrpc.NewFramer(clientEnd, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine})
	}
	conn := rpc.NewConn(open(), nil)
	go conn.Run(context.Background())
	defer conn.Close()
	alone := testing.AllocsPerRun(1000, func() {
		if _, err := conn.Call(t.Context(), "tools/call", params); err != nil {
			t.Error(err)
		}
	})
	for _, r := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
		c, err := Dial(t.Context(), FramerTransport(open()), &Options{Revisions: []mcp.Revision{r}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		n := testing.AllocsPerRun(1000, func() {
			if _, err := c.roundTrip(t.Context(), &request{method: "tools/call", params: params}); err != nil {
				t.Error(err)
			}
		})
		if n > alone || alone > 3 {
			t.Errorf("%v: %v allocations, package rpc alone has %v", r, n, alone)
		}
		type args struct {
			Text string `json:"text"`
		}
		n = testing.AllocsPerRun(1000, func() {
			if text, err := CallTool[string](t.Context(), c, "echo", args{"hello, world"}); text != "hello, world" || err != nil {
				t.Error(text, err)
			}
		})
		if n > alone {
			t.Errorf("%v: %v allocations to call a tool, %v for a call of package rpc", r, n, alone)
		}
	}
}

// TestTraceContext checks that the client sends a context's trace with its own metadata, and omits
// an invalid trace.
//
// Spec: C17
func TestTraceContext(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	everyRevision(t, Options{Info: mcp.Implementation{Name: "me", Version: "1"}}, func(s *script, r mcp.Revision) {
		m := s.expect("m")
		if got := memberOf(s.t, string(m.Params), "_meta", "traceparent"); got != `"`+parent+`"` {
			s.fail("traceparent %s: %s", got, m.line)
		}
		if got := memberOf(s.t, string(m.Params), "_meta", mcp.MetaProtocolVersion); (got != "") != r.Modern() {
			s.fail("got %s", m.line)
		}
		s.answer(m, "{}")
		m = s.expect("m")
		if strings.Contains(m.line, "traceparent") {
			s.fail("got %s", m.line)
		}
		s.answer(m, "{}")
		s.expectEnd()
	}, func(t *testing.T, c *Client, _ mcp.Revision) {
		for _, p := range []string{parent, "00-nonsense"} {
			if err := c.Call(rpc.WithTrace(t.Context(), rpc.Trace{Parent: p}), "m", nil, nil); err != nil {
				t.Error(err)
			}
		}
	})
}

// FuzzServer shows that a call ends whatever the server sends, and that the client continues.
func FuzzServer(f *testing.F) {
	for _, seed := range []string{
		`{"resultType":"complete","content":[]}`, `{}`, `[]`, `null`, `1`, `{"resultType":5}`,
		required(`"inputRequests":{"k":` + askForm + `,"l":` + askSample + `,"m":` + askRoots + `},"requestState":"x"`),
		required(`"requestState":"a\u0062"`), required(`"inputRequests":{"":{}}`), required(`"inputRequests":{"k":{"method":"elicitation/create","params":{"mode":"url"}}}`),
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, result string, modern bool) {
		if json.Valid([]byte(result)) && strings.ContainsAny(result, "\r\n") {
			t.Skip("a line of its own")
		}
		synctest.Test(t, func(t *testing.T) {
			opts := answering()
			opts.Revisions = []mcp.Revision{mcp.LatestLegacyRevision}
			if modern {
				opts.Revisions = []mcp.Revision{mcp.LatestRevision}
			}
			opts.Input.MaxRounds = 2
			c := dial(t, &opts, func(s *script) {
				s.opening(opts.Revisions[0])
				for {
					line, err := s.in.ReadString('\n')
					if err != nil {
						return
					}
					var m message
					if json.Unmarshal([]byte(line), &m) != nil || m.Method == "" {
						t.Errorf("the client sent %s", line)
						return
					}
					if m.Method == "end" {
						s.answer(m, `{"end":true}`)
					} else if m.ID != nil {
						s.answer(m, result)
					}
				}
			})
			var got json.RawMessage
			err := c.Call(t.Context(), "tools/call", json.RawMessage(`{"name":"x"}`), &got, WithTimeout(time.Second), WithRetry(true))
			if err == nil && (len(got) == 0 || got[0] != '{' || !json.Valid(got)) || IsServerError(err) {
				t.Errorf("got %s, %v", got, err)
			}
			if err := c.Call(t.Context(), "end", nil, &got); err != nil || string(got) != `{"end":true}` {
				t.Errorf("then: %s, %v", got, err)
			}
		})
	})
}
