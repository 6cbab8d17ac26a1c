package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/schema"
)

// A tool is a registered tool.
type tool struct {
	entry
	def         mcp.Tool
	taskSupport mcp.TaskSupport
	// headerParams are the arguments that HTTP headers repeat.
	headerParams []mcp.HeaderParam
	// invoke calls the user's function. Its error is a handlerError if it comes from there.
	invoke func(c *Call, args, dst []byte) ([]byte, error)
}

// A handlerError is an error that a user's function returned.
type handlerError struct{ error }

func (e handlerError) Unwrap() error { return e.error }

func (t *tool) appendDefinition(dst []byte, f *era.Features) []byte {
	return mcp.Append(dst, &t.def, f.Revision)
}

var errNotObject = errors.New(`input schema must have "type":"object" at its root: use a struct or a map for the input`)

// AddTool registers a tool. Its input and output schemas come from the Go types, see [schema.Of].
// In must be a struct or a map. Arguments are validated before fn runs. Invalid ones are answered
// with isError and a text that names the field and the expected value. Those without a field are
// invalid too, unless [Options.Schema] allows them.
//
// Out determines the result: a string is a text block, an [mcp.ContentBlock] or a slice of them is
// the content, and an [mcp.CallToolResult] (or a pointer to one) is the whole result. Any other
// type becomes structured content; clients that don't support it get its JSON text in a text block.
// A nil any is the JSON value null. A []byte is an error.
// A CallToolResult with only structured content also gets that block.
//
// AddTool fails for a duplicate name (with [ErrDuplicate]), for an empty name, and for types
// without a schema. It may be called while the server runs: clients are notified of the change. It
// is a function because methods have no type parameters.
func AddTool[In, Out any](s *Server, name, description string, fn func(context.Context, In) (Out, error)) error {
	return AddToolWith(s, mcp.Tool{Name: name, Description: description}, fn)
}

// AddToolWith is AddTool with a full definition. A schema in def is listed instead of the one
// derived from the type. Values must be valid for both, except that def.InputSchema alone decides
// which arguments without a field are allowed; they are ignored.
func AddToolWith[In, Out any](s *Server, def mcp.Tool, fn func(context.Context, In) (Out, error)) error {
	if fn == nil {
		return toolError(def.Name, errNoFunc)
	}
	in, err := newToolInput[In](&def, s.schema)
	if err != nil {
		return toolError(def.Name, err)
	}
	encode, err := newEncoder[Out](&def, &s.schema)
	if err != nil {
		return toolError(def.Name, err)
	}
	type values struct {
		arg In
		out Out
	}
	// pool holds *values if reuse is set.
	var pool sync.Pool
	reuse := methodFree(reflect.TypeFor[values]())
	return s.addTool(def, func(c *Call, args, dst []byte) ([]byte, error) {
		v, _ := pool.Get().(*values)
		if v == nil {
			v = new(values)
		}
		if err := in.decode(args, &v.arg); err != nil {
			return c.results().failure(dst, err.Error()), nil
		}
		var err error
		if v.out, err = fn(c, v.arg); err != nil {
			return dst, handlerError{err}
		}
		dst, err = encode(c.results(), dst, &v.out)
		if reuse {
			*v = values{}
			pool.Put(v)
		}
		return dst, err
	})
}

// AddRawTool registers a tool with a hand-written input schema (JSON Schema 2020-12 unless it says
// otherwise; references are never fetched). fn gets the JSON text of the arguments, which is valid
// for the schema and may be used until fn returns. A structured result is validated against
// def.OutputSchema if there is one.
func (s *Server) AddRawTool(def mcp.Tool, fn func(c *Call, args json.RawMessage) (*mcp.CallToolResult, error)) error {
	if fn == nil {
		return toolError(def.Name, errNoFunc)
	}
	if def.InputSchema == nil {
		def.InputSchema = json.RawMessage(`{"type":"object"}`)
	}
	input, err := compileSchema(&def.InputSchema, s.opts.SchemaEngine)
	if err != nil {
		return toolError(def.Name, fmt.Errorf("input schema: %w", err))
	}
	encode, err := newEncoder[*mcp.CallToolResult](&def, &s.schema)
	if err != nil {
		return toolError(def.Name, err)
	}
	return s.addTool(def, func(c *Call, args, dst []byte) ([]byte, error) {
		if err := input.Validate(args); err != nil {
			return c.results().failure(dst, err.Error()), nil
		}
		out, err := fn(c, args)
		if err != nil {
			return dst, handlerError{err}
		}
		return encode(c.results(), dst, &out)
	})
}

// A toolInput decodes and checks a tool's arguments.
type toolInput[In any] struct {
	typed *schema.Typed[In]
	// extra validates against the definition's schema. It is nil without one.
	extra *schema.Validator
}

