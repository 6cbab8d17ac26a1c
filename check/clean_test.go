package check_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/jsonrpc"
	"mcpwire/server"
)

// A tape is a recording of a session.
type tape struct {
	mu       sync.Mutex
	changed  *sync.Cond
	head     *capture.Head
	exchange uint64
	began    time.Time
	events   []capture.Event
}

func newTape(transport string) *tape {
	p := &tape{head: &capture.Head{ID: "tape", Transport: transport}, began: time.Now()}
	p.changed = sync.NewCond(&p.mu)
	return p
}

func (p *tape) record(e capture.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.N, e.T = uint64(len(p.events)+1), time.Since(p.began)
	e.Data = bytes.Clone(e.Data)
	p.events = append(p.events, e)
	p.changed.Broadcast()
}

// await waits until there are events of which ok is true.
func (p *tape) await(ok func([]capture.Event) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !ok(p.events) {
		p.changed.Wait()
	}
}

// idle reports whether no exchange is open.
func idle(events []capture.Event) bool {
	open := 0
	for _, e := range events {
		switch e.Kind {
		case capture.KindRequest:
			open++
		case capture.KindEnd:
			open--
		}
	}
	return open == 0
}

// cancelled reports whether a call of the tool wait was given up.
func cancelled(events []capture.Event) bool {
	called := slices.IndexFunc(events, func(e capture.Event) bool {
		return e.Dir == capture.ToServer && bytes.Contains(e.Data, []byte(`"name":"wait","arguments"`))
	})
	return called >= 0 && slices.ContainsFunc(events[called:], func(e capture.Event) bool {
		return bytes.Contains(e.Data, []byte("notifications/cancelled")) || e.Kind == capture.KindEnd && e.Exchange == events[called].Exchange
	})
}

// later has time pass, on the tape.
func (p *tape) later(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began = p.began.Add(-d)
}

// check returns what is found in events, which get their numbers.
func (p *tape) check(events []capture.Event) []check.Finding {
	k := check.New(nil)
	var all []check.Finding
	for i, e := range events {
		e.N = uint64(i + 1)
		all = append(all, k.Add(p.head, &e)...)
	}
	return append(all, k.Close()...)
}

func (p *tape) wantClean(t *testing.T) {
	t.Helper()
	for _, f := range p.check(p.events) {
		t.Errorf("%s (%v) at event %d %s: %s\n%.500s", f.Rule.ID, f.Rule.Severity, f.Event, f.Pointer, f.Message, line(&p.events[f.Event-1]))
	}
	if len(p.events) < 10 {
		t.Errorf("only %d events", len(p.events))
	}
}

// wantCleanRedacted holds that what a capture hides is not complained of: the same events, written and read.
func (p *tape) wantCleanRedacted(t *testing.T) {
	t.Helper()
	var file bytes.Buffer
	enc := capture.NewEncoder(&file, &capture.Redaction{Names: []string{"name", "text", "uri", "A"}})
	must(t, enc.Encode(&capture.Event{Kind: capture.KindHead, Head: p.head}))
	for _, e := range p.events {
		must(t, enc.Encode(&e))
	}
	must(t, enc.Flush())
	if !bytes.Contains(file.Bytes(), []byte("~redacted:")) {
		t.Error("nothing was redacted")
	}
	for f, err := range check.Run(capture.NewReader(&file, nil), nil) {
		must(t, err)
		t.Errorf("redacted: %s at event %d %s: %s", f.Rule.ID, f.Event, f.Pointer, f.Message)
	}
}

// A tappedFramer records the frames of a client.
type tappedFramer struct {
	jsonrpc.Framer
	tape *tape
}

func (f *tappedFramer) ReadFrame() ([]byte, error) {
	msg, err := f.Framer.ReadFrame()
	if err == nil {
		f.tape.record(capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Framing: capture.FramingLF, Data: msg})
	}
	return msg, err
}

func (f *tappedFramer) WriteFrame(msg []byte) error {
	f.tape.record(capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Framing: capture.FramingLF, Data: msg})
	return f.Framer.WriteFrame(msg)
}

