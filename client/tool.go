package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"sync"
	"time"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
	"mcpwire/schema"
)

// ListTools returns one page of the server's tools: the first if cursor is nil, else the one behind the page whose NextCursor it is. [Client.Tools] walks
// all pages.
//
// What the client has seen of a tool in a list serves it when the tool is called: a tool that says that it is read-only or idempotent is called again
// if the connection is lost meanwhile, and results are held against the output schema.
func (c *Client) ListTools(ctx context.Context, cursor *string, opts ...CallOption) (*mcp.ListToolsResult, error) {
	c.trackChanges()
	generation := c.tools.currentGeneration()
	page, err := getCacheable[mcp.ListToolsResult](ctx, c, mcp.MethodToolsList, cursorParams(cursor), opts)
	if err == nil {
		c.tools.add(generation, page.Tools)
	}
	return page, err
}

// Tools yields the server's tools, page by page. An error ends the loop. If the server's list has an end that never comes, the error wraps
// [ErrCursorLoop] or [ErrTooManyPages].
func (c *Client) Tools(ctx context.Context, opts ...CallOption) iter.Seq2[mcp.Tool, error] {
	return listAll(ctx, c, mcp.MethodToolsList,
		func(ctx context.Context, cursor *string) ([]mcp.Tool, *string, error) {
			page, err := c.ListTools(ctx, cursor, opts...)
			if err != nil {
				return nil, nil, err
			}
			return page.Tools, page.NextCursor, nil
		},
		func(t *mcp.Tool) string { return t.Name })
}

// A ToolError is what a tool call fails with if the tool itself says that it failed. It is written for the model that made the call.
type ToolError struct {
	Tool   string
	Result *mcp.CallToolResult // with IsError set
}

// maxErrorText bounds the text of a ToolError, in bytes. All of it is in the Result.
const maxErrorText = 2048

func (e *ToolError) Error() string {
	var texts []string
	if e.Result != nil {
		for _, block := range e.Result.Content {
			if t, ok := block.(mcp.TextContent); ok {
				texts = append(texts, t.Text)
			}
		}
	}
	text := strings.TrimSpace(strings.Join(texts, "\n"))
	switch {
	case text == "":
		text = "it does not say why"
	case len(text) > maxErrorText:
		text = strings.ToValidUTF8(text[:maxErrorText], "") + " …"
	}
	return fmt.Sprintf("tool %q failed: %s", e.Tool, text)
}

// CallTool calls a tool and returns its result, also if that says that the tool failed (IsError): a model that called it should see that.
// The function [CallTool] decodes the result instead.
//
// args are the arguments, an object: a struct or a map that encoding/json can marshal, a [json.RawMessage], or nil for none. The server checks them.
//
// If the client knows the tool from a list (see [Client.ListTools]), a result that breaks its output schema is an *[OutputError]. If the server makes a
// task of the call, CallTool waits for the task, for as long as ctx and [WithMaxTimeout] allow, and cancels it then; [Client.StartTool] does not wait.
// A task that the server has made while the call was being given up is cancelled too, if the server says so within 5 s; over HTTP, where its answer
// cannot get here any more, that is up to the server.
func (c *Client) CallTool(ctx context.Context, name string, args any, opts ...CallOption) (*mcp.CallToolResult, error) {
	tr, err := c.callTool(ctx, name, args, opts)
	if err != nil {
		return nil, err
	}
	return tr.decode()
}

// CallTool calls a tool as [Client.CallTool] does and decodes what it answers by the type Out:
//   - a string gets the text blocks, joined by line breaks,
//   - a []mcp.ContentBlock gets the content,
//   - an mcp.CallToolResult, or a pointer to one, gets everything,
//   - a json.RawMessage gets the JSON text of the structured content,
//   - every other type is decoded from the structured content, see [schema.Of]; members that it has no field for are ignored.
//
// Tools of servers from before structured content answer with JSON in a text block: that is decoded instead if there is one text block and no structured
// content. A tool that says that it failed is a *[ToolError], whatever the type. Out needs no instance: client.CallTool[int](ctx, c, "count", args).
func CallTool[Out any](ctx context.Context, c *Client, name string, args any, opts ...CallOption) (Out, error) {
	tr, err := c.callTool(ctx, name, args, opts)
	if err != nil {
		var none Out
		return none, err
	}
	return toolOutput[Out](c, name, &tr)
}

