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

	"mcpwire/internal/base/sparse"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/internal/text/clip"
	"mcpwire/mcp"
	"mcpwire/schema"
)

// ListTools returns one page of the server's tools: the first if cursor is nil, or else the page
// after the one with that NextCursor. [Client.Tools] iterates over all pages.
//
// A malformed tool is left out, and the log names it.
//
// The client remembers listed tools, also across lost connections. It repeats a lost call of a tool
// that is annotated as read-only or idempotent, and validates results against the tool's output
// schema.
func (c *Client) ListTools(ctx context.Context, cursor *string, opts ...CallOption) (*mcp.ListToolsResult, error) {
	generation := c.tools.currentGeneration()
	page, err := getCacheable[mcp.ListToolsResult](ctx, c, mcp.MethodToolsList, cursorParams(cursor), opts)
	if err == nil {
		c.tools.add(generation, page.Tools)
	}
	return page, err
}

// Tools yields the server's tools, page by page, each name once. An error ends the loop. The error
// for an endless list wraps [ErrEndlessList]. If the server repeats a cursor, the list has ended.
func (c *Client) Tools(ctx context.Context, opts ...CallOption) iter.Seq2[mcp.Tool, error] {
	return listPages(ctx, c, mcp.MethodToolsList, c.ListTools, opts,
		func(r *mcp.ListToolsResult) ([]mcp.Tool, *string) { return r.Tools, r.NextCursor },
		func(t *mcp.Tool) string { return t.Name })
}

// A ToolError is the error of a tool call if the tool reports failure. Its text is meant for the
// model that made the call.
type ToolError struct {
	// Tool is the name of the tool.
	Tool string
	// Result is the whole result, with IsError set.
	Result *mcp.CallToolResult
}

// maxErrorText limits the text of a ToolError, in bytes. Result has all of it.
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
		text = "no reason given"
	case len(text) > maxErrorText:
		text = clip.String(text, maxErrorText)
	}
	return fmt.Sprintf("tool %q failed: %s", e.Tool, text)
}

// CallTool calls a tool and returns its result, even if the tool reports failure (IsError), which a
// model should see. The function [CallTool] decodes the result instead.
//
// args is a JSON object: a struct or map that encoding/json can marshal, a [json.RawMessage], or
// nil for no arguments. The server validates it.
//
// A malformed content block is left out, and the log names it. If nothing else is left, the error
// is a *[ProtocolError].
//
// If the client knows the tool from a list (see [Client.ListTools]), a result that violates its
// output schema is an *[OutputError]. If the server creates a task, CallTool waits for it until ctx
// or [WithTotalTimeout] ends, and then cancels it; [Client.StartTool] does not wait. After the
// cancellation of the call itself, CallTool cancels a task that the server reports within 5 s. Over
// HTTP the report cannot arrive, so the task is up to the server.
func (c *Client) CallTool(ctx context.Context, name string, args any, opts ...CallOption) (*mcp.CallToolResult, error) {
	tr, err := c.callTool(ctx, name, args, opts)
	if err != nil {
		return nil, err
	}
	return tr.decode(c)
}

// CallTool calls a tool as [Client.CallTool] does and decodes the result into the type Out:
//   - a string receives the text blocks, joined by line breaks,
//   - a []mcp.ContentBlock receives the content,
//   - an mcp.CallToolResult, or a pointer to one, receives everything,
//   - a json.RawMessage receives the JSON text of the structured content,
//   - any other type is decoded from the structured content, see [schema.Of]; unknown members are
//     ignored.
//
// Without structured content, CallTool decodes the JSON in the only text block, which older servers
// use instead. The error is a *[ToolError] if the tool reports failure. Out is the only type
// argument to give: client.CallTool[int](ctx, c, "count", args).
func CallTool[Out any](ctx context.Context, c *Client, name string, args any, opts ...CallOption) (Out, error) {
	tr, err := c.callTool(ctx, name, args, opts)
	if err != nil {
		var none Out
		return none, err
	}
	out, err := toolOutput[Out](c, name, &tr)
	if _, ok := any(out).(string); ok && err == nil && tr.pending != nil {
		tr.pending.Release() // a string shares no memory with the result
	}
	return out, err
}

