package server

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/schema"
)

// A resultWriter appends the results of a call in the form of its revision.
type resultWriter struct {
	identity *era.Identity
	features *era.Features
	// target is that of the call, for errors.
	target *target
}

func (c *Call) results() resultWriter {
	return resultWriter{c.session.srv.results, c.ex.Features, &c.target}
}

// end completes a result that lacks its closing brace.
func (rw resultWriter) end(dst []byte) []byte { return rw.identity.End(dst, rw.features) }

// endAs completes an object as a result of another type.
func (rw resultWriter) endAs(dst []byte, t mcp.ResultType) []byte {
	return rw.identity.EndAs(dst[:len(dst)-1], rw.features, t)
}

// endWithMeta completes an object as a result with _meta, which may be nil.
func (rw resultWriter) endWithMeta(dst, meta []byte) []byte {
	return rw.identity.EndWithMeta(dst[:len(dst)-1], rw.features, meta)
}

// empty appends a result without own members.
func (rw resultWriter) empty(dst, meta []byte) []byte {
	return rw.identity.Empty(dst, rw.features, meta)
}

// complete appends a result of code that does not know the revision. hints may be nil.
func (rw resultWriter) complete(dst []byte, hints *era.CacheHints, result []byte) []byte {
	return rw.identity.Complete(dst, rw.features, hints, result)
}

// invalid returns the error for a handler's output that the protocol cannot represent. It is the
// server's fault, not the caller's.
func (rw resultWriter) invalid(format string, args ...any) error {
	return jsonrpc.Errorf(jsonrpc.CodeInternalError, "%s of %s: invalid result: %s", rw.target.method, clip.String(rw.target.name, 100), fmt.Sprintf(format, args...))
}

// failure appends the result of a tool with isError.
func (rw resultWriter) failure(dst []byte, text string) []byte {
	dst = jsonwire.AppendQuote(append(dst, `{"content":[{"type":"text","text":`...), text)
	return rw.end(append(dst, `}],"isError":true`...))
}

// fail fails the request with a text: for a tool, as a result for the model.
func (rw resultWriter) fail(head []byte, text string) ([]byte, error) {
	if rw.target.method == mcp.MethodToolsCall {
		return rw.failure(head, text), nil
	}
	return head, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "%s", text)
}

// tool appends a result that a tool built. A nil result is empty; one that is only structured also
// gets its text as content.
func (rw resultWriter) tool(dst []byte, res *mcp.CallToolResult, output *schema.Validator) ([]byte, error) {
	if res == nil {
		res = &mcp.CallToolResult{}
	}
	if err := checkToolResult(res, output); err != nil {
		return dst, rw.invalidOutput(err)
	}
	structured := bytes.TrimLeft(res.StructuredContent, " \t\r\n")
	dst = append(dst, `{"content":[`...)
	if structured != nil && len(res.Content) == 0 {
		// For clients without structured content.
		dst = mcp.Append(dst, mcp.TextContent{Text: string(jsonwire.AppendCompact(nil, structured))}, mcp.RevisionNone)
	}
	for i, block := range res.Content {
		if i > 0 {
			dst = append(dst, ',')
		}
		block, err := mcp.CheckContent(block)
		if err != nil {
			return dst, rw.invalidOutput(&outputError{fmt.Sprintf("content[%d]: %v", i, err)})
		}
		dst = mcp.Append(dst, block, rw.features.Revision)
	}
	dst = append(dst, ']')
	if structured != nil && rw.features.AllowsStructured(structured) {
		dst = jsonwire.AppendCompact(append(dst, `,"structuredContent":`...), structured)
	}
	if res.IsError {
		dst = append(dst, `,"isError":true`...)
	}
	return rw.identity.EndWithMeta(dst, rw.features, res.Meta), nil
}

// checkToolResult checks everything but the content.
func checkToolResult(res *mcp.CallToolResult, output *schema.Validator) error {
	if err := checkMeta(res.Meta); err != nil {
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
		return &outputError{"structured content is missing, but the tool has an output schema"}
	}
	return nil
}

