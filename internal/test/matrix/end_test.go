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

// newCrashServer has tools that crash it.
func newCrashServer(crash func()) *server.Server {
	srv := server.MustNew("crash", "1", nil)
	var calls, released counter
	type file struct{ Path string }
	once := func(_ context.Context, in file) (string, error) {
		f, err := os.OpenFile(in.Path, os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil { // it is there: another server was here before
			return "alive", nil
		}
		f.Close()
		crash()
		return "crashed", nil
	}
	must(
		server.AddTool(srv, "calls", "", func(context.Context, struct{}) (int, error) { calls.add(); return calls.value(), nil }),
		server.AddTool(srv, "crash", "", func(context.Context, struct{}) (string, error) { crash(); return "", nil }),
		server.AddTool(srv, "crash once", "", once),
		server.AddToolWith(srv, mcp.Tool{Name: "crash once, safely", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: new(true)}}, once),
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

// lost fails the test unless the error says that the connection was lost, and how a child ended.
func (s *scene) lost(what string, err error) {
	s.Helper()
	if err == nil || client.IsPeer(err) {
		s.Errorf("%s: got %v", what, err)
	}
	if exit, is := errors.AsType[*stdio.ExitError](err); s.transport == "child" && (!is || exit.Code != crashCode || !strings.Contains(err.Error(), "told to crash")) {
		s.Errorf("%s: the error does not say how the child ended: %v", what, err)
	}
}

// notice has a client use its session, if it has one over Streamable HTTP: those are not lost with
// a connection, but when the server no longer knows them.
func (s *scene) notice(c *client.Client) {
	if s.web != nil && !s.web.old && !s.Modern {
		c.Ping(s.Context())
	}
}

func TestCrash(t *testing.T) {
	try(t, "crash", []behavior{
		{name: "a server that crashes is replaced", test: func(s *scene) {
			c := s.dial(nil)
			for range 2 {
				n, err := client.CallTool[int](s.Context(), c, "calls", nil)
				ok(s, "calls", err)
				same(s, "calls", n, 1)
				_, err = c.CallTool(s.Context(), "crash", nil)
				s.lost("crash", err)
			}
			n, err := client.CallTool[int](s.Context(), c, "calls", nil)
			ok(s, "calls", err)
			same(s, "calls", n, 1)
			same(s, "revision", c.Revision(), s.revision)
			ok(s, "the client's end", c.Err())
		}},
		{name: "all calls that are under way fail", test: func(s *scene) {
			c, errs := s.dial(nil), make(chan error)
			for range 8 {
				go func() {
					_, err := c.CallTool(s.Context(), "wait", nil)
					errs <- err
				}()
			}
			_, err := c.CallTool(s.Context(), "crash", nil)
			s.lost("crash", err)
			same(s, "release", s.call(c, "release", nil), "released") // of those that began after it
			for range 8 {
				if err := <-errs; err != nil {
					s.lost("wait", err)
				}
			}
		}},
		// Spec: C34
		{name: "a call that does no harm is made again", when: func(f *features) bool { return f.ToolAnnotations }, test: func(s *scene) {
			var w wire
			c := s.dial(w.record)
			_, err := c.ListTools(s.Context(), nil) // to know which do none
			ok(s, "list", err)
			same(s, "safely", s.call(c, "crash once, safely", object{"Path": filepath.Join(s.TempDir(), "f")}), "alive")
			ids := w.ids(s, mcp.MethodToolsCall)
			if s.web != nil && !s.Modern && len(ids) == 3 { // in between the client learned that its session is gone
				ids = slices.Delete(ids, 1, 2)
			}
			if len(ids) != 2 || ids[0] == ids[1] {
				s.Errorf("calls with the ids %q", ids)
			}
		}, instead: func(s *scene) { // nothing says that it does none
			c := s.dial(nil)
			_, err := c.ListTools(s.Context(), nil)
			ok(s, "list", err)
			_, err = c.CallTool(s.Context(), "crash once, safely", object{"Path": filepath.Join(s.TempDir(), "f")})
			s.lost("crash once", err)
		}},
		{name: "a call that may do harm is not", test: func(s *scene) {
			c, path := s.dial(nil), filepath.Join(s.TempDir(), "f")
			_, err := c.CallTool(s.Context(), "crash once", object{"Path": path})
			s.lost("crash once", err)
			same(s, "again", s.call(c, "crash once", object{"Path": path}), "alive")
			path = filepath.Join(s.TempDir(), "f")
			same(s, "told to", s.call(c, "crash once", object{"Path": path}, client.WithRetry(true)), "alive")
		}},
		// Spec: C41
		{name: "subscriptions are made again", test: func(s *scene) {
			c := s.dial(nil)
			sub := s.listen(c, mcp.SubscriptionFilter{ToolsListChanged: true})
			_, err := c.CallTool(s.Context(), "crash", nil)
			s.lost("crash", err)
			s.notice(c)
			same(s, "event", s.next(sub), client.Event{Kind: client.Resubscribed})
			same(s, "event", s.next(sub), client.Event{Kind: client.ToolsListChanged, Missed: true})
			same(s, "honored", sub.Accepted(), mcp.SubscriptionFilter{ToolsListChanged: true})
		}},
		{name: "a client that does not connect again", test: func(s *scene) {
			c := s.dial(func(o *client.Options) { o.Reconnect.Disabled = true })
			_, err := c.CallTool(s.Context(), "crash", nil)
			s.lost("crash", err)
			s.notice(c)
			<-c.Done()
			s.lost("the client's end", c.Err())
			_, err = c.CallTool(s.Context(), "calls", nil)
			s.lost("calls", err)
			if !errors.Is(err, jsonrpc.ErrClosed) {
				s.Errorf("got %v", err)
			}
		}, unless: []exception{{newHTTP, modern, "without a session there is nothing to lose but requests"}}},
	})
}

func TestEnd(t *testing.T) {
	try(t, "crash", []behavior{
		{name: "what was accepted is answered at the end of input", test: func(s *scene) {
			p := s.peer()
			p.Send(mcptest.Request(s.revision, 1, mcp.MethodToolsCall, `{"name":"wait"}`))
			p.Send(mcptest.Request(s.revision, 2, mcp.MethodToolsCall, `{"name":"release"}`))
			p.CloseWrite()
			p.ExpectUnordered(mcptest.Result(1, `{"content":[{"type":"text","text":"waited"}],"$any":"$any"}`),
				mcptest.Result(2, `{"content":[{"type":"text","text":"released"}],"$any":"$any"}`))
			p.ExpectClose()
		}, unless: []exception{{over: anyHTTP, why: "there is no end of input: each request has one of its own"}}},
		{name: "a client that is closed", test: func(s *scene) {
			c := s.dial(nil)
			done := make(chan error)
			go func() {
				_, err := c.CallTool(s.Context(), "soon", nil, client.WithTimeout(-1))
				done <- err
			}()
			s.call(c, "called", nil)
			ok(s, "close", c.Close())
			if err := <-done; err != nil && (!errors.Is(err, jsonrpc.ErrClosed) || client.IsPeer(err)) {
				s.Errorf("the call under way: %v", err)
			}
			<-c.Done()
			ok(s, "why it ended", c.Err())
			ok(s, "close again", c.Close())
			_, err := c.CallTool(s.Context(), "calls", nil)
			if !errors.Is(err, jsonrpc.ErrClosed) || client.IsPeer(err) {
				s.Errorf("a call behind it: %v", err)
			}
			if _, err = c.Listen(s.Context(), mcp.SubscriptionFilter{}); !errors.Is(err, jsonrpc.ErrClosed) {
				s.Errorf("a subscription behind it: %v", err)
			}
		}},
		{name: "a client that is closed with subscriptions", test: func(s *scene) {
			c := s.dial(nil)
			sub, err := c.Listen(s.soon(), mcp.SubscriptionFilter{ToolsListChanged: true})
			ok(s, "listen", err)
			ok(s, "close", c.Close())
			<-sub.Done()
		}},
		{name: "dialing that is given up", test: func(s *scene) {
			ctx, cancel := context.WithCancel(s.Context())
			cancel()
			if _, err := client.Dial(ctx, s.host(""), s.options()); !errors.Is(err, context.Canceled) {
				s.Errorf("got %v", err)
			}
		}},
		{name: "errors of this side", test: func(s *scene) {
			c := s.client()
			ctx, cancel := context.WithCancel(s.Context())
			cancel()
			_, gone := c.CallTool(ctx, "calls", nil)
			_, noObject := c.CallTool(s.Context(), "calls", []int{1})
			_, noJSON := c.CallTool(s.Context(), "calls", object{"x": func() {}})
			_, meta := c.CallTool(s.Context(), "calls", nil, client.WithMeta("io.modelcontextprotocol/protocolVersion", "x"))
			for what, err := range map[string]error{"gone": gone, "no object": noObject, "no JSON": noJSON, "meta": meta} {
				if err == nil || client.IsPeer(err) {
					s.Errorf("%s: got %v", what, err)
				}
			}
			if !errors.Is(gone, context.Canceled) {
				s.Errorf("gone: got %v", gone)
			}
		}},
	})
}
