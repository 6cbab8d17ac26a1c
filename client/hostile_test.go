package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// TestNoticesAreBounded shows that the queue of a call's callbacks is limited in bytes too, and a
// message for all calls is stored once.
func TestNoticesAreBounded(t *testing.T) {
	const size = 1 << 20
	large := strings.Repeat("x", size)
	var c Client
	var all []*callbackQueue
	for range 100 {
		w := c.callbacks.newQueue(&callOptions{progress: func(*mcp.ProgressNotificationParams) {}, logLevel: mcp.LevelInfo, log: func(*mcp.LoggingMessageNotificationParams) {}})
		w.register()
		all = append(all, w)
	}
	grown := heapGrowth(func() {
		for i := range 20 {
			c.callbacks.enqueueProgress(1, fmt.Appendf(nil, "%d%s", i, large))
			c.callbacks.enqueueLog(mcp.LevelError, fmt.Appendf(nil, "%d%s", i, large))
		}
	})
	if grown > 2*maxPendingNotificationBytes+size {
		t.Errorf("%d bytes are kept", grown)
	}
	c.callbacks.enqueueLog(mcp.LevelError, []byte(strings.Repeat("y", maxPendingNotificationBytes+1)))
	for i, w := range all {
		items := w.dequeueAll()
		if last := items[len(items)-1]; len(items) != 1 || last.params[0] != 'y' || w.bytes != 0 {
			t.Errorf("watch %d: %d are left, the last begins with %.10s", i, len(items), last.params)
		}
		c.callbacks.remove(w)
	}
	runtime.KeepAlive(all)
}

// heapGrowth returns by how many bytes f grows the heap.
func heapGrowth(f func()) int {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return int(after.HeapAlloc) - int(before.HeapAlloc)
}

// TestWalkIsBounded shows that reading an endless list, with long cursors and names, takes almost
// no memory.
func TestWalkIsBounded(t *testing.T) {
	long := strings.Repeat("x", 64<<10)
	n := 0
	p := &pager[string]{maxPages: 1000, key: func(s *string) string { return *s }, fetch: func(context.Context, *string) ([]string, *string, error) {
		n++
		return []string{fmt.Sprint("item", n, long)}, new(fmt.Sprint("cursor", n, long)), nil
	}}
	next, stop := iter.Pull2(p.items(t.Context()))
	defer stop()
	grown := heapGrowth(func() {
		for range 999 {
			if _, err, _ := next(); err != nil {
				t.Fatal(err)
			}
		}
	})
	if grown > 1<<20 {
		t.Errorf("%d bytes are kept", grown)
	}
	next()
	if _, err, _ := next(); !errors.Is(err, ErrEndlessList) || n != 1000 {
		t.Errorf("%d pages, %v", n, err)
	}
}

// TestEndlessInputRounds shows that a server gets no extra time with input requests that get no
// response, or with repeated ones.
func TestEndlessInputRounds(t *testing.T) {
	for _, request := range []string{askRoots, askSample, `{"method":"unheard/of"}`, `{"method":"ping"}`} {
		t.Run(request, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts := Options{Revisions: onlyLegacy, Input: InputOptions{Roots: func(context.Context) ([]mcp.Root, error) { return nil, nil }}}
				heard := make(chan struct{})
				c := dial(t, &opts, func(s *script) {
					defer close(heard)
					s.opening(mcp.Revision20251125)
					s.expect("m")
					for i := 0; ; i++ {
						elapse(100 * time.Millisecond)
						s.ask(fmt.Sprint(i), request)
						if m := s.next(); m.Method == "notifications/cancelled" {
							break
						}
					}
				})
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				err := c.Call(ctx, "m", nil, nil, WithTimeout(time.Second))
				if d := time.Since(began); !is[*TimeoutError](err) || d != time.Second {
					t.Errorf("got %v after %v", err, d)
				}
				<-heard
			})
		})
	}
}

