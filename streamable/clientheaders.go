package streamable

import (
	"bytes"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

const (
	mediaJSON   = "application/json"
	mediaStream = "text/event-stream"
)

// Values that are in all requests, made once. Nobody writes to them: http.Header's methods replace slices, and these have no room to append to.
var (
	valueJSON   = []string{mediaJSON}[:1:1]
	valueAccept = []string{mediaJSON + ", " + mediaStream}[:1:1]
	valueStream = []string{mediaStream}[:1:1]
	valueAgent  = []string{"mcpwire"}[:1:1]
	valueModern = []string{mcp.LatestRevision.String()}[:1:1]
	bom         = []byte("\xef\xbb\xbf")
)

// An envelope is what the transport wants to know of a message that goes out. The slices alias the message; they hold JSON text but for method.
type envelope struct {
	kind      jsonrpc.Kind // of a response, KindResponse also for an error
	id        []byte
	method    string
	version   []byte // _meta's protocol version, of modern messages
	name      []byte // params.name, params.uri or params.taskId, whichever the method is about
	arguments []byte
	requestID []byte // params.requestId
	mayAsk    bool   // of initialize: the server may ask for something in return
}

// readEnvelope looks at a message, which is valid JSON, since package jsonrpc wrote it.
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
			e.mayAsk = declaresClientRequests(members.Value())
		}
	}
	return e
}

// declaresClientRequests reports whether a client with these capabilities can be asked for something.
func declaresClientRequests(capabilities []byte) bool {
	for _, name := range []string{"elicitation", "sampling", "roots"} {
		if jsonwire.Lookup(capabilities, name) != nil {
			return true
		}
	}
	return false
}

// mayAskClient reports whether a server may ask something while it does this.
func mayAskClient(method string) bool {
	switch method {
	case mcp.MethodToolsCall, mcp.MethodPromptsGet, mcp.MethodResourcesRead, mcp.MethodComplete:
		return true
	}
	return false
}

// methodName returns the string that text is, without allocating for the usual methods.
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

// header returns a header for one request, with what the user wants in each. n is how many more there will be.
func (t *Transport) header(n int) http.Header {
	h := make(http.Header, len(t.opts.Header)+n+1)
	h["User-Agent"] = valueAgent
	for name, values := range t.opts.Header {
		h[name] = values[:len(values):len(values)]
	}
	return h
}

// modernHeader returns the header of a POST in the modern era: it repeats what the message says
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#standard-request-headers). The error says why it cannot.
func (t *Transport) modernHeader(e *envelope, version []string) (http.Header, error) {
	h := t.header(6)
	h["Content-Type"], h["Accept"] = valueJSON, valueAccept
	h[headerVersion] = version
	if e.method != "" {
		h[headerMethod] = []string{era.EncodeHeaderValue(e.method)}
	}
	if e.name == nil || e.name[0] != '"' {
		return h, nil
	}
	name := jsonwire.Text(e.name)
	h[headerName] = []string{era.EncodeHeaderValue(name)}
	if e.method == mcp.MethodToolsCall {
		return h, t.tools.apply(h, name, e.arguments)
	}
	return h, nil
}

// headerValue returns the value of the header for an argument; ok is false if it has none.
func headerValue(text []byte) (value string, ok bool, err error) {
	switch text[0] {
	case '"':
		return era.EncodeHeaderValue(jsonwire.Text(text)), true, nil
	case 't', 'f':
		return string(text), true, nil
	case 'n', '{', '[':
		return "", false, nil
	}
	f, _ := strconv.ParseFloat(string(text), 64)
	switch {
	case math.Abs(f) > 1<<53-1:
		return "", false, errInexact
	case f == math.Trunc(f) && bytes.ContainsAny(text, ".eE"):
		return strconv.FormatFloat(f, 'f', 0, 64), true, nil // 42.0 is an integer
	}
	return string(text), true, nil
}

// mediaTypeOf returns the media type of the content, in lower case, and "" if that cannot be told.
func mediaTypeOf(h http.Header) string {
	switch v := h.Get("Content-Type"); v {
	case mediaJSON, mediaStream:
		return v
	default:
		kind, _, err := mime.ParseMediaType(v)
		if err != nil {
			kind, _, _ = strings.Cut(v, ";") // the parameters are of no interest
			kind = strings.ToLower(strings.TrimSpace(kind))
		}
		return kind
	}
}