// callTool calls a tool and sees to tasks and to the output schema.
func (c *Client) callTool(ctx context.Context, name string, args any, opts []CallOption) (tr toolResult, err error) {
	startedAt := time.Now()
	info := c.tools.lookup(name)
	r, err := c.toolRequest(name, args, info, newCallOptions(opts), startedAt)
	if err != nil {
		return tr, err
	}
	asTask := info.requiresTask() && c.hasCoreTasks()
	raw, task, err := c.sendTool(ctx, r, name, asTask)
	if info == nil && isMethodNotFound(err) && c.hasCoreTasks() {
		found, findErr := c.findToolWithin(ctx, r, name)
		switch {
		case findErr != nil:
			err = findErr
		case found.requiresTask():
			raw, task, err = c.sendTool(ctx, r, name, true) // that was what it meant; it has done nothing yet
		}
	}
	switch {
	case err != nil:
		return tr, err
	case task != nil:
		return c.waitToolTask(ctx, task, r)
	}
	if tr, err = parseToolResult(raw); err == nil {
		err = c.checkOutput(ctx, name, &tr)
	}
	return tr, err
}

// sendTool sends the request and returns the result, or the task that the server has made of it. asTask asks a legacy server for one.
func (c *Client) sendTool(ctx context.Context, r *request, name string, asTask bool) (raw []byte, task *Task, err error) {
	if asTask {
		release := c.requestTask(r)
		defer func() {
			if task == nil {
				release()
			}
		}()
	}
	raw, err = c.roundTrip(ctx, r)
	var state *TaskState
	if err == nil {
		state, err = c.parseTaskResult(raw)
	}
	if err == nil && state == nil {
		err = c.checkFinal(r.method, raw)
	}
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("tool %q: %w", name, err)
	case state != nil:
		return nil, c.newTask(*state, name, r.opts, r.callbacks), nil
	}
	return raw, nil, nil
}

func (c *Client) toolRequest(name string, args any, info *toolInfo, o callOptions, startedAt time.Time) (*request, error) {
	params := append(make([]byte, 0, 200), `{"name":`...)
	params = jsonwire.AppendQuote(params, name)
	params, err := appendArguments(append(params, `,"arguments":`...), args)
	if err != nil {
		return nil, fmt.Errorf("tool %q: arguments: %w", name, err)
	}
	r := &request{method: mcp.MethodToolsCall, params: append(params, '}'), repeatable: c.isRepeatableTool(info), opts: o}
	if timeout := effectiveTimeout(o.maxTimeout, c.opts.MaxCallTimeout); timeout > 0 {
		r.deadline = startedAt.Add(timeout)
	}
	return r, nil
}

// isRepeatableTool reports whether what is known of a tool, nil is nothing, says that calling it twice changes nothing.
func (c *Client) isRepeatableTool(info *toolInfo) bool {
	return info != nil && info.repeatable && !c.opts.IgnoreHints
}

// withToolDeadline returns a context that also ends when the time of the whole tool call is over, with a *TimeoutError as its cause.
func (c *Client) withToolDeadline(ctx context.Context, r *request) (context.Context, context.CancelFunc) {
	if r.deadline.IsZero() {
		return ctx, func() {}
	}
	timeout := effectiveTimeout(r.opts.maxTimeout, c.opts.MaxCallTimeout)
	return context.WithDeadlineCause(ctx, r.deadline, &TimeoutError{Method: r.method, After: timeout, Max: true})
}

// findToolWithin is findTool within the time of a tool call. The error is that of a call whose time or context has ended meanwhile.
func (c *Client) findToolWithin(ctx context.Context, r *request, name string) (*toolInfo, error) {
	ctx, cancel := c.withToolDeadline(ctx, r)
	defer cancel()
	info := c.findTool(ctx, name)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("tool %q: call %s: %w", name, r.method, context.Cause(ctx))
	}
	return info, nil
}

var errArgumentsNotObject = errors.New("they must be a JSON object: use a struct or a map")