// TestLimitWhileLost shows that a call without enough time for its repetition fails at once, with
// the error that caused the repetition.
func TestLimitWhileLost(t *testing.T) {
	everyEra(t, func(t *testing.T, r mcp.Revision) {
		c := dial(t, &Options{Revisions: []mcp.Revision{r}, Retry: RetryPolicy{MinBackoff: time.Minute, MaxBackoff: time.Minute}}, func(s *script) {
			s.opening(r)
			s.expect("m")
		}, func(s *script) {
			s.again(r)
			s.expectEnd()
		})
		began := time.Now()
		err := c.Call(t.Context(), "m", nil, nil, WithRetry(true), WithTotalTimeout(10*time.Second))
		if d := time.Since(began); !isConnectionLost(err) || d != 0 {
			t.Errorf("got %v after %v", err, d)
		}
		elapse(time.Minute)
	})
}

// TestListenUnanswered shows that the wait for the acknowledgment of a subscription is limited, the
// first time and after a crash.
func TestListenUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newListenServer(t)
		silent := func(ctx context.Context, _ string) (string, error) { <-ctx.Done(); return "", ctx.Err() }
		s.answers["subscriptions/listen"] = inTurn(silent, s.listen, silent, s.listen)
		c := s.dial(&Options{Timeouts: Timeouts{Call: time.Minute}})
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		sub, err := c.Listen(ctx, everything)
		if d := time.Since(began); sub != nil || !is[*TimeoutError](err) || d != time.Minute {
			t.Errorf("got %v after %v", err, d)
		}
		if sub, err = c.Listen(ctx, everything); err != nil {
			t.Fatal(err)
		}
		<-s.open
		elapse(time.Hour / 2)
		if drain(sub.queue) != nil || s.times("subscriptions/listen") != 2 {
			t.Error("the subscription was repeated although it was acknowledged")
		}
		s.crash()
		<-s.open // the second attempt
		if got := next(t, sub); got.Kind != Resubscribed {
			t.Errorf("got %v", got)
		}
		if n := s.times("subscriptions/listen"); n != 4 {
			t.Errorf("listened %d times", n)
		}
	})
}

// TestHostileTools shows that the memory for a server's tools is limited, and that a schema that
// needs too much memory is not used.
func TestHostileTools(t *testing.T) {
	var tiny []mcp.Tool
	for i := range 200_000 {
		tiny = append(tiny, mcp.Tool{Name: fmt.Sprint(i)})
	}
	var b toolCatalog
	if grown := heapGrowth(func() { b.add(b.currentGeneration(), tiny) }); grown > 2*maxCatalogBytes {
		t.Errorf("%d bytes are kept of %d tools", grown, len(tiny))
	}
	runtime.KeepAlive(tiny)

	var patterns []string
	for i := range 2000 {
		patterns = append(patterns, fmt.Sprintf(`"%dx{900}":{}`, i))
	}
	for name, bomb := range map[string]string{
		"long":     `{"anyOf":[{}` + strings.Repeat(`,{}`, 1<<20) + `]}`,
		"patterns": `{"patternProperties":{` + strings.Join(patterns, ",") + `}}`,
	} {
		t.Run(name, func(t *testing.T) {
			c := newFake(t, modernDate, `{}`, map[string]answerer{
				"tools/list": says(tools(tool("tool", `,"outputSchema":`+bomb))),
				"tools/call": says(`{"content":[],"structuredContent":{}}`),
			}).dial(nil)
			known(t, c)
			grown := heapGrowth(func() {
				if _, err := c.CallTool(t.Context(), "tool", nil); err != nil {
					t.Error(err)
				}
			})
			if grown > 32<<20 {
				t.Errorf("%d bytes are kept of a schema of %d", grown, len(bomb))
			}
		})
	}
}

// TestHandlerGivesNoJSON shows that raw JSON from a handler is sent on one line, or not at all if
// it is invalid.
//
// Spec: C36 C37
func TestHandlerGivesNoJSON(t *testing.T) {
	for _, tt := range []struct {
		content, want string
	}{
		{"{\n \"a\": 1\r\n}", `{"action":"accept","content":{"a":1}}`},
		{`{"a":`, ""},
		{`[1]`, ""},
		{``, ""},
	} {
		opts := Options{Input: InputOptions{Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: json.RawMessage(tt.content)}, nil
		}}}
		legacyRevision(t, mcp.Revision20251125, opts, func(s *script) {
			s.ask("1", askForm)
			if tt.want == "" {
				if code := s.expectError("1"); code != jsonrpc.CodeInternalError {
					s.t.Errorf("%q: error %d", tt.content, code)
				}
			} else if got := s.expectResult("1"); got != tt.want {
				s.t.Errorf("%q: got %s", tt.content, got)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			c := dial(t, &opts, func(s *script) {
				s.discovers()
				s.answer(s.expect("tools/call"), required(`"inputRequests":{"k":`+askForm+`}`))
				if tt.want != "" {
					s.answer(s.expect("tools/call"), "{}")
				}
				s.expectEnd()
			})
			err := c.Call(t.Context(), "tools/call", nil, nil)
			if (err == nil) != (tt.want != "") || err != nil && !is[*InputError](err) {
				t.Errorf("%q: got %v", tt.content, err)
			}
		})
	}
}

