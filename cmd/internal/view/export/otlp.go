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
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc/traffic"
	"mcpwire/internal/text/traceparent"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxRows limits the rows of the model. Rows further apart are not related.
const maxRows = 10_000

// maxSpans limits the spans in one line.
const maxSpans = 512

// OTLP writes the requests of a capture as spans in OTLP JSON
// (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding), with one
// ExportTraceServiceRequest a line, as collectors read from files. Names and attributes follow the
// MCP conventions (https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp/). The spans are those
// of the server: children of the span that the request names in its metadata, and parents of
// requests that the server sends meanwhile. They do not contain arguments or results.
func OTLP(w io.Writer, events Events, opts *Options) (Omitted, error) {
	x := &otlpWriter{w: bufio.NewWriterSize(w, 64<<10), opts: opts.withDefaults(), parents: map[eventKey]string{}}
	m := trace.New(&trace.Options{MaxRows: maxRows, Scan: x.scanTraceparent})
	for e, err := range events {
		if err != nil {
			return x.omitted, err
		}
		for _, c := range m.Add(nil, e) {
			if c.Op == trace.Evicted {
				if err := x.addRow(c.Row, nil); err != nil {
					return x.omitted, err
				}
			}
		}
	}
	m.Finish()
	for _, r := range m.Rows() {
		if err := x.addRow(r, nil); err != nil {
			return x.omitted, err
		}
	}
	if err := x.flush(); err != nil {
		return x.omitted, err
	}
	return x.omitted, x.w.Flush()
}

type eventKey struct {
	capture string
	n       uint64
}

type otlpWriter struct {
	w    *bufio.Writer
	opts Options
	// parents has the traceparent of requests.
	parents map[eventKey]string
	// server is the server of spans.
	server  string
	spans   []span
	omitted Omitted
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

// Enum values of OTLP.
const (
	kindServer  = 2
	kindClient  = 3
	statusError = 2
)

// scanTraceparent records the traceparent in the metadata of a request.
func (ow *otlpWriter) scanTraceparent(e *capture.Event, frame *traffic.Frame) filter.Hits {
	if frame == nil || frame.Batch || len(frame.Messages) == 0 {
		return 0
	}
	m := &frame.Messages[0]
	if m.Kind != jsonrpc.KindRequest || len(m.Params) == 0 || m.Params[0] != '{' {
		return 0
	}
	for p := jsonwire.ObjectMembers(m.Params); p.Next(); {
		if v := p.Value(); p.KeyIs("_meta") && v[0] == '{' {
			for q := jsonwire.ObjectMembers(v); q.Next(); {
				if s := q.Value(); q.KeyIs("traceparent") && len(s) < 100 && s[0] == '"' && len(ow.parents) < 2*maxRows {
					ow.parents[eventKey{e.Capture, e.N}] = jsonwire.UnquoteString(s[1 : len(s)-1])
				}
			}
		}
	}
	return 0
}

// addRow adds a span for a request, and spans for the requests inside it.
func (ow *otlpWriter) addRow(r *trace.Row, parent *span) error {
	if r.Kind != trace.Request {
		if r.Parent == nil {
			ow.omitted.Events += uint64(len(r.Events))
		}
		return nil
	}
	if len(ow.spans) >= maxSpans || ow.server != r.Capture.Name {
		if err := ow.flush(); err != nil {
			return err
		}
		ow.server = r.Capture.Name
	}
	s := ow.span(r, parent)
	for _, c := range r.Children {
		if c.Kind == trace.Progress || c.Kind == trace.Log {
			s.Events = append(s.Events, spanEvent{Time: nanos(c.At), Name: c.Method, Attributes: []attribute{stringAttribute("mcpwire.excerpt", c.Excerpt)}})
		}
	}
	ow.spans = append(ow.spans, s)
	for _, c := range r.Children {
		if err := ow.addRow(c, &s); err != nil {
			return err
		}
	}
	return nil
}

func (ow *otlpWriter) span(r *trace.Row, parent *span) span {
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
	if traceID, up, _, ok := traceparent.Parse(ow.parents[key]); ok {
		s.Trace, s.Parent = traceID, up
	} else if parent != nil {
		s.Trace, s.Parent = parent.Trace, parent.ID
	}
	delete(ow.parents, key)
	switch r.Status {
	case trace.Failed, trace.HTTPFailed, trace.Unanswered:
		s.Status = spanStatus{statusError, r.Message}
	case trace.Canceled:
		s.Status = spanStatus{statusError, "cancelled"}
	case trace.ToolFailed: // the message is part of the result
		s.Status = spanStatus{Code: statusError}
	}
	return s
}

func attributes(r *trace.Row) []attribute {
	list := []attribute{stringAttribute("mcp.method.name", r.Method), stringAttribute("jsonrpc.request.id", requestID(r.ID))}
	add := func(key, v string) {
		if v != "" {
			list = append(list, stringAttribute(key, v))
		}
	}
	add("mcp.protocol.version", r.EffectiveRevision())
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
	case trace.Failed:
		add("rpc.response.status_code", r.CodeText())
		add("error.type", r.CodeText())
	case trace.HTTPFailed:
		add("error.type", r.CodeText())
	case trace.ToolFailed:
		add("error.type", "tool_error")
	case trace.Canceled:
		add("error.type", "cancelled")
	case trace.Unanswered:
		add("error.type", "closed")
	}
	n := strconv.FormatUint(r.N, 10)
	list = append(list, stringAttribute("mcpwire.capture", r.Capture.ID), attribute{"mcpwire.event", value{Int: &n}})
	if h := r.ClientTime; h > 0 {
		ns := strconv.FormatInt(int64(h), 10)
		list = append(list, attribute{"mcpwire.client_wait_ns", value{Int: &ns}})
	}
	return list
}

// requestID returns an id as the conventions require it.
func requestID(id string) string {
	if s, ok := jsonrpc.ID(id).Text(); ok {
		return s
	}
	return id
}

// flush writes the collected spans.
func (ow *otlpWriter) flush() error {
	if len(ow.spans) == 0 {
		return nil
	}
	var t traces
	t.Resources = make([]resourceSpans, 1)
	t.Resources[0].Resource.Attributes = []attribute{stringAttribute("service.name", ow.server)}
	t.Resources[0].Scopes = []scopeSpans{{harCreator{ow.opts.Tool, ow.opts.Version}, ow.spans}}
	enc := json.NewEncoder(ow.w)
	enc.SetEscapeHTML(false)
	err := enc.Encode(&t)
	ow.spans = ow.spans[:0]
	return err
}

func stringAttribute(key, v string) attribute { return attribute{key, value{String: &v}} }

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }
