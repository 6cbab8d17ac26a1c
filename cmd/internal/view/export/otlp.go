package export

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strconv"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/cmd/internal/trace/otlp"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc/traffic"
	"mcpwire/internal/text/traceparent"
	"mcpwire/jsonrpc"
)

// maxRows limits the rows of the model. Rows further apart are not related.
const maxRows = 10_000

// maxSpans limits the spans in one line.
const maxSpans = 512

// OTLP writes the requests of a capture as spans of package otlp, with one
// ExportTraceServiceRequest a line, as collectors read from files. The spans are those of the
// server: children of the span that the request names in its metadata, and parents of
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
	server  string
	spans   []*otlp.Span
	omitted Omitted
}

// scanTraceparent records the traceparent in the metadata of a request.
func (ow *otlpWriter) scanTraceparent(e *capture.Event, frame *traffic.Frame) filter.Hits {
	if frame == nil || frame.Batch || len(frame.Messages) == 0 {
		return 0
	}
	m := &frame.Messages[0]
	if m.Kind != jsonrpc.KindRequest {
		return 0
	}
	if v := jsonwire.Lookup(m.Params, "_meta", "traceparent"); len(v) > 0 && len(v) < 100 && len(ow.parents) < 2*maxRows {
		ow.parents[eventKey{e.Capture, e.N}] = jsonwire.Text(v)
	}
	return 0
}

// addRow adds a span for a request, and spans for the requests inside it.
func (ow *otlpWriter) addRow(r *trace.Row, parent *otlp.Span) error {
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
			s.Events = append(s.Events, otlp.Event{Time: c.At, Name: c.Method, Attributes: []otlp.Attribute{{Key: "mcpwire.excerpt", Value: c.Excerpt}}})
		}
	}
	ow.spans = append(ow.spans, s)
	for _, c := range r.Children {
		if err := ow.addRow(c, s); err != nil {
			return err
		}
	}
	return nil
}

func (ow *otlpWriter) span(r *trace.Row, parent *otlp.Span) *otlp.Span {
	id := sha256.Sum256([]byte(r.Capture.ID + "#" + strconv.FormatUint(r.N, 10) + "#" + strconv.FormatUint(r.Seq, 10)))
	s := &otlp.Span{
		Trace: hex.EncodeToString(id[:16]), ID: hex.EncodeToString(id[16:24]), Kind: otlp.Server, Start: r.At, End: r.At.Add(r.Latency),
	}
	if r.Dir == capture.ToClient {
		s.Kind = otlp.Client
	}
	key := eventKey{r.Capture.ID, r.N}
	if traceID, up, _, ok := traceparent.Parse(ow.parents[key]); ok {
		s.Trace, s.Parent = traceID, up
	} else if parent != nil {
		s.Trace, s.Parent = parent.Trace, parent.ID
	}
	delete(ow.parents, key)
	s.Describe(r.Method, r.Target)
	s.Set("jsonrpc.request.id", requestID(r.ID))
	s.Set("mcp.protocol.version", r.EffectiveRevision())
	switch r.Capture.Transport {
	case "stdio":
		s.Set("network.transport", "pipe")
	case "http", "sse":
		s.Set("network.transport", "tcp")
	}
	kind := ""
	s.Failed = true
	switch r.Status {
	case trace.Failed:
		kind, s.Failure = r.CodeText(), r.Message
		s.Set("rpc.response.status_code", kind)
	case trace.HTTPFailed:
		kind, s.Failure = r.CodeText(), r.Message
	case trace.ToolFailed: // the message is part of the result
		kind = "tool_error"
	case trace.Canceled:
		kind, s.Failure = "cancelled", "cancelled"
	case trace.Unanswered:
		kind, s.Failure = "closed", r.Message
	default:
		s.Failed = false
	}
	s.Set("error.type", kind)
	s.Set("mcpwire.capture", r.Capture.ID)
	s.Attributes = append(s.Attributes, otlp.Attribute{Key: "mcpwire.event", Value: strconv.FormatUint(r.N, 10), Integer: true})
	if h := r.ClientTime; h > 0 {
		s.Attributes = append(s.Attributes, otlp.Attribute{Key: "mcpwire.client_wait_ns", Value: strconv.FormatInt(int64(h), 10), Integer: true})
	}
	return s
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
	resource := []otlp.Attribute{{Key: "service.name", Value: ow.server}}
	_, err := ow.w.Write(append(otlp.Append(nil, resource, ow.opts.Tool, ow.opts.Version, ow.spans), '\n'))
	ow.spans = ow.spans[:0]
	return err
}
