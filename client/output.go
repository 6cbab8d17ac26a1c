package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
	"mcpwire/schema"
)

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
