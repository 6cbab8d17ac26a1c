package resend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/jsonwire"
	"mcpwire/internal/sse"
	"mcpwire/jsonrpc"
)

// How a stream that a server has closed is resumed: so often, and with so much time in between, at least and at most.
const (
	maxResumes = 20
	minRetry   = 10 * time.Millisecond
	anyRetry   = time.Second
	maxRetry   = 5 * time.Second
)

// An exchange is an HTTP request with its response.
type exchange struct {
	w      *web
	n      uint64
	at     uint64        // number of the event to blame: the request, or the head of the response
	due    due           // what the response has to answer
	hello  bool          // it is the handshake
	old    bool          // it is the stream of HTTP+SSE
	headed chan struct{} // closed when the head of the response has come; may be nil
	line   *line         // may be nil

	status int
	err    error // why it broke off
	lastID string
	retry  time.Duration
}

func (x *exchange) record(e *capture.Event) uint64 {
	e.Session, e.Exchange = 1, x.n
	return x.w.s.record(e)
}

// run sends the request and takes the response, to its end.
func (x *exchange) run(r *http.Request) {
	end := &capture.Event{Kind: capture.KindEnd}
	resp, err := x.roundTrip(r)
	if err == nil {
		defer resp.Body.Close()
		err = x.respond(resp)
	}
	if err != nil {
		if cause := context.Cause(r.Context()); cause != nil {
			err = cause
		}
		x.err = bare(err)
		end.Data = []byte(clip(x.err.Error()))
	}
	x.record(end)
}

func clip(s string) string { return s[:min(len(s), 300)] }

// why says why the exchange is over, which should not be.
func (x *exchange) why() error {
	switch {
	case x.err != nil:
		return x.err
	case x.status != http.StatusOK:
		return &StatusError{Status: x.status, N: x.at}
	}
	return io.EOF
}

// respond takes the response.
func (x *exchange) respond(resp *http.Response) error {
	x.status = resp.StatusCode
	x.at = x.record(&capture.Event{Kind: capture.KindResponse, Dir: capture.ToClient, Response: &capture.Response{
		Status: resp.StatusCode, Proto: resp.Proto, Headers: sorted(resp.Header),
	}})
	if x.hello {
		x.w.greeted(resp.Header, "")
	}
	if x.headed != nil {
		close(x.headed)
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if media == typeEvents && resp.StatusCode == http.StatusOK {
		return x.stream(resp.Body)
	}
	most := int64(x.w.s.opts.MaxMessage)
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	e := &capture.Event{Kind: capture.KindBody, Dir: capture.ToClient, Data: body}
	if int64(len(body)) > most {
		e.Data, e.Cut, err = body[:most], true, fmt.Errorf("resend: a body above %d bytes: %w", most, ErrTooMuch)
	}
	if media == typeJSON || len(parse(body)) > 0 {
		e.Kind = capture.KindMessage
	}
	if len(body) > 0 {
		x.message(e)
	}
	return err
}

// message records what came, and hands it over.
func (x *exchange) message(e *capture.Event) {
	list := parse(e.Data)
	if x.hello { // before it is handed over: the next message is sent with what it says
		for _, m := range list {
			if m.Kind == jsonrpc.KindResponse {
				x.w.greeted(nil, jsonwire.Text(jsonwire.Lookup(m.Result, "protocolVersion")))
			}
		}
	}
	x.due.take(list, len(x.due) == 1)
	n := x.record(e)
	if n > 0 && (!x.old || x.w.isOpen()) { // Open takes nothing
		x.w.s.deliver(&Incoming{N: n, Exchange: x.n, Status: x.status, Data: bytes.Clone(e.Data)})
	}
}

// stream takes the events of a stream, to its end.
func (x *exchange) stream(body io.Reader) error {
	reader := sse.NewReader(body, x.w.s.opts.MaxMessage)
	for {
		e, err := reader.Read()
		if large, ok := errors.AsType[*sse.TooLargeError](err); ok {
			x.record(&capture.Event{Kind: capture.KindNote, Dir: capture.ToClient, Data: []byte(large.Error())})
			continue
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := x.event(&e); err != nil {
			return err
		}
	}
}

// event takes one event. The error says why no more can be taken.
func (x *exchange) event(e *sse.Event) error {
	if e.HasID {
		x.lastID = string(e.ID)
	}
	if e.HasRetry {
		x.retry = e.Retry
	}
	facts := &capture.SSE{Event: e.Name, ID: string(e.ID), HasID: e.HasID, Retry: e.Retry, HasRetry: e.HasRetry, HasData: e.Data != nil}
	out := &capture.Event{Kind: capture.KindSSE, Dir: capture.ToClient, Data: bytes.Clone(e.Data), SSE: facts}
	if len(e.Data) > 0 && e.Name == "" && jsonwire.Valid(e.Data, 0) == nil {
		out.Kind = capture.KindMessage
		x.message(out)
		return x.over()
	}
	x.record(out)
	if x.old && e.Name == eventEndpoint {
		if err := x.w.foundEndpoint(string(bytes.TrimSpace(e.Data))); err != nil {
			x.w.s.end(&EndedError{err})
			return err
		}
	}
	return x.over()
}

// over returns the error with which the session has ended. One that is being closed still records.
func (x *exchange) over() error {
	select {
	case <-x.w.s.ended:
		return x.w.s.endErr
	default:
		return nil
	}
}

// resume goes on with a stream that the server has closed before it has answered
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#resumability-and-redelivery).
func (x *exchange) resume() {
	for range maxResumes {
		if x.lastID == "" || len(x.due) == 0 || x.w.s.o.Modern || x.over() != nil || x.w.s.o.Transport == SSE {
			return
		}
		wait := anyRetry
		if x.retry > 0 {
			wait = min(max(x.retry, minRetry), maxRetry)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-x.w.ctx.Done():
			timer.Stop()
			return
		}
		next, r, err := x.w.begin(x.w.ctx, http.MethodGet, x.w.url, nil, http.Header{headerLast: {x.lastID}})
		if err != nil {
			return
		}
		next.due, next.lastID, next.retry = x.due, x.lastID, x.retry
		next.run(r)
		x.lastID, x.retry = next.lastID, next.retry
		if next.status != http.StatusOK {
			return
		}
	}
}
