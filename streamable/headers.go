package streamable

import (
	"bytes"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"mcpwire/internal/base/sparse"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Headers of the protocol, in net/http's canonical form.
const (
	headerVersion = "Mcp-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerParam   = "Mcp-Param-"
	headerSession = "Mcp-Session-Id"
	headerLastID  = "Last-Event-Id"
)

// versionOf returns the protocol version in a request's _meta, without quotes, and reports whether
// _meta has the member, even with an invalid value.
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

// firstVersion returns the version if it is the first member of _meta in the usual form, and nil if
// a search is necessary.
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

// maxFirstVersion limits the version that firstVersion finds, in bytes.
const maxFirstVersion = 16

// stringValue returns the value of a JSON string, and nil for other values. It aliases text if
// possible.
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

// stringParam returns the value of a param, or nil if it is missing or not a string.
func stringParam(m *jsonrpc.Message, name string) []byte {
	value, _ := m.Param(name)
	return stringValue(value)
}

// nameOf returns the value of the param that Mcp-Name repeats, or nil.
func nameOf(m *jsonrpc.Message) []byte {
	if param := era.NameParam(m.Method); param != "" {
		return stringParam(m, param)
	}
	return nil
}

// subjectOf returns the name that a request is about, also for methods without an Mcp-Name header,
// or nil.
func subjectOf(m *jsonrpc.Message) []byte {
	switch string(m.Method) {
	case mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe:
		return stringParam(m, "uri")
	case mcp.MethodTasksResult:
		return stringParam(m, "taskId")
	}
	return nameOf(m)
}

// checkHeaders compares the headers of a modern message with its body
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#server-validation).
// version is the body's.
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
		return headerMismatch("%s differs from params.%s of the body", headerName, era.NameParam(m.Method))
	}
	return nil
}

// checkHeader checks a header that repeats a text without encoding.
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
		return headerMismatch("%s differs from the body", name)
	}
	return nil
}

// singleValue returns the trimmed value of a header that must occur exactly once.
func singleValue(values []string, name string) (string, *jsonrpc.Error) {
	switch len(values) {
	case 0:
		return "", headerMismatch("header %s is missing", name)
	case 1:
		return trimBlank(values[0]), nil
	}
	return "", headerMismatch("header %s appears %d times", name, len(values))
}

// trimBlank is strings.Trim for blanks and tabs. Few values begin or end with one.
func trimBlank(s string) string {
	if s != "" && s[0] > ' ' && s[len(s)-1] > ' ' {
		return s
	}
	return strings.Trim(s, " \t")
}

func headerMismatch(format string, args ...any) *jsonrpc.Error {
	return &jsonrpc.Error{Code: mcp.CodeHeaderMismatch, Message: "header mismatch: " + fmt.Sprintf(format, args...)}
}

