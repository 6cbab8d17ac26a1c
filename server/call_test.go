package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/rpc"
	"mcpwire/internal/test/buffer"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// with returns a server with one tool, t.
func with(t testing.TB, opts *server.Options, fn func(ctx context.Context, call *server.Call) (*mcp.CallToolResult, error)) *server.Server {
	t.Helper()
	srv := server.MustNew("test", "1", opts)
	if err := server.AddTool(srv, "t", "", func(ctx context.Context, _ empty) (*mcp.CallToolResult, error) {
		return fn(ctx, server.CallOf(ctx))
	}); err != nil {
		t.Fatal(err)
	}
	return srv
}

// Spec: S58
func TestProgress(t *testing.T) {
	var got []error
	srv := with(t, nil, func(_ context.Context, call *server.Call) (*mcp.CallToolResult, error) {
		for _, v := range []struct{ progress, total float64 }{
			{-1, 0}, {-1, 0}, {-2, 0}, {math.NaN(), 0}, {math.Inf(1), 0}, {0, math.NaN()}, {0, math.Inf(-1)}, {0, 10}, {1e-9, 10}, {1 << 52, 1e300}, {1e21, 1e21},
		} {
			got = append(got, call.Progress(v.progress, v.total, ""))
		}
		return nil, nil
	})
	c := connect(t, srv, modern)
	c.must("tools/call", `{"_meta":{"progressToken":"p"},"name":"t"}`)
	fails := func(err error) bool { return err != nil }
	if diff := cmp.Diff([]bool{false, true, true, true, true, true, true, false, false, false, false}, collect(got, fails)); diff != "" {
		t.Errorf("steps that fail (-want +got):\n%s", diff)
	}
	want := []string{
		`notifications/progress {"progressToken":"p","progress":-1}`,
		`notifications/progress {"progressToken":"p","progress":0,"total":10}`,
		`notifications/progress {"progressToken":"p","progress":1e-09,"total":10}`,
		`notifications/progress {"progressToken":"p","progress":4503599627370496,"total":1e+300}`,
		`notifications/progress {"progressToken":"p","progress":1e+21,"total":1e+21}`,
	}
	if diff := cmp.Diff(want, c.takeNotes()); diff != "" {
		t.Errorf("notifications (-want +got):\n%s", diff)
	}
}

func collect[T, U any](list []T, f func(T) U) []U {
	var out []U
	for _, v := range list {
		out = append(out, f(v))
	}
	return out
}

// TestProgressInOrder reports progress from many goroutines at once: the values sent must still
// grow.
//
// Spec: S58
func TestProgressInOrder(t *testing.T) {
	srv := with(t, nil, func(_ context.Context, call *server.Call) (*mcp.CallToolResult, error) {
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range 50 {
					call.Progress(float64(i*8+g), 0, "")
				}
			})
		}
		wg.Wait()
		return nil, nil
	})
	c := connect(t, srv, modern)
	c.must("tools/call", `{"_meta":{"progressToken":1},"name":"t"}`)
	last := -1.0
	for _, n := range c.takeNotes() {
		var p struct{ Progress float64 }
		if err := json.Unmarshal([]byte(strings.TrimPrefix(n, "notifications/progress ")), &p); err != nil || p.Progress <= last {
			t.Fatalf("%s after %v: %v", n, last, err)
		}
		last = p.Progress
	}
	if last < 0 {
		t.Error("no progress came")
	}
}

// TestAfterTheEnd shows that a call sends no messages after its response or cancellation.
//
// Spec: S60 S61
func TestAfterTheEnd(t *testing.T) {
	var call *server.Call
	srv := with(t, nil, func(_ context.Context, c *server.Call) (*mcp.CallToolResult, error) {
		call = c
		return nil, nil
	})
	c := connect(t, srv, "2025-06-18")
	c.must("tools/call", `{"_meta":{"progressToken":1},"name":"t"}`)
	for _, err := range []error{call.Progress(1, 0, ""), call.Log(mcp.LevelError, "", 1)} {
		if !errors.Is(err, jsonrpc.ErrRequestEnded) {
			t.Errorf("got error %v, want ErrRequestEnded", err)
		}
	}
	if !errors.Is(call.Err(), context.Canceled) {
		t.Errorf("context after the end: %v", call.Err())
	}
	if got := c.takeNotes(); got != nil {
		t.Errorf("got %q", got)
	}
}