// callTool calls a tool, waits for its task and validates the result against the output schema.
func (c *Client) callTool(ctx context.Context, name string, args any, opts []CallOption) (tr toolResult, err error) {
	info := c.tools.lookup(name)
	r := request{opts: newCallOptions(opts)}
	if err := c.setToolParams(&r, name, args, info); err != nil {
		return tr, err
	}
	defer c.releaseParams(&r)
	asTask := info.requiresTask() && c.tasks.hasCore()
	tr, task, err := c.sendTool(ctx, &r, name, asTask)
	if info == nil && isMethodNotFound(err) && c.tasks.hasCore() {
		found, findErr := c.tools.findWithin(ctx, &r, name)
		switch {
		case findErr != nil:
			err = findErr
		case found.requiresTask():
			tr, task, err = c.sendTool(ctx, &r, name, true) // it wants a task
		}
	}
	switch {
	case err != nil:
		return toolResult{}, err
	case task != nil:
		return c.tasks.waitTool(ctx, task, &r)
	}
	if err = tr.check(); err == nil {
		err = c.tools.checkOutput(ctx, name, &tr)
	}
	return tr, err
}

// sendTool sends the request and returns the result, or the task that the server created. asTask
// asks a legacy server for a task.
func (c *Client) sendTool(ctx context.Context, r *request, name string, asTask bool) (tr toolResult, task *Task, err error) {
	if asTask {
		release := c.tasks.request(r)
		defer func() {
			if task == nil {
				release()
			}
		}()
	}
	raw, err := c.roundTrip(ctx, r)
	var state *TaskState
	if err == nil {
		tr = parseToolMembers(raw)
		tr.pending = r.pending
		state, err = tr.task(c.Revision().Modern())
	}
	if err == nil && state == nil {
		err = c.checkFinal(r.method, tr.kind)
	}
	switch {
	case err != nil:
		return toolResult{}, nil, fmt.Errorf("tool %q: %w", name, err)
	case state != nil:
		return toolResult{}, c.tasks.newTask(*state, name, r.opts, r.callbacks), nil
	}
	return tr, nil, nil
}

// setToolParams makes r, which has its options, a call of a tool. info is nil if the tool is
// unknown.
func (c *Client) setToolParams(r *request, name string, args any, info *toolInfo) error {
	if timeout := effectiveTimeout(r.opts.maxTimeout, c.opts.Timeouts.MaxCall); timeout > 0 {
		r.deadline = now().add(timeout) // the encoding of the arguments counts
	}
	buffer := paramsBuffers.Get().(*paramsBuffer)
	params := append(buffer.params[:0], `{"name":`...)
	params = jsonwire.AppendQuote(params, name)
	params, err := buffer.appendArguments(append(params, `,"arguments":`...), args)
	if err != nil {
		return fmt.Errorf("tool %q: arguments: %w", name, err)
	}
	buffer.params = append(params, '}')
	r.method, r.params, r.valid, r.buffer = mcp.MethodToolsCall, buffer.params, true, buffer
	r.repeatable = c.tools.isRepeatable(info)
	return nil
}

// isRepeatable reports whether it is safe to call a tool twice. info is nil if the tool is unknown.
func (tc *toolCatalog) isRepeatable(info *toolInfo) bool {
	return info != nil && info.repeatable && !tc.c.opts.Retry.IgnoreHints
}

// withToolDeadline returns a context that also ends at the deadline of the tool call, with a
// *TimeoutError as its cause.
func (c *Client) withToolDeadline(ctx context.Context, r *request) (context.Context, context.CancelFunc) {
	if r.deadline == 0 {
		return ctx, func() {}
	}
	timeout := effectiveTimeout(r.opts.maxTimeout, c.opts.Timeouts.MaxCall)
	return context.WithTimeoutCause(ctx, r.deadline.sub(now()), &TimeoutError{Method: r.method, After: timeout, Max: true})
}

// findWithin is find within the deadline of a tool call. It fails like the call if that or
// ctx ends.
func (tc *toolCatalog) findWithin(ctx context.Context, r *request, name string) (*toolInfo, error) {
	ctx, cancel := tc.c.withToolDeadline(ctx, r)
	defer cancel()
	info := tc.find(ctx, name)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("tool %q: call %s: %w", name, r.method, context.Cause(ctx))
	}
	return info, nil
}

var errArgumentsNotObject = errors.New("they must be a JSON object: use a struct or a map")

// A paramsBuffer holds the params of a tool call, and an encoding/json encoder for the arguments,
// without HTML escaping.
type paramsBuffer struct {
	params []byte
	text   bytes.Buffer
	json   *json.Encoder
}

var paramsBuffers = sync.Pool{New: func() any {
	b := new(paramsBuffer)
	b.json = json.NewEncoder(&b.text)
	b.json.SetEscapeHTML(false)
	return b
}}

