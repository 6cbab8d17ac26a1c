package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/schema"
)

// appendHandlerError answers what a handler returned as its error: a protocol error if it is one, else a result that says what went wrong.
func (c *Call) appendHandlerError(dst []byte, err error) ([]byte, error) {
	var e *jsonrpc.Error
	switch {
	case errors.As(err, &e), errors.Is(err, ErrInputRequired):
		return dst, err
	case context.Cause(c) == errHandlerTimeout && errors.Is(err, context.DeadlineExceeded):
		return c.appendFailure(dst, fmt.Sprintf("tool %s did not finish within %v", c.name, c.session.srv.opts.HandlerTimeout)), nil
	}
	c.Logger().Debug("tool failed", "error", err)
	return c.appendFailure(dst, err.Error()), nil
}

// appendFailure appends the result of a tool that failed.
func (c *Call) appendFailure(dst []byte, text string) []byte {
	dst = jsonwire.AppendQuote(append(dst, `{"content":[{"type":"text","text":`...), text)
	return c.session.srv.results.End(append(dst, `}],"isError":true`...), c.ex.Features)
}

// An encoder appends the result of a tool that returned out.
type encoder[Out any] func(c *Call, dst []byte, out *Out) ([]byte, error)

// newEncoder chooses the encoder by the type, and fills in the output schema if the type has one.
func newEncoder[Out any](def *mcp.Tool, engine schema.Engine) (encoder[Out], error) {
	var extra *schema.Validator
	if def.OutputSchema != nil {
		var err error
		if extra, err = compileSchema(&def.OutputSchema, engine); err != nil {
			return nil, fmt.Errorf("output schema: %w", err)
		}
	}
	switch any(new(Out)).(type) {
	case **mcp.CallToolResult:
		return func(c *Call, dst []byte, out *Out) ([]byte, error) {
			return c.appendResult(dst, *any(out).(**mcp.CallToolResult), extra)
		}, nil
	case *mcp.CallToolResult:
		return func(c *Call, dst []byte, out *Out) ([]byte, error) {
			return c.appendResult(dst, any(out).(*mcp.CallToolResult), extra)
		}, nil
	}
	encode := contentEncoder[Out]()
	if encode == nil {
		return structuredEncoder[Out](def, extra, engine)
	}
	if extra != nil {
		return nil, fmt.Errorf("output schema: a result of type %v has no structured content that it could describe", reflect.TypeFor[Out]())
	}
	return encode, nil
}

// contentEncoder returns the encoder of a type that is content and nothing else, or nil.
func contentEncoder[Out any]() encoder[Out] {
	block := reflect.TypeFor[mcp.ContentBlock]()
	t := reflect.TypeFor[Out]()
	switch {
	case t == reflect.TypeFor[string]():
		return func(c *Call, dst []byte, out *Out) ([]byte, error) {
			dst = append(dst, `{"content":[{"type":"text","text":`...)
			dst = jsonwire.AppendQuote(dst, *any(out).(*string))
			return c.endResult(append(dst, "}]"...)), nil
		}
	case t.Implements(block):
		return func(c *Call, dst []byte, out *Out) ([]byte, error) {
			one, _ := any(*out).(mcp.ContentBlock)
			return c.appendResult(dst, &mcp.CallToolResult{Content: []mcp.ContentBlock{one}}, nil)
		}
	case t.Kind() == reflect.Slice && t.Elem().Implements(block):
		return func(c *Call, dst []byte, out *Out) ([]byte, error) {
			blocks, ok := any(*out).([]mcp.ContentBlock)
			if !ok {
				for _, v := range reflect.ValueOf(*out).Seq2() {
					one, _ := v.Interface().(mcp.ContentBlock)
					blocks = append(blocks, one)
				}
			}
			return c.appendResult(dst, &mcp.CallToolResult{Content: blocks}, nil)
		}
	}
	return nil
}

