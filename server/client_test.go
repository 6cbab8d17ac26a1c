package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"mcpwire/jsonrpc"
	"mcpwire/server"
)

const modern = "2026-07-28"

// A client is one that speaks a revision to a server, over a net.Pipe.
type client struct {
	t        testing.TB
	revision string
	conn     *jsonrpc.Conn
	served   chan error

	mu    sync.Mutex
	notes []string
}

// connect starts serving and shakes hands if the revision has it. The connection ends with the test.
func connect(t testing.TB, srv *server.Server, revision string) *client {
	t.Helper()
	return connectIn(context.Background(), t, srv, revision)
}

// connectIn is connect with a context for Serve.
func connectIn(ctx context.Context, t testing.TB, srv *server.Server, revision string) *client {
	t.Helper()
	near, far := net.Pipe()
	c := &client{t: t, revision: revision, served: make(chan error, 1)}
	go func() { c.served <- srv.Serve(ctx, jsonrpc.NewFramer(far, nil)) }()
	c.conn = jsonrpc.NewConn(jsonrpc.NewFramer(near, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine}), &jsonrpc.Options{Handler: c, Cancellation: cancellation{}})
	go c.conn.Run(context.Background())
	t.Cleanup(c.close)
	if revision != modern {
		c.must("initialize", `{"protocolVersion":"`+revision+`","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
		if err := c.conn.Notify(context.Background(), "notifications/initialized", nil); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *client) close() {
	c.conn.Close()
	if err := <-c.served; err != nil {
		c.t.Errorf("Serve: %v", err)
	}
}

// cancellation is MCP's, as far as a client needs it.
type cancellation struct{}

func (cancellation) Target(*jsonrpc.Message) (jsonrpc.ID, string, bool) { return nil, "", false }
func (cancellation) Notice(id jsonrpc.ID, _, _ string) (string, []byte) {
	return "notifications/cancelled", []byte(`{"requestId":` + id.String() + `}`)
}

// Prepare implements jsonrpc.Handler.
func (c *client) Prepare(*jsonrpc.Request) *jsonrpc.CostEstimate { return jsonrpc.Immediate }

// Handle implements jsonrpc.Handler: it remembers notifications.
func (c *client) Handle(r *jsonrpc.Request, dst []byte) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notes = append(c.notes, string(r.Method)+" "+string(r.Params))
	return dst, jsonrpc.MethodNotFound(string(r.Method))
}

// takeNotes returns the notifications so far, and forgets them.
func (c *client) takeNotes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	notes := c.notes
	c.notes = nil
	return notes
}

// call sends a request; params are the members of the object, and get the metadata of a modern one.
func (c *client) call(ctx context.Context, method, params string) (string, error) {
	if c.revision == modern {
		meta, ok := strings.CutPrefix(params, `{"_meta":{`)
		switch {
		case ok:
			params = `{"_meta":{` + modernMeta + `,` + meta
		case params == "{}" || params == "":
			params = `{"_meta":{` + modernMeta + `}}`
		default:
			params = `{"_meta":{` + modernMeta + `},` + params[1:]
		}
	}
	result, err := c.conn.Call(ctx, method, []byte(params))
	return string(result), err
}

func (c *client) must(method, params string) string {
	c.t.Helper()
	result, err := c.call(context.Background(), method, params)
	if err != nil {
		c.t.Fatal(err)
	}
	return result
}

// tool calls a tool.
func (c *client) tool(name, args string) (string, error) {
	return c.call(context.Background(), "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, args))
}

// A result is a CallToolResult as tests look at it.
type result struct {
	Text       string // of all text blocks
	Structured string
	IsError    bool
}

func (c *client) result(name, args string) (result, error) {
	c.t.Helper()
	text, err := c.tool(name, args)
	if err != nil {
		return result{}, err
	}
	var r struct {
		Content           []struct{ Text string }
		StructuredContent json.RawMessage
		IsError           bool
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		c.t.Fatalf("%v: %s", err, text)
	}
	var texts []string
	for _, block := range r.Content {
		texts = append(texts, block.Text)
	}
	return result{strings.Join(texts, "|"), string(r.StructuredContent), r.IsError}, nil
}

// list returns the names of one page of tools, and the cursor of the next.
func (c *client) list(cursor string) (names []string, next string, err error) {
	params := "{}"
	if cursor != "" {
		params = fmt.Sprintf(`{"cursor":%q}`, cursor)
	}
	text, err := c.call(context.Background(), "tools/list", params)
	if err != nil {
		return nil, "", err
	}
	var page struct {
		Tools      []struct{ Name string }
		NextCursor string
	}
	if err := json.Unmarshal([]byte(text), &page); err != nil {
		return nil, "", err
	}
	for _, tool := range page.Tools {
		names = append(names, tool.Name)
	}
	return names, page.NextCursor, nil
}

// code returns the code of a peer's error, or 0.
func code(err error) jsonrpc.Code {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return e.Code
	}
	return 0
}

// counted returns how often each note occurs, sorted.
func counted(notes []string) []string {
	count := map[string]int{}
	for _, n := range notes {
		count[n]++
	}
	var lines []string
	for n, times := range count {
		lines = append(lines, fmt.Sprintf("%d × %s", times, n))
	}
	slices.Sort(lines)
	return lines
}
