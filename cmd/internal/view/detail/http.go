package detail

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/printable"
	"mcpwire/mcp"
)

// HTTP describes an HTTP round trip without its payloads.
type HTTP struct {
	Number  uint64    `json:"exchange"`
	Request *HTTPHead `json:"request,omitempty"`
	// Response is nil before the response.
	Response *HTTPHead `json:"response,omitempty"`
	// Stream reports whether the response is an event stream.
	Stream bool `json:"stream,omitempty"`
	// Events counts the events of the stream.
	Events int  `json:"events,omitempty"`
	Ended  bool `json:"ended"`
	// EndReason says why the round trip ended, if it did not end normally.
	EndReason string `json:"end,omitempty"`
	// BodyBytes is the size of bodies that are not messages.
	BodyBytes int64 `json:"bodyBytes,omitempty"`
}

// An HTTPHead is the head of a request or response.
type HTTPHead struct {
	N uint64 `json:"n"`
	// Line is the request line or status line.
	Line   string `json:"line"`
	Method string `json:"method,omitempty"`
	URL    string `json:"url,omitempty"`
	Status int    `json:"status,omitempty"`
	Remote string `json:"remote,omitempty"`
	// Headers are in their original order.
	Headers []Header `json:"headers"`
	// OmittedHeaders counts the headers that are not in Headers.
	OmittedHeaders int `json:"more,omitempty"`
}

// A Header is a header field.
type Header struct {
	Name  string `json:"name"`
	Value []Span `json:"value"`
	// IsMCP means that the protocol defines the field, such as Mcp-Method or MCP-Protocol-Version.
	IsMCP bool `json:"own,omitempty"`
	// Anomaly says how the value differs from the value in the body that it repeats.
	Anomaly string `json:"wrong,omitempty"`
}

const (
	maxHeaders     = 200
	maxHeaderValue = 8 << 10 // bytes
)

// httpSection returns Detail.HTTP and creates it if needed.
func (b *builder) httpSection() *HTTP {
	if b.detail.HTTP == nil {
		b.detail.HTTP = &HTTP{}
		if h := b.snapshot.HTTP; h != nil {
			*b.detail.HTTP = HTTP{Number: h.Number, Stream: h.Stream, Events: h.Events, Ended: h.Ended, EndReason: printable.Line(h.EndReason), BodyBytes: h.BodyBytes}
		}
	}
	return b.detail.HTTP
}

func (b *builder) addHTTPRequest(e *capture.Event) {
	q := e.Request
	if h := b.snapshot.HTTP; q == nil || h != nil && h.RequestN != e.N || b.httpSection().Request != nil {
		return // round trip of the client's answer to the server
	}
	b.detail.requestHead = q
	head := &HTTPHead{N: e.N, Line: printable.Line(strings.TrimSpace(q.Method + " " + q.URL + " " + q.Proto)), Method: printable.Line(q.Method), URL: printable.Line(q.URL), Remote: printable.Line(q.Remote)}
	head.addHeaders(q.Headers)
	b.detail.HTTP.Request = head
}

func (b *builder) addHTTPResponse(e *capture.Event) {
	a := e.Response
	if h := b.snapshot.HTTP; a == nil || h != nil && h.ResponseN != e.N || b.httpSection().Response != nil {
		return
	}
	b.response = a
	line := fmt.Sprintf("%s %d %s", a.Proto, a.Status, http.StatusText(a.Status))
	head := &HTTPHead{N: e.N, Line: printable.Line(strings.TrimSpace(line)), Status: a.Status}
	head.addHeaders(a.Headers)
	b.detail.HTTP.Response = head
}

func (h *HTTPHead) addHeaders(list []capture.Header) {
	h.Headers, h.OmittedHeaders = []Header{}, max(0, len(list)-maxHeaders)
	for _, f := range list[:min(len(list), maxHeaders)] {
		name := strings.ToLower(f.Name)
		h.Headers = append(h.Headers, Header{
			Name: printable.Line(f.Name[:min(len(f.Name), maxHeaderValue)]), Value: oneLine([]byte(f.Value), maxHeaderValue), IsMCP: strings.HasPrefix(name, "mcp-") || name == "last-event-id",
		})
	}
}

