package mcpotel_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/mcpotel"
	"mcpwire/server"
)

// dial connects a client to a server. The returned function ends both.
func dial(t *testing.T, r *recording, srv jsonrpc.Server, opts *client.Options) (c *client.Client, end func()) {
	t.Helper()
	local, otherEnd := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(context.Background(), jsonrpc.NewFramer(otherEnd, nil)) }()
	c, err := r.Dial(t.Context(), client.FramerTransport(jsonrpc.NewFramer(local, nil)), opts)
	if err != nil {
		t.Fatal(err)
	}
	return c, func() {
		c.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	}
}

func TestClientSpans(t *testing.T) {
	for _, tt := range []struct {
		revision mcp.Revision
		opening  []string
	}{
		{mcp.Revision20250618, []string{
			"client initialize: mcp.method.name=initialize mcp.protocol.version=2025-06-18 network.transport=pipe",
			"client notifications/initialized: mcp.method.name=notifications/initialized mcp.protocol.version=2025-06-18 network.transport=pipe",
		}},
		{mcp.Revision20260728, []string{"client server/discover: mcp.method.name=server/discover network.transport=pipe"}},
	} {
		t.Run(tt.revision.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := record(mcpotel.Options{Transport: "pipe"})
				srv := traced(t, record(mcpotel.Options{}), nothing)
				ended := 0
				c, end := dial(t, r, srv, &client.Options{Revisions: []mcp.Revision{tt.revision}, OnEnd: func(*client.Client, error) { ended++ }})
				for _, tool := range []string{"t", "fail", "refuse"} {
					c.CallTool(t.Context(), tool, nil)
				}
				c.GetPrompt(t.Context(), "p", nil)
				c.ReadResource(t.Context(), "x:r")
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				c.CallTool(ctx, "t", nil)
				<-time.After(2 * time.Second)
				end()
				tail := " mcp.protocol.version=" + tt.revision.String() + " network.transport=pipe"
				want := append(slices.Clone(tt.opening),
					"client tools/call t: gen_ai.operation.name=execute_tool gen_ai.tool.name=t mcp.method.name=tools/call"+tail,
					"client tools/call fail: error.type=tool_error gen_ai.operation.name=execute_tool gen_ai.tool.name=fail mcp.method.name=tools/call"+tail+" ! ",
					"client tools/call refuse: error.type=77 gen_ai.operation.name=execute_tool gen_ai.tool.name=refuse mcp.method.name=tools/call"+tail+" rpc.response.status_code=77 ! not today",
					"client prompts/get p: gen_ai.prompt.name=p mcp.method.name=prompts/get"+tail,
					"client resources/read: mcp.method.name=resources/read"+strings.Replace(tail, " network", " mcp.resource.uri=x:r network", 1),
					"client tools/call t: error.type=cancelled gen_ai.operation.name=execute_tool gen_ai.tool.name=t mcp.method.name=tools/call"+tail+" ! cancelled",
				)
				got := slices.DeleteFunc(r.ended(), func(line string) bool { return strings.Contains(line, "tools/list") })
				if diff := gocmp.Diff(want, got); diff != "" {
					t.Errorf("spans (-want +got):\n%s", diff)
				}
				metrics := r.metrics(t)
				if got := metrics["mcp.client.session.duration s"]; !slices.Equal(got, []string{"1:" + tail}) || ended != 1 {
					t.Errorf("session: %q, ended %d times", got, ended)
				}
				if got := metrics["mcp.client.operation.duration s"]; !slices.Contains(got, "1: mcp.method.name=resources/read"+tail) {
					t.Errorf("operations: %q", got)
				}
			})
		})
	}
}