// A pipeCarrier serves a server over an in-memory connection.
type pipeCarrier struct {
	srv  *server.Server
	tape *tape
	wg   *sync.WaitGroup
}

func (c pipeCarrier) Connect(ctx context.Context) (jsonrpc.Framer, error) {
	near, far := net.Pipe()
	c.wg.Go(func() { _ = c.srv.Serve(context.WithoutCancel(ctx), jsonrpc.NewFramer(far, nil)) })
	return &tappedFramer{jsonrpc.NewFramer(near, nil), c.tape}, nil
}

func TestClean(t *testing.T) {
	for name, tape := range recordings(t) {
		t.Run(name, func(t *testing.T) {
			tape.wantClean(t)
			tape.wantCleanRedacted(t)
		})
	}
}

// listen records what goes through a handler.
func (p *tape) listen(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		p.mu.Lock()
		p.exchange++
		x := p.exchange
		p.mu.Unlock()
		p.record(capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Exchange: x,
			Request: &capture.Request{Method: r.Method, URL: r.URL.RequestURI(), Proto: r.Proto, Headers: pairs(r.Header)}})
		if len(body) > 0 {
			p.record(capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Exchange: x, Data: body})
		}
		tw := &tapedWriter{ResponseWriter: w, tape: p, x: x}
		h.ServeHTTP(tw, r)
		tw.end()
	})
}

func pairs(h http.Header) (list []capture.Header) {
	for name, values := range h {
		for _, v := range values {
			list = append(list, capture.Header{Name: name, Value: v})
		}
	}
	return list
}

// A tapedWriter records a response.
type tapedWriter struct {
	http.ResponseWriter
	tape   *tape
	x      uint64
	status int
	buf    bytes.Buffer
}

// SetWriteDeadline is all that the handler gets of the writer behind it: a connection that is hijacked would be out of sight.
func (w *tapedWriter) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(w.ResponseWriter).SetWriteDeadline(t)
}

func (w *tapedWriter) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

func (w *tapedWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
		w.tape.record(capture.Event{Kind: capture.KindResponse, Dir: capture.ToClient, Exchange: w.x,
			Response: &capture.Response{Status: status, Proto: "HTTP/1.1", Headers: pairs(w.Header())}})
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *tapedWriter) streams() bool {
	return strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream")
}

func (w *tapedWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.buf.Write(b)
	for w.streams() {
		i := bytes.Index(w.buf.Bytes(), []byte("\n\n"))
		if i < 0 {
			break
		}
		w.event(string(w.buf.Next(i + 2)))
	}
	return w.ResponseWriter.Write(b)
}

// event records an event of a stream.
func (w *tapedWriter) event(block string) {
	e := capture.Event{Kind: capture.KindSSE, Dir: capture.ToClient, Exchange: w.x, SSE: &capture.SSE{}}
	for line := range strings.Lines(block) {
		name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "data":
			e.SSE.HasData = true
			e.Data = append(e.Data, value...)
		case "event":
			e.SSE.Event = value
		case "id":
			e.SSE.ID, e.SSE.HasID = value, true
		case "retry":
			ms, _ := strconv.Atoi(value)
			e.SSE.Retry, e.SSE.HasRetry = time.Duration(ms)*time.Millisecond, true
		case "":
			e.SSE.Comment, e.SSE.HasComment = value, true
		}
	}
	if len(e.Data) > 0 && e.SSE.Event != "endpoint" {
		e.Kind = capture.KindMessage
	}
	w.tape.record(e)
}

func (w *tapedWriter) end() {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.streams() && w.buf.Len() > 0 {
		kind := capture.KindMessage
		if !json.Valid(w.buf.Bytes()) {
			kind = capture.KindBody
		}
		w.tape.record(capture.Event{Kind: kind, Dir: capture.ToClient, Exchange: w.x, Data: w.buf.Bytes()})
	}
	w.tape.record(capture.Event{Kind: capture.KindEnd, Exchange: w.x})
}
