package resend

import (
	"bytes"
	"net/http"
	"strings"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

const (
	maxRequests   = 4096    // HTTP exchanges under way that are remembered
	maxInitialize = 1 << 20 // bytes of an initialize request
	maxParamTool  = 10000   // tools with arguments in headers
)

// A finder remembers what comes before a message that is sent again.
type finder struct {
	session        uint64
	head           *capture.Head
	start          *capture.Start // of the session's process
	lastStart      *capture.Start // the last one
	handshake      handshake      // of the session
	lastHandshake  handshake      // the last one
	modern         bool           // the session has modern requests
	standingStream bool
	sseRequest     *request // that opened the stream of HTTP+SSE
	requests       map[uint64]*request
	params         map[string][]mcp.HeaderParam
}

// A hello is how a legacy session began.
type handshake struct {
	request    []byte
	id         jsonrpc.ID
	revision   string
	session    uint64
	negotiated bool
}

// A request is the head of an HTTP request, as far as it matters.
type request struct {
	method, target, version string
}

// add takes note of an event in front of the message.
func (f *finder) add(e *capture.Event) {
	switch e.Kind {
	case capture.KindHead:
		*f = finder{session: f.session, head: e.Head} // another capture in the same file
	case capture.KindStart:
		if f.lastStart = e.Start; e.Session == f.session {
			f.start = e.Start
		}
	case capture.KindRequest:
		f.request(e)
	case capture.KindResponse:
		if q := f.requests[e.Exchange]; q != nil && q.method == http.MethodGet && e.Response != nil && e.Response.Status == http.StatusOK {
			f.standingStream = true
		}
	case capture.KindEnd:
		delete(f.requests, e.Exchange)
	case capture.KindSSE:
		if e.Session == f.session && e.SSE != nil && e.SSE.Event == eventEndpoint && f.sseRequest == nil {
			f.sseRequest = f.requests[e.Exchange]
		}
	case capture.KindMessage:
		if e.Dir == capture.ToServer {
			f.addClientMessage(e)
		} else {
			f.addServerMessage(e)
		}
	}
}

func (f *finder) request(e *capture.Event) {
	if e.Session != f.session || e.Request == nil {
		return
	}
	if f.requests == nil || len(f.requests) >= maxRequests {
		f.requests = map[uint64]*request{}
	}
	q := &request{method: e.Request.Method, target: strings.Clone(e.Request.URL)}
	for _, h := range e.Request.Headers {
		if strings.EqualFold(h.Name, headerVersion) {
			q.version = strings.TrimSpace(h.Value)
		}
	}
	f.requests[e.Exchange] = q
}

func (f *finder) addClientMessage(e *capture.Event) {
	if e.Session == f.session && !f.modern && revisionOf(e.Data) != "" {
		f.modern = true
	}
	if len(e.Data) > maxInitialize || e.Cut || !bytes.Contains(e.Data, []byte(mcp.MethodInitialize)) {
		return
	}
	var m jsonrpc.Message
	if jsonrpc.Parse(e.Data, &m, 0) != nil || m.Kind != jsonrpc.KindRequest || string(m.Method) != mcp.MethodInitialize {
		return
	}
	h := handshake{request: bytes.Clone(e.Data), id: m.ID.Clone(), session: e.Session}
	if v, ok := m.Param("protocolVersion"); ok {
		h.revision = jsonwire.Text(v)
	}
	f.lastHandshake = h
	if e.Session == f.session {
		f.handshake = h
	}
}

func (f *finder) addServerMessage(e *capture.Event) {
	for _, h := range []*handshake{&f.handshake, &f.lastHandshake} {
		h.setRevision(e)
	}
	if !bytes.Contains(e.Data, []byte("x-mcp-header")) {
		return
	}
	var m jsonrpc.Message
	if jsonrpc.Parse(e.Data, &m, 0) != nil || m.Kind != jsonrpc.KindResponse {
		return
	}
	f.params = learnParams(f.params, m.Result)
}

// setRevision takes the revision from the answer to the request.
func (h *handshake) setRevision(e *capture.Event) {
	if h.request == nil || h.negotiated || e.Session != h.session {
		return
	}
	var m jsonrpc.Message
	if jsonrpc.Parse(e.Data, &m, 0) != nil || m.Kind != jsonrpc.KindResponse || !m.ID.Equal(h.id) {
		return
	}
	h.negotiated = true
	if v := jsonwire.Text(jsonwire.Lookup(m.Result, "protocolVersion")); v != "" {
		h.revision = v
	}
}

// learnParams adds what the result of tools/list says of arguments in headers.
func learnParams(known map[string][]mcp.HeaderParam, result []byte) map[string][]mcp.HeaderParam {
	tools := jsonwire.Lookup(result, "tools")
	if len(tools) == 0 || tools[0] != '[' {
		return known
	}
	list := jsonwire.ArrayElements(tools)
	for list.Next() {
		if list.Value()[0] != '{' {
			continue
		}
		schema := jsonwire.Lookup(list.Value(), "inputSchema")
		params, err := mcp.HeaderParams(schema)
		name := jsonwire.Text(jsonwire.Lookup(list.Value(), "name"))
		switch {
		case schema == nil || err != nil || len(params) == 0:
			delete(known, name)
		case len(known) < maxParamTool:
			if known == nil {
				known = map[string][]mcp.HeaderParam{}
			}
			known[name] = params
		}
	}
	return known
}

// transport tells how the message in e came.
func (f *finder) transport(e *capture.Event) Transport {
	switch {
	case f.sseRequest != nil:
		return SSE
	case e.Exchange > 0, f.lastStart == nil && f.head != nil && f.head.Transport == string(HTTP):
		return HTTP
	}
	return Stdio
}

// target is the target of the HTTP request that leads to the server.
func (f *finder) target(e *capture.Event) string {
	if f.sseRequest != nil {
		return f.sseRequest.target
	}
	if q := f.requests[e.Exchange]; q != nil {
		return q.target
	}
	return ""
}

// revisionOf returns the revision that a modern message says it is of; "" of another.
func revisionOf(message []byte) string {
	if !bytes.Contains(message, []byte(mcp.MetaProtocolVersion)) && !bytes.Contains(message, []byte(`\u`)) {
		return ""
	}
	for _, m := range parse(message) {
		meta, _ := m.Param("_meta")
		if v := jsonwire.Text(jsonwire.Lookup(meta, mcp.MetaProtocolVersion)); v != "" {
			return v
		}
	}
	return ""
}

// SyntheticInitialize is the request that begins a session of which a capture does not have the beginning: in the revision, or in the newest with a handshake if that has none. tool is the
// name and the version of who asks. form says that questions to the user are welcome.
func SyntheticInitialize(revision, tool string, id jsonrpc.ID, form bool) []byte {
	r, ok := mcp.ParseRevision(revision)
	if !ok || r.Modern() {
		_, r = era.Newest(mcp.Revisions())
	}
	name, version, _ := strings.Cut(tool, " ")
	offer := era.ClientProfile{Info: mcp.Implementation{Name: name, Version: version}, Form: form}
	f := era.Of(r)
	capabilities, _ := offer.Capabilities(f)
	return jsonrpc.AppendRequest(nil, id, mcp.MethodInitialize, offer.AppendInitialize(nil, f, capabilities))
}
