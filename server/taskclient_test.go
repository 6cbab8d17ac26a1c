package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

const coreTasks = "2025-11-25"

// extensionMeta is the metadata of a modern client that has the tasks extension.
const extensionMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` +
	`{"extensions":{"io.modelcontextprotocol/tasks":{}},"elicitation":{}}}`

// A taskClient is a client that uses tasks, in either design (2025-11-25 or the extension).
type taskClient struct {
	t        testing.TB
	revision string
	conn     *rpc.Conn

	mu    sync.Mutex
	notes []string
	asked []string // params of elicitation/create

	hold chan struct{} // if not nil, input requests wait until it is closed
}

// dialTasks connects a client of the revision, for a principal unless it is empty.
func dialTasks(t testing.TB, srv *server.Server, revision, principal string) *taskClient {
	t.Helper()
	local, remote := net.Pipe()
	c := &taskClient{t: t, revision: revision}
	ctx := context.Background()
	if principal != "" {
		ctx = server.WithPrincipalID(ctx, principal)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx, jsonrpc.NewFramer(remote, nil)) }()
	c.conn = rpc.NewConn(jsonrpc.NewFramer(local, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine}),
		&rpc.Options{Handler: c, Cancellation: cancellation{}})
	go c.conn.Run(context.Background())
	t.Cleanup(func() {
		c.conn.Close()
		// notifications may follow
		if err := <-served; err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Serve: %v", err)
		}
	})
	if revision != modern {
		c.must("initialize", `"protocolVersion":"`+revision+`","capabilities":{"elicitation":{}},"clientInfo":{"name":"test","version":"1"}`)
		if err := c.conn.Notify(ctx, "notifications/initialized", nil); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *taskClient) Prepare(r *rpc.Request) *rpc.CostEstimate {
	if r.Kind == jsonrpc.KindRequest && c.hold != nil {
		return nil
	}
	return rpc.Immediate
}

// Handle records notifications, and accepts input requests.
func (c *taskClient) Handle(r *rpc.Request, dst []byte) ([]byte, error) {
	if r.Kind == jsonrpc.KindRequest && c.hold != nil {
		<-c.hold
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Kind == jsonrpc.KindRequest {
		c.asked = append(c.asked, string(r.Params))
		return append(dst, `{"action":"accept","content":{"name":"x"}}`...), nil
	}
	c.notes = append(c.notes, string(r.Method)+" "+string(r.Params))
	return dst, nil
}

func (c *taskClient) takeNotes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	notes := c.notes
	c.notes = nil
	return notes
}

// call sends a request with the given members of params.
func (c *taskClient) call(method, params string) (string, error) {
	if c.revision == modern {
		params = strings.TrimSuffix(extensionMeta+","+params, ",")
	}
	result, err := c.conn.Call(context.Background(), method, []byte("{"+params+"}"))
	return string(result), err
}

func (c *taskClient) must(method, params string) string {
	c.t.Helper()
	result, err := c.call(method, params)
	if err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
	return result
}

// A task is a task as clients see it, in either design.
type task struct {
	TaskID         string
	Status         string
	StatusMessage  string
	CreatedAt      string
	LastUpdatedAt  string
	TTL            *int64
	TTLMs          *int64
	PollInterval   *int64
	PollIntervalMs *int64
	InputRequests  map[string]struct{ Method string }
	Result         json.RawMessage
	Error          *struct{ Code int }
	ResultType     string
	Task           *task
}

func parseTask(t testing.TB, text string) task {
	t.Helper()
	var v task
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// start calls a tool as a task and returns the task.
func (c *taskClient) start(tool, more string) task {
	c.t.Helper()
	if c.revision == coreTasks {
		return *parseTask(c.t, c.must("tools/call", `"name":"`+tool+`","task":{"ttl":60000}`+more)).Task
	}
	v := parseTask(c.t, c.must("tools/call", `"name":"`+tool+`"`+more))
	if v.ResultType != "task" {
		c.t.Fatalf("got resultType %q", v.ResultType)
	}
	return v
}

func (c *taskClient) get(id string) task {
	c.t.Helper()
	return parseTask(c.t, c.must("tasks/get", `"taskId":"`+id+`"`))
}

// newTaskServer returns a server whose tools run as tasks.
func newTaskServer(t testing.TB, opts server.TaskOptions) *server.Server {
	t.Helper()
	srv := server.MustNew("test", "1", &server.Options{Tasks: &opts})
	support := func(name string, how mcp.TaskSupport) mcp.Tool {
		return mcp.Tool{Name: name, Execution: &mcp.ToolExecution{TaskSupport: how}}
	}
	type empty struct{}
	add := func(def mcp.Tool, fn func(ctx context.Context, call *server.Call) (*mcp.CallToolResult, error)) {
		if err := server.AddToolWith(srv, def, func(ctx context.Context, _ empty) (*mcp.CallToolResult, error) {
			return fn(ctx, server.CallOf(ctx))
		}); err != nil {
			t.Fatal(err)
		}
	}
	text := func(s string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.TextContent{Text: s}}}
	}
	add(support("slow", mcp.TaskSupportOptional), func(ctx context.Context, call *server.Call) (*mcp.CallToolResult, error) {
		call.Progress(1, 2, "")
		select {
		case <-time.After(10 * time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return text("done"), nil
	})
	add(support("quick", mcp.TaskSupportOptional), func(context.Context, *server.Call) (*mcp.CallToolResult, error) { return text("quick"), nil })
	add(support("required", mcp.TaskSupportRequired), func(context.Context, *server.Call) (*mcp.CallToolResult, error) { return text("ok"), nil })
	add(support("fails", mcp.TaskSupportOptional), func(context.Context, *server.Call) (*mcp.CallToolResult, error) { return nil, errors.New("no luck") })
	add(support("refuses", mcp.TaskSupportOptional), func(context.Context, *server.Call) (*mcp.CallToolResult, error) {
		return nil, jsonrpc.Errorf(4711, "no")
	})
	add(support("panics", mcp.TaskSupportOptional), func(context.Context, *server.Call) (*mcp.CallToolResult, error) { panic("boom") })
	add(support("asks", mcp.TaskSupportOptional), func(ctx context.Context, call *server.Call) (*mcp.CallToolResult, error) {
		if call.ClientHas("nothing") {
			return nil, nil
		}
		res, err := call.Elicit(ctx, "name", &mcp.ElicitRequestParams{Message: "Name?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)})
		if err != nil {
			return nil, err
		}
		return text(fmt.Sprintf("%s %s", res.Action, res.Content)), nil
	})
	add(mcp.Tool{Name: "plain"}, func(context.Context, *server.Call) (*mcp.CallToolResult, error) { return text("plain"), nil })
	t.Cleanup(func() {
		if err := srv.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return srv
}
