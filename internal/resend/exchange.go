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
	maxResumes   = 20
	minRetry     = 10 * time.Millisecond
	defaultRetry = time.Second
	maxRetry     = 5 * time.Second
)

// An exchange is an HTTP request with its response.
type exchange struct {
	conn         *httpConn
	n            uint64
	at           uint64        // number of the event to blame: the request, or the head of the response
	pending      pendingIDs    // what the response has to answer
	isInitialize bool          // it is the handshake
	isSSEStream  bool          // it is the stream of HTTP+SSE
	gotHead      chan struct{} // closed when the head of the response has come; may be nil
	abort        *abortState   // may be nil

	status int
	err    error // why it broke off
	lastID string
	retry  time.Duration
}

func (x *exchange) record(e *capture.Event) uint64 {
	e.Session, e.Exchange = 1, x.n
	return x.conn.s.record(e)
}

// run sends the request and takes the response, to its end.
func (x *exchange) run(r *http.Request) {
	end := &capture.Event{Kind: capture.KindEnd}
	resp, err := x.roundTrip(r)
	if err == nil {
		defer resp.Body.Close()
		err = x.readResponse(resp)
	}
	if err != nil {
		if cause := context.Cause(r.Context()); cause != nil {
			err = cause
		}
		x.err = withoutURL(err)
		end.Data = []byte(clip(x.err.Error()))
	}
	x.record(end)
}

func clip(s string) string { return s[:min(len(s), 300)] }

// endError says why the exchange is over, which should not be.
func (x *exchange) endError() error {
	switch {
	case x.err != nil:
		return x.err
	case x.status != http.StatusOK:
		return &StatusError{Status: x.status, N: x.at}
	}
	return io.EOF
}

// readResponse takes the response.
func (x *exchange) readResponse(resp *http.Response) error {
	x.status = resp.StatusCode
	x.at = x.record(&capture.Event{Kind: capture.KindResponse, Dir: capture.ToClient, Response: &capture.Response{
		Status: resp.StatusCode, Proto: resp.Proto, Headers: sortedFields(resp.Header),
	}})
	if x.isInitialize {
		x.conn.onInitialized(resp.Header, "")
	}
	if x.gotHead != nil {
		close(x.gotHead)
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if media == typeEvents && resp.StatusCode == http.StatusOK {
		return x.readStream(resp.Body)
	}
	most := int64(x.conn.s.opts.MaxMessage)
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	e := &capture.Event{Kind: capture.KindBody, Dir: capture.ToClient, Data: body}
	if int64(len(body)) > most {
		e.Data, e.Cut, err = body[:most], true, fmt.Errorf("resend: a body above %d bytes: %w", most, ErrTooLarge)
	}
	if media == typeJSON || len(parse(body)) > 0 {
		e.Kind = capture.KindMessage
	}
	if len(body) > 0 {
		x.handleMessage(e)
	}
	return err
}

// handleMessage records what came, and hands it over.
func (x *exchange) handleMessage(e *capture.Event) {
	list := parse(e.Data)
	if x.isInitialize { // before it is handed over: the next message is sent with what it says
		for _, m := range list {
			if m.Kind == jsonrpc.KindResponse {
				x.conn.onInitialized(nil, jsonwire.Text(jsonwire.Lookup(m.Result, "protocolVersion")))
			}
		}
	}
	x.pending.resolve(list, len(x.pending) == 1)
	n := x.record(e)
	if n > 0 && (!x.isSSEStream || x.conn.hasEndpoint()) { // Open takes nothing
		x.conn.s.deliver(&Incoming{N: n, Exchange: x.n, Status: x.status, Data: bytes.Clone(e.Data)})
	}
}

// readStream takes the events of a stream, to its end.
func (x *exchange) readStream(body io.Reader) error {
	reader := sse.NewReader(body, x.conn.s.opts.MaxMessage)
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
		if err := x.handleEvent(&e); err != nil {
			return err
		}
	}
}

// handleEvent takes one event. The error says why no more can be taken.
func (x *exchange) handleEvent(e *sse.Event) error {
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
		x.handleMessage(out)
		return x.sessionError()
	}
	x.record(out)
	if x.isSSEStream && e.Name == eventEndpoint {
		if err := x.conn.setEndpoint(string(bytes.TrimSpace(e.Data))); err != nil {
			x.conn.s.end(&EndedError{err})
			return err
		}
	}
	return x.sessionError()
}

// sessionError returns the error with which the session has ended. One that is being closed still records.
func (x *exchange) sessionError() error {
	select {
	case <-x.conn.s.ended:
		return x.conn.s.endErr
	default:
		return nil
	}
}

// resume goes on with a stream that the server has closed before it has answered
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#resumability-and-redelivery).
func (x *exchange) resume() {
	for range maxResumes {
		if x.lastID == "" || len(x.pending) == 0 || x.conn.s.o.Modern || x.sessionError() != nil || x.conn.s.o.Transport == SSE {
			return
		}
		wait := defaultRetry
		if x.retry > 0 {
			wait = min(max(x.retry, minRetry), maxRetry)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-x.conn.ctx.Done():
			timer.Stop()
			return
		}
		next, r, err := x.conn.newExchange(x.conn.ctx, http.MethodGet, x.conn.url, nil, http.Header{headerLast: {x.lastID}})
		if err != nil {
			return
		}
		next.pending, next.lastID, next.retry = x.pending, x.lastID, x.retry
		next.run(r)
		x.lastID, x.retry = next.lastID, next.retry
		if next.status != http.StatusOK {
			return
		}
	}
}