// checkParam compares the header called name with the argument at the path.
func checkParam(header http.Header, name string, path []string, arguments []byte) error {
	value, ok := lookupArgument(arguments, path)
	if !ok {
		if _, there := header[name]; there {
			return headerMismatch("header %s is present, but the argument %s is not", name, strings.Join(path, "."))
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
		return headerMismatch("%s differs from the argument %s", name, strings.Join(path, "."))
	}
	return nil
}

// lookupArgument returns the argument at the path. It treats null as absent.
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

// isSameValue reports whether a header has the value of an argument: it compares numbers by value,
// others as text. It accepts objects and arrays, which no header can have; the tool's schema must
// reject them.
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

const (
	mediaJSON   = "application/json"
	mediaStream = "text/event-stream"
	mediaLines  = "application/x-ndjson"
)

// Header values of requests and responses. They are never changed: http.Header's methods replace
// slices, and these have no capacity to append to.
var (
	valueJSON   = []string{mediaJSON}[:1:1]
	valueAccept = []string{mediaJSON + ", " + mediaStream}[:1:1]
	valueStream = []string{mediaStream}[:1:1]
	valueAgent  = []string{"mcpwire"}[:1:1]
	valueModern = []string{mcp.LatestRevision.String()}[:1:1]
	bom         = []byte("\xef\xbb\xbf")
)

// An envelope has the parts of an outbound message that the transport needs. Its slices alias the
// message and hold JSON text.
type envelope struct {
	// kind is KindResponse also for an error.
	kind   jsonrpc.Kind
	id     []byte
	method string
	// version is the protocol version in the _meta of a modern message.
	version []byte
	// name is params.name, params.uri or params.taskId, depending on the method.
	name      []byte
	arguments []byte
	// requestID is params.requestId.
	requestID []byte
	// mayRequest means that an initialize request allows the server to send input requests.
	mayRequest bool
}

// readEnvelope reads a message. It must be valid JSON, as package jsonrpc writes it.
func readEnvelope(msg []byte) (e envelope) {
	var params []byte
	members := jsonwire.ObjectMembers(msg)
	for members.Next() {
		switch {
		case members.KeyIs("id"):
			e.id = members.Value()
		case members.KeyIs("method"):
			e.method = methodName(members.Value())
		case members.KeyIs("params"):
			params = members.Value()
		}
	}
	switch {
	case e.method == "":
		e.kind = jsonrpc.KindResponse
		return e
	case e.id == nil:
		e.kind = jsonrpc.KindNotification
	default:
		e.kind = jsonrpc.KindRequest
	}
	about := era.NameParam(e.method)
	members = jsonwire.ObjectMembers(params)
	for members.Next() {
		switch {
		case members.KeyIs("_meta"):
			e.version = jsonwire.Lookup(members.Value(), mcp.MetaProtocolVersion)
		case about != "" && members.KeyIs(about):
			e.name = members.Value()
		case members.KeyIs("arguments"):
			e.arguments = members.Value()
		case members.KeyIs("requestId"):
			e.requestID = members.Value()
		case members.KeyIs("capabilities") && e.method == mcp.MethodInitialize:
			e.mayRequest = declaresClientRequests(members.Value())
		}
	}
	return e
}

// declaresClientRequests reports whether a client with these capabilities accepts requests.
func declaresClientRequests(capabilities []byte) bool {
	return slices.ContainsFunc([]string{"elicitation", "sampling", "roots"}, func(name string) bool { return jsonwire.Lookup(capabilities, name) != nil })
}

// methodName returns the string value of text, without allocating for common methods.
func methodName(text []byte) string {
	switch string(text) {
	case `"` + mcp.MethodToolsCall + `"`:
		return mcp.MethodToolsCall
	case `"` + mcp.MethodToolsList + `"`:
		return mcp.MethodToolsList
	case `"` + mcp.MethodResourcesRead + `"`:
		return mcp.MethodResourcesRead
	case `"` + mcp.MethodPromptsGet + `"`:
		return mcp.MethodPromptsGet
	}
	return jsonwire.Text(text)
}

// versionValue returns the value of MCP-Protocol-Version for the JSON text of a version.
func versionValue(text []byte) []string {
	if latest := valueModern[0]; len(text) == len(latest)+2 && string(text[1:len(text)-1]) == latest {
		return valueModern
	}
	return []string{era.EncodeHeaderValue(jsonwire.Text(text))}
}

// header returns the header of one request, with the user's headers and room for n more.
func (t *Transport) header(n int) http.Header {
	h := make(http.Header, len(t.opts.Header)+n+1)
	h["User-Agent"] = valueAgent
	for name, values := range t.opts.Header {
		h[name] = values[:len(values):len(values)]
	}
	return h
}

// modernHeader returns the header of a POST in the modern era, which repeats parts of the message
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#standard-request-headers).
// It returns an error if an argument cannot be repeated.
func (t *Transport) modernHeader(e *envelope, version []string) (http.Header, error) {
	h := t.header(6)
	h["Content-Type"], h["Accept"] = valueJSON, valueAccept
	h[headerVersion] = version
	values := make([]string, 2) // of two headers, in one allocation
	if e.method != "" {
		values[0] = era.EncodeHeaderValue(e.method)
		h[headerMethod] = values[:1:1]
	}
	if e.name == nil || e.name[0] != '"' {
		return h, nil
	}
	name := jsonwire.Text(e.name)
	values[1] = era.EncodeHeaderValue(name)
	h[headerName] = values[1:]
	if e.method == mcp.MethodToolsCall {
		return h, t.tools.apply(h, name, e.arguments)
	}
	return h, nil
}

// mediaTypeOf returns the media type of the content in lower case, or "".
func mediaTypeOf(h http.Header) string {
	switch v := h.Get("Content-Type"); v {
	case mediaJSON, mediaStream:
		return v
	default:
		kind, _, err := mime.ParseMediaType(v)
		if err != nil {
			kind, _, _ = strings.Cut(v, ";") // ignore bad parameters
			kind = strings.ToLower(strings.TrimSpace(kind))
		}
		return kind
	}
}

// toolHeaders records which arguments of which tools are repeated in headers
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#custom-headers-from-tool-parameters),
// according to the latest tools/list result. The zero value is ready to use. It is safe for
// concurrent use.
type toolHeaders struct {
	// nonEmpty means that some tool has had headers.
	nonEmpty atomic.Bool
	mu       sync.RWMutex
	byTool   map[string][]toolHeader
}

// A toolHeader is one repeated argument.
type toolHeader struct {
	// key is the canonical header name.
	key  string
	path []string
}

const (
	maxHeaderTools  = 10000 // of all tools
	maxHeaderParams = 64    // of one tool
)

// apply sets the headers that repeat the arguments of a call.
func (t *toolHeaders) apply(h http.Header, tool string, arguments []byte) error {
	for _, p := range t.forTool(tool) {
		value, ok := lookupArgument(arguments, p.path)
		if !ok {
			continue
		}
		if jsonwire.IsInexact(value) {
			return fmt.Errorf("tool %q: argument %q cannot be sent over HTTP: it must be between ±(2^53-1) to be exact in a header", tool, p.path)
		}
		if text, ok := era.EncodeHeaderArgument(value); ok {
			h[p.key] = []string{text}
		}
	}
	return nil
}

// forTool returns the headers of a tool.
func (t *toolHeaders) forTool(tool string) []toolHeader {
	if !t.nonEmpty.Load() {
		return nil
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byTool[tool]
}

// check compares the headers of a call with its arguments.
func (t *toolHeaders) check(h http.Header, tool string, arguments []byte) error {
	for _, p := range t.forTool(tool) {
		if err := checkParam(h, p.key, p.path, arguments); err != nil {
			return err
		}
	}
	return nil
}

// set records the headers of a tool.
func (t *toolHeaders) set(tool string, params []mcp.HeaderParam) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(params) == 0 {
		delete(t.byTool, tool)
		return
	}
	if _, known := t.byTool[tool]; !known && len(t.byTool) >= maxHeaderTools {
		for other := range t.byTool { // any: so large a list is unusual
			delete(t.byTool, other)
			break
		}
	}
	all := make([]toolHeader, len(params))
	for i, p := range params {
		all[i] = toolHeader{http.CanonicalHeaderKey(headerParam + p.Header), p.Path}
	}
	sparse.Set(&t.byTool, tool, all)
	t.nonEmpty.Store(true)
}

// filterTools reads the result of tools/list and returns it without the tools whose x-mcp-header is
// invalid: clients must not use them over HTTP. m is the parsed frame.
func (t *toolHeaders) filterTools(frame []byte, m *jsonrpc.Message, log *slog.Logger) []byte {
	if m.Kind != jsonrpc.KindResponse || !t.nonEmpty.Load() && !bytes.Contains(frame, []byte("mcp-header")) && !bytes.Contains(frame, []byte(`\u`)) {
		return frame
	}
	tools := jsonwire.Lookup(m.Result, "tools")
	if len(tools) == 0 || tools[0] != '[' {
		return frame
	}
	start := cap(frame) - cap(tools) // the offset of tools in frame
	var kept [][]byte
	dropped := false
	elements := jsonwire.ArrayElements(tools)
	for elements.Next() {
		tool := elements.Value()
		if name, err := t.addTool(tool); err != nil {
			log.Warn("tool omitted: it cannot be called over HTTP", "tool", clip.String(name, 100), "error", err)
			dropped = true
			continue
		}
		kept = append(kept, tool)
	}
	if !dropped {
		return frame
	}
	end := start + len(tools) - 1
	return slices.Concat(frame[:start+1], bytes.Join(kept, comma), frame[end:])
}

func (t *toolHeaders) addTool(tool []byte) (name string, err error) {
	if tool[0] != '{' {
		return "", nil // the reader of the result reports it
	}
	var schema []byte
	members := jsonwire.ObjectMembers(tool)
	for members.Next() {
		switch {
		case members.KeyIs("name"):
			name = jsonwire.Text(members.Value())
		case members.KeyIs("inputSchema"):
			schema = members.Value()
		}
	}
	params, err := mcp.HeaderParams(schema)
	if err == nil && len(params) > maxHeaderParams {
		err = fmt.Errorf("it requires %d arguments in headers, more than %d", len(params), maxHeaderParams)
	}
	if err != nil {
		params = nil
	}
	t.set(name, params)
	return name, err
}
