package matrix

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/mcptest"
	"mcpwire/server"
	"mcpwire/stdio"
)

// newCrashServer returns a server with tools that crash it.
func newCrashServer(crash func()) *server.Server {
	srv := server.MustNew("crash", "1", nil)
	var calls, released counter
	type file struct{ Path string }
	once := func(_ context.Context, in file) (string, error) {
		f, err := os.OpenFile(in.Path, os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil { // the file exists: another server has crashed
			return "not crashed", nil
		}
		f.Close()
		crash()
		return "crashed", nil
	}
	must(
		server.AddTool(srv, "calls", "", func(context.Context, struct{}) (int, error) { calls.add(); return calls.value(), nil }),
		server.AddTool(srv, "crash", "", func(context.Context, struct{}) (string, error) { crash(); return "", nil }),
		server.AddTool(srv, "crash once", "", once),
		server.AddToolWith(srv, mcp.Tool{Name: "crash once, read-only", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: new(true)}}, once),
		server.AddTool(srv, "wait", "", func(ctx context.Context, _ struct{}) (string, error) { return "waited", released.wait(ctx, 1) }),
		server.AddTool(srv, "release", "", func(context.Context, struct{}) (string, error) { released.add(); return "released", nil }),
		server.AddTool(srv, "soon", "", func(ctx context.Context, _ struct{}) (string, error) {
			calls.add()
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
			return "", nil
		}),
		server.AddTool(srv, "called", "", func(ctx context.Context, _ struct{}) (string, error) { return "", calls.wait(ctx, 1) }),
	)
	return srv
}

// wantLost fails the test unless the error is that of a lost connection, with the exit status of a
// child process.
func (s *subtest) wantLost(what string, err error) {
	s.Helper()
	if err == nil || client.IsServerError(err) {
		s.Errorf("%s: got %v", what, err)
	}
	if exit, is := errors.AsType[*stdio.ExitError](err); s.transport == "child" && (!is || exit.Code != crashCode || !strings.Contains(err.Error(), "crash requested")) {
		s.Errorf("%s: got %v, want the exit status of the child", what, err)
	}
}

// pingSession uses a session over Streamable HTTP, which is lost only when the server rejects it.
func (s *subtest) pingSession(c *client.Client) {
	if s.web != nil && !s.web.sse && !s.Modern {
		c.Ping(s.Context())
	}
}

func TestCrash(t *testing.T) {
	testBehaviors(t, "crash", []behavior{
		{name: "a server that crashes is replaced", test: func(s *subtest) {
			c := s.dial(nil)
			for range 2 {
				n, err := client.CallTool[int](s.Context(), c, "calls", nil)
				ok(s, "calls", err)
				same(s, "calls", n, 1)
				_, err = c.CallTool(s.Context(), "crash", nil)
				s.wantLost("crash", err)
			}
			n, err := client.CallTool[int](s.Context(), c, "calls", nil)
			ok(s, "calls", err)
			same(s, "calls", n, 1)
			same(s, "revision", c.Revision(), s.revision)
			ok(s, "error of the client", c.Err())
		}},
		{name: "all calls in flight fail", test: func(s *subtest) {
			c, errs := s.dial(nil), make(chan error)
			for range 8 {
				go func() {
					_, err := c.CallTool(s.Context(), "wait", nil)
					errs <- err
				}()
			}
			_, err := c.CallTool(s.Context(), "crash", nil)
			s.wantLost("crash", err)
			same(s, "release", s.call(c, "release", nil), "released") // for calls that started after the crash
			for range 8 {
				if err := <-errs; err != nil {
					s.wantLost("wait", err)
				}
			}
		}},
		// Spec: C34
		{name: "a read-only call is retried", when: func(f *features) bool { return f.ToolAnnotations }, test: func(s *subtest) {
			var w wire
			c := s.dial(w.record)
			_, err := c.ListTools(s.Context(), nil) // gets the annotations
			ok(s, "list", err)
			same(s, "read-only", s.call(c, "crash once, read-only", object{"Path": filepath.Join(s.TempDir(), "f")}), "not crashed")
			ids := w.ids(s, mcp.MethodToolsCall)
			if s.web != nil && !s.Modern && len(ids) == 3 { // one of them was rejected because the session was lost
				ids = slices.Delete(ids, 1, 2)
			}
			if len(ids) != 2 || ids[0] == ids[1] {
				s.Errorf("got calls with the ids %q, want two different ids", ids)
			}
		}, instead: func(s *subtest) { // without annotations
			c := s.dial(nil)
			_, err := c.ListTools(s.Context(), nil)
			ok(s, "list", err)
			_, err = c.CallTool(s.Context(), "crash once, read-only", object{"Path": filepath.Join(s.TempDir(), "f")})
			s.wantLost("crash once", err)
		}},
		{name: "other calls are retried only on request", test: func(s *subtest) {
			c, path := s.dial(nil), filepath.Join(s.TempDir(), "f")
			_, err := c.CallTool(s.Context(), "crash once", object{"Path": path})
			s.wantLost("crash once", err)
			same(s, "again", s.call(c, "crash once", object{"Path": path}), "not crashed")
			path = filepath.Join(s.TempDir(), "f")
			same(s, "with retry", s.call(c, "crash once", object{"Path": path}, client.WithRetry(true)), "not crashed")
		}},
		// Spec: C41
		{name: "subscriptions are reopened", test: func(s *subtest) {
			c := s.dial(nil)
			sub := s.listen(c, mcp.SubscriptionFilter{ToolsListChanged: true})
			_, err := c.CallTool(s.Context(), "crash", nil)
			s.wantLost("crash", err)
			s.pingSession(c)
			same(s, "event", s.next(sub), client.Event{Kind: client.Resubscribed})
			same(s, "event", s.next(sub), client.Event{Kind: client.ToolsListChanged, Missed: true})
			same(s, "honored", sub.Accepted(), mcp.SubscriptionFilter{ToolsListChanged: true})
		}},
		{name: "a client that does not reconnect", test: func(s *subtest) {
			c := s.dial(func(o *client.Options) { o.Reconnect.Disabled = true })
			_, err := c.CallTool(s.Context(), "crash", nil)
			s.wantLost("crash", err)
			s.pingSession(c)
			<-c.Done()
			s.wantLost("error of the client", c.Err())
			_, err = c.CallTool(s.Context(), "calls", nil)
			s.wantLost("calls", err)
			if !errors.Is(err, jsonrpc.ErrClosed) {
				s.Errorf("got %v", err)
			}
		}, unless: []exception{{streamableHTTP, modern, "without a session, only requests are lost"}}},
	})
}

