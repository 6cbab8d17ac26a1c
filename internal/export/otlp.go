package export

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"strconv"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/filter"
	"mcpwire/internal/jsonwire"
	"mcpwire/internal/wireview"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxWindow is how many rows are held: what an exchange may lie apart from what belongs to it.
const maxWindow = 10_000

// maxSpans is how many spans are in one line.
const maxSpans = 512

// OTLP writes the requests of a capture as spans, in the JSON of OpenTelemetry's protocol (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding), one
// ExportTraceServiceRequest a line, which is what collectors read from files. Names and attributes follow the conventions for MCP
// (https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp/). The spans are the server's: children of the span that the request names in its metadata, and parents
// of what the server asked meanwhile. Arguments and results are not in them.
func OTLP(w io.Writer, events Events, opts *Options) (Left, error) {
	x := &otlp{w: bufio.NewWriterSize(w, 64<<10), opts: opts.withDefaults(), parents: map[eventKey]string{}}
	m := wireview.New(&wireview.Options{MaxRows: maxWindow, Scan: x.scan})
	for e, err := range events {
		if err != nil {
			return x.left, err
		}
		for _, c := range m.Add(nil, e) {
			if c.Op == wireview.Dropped {
				if err := x.row(c.Row, nil); err != nil {
					return x.left, err
				}
			}
		}
	}
	m.Finish()
	for _, r := range m.Rows() {
		if err := x.row(r, nil); err != nil {
			return x.left, err
		}
	}
	if err := x.flush(); err != nil {
		return x.left, err
	}
	return x.left, x.w.Flush()
}

type eventKey struct {
	capture string
	n       uint64
}

type otlp struct {
	w       *bufio.Writer
	opts    Options
	parents map[eventKey]string // traceparent of requests
	server  string              // of spans
	spans   []span
	left    Left
}

type (
	traces struct {
		Resources []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource struct {
			Attributes []attribute `json:"attributes"`
		} `json:"resource"`
		Scopes []scopeSpans `json:"scopeSpans"`
	}
	scopeSpans struct {
		Scope harCreator `json:"scope"`
		Spans []span     `json:"spans"`
	}
	span struct {
		Trace      string      `json:"traceId"`
		ID         string      `json:"spanId"`
		Parent     string      `json:"parentSpanId,omitempty"`
		Name       string      `json:"name"`
		Kind       int         `json:"kind"`
		Start      string      `json:"startTimeUnixNano"`
		End        string      `json:"endTimeUnixNano"`
		Attributes []attribute `json:"attributes"`
		Events     []spanEvent `json:"events,omitempty"`
		Status     spanStatus  `json:"status"`
	}
	spanEvent struct {
		Time       string      `json:"timeUnixNano"`
		Name       string      `json:"name"`
		Attributes []attribute `json:"attributes,omitempty"`
	}
	spanStatus struct {
		Code    int    `json:"code,omitempty"`
		Message string `json:"message,omitempty"`
	}
	attribute struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	value struct {
		String *string `json:"stringValue,omitempty"`
		Int    *string `json:"intValue,omitempty"`
	}
)

// Numbers of the protocol.
const (
	kindServer  = 2
	kindClient  = 3
	statusError = 2
)

// scan notes the span that a request says it belongs to.
func (x *otlp) scan(e *capture.Event) filter.Hits {
	var m jsonrpc.Message
	if e.Kind != capture.KindMessage || jsonrpc.Parse(e.Data, &m, 0) != nil || m.Kind != jsonrpc.KindRequest || len(m.Params) == 0 || m.Params[0] != '{' {
		return 0
	}
	for p := jsonwire.ObjectMembers(m.Params); p.Next(); {
		if v := p.Value(); p.KeyIs("_meta") && v[0] == '{' {
			for q := jsonwire.ObjectMembers(v); q.Next(); {
				if s := q.Value(); q.KeyIs("traceparent") && len(s) < 100 && s[0] == '"' && len(x.parents) < 2*maxWindow {
					x.parents[eventKey{e.Capture, e.N}] = jsonwire.UnquoteString(s[1 : len(s)-1])
				}
			}
		}
	}
	return 0
}

// row makes a span of a request, and of those inside it.
func (x *otlp) row(r *wireview.Row, parent *span) error {
	if r.Kind != wireview.Request {
		if r.Parent == nil {
			x.left.Events += uint64(len(r.Events))
		}
		return nil
	}
	if len(x.spans) >= maxSpans || x.server != r.Capture.Name {
		if err := x.flush(); err != nil {
			return err
		}
		x.server = r.Capture.Name
	}
	s := x.span(r, parent)
	for _, c := range r.Children {
		if c.Kind == wireview.Progress || c.Kind == wireview.Log {
			s.Events = append(s.Events, spanEvent{Time: nanos(c.At), Name: c.Method, Attributes: []attribute{text("mcpwire.excerpt", c.Excerpt)}})
		}
	}
	x.spans = append(x.spans, s)
	for _, c := range r.Children {
		if err := x.row(c, &s); err != nil {
			return err
		}
	}
	return nil
}