// invalidOutput returns the error for a tool with invalid output. It is the server's fault, not the
// caller's. An error of the tool's own code, such as a MarshalJSON method, appears only in the log.
func (rw resultWriter) invalidOutput(err error) error {
	var bad *outputError
	var invalid *schema.Error
	switch {
	case errors.As(err, &invalid):
		invalid.Root = "result"
	case !errors.As(err, &bad):
		return fmt.Errorf("tool %s returned invalid output: %w", rw.target.name, err)
	}
	return jsonrpc.Errorf(jsonrpc.CodeInternalError, "tool %s returned invalid output: %v", rw.target.name, err)
}

// An outputError describes an invalid result in words that clients may see.
type outputError struct{ text string }

func (e *outputError) Error() string { return e.text }

// prompt checks and appends the result of a prompt.
func (rw resultWriter) prompt(dst []byte, description string, res *mcp.GetPromptResult) ([]byte, error) {
	if res == nil {
		return dst, rw.invalid("no messages")
	}
	out := *res
	if out.Description == "" {
		out.Description = description
	}
	out.Messages = slices.Clone(res.Messages)
	for i := range out.Messages {
		if err := checkPromptMessage(&out.Messages[i]); err != nil {
			return dst, rw.invalid("messages[%d]: %v", i, err)
		}
	}
	if err := errors.Join(checkMeta(out.Meta), checkExtra(out.Extra)); err != nil {
		return dst, rw.invalid("%v", err)
	}
	meta := out.Meta
	out.Meta, out.ResultType = nil, ""
	return rw.endWithMeta(mcp.Append(dst, &out, rw.features.Revision), meta), nil
}

// resource checks and appends the contents of a resource with the MIME type. hints are those of a
// result without its own. asked is set if the result depends on input of the client.
func (rw resultWriter) resource(dst []byte, mimeType string, res *mcp.ReadResourceResult, hints era.CacheHints, asked bool) ([]byte, error) {
	if res == nil || len(res.Contents) == 0 {
		return dst, rw.notFound()
	}
	out := *res
	out.Contents = slices.Clone(res.Contents)
	for i := range out.Contents {
		v := &out.Contents[i]
		if v.URI == "" {
			v.URI = rw.target.name
		}
		if v.MIMEType == "" && v.URI == rw.target.name {
			v.MIMEType = mimeType
		}
		if err := checkContents(*v); err != nil {
			return dst, rw.invalid("contents[%d]: %v", i, err)
		}
	}
	if err := errors.Join(checkMeta(out.Meta), checkExtra(out.Extra)); err != nil {
		return dst, rw.invalid("%v", err)
	}
	if err := rw.setCacheHints(&out, hints, asked); err != nil {
		return dst, err
	}
	meta := out.Meta
	out.Meta, out.ResultType = nil, ""
	return rw.endWithMeta(mcp.Append(dst, &out, rw.features.Revision), meta), nil
}

// setCacheHints fills in the result's cache hints. A result that depends on the client's input must
// not be cached.
func (rw resultWriter) setCacheHints(res *mcp.ReadResourceResult, hints era.CacheHints, asked bool) error {
	ttl, scope := hints.TTLMillis, mcp.CacheScopePrivate
	if hints.Public {
		scope = mcp.CacheScopePublic
	}
	if res.TTLMs != nil {
		ttl = max(*res.TTLMs, 0)
	}
	switch res.CacheScope {
	case "":
	case mcp.CacheScopePublic, mcp.CacheScopePrivate:
		scope = res.CacheScope
	default:
		return rw.invalid(`the cache scope must be "public" or "private", not %q`, res.CacheScope)
	}
	if asked {
		ttl, scope = 0, mcp.CacheScopePrivate
	}
	res.TTLMs, res.CacheScope = &ttl, scope
	return nil
}

// notFound returns the error for a URI that the caller cannot read.
func (rw resultWriter) notFound() error {
	return errResourceNotFound(rw.target.name, rw.features.Revision)
}