// TestBothSides shows that one trace runs from the caller through the client and the server to the
// client's handler and back.
func TestBothSides(t *testing.T) {
	for _, revision := range []mcp.Revision{mcp.Revision20250618, mcp.Revision20260728} {
		t.Run(revision.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := record(mcpotel.Options{})
				srv := traced(t, r, func(ctx context.Context) (string, error) {
					_, err := server.CallOf(ctx).Roots(ctx, "where")
					return "ok", err
				})
				var inHandler trace.SpanContext
				c, end := dial(t, r, srv, &client.Options{Revisions: []mcp.Revision{revision}, Input: client.InputOptions{Roots: func(ctx context.Context) ([]mcp.Root, error) {
					inHandler = trace.SpanContextFromContext(ctx)
					return nil, nil
				}}})
				ctx, caller := r.tracers.Tracer("test").Start(t.Context(), "caller")
				if _, err := c.CallTool(ctx, "t", nil); err != nil {
					t.Fatal(err)
				}
				caller.End()
				end()
				if inHandler.TraceID() != caller.SpanContext().TraceID() {
					t.Errorf("the handler is in trace %v, not in %v", inHandler.TraceID(), caller.SpanContext().TraceID())
				}
				parents := map[string]string{}
				names := map[trace.SpanID]string{}
				for _, s := range r.spans.Ended() {
					names[s.SpanContext().SpanID()] = s.SpanKind().String() + " " + s.Name()
				}
				for _, s := range r.spans.Ended() {
					if s.SpanContext().TraceID() == caller.SpanContext().TraceID() && s.Name() != "caller" && s.Name() != "tools/list" {
						parents[names[s.SpanContext().SpanID()]] = names[s.Parent().SpanID()]
					}
				}
				want := map[string]string{"client tools/call t": "internal caller", "server tools/call t": "client tools/call t"}
				if !revision.Modern() {
					want["client roots/list"], want["server roots/list"] = "server tools/call t", "client roots/list"
				}
				if diff := gocmp.Diff(want, parents); diff != "" {
					t.Errorf("parents (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestClientFailures checks the names of errors that did not come from a server.
func TestClientFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(mcpotel.Options{})
		wait := func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}
		c, end := dial(t, r, traced(t, record(mcpotel.Options{}), wait), &client.Options{Reconnect: client.ReconnectPolicy{Disabled: true}})
		if _, err := c.CallTool(t.Context(), "t", nil, client.WithTimeout(time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		end()
		if _, err := c.CallTool(t.Context(), "t", nil); !errors.Is(err, jsonrpc.ErrClosed) {
			t.Errorf("got %v", err)
		}
		var got []string
		for _, line := range r.ended() {
			if _, rest, ok := strings.Cut(line, "error.type="); ok {
				got = append(got, strings.Fields(rest)[0])
			}
		}
		if diff := gocmp.Diff([]string{"timeout", "closed"}, got); diff != "" {
			t.Errorf("error.type (-want +got):\n%s", diff)
		}
	})
}

// TestClientNotifications shows that the notifications that servers may send are recorded, and that
// methods that they invent are not.
func TestClientNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(mcpotel.Options{})
		srv := traced(t, record(mcpotel.Options{}), func(ctx context.Context) (string, error) {
			c := server.CallOf(ctx)
			return "ok", errors.Join(c.Notify("com.example/n", nil), c.Notify("notifications/tools/list_changed", nil))
		})
		var received []string
		c, end := dial(t, r, srv, &client.Options{OnNotification: func(method string, _ json.RawMessage) { received = append(received, method) }})
		if _, err := c.CallTool(t.Context(), "t", nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		end()
		if diff := gocmp.Diff([]string{"com.example/n", "notifications/tools/list_changed"}, received); diff != "" {
			t.Errorf("notifications (-want +got):\n%s", diff)
		}
		var got []string
		for _, line := range r.ended() {
			if strings.HasPrefix(line, "server ") {
				got = append(got, line)
			}
		}
		want := []string{"server notifications/tools/list_changed: mcp.method.name=notifications/tools/list_changed mcp.protocol.version=2026-07-28"}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("spans (-want +got):\n%s", diff)
		}
	})
}