// appendArguments appends the JSON object of a tool's arguments.
func appendArguments(dst []byte, args any) ([]byte, error) {
	var text []byte
	switch args := args.(type) {
	case nil:
	case json.RawMessage:
		if err := jsonwire.Valid(args, 0); len(args) > 0 && err != nil {
			return dst, err
		}
		text = bytes.TrimSpace(args)
	default:
		e := encoderPool.Get().(*encoder)
		defer e.release()
		if err := e.json.Encode(args); err != nil {
			return dst, err
		}
		text = bytes.TrimSpace(e.buf.Bytes())
	}
	switch {
	case len(text) == 0 || string(text) == "null": // nil, or a nil map or pointer
		return append(dst, "{}"...), nil
	case text[0] != '{':
		return dst, errArgumentsNotObject
	}
	return jsonwire.AppendCompact(dst, text), nil
}

// An encoder is encoding/json's, without its care for HTML, and with the memory that it writes to.
type encoder struct {
	buf  bytes.Buffer
	json *json.Encoder
}

var encoderPool = sync.Pool{New: func() any {
	e := new(encoder)
	e.json = json.NewEncoder(&e.buf)
	e.json.SetEscapeHTML(false)
	return e
}}

func (e *encoder) release() {
	if e.buf.Cap() <= maxPooledBytes {
		e.buf.Reset()
		encoderPool.Put(e)
	}
}

// A toolResult is the text of a CallToolResult, and where its parts are.
type toolResult struct {
	raw        []byte
	content    []byte // an array
	structured []byte // nil if there is none; null is a value
	isError    bool
}

// parseToolResult finds the parts of a CallToolResult.
func parseToolResult(raw []byte) (toolResult, error) {
	tr := toolResult{raw: raw}
	members := jsonwire.ObjectMembers(raw)
	for members.Next() {
		switch {
		case members.KeyIs("content"):
			tr.content = members.Value()
		case members.KeyIs("structuredContent"):
			tr.structured = members.Value()
		case members.KeyIs("isError"):
			tr.isError = string(members.Value()) == "true"
		}
	}
	if tr.structured == nil && (len(tr.content) == 0 || tr.content[0] != '[') {
		return tr, &ProtocolError{Method: mcp.MethodToolsCall, Reason: "the result has no content"}
	}
	return tr, nil
}

// decode decodes all of it.
func (tr *toolResult) decode() (*mcp.CallToolResult, error) {
	r := new(mcp.CallToolResult)
	if err := decodeResult(mcp.MethodToolsCall, tr.raw, r); err != nil {
		return nil, err
	}
	return r, nil
}

// text returns the text blocks, joined by line breaks, and how many there are.
func (tr *toolResult) text() (all string, n int) {
	var joined strings.Builder
	blocks := jsonwire.ArrayElements(tr.content)
	for blocks.Next() {
		if !isJSONString(jsonwire.Lookup(blocks.Value(), "type"), "text") {
			continue
		}
		text, _ := stringValue(jsonwire.Lookup(blocks.Value(), "text"))
		switch n++; n {
		case 1:
			all = text
			continue
		case 2:
			joined.WriteString(all)
		}
		joined.WriteByte('\n')
		joined.WriteString(text)
	}
	if n > 1 {
		all = joined.String()
	}
	return all, n
}

// stringOutput returns what a string gets of the answer: the text or, if there is none, structured content that is a string.
func (tr *toolResult) stringOutput() string {
	all, n := tr.text()
	if s, ok := stringValue(tr.structured); ok && n == 0 {
		return s
	}
	return all
}

var errNoOutput = errors.New("the result has no structured content, and no single text block with JSON in its place")

// jsonOutput returns the JSON text of what the tool has to say: the structured content, or what stands for it in servers that know none.
func (tr *toolResult) jsonOutput() (json.RawMessage, error) {
	if tr.structured != nil {
		return tr.structured, nil
	}
	all, n := tr.text()
	if n != 1 {
		return nil, errNoOutput
	}
	text := bytes.TrimSpace([]byte(all))
	if jsonwire.Valid(text, 0) != nil {
		return nil, errNoOutput
	}
	return text, nil
}

// toolOutput decodes what a tool answered.
func toolOutput[Out any](c *Client, name string, tr *toolResult) (Out, error) {
	var none Out
	if tr.isError {
		result, err := tr.decode()
		if err != nil {
			return none, err
		}
		return none, &ToolError{Tool: name, Result: result}
	}
	if _, ok := any(none).(string); ok { // the most usual one, without allocating a variable for it
		return any(tr.stringOutput()).(Out), nil
	}
	return decodeOutput[Out](c, name, tr)
}