// TestHandshakeNotRead shows that Dial returns although the server stops reading after its response
// to initialize.
func TestHandshakeNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := scriptTransport(t, func(s *script) {
			s.answer(s.expect("initialize"), initialized(legacyDate))
			elapse(time.Hour)
		})
		c, err := Dial(context.Background(), transport, &Options{Revisions: onlyLegacy})
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	})
}

// TestManyVersions shows that the text of the client's error is short although the server's error
// lists many versions.
func TestManyVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := strings.Repeat(`"`+strings.Repeat("9", 1000)+`",`, 1000) + `"1999-01-01"`
		transport := scriptTransport(t, func(s *script) {
			s.reject(s.expect("server/discover"), mcp.CodeUnsupportedProtocolVersion, `{"requested":"2026-07-28","supported":[`+names+`]}`)
			s.expectEnd()
		})
		_, err := Dial(t.Context(), transport, nil)
		if e, ok := errors.AsType[*IncompatibleError](err); !ok || len(e.Server) != 1001 || len(err.Error()) > 2000 {
			t.Errorf("got %.2000v", err)
		}
	})
}

// TestForeignAnswers shows that a call never gets the response to another: a response that can only
// be a wrong answer to the call fails it at once, and one to an earlier call is dropped.
//
// Spec: C84
func TestForeignAnswers(t *testing.T) {
	ids := func(id string) []string {
		return []string{`"` + id + `"`, id + ".0", id + "e0", "-" + id, "999", "null", "[]", "{}", `""`}
	}
	n := 2 * len(ids(""))
	everyRevision(t, Options{}, func(s *script, _ mcp.Revision) {
		old := s.expect("m")
		s.answer(old, `{"n":0}`)
		for i := range n {
			m := s.expect("m")
			s.answer(old, `{"n":-1}`)
			answer := `"result":{"n":-1}`
			if i%2 == 1 {
				answer = `"error":{"code":1,"message":"not yours"}`
			}
			s.send(`{"jsonrpc":"2.0","id":%s,%s}`, ids(string(m.ID))[i/2], answer)
			s.answer(m, `{"n":-1}`) // too late
			old = m
		}
		s.answer(s.expect("m"), `{"n":1}`)
		s.expectEnd()
	}, func(t *testing.T, c *Client, _ mcp.Revision) {
		for i := range n + 2 {
			var got struct{ N int }
			err := c.Call(t.Context(), "m", nil, &got)
			if good := i == 0 || i == n+1; good != (err == nil) || got.N < 0 || !good && !errors.Is(err, jsonrpc.ErrMalformed) {
				t.Errorf("call %d: got %d, %v", i, got.N, err)
			}
		}
	})
}

// TestLookUpIsBounded shows that the search for an unknown tool ends, and that the tool is called
// afterwards.
func TestLookUpIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		s := newFake(t, legacyDate, coreTasks, map[string]answerer{
			"tools/list": func(context.Context, string) (string, error) {
				elapse(time.Second)
				n++
				return fmt.Sprintf(`{"tools":[],"nextCursor":"%d"}`, n), nil
			},
			"tools/call": says(done),
		})
		c := s.dial(nil)
		began := time.Now()
		task, err := c.StartTool(t.Context(), "slow", nil)
		if d := time.Since(began); err != nil || task.ID() != "" || d > findToolTimeout {
			t.Errorf("got %v after %v", err, d)
		}
		elapse(time.Second) // waits for the last page, which no caller needs
	})
}
