package detail

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/printable"
	"mcpwire/mcp"
)

// An HTTP is what an HTTP exchange was besides its payloads.
type HTTP struct {
	Number    uint64    `json:"exchange"`
	Request   *HTTPHead `json:"request,omitempty"`
	Response  *HTTPHead `json:"response,omitempty"` // nil before there is one
	Stream    bool      `json:"stream,omitempty"`   // the response is an event stream
	Events    int       `json:"events,omitempty"`   // of the stream
	Ended     bool      `json:"ended"`
	EndReason string    `json:"end,omitempty"`       // why it ended, if not in the normal way
	BodyBytes int64     `json:"bodyBytes,omitempty"` // bytes that are no message
}

// An HTTPHead is the head of a request or a response.
type HTTPHead struct {
	N              uint64   `json:"n"`
	Line           string   `json:"line"` // the request line or the status line
	Method         string   `json:"method,omitempty"`
	URL            string   `json:"url,omitempty"`
	Status         int      `json:"status,omitempty"`
	Remote         string   `json:"remote,omitempty"`
	Headers        []Header `json:"headers"`        // in their order
	OmittedHeaders int      `json:"more,omitempty"` // headers that are not in the list
}

// A Header is a field of a head.
type Header struct {
	Name  string `json:"name"`
	Value []Span `json:"value"`
	// IsMCP tells that the protocol defines the field: Mcp-Method, MCP-Protocol-Version …
	IsMCP bool `json:"own,omitempty"`
	// Anomaly says how the value differs from what the body says, if it repeats something of it.
	Anomaly string `json:"wrong,omitempty"`
}

const (
	maxHeaders     = 200
	maxHeaderValue = 8 << 10 // bytes
)

// httpSection returns Detail.HTTP.
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
		return // of the exchange in which a client has answered the server
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

// compareHeaders compares the headers of the request that repeat something of the message with it
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
			h.Request.Headers[i].Anomaly = "the message says " + printable.Line(string(want[:min(len(want), 200)]))
		}
	}
}

// textOf returns what a JSON string says, or nil.
func textOf(v []byte) []byte {
	if len(v) < 2 || v[0] != '"' {
		return nil
	}
	return jsonwire.AppendUnquote([]byte{}, v[1:len(v)-1])
}

// An SSE is what came in an event stream.
type SSE struct {
	Events        []SSEEvent `json:"events"`         // the newest ones
	OmittedEvents int        `json:"gone,omitempty"` // more that came before
	Open          bool       `json:"open,omitempty"`
}

// An SSEEvent is an event of a stream.
type SSEEvent struct {
	N       uint64      `json:"n"`
	Dir     capture.Dir `json:"dir,omitempty"`
	AtMS    float64     `json:"atMs"` // since the row began
	Event   string      `json:"event,omitempty"`
	ID      *string     `json:"id,omitempty"`
	RetryMS *int64      `json:"retryMs,omitempty"`
	Comment *string     `json:"comment,omitempty"`
	Data    []Span      `json:"data,omitempty"` // the beginning, on one line
	Len     int64       `json:"len"`            // bytes of the data
}

const (
	maxStream   = 256 // events of a stream that are shown
	maxSSEData  = 512 // bytes of the data of one
	maxSSEField = 512 // bytes of its other fields
)

// addStream adds the events of the row's event stream.
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
	v := SSEEvent{N: e.N, Dir: e.Dir, AtMS: millis(at), Len: wireLen(e)}
	if len(e.Data) > 0 {
		v.Data = oneLine(e.Data, maxSSEData)
	}
	f := e.SSE
	if f == nil {
		return v
	}
	clip := func(s string) string { return printable.Line(s[:min(len(s), maxSSEField)]) }
	v.Event = clip(f.Event)
	if f.HasID {
		id := clip(f.ID)
		v.ID = &id
	}
	if f.HasRetry {
		retry := f.Retry.Milliseconds()
		v.RetryMS = &retry
	}
	if f.HasComment {
		comment := clip(f.Comment)
		v.Comment = &comment
	}
	return v
}
