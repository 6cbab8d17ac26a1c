package streamable

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Headers of the protocol, in the form in which net/http keeps them.
const (
	headerVersion = "Mcp-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerParam   = "Mcp-Param-"
	headerSession = "Mcp-Session-Id"
	headerLastID  = "Last-Event-Id"
)

// versionOf returns the text of the protocol version that a request's _meta names, without quotes, and whether there is one, whatever it is.
func versionOf(m *jsonrpc.Message) (version []byte, ok bool) {
	meta, ok := m.Param("_meta")
	if !ok || meta[0] != '{' {
		return nil, false
	}
	if version := firstVersion(meta); version != nil {
		return version, true
	}
	members := jsonwire.ObjectMembers(meta)
	for members.Next() {
		if members.KeyIs(mcp.MetaProtocolVersion) {
			return stringValue(members.Value()), true
		}
	}
	return nil, false
}

// firstVersion returns the version if it comes first in _meta and is spelled as nearly every client does; nil if it has to be looked for.
func firstVersion(meta []byte) []byte {
	const head = `{"` + mcp.MetaProtocolVersion + `":"`
	if len(meta) < len(head) || string(meta[:len(head)]) != head {
		return nil
	}
	for i, c := range meta[len(head):min(len(meta), len(head)+maxFirstVersion)] {
		switch c {
		case '"':
			return meta[len(head) : len(head)+i]
		case '\\':
			return nil
		}
	}
	return nil
}

// maxFirstVersion is how long firstVersion looks, in bytes.
const maxFirstVersion = 16

// stringValue returns the value of a JSON string, which aliases text where it can; nil of anything else.
func stringValue(text []byte) []byte {
	if len(text) < 2 || text[0] != '"' {
		return nil
	}
	text = text[1 : len(text)-1]
	if bytes.IndexByte(text, '\\') < 0 {
		return text
	}
	return jsonwire.AppendUnquote([]byte{}, text)
}

// nameOf returns what a request names, as the value of the param that Mcp-Name would repeat; nil if there is none.
func nameOf(m *jsonrpc.Message) []byte {
	param := era.NameParam(m.Method)
	if param == "" {
		return nil
	}
	value, ok := m.Param(param)
	if !ok {
		return nil
	}
	return stringValue(value)
}

// subjectOf returns what a request is about: what it names, or would if it had a header for that; nil if nothing.
func subjectOf(m *jsonrpc.Message) []byte {
	param := "uri"
	switch string(m.Method) {
	case mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe:
	case mcp.MethodTasksResult:
		param = "taskId"
	default:
		return nameOf(m)
	}
	value, ok := m.Param(param)
	if !ok {
		return nil
	}
	return stringValue(value)
}

// checkHeaders holds the headers of a modern message against its body
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#server-validation). version is that of the body.
func checkHeaders(header http.Header, m *jsonrpc.Message, version []byte) *jsonrpc.Error {
	request := m.Kind == jsonrpc.KindRequest
	if e := checkHeader(header, headerVersion, version, true); e != nil {
		return e
	}
	if e := checkHeader(header, headerMethod, m.Method, request); e != nil {
		return e
	}
	name := nameOf(m)
	if !request || name == nil {
		return nil
	}
	value, e := singleValue(header[headerName], headerName)
	if e != nil {
		return e
	}
	if value == string(name) && era.PlainHeaderValue(value) {
		return nil
	}
	decoded, err := era.DecodeHeaderValue(value)
	if err != nil {
		return headerMismatch("%s: %v", headerName, err)
	}
	if decoded != string(name) {
		return headerMismatch("%s is not what params.%s of the body says", headerName, era.NameParam(m.Method))
	}
	return nil
}

// checkHeader checks a header whose value is the text itself.
func checkHeader(header http.Header, name string, want []byte, required bool) *jsonrpc.Error {
	values := header[name]
	if values == nil && !required {
		return nil
	}
	value, e := singleValue(values, name)
	if e != nil {
		return e
	}
	if value != string(want) || !era.PlainHeaderValue(value) {
		return headerMismatch("%s is not what the body says", name)
	}
	return nil
}

// singleValue returns the value of a header that must stand there once, without the white space around it.
func singleValue(values []string, name string) (string, *jsonrpc.Error) {
	switch len(values) {
	case 0:
		return "", headerMismatch("header %s is missing", name)
	case 1:
		return trimBlank(values[0]), nil
	}
	return "", headerMismatch("header %s stands there %d times", name, len(values))
}

// trimBlank is strings.Trim for blanks and tabs, which few values have at their ends.
func trimBlank(s string) string {
	if s != "" && s[0] > ' ' && s[len(s)-1] > ' ' {
		return s
	}
	return strings.Trim(s, " \t")
}

func headerMismatch(format string, args ...any) *jsonrpc.Error {
	return &jsonrpc.Error{Code: mcp.CodeHeaderMismatch, Message: "header mismatch: " + fmt.Sprintf(format, args...)}
}

// checkParams holds the headers that repeat a tool's arguments against these.
func checkParams(header http.Header, params []mcp.HeaderParam, arguments []byte) *jsonrpc.Error {
	for i := range params {
		if e := checkParam(header, http.CanonicalHeaderKey(headerParam+params[i].Header), params[i].Path, arguments); e != nil {
			return e
		}
	}
	return nil
}

// checkParam holds one of them, by its name in header, against the argument at the path.
func checkParam(header http.Header, name string, path []string, arguments []byte) *jsonrpc.Error {
	value, ok := lookupArgument(arguments, path)
	if !ok {
		if _, there := header[name]; there {
			return headerMismatch("header %s is there, but not the argument %s", name, strings.Join(path, "."))
		}
		return nil
	}
	text, e := singleValue(header[name], name)
	if e != nil {
		return e
	}
	decoded, err := era.DecodeHeaderValue(text)
	if err != nil {
		return headerMismatch("%s: %v", name, err)
	}
	if !isSameValue(value, decoded) {
		return headerMismatch("%s is not what the argument %s says", name, strings.Join(path, "."))
	}
	return nil
}

// lookupArgument finds the argument at the path. null counts as absent.
func lookupArgument(object []byte, path []string) (value []byte, ok bool) {
	for _, name := range path {
		if len(object) == 0 || object[0] != '{' {
			return nil, false
		}
		members := jsonwire.ObjectMembers(object)
		object = nil
		for members.Next() {
			if members.KeyIs(name) {
				object = members.Value()
			}
		}
	}
	return object, len(object) > 0 && string(object) != "null"
}

// isSameValue reports whether a header's value is that of an argument: numbers are compared as such, anything else as text. An argument of a type that no
// header can have has to be refused by the tool's schema.
func isSameValue(value []byte, header string) bool {
	switch value[0] {
	case '"':
		return string(stringValue(value)) == header
	case 't', 'f':
		return string(value) == header
	case '{', '[':
		return true
	}
	if string(value) == header {
		return true
	}
	a, err1 := strconv.ParseFloat(string(value), 64)
	b, err2 := strconv.ParseFloat(header, 64)
	return err1 == nil && err2 == nil && a == b
}
