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

// A toolAnswer is the text of a CallToolResult, and where its parts are.
type toolAnswer struct {
	raw        []byte
	content    []byte // an array
	structured []byte // nil if there is none; null is a value
	isError    bool
}

// readAnswer finds the parts of a CallToolResult.
func readAnswer(raw []byte) (toolAnswer, error) {
	a := toolAnswer{raw: raw}
	members := jsonwire.ObjectMembers(raw)
	for members.Next() {
		switch {
		case members.KeyIs("content"):
			a.content = members.Value()
		case members.KeyIs("structuredContent"):
			a.structured = members.Value()
		case members.KeyIs("isError"):
			a.isError = string(members.Value()) == "true"
		}
	}
	if a.structured == nil && (len(a.content) == 0 || a.content[0] != '[') {
		return a, &ProtocolError{Method: mcp.MethodToolsCall, Reason: "the result has no content"}
	}
	return a, nil
}

// result decodes all of it.
func (a *toolAnswer) result() (*mcp.CallToolResult, error) {
	r := new(mcp.CallToolResult)
	if err := decodeResult(mcp.MethodToolsCall, a.raw, r); err != nil {
		return nil, err
	}
	return r, nil
}

// text returns the text blocks, joined by line breaks, and how many there are.
func (a *toolAnswer) text() (all string, n int) {
	var several strings.Builder
	blocks := jsonwire.ArrayElements(a.content)
	for blocks.Next() {
		if !stringIs(jsonwire.Lookup(blocks.Value(), "type"), "text") {
			continue
		}
		text, _ := stringValue(jsonwire.Lookup(blocks.Value(), "text"))
		switch n++; n {
		case 1:
			all = text
			continue
		case 2:
			several.WriteString(all)
		}
		several.WriteByte('\n')
		several.WriteString(text)
	}
	if n > 1 {
		all = several.String()
	}
	return all, n
}

// str returns what a string gets of the answer: the text or, if there is none, structured content that is a string.
func (a *toolAnswer) str() string {
	all, n := a.text()
	if s, ok := stringValue(a.structured); ok && n == 0 {
		return s
	}
	return all
}

var errNoOutput = errors.New("the result has no structured content, and no single text block with JSON in its place")

// data returns the JSON text of what the tool has to say: the structured content, or what stands for it in servers that know none.
func (a *toolAnswer) data() (json.RawMessage, error) {
	if a.structured != nil {
		return a.structured, nil
	}
	all, n := a.text()
	if n != 1 {
		return nil, errNoOutput
	}
	text := bytes.TrimSpace([]byte(all))
	if jsonwire.Valid(text, 0) != nil {
		return nil, errNoOutput
	}
	return text, nil
}

// outputOf decodes what a tool answered.
func outputOf[Out any](c *Client, name string, a *toolAnswer) (Out, error) {
	var none Out
	if a.isError {
		result, err := a.result()
		if err != nil {
			return none, err
		}
		return none, &ToolError{Tool: name, Result: result}
	}
	if _, ok := any(none).(string); ok { // the most usual one, without allocating a variable for it
		return any(a.str()).(Out), nil
	}
	return decodeOutput[Out](c, name, a)
}

func decodeOutput[Out any](c *Client, name string, a *toolAnswer) (out Out, err error) {
	if done, err := a.decodeKnown(&out); done {
		return out, err
	}
	typed, err := outputType[Out](c)
	if err != nil {
		return out, fmt.Errorf("tool %q: %w", name, err)
	}
	data, err := a.data()
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

// decodeKnown decodes types that say which part of the result they want. It reports false for others.
func (a *toolAnswer) decodeKnown(out any) (done bool, err error) {
	switch out := out.(type) {
	case *json.RawMessage:
		data, err := a.data()
		*out = bytes.Clone(data)
		return true, err
	case *[]mcp.ContentBlock:
		result, err := a.result()
		if err == nil {
			*out = result.Content
		}
		return true, err
	case **mcp.CallToolResult:
		*out, err = a.result()
	case *mcp.CallToolResult:
		return true, decodeResult(mcp.MethodToolsCall, a.raw, out)
	default:
		return false, nil
	}
	return true, err
}

// outputType returns Out, compiled for decoding, which it does once for a client.
func outputType[Out any](c *Client) (*schema.Typed[Out], error) {
	key := reflect.TypeFor[Out]()
	if typed, ok := c.outputs.Load(key); ok {
		return typed.(*schema.Typed[Out]), nil
	}
	typed, err := schema.Of[Out](&schema.Options{AllowUnknown: true, Engine: c.opts.SchemaEngine})
	if err != nil {
		return nil, err
	}
	c.outputs.Store(key, typed)
	return typed, nil
}
