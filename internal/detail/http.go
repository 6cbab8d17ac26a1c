package detail

import (
	"fmt"
	"net/http"
	"strings"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/internal/printable"
	"mcpwire/mcp"
)

// An HTTP is what an HTTP exchange was besides its payloads.
type HTTP struct {
	Exchange uint64    `json:"exchange"`
	Request  *HTTPHead `json:"request,omitempty"`
	Response *HTTPHead `json:"response,omitempty"` // nil before there is one
	Stream   bool      `json:"stream,omitempty"`   // the response is an event stream
	Events   int       `json:"events,omitempty"`   // of the stream
	Ended    bool      `json:"ended"`
	End      string    `json:"end,omitempty"`       // why it ended, if not in the normal way
	Bodies   int64     `json:"bodyBytes,omitempty"` // bytes that are no message
}

// An HTTPHead is the head of a request or a response.
type HTTPHead struct {
	N       uint64   `json:"n"`
	Line    string   `json:"line"` // the request line or the status line
	Method  string   `json:"method,omitempty"`
	URL     string   `json:"url,omitempty"`
	Status  int      `json:"status,omitempty"`
	Remote  string   `json:"remote,omitempty"`
	Headers []Header `json:"headers"`        // in their order
	More    int      `json:"more,omitempty"` // headers that are not in the list
}

// A Header is a field of a head.
type Header struct {
	Name  string `json:"name"`
	Value []Span `json:"value"`
	// Own tells that the protocol defines the field: Mcp-Method, MCP-Protocol-Version …
	Own bool `json:"own,omitempty"`
	// Wrong says how the value differs from what the body says, if it repeats something of it.
	Wrong string `json:"wrong,omitempty"`
}

const (
	maxHeaders     = 200
	maxHeaderValue = 8 << 10 // bytes
)

// section returns Detail.HTTP.
func (w *work) section() *HTTP {
	if w.d.HTTP == nil {
		w.d.HTTP = &HTTP{}
		if h := w.row.HTTP; h != nil {
			*w.d.HTTP = HTTP{Exchange: h.Exchange, Stream: h.Stream, Events: h.Events, Ended: h.Ended, End: printable.Line(h.End), Bodies: h.BodyBytes}
		}
	}
	return w.d.HTTP
}

func (w *work) httpRequest(e *capture.Event) {
	q := e.Request
	if h := w.row.HTTP; q == nil || h != nil && h.RequestN != e.N || w.section().Request != nil {
		return // of the exchange in which a client has answered the server
	}
	w.d.head = q
	head := &HTTPHead{N: e.N, Line: printable.Line(strings.TrimSpace(q.Method + " " + q.URL + " " + q.Proto)), Method: printable.Line(q.Method), URL: printable.Line(q.URL), Remote: printable.Line(q.Remote)}
	head.fields(q.Headers)
	w.d.HTTP.Request = head
}

func (w *work) httpResponse(e *capture.Event) {
	a := e.Response
	if h := w.row.HTTP; a == nil || h != nil && h.ResponseN != e.N || w.section().Response != nil {
		return
	}
	line := fmt.Sprintf("%s %d %s", a.Proto, a.Status, http.StatusText(a.Status))
	head := &HTTPHead{N: e.N, Line: printable.Line(strings.TrimSpace(line)), Status: a.Status}
	head.fields(a.Headers)
	w.d.HTTP.Response = head
}

func (h *HTTPHead) fields(list []capture.Header) {
	h.Headers, h.More = []Header{}, max(0, len(list)-maxHeaders)
	for _, f := range list[:min(len(list), maxHeaders)] {
		name := strings.ToLower(f.Name)
		h.Headers = append(h.Headers, Header{
			Name: printable.Line(f.Name[:min(len(f.Name), maxHeaderValue)]), Value: oneLine([]byte(f.Value), maxHeaderValue), Own: strings.HasPrefix(name, "mcp-") || name == "last-event-id",
		})
	}
}

// headers compares the headers of the request that repeat something of the message with it
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#standard-request-headers).
func (w *work) headers() {
	h := w.d.HTTP
	if h == nil || h.Request == nil || w.d.head == nil || w.d.method == "" {
		return
	}
	for i := range h.Request.Headers {
		f := w.d.head.Headers[i]
		var want []byte
		value := f.Value
		switch strings.ToLower(f.Name) {
		case "mcp-method":
			want = []byte(w.d.method)
		case "mcp-name":
			if name := era.NameParam(w.d.method); name != "" {
				want = textOf(jsonwire.Lookup(w.params, name))
			}
			if v, err := era.DecodeHeaderValue(value); err == nil {
				value = v
			}
		case "mcp-protocol-version":
			want = textOf(jsonwire.Lookup(jsonwire.Lookup(w.params, "_meta"), mcp.MetaProtocolVersion))
		}
		if want != nil && strings.TrimSpace(value) != strings.TrimSpace(string(want)) {
			h.Request.Headers[i].Wrong = "the message says " + printable.Line(string(want[:min(len(want), 200)]))
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
