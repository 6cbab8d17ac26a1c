package mcp

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"mcpwire/internal/json/jsonpointer"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/net/challenge"
)

// A HeaderParam is a tool argument that HTTP clients repeat in a header, since 2026-07-28: its
// schema has an x-mcp-header.
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http,
// section "Custom Headers from Tool Parameters")
type HeaderParam struct {
	// Header is the header's name after Mcp-Param-. Names are case-insensitive.
	Header string
	// Path holds the names of the properties that lead to the argument, at least one.
	Path []string
	// Type is string, integer or boolean.
	Type string
}

const headerKeyword = "x-mcp-header"

// HeaderParams returns the arguments that a tool's input schema repeats in headers, in order.
// inputSchema must be valid JSON; it is not kept. The error says how the schema breaks the rules
// for x-mcp-header, and where, as a JSON pointer. A server must not offer such a tool, and an HTTP
// client must not show it.
//
// An x-mcp-header must be an HTTP token, unique in the schema regardless of case. It must be next
// to "type":"string", "integer" or "boolean", in a property that is reached from the root through
// properties alone. Integer constants, defaults and enum values must be exact in a float64. A
// schema with any x-mcp-header must not nest deeper than 64 levels.
func HeaderParams(inputSchema []byte) ([]HeaderParam, error) {
	if !bytes.Contains(inputSchema, []byte(headerKeyword)) && !bytes.Contains(inputSchema, []byte(`\u`)) {
		return nil, nil // most tools
	}
	var w headerWalk
	if err := w.schema(inputSchema, "", nil, true); err != nil {
		return nil, err
	}
	return w.found, nil
}

// A headerWalk walks a schema.
type headerWalk struct {
	found []HeaderParam
	depth int
}

// maxHeaderDepth limits the nesting of schemas with an x-mcp-header. Each level reads all its
// content, so a malicious server can make a client read this many times the size of its message.
const maxHeaderDepth = 64

func headerError(pointer, format string, args ...any) error {
	return fmt.Errorf("%s at %s/%s %s", headerKeyword, pointer, headerKeyword, fmt.Sprintf(format, args...))
}

// schema checks one schema. path is nil for the root. inProperties says that only properties lead
// to it.
func (w *headerWalk) schema(text []byte, pointer string, path []string, inProperties bool) error {
	if w.depth++; w.depth > maxHeaderDepth {
		return fmt.Errorf("%s: the schema nests deeper than %d levels", headerKeyword, maxHeaderDepth)
	}
	defer func() { w.depth-- }()
	var header, kind, keyword []byte
	members := jsonwire.ObjectMembers(text)
	for members.Next() {
		value := members.Value()
		switch {
		case members.KeyIs(headerKeyword):
			if header != nil {
				return headerError(pointer, "appears twice")
			}
			header = value
		case members.KeyIs("type"):
			kind = value
		}
	}
	if header != nil {
		switch {
		case !inProperties:
			return headerError(pointer, "is not allowed here: it must be on a property that is reached through properties alone")
		case path == nil:
			return headerError(pointer, "is not allowed here: the arguments as a whole cannot be in a header")
		}
		if err := w.annotation(text, header, kind, pointer, path); err != nil {
			return err
		}
	}
	members = jsonwire.ObjectMembers(text)
	for members.Next() {
		keyword = jsonwire.AppendUnquote(keyword[:0], members.RawKey())
		if err := w.keyword(string(keyword), members.Value(), pointer, path, inProperties); err != nil {
			return err
		}
	}
	return nil
}

// keyword checks the schemas within one keyword.
func (w *headerWalk) keyword(keyword string, value []byte, pointer string, path []string, inProperties bool) error {
	pointer += "/" + jsonpointer.Escape(keyword)
	switch keyword {
	case headerKeyword, "enum", "const", "default", "examples": // values, not schemas
		return nil
	case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies":
		inProperties = inProperties && keyword == "properties"
		members := jsonwire.ObjectMembers(value)
		for members.Next() {
			name := members.KeyString()
			if err := w.schema(members.Value(), pointer+"/"+jsonpointer.Escape(name), append(slices.Clip(path), name), inProperties); err != nil {
				return err
			}
		}
		return nil
	}
	elements := jsonwire.ArrayElements(value) // empty for an object
	for i := 0; elements.Next(); i++ {
		if err := w.schema(elements.Value(), pointer+"/"+strconv.Itoa(i), path, false); err != nil {
			return err
		}
	}
	return w.schema(value, pointer, path, false)
}

// annotation adds the argument whose schema has the annotation.
func (w *headerWalk) annotation(schema, header, kind []byte, pointer string, path []string) error {
	name, ok := jsonwire.String(header)
	switch {
	case !ok:
		return headerError(pointer, "must be a string")
	case name == "":
		return headerError(pointer, "is empty: it must be the part of a header name after Mcp-Param-")
	case strings.Trim(name, challenge.TokenCharacters) != "":
		return headerError(pointer, "is %q: it must be an HTTP token, of letters, digits and !#$%%&'*+-.^_`|~", name)
	}
	for _, p := range w.found {
		if strings.EqualFold(p.Header, name) {
			return headerError(pointer, "is %q, like that of %s: header names are case-insensitive", name, strings.Join(p.Path, "."))
		}
	}
	typ := jsonwire.Text(kind)
	switch typ {
	case "string", "boolean":
	case "integer":
		if bad := inexactValue(schema); bad != "" {
			return headerError(pointer, "is not allowed here: %s is not exact in a header; only integers between ±(2^53-1) are", bad)
		}
	default:
		return headerError(pointer, `needs "type":"string", "integer" or "boolean" next to it`)
	}
	w.found = append(w.found, HeaderParam{Header: name, Path: path, Type: typ})
	return nil
}

// inexactValue returns the first value in the schema that a float64 cannot hold exactly, or "".
func inexactValue(schema []byte) string {
	members := jsonwire.ObjectMembers(schema)
	for members.Next() {
		if !members.KeyIs("const") && !members.KeyIs("default") && !members.KeyIs("enum") {
			continue
		}
		if jsonwire.IsInexact(members.Value()) {
			return string(members.Value())
		}
		values := jsonwire.ArrayElements(members.Value())
		for values.Next() {
			if jsonwire.IsInexact(values.Value()) {
				return string(values.Value())
			}
		}
	}
	return ""
}
