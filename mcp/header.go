package mcp

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"mcpwire/internal/json/jsonwire"
)

// A HeaderParam is an argument of a tool that clients on HTTP repeat in a header, since 2026-07-28: its schema has an x-mcp-header.
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#custom-headers-from-tool-parameters)
type HeaderParam struct {
	Header string   // the header's name behind Mcp-Param-; names are compared without regard to case
	Path   []string // the names of the properties that lead to the argument; at least one
	Type   string   // string, integer or boolean
}

const headerKeyword = "x-mcp-header"

// HeaderParams returns the arguments that a tool's input schema has in headers, in the order in which they stand. inputSchema is valid JSON; it is
// not kept. The error says where the schema breaks the rules for x-mcp-header, as a JSON pointer, and how. A server must not offer such a tool, and a client on
// HTTP must not show it.
//
// An x-mcp-header must be an HTTP token, unique in the schema without regard to case, and stand with "type":"string", "integer" or "boolean" in a property that
// is reached from the root through properties alone. Constants, defaults and values of an enum must, if they are integers, be exact in a float64; and a
// schema that has any x-mcp-header must not nest deeper than 64 levels.
func HeaderParams(inputSchema []byte) ([]HeaderParam, error) {
	if !bytes.Contains(inputSchema, []byte(headerKeyword)) && !bytes.Contains(inputSchema, []byte(`\u`)) {
		return nil, nil // as of most tools
	}
	var w headerWalk
	if err := w.schema(inputSchema, "", nil, true); err != nil {
		return nil, err
	}
	return w.found, nil
}

// A headerWalk goes through a schema.
type headerWalk struct {
	found []HeaderParam
	depth int
}

// maxHeaderDepth is how deeply schemas may nest that have an x-mcp-header somewhere. Each level reads all that is in it, so what a hostile server can make a client do is
// that often the size of its message.
const maxHeaderDepth = 64

func headerError(pointer, format string, args ...any) error {
	return fmt.Errorf("%s at %s/%s %s", headerKeyword, pointer, headerKeyword, fmt.Sprintf(format, args...))
}

// schema looks at one schema. path is nil for the root. reached is false where properties alone do not lead to.
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
				return headerError(pointer, "stands twice")
			}
			header = value
		case members.KeyIs("type"):
			kind = value
		}
	}
	if header != nil {
		switch {
		case !inProperties:
			return headerError(pointer, "cannot be there: it must be in a property that is reached through properties alone")
		case path == nil:
			return headerError(pointer, "cannot be there: the arguments as a whole are in no header")
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

// keyword looks at the schemas within one keyword.
func (w *headerWalk) keyword(keyword string, value []byte, pointer string, path []string, inProperties bool) error {
	pointer += "/" + pointerEscape.Replace(keyword)
	switch keyword {
	case headerKeyword, "enum", "const", "default", "examples": // no schemas, but values
		return nil
	case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies":
		inProperties = inProperties && keyword == "properties"
		members := jsonwire.ObjectMembers(value)
		for members.Next() {
			name := members.KeyString()
			if err := w.schema(members.Value(), pointer+"/"+pointerEscape.Replace(name), append(slices.Clip(path), name), inProperties); err != nil {
				return err
			}
		}
		return nil
	}
	elements := jsonwire.ArrayElements(value) // of an object, there are none
	for i := 0; elements.Next(); i++ {
		if err := w.schema(elements.Value(), pointer+"/"+strconv.Itoa(i), path, false); err != nil {
			return err
		}
	}
	return w.schema(value, pointer, path, false)
}

var pointerEscape = strings.NewReplacer("~", "~0", "/", "~1")

// annotation adds the argument whose schema has the annotation.
func (w *headerWalk) annotation(schema, header, kind []byte, pointer string, path []string) error {
	name, ok := stringOf(header)
	switch {
	case !ok:
		return headerError(pointer, "must be a string")
	case name == "":
		return headerError(pointer, "is empty: it must be the name of a header behind Mcp-Param-")
	case strings.ContainsFunc(name, func(r rune) bool { return !isTokenChar(r) }):
		return headerError(pointer, "is %q: it must be an HTTP token, of letters, digits and !#$%%&'*+-.^_`|~", name)
	}
	for _, p := range w.found {
		if strings.EqualFold(p.Header, name) {
			return headerError(pointer, "is %q, as is that of %s: header names are the same in upper and lower case", name, strings.Join(p.Path, "."))
		}
	}
	typ, _ := stringOf(kind)
	switch typ {
	case "string", "boolean":
	case "integer":
		if bad := inexactValue(schema); bad != "" {
			return headerError(pointer, "cannot be there: %s is not exact in a header, only integers between ±(2^53-1) are", bad)
		}
	default:
		return headerError(pointer, `needs "type":"string", "integer" or "boolean" beside it`)
	}
	w.found = append(w.found, HeaderParam{Header: name, Path: path, Type: typ})
	return nil
}

// inexactValue returns the first value that the schema names and a float64 cannot hold exactly, or "".
func inexactValue(schema []byte) string {
	members := jsonwire.ObjectMembers(schema)
	for members.Next() {
		if !members.KeyIs("const") && !members.KeyIs("default") && !members.KeyIs("enum") {
			continue
		}
		if isInexact(members.Value()) {
			return string(members.Value())
		}
		values := jsonwire.ArrayElements(members.Value())
		for values.Next() {
			if isInexact(values.Value()) {
				return string(values.Value())
			}
		}
	}
	return ""
}

func isInexact(value []byte) bool {
	if c := firstByte(value); c != '-' && (c < '0' || c > '9') {
		return false
	}
	f, _ := strconv.ParseFloat(string(value), 64) // an infinity if it is too large
	return math.Abs(f) > 1<<53-1
}

// isTokenChar reports whether r may stand in a token (RFC 9110, section 5.6.2).
func isTokenChar(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}