// compareHeaders compares the request headers that repeat parts of the message with the message
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#standard-request-headers).
func (b *builder) compareHeaders() {
	h := b.detail.HTTP
	if h == nil || h.Request == nil || b.detail.requestHead == nil || b.detail.method == "" {
		return
	}
	for i := range h.Request.Headers {
		f := b.detail.requestHead.Headers[i]
		var want []byte
		value := f.Value
		switch strings.ToLower(f.Name) {
		case "mcp-method":
			want = []byte(b.detail.method)
		case "mcp-name":
			if name := era.NameParam(b.detail.method); name != "" {
				want = textOf(jsonwire.Lookup(b.params, name))
			}
			if v, err := era.DecodeHeaderValue(value); err == nil {
				value = v
			}
		case "mcp-protocol-version":
			want = textOf(jsonwire.Lookup(jsonwire.Lookup(b.params, "_meta"), mcp.MetaProtocolVersion))
		}
		if want != nil && strings.TrimSpace(value) != strings.TrimSpace(string(want)) {
			h.Request.Headers[i].Anomaly = "the message has " + printable.Line(string(want[:min(len(want), 200)]))
		}
	}
}

// textOf returns the unquoted text of a JSON string, or nil.
func textOf(v []byte) []byte {
	if len(v) < 2 || v[0] != '"' {
		return nil
	}
	return jsonwire.AppendUnquote([]byte{}, v[1:len(v)-1])
}

// SSE describes an event stream.
type SSE struct {
	// Events are the newest events.
	Events []SSEEvent `json:"events"`
	// OmittedEvents counts the earlier ones.
	OmittedEvents int  `json:"gone,omitempty"`
	Open          bool `json:"open,omitempty"`
}

// An SSEEvent is an event of a stream.
type SSEEvent struct {
	N   uint64      `json:"n"`
	Dir capture.Dir `json:"dir,omitempty"`
	// AtMS is the time since the row began.
	AtMS    float64 `json:"atMs"`
	Event   string  `json:"event,omitempty"`
	ID      *string `json:"id,omitempty"`
	RetryMS *int64  `json:"retryMs,omitempty"`
	Comment *string `json:"comment,omitempty"`
	// Data is the beginning, on one line.
	Data []Span `json:"data,omitempty"`
	// Len is the size of the data, in bytes.
	Len int64 `json:"len"`
}

const (
	maxStream   = 256 // events shown
	maxSSEData  = 512 // bytes of an event's data
	maxSSEField = 512 // bytes of its other fields
)

func (b *builder) addStream(ctx context.Context) error {
	h := b.snapshot.HTTP
	if h == nil || !h.Stream {
		return nil
	}
	list := h.RecentEvents[max(0, len(h.RecentEvents)-maxStream):]
	s := &SSE{Events: []SSEEvent{}, OmittedEvents: max(0, h.Events-len(list)), Open: !h.Ended}
	for _, n := range list {
		e, err := b.readEvent(ctx, n)
		if err != nil {
			return err
		}
		if e != nil {
			s.Events = append(s.Events, sseEvent(e, e.T-b.snapshot.T))
		}
	}
	b.detail.SSE = s
	return nil
}

func sseEvent(e *capture.Event, at time.Duration) SSEEvent {
	v := SSEEvent{N: e.N, Dir: e.Dir, AtMS: trace.Millis(at), Len: trace.WireLen(e)}
	if len(e.Data) > 0 {
		v.Data = oneLine(e.Data, maxSSEData)
	}
	f := e.SSE
	if f == nil {
		return v
	}
	line := func(s string) string { return printable.Line(clip.Prefix(s, maxSSEField)) }
	v.Event = line(f.Event)
	if f.HasID {
		id := line(f.ID)
		v.ID = &id
	}
	if f.HasRetry {
		retry := f.Retry.Milliseconds()
		v.RetryMS = &retry
	}
	if f.HasComment {
		comment := line(f.Comment)
		v.Comment = &comment
	}
	return v
}