func TestLogLevels(t *testing.T) {
	srv := with(t, nil, func(_ context.Context, call *server.Call) (*mcp.CallToolResult, error) {
		for l := mcp.LevelDebug; l <= mcp.LevelEmergency; l++ {
			if err := call.Log(l, "", l.String()); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	names := []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
	legacy, now := connect(t, srv, "2025-11-25"), connect(t, srv, modern)
	for i, name := range names {
		legacy.must("logging/setLevel", `{"level":"`+name+`"}`)
		legacy.must("tools/call", `{"name":"t"}`)
		now.must("tools/call", `{"_meta":{"io.modelcontextprotocol/logLevel":"`+name+`"},"name":"t"}`)
		want := collect(names[i:], func(name string) string {
			return fmt.Sprintf(`notifications/message {"level":%q,"data":%q}`, name, name)
		})
		for _, c := range []*client{legacy, now} {
			if diff := cmp.Diff(want, c.takeNotes()); diff != "" {
				t.Errorf("%s, %s: notifications (-want +got):\n%s", c.revision, name, diff)
			}
		}
	}
}

func TestLogData(t *testing.T) {
	var got []error
	srv := with(t, nil, func(_ context.Context, call *server.Call) (*mcp.CallToolResult, error) {
		for _, data := range []any{
			nil, "<a>\n\xff", map[string]int{"b": 1, "a": 2}, json.RawMessage("{\n\"x\": [ 1 ]\n}"),
			math.NaN(), func() {}, json.RawMessage("{"), json.RawMessage("\"\xff\""), json.RawMessage(strings.Repeat("[", 600) + strings.Repeat("]", 600)),
		} {
			got = append(got, call.Log(mcp.LevelInfo, "lo\"g", data))
		}
		got = append(got, call.Log(mcp.LevelNone, "", 1), call.Log(mcp.LevelEmergency+1, "", 1))
		return nil, nil
	})
	c := connect(t, srv, "2024-11-05")
	c.must("tools/call", `{"name":"t"}`)
	failed := collect(got, func(err error) bool { return err != nil })
	if diff := cmp.Diff([]bool{false, false, false, false, true, true, true, true, true, true, true}, failed); diff != "" {
		t.Errorf("values that fail (-want +got):\n%s\n%v", diff, got)
	}
	want := []string{
		`notifications/message {"level":"info","logger":"lo\"g","data":null}`,
		`notifications/message {"level":"info","logger":"lo\"g","data":"\u003ca\u003e\n\ufffd"}`,
		`notifications/message {"level":"info","logger":"lo\"g","data":{"a":2,"b":1}}`,
		`notifications/message {"level":"info","logger":"lo\"g","data":{"x":[1]}}`,
	}
	if diff := cmp.Diff(want, c.takeNotes()); diff != "" {
		t.Errorf("notifications (-want +got):\n%s", diff)
	}
}

// records is a log whose records can be searched.
type records struct{ buffer.Buffer }

// find returns the record with that message.
func (r *records) find(t *testing.T, msg string) map[string]any {
	t.Helper()
	for line := range strings.Lines(r.String()) {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		if record["msg"] == msg {
			return record
		}
	}
	t.Fatalf("no record %q in\n%s", msg, r)
	return nil
}

func (r *records) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(r, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func TestLogger(t *testing.T) {
	for _, goroutines := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var log records
			srv := with(t, &server.Options{Logger: log.logger(slog.LevelDebug), Goroutines: goroutines}, func(_ context.Context, call *server.Call) (*mcp.CallToolResult, error) {
				call.Logger().Info("hello", "k", 1)
				elapse(time.Second)
				return nil, errors.New("no luck")
			})
			c := connect(t, srv, modern)
			c.must("tools/call", `{"_meta":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},"name":"t"}`)
			want := map[string]any{"level": "INFO", "msg": "hello", "id": "1", "method": "tools/call", "tool": "t", "trace": "0af7651916cd43dd8448eb211c80319c", "k": 1.0}
			if diff := cmp.Diff(want, log.find(t, "hello")); diff != "" {
				t.Errorf("the tool's record (-want +got):\n%s", diff)
			}
			want = map[string]any{"level": "DEBUG", "msg": "request", "id": "1", "method": "tools/call", "tool": "t", "duration": 1e9}
			if diff := cmp.Diff(want, log.find(t, "request")); diff != "" {
				t.Errorf("the request's record (-want +got):\n%s", diff)
			}
			want = map[string]any{"level": "DEBUG", "msg": "tool failed", "id": "1", "method": "tools/call", "tool": "t", "trace": "0af7651916cd43dd8448eb211c80319c", "error": "no luck"}
			if diff := cmp.Diff(want, log.find(t, "tool failed")); diff != "" {
				t.Errorf("the failure's record (-want +got):\n%s", diff)
			}
			if _, err := c.call(context.Background(), "no/such", "{}"); err == nil {
				t.Error("no/such was answered")
			}
			if strings.Contains(log.String(), `"level":"ERROR"`) {
				t.Errorf("the failure of a tool is logged as a failure of the server:\n%s", log.String())
			}
		})
	}
}

// TestCanceledContext checks each way in which a handler can notice that its call was canceled.
func TestCanceledContext(t *testing.T) {
	for _, goroutines := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var seen []error
			srv := with(t, &server.Options{Goroutines: goroutines}, func(ctx context.Context, call *server.Call) (*mcp.CallToolResult, error) {
				derived, stop := context.WithTimeout(ctx, time.Hour)
				defer stop()
				fired := make(chan struct{})
				context.AfterFunc(ctx, func() { close(fired) })
				<-derived.Done()
				<-ctx.Done()
				<-fired
				seen = append(seen, ctx.Err(), call.Err(), derived.Err(), call.Log(mcp.LevelError, "", ""))
				if server.CallOf(derived) != call || rpc.RequestContext(derived) == nil {
					t.Error("CallOf does not find the call in a derived context")
				}
				if _, ok := ctx.Deadline(); ok {
					t.Error("there is a deadline")
				}
				return nil, nil
			})
			c := connect(t, srv, "2025-06-18")
			ctx, cancel := context.WithCancel(context.Background())
			go func() {
				elapse(time.Minute)
				cancel()
			}()
			if _, err := c.call(ctx, "tools/call", `{"name":"t"}`); !errors.Is(err, context.Canceled) {
				t.Errorf("call: %v", err)
			}
			synctest.Wait()
			want := []error{context.Canceled, context.Canceled, context.Canceled, jsonrpc.ErrRequestEnded}
			if !slices.EqualFunc(seen, want, errors.Is) {
				t.Errorf("got %v, want %v", seen, want)
			}
		})
	}
}