func newToolInput[In any](def *mcp.Tool, opts schema.Options) (*toolInput[In], error) {
	if def.InputSchema != nil {
		opts.AllowUnknown = true // that schema decides
	}
	typed, err := schema.Of[In](&opts)
	if err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	in := &toolInput[In]{typed: typed}
	if def.InputSchema == nil {
		def.InputSchema = typed.JSON()
	} else if in.extra, err = compileSchema(&def.InputSchema, opts.Engine); err != nil {
		return nil, fmt.Errorf("input schema: %w", err)
	}
	return in, nil
}

func (in *toolInput[In]) decode(args []byte, v *In) error {
	if in.extra != nil {
		if err := in.extra.Validate(args); err != nil {
			return err
		}
	}
	return in.typed.Decode(args, v)
}

// compileSchema compiles a hand-written schema and compacts its text.
func compileSchema(text *json.RawMessage, engine schema.Engine) (*schema.Validator, error) {
	v, err := schema.Compile(*text, engine)
	if err != nil {
		return nil, err
	}
	*text = jsonwire.AppendCompact(nil, *text)
	return v, nil
}

func isObjectSchema(text []byte) bool {
	return string(jsonwire.Lookup(text, "type")) == `"object"`
}

func toolError(name string, err error) error { return registrationError(KindTool, name, err) }

// addTool registers the tool.
func (s *Server) addTool(def mcp.Tool, invoke func(c *Call, args, dst []byte) ([]byte, error)) error {
	if !isObjectSchema(def.InputSchema) {
		return toolError(def.Name, errNotObject)
	}
	if err := errors.Join(checkMeta(def.Meta), checkExtra(def.Extra)); err != nil {
		return toolError(def.Name, err)
	}
	headers, err := mcp.HeaderParams(def.InputSchema)
	if err != nil {
		return toolError(def.Name, fmt.Errorf("input schema: %w", err))
	}
	def = cloneTool(def)
	support, ok := taskSupportOf(&def)
	switch {
	case !ok:
		return toolError(def.Name, errTaskSupport)
	case support != mcp.TaskSupportForbidden && s.tasks == nil:
		return toolError(def.Name, errNoTasks)
	}
	if err := s.tools.add(&tool{entry: entry{key: def.Name}, def: def, taskSupport: support, headerParams: headers, invoke: invoke}); err != nil {
		return err
	}
	if !era.IsUsualToolName(def.Name, 128) {
		s.log.Warn("clients may refuse a tool's name: use 1 to 128 of A-Z, a-z, 0-9, _, - and .", "tool", clip.String(def.Name, 200))
	}
	s.announce(toolsChanged)
	return nil
}

// cloneTool copies what the caller could still modify. The server already owns the schemas.
func cloneTool(def mcp.Tool) mcp.Tool {
	def.Meta, def.Extra = bytes.Clone(def.Meta), bytes.Clone(def.Extra)
	def.Icons = slices.Clone(def.Icons)
	if def.Annotations != nil {
		a := *def.Annotations
		def.Annotations = &a
	}
	if def.Execution != nil {
		e := *def.Execution
		def.Execution = &e
	}
	return def
}

// RemoveTools removes tools and notifies clients of the change. It ignores unknown names. Running
// calls continue.
func (s *Server) RemoveTools(names ...string) {
	if s.tools.remove(names) {
		s.announce(toolsChanged)
	}
}

// callTool answers tools/call
// (https://modelcontextprotocol.io/specification/2026-07-28/server/tools#calling-tools).
func callTool(c *Call, r *rpc.Request, dst []byte) ([]byte, error) {
	t, _ := r.Route.(*tool)
	if t == nil || !c.view.shows(KindTool, t.key) {
		name, err := stringParam(r, "name")
		if err != nil {
			return dst, err
		}
		return dst, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "unknown tool: %s", clip.String(name, 100))
	}
	c.setName(t.key)
	return t.call(c, r, dst)
}

// call answers a call of the tool.
func (t *tool) call(c *Call, r *rpc.Request, dst []byte) ([]byte, error) {
	args, err := argumentsParam(r)
	if err != nil {
		return dst, err
	}
	if err := t.checkHeaderParams(c, r, args); err != nil {
		return dst, err
	}
	if err := c.session.srv.inputs.resume(c, r); err != nil {
		return dst, err
	}
	if tasks := c.session.tasks; tasks != nil {
		if ttl, yes, err := tasks.wants(c, t, r); err != nil {
			return dst, err
		} else if yes {
			return tasks.call(c, t, r, args, dst, ttl)
		}
	}
	defer c.startTimer(c.session.srv.opts.Limits.HandlerTimeout)()
	out, err := t.run(c, args, dst)
	return c.session.srv.inputs.respond(c, r, dst, out, err)
}

