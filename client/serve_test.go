package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// ask sends a request to the client.
func (s *script) ask(id, request string) {
	s.t.Helper()
	s.send(`{"jsonrpc":"2.0","id":%s,%s`, id, strings.TrimPrefix(request, "{"))
}

// legacyRevision runs a test with a legacy server in a bubble.
func legacyRevision(t *testing.T, r mcp.Revision, opts Options, serve func(*script)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		opts.Revisions = []mcp.Revision{r}
		done := make(chan struct{})
		dial(t, &opts, func(s *script) {
			defer close(done)
			s.opening(r)
			serve(s)
		})
		<-done
	})
}

// TestServerRequests: a legacy server's requests go to the handlers, and what was not declared is refused.
// Spec: C5 C32 C87 C98 C105 C114
func TestServerRequests(t *testing.T) {
	const tools = `{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5,"tools":[]}}`
	none := func(o *Options) { *o = Options{} }
	for _, tt := range []struct {
		name    string
		request string
		opts    func(*Options)
		want    string // the result
		code    jsonrpc.Code
		since   mcp.Revision // before it, the method is unknown
		bad     bool         // before it, it is -32602 instead
	}{
		{name: "ping", request: `{"method":"ping"}`, opts: none, want: `{}`},
		{name: "form", request: askForm, want: isForm, since: mcp.Revision20250618},
		{name: "form by name", request: strings.Replace(askForm, `"message"`, `"mode":"form","message"`, 1), want: isForm, since: mcp.Revision20250618},
		{name: "url", request: askURL, want: isURL, since: mcp.Revision20251125},
		{name: "url undeclared", request: askURL, opts: func(o *Options) { o.ElicitModes = ElicitForm }, code: -32602, since: mcp.Revision20250618},
		{name: "form undeclared", request: askForm, opts: func(o *Options) { o.ElicitModes = ElicitURL }, code: -32602, since: mcp.Revision20251125},
		{name: "elicitation undeclared", request: askForm, opts: none, code: -32601},
		{name: "elicitation declined", request: strings.Replace(askForm, "name?", "decline", 1), want: `{"action":"decline"}`, since: mcp.Revision20250618},
		{name: "elicitation failed", request: strings.Replace(askForm, "name?", "fail", 1), want: `{"action":"cancel"}`, since: mcp.Revision20250618},
		{name: "elicitation without a message", request: `{"method":"elicitation/create","params":{}}`, code: -32602, since: mcp.Revision20250618},
		{name: "sampling", request: askSample, want: isSample},
		{name: "sampling undeclared", request: askSample, opts: none, code: -32601},
		{name: "sampling without params", request: `{"method":"sampling/createMessage"}`, code: -32602},
		{name: "sampling with tools", request: tools, want: isSample, since: mcp.Revision20251125, bad: true},
		{name: "sampling with tools undeclared", request: tools, opts: func(o *Options) { o.SampleTools = false }, code: -32602},
		{name: "sampling refused", request: strings.Replace(askSample, "{\"messages", `{"systemPrompt":"refuse","messages`, 1), code: -1},
		{name: "sampling failed", request: strings.Replace(askSample, "{\"messages", `{"systemPrompt":"fail","messages`, 1), code: -32603},
		{name: "sampling with an error", request: strings.Replace(askSample, "{\"messages", `{"systemPrompt":"error","messages`, 1), code: -5},
		{name: "sampling panics", request: strings.Replace(askSample, "{\"messages", `{"systemPrompt":"panic","messages`, 1), code: -32603},
		{name: "roots", request: askRoots, want: isRoots},
		{name: "roots undeclared", request: askRoots, opts: none, code: -32601},
		{name: "unknown", request: `{"method":"tools/list"}`, code: -32601},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, r := range onlyLegacy {
				opts := answering()
				if tt.opts != nil {
					tt.opts(&opts)
				}
				want, code := tt.want, tt.code
				if r < tt.since {
					if want, code = "", -32601; tt.bad || tt.name == "url" && r == mcp.Revision20250618 {
						code = -32602
					}
				}
				legacyRevision(t, r, opts, func(s *script) {
					s.ask(`"q"`, tt.request)
					if code == 0 {
						if got := s.expectResult(`"q"`); got != want {
							s.t.Errorf("%v: got %s, want %s", r, got, want)
						}
					} else if got := s.expectError(`"q"`); got != code {
						s.t.Errorf("%v: got %d, want %d", r, got, code)
					}
					s.ask(`2`, `{"method":"ping"}`)
					s.expectResult("2")
				})
			}
		})
	}
}

// TestServerRequestCancelled: the handler's context ends when the server cancels, and nothing is answered; a ping is answered meanwhile.
func TestServerRequestCancelled(t *testing.T) {
	began, ended := make(chan struct{}), make(chan error, 1)
	opts := Options{Roots: func(ctx context.Context) ([]mcp.Root, error) {
		close(began)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, nil
	}}
	legacyRevision(t, mcp.Revision20251125, opts, func(s *script) {
		s.ask("1", askRoots)
		s.ask("2", `{"method":"ping"}`)
		s.expectResult("2")
		<-began // one that is cancelled before that is not handled at all
		s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		if err := <-ended; !errors.Is(err, context.Canceled) {
			s.t.Errorf("got %v", err)
		}
		s.ask("3", `{"method":"ping"}`)
		s.expectResult("3")
	})
}

