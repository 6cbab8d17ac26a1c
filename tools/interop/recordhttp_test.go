package interop

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"testing"
)

// An exchange is an HTTP request and its response.
type exchange struct {
	number int
	method string
	uri    string
	header http.Header
	body   []byte

	status   int // 0 before there is a response
	response http.Header
}

// An httpEvent is one event that the recording proxy observed.
type httpEvent struct {
	kind    string // one of the kinds below
	x       *exchange
	payload payload
}

const (
	requested    = "requested"     // the host sent the request
	responded    = "responded"     // the server sent the response header
	payloadSent  = "payload sent"  // the server sent an event of a stream, or another body
	completed    = "completed"     // the response is complete
	hostClosed   = "host closed"   // the host closed the connection before that
	serverClosed = "server closed" // the server closed the connection before that
)

// A payload is an event of a stream, or the body of another response in data.
type payload struct {
	name, id string
	hasID    bool
	retry    bool
	comment  bool // it has no field
	data     []byte
}

// record adds an event. It is called before the message is forwarded, so the recorded order is
// causal.
func (w *webServer) record(kind string, x *exchange, s payload) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch kind {
	case requested:
		x.number = len(w.httpEvents)
		w.open++
	case completed, hostClosed, serverClosed:
		w.open--
	}
	if !w.stopped {
		w.httpEvents = append(w.httpEvents, httpEvent{kind, x, s})
	}
}

// ServeHTTP forwards a request and its response.
func (w *webServer) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	x := &exchange{method: r.Method, uri: r.URL.RequestURI(), header: r.Header.Clone(), body: body}
	w.record(requested, x, payload{})
	end := serverClosed
	defer func() {
		if end == serverClosed && r.Context().Err() != nil {
			end = hostClosed
		}
		w.record(end, x, payload{})
		if end != completed {
			panic(http.ErrAbortHandler)
		}
	}()
	resp, err := w.send(r.Context(), r)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	x.status, x.response = resp.StatusCode, resp.Header.Clone()
	w.record(responded, x, payload{})
	for name, values := range resp.Header {
		if name != "Connection" && name != "Transfer-Encoding" {
			rw.Header()[name] = values
		}
	}
	if resp.Header["Content-Type"] == nil {
		rw.Header()["Content-Type"] = nil // prevents detection
	}
	rw.WriteHeader(resp.StatusCode)
	if x.streams() {
		err = w.passEvents(r.Context(), x, rw, resp.Body)
	} else {
		err = w.passBody(x, rw, resp.Body)
	}
	if err == nil {
		end = completed
	}
}

// streams reports whether the response is an event stream.
func (x *exchange) streams() bool {
	kind, _, _ := mime.ParseMediaType(x.response.Get("Content-Type"))
	return kind == "text/event-stream"
}

func (w *webServer) passBody(x *exchange, rw io.Writer, from io.Reader) error {
	body, err := io.ReadAll(from)
	if len(body) > 0 {
		w.record(payloadSent, x, payload{data: body})
	}
	if err != nil {
		return err
	}
	_, err = rw.Write(body)
	return err
}

// passEvents forwards a stream, event by event.
func (w *webServer) passEvents(ctx context.Context, x *exchange, rw http.ResponseWriter, from io.Reader) error {
	flush := http.NewResponseController(rw).Flush
	if err := flush(); err != nil {
		return err
	}
	var raw []byte
	for in := bufio.NewReader(from); ; {
		line, err := in.ReadBytes('\n')
		raw = append(raw, line...)
		if blank := len(bytes.TrimRight(line, "\r\n")) == 0; blank && len(line) > 0 || err != nil && len(raw) > 0 {
			if ctx.Err() != nil {
				return ctx.Err() // the host does not get it
			}
			if e := parseEvent(raw); !e.comment {
				w.record(payloadSent, x, e)
			}
			if _, err := rw.Write(raw); err != nil {
				return err
			}
			if err := flush(); err != nil {
				return err
			}
			raw = nil
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// parseEvent parses the lines of one event.
func parseEvent(raw []byte) payload {
	e := payload{comment: true}
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimRight(line, "\r\n")
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			e.name = value
		case "id":
			e.id, e.hasID = value, true
		case "retry":
			e.retry = true
		case "data":
			if e.data != nil {
				e.data = append(e.data, '\n')
			}
			e.data = append(e.data, value...)
		default:
			continue
		}
		e.comment = false
	}
	return e
}

// requests returns the methods of the JSON-RPC requests, in order.
func (w *webServer) requests() (methods []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.httpEvents {
		if m.kind != requested || m.x.method != http.MethodPost {
			continue
		}
		if m, err := parse(m.x.body); err == nil && m.isRequest() {
			methods = append(methods, m.Method)
		}
	}
	return methods
}

// logHTTPEvents logs the events of a failed test.
func logHTTPEvents(t *testing.T, httpEvents []httpEvent) {
	t.Helper()
	for _, m := range httpEvents {
		x := m.x
		switch m.kind {
		case requested:
			var headers []string
			for _, name := range []string{"Accept", "Content-Type", "Mcp-Session-Id", "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name", "Last-Event-Id"} {
				if v := x.header[name]; v != nil {
					headers = append(headers, fmt.Sprintf("%s: %q", name, v))
				}
			}
			t.Logf("#%d %s %s {%s} %.1000s", x.number, x.method, x.uri, strings.Join(headers, ", "), x.body)
		case responded:
			t.Logf("#%d status %d %s session %q", x.number, x.status, x.response.Get("Content-Type"), x.response["Mcp-Session-Id"])
		case payloadSent:
			t.Logf("#%d %s%s: %.1000s", x.number, m.payload.name, m.payload.id, m.payload.data)
		default:
			t.Logf("#%d %s", x.number, m.kind)
		}
	}
}
