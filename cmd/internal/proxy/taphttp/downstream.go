package taphttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"mcpwire/internal/net/neterror"
)

// A downstream is the client's side of an exchange.
type downstream struct {
	w      http.ResponseWriter
	r      *http.Request
	rc     *http.ResponseController
	ctx    context.Context
	cancel context.CancelCauseFunc
	opts   *Options
	// conn is nil if another listener accepted the connection.
	conn *clientConn
	// bodyRead reports that the whole request body was read.
	bodyRead atomic.Bool
}

// abortLocked ends the exchange, even if the client neither sends nor reads. The handler's lock
// keeps the exchange from ending: afterwards its deadlines belong to net/http.
func (d *downstream) abortLocked() {
	d.cancel(errShutdown)
	w := d.w
	if outer, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
		w = outer.Unwrap() // wrappers are for one goroutine
	}
	rc, past := http.NewResponseController(w), time.Unix(1, 0)
	rc.SetReadDeadline(past)
	rc.SetWriteDeadline(past)
}

// abortErr returns errShutdown after abortLocked. Call it after setting a deadline, which may have
// replaced that of abortLocked.
func (d *downstream) abortErr() error {
	if errors.Is(context.Cause(d.ctx), errShutdown) {
		return errShutdown
	}
	return nil
}

// expectNextHead notes that the request body was read before any part of the response was sent: the
// client's next bytes are its next request.
func (d *downstream) expectNextHead() {
	d.bodyRead.Store(true)
	if d.conn != nil && d.r.ProtoMajor == 1 {
		d.conn.head.expect()
	}
}

// writeError sends a response of the tap itself.
func (d *downstream) writeError(status int, why string) {
	h := d.w.Header()
	clear(h)
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	if d.r.ProtoMajor == 1 {
		// An unread body would precede the next request.
		h.Set("Connection", "close")
	}
	d.w.WriteHeader(status)
	if d.r.Method != http.MethodHead {
		d.w.Write([]byte("mcpwire tap: " + why + "\n"))
	}
}

// endReason returns the reason for an early end of the exchange, given an error of side.
func (d *downstream) endReason(side string, err error) string {
	// net/http also cancels the context of a request when its connection reaches a deadline.
	switch cause := context.Cause(d.ctx); {
	case errors.Is(cause, errShutdown):
		return errShutdown.Error()
	case errors.Is(err, errSlowReader):
		return err.Error()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return side + " timed out"
	case cause != nil, errors.Is(err, errClientGone):
		return errClientGone.Error()
	case neterror.IsReset(err):
		return side + " reset"
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return side + ": no known address of the host: " + dns.Err
	}
	return side + ": " + printable(err.Error())
}

// printable shortens a text that peers influence, and escapes terminal control characters.
func printable(s string) string {
	const most = 300
	q := strconv.QuoteToASCII(s[:min(len(s), most)])
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// armBodyTimeout sets the deadline for the next piece of the request body.
func (d *downstream) armBodyTimeout() { d.rc.SetReadDeadline(time.Now().Add(d.opts.BodyTimeout)) }

func (d *downstream) disarmBodyTimeout() { d.rc.SetReadDeadline(time.Time{}) }

// clientError distinguishes an interrupted body from an invalid one.
func (d *downstream) clientError(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.Canceled) {
		return errClientGone
	}
	return err
}

// write forwards p at once. The deadline is for a client that does not read; meanwhile the tap
// stops reading from the server.
func (d *downstream) write(p []byte, last bool) error {
	if len(p) == 0 {
		return nil
	}
	d.rc.SetWriteDeadline(time.Now().Add(d.opts.WriteTimeout))
	if err := d.abortErr(); err != nil {
		return err
	}
	if _, err := d.w.Write(p); err != nil {
		return d.writeFailed(err)
	}
	if last { // the handler's return flushes it
		return nil
	}
	return d.flush()
}

func (d *downstream) flush() error {
	d.rc.SetWriteDeadline(time.Now().Add(d.opts.WriteTimeout))
	if err := d.abortErr(); err != nil {
		return err
	}
	if err := d.rc.Flush(); err != nil {
		return d.writeFailed(err)
	}
	d.rc.SetWriteDeadline(time.Time{}) // HTTP/2 would end an idle stream
	return nil
}

func (d *downstream) writeFailed(err error) error {
	if isTimeout(err) {
		return fmt.Errorf("%w for %v", errSlowReader, d.opts.WriteTimeout)
	}
	return errClientGone
}
