package client

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
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