func decodeOutput[Out any](c *Client, name string, tr *toolResult) (out Out, err error) {
	if done, err := tr.decodeDirect(&out); done {
		return out, err
	}
	typed, err := outputType[Out](c)
	if err != nil {
		return out, fmt.Errorf("tool %q: %w", name, err)
	}
	data, err := tr.jsonOutput()
	if err == nil {
		if string(data) == "null" && reflect.TypeFor[Out]().Kind() == reflect.Pointer {
			return out, nil
		}
		err = typed.Decode(data, &out)
	}
	if e, ok := errors.AsType[*schema.Error](err); ok {
		e.Root = "result"
	}
	if err != nil {
		var none Out
		return none, fmt.Errorf("tool %q: not a result for Go's %T: %w", name, none, err)
	}
	return out, nil
}

// decodeDirect decodes types that say which part of the result they want. It reports false for others.
func (tr *toolResult) decodeDirect(out any) (done bool, err error) {
	switch out := out.(type) {
	case *json.RawMessage:
		data, err := tr.jsonOutput()
		*out = bytes.Clone(data)
		return true, err
	case *[]mcp.ContentBlock:
		result, err := tr.decode()
		if err == nil {
			*out = result.Content
		}
		return true, err
	case **mcp.CallToolResult:
		*out, err = tr.decode()
	case *mcp.CallToolResult:
		return true, decodeResult(mcp.MethodToolsCall, tr.raw, out)
	default:
		return false, nil
	}
	return true, err
}

// outputType returns Out, compiled for decoding, which it does once for a client.
func outputType[Out any](c *Client) (*schema.Typed[Out], error) {
	key := reflect.TypeFor[Out]()
	if typed, ok := c.outputTypes.Load(key); ok {
		return typed.(*schema.Typed[Out]), nil
	}
	typed, err := schema.Of[Out](&schema.Options{AllowUnknown: true, Engine: c.opts.SchemaEngine})
	if err != nil {
		return nil, err
	}
	c.outputTypes.Store(key, typed)
	return typed, nil
}

// An OutputError is what a tool call fails with whose result is not what the tool's output schema promises
// (https://modelcontextprotocol.io/specification/2026-07-28/server/tools#output-schema).
type OutputError struct {
	Tool   string
	Result *mcp.CallToolResult // all that the server sent
	Err    error               // usually a *[schema.Error]
}

func (e *OutputError) Error() string {
	return fmt.Sprintf("tool %q broke its output schema: %v", e.Tool, e.Err)
}

// Unwrap returns Err.
func (e *OutputError) Unwrap() error { return e.Err }

var errNoStructured = errors.New("it has an output schema, but the result has no structured content")

// maxSchemaBytes is the largest schema that is compiled, in bytes: compiled it takes some hundred times as much.
const maxSchemaBytes = 512 << 10

// compileServerSchema compiles a schema of the server's.
func compileServerSchema(text []byte, engine schema.Engine) (*schema.Validator, error) {
	if len(text) > maxSchemaBytes {
		return nil, fmt.Errorf("it has %d bytes; schemas of more than %d are not used", len(text), maxSchemaBytes)
	}
	return schema.Compile(text, engine)
}

// Bounds of what is kept of a server's tools: their names and output schemas.
const (
	maxCatalogBytes = 16 << 20
	toolOverhead    = 256 // bytes of an entry besides
)

// maxToolAge is how old the knowledge of a tool must be for a result that breaks its schema to raise the question whether the schema is still the same.
const maxToolAge = time.Minute

// A toolCatalog is what a client knows of the server's tools from having listed them. The zero value knows nothing.
type toolCatalog struct {
	mu         sync.Mutex
	byName     map[string]*toolInfo
	bytes      int
	generation int // how often everything was forgotten
}

// A toolInfo is what calling a tool takes.
type toolInfo struct {
	repeatable   bool // it is safe to call it again, or so it says: one that lies is called twice, and could have done twice the harm in one call
	taskSupport  string
	outputSchema []byte // schema; nil if it has none
	listedAt     time.Time

	compileOnce sync.Once
	validator   *schema.Validator // of output; nil if that cannot be compiled
}

// requiresTask reports whether a legacy server refuses to run the tool otherwise. Nothing is known of a nil tool.
func (ti *toolInfo) requiresTask() bool {
	return ti != nil && ti.taskSupport == mcp.TaskSupportRequired
}

// currentGeneration returns what learn wants to know: when the list was asked for.
func (tc *toolCatalog) currentGeneration() int {
	tc.mu.Lock()
	defer tc.mu.Unlock()
	return tc.generation
}