// TestCancellationCause checks that the cause of a handler's context says why nobody needs the
// result.
func TestCancellationCause(t *testing.T) {
	const cancelOf1 = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1`
	for _, tt := range []struct {
		name string
		end  func(remote net.Conn, stop context.CancelFunc)
		want error
		err  error // what the cause wraps
	}{
		{"canceled with a reason", func(c net.Conn, _ context.CancelFunc) {
			io.WriteString(c, cancelOf1+`,"reason":"the user left"}}`+"\n")
		}, &jsonrpc.CanceledError{Reason: "the user left"}, context.Canceled},
		{"canceled without a reason", func(c net.Conn, _ context.CancelFunc) { io.WriteString(c, cancelOf1+"}}\n") }, &jsonrpc.CanceledError{}, context.Canceled},
		{"disconnected", func(c net.Conn, _ context.CancelFunc) { c.Close() }, jsonrpc.ErrDisconnected, context.Canceled},
		{"shutdown", func(_ net.Conn, stop context.CancelFunc) { stop() }, jsonrpc.ErrShutdown, context.Canceled},
		{"timeout", func(net.Conn, context.CancelFunc) {}, server.ErrHandlerTimeout, context.DeadlineExceeded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				causes := make(chan error, 3)
				srv := with(t, &server.Options{Limits: server.Limits{HandlerTimeout: time.Hour, DrainTimeout: time.Minute}}, func(ctx context.Context, call *server.Call) (*mcp.CallToolResult, error) {
					derived, cancel := context.WithCancel(ctx)
					defer cancel()
					<-derived.Done()
					for _, ctx := range []context.Context{ctx, call, derived} {
						causes <- context.Cause(ctx)
					}
					if server.CallOf(derived) != call {
						t.Error("CallOf does not find the call after the end")
					}
					return nil, ctx.Err()
				})
				local, remote := net.Pipe()
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				served := make(chan error, 1)
				go func() { served <- srv.Serve(ctx, jsonrpc.NewFramer(local, nil)) }()
				go io.Copy(io.Discard, remote)
				io.WriteString(remote, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`+"\n")
				synctest.Wait()
				tt.end(remote, stop)
				for range cap(causes) {
					if got := <-causes; got.Error() != tt.want.Error() || !errors.Is(got, tt.err) || reflect.TypeOf(got) != reflect.TypeOf(tt.want) {
						t.Errorf("got %v, want %v", got, tt.want)
					}
				}
				remote.Close()
				<-served
			})
		})
	}
}

