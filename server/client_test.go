package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/server"
)

const modern = "2026-07-28"

// A client is a test client of one revision that is connected to a server by net.Pipe.
type client struct {
	t        testing.TB
	revision string
	conn     *rpc.Conn
	served   chan error

	mu    sync.Mutex
	notes []string
}

// connect serves srv, and performs the handshake if the revision has one. The connection is closed
// when the test ends.
func connect(t testing.TB, srv *server.Server, revision string) *client {
	t.Helper()
	return connectIn(context.Background(), t, srv, revision)
}

// connectIn is connect with a context for Serve.
func connectIn(ctx context.Context, t testing.TB, srv *server.Server, revision string) *client {
	t.Helper()
	local, remote := net.Pipe()
	c := &client{t: t, revision: revision, served: make(chan error, 1)}
	go func() { c.served <- srv.Serve(ctx, jsonrpc.NewFramer(remote, nil)) }()
	c.conn = rpc.NewConn(jsonrpc.NewFramer(local, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine}), &rpc.Options{Handler: c, Cancellation: cancellation{}})
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

// cancellation implements MCP's cancellation for a client.
type cancellation struct{}

func (cancellation) Target(*jsonrpc.Message) (jsonrpc.ID, string, bool) { return nil, "", false }
func (cancellation) Notice(id jsonrpc.ID, _, _ string) (string, []byte) {
	return "notifications/cancelled", []byte(`{"requestId":` + id.String() + `}`)
}

// Prepare implements rpc.Handler.
func (c *client) Prepare(*rpc.Request) *rpc.CostEstimate { return rpc.Immediate }

// Handle implements rpc.Handler: it records notifications.
func (c *client) Handle(r *rpc.Request, dst []byte) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notes = append(c.notes, string(r.Method)+" "+string(r.Params))
	return dst, jsonrpc.MethodNotFound(string(r.Method))
}

// takeNotes returns the notifications since the last call.
func (c *client) takeNotes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	notes := c.notes
	c.notes = nil
	return notes
}

// call sends a request. params are the members of its params object; a modern request also gets
// metadata.
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

// A result is a CallToolResult in a form that tests compare.
type result struct {
	Text       string // all text blocks
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

// counted returns each notification with its count, sorted.
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

// elapse advances the clock of the synctest bubble by d.
func elapse(d time.Duration) { <-time.After(d) }

var allRevisions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", modern}

// everything declares all capabilities that allow input requests.
const everything = `{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{},"context":{}},"roots":{}}`

// An inputClient is a client that responds to input requests in the form of each era.
type inputClient struct {
	t              testing.TB
	revision, caps string
	conn           *rpc.Conn
	served         chan error

	// answer returns the JSON text of a result. It may be called concurrently.
	answer func(ctx context.Context, method, params string) (string, error)

	mu       sync.Mutex
	asked    []string // methods and params, in the order of arrival
	notes    []string
	requests int // requests of the server
	rounds   int // results with input_required
}

// respond connects an inputClient. The connection is closed when the test ends.
func respond(t testing.TB, srv *server.Server, revision, caps string) *inputClient {
	t.Helper()
	return respondAs(t, context.Background(), srv, revision, caps)
}

// respondAs is respond with a context for Serve.
func respondAs(t testing.TB, ctx context.Context, srv *server.Server, revision, caps string) *inputClient {
	t.Helper()
	local, remote := net.Pipe()
	c := &inputClient{t: t, revision: revision, caps: caps, served: make(chan error, 1)}
	go func() { c.served <- srv.Serve(ctx, jsonrpc.NewFramer(remote, nil)) }()
	c.conn = rpc.NewConn(jsonrpc.NewFramer(local, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine}), &rpc.Options{Handler: c, Cancellation: cancellationBoth{}})
	go c.conn.Run(context.Background())
	t.Cleanup(c.close)
	if revision != modern {
		hello := `{"protocolVersion":"` + revision + `","capabilities":` + caps + `,"clientInfo":{"name":"test","version":"1"}}`
		if _, err := c.conn.Call(context.Background(), "initialize", []byte(hello)); err != nil {
			t.Fatal(err)
		}
		if err := c.conn.Notify(context.Background(), "notifications/initialized", nil); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *inputClient) close() {
	c.conn.Close()
	if err := <-c.served; err != nil {
		c.t.Errorf("Serve: %v", err)
	}
	if c.revision == modern && c.requests > 0 {
		c.t.Errorf("the server sent %d requests to a modern client", c.requests)
	}
}

// cancellationBoth implements MCP's cancellation, including that of the server's requests.
type cancellationBoth struct{ cancellation }

func (cancellationBoth) Target(m *jsonrpc.Message) (jsonrpc.ID, string, bool) {
	if string(m.Method) != "notifications/cancelled" {
		return nil, "", false
	}
	id, _ := m.Param("requestId")
	return jsonrpc.ID(id), "", true
}

// Prepare implements rpc.Handler.
func (c *inputClient) Prepare(*rpc.Request) *rpc.CostEstimate { return nil }

// Handle implements rpc.Handler.
func (c *inputClient) Handle(r *rpc.Request, dst []byte) ([]byte, error) {
	if r.Kind == jsonrpc.KindNotification {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.notes = append(c.notes, string(r.Method)+" "+string(r.Params))
		return dst, nil
	}
	c.mu.Lock()
	c.requests++
	c.mu.Unlock()
	var ctx rpc.Context
	r.InitContext(&ctx, rpc.Trace{})
	text, err := c.ask(&ctx, string(r.Method), string(r.Params))
	return append(dst, text...), err
}

func (c *inputClient) ask(ctx context.Context, method, params string) (string, error) {
	c.mu.Lock()
	if params != "" && params != "{}" { // roots/list has params in one era only
		c.asked = append(c.asked, method+" "+canonical(c.t, params))
	} else {
		c.asked = append(c.asked, method)
	}
	c.mu.Unlock()
	if c.answer == nil {
		return "", jsonrpc.MethodNotFound(method)
	}
	return c.answer(ctx, method, params)
}

// canonical returns a JSON text with the members of objects sorted.
func canonical(t testing.TB, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Errorf("%v: %s", err, text)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Error(err)
	}
	return string(out)
}