func TestEnd(t *testing.T) {
	testBehaviors(t, "crash", []behavior{
		{name: "accepted requests get responses after the end of input", test: func(s *subtest) {
			p := s.peer()
			p.Send(mcptest.Request(s.revision, 1, mcp.MethodToolsCall, `{"name":"wait"}`))
			p.Send(mcptest.Request(s.revision, 2, mcp.MethodToolsCall, `{"name":"release"}`))
			p.CloseWrite()
			p.ExpectUnordered(mcptest.Result(1, `{"content":[{"type":"text","text":"waited"}],"$any":"$any"}`),
				mcptest.Result(2, `{"content":[{"type":"text","text":"released"}],"$any":"$any"}`))
			p.ExpectClose()
		}, unless: []exception{{over: anyHTTP, why: "HTTP has no end of input: each request has its own body"}}},
		{name: "close a client with a call in flight", test: func(s *subtest) {
			c := s.dial(nil)
			done := make(chan error)
			go func() {
				_, err := c.CallTool(s.Context(), "soon", nil, client.WithTimeout(-1))
				done <- err
			}()
			s.call(c, "called", nil)
			ok(s, "close", c.Close())
			if err := <-done; err != nil && (!errors.Is(err, jsonrpc.ErrClosed) || client.IsServerError(err)) {
				s.Errorf("call in flight: got %v", err)
			}
			<-c.Done()
			ok(s, "error of the client", c.Err())
			ok(s, "close again", c.Close())
			_, err := c.CallTool(s.Context(), "calls", nil)
			if !errors.Is(err, jsonrpc.ErrClosed) || client.IsServerError(err) {
				s.Errorf("call after Close: got %v", err)
			}
			if _, err = c.Listen(s.Context(), mcp.SubscriptionFilter{}); !errors.Is(err, jsonrpc.ErrClosed) {
				s.Errorf("subscription after Close: got %v", err)
			}
		}},
		{name: "close a client with a subscription", test: func(s *subtest) {
			c := s.dial(nil)
			sub, err := c.Listen(s.timeoutContext(), mcp.SubscriptionFilter{ToolsListChanged: true})
			ok(s, "listen", err)
			ok(s, "close", c.Close())
			<-sub.Done()
		}},
		{name: "dial with a canceled context", test: func(s *subtest) {
			ctx, cancel := context.WithCancel(s.Context())
			cancel()
			if _, err := client.Dial(ctx, s.host(""), s.options()); !errors.Is(err, context.Canceled) {
				s.Errorf("got %v", err)
			}
		}},
		{name: "errors of the client itself", test: func(s *subtest) {
			c := s.client()
			ctx, cancel := context.WithCancel(s.Context())
			cancel()
			_, canceled := c.CallTool(ctx, "calls", nil)
			_, noObject := c.CallTool(s.Context(), "calls", []int{1})
			_, noJSON := c.CallTool(s.Context(), "calls", object{"x": func() {}})
			_, meta := c.CallTool(s.Context(), "calls", nil, client.WithMeta("io.modelcontextprotocol/protocolVersion", "x"))
			for what, err := range map[string]error{"canceled": canceled, "not an object": noObject, "not JSON": noJSON, "meta": meta} {
				if err == nil || client.IsServerError(err) {
					s.Errorf("%s: got %v", what, err)
				}
			}
			if !errors.Is(canceled, context.Canceled) {
				s.Errorf("canceled: got %v", canceled)
			}
		}},
	})
}