func structuredEncoder[Out any](def *mcp.Tool, extra *schema.Validator, engine schema.Engine) (encoder[Out], error) {
	typed, err := schema.Of[Out](&schema.Options{Engine: engine})
	if err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	if text := typed.JSON(); def.OutputSchema == nil && len(text) > len("true") && string(text) != "{}" {
		def.OutputSchema = text
	}
	return func(c *Call, dst []byte, out *Out) ([]byte, error) {
		const head = `{"structuredContent":`
		start := len(dst)
		dst, err := typed.Append(append(dst, head...), out)
		if err != nil {
			return dst, c.invalidOutput(err)
		}
		text := dst[start+len(head):]
		if extra != nil {
			if err := extra.Validate(text); err != nil {
				return dst, c.invalidOutput(err)
			}
		}
		if c.ex.AllowsStructured(text) {
			dst = append(dst, `,"content":[{"type":"text","text":`...)
			dst = jsonwire.AppendQuote(dst, text)
		} else {
			text = append([]byte{}, text...)
			dst = jsonwire.AppendQuote(append(dst[:start], `{"content":[{"type":"text","text":`...), text)
		}
		return c.endResult(append(dst, "}]"...)), nil
	}, nil
}

func (c *Call) endResult(dst []byte) []byte { return c.session.srv.results.End(dst, c.ex.Features) }

// invalidOutput is the error of a tool that broke its own promise: the server's fault, not the caller's. An err that comes from the tool's own code,
// a MarshalJSON method for example, is for the log alone.
func (c *Call) invalidOutput(err error) error {
	var bad *outputError
	var invalid *schema.Error
	switch {
	case errors.As(err, &invalid):
		invalid.Root = "result"
	case !errors.As(err, &bad):
		return fmt.Errorf("tool %s returned invalid output: %w", c.name, err)
	}
	return jsonrpc.Errorf(jsonrpc.CodeInternalError, "tool %s returned invalid output: %v", c.name, err)
}

// An outputError says what is wrong with a result, in words that clients may see.
type outputError struct{ text string }

func (e *outputError) Error() string { return e.text }

// appendResult appends a result that the tool made itself. A nil result is an empty one; one that is only structured gets its text as content.
func (c *Call) appendResult(dst []byte, res *mcp.CallToolResult, output *schema.Validator) ([]byte, error) {
	if res == nil {
		res = &mcp.CallToolResult{}
	}
	if err := checkToolResult(res, output); err != nil {
		return dst, c.invalidOutput(err)
	}
	structured := bytes.TrimLeft(res.StructuredContent, " \t\r\n")
	dst = append(dst, `{"content":[`...)
	if structured != nil && len(res.Content) == 0 {
		dst = mcp.TextContent{Text: string(jsonwire.AppendCompact(nil, structured))}.AppendJSON(dst) // for clients that know no other
	}
	for i, block := range res.Content {
		if i > 0 {
			dst = append(dst, ',')
		}
		block, err := mcp.CheckContent(block)
		if err != nil {
			return dst, c.invalidOutput(&outputError{fmt.Sprintf("content[%d]: %v", i, err)})
		}
		dst = block.AppendRevision(dst, c.ex.Revision)
	}
	dst = append(dst, ']')
	if structured != nil && c.ex.AllowsStructured(structured) {
		dst = jsonwire.AppendCompact(append(dst, `,"structuredContent":`...), structured)
	}
	if res.IsError {
		dst = append(dst, `,"isError":true`...)
	}
	return c.session.srv.results.EndWithMeta(dst, c.ex.Features, res.Meta), nil
}

// checkToolResult looks at all but the content.
func checkToolResult(res *mcp.CallToolResult, output *schema.Validator) error {
	if err := mcp.CheckMeta(res.Meta); err != nil {
		return &outputError{err.Error()}
	}
	switch {
	case res.StructuredContent != nil:
		if err := jsonwire.Valid(res.StructuredContent, 0); err != nil {
			return &outputError{"structured content: " + err.Error()}
		}
		if output != nil && !res.IsError {
			return output.Validate(res.StructuredContent)
		}
	case output != nil && !res.IsError:
		return &outputError{"structured content is missing, though the tool has an output schema"}
	}
	return nil
}