// run calls the tool's function, with what [Server.WrapTools] puts around it.
func (t *tool) run(c *Call, args, dst []byte) ([]byte, error) {
	wrapped := c.session.srv.wrappedTool
	if wrapped == nil {
		out, err := t.invoke(c, args, dst)
		if failed, ok := err.(handlerError); ok {
			return appendHandlerError(c, dst, failed.error)
		}
		return out, err
	}
	res, err := wrapped(c, args)
	if invalid, ok := errors.AsType[*resultError](err); ok {
		return dst, invalid.err
	} else if err != nil {
		return appendHandlerError(c, dst, err)
	}
	return c.results().tool(dst, res, nil)
}

// A ToolFunc handles calls of tools, as the function of [Server.AddRawTool] does.
type ToolFunc func(c *Call, args json.RawMessage) (*mcp.CallToolResult, error)

// WrapTools puts functions around the handlers of all tools, the first one outermost. Unlike the
// middleware of [Server.Use] they see a call after all checks of the request, as decoded values:
// next returns the handler's own error, and its result in the form for the client's revision, and
// rejects arguments that do not match the schema with a result that has IsError. [Call.Name] names
// the tool. An error that a function returns is treated as the handler's. A result is not validated
// against the output schema again. Each function of list is called once.
//
// WrapTools panics if the server already serves.
func (s *Server) WrapTools(list ...func(next ToolFunc) ToolFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serving {
		panic("server: WrapTools after Serve: add functions before the first connection")
	}
	s.toolWrappers = append(s.toolWrappers, list...)
}

// A resultError is the error for a handler's result that the protocol cannot represent.
type resultError struct{ err error }

func (e *resultError) Error() string { return e.err.Error() }

// invokeTool is the innermost ToolFunc.
func (s *Server) invokeTool(c *Call, args json.RawMessage) (*mcp.CallToolResult, error) {
	t := s.tools.catalog().byKey[c.name]
	if t == nil {
		return nil, fmt.Errorf("tool %s was removed", clip.String(c.name, 100))
	}
	out, err := t.invoke(c, args, nil)
	if failed, ok := err.(handlerError); ok {
		return nil, failed.error
	}
	res := new(mcp.CallToolResult)
	if err == nil {
		err = json.Unmarshal(out, res)
	}
	if err != nil {
		return nil, &resultError{err}
	}
	return res, nil
}

// appendHandlerError converts a handler's error: a protocol error is returned, others become a
// result with isError.
func appendHandlerError(c *Call, dst []byte, err error) ([]byte, error) {
	var e *jsonrpc.Error
	switch {
	case errors.As(err, &e), errors.Is(err, ErrInputRequired), c.denies(err):
		return dst, err
	case context.Cause(c) == ErrHandlerTimeout && errors.Is(err, context.DeadlineExceeded):
		return c.results().failure(dst, fmt.Sprintf("tool %s did not finish within %v", c.name, c.session.srv.opts.Limits.HandlerTimeout)), nil
	}
	c.Logger().Debug("tool failed", "error", err)
	return c.results().failure(dst, err.Error()), nil
}

// denies reports whether the transport rejects the request because of the handler's error.
func (c *Call) denies(err error) (yes bool) {
	if run := c.run.Load(); run != nil && run.isTask() {
		return false
	}
	rpc.WithSender(&c.request, func(s rpc.Sender) {
		d, ok := s.(denier)
		yes = ok && d.Denies(err)
	})
	return yes
}

// An encoder appends the result of a tool that returned out.
type encoder[Out any] func(rw resultWriter, dst []byte, out *Out) ([]byte, error)

// newEncoder selects the encoder for the type and fills in the output schema if the type has one.
func newEncoder[Out any](def *mcp.Tool, opts *schema.Options) (encoder[Out], error) {
	var extra *schema.Validator
	if def.OutputSchema != nil {
		var err error
		if extra, err = compileSchema(&def.OutputSchema, opts.Engine); err != nil {
			return nil, fmt.Errorf("output schema: %w", err)
		}
	}
	switch any(new(Out)).(type) {
	case **mcp.CallToolResult:
		return func(rw resultWriter, dst []byte, out *Out) ([]byte, error) {
			return rw.tool(dst, *any(out).(**mcp.CallToolResult), extra)
		}, nil
	case *mcp.CallToolResult:
		return func(rw resultWriter, dst []byte, out *Out) ([]byte, error) {
			return rw.tool(dst, any(out).(*mcp.CallToolResult), extra)
		}, nil
	}
	encode := contentEncoder[Out]()
	if encode == nil {
		return structuredEncoder[Out](def, extra, opts)
	}
	if extra != nil {
		return nil, fmt.Errorf("output schema: a result of type %v has no structured content", reflect.TypeFor[Out]())
	}
	return encode, nil
}

