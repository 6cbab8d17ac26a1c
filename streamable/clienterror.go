package streamable

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"mcpwire/auth"
	"mcpwire/jsonrpc"
)

// A StatusError is an HTTP response that is no answer to the message that was sent. It is what a [*jsonrpc.CallError] of this transport wraps when there was a response at all.
type StatusError struct {
	StatusCode int
	Text       string // the beginning of the body if that is text, or the message of the JSON-RPC error in it; chosen by the peer, at most 200 bytes
	Location   string // of a redirect that was not followed: the origin that it leads to, or what is wrong with it
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("HTTP status %d", e.StatusCode)
	if name := http.StatusText(e.StatusCode); name != "" {
		text += " " + name
	}
	if e.Location != "" {
		text += ", a redirect that is not followed: " + e.Location
	}
	if e.Text != "" {
		text += fmt.Sprintf(": %q", e.Text)
	}
	return text
}

const (
	maxErrorBody = 1 << 20 // bytes of the body of an error that are read
	maxErrorText = 200     // and that are told

	errorBodyTimeout = 5 * time.Second // for the body of an error
)

// errSessionGone is why a connection ends whose session the server has forgotten.
var errSessionGone = fmt.Errorf("the server has ended the session: %w", jsonrpc.ErrClosed)

// sessionGoneError is the error of a request that was refused because of that.
func sessionGoneError(r *httpError) *jsonrpc.CallError {
	return &jsonrpc.CallError{Err: fmt.Errorf("%w: %w", errSessionGone, r.status), Outcome: jsonrpc.OutcomeUnprocessed}
}

// lostError is the error of a request that cannot have an answer any more, though the server may have carried it out.
func lostError(err error) *jsonrpc.CallError {
	return &jsonrpc.CallError{Err: err, Outcome: jsonrpc.OutcomeUnknown}
}

// malformedError is the error of a request that was answered with something else than the protocol has.
func malformedError(format string, args ...any) *jsonrpc.CallError {
	return lostError(fmt.Errorf("%w: %s", jsonrpc.ErrMalformed, fmt.Sprintf(format, args...)))
}

// checkContentEncoding complains of a content that was compressed though nobody asked for that. (A Transport that did ask has undone it.)
func checkContentEncoding(h http.Header) error {
	coding := h.Get("Content-Encoding")
	if coding == "" || strings.EqualFold(coding, "identity") {
		return nil
	}
	return fmt.Errorf("%w: the content has the coding %.40q, which was not asked for", jsonrpc.ErrMalformed, coding)
}

// http2RefusedPrefixes are the errors of net/http for requests that a server has refused over HTTP/2 before it looked at them (RFC 9113, section 8.7), and that net/http would have repeated by
// itself, see mayResend. There is nothing else to tell them by. If the text changes, they count as lost, and are not repeated.
var http2RefusedPrefixes = []string{
	"http2: Transport: cannot retry err [http2: Transport received Server's graceful shutdown GOAWAY] ",
	"http2: Transport: cannot retry err [stream error: stream ID ",
}

func isHTTP2Refused(err error) bool {
	text := err.Error()
	if strings.HasPrefix(text, http2RefusedPrefixes[0]) {
		return true
	}
	rest, ok := strings.CutPrefix(text, http2RefusedPrefixes[1])
	return ok && strings.HasPrefix(strings.TrimLeft(rest, "0123456789"), "; REFUSED_STREAM; ")
}

// sendError says what became of a request whose sending failed. Only what certainly came before sending it counts as unsent.
func sendError(err error) *jsonrpc.CallError {
	if e, ok := errors.AsType[*jsonrpc.CallError](err); ok { // of the proxy
		return &jsonrpc.CallError{Err: e.Err, Outcome: e.Outcome}
	}
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err // without the URL, which may have secrets in it
	}
	e := lostError(err)
	var (
		login   *auth.AuthorizationError
		denied  interface{ Denied() bool }
		op      *net.OpError
		dns     *net.DNSError
		trust   *tls.CertificateVerificationError
		unknown x509.UnknownAuthorityError
		record  tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &login) && errors.Is(err, auth.ErrUnreachable):
		e.Outcome = jsonrpc.OutcomeUnprocessed
	case login != nil, errors.Is(err, auth.ErrNotReplayable): // the server wanted to know first who asks
		e.Outcome = jsonrpc.OutcomeDenied
	case errors.As(err, &denied) && denied.Denied(), errors.As(err, &trust), errors.As(err, &unknown):
		e.Outcome = jsonrpc.OutcomeDenied
	case errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect"), errors.As(err, &dns), errors.As(err, &record), isHTTP2Refused(err):
		e.Outcome = jsonrpc.OutcomeUnprocessed
	}
	return e
}