func (x *otlp) span(r *wireview.Row, parent *span) span {
	id := sha256.Sum256([]byte(r.Capture.ID + "#" + strconv.FormatUint(r.N, 10) + "#" + strconv.FormatUint(r.Seq, 10)))
	s := span{
		Trace: hex.EncodeToString(id[:16]), ID: hex.EncodeToString(id[16:24]), Name: r.Method, Kind: kindServer,
		Start: nanos(r.At), End: nanos(r.At.Add(r.Latency)), Attributes: attributes(r),
	}
	if r.Target != "" && (r.Method == mcp.MethodToolsCall || r.Method == mcp.MethodPromptsGet) {
		s.Name += " " + r.Target
	}
	if r.Dir == capture.ToClient {
		s.Kind = kindClient
	}
	key := eventKey{r.Capture.ID, r.N}
	if trace, up, ok := traceparent(x.parents[key]); ok {
		s.Trace, s.Parent = trace, up
	} else if parent != nil {
		s.Trace, s.Parent = parent.Trace, parent.ID
	}
	delete(x.parents, key)
	switch r.Status {
	case wireview.Failed, wireview.HTTPFailed, wireview.Unanswered:
		s.Status = spanStatus{statusError, r.Message}
	case wireview.Cancelled:
		s.Status = spanStatus{statusError, "cancelled"}
	case wireview.ToolFailed: // what it says is part of the result
		s.Status = spanStatus{Code: statusError}
	}
	return s
}

func attributes(r *wireview.Row) []attribute {
	list := []attribute{text("mcp.method.name", r.Method), text("jsonrpc.request.id", requestID(r.ID))}
	add := func(key, v string) {
		if v != "" {
			list = append(list, text(key, v))
		}
	}
	add("mcp.protocol.version", r.Rev())
	switch r.Method {
	case mcp.MethodToolsCall:
		add("gen_ai.tool.name", r.Target)
		add("gen_ai.operation.name", "execute_tool")
	case mcp.MethodPromptsGet:
		add("gen_ai.prompt.name", r.Target)
	case mcp.MethodResourcesRead, mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe:
		add("mcp.resource.uri", r.Target)
	}
	switch r.Capture.Transport {
	case "stdio":
		add("network.transport", "pipe")
	case "http", "sse":
		add("network.transport", "tcp")
	}
	switch r.Status {
	case wireview.Failed:
		add("rpc.response.status_code", r.CodeText())
		add("error.type", r.CodeText())
	case wireview.HTTPFailed:
		add("error.type", r.CodeText())
	case wireview.ToolFailed:
		add("error.type", "tool_error")
	case wireview.Cancelled:
		add("error.type", "cancelled")
	case wireview.Unanswered:
		add("error.type", "closed")
	}
	n := strconv.FormatUint(r.N, 10)
	list = append(list, text("mcpwire.capture", r.Capture.ID), attribute{"mcpwire.event", value{Int: &n}})
	if h := r.Human; h > 0 {
		ns := strconv.FormatInt(int64(h), 10)
		list = append(list, attribute{"mcpwire.client_wait_ns", value{Int: &ns}})
	}
	return list
}

// requestID returns an id as the conventions spell it.
func requestID(id string) string {
	if s, ok := jsonrpc.ID(id).Text(); ok {
		return s
	}
	return id
}

// flush writes the spans that are there.
func (x *otlp) flush() error {
	if len(x.spans) == 0 {
		return nil
	}
	var t traces
	t.Resources = make([]resourceSpans, 1)
	t.Resources[0].Resource.Attributes = []attribute{text("service.name", x.server)}
	t.Resources[0].Scopes = []scopeSpans{{harCreator{x.opts.Tool, x.opts.Version}, x.spans}}
	enc := json.NewEncoder(x.w)
	enc.SetEscapeHTML(false)
	err := enc.Encode(&t)
	x.spans = x.spans[:0]
	return err
}

func text(key, v string) attribute { return attribute{key, value{String: &v}} }

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

// traceparent splits the text of the W3C's trace context (https://www.w3.org/TR/trace-context/#traceparent-header).
func traceparent(s string) (trace, parent string, ok bool) {
	if len(s) < 55 || s[2] != '-' || s[35] != '-' || s[52] != '-' || s[:2] == "ff" || len(s) > 55 && (s[:2] == "00" || s[55] != '-') {
		return "", "", false
	}
	trace, parent = s[3:35], s[36:52]
	return trace, parent, lowerHex(s[:2]) && lowerHex(trace) && lowerHex(parent) && nonZero(trace) && nonZero(parent)
}

func lowerHex(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func nonZero(s string) bool {
	for _, c := range []byte(s) {
		if c != '0' {
			return true
		}
	}
	return false
}