// add takes in tools that were listed, unless everything was forgotten since the list was asked for.
func (tc *toolCatalog) add(generation int, tools []mcp.Tool) {
	tc.mu.Lock()
	defer tc.mu.Unlock()
	if generation != tc.generation {
		return
	}
	if tc.byName == nil {
		tc.byName = make(map[string]*toolInfo)
	}
	now := time.Now()
	for i := range tools {
		t := &tools[i]
		info := &toolInfo{outputSchema: t.OutputSchema, listedAt: now}
		if a := t.Annotations; a != nil {
			info.repeatable = isTrue(a.ReadOnlyHint) || isTrue(a.IdempotentHint)
		}
		if t.Execution != nil {
			info.taskSupport = t.Execution.TaskSupport
		}
		old := tc.byName[t.Name]
		if old != nil && old.repeatable == info.repeatable && old.taskSupport == info.taskSupport && bytes.Equal(old.outputSchema, info.outputSchema) {
			old.listedAt = now
			continue
		}
		info.outputSchema = bytes.Clone(info.outputSchema)
		if old != nil {
			tc.bytes -= toolOverhead + len(t.Name) + len(old.outputSchema)
			delete(tc.byName, t.Name)
		}
		if size := toolOverhead + len(t.Name) + len(info.outputSchema); tc.bytes+size <= maxCatalogBytes {
			tc.byName[t.Name] = info
			tc.bytes += size
		}
	}
}

func isTrue(hint *bool) bool { return hint != nil && *hint }

func (tc *toolCatalog) clear() {
	tc.mu.Lock()
	defer tc.mu.Unlock()
	tc.byName, tc.bytes = nil, 0
	tc.generation++
}

// lookup returns what is known of a tool, or nil.
func (tc *toolCatalog) lookup(name string) *toolInfo {
	tc.mu.Lock()
	defer tc.mu.Unlock()
	return tc.byName[name]
}

// isStale reports whether the tool was listed too long ago for its schema to be sure. Until it is listed again, it does so once in a while.
func (tc *toolCatalog) isStale(info *toolInfo) bool {
	tc.mu.Lock()
	defer tc.mu.Unlock()
	if time.Since(info.listedAt) <= maxToolAge {
		return false
	}
	info.listedAt = time.Now()
	return true
}

// checkOutput holds a result against the tool's output schema, if that is known.
func (c *Client) checkOutput(ctx context.Context, name string, tr *toolResult) error {
	info := c.tools.lookup(name)
	if info == nil || tr.isError || c.opts.NoOutputValidation {
		return nil
	}
	err := c.validateOutput(name, info, tr)
	if err == nil {
		return nil
	}
	if c.tools.isStale(info) {
		if now := c.findTool(ctx, name); now == nil || !bytes.Equal(now.outputSchema, info.outputSchema) {
			return c.checkOutput(ctx, name, tr)
		}
	}
	result, decodeErr := tr.decode()
	if decodeErr != nil {
		return decodeErr
	}
	return &OutputError{Tool: name, Result: result, Err: err}
}

// findToolTimeout bounds how long a tool is looked for. The call goes on without it then.
const findToolTimeout = 30 * time.Second

// findTool lists the tools anew, until it finds one, and returns what is known of that then.
func (c *Client) findTool(ctx context.Context, name string) *toolInfo {
	ctx, cancel := context.WithTimeout(ctx, findToolTimeout)
	defer cancel()
	for tool, err := range c.Tools(ctx, WithFresh()) {
		if err != nil {
			c.log.Info("tools not listed", "error", err)
			break
		}
		if tool.Name == name {
			break
		}
	}
	return c.tools.lookup(name)
}

func (c *Client) validateOutput(name string, info *toolInfo, tr *toolResult) error {
	info.compileOnce.Do(func() {
		if info.outputSchema == nil {
			return
		}
		var err error
		if info.validator, err = compileServerSchema(info.outputSchema, c.opts.SchemaEngine); err != nil {
			c.log.Warn("results are not validated: output schema cannot be used", "tool", name, "error", err)
		}
	})
	switch {
	case info.validator == nil:
		return nil
	case tr.structured == nil:
		return errNoStructured
	}
	err := info.validator.Validate(tr.structured)
	if e, ok := errors.AsType[*schema.Error](err); ok {
		e.Root = "structuredContent"
	}
	return err
}