func TestHandlerTimeout(t *testing.T) {
	for _, goroutines := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			srv := with(t, &server.Options{Limits: server.Limits{HandlerTimeout: time.Second}, Goroutines: goroutines}, func(ctx context.Context, call *server.Call) (*mcp.CallToolResult, error) {
				began := time.Now()
				if at, ok := ctx.Deadline(); !ok || !at.Equal(began.Add(time.Second)) {
					t.Errorf("deadline %v, %t", at, ok)
				}
				derived, stop := context.WithCancel(ctx)
				defer stop()
				fired := make(chan struct{})
				context.AfterFunc(ctx, func() { close(fired) })
				<-derived.Done()
				<-fired
				if err := call.Progress(1, 0, "late"); err != nil {
					t.Errorf("progress after the timeout, before the response: %v", err)
				}
				if time.Since(began) != time.Second || ctx.Err() != context.DeadlineExceeded {
					t.Errorf("after %v: %v", time.Since(began), ctx.Err())
				}
				return nil, fmt.Errorf("query: %w", ctx.Err())
			})
			if err := server.AddTool(srv, "quick", "", func(context.Context, empty) (string, error) { return "ok", nil }); err != nil {
				t.Fatal(err)
			}
			c := connect(t, srv, modern)
			got, err := c.result("t", "{}")
			want := result{Text: "tool t did not finish within 1s", IsError: true}
			if err != nil || got != want {
				t.Errorf("got %+v, %v", got, err)
			}
			for range 10 {
				if got, err := c.result("quick", "{}"); err != nil || got.Text != "ok" {
					t.Errorf("got %+v, %v", got, err)
				}
			}
			// The timeout does not apply to subscriptions.
			listening, stop := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() {
				_, err := c.call(listening, "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`)
				ended <- err
			}()
			elapse(time.Hour)
			c.takeNotes()
			srv.RemoveTools("quick")
			synctest.Wait()
			if got := c.takeNotes(); len(got) != 1 {
				t.Errorf("after an hour: got %q", got)
			}
			stop()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("subscription: %v", err)
			}
		})
	}
}

type secretError struct{ path string }

func (e *secretError) Error() string { return "open " + e.path }

// badJSON is an output whose encoding fails.
type badJSON struct{}

func (badJSON) MarshalJSON() ([]byte, error) { return nil, &secretError{"/home/me/.secret"} }

