package matrix

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"mcpwire/client"
	"mcpwire/internal/test/race"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/mcptest"
	"mcpwire/server"
)

// concurrentCalls is the number of concurrent calls in TestLoad.
const concurrentCalls = 64

// newLoadServer returns a server with a tool for large messages, and one that waits for
// concurrentCalls calls.
func newLoadServer(func()) *server.Server {
	srv := server.MustNew("load", "1", nil)
	var arrived counter
	must(
		server.AddTool(srv, "echo", "", func(_ context.Context, in struct{ Text string }) (string, error) { return in.Text, nil }),
		server.AddTool(srv, "meet", "", func(ctx context.Context, in struct{ I int }) (int, error) {
			arrived.add()
			return in.I, arrived.wait(ctx, concurrentCalls)
		}),
		server.AddResource(srv, mcp.Resource{URI: "lib://data", Name: "data"}, server.Static(make([]byte, 1<<20))),
	)
	return srv
}

// newRateServer returns a server that admits three calls of a caller, and no more for a long time.
func newRateServer(func()) *server.Server {
	srv := server.MustNew("rate", "1", &server.Options{Callers: server.CallerLimits{PerSecond: 1e-5, Burst: 3}})
	must(server.AddTool(srv, "t", "", func(context.Context, struct{}) (string, error) { return "ok", nil }))
	return srv
}

// newSingleServer returns a server that handles one call at a time. Reading lib://release ends the
// call.
func newSingleServer(func()) *server.Server {
	srv := server.MustNew("single", "1", &server.Options{Callers: server.CallerLimits{MaxConcurrent: 1, Methods: []string{mcp.MethodToolsCall}}})
	var begun, released counter
	must(
		server.AddTool(srv, "hold", "", func(ctx context.Context, _ struct{}) (string, error) {
			begun.add()
			return "held", released.wait(ctx, 1)
		}),
		server.AddResource(srv, mcp.Resource{URI: "lib://begun", Name: "begun"}, func(ctx context.Context) (string, error) { return "", begun.wait(ctx, 1) }),
		server.AddResource(srv, mcp.Resource{URI: "lib://release", Name: "release"}, func(context.Context) (string, error) { released.add(); return "", nil }),
	)
	return srv
}

func TestLoad(t *testing.T) {
	testBehaviors(t, "load", []behavior{
		// Spec: S63 C37
		{name: "a large message", test: func(s *subtest) {
			size := race.Choose(1<<20, 8<<20)
			if s.web != nil {
				size = min(size, 2<<20) // the limit of a body is 4 MiB
			}
			large := strings.Repeat("0123456789abcde\n", size/16)
			got, err := client.CallTool[string](s.Context(), s.client(), "echo", object{"Text": large})
			ok(s, "echo", err)
			if got != large {
				s.Errorf("got another text of %d bytes, want %d", len(got), len(large))
			}
			if data := s.read("lib://data").Blob; len(data) != 1<<20 {
				s.Errorf("got %d bytes of data", len(data))
			}
		}},
		{name: "64 calls at once", test: func(s *subtest) {
			c := s.client()
			var wg sync.WaitGroup
			for i := range concurrentCalls {
				wg.Go(func() { // the tool waits for all calls
					if got, err := client.CallTool[int](s.Context(), c, "meet", object{"I": i}); got != i || err != nil {
						s.Errorf("call %d: got %d, %v", i, got, err)
					}
				})
			}
			wg.Wait()
		}},
		{name: "many calls by several goroutines", test: func(s *subtest) {
			c := s.client()
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					for k := range 50 {
						text := fmt.Sprintf("%d.%d %s", i, k, strings.Repeat("x", k*i*10))
						if got, err := client.CallTool[string](s.Context(), c, "echo", object{"Text": text}); got != text || err != nil {
							s.Errorf("call %d.%d: got %q, %v", i, k, got, err)
						}
					}
				})
			}
			wg.Wait()
		}},
		// Spec: C18 S25
		{name: "control characters and other special strings", test: func(s *subtest) {
			for _, text := range []string{"", "\x00\x1f\x7f\"\\/", "\r\n\u2028\u2029\ufeff", "漢字 \U0001f600", "Content-Length: 7\r\n\r\n{}"} {
				got, err := client.CallTool[string](s.Context(), s.client(), "echo", object{"Text": text})
				ok(s, "echo", err)
				same(s, "echo", got, text)
			}
		}},
	})
}

