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
	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
	"mcpwire/schema"
)

// A tool is a registered tool.
type tool struct {
	entry
	def          mcp.Tool
	taskSupport  taskSupport
	headerParams []mcp.HeaderParam // arguments that come in HTTP headers as well
	invoke       func(c *Call, args, dst []byte) ([]byte, error)
}

func (t *tool) appendDefinition(dst []byte, f *era.Features) []byte {
	return t.def.AppendRevision(dst, f.Revision)
}

var errNotObject = errors.New(`input schema must have "type":"object" at its root: use a struct or a map for the input`)

// AddTool registers a tool whose input and output schemas are those of the Go types, see [schema.Of]. In must be a struct or a map. Arguments are
// checked against the schema before fn runs; what does not fit is answered with isError and a text that says which field and what was
// expected.
//
// Out decides what the client gets: a string is a text block, an [mcp.ContentBlock] or a slice of them is the content, an [mcp.CallToolResult] (or a
// pointer to one) is the whole result, and anything else becomes structured content, with its JSON text in a text block for clients that
// know no other. A CallToolResult that has structured content and nothing else gets that block too.
//
// AddTool fails on a duplicate name (with [ErrDuplicate]), on a missing one, and on types that have no schema. It may be called while the server runs: clients are told that the list
// has changed.
func AddTool[In, Out any](s *Server, name, description string, fn func(context.Context, In) (Out, error)) error {
	return AddToolWith(s, mcp.Tool{Name: name, Description: description}, fn)
}

// AddToolWith is AddTool with all that can be said of a tool. A schema in def takes the place of the one derived from the type: arguments have to
// satisfy both.
func AddToolWith[In, Out any](s *Server, def mcp.Tool, fn func(context.Context, In) (Out, error)) error {
	if fn == nil {
		return toolError(def.Name, errNoFunc)
	}
	in, err := newToolInput[In](&def, s.opts.SchemaEngine)
	if err != nil {
		return toolError(def.Name, err)
	}
	encode, err := newEncoder[Out](&def, s.opts.SchemaEngine)
	if err != nil {
		return toolError(def.Name, err)
	}
	type values struct {
		arg In
		out Out
	}
	var pool sync.Pool // of *values, if they are plain
	reuse := methodFree(reflect.TypeFor[values]())
	return s.addTool(def, func(c *Call, args, dst []byte) ([]byte, error) {
		v, _ := pool.Get().(*values)
		if v == nil {
			v = new(values)
		}
		if err := in.decode(args, &v.arg); err != nil {
			return c.appendFailure(dst, err.Error()), nil
		}
		var err error
		if v.out, err = fn(c, v.arg); err != nil {
			return c.appendHandlerError(dst, err)
		}
		dst, err = encode(c, dst, &v.out)
		if reuse {
			*v = values{}
			pool.Put(v)
		}
		return dst, err
	})
}

// AddRawTool registers a tool with a hand-written input schema (JSON Schema 2020-12 unless it says otherwise; no reference is ever fetched). fn gets
// the arguments' JSON text, checked against the schema; it is valid until fn returns. A structured result is checked against def.OutputSchema
// if there is one.
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
	encode, err := newEncoder[*mcp.CallToolResult](&def, s.opts.SchemaEngine)
	if err != nil {
		return toolError(def.Name, err)
	}
	return s.addTool(def, func(c *Call, args, dst []byte) ([]byte, error) {
		if err := input.Validate(args); err != nil {
			return c.appendFailure(dst, err.Error()), nil
		}
		out, err := fn(c, args)
		if err != nil {
			return c.appendHandlerError(dst, err)
		}
		return encode(c, dst, &out)
	})
}

// An input decodes and checks a tool's arguments.
type toolInput[In any] struct {
	typed *schema.Typed[In]
	extra *schema.Validator // of a schema that was given; nil if none was
}

func newToolInput[In any](def *mcp.Tool, engine schema.Engine) (*toolInput[In], error) {
	typed, err := schema.Of[In](&schema.Options{Engine: engine})
	if err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	in := &toolInput[In]{typed: typed}
	if def.InputSchema == nil {
		def.InputSchema = typed.JSON()
	} else if in.extra, err = compileSchema(&def.InputSchema, engine); err != nil {
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

// compileSchema compiles a hand-written schema and puts its text on one line.
func compileSchema(text *json.RawMessage, engine schema.Engine) (*schema.Validator, error) {
	v, err := schema.Compile(*text, engine)
	if err != nil {
		return nil, err
	}
	*text = jsonwire.AppendCompact(nil, *text)
	return v, nil
}

func isObjectSchema(text []byte) bool {
	if text[0] != '{' {
		return false
	}
	members := jsonwire.ObjectMembers(text)
	for members.Next() {
		if members.KeyIs("type") {
			return string(members.Value()) == `"object"`
		}
	}
	return false
}

func toolError(name string, err error) error { return registrationError(KindTool, name, err) }

// addTool registers the tool.
func (s *Server) addTool(def mcp.Tool, invoke func(c *Call, args, dst []byte) ([]byte, error)) error {
	if !isObjectSchema(def.InputSchema) {
		return toolError(def.Name, errNotObject)
	}
	if err := errors.Join(mcp.CheckMeta(def.Meta), checkExtra(def.Extra)); err != nil {
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
	case support != taskForbidden && s.tasks == nil:
		return toolError(def.Name, errNoTasks)
	}
	if err := s.tools.add(&tool{entry: entry{key: def.Name}, def: def, taskSupport: support, headerParams: headers, invoke: invoke}); err != nil {
		return err
	}
	s.announce(toolsChanged)
	return nil
}

// cloneTool copies what the caller could still change. The schemas are the server's already.
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

// RemoveTools takes tools out and tells clients that the list has changed. Names that are not registered are passed over. Calls under way go on.
func (s *Server) RemoveTools(names ...string) {
	if s.tools.remove(names) {
		s.announce(toolsChanged)
	}
}
