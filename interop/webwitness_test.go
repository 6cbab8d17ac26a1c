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

// A moment is one observation of the witness of a web.
type moment struct {
	kind string // one of the kinds below
	x    *exchange
	said said
}

const (
	requested = "requested" // the host made the request
	responded = "responded" // the server began the response
	spoke     = "spoke"     // the server sent an event of a stream, or the body of another response
	over      = "over"      // the response is complete
	left      = "left"      // the host went away before that
	broke     = "broke"     // the server did
)

// said is an event of a stream, or a body that is not a stream, in data.
type said struct {
	name, id string
	hasID    bool
	retry    bool
	comment  bool // nothing but one
	data     []byte
}

// record adds a moment. It is called before the message is forwarded, so that the recorded order is
// causal.
func (w *web) record(kind string, x *exchange, s said) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch kind {
	case requested:
		x.number = len(w.moments)
		w.open++
	case over, left, broke:
		w.open--
	}
	if !w.stopped {
		w.moments = append(w.moments, moment{kind, x, s})
	}
}

// ServeHTTP passes a request on, and the response back.
func (w *web) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	x := &exchange{method: r.Method, uri: r.URL.RequestURI(), header: r.Header.Clone(), body: body}
	w.record(requested, x, said{})
	end := broke
	defer func() {
		if end == broke && r.Context().Err() != nil {
			end = left
		}
		w.record(end, x, said{})
		if end != over {
			panic(http.ErrAbortHandler)
		}
	}()
	resp, err := w.send(r.Context(), r)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	x.status, x.response = resp.StatusCode, resp.Header.Clone()
	w.record(responded, x, said{})
	for name, values := range resp.Header {
		if name != "Connection" && name != "Transfer-Encoding" {
			rw.Header()[name] = values
		}
	}
	if resp.Header["Content-Type"] == nil {
		rw.Header()["Content-Type"] = nil // or one would be made up
	}
	rw.WriteHeader(resp.StatusCode)
	if x.streams() {
		err = w.passEvents(r.Context(), x, rw, resp.Body)
	} else {
		err = w.passBody(x, rw, resp.Body)
	}
	if err == nil {
		end = over
	}
}

// streams reports whether the response is an event stream.
func (x *exchange) streams() bool {
	kind, _, _ := mime.ParseMediaType(x.response.Get("Content-Type"))
	return kind == "text/event-stream"
}

func (w *web) passBody(x *exchange, rw io.Writer, from io.Reader) error {
	body, err := io.ReadAll(from)
	if len(body) > 0 {
		w.record(spoke, x, said{data: body})
	}
	if err != nil {
		return err
	}
	_, err = rw.Write(body)
	return err
}

// passEvents passes a stream on, event by event.
func (w *web) passEvents(ctx context.Context, x *exchange, rw http.ResponseWriter, from io.Reader) error {
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
				return ctx.Err() // the host did not see it
			}
			if e := parseEvent(raw); !e.comment {
				w.record(spoke, x, e)
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

// parseEvent reads the lines of one event.
func parseEvent(raw []byte) said {
	e := said{comment: true}
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

// requests returns the methods of the requests, in order.
func (w *web) requests() (methods []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.moments {
		if m.kind != requested || m.x.method != http.MethodPost {
			continue
		}
		if m, err := parse(m.x.body); err == nil && m.isRequest() {
			methods = append(methods, m.Method)
		}
	}
	return methods
}

// logMoments shows a session whose audit failed.
func logMoments(t *testing.T, moments []moment) {
	t.Helper()
	for _, m := range moments {
		x := m.x
		switch m.kind {
		case requested:
			var interesting []string
			for _, name := range []string{"Accept", "Content-Type", "Mcp-Session-Id", "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name", "Last-Event-Id"} {
				if v := x.header[name]; v != nil {
					interesting = append(interesting, fmt.Sprintf("%s: %q", name, v))
				}
			}
			t.Logf("#%d %s %s {%s} %.1000s", x.number, x.method, x.uri, strings.Join(interesting, ", "), x.body)
		case responded:
			t.Logf("#%d status %d %s session %q", x.number, x.status, x.response.Get("Content-Type"), x.response["Mcp-Session-Id"])
		case spoke:
			t.Logf("#%d %s%s: %.1000s", x.number, m.said.name, m.said.id, m.said.data)
		default:
			t.Logf("#%d %s", x.number, m.kind)
		}
	}
}