// TestServerRequestsEnd: a handler's context ends with the connection, and the client does not wait long for those that do not care.
func TestServerRequestsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		opts := Options{Revisions: onlyLegacy, Roots: func(ctx context.Context) ([]mcp.Root, error) {
			<-ctx.Done()
			<-gate
			return nil, nil
		}}
		c := dial(t, &opts, func(s *script) {
			s.opening(mcp.Revision20251125)
			s.ask("1", askRoots)
			s.expectEnd()
		})
		synctest.Wait()
		began := time.Now()
		c.Close()
		if d := time.Since(began); d > drainTimeout {
			t.Errorf("closing took %v", d)
		}
		close(gate)
	})
}

// TestManyServerRequests: handlers run at once, as many as there may be, and all requests are answered.
func TestManyServerRequests(t *testing.T) {
	var handlers gauge
	opts := Options{MaxRequests: 3, Roots: func(context.Context) ([]mcp.Root, error) {
		defer handlers.enter()()
		elapse(time.Second)
		return nil, nil
	}}
	legacyRevision(t, mcp.Revision20251125, opts, func(s *script) {
		for i := range 10 {
			s.ask(fmt.Sprint(i), askRoots)
		}
		for range 10 {
			if m := s.next(); string(m.Result) != `{"roots":[]}` {
				s.t.Errorf("got %s", m.line)
			}
		}
	})
	if handlers.most != 3 {
		t.Errorf("%d handlers at once", handlers.most)
	}
}

// TestModernSilence: to a modern server nothing is answered, whatever it sends.
// Spec: C6 C38
func TestModernSilence(t *testing.T) {
	opts := answering()
	opts.Revisions = onlyModern
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, &opts, func(s *script) {
			s.discovers()
			m := s.expect("m")
			for i, request := range []string{`{"method":"ping"}`, askRoots, askForm, `{"method":"unknown"}`, `{"method":5}`} {
				s.ask(fmt.Sprint(i), request)
			}
			s.send("a stray line")
			s.send(`{"jsonrpc":"2.0"}`)
			s.send(`[{"jsonrpc":"2.0","id":9,"method":"ping"},1]`)
			elapse(time.Second)
			s.answer(m, "{}")
			s.expectEnd()
		})
		if err := c.Call(t.Context(), "m", nil, nil); err != nil {
			t.Error(err)
		}
	})
}

// TestStrayLines: what a legacy server prints by mistake is not argued with.
func TestStrayLines(t *testing.T) {
	legacyRevision(t, mcp.Revision20241105, Options{}, func(s *script) {
		s.send("Listening on stdin ...")
		s.send("{}")
		s.send(`{"jsonrpc":"2.0","id":1,"method":"ping","params":5}`)
		if got := s.expectError("1"); got != jsonrpc.CodeInvalidRequest {
			s.t.Errorf("got %d", got)
		}
		s.ask("2", `{"method":"ping"}`)
		s.expectResult("2")
	})
}

// TestRootsChanged: legacy servers that were told of roots are told of changes.
// Spec: C90
func TestRootsChanged(t *testing.T) {
	for _, declared := range []bool{true, false} {
		opts := Options{}
		if declared {
			opts = answering()
		}
		everyRevision(t, opts, func(s *script, r mcp.Revision) {
			if declared && !r.Modern() {
				s.expect("notifications/roots/list_changed")
			}
			s.answer(s.expect("m"), "{}")
			s.expectEnd()
		}, func(t *testing.T, c *Client, _ mcp.Revision) {
			if err := c.RootsChanged(t.Context()); err != nil {
				t.Error(err)
			}
			if err := c.Call(t.Context(), "m", nil, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRoots: only file URIs go to a server, and none that leads elsewhere.
// Spec: C91 C93
func TestRoots(t *testing.T) {
	for uri, ok := range map[string]bool{
		"file:///a/b": true, "file://host/c": true, "file:///a/..b": true, "file:///C:/x": true,
		"": false, "/a": false, "http://x/": false, "file:": false, "file:a": false, "file:///a/../b": false, "file:///a/%2e%2E/b": false, "file:///a/..": false, `file:///a\..\b`: false, "file:///%zz": false,
	} {
		opts := Options{Roots: func(context.Context) ([]mcp.Root, error) { return []mcp.Root{{URI: "file:///ok"}, {URI: uri}}, nil }}
		legacyRevision(t, mcp.Revision20250618, opts, func(s *script) {
			s.ask("1", askRoots)
			if m := s.next(); (m.Result != nil) != ok || strings.Contains(string(m.Error), "..") {
				s.t.Errorf("%s: got %s", uri, m.line)
			}
		})
	}
}