// contentEncoder returns the encoder for a type that is only content, or nil.
func contentEncoder[Out any]() encoder[Out] {
	block := reflect.TypeFor[mcp.ContentBlock]()
	t := reflect.TypeFor[Out]()
	switch {
	case t == reflect.TypeFor[string]():
		return func(rw resultWriter, dst []byte, out *Out) ([]byte, error) {
			dst = append(dst, `{"content":[{"type":"text","text":`...)
			dst = jsonwire.AppendQuote(dst, *any(out).(*string))
			return rw.end(append(dst, "}]"...)), nil
		}
	case t.Implements(block):
		return func(rw resultWriter, dst []byte, out *Out) ([]byte, error) {
			one, _ := any(*out).(mcp.ContentBlock)
			return rw.tool(dst, &mcp.CallToolResult{Content: []mcp.ContentBlock{one}}, nil)
		}
	case t.Kind() == reflect.Slice && t.Elem().Implements(block):
		return func(rw resultWriter, dst []byte, out *Out) ([]byte, error) {
			blocks, ok := any(*out).([]mcp.ContentBlock)
			if !ok {
				for _, v := range reflect.ValueOf(*out).Seq2() {
					one, _ := v.Interface().(mcp.ContentBlock)
					blocks = append(blocks, one)
				}
			}
			return rw.tool(dst, &mcp.CallToolResult{Content: blocks}, nil)
		}
	}
	return nil
}

// errBytesOutput is the error for an output that nobody means to be base64 in a text block.
var errBytesOutput = errors.New("output: a result of type []byte would be base64 text: return a string, a json.RawMessage, an mcp.ImageContent or an mcp.EmbeddedResource")

func structuredEncoder[Out any](def *mcp.Tool, extra *schema.Validator, opts *schema.Options) (encoder[Out], error) {
	if t := reflect.TypeFor[Out](); t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 && t != reflect.TypeFor[json.RawMessage]() && methodFree(t) {
		return nil, errBytesOutput
	}
	typed, err := schema.Of[Out](opts)
	if err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	if text := typed.JSON(); def.OutputSchema == nil && len(text) > len("true") && string(text) != "{}" {
		def.OutputSchema = text
	}
	return func(rw resultWriter, dst []byte, out *Out) ([]byte, error) {
		const head = `{"structuredContent":`
		start := len(dst)
		dst, err := typed.Append(append(dst, head...), out)
		if err != nil {
			return dst, rw.invalidOutput(err)
		}
		text := dst[start+len(head):]
		if extra != nil {
			if err := extra.Validate(text); err != nil {
				return dst, rw.invalidOutput(err)
			}
		}
		if rw.features.AllowsStructured(text) {
			dst = append(dst, `,"content":[{"type":"text","text":`...)
			dst = jsonwire.AppendQuote(dst, text)
		} else {
			text = append([]byte{}, text...)
			dst = jsonwire.AppendQuote(append(dst[:start], `{"content":[{"type":"text","text":`...), text)
		}
		return rw.end(append(dst, "}]"...)), nil
	}, nil
}

// methodFree reports whether no value within the type has methods. Methods could keep pointers to
// pooled values; the decoder and the encoder do not.
func methodFree(t reflect.Type) bool { return allMethodFree(t, make(map[reflect.Type]bool)) }

func allMethodFree(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] {
		return true
	}
	seen[t] = true
	if t.Kind() == reflect.Interface {
		return true // its value is allocated elsewhere
	}
	if reflect.PointerTo(t).NumMethod() > 0 {
		return false
	}
	switch t.Kind() {
	case reflect.Map:
		return allMethodFree(t.Key(), seen) && allMethodFree(t.Elem(), seen)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return allMethodFree(t.Elem(), seen)
	case reflect.Struct:
		for field := range t.Fields() {
			if !allMethodFree(field.Type, seen) {
				return false
			}
		}
	}
	return true
}

// A headerChecker is a Sender whose transport repeats arguments of tools in headers, as HTTP does.
// CheckHeaderParams returns an error if the headers do not match the arguments.
type headerChecker interface {
	CheckHeaderParams(params []mcp.HeaderParam, arguments []byte) error
}

// checkHeaderParams checks the arguments of a call against their copies in the transport's headers.
func (t *tool) checkHeaderParams(c *Call, r *rpc.Request, arguments []byte) error {
	if len(t.headerParams) == 0 || !c.ex.Modern {
		return nil
	}
	if m, ok := r.Sender().(headerChecker); ok {
		return m.CheckHeaderParams(t.headerParams, arguments)
	}
	return nil
}