func TestLimits(t *testing.T) {
	testBehaviors(t, "rate", []behavior{
		// Spec: S133
		{name: "a rate limit", test: func(s *subtest) {
			c := s.dial(nil)
			for range 3 {
				same(s, "call", s.call(c, "t", nil), "ok")
			}
			_, err := c.CallTool(s.Context(), "t", nil)
			e := wantLimited(s, "the fourth", err)
			var data struct {
				Limit        string
				RetryAfterMs int
			}
			ok(s, "data", json.Unmarshal(e.Data, &data))
			if data.Limit != "rate" || data.RetryAfterMs <= 0 {
				s.Errorf("got %s", e.Data)
			}
			_, err = c.ListTools(s.Context(), nil) // lists have no limit
			ok(s, "list", err)
		}},
		{name: "a limit on concurrent calls", test: func(s *subtest) {
			c := s.withServer("single").dial(nil)
			done := make(chan string)
			go func() {
				text, err := client.CallTool[string](s.Context(), c, "hold", nil)
				done <- fmt.Sprint(text, err)
			}()
			_, err := c.ReadResource(s.Context(), "lib://begun")
			ok(s, "begun", err)
			_, err = c.CallTool(s.Context(), "hold", nil)
			same(s, "data", string(wantLimited(s, "the second", err).Data), `{"limit":"concurrency"}`)
			_, err = c.ReadResource(s.Context(), "lib://release")
			ok(s, "release", err)
			same(s, "the first", <-done, "held<nil>")
			same(s, "another", s.call(c, "hold", nil), "held")
		}},
	})
}

func TestBatch(t *testing.T) {
	const end = `"$any":"$any"}`
	testBehaviors(t, "load", []behavior{
		// Spec: S12 S13
		{name: "a batch", when: func(f *features) bool { return f.Batches }, test: func(s *subtest) {
			p := s.peer()
			p.Send(`[` + mcptest.Request(s.revision, 1, mcp.MethodPing, "") + `,` + mcptest.Notification(mcp.NotificationCancelled, `{"requestId":77}`) + `,` +
				mcptest.Request(s.revision, 2, mcp.MethodToolsCall, `{"name":"echo","arguments":{"Text":"x"}}`) + `,7]`)
			var answers []struct {
				ID     any
				Result object
				Error  *jsonrpc.Error
			}
			ok(s, "answers", json.Unmarshal([]byte(p.Receive()), &answers))
			got := map[any]bool{} // the order may vary
			for _, a := range answers {
				got[a.ID] = a.Error == nil
			}
			same(s, "answers", got, map[any]bool{1.0: true, 2.0: true, nil: false})
			p.Send(`[` + mcptest.Notification(mcp.NotificationCancelled, `{"requestId":77}`) + `]`)
			p.Send(`[]`)
			p.Expect(`{"jsonrpc":"2.0",` + s.noID() + `"error":{"code":-32600,` + end + `}`)
		}, instead: func(s *subtest) {
			p := s.peer()
			p.Send(mcptest.Request(s.revision, 1, mcp.MethodToolsList, "")) // sets the revision of a connection without a handshake
			p.Expect(mcptest.Result(1, `"$any"`))
			p.Send(`[` + mcptest.Request(s.revision, 2, mcp.MethodToolsList, "") + `]`)
			p.Expect(`{"jsonrpc":"2.0",` + s.noID() + `"error":{"code":-32600,` + end + `}`)
		}},
		// Spec: S6
		{name: "invalid messages", test: func(s *subtest) {
			p := s.peer()
			p.Send(mcptest.Request(s.revision, 1, mcp.MethodToolsList, ""))
			p.Expect(mcptest.Result(1, `"$any"`))
			for frame, code := range map[string]jsonrpc.Code{`{"jsonrpc":`: jsonrpc.CodeParseError, `7`: jsonrpc.CodeInvalidRequest, `{"jsonrpc":"2.0"}`: jsonrpc.CodeInvalidRequest} {
				p.SendRaw(frame)
				p.Expect(`{"jsonrpc":"2.0",` + s.noID() + `"error":{"code":` + fmt.Sprint(int(code)) + `,` + end + `}`)
			}
			p.SendRaw(`{"jsonrpc":"2.0","id":null,"method":"tools/list"}`)
			p.Expect(`{"jsonrpc":"2.0",` + s.noID() + `"error":{"code":-32600,` + end + `}`)
			p.Send(mcptest.Request(s.revision, 2, mcp.MethodToolsList, ""))
			p.Expect(mcptest.Result(2, `"$any"`))
		}},
	})
}

// noID returns the id member of an error without a request.
func (s *subtest) noID() string {
	if s.revision >= mcp.Revision20251125 || s.web != nil { // HTTP has always omitted it
		return ""
	}
	return `"id":null,`
}