// releaseParams gives the memory of the params to other calls. Middleware may have kept it.
func (c *Client) releaseParams(r *request) {
	b := r.buffer
	if c.chain == nil && b.text.Cap() <= maxPooledBytes && cap(b.params) <= maxPooledBytes {
		paramsBuffers.Put(b)
	}
}

// appendArguments appends a tool's arguments as a JSON object on one line.
func (b *paramsBuffer) appendArguments(dst []byte, args any) ([]byte, error) {
	var text []byte
	raw, isRaw := args.(json.RawMessage)
	switch {
	case args == nil:
	case isRaw:
		if err := jsonwire.Valid(raw, 0); len(raw) > 0 && err != nil {
			return dst, err
		}
		text = bytes.TrimSpace(raw)
	default:
		b.text.Reset()
		if err := b.json.Encode(args); err != nil {
			return dst, err
		}
		text = bytes.TrimSuffix(b.text.Bytes(), []byte{'\n'})
	}
	switch {
	case len(text) == 0 || string(text) == "null": // nil, or a nil map or pointer
		return append(dst, "{}"...), nil
	case text[0] != '{':
		return dst, errArgumentsNotObject
	case isRaw:
		return jsonwire.AppendCompact(dst, text), nil
	}
	return append(dst, text...), nil
}

// A toolResult is the text of a CallToolResult and of its parts.
type toolResult struct {
	raw []byte
	// content is the text of an array.
	content []byte
	// structured is nil without structured content; null is a value.
	structured []byte
	isError    bool
	// kind is the resultType, see [era.ResultType].
	kind mcp.ResultType
	// coreTask is the task that a legacy server has created instead of a result, or nil.
	coreTask []byte
	// pending holds the memory of raw. It is nil if that belongs to something else.
	pending *rpc.Pending
}

// parseToolMembers finds the parts of the response to a tool call.
func parseToolMembers(raw []byte) toolResult {
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
		case tr.kind == "" && members.KeyIs("resultType"):
			tr.kind = era.ParseResultType(members.Value())
		case tr.coreTask == nil && members.KeyIs("task"):
			tr.coreTask = members.Value()
		}
	}
	return tr
}

// check returns an error if the result has no content.
func (tr *toolResult) check() error {
	if tr.structured == nil && (len(tr.content) == 0 || tr.content[0] != '[') {
		return &ProtocolError{Method: mcp.MethodToolsCall, Reason: "the result has no content"}
	}
	return nil
}

// decode decodes the whole result.
func (tr *toolResult) decode(c *Client) (*mcp.CallToolResult, error) {
	r := new(mcp.CallToolResult)
	kept, err := c.decodeResult(mcp.MethodToolsCall, tr.raw, r)
	if err != nil {
		return nil, err
	}
	if len(kept) != len(tr.raw) {
		*tr = parseToolMembers(kept)
	}
	return r, nil
}