// A httpError is a response whose status is none of success.
type httpError struct {
	status     *StatusError
	message    *jsonrpc.Message // the JSON-RPC error in the body; nil if there is none
	retryAfter time.Duration
}

// readHTTPError reads a response whose status is none of success.
func readHTTPError(resp *http.Response, depth int) *httpError {
	r := &httpError{status: &StatusError{StatusCode: resp.StatusCode}, retryAfter: parseRetryAfter(resp.Header, time.Now())}
	if resp.StatusCode/100 == 3 {
		r.status.Location = describeRedirect(resp)
	}
	late := time.AfterFunc(errorBodyTimeout, func() { resp.Body.Close() }) // the status is known already
	defer late.Stop()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody+1))
	if err != nil || len(body) > maxErrorBody {
		return r
	}
	body = bytes.TrimSpace(bytes.TrimPrefix(body, bom))
	var m jsonrpc.Message
	if len(body) > 0 && body[0] == '{' && jsonrpc.Parse(body, &m, depth) == nil && m.Kind == jsonrpc.KindError {
		r.message = &m
		r.status.Text = clip(m.Err().Message)
	} else if isText(resp.Header) {
		r.status.Text = clip(string(body))
	}
	return r
}

// isText reports whether the body is worth showing to people.
func isText(h http.Header) bool {
	kind := mediaTypeOf(h)
	return kind == "text/plain" || kind == mediaJSON || kind == "application/problem+json"
}

func clip(s string) string {
	if len(s) > maxErrorText {
		s = s[:maxErrorText]
		for len(s) > 0 && !utf8.ValidString(s) {
			s = s[:len(s)-1]
		}
	}
	return s
}

// describeRedirect says where a redirect leads, without what may be secret in it.
func describeRedirect(resp *http.Response) string {
	to, err := resp.Location()
	switch {
	case err != nil:
		return "it does not say where to"
	case to.Scheme != "http" && to.Scheme != "https":
		return fmt.Sprintf("to a URL with the scheme %.20q", to.Scheme)
	case resp.Request != nil && sameOrigin(to, resp.Request.URL):
		return "it stays within the origin but does not ask for the same request (only 307 and 308 do), or comes too often"
	}
	return fmt.Sprintf("to another origin, %.100q", to.Scheme+"://"+to.Host)
}

// callError is what a call fails with that was refused so.
func (he *httpError) callError() *jsonrpc.CallError {
	e := &jsonrpc.CallError{Err: he.status, Outcome: jsonrpc.OutcomeRejected, RetryAfter: he.retryAfter}
	if he.status.StatusCode == http.StatusTooManyRequests && he.message != nil && he.message.Err().Code == codeTooManyRequests {
		e.Err = &rateLimitError{he.status, he.message.Err()} // the error says more than the status
	}
	switch code := he.status.StatusCode; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusProxyAuthRequired:
		e.Outcome = jsonrpc.OutcomeDenied
	case code == http.StatusTooManyRequests, code == http.StatusTooEarly, code == http.StatusServiceUnavailable && he.retryAfter > 0:
		e.Outcome = jsonrpc.OutcomeUnprocessed
	case code == http.StatusRequestTimeout, code >= 500:
		e.Outcome = jsonrpc.OutcomeUnknown
	}
	return e
}

// A rateLimitError is the error of a request that the limits of the server have refused.
type rateLimitError struct {
	status   *StatusError
	rpcError *jsonrpc.Error
}

func (e *rateLimitError) Error() string   { return e.status.Error() }
func (e *rateLimitError) Unwrap() []error { return []error{e.status, e.rpcError} }

// isAnswer reports whether the error in the body answers the request, rather than that some server on the way has something to say.
func (he *httpError) isAnswer() bool {
	if he.message == nil {
		return false
	}
	fate := he.callError().Outcome
	return fate == jsonrpc.OutcomeRejected || fate == jsonrpc.OutcomeUnknown
}

// answersID reports whether the error in the body is the answer to the request with that id.
func (he *httpError) answersID(id string) bool {
	return he.message != nil && id != "" && he.message.ID.Equal(jsonrpc.ID(id))
}

// isMethodNotFound reports whether a 404 is about the method rather than about the session.
func (he *httpError) isMethodNotFound() bool {
	return he.message != nil && he.message.Err().Code == jsonrpc.CodeMethodNotFound
}

// parseRetryAfter returns how long a Retry-After wants to be waited (RFC 9110, section 10.2.3); 0 if there is none.
func parseRetryAfter(h http.Header, now time.Time) time.Duration {
	const most = 24 * time.Hour
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		return 0
	}
	if strings.Trim(text, "0123456789") == "" {
		seconds, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return most
		}
		return min(max(time.Duration(seconds)*time.Second, time.Millisecond), most)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), time.Millisecond), most)
	}
	return 0
}