// takeAsked returns the input requests so far, sorted, and clears them.
func (c *inputClient) takeAsked() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := c.asked
	c.asked = nil
	slices.Sort(asked)
	return asked
}

// A reply is the result of one modern request.
type reply struct {
	Text          string `json:"-"` // the complete result
	ResultType    string
	InputRequests map[string]struct {
		Method string
		Params json.RawMessage
	}
	RequestState *string
	TTLMs        *int64
	Content      []struct{ Text string }
	IsError      bool
}

// keys returns the sorted keys of the input requests.
func (r *reply) keys() string { return strings.Join(slices.Sorted(maps.Keys(r.InputRequests)), " ") }

// state returns the request state, or "".
func (r *reply) state() string {
	if r.RequestState == nil {
		return ""
	}
	return *r.RequestState
}

// request sends one request. params are the members of its params object; a modern request also
// gets metadata.
func (c *inputClient) request(ctx context.Context, method, params string) (*reply, error) {
	if c.revision == modern {
		meta := `{"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modern + `","io.modelcontextprotocol/clientCapabilities":` + c.caps + `}`
		if params != "{}" {
			meta += ","
		}
		params = meta + params[1:]
	}
	text, err := c.conn.Call(ctx, method, []byte(params))
	if err != nil {
		return nil, err
	}
	r := &reply{Text: string(text)}
	if err := json.Unmarshal(text, r); err != nil {
		c.t.Errorf("%v: %s", err, text)
	}
	return r, nil
}

// retry returns the params of the next round: answers is the inputResponses object or empty, state
// is the request state or empty.
func retry(params, answers, state string) string {
	p := strings.TrimSuffix(params, "}")
	if answers != "" {
		p += `,"inputResponses":` + answers
	}
	if state != "" {
		p += fmt.Sprintf(`,"requestState":%q`, state)
	}
	return p + "}"
}

// call sends a request and handles input requests until there is a result.
func (c *inputClient) call(method, params string) (*reply, error) {
	now := params
	for range 100 {
		r, err := c.request(context.Background(), method, now)
		if err != nil || r.ResultType != "input_required" {
			return r, err
		}
		c.rounds++
		var answers []string
		for _, key := range slices.Sorted(maps.Keys(r.InputRequests)) {
			q := r.InputRequests[key]
			text, err := c.ask(context.Background(), q.Method, string(q.Params))
			if err != nil {
				return nil, fmt.Errorf("the client does not answer: %w", err)
			}
			answers = append(answers, fmt.Sprintf("%q:%s", key, text))
		}
		now = retry(params, "{"+strings.Join(answers, ",")+"}", r.state())
	}
	return nil, fmt.Errorf("asked 100 times")
}

const callT = `{"name":"t","arguments":{}}`

// tool calls the tool t and returns its text, with "error: " before it if it failed.
func (c *inputClient) tool() (string, error) {
	r, err := c.call("tools/call", callT)
	if err != nil {
		return "", err
	}
	return r.text(), nil
}

func (r *reply) text() string {
	var texts []string
	for _, block := range r.Content {
		texts = append(texts, block.Text)
	}
	text := strings.Join(texts, "|")
	if r.IsError {
		text = "error: " + text
	}
	return text
}

// withTool returns a server with one tool, t, that calls fn.
func withTool(t testing.TB, opts *server.Options, fn func(c *server.Call) (string, error)) *server.Server {
	t.Helper()
	srv := server.MustNew("test", "1", opts)
	addTool(t, srv, "t", fn)
	return srv
}

func addTool(t testing.TB, srv *server.Server, name string, fn func(c *server.Call) (string, error)) {
	t.Helper()
	err := server.AddTool(srv, name, "", func(ctx context.Context, _ map[string]any) (string, error) { return fn(server.CallOf(ctx)) })
	if err != nil {
		t.Fatal(err)
	}
}

// fixed returns an answer function with one answer per method.
func fixed(byMethod map[string]string) func(context.Context, string, string) (string, error) {
	return func(_ context.Context, method, _ string) (string, error) {
		text, ok := byMethod[method]
		if !ok {
			return "", jsonrpc.MethodNotFound(method)
		}
		return text, nil
	}
}