// text returns the text blocks, joined by line breaks, and their number. ok is false if one of them
// is malformed.
func (tr *toolResult) text() (all string, n int, ok bool) {
	var joined strings.Builder
	blocks := jsonwire.ArrayElements(tr.content)
	for blocks.Next() {
		var kind, value []byte
		for m := jsonwire.ObjectMembers(blocks.Value()); (kind == nil || value == nil) && m.Next(); {
			switch {
			case kind == nil && m.KeyIs("type"):
				kind = m.Value()
			case value == nil && m.KeyIs("text"):
				value = m.Value()
			}
		}
		if !isJSONString(kind, "text") {
			continue
		}
		text, isString := jsonwire.String(value)
		if !isString {
			return "", 0, false
		}
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
	return all, n, true
}

// stringOutput returns the text or, without text blocks, structured content that is a string.
func (tr *toolResult) stringOutput(c *Client) (string, error) {
	all, n, ok := tr.text()
	if !ok {
		if _, err := tr.decode(c); err != nil { // leaves the malformed blocks out
			return "", err
		}
		all, n, _ = tr.text()
	}
	if s, ok := jsonwire.String(tr.structured); ok && n == 0 {
		return s, nil
	}
	return all, nil
}

var errNoOutput = errors.New("the result has neither structured content nor a single text block with JSON")

// jsonOutput returns the structured content or, without it, the JSON in the only text block.
func (tr *toolResult) jsonOutput() (json.RawMessage, error) {
	if tr.structured != nil {
		return tr.structured, nil
	}
	all, n, _ := tr.text()
	if n != 1 {
		return nil, errNoOutput
	}
	text := bytes.TrimSpace([]byte(all))
	if jsonwire.Valid(text, 0) != nil {
		return nil, errNoOutput
	}
	return text, nil
}

// toolOutput decodes the result of a tool call.
func toolOutput[Out any](c *Client, name string, tr *toolResult) (Out, error) {
	var none Out
	if tr.isError {
		result, err := tr.decode(c)
		if err != nil {
			return none, err
		}
		return none, &ToolError{Tool: name, Result: result}
	}
	if _, ok := any(none).(string); ok { // the most common type, without an allocation
		text, err := tr.stringOutput(c)
		return any(text).(Out), err
	}
	return decodeOutput[Out](c, name, tr)
}

func decodeOutput[Out any](c *Client, name string, tr *toolResult) (out Out, err error) {
	if done, err := tr.decodeDirect(c, &out); done {
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

// decodeDirect decodes a part of the result for types that select one. It returns false for others.
func (tr *toolResult) decodeDirect(c *Client, out any) (done bool, err error) {
	switch out := out.(type) {
	case *json.RawMessage:
		data, err := tr.jsonOutput()
		*out = bytes.Clone(data)
		return true, err
	case *[]mcp.ContentBlock:
		result, err := tr.decode(c)
		if err == nil {
			*out = result.Content
		}
		return true, err
	case **mcp.CallToolResult:
		*out, err = tr.decode(c)
	case *mcp.CallToolResult:
		_, err = c.decodeResult(mcp.MethodToolsCall, tr.raw, out)
	default:
		return false, nil
	}
	return true, err
}

// outputType returns Out compiled for decoding. It compiles each type once for a client.
func outputType[Out any](c *Client) (*schema.Typed[Out], error) {
	key := reflect.TypeFor[Out]()
	if typed, ok := c.tools.outputTypes.Load(key); ok {
		return typed.(*schema.Typed[Out]), nil
	}
	typed, err := schema.Of[Out](&schema.Options{AllowUnknown: true, Engine: c.opts.SchemaEngine})
	if err != nil {
		return nil, err
	}
	c.tools.outputTypes.Store(key, typed)
	return typed, nil
}

// An OutputError is the error of a tool call if the result violates the tool's output schema
// (https://modelcontextprotocol.io/specification/2026-07-28/server/tools#output-schema).
type OutputError struct {
	// Tool is the name of the tool.
	Tool string
	// Result is the whole result.
	Result *mcp.CallToolResult
	// Err is the reason, usually a *[schema.Error].
	Err error
}

func (e *OutputError) Error() string {
	return fmt.Sprintf("the result of tool %q does not match its output schema: %v", e.Tool, e.Err)
}

// Unwrap returns Err.
func (e *OutputError) Unwrap() error { return e.Err }

var errNoStructured = errors.New("it has an output schema, but the result has no structured content")

// maxSchemaBytes limits the schemas that are compiled, in bytes. Compiled, a schema takes some
// hundred times as much.
const maxSchemaBytes = 512 << 10

func compileServerSchema(text []byte, engine schema.Engine) (*schema.Validator, error) {
	if len(text) > maxSchemaBytes {
		return nil, fmt.Errorf("it has %d bytes; the limit for schemas is %d", len(text), maxSchemaBytes)
	}
	return schema.Compile(text, engine)
}

// Limits of the names and output schemas in a toolCatalog.
const (
	maxCatalogBytes = 16 << 20
	toolOverhead    = 256 // size of an entry without its texts, in bytes
)

// maxToolAge is the age from which the client lists a tool again before it reports a result that
// violates the tool's output schema. The schema may have changed.
const maxToolAge = time.Minute

// A toolCatalog holds what a client learned about the server's tools from lists. The zero value is
// empty.
type toolCatalog struct {
	c *Client
	// outputTypes maps a reflect.Type to its *schema.Typed, for results.
	outputTypes sync.Map

	mu     sync.Mutex
	byName map[string]*toolInfo
	bytes  int
	// expired is set if byName may have tools that were not listed since the last change.
	expired bool
	// generation counts how often a list became out of date while it may be under way.
	generation int
}

// A toolInfo describes a tool for calls.
type toolInfo struct {
	// repeatable is set if the tool claims to be safe to repeat. A tool that lies is called twice,
	// but it could do as much harm in one call.
	repeatable  bool
	taskSupport mcp.TaskSupport
	// outputSchema is nil if the tool has none.
	outputSchema []byte
	// listedAt is zero if the tool may have changed since.
	listedAt time.Time

	compileOnce sync.Once
	// validator validates outputSchema. It is nil if the schema is unusable.
	validator *schema.Validator
}

// requiresTask reports whether a legacy server runs the tool only as a task. ti may be nil.
func (ti *toolInfo) requiresTask() bool {
	return ti != nil && ti.taskSupport == mcp.TaskSupportRequired
}

// currentGeneration returns the argument for add, from before the list was requested.
func (tc *toolCatalog) currentGeneration() int {
	tc.mu.Lock()
	defer tc.mu.Unlock()
	return tc.generation
}

// add adds listed tools unless they were out of date by then.
func (tc *toolCatalog) add(generation int, tools []mcp.Tool) {
	tc.mu.Lock()
	defer tc.mu.Unlock()
	if generation != tc.generation {
		return
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
		size := toolOverhead + len(t.Name) + len(info.outputSchema)
		if tc.bytes+size > maxCatalogBytes && tc.expired {
			tc.dropOldLocked()
		}
		if tc.bytes+size <= maxCatalogBytes {
			sparse.Set(&tc.byName, t.Name, info)
			tc.bytes += size
		}
	}
}

// dropOldLocked drops the tools that were not listed since the last change.
func (tc *toolCatalog) dropOldLocked() {
	tc.expired = false // only one look at all of them
	for name, info := range tc.byName {
		if info.listedAt.IsZero() {
			tc.bytes -= toolOverhead + len(name) + len(info.outputSchema)
			delete(tc.byName, name)
		}
	}
}

func isTrue(hint *bool) bool { return hint != nil && *hint }

// clear forgets all tools.
func (tc *toolCatalog) clear() {
	tc.expire(true)
	tc.mu.Lock()
	defer tc.mu.Unlock()
	tc.byName, tc.bytes = nil, 0
}

// expire notes that tools may have changed. The client still repeats calls of those that were safe
// to repeat, because most servers announce changes after each start, and lists a tool again before
// it reports that a result violates the tool's schema. changed says that lists that are under way
// are out of date, too.
func (tc *toolCatalog) expire(changed bool) {
	tc.mu.Lock()
	defer tc.mu.Unlock()
	tc.expired = true
	for _, info := range tc.byName {
		info.listedAt = time.Time{}
	}
	if changed {
		tc.generation++
	}
}

// lookup returns the info about a tool, or nil.
func (tc *toolCatalog) lookup(name string) *toolInfo {
	tc.mu.Lock()
	defer tc.mu.Unlock()
	return tc.byName[name]
}

// isStale reports whether the info about a tool is too old to rely on its schema. It then counts as
// new, so that the tool is listed again only once in a while.
func (tc *toolCatalog) isStale(info *toolInfo) bool {
	tc.mu.Lock()
	defer tc.mu.Unlock()
	if time.Since(info.listedAt) <= maxToolAge {
		return false
	}
	info.listedAt = time.Now()
	return true
}

// checkOutput validates a result against the tool's output schema, if that is known.
func (tc *toolCatalog) checkOutput(ctx context.Context, name string, tr *toolResult) error {
	info := tc.lookup(name)
	if info == nil || tr.isError || tc.c.opts.NoOutputValidation {
		return nil
	}
	err := tc.validateOutput(name, info, tr)
	if err == nil {
		return nil
	}
	if tc.isStale(info) {
		if now := tc.find(ctx, name); now == nil || !bytes.Equal(now.outputSchema, info.outputSchema) {
			return tc.checkOutput(ctx, name, tr)
		}
	}
	result, decodeErr := tr.decode(tc.c)
	if decodeErr != nil {
		return decodeErr
	}
	return &OutputError{Tool: name, Result: result, Err: err}
}

// findToolTimeout limits the search for a tool. The call then goes on without its info.
const findToolTimeout = 30 * time.Second

// find lists the tools until it finds the named one, bypassing the cache, and returns the info
// about it, or nil.
func (tc *toolCatalog) find(ctx context.Context, name string) *toolInfo {
	ctx, cancel := context.WithTimeout(ctx, findToolTimeout)
	defer cancel()
	for tool, err := range tc.c.Tools(ctx, WithoutCache()) {
		if err != nil {
			tc.c.log.Info("tools not listed", "error", err)
			break
		}
		if tool.Name == name {
			break
		}
	}
	return tc.lookup(name)
}

func (tc *toolCatalog) validateOutput(name string, info *toolInfo, tr *toolResult) error {
	info.compileOnce.Do(func() {
		if info.outputSchema == nil {
			return
		}
		var err error
		if info.validator, err = compileServerSchema(info.outputSchema, tc.c.opts.SchemaEngine); err != nil {
			tc.c.log.Warn("results not validated: unusable output schema", "tool", name, "error", err)
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