// Spec: S136
func TestFailures(t *testing.T) {
	nan := math.NaN()
	meta := func(text string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.TextContent{Text: "x", Meta: json.RawMessage(text)}}}
	}
	returns := func(res *mcp.CallToolResult, err error) func(*server.Server) error {
		return func(srv *server.Server) error {
			return server.AddTool(srv, "t", "", func(context.Context, empty) (*mcp.CallToolResult, error) { return res, err })
		}
	}
	for _, tt := range []struct {
		name string
		add  func(*server.Server) error
		want string // the error, or the text of the tool's failure
	}{
		{"error", returns(nil, errors.New("no\nluck\xff")), "failure: no\nluck\ufffd"},
		{"empty error", returns(nil, errors.New("")), "failure: "},
		{"protocol error", returns(nil, &jsonrpc.Error{Code: -32602, Message: "m", Data: []byte(`{"a":1}`)}), `-32602 m {"a":1}`},
		{"wrapped protocol error", returns(nil, fmt.Errorf("w: %w", jsonrpc.Errorf(7, "m"))), "7 m "},
		{"protocol error without a code", returns(nil, &jsonrpc.Error{Message: "m"}), "-32603 m "},
		{"protocol error with bad data", returns(nil, &jsonrpc.Error{Code: 1, Message: "m", Data: []byte("{")}), "1 m "},
		{"panic", func(srv *server.Server) error {
			return server.AddTool(srv, "t", "", func(context.Context, empty) (string, error) { panic("/etc/passwd") })
		}, `-32603 internal error {"exception":"panic"}`},
		{"panic with an error", func(srv *server.Server) error {
			return server.AddTool(srv, "t", "", func(context.Context, empty) (string, error) { panic(&secretError{"/etc/passwd"}) })
		}, `-32603 internal error {"exception":"server_test.secretError"}`},
		{"nil block", returns(&mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.TextContent{}, nil}}, nil), "-32603 tool t returned invalid output: content[1]: content block is nil "},
		{"nil pointer to a block", returns(&mcp.CallToolResult{Content: []mcp.ContentBlock{(*mcp.ImageContent)(nil)}}, nil), "-32603 tool t returned invalid output: content[0]: content block is nil "},
		{"meta of a block not JSON", returns(meta(`{"a":`), nil), "-32603 tool t returned invalid output: content[0]: _meta: invalid JSON at byte 5: unexpected end of text, want a value "},
		{"meta of a block not an object", returns(meta(`1`), nil), "-32603 tool t returned invalid output: content[0]: _meta must be a JSON object "},
		{"meta not an object", returns(&mcp.CallToolResult{Meta: json.RawMessage(" \"{\"")}, nil), "-32603 tool t returned invalid output: _meta must be a JSON object "},
		{"priority", returns(&mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.AudioContent{Annotations: &mcp.Annotations{Priority: &nan}}}}, nil),
			"-32603 tool t returned invalid output: content[0]: annotations: priority NaN is not from 0 to 1 "},
		{"structured not JSON", returns(&mcp.CallToolResult{StructuredContent: json.RawMessage("{]")}, nil),
			"-32603 tool t returned invalid output: structured content: invalid JSON at byte 1: unexpected ']', want a member name in quotes "},
		{"structured empty", returns(&mcp.CallToolResult{StructuredContent: json.RawMessage{}}, nil),
			"-32603 tool t returned invalid output: structured content: invalid JSON at byte 0: unexpected end of text, want a value "},
		{"nil content", given[mcp.ContentBlock](nil), "-32603 tool t returned invalid output: content[0]: content block is nil "},
		{"nil struct", given[*base](nil), "-32603 tool t returned invalid output: result: expected a value, got a nil *server_test.base "},
		{"constraint", given(base{"A"}), `-32603 tool t returned invalid output: result.id: expected a string matching the pattern ^[a-z]+$, got "A" `},
		{"own schema", func(srv *server.Server) error {
			def := mcp.Tool{Name: "t", OutputSchema: json.RawMessage(`{"type":"object","required":["b"]}`)}
			return server.AddToolWith(srv, def, func(context.Context, empty) (map[string]int, error) { return map[string]int{"a": 1}, nil })
		}, `-32603 tool t returned invalid output: result: missing required property "b" `},
		{"own schema, raw tool", func(srv *server.Server) error {
			def := mcp.Tool{Name: "t", OutputSchema: json.RawMessage(`{"type":"object","required":["b"]}`)}
			return srv.AddRawTool(def, func(*server.Call, json.RawMessage) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{StructuredContent: json.RawMessage(`{}`)}, nil
			})
		}, `-32603 tool t returned invalid output: result: missing required property "b" `},
		{"own schema, no structured content", func(srv *server.Server) error {
			def := mcp.Tool{Name: "t", OutputSchema: json.RawMessage(`{"type":"object"}`)}
			return srv.AddRawTool(def, func(*server.Call, json.RawMessage) (*mcp.CallToolResult, error) { return nil, nil })
		}, "-32603 tool t returned invalid output: structured content is missing, but the tool has an output schema "},
		{"own schema, but the tool failed", func(srv *server.Server) error {
			def := mcp.Tool{Name: "t", OutputSchema: json.RawMessage(`{"type":"object"}`)}
			return srv.AddRawTool(def, func(*server.Call, json.RawMessage) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.TextContent{Text: "down"}}, IsError: true}, nil
			})
		}, "failure: down"},
		{"encoding fails", given(badJSON{}), `-32603 internal error {"exception":"server_test.secretError"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := server.MustNew("test", "1", nil)
			if err := tt.add(srv); err != nil {
				t.Fatal(err)
			}
			c := connect(t, srv, modern)
			for range 8 { // first on other goroutines, later on the reading goroutine
				got := ""
				res, err := c.result("t", "{}")
				if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
					got = fmt.Sprintf("%d %s %s", e.Code, e.Message, e.Data)
				} else if err == nil && res.IsError {
					got = "failure: " + res.Text
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Fatalf("(-want +got, %+v, %v):\n%s", res, err, diff)
				}
			}
		})
	}
}
