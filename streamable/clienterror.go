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

// A StatusError is an HTTP response that is no answer to the message that was sent. It is what a [*jsonrpc.CallError] of this carrier wraps when there was a response at all.
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

	errorPatience = 5 * time.Second // for the body of an error
)

// errSessionGone is why a connection ends whose session the server has forgotten.
var errSessionGone = fmt.Errorf("the server has ended the session: %w", jsonrpc.ErrClosed)

// sessionGone is the error of a request that was refused because of that.
func sessionGone(r *httpRefusal) *jsonrpc.CallError {
	return &jsonrpc.CallError{Err: fmt.Errorf("%w: %w", errSessionGone, r.status), Fate: jsonrpc.FateUnsent}
}

// unanswered is the error of a request that cannot have an answer any more, though the server may have carried it out.
func unanswered(err error) *jsonrpc.CallError {
	return &jsonrpc.CallError{Err: err, Fate: jsonrpc.FateLost}
}

// malformedAnswer is the error of a request that was answered with something else than the protocol has.
func malformedAnswer(format string, args ...any) *jsonrpc.CallError {
	return unanswered(fmt.Errorf("%w: %s", jsonrpc.ErrMalformed, fmt.Sprintf(format, args...)))
}

// checkCoding complains of a content that was compressed though nobody asked for that. (A Transport that did ask has undone it.)
func checkCoding(h http.Header) error {
	coding := h.Get("Content-Encoding")
	if coding == "" || strings.EqualFold(coding, "identity") {
		return nil
	}
	return fmt.Errorf("%w: the content has the coding %.40q, which was not asked for", jsonrpc.ErrMalformed, coding)
}

// untouched are the errors of net/http for requests that a server has refused over HTTP/2 before it looked at them (RFC 9113, section 8.7), and that net/http would have repeated by
// itself, see mayRewind. There is nothing else to tell them by. If the text changes, they count as lost, and are not repeated.
var untouched = []string{
	"http2: Transport: cannot retry err [http2: Transport received Server's graceful shutdown GOAWAY] ",
	"http2: Transport: cannot retry err [stream error: stream ID ",
}

func isUntouched(err error) bool {
	text := err.Error()
	if strings.HasPrefix(text, untouched[0]) {
		return true
	}
	rest, ok := strings.CutPrefix(text, untouched[1])
	return ok && strings.HasPrefix(strings.TrimLeft(rest, "0123456789"), "; REFUSED_STREAM; ")
}

// sendError says what became of a request whose sending failed. Only what certainly came before sending it counts as unsent.
func sendError(err error) *jsonrpc.CallError {
	if e, ok := errors.AsType[*jsonrpc.CallError](err); ok { // of the proxy
		return &jsonrpc.CallError{Err: e.Err, Fate: e.Fate}
	}
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err // without the URL, which may have secrets in it
	}
	e := unanswered(err)
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
		e.Fate = jsonrpc.FateUnsent
	case login != nil, errors.Is(err, auth.ErrNotReplayable): // the server wanted to know first who asks
		e.Fate = jsonrpc.FateDenied
	case errors.As(err, &denied) && denied.Denied(), errors.As(err, &trust), errors.As(err, &unknown):
		e.Fate = jsonrpc.FateDenied
	case errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect"), errors.As(err, &dns), errors.As(err, &record), isUntouched(err):
		e.Fate = jsonrpc.FateUnsent
	}
	return e
}

// A httpRefusal is a response whose status is none of success.
type httpRefusal struct {
	status  *StatusError
	message *jsonrpc.Message // the JSON-RPC error in the body; nil if there is none
	after   time.Duration
}

// readRefusal reads a response whose status is none of success.
func readRefusal(resp *http.Response, depth int) *httpRefusal {
	r := &httpRefusal{status: &StatusError{StatusCode: resp.StatusCode}, after: retryAfterOf(resp.Header, time.Now())}
	if resp.StatusCode/100 == 3 {
		r.status.Location = redirectOf(resp)
	}
	late := time.AfterFunc(errorPatience, func() { resp.Body.Close() }) // the status is known already
	defer late.Stop()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody+1))
	if err != nil || len(body) > maxErrorBody {
		return r
	}
	body = bytes.TrimSpace(bytes.TrimPrefix(body, bom))
	var m jsonrpc.Message
	if len(body) > 0 && body[0] == '{' && jsonrpc.Parse(body, &m, depth) == nil && m.Kind == jsonrpc.KindError {
		r.message = &m
		r.status.Text = clipped(m.Err().Message)
	} else if isText(resp.Header) {
		r.status.Text = clipped(string(body))
	}
	return r
}

// isText reports whether the body is worth showing to people.
func isText(h http.Header) bool {
	kind := mediaTypeOf(h)
	return kind == "text/plain" || kind == mediaJSON || kind == "application/problem+json"
}

func clipped(s string) string {
	if len(s) > maxErrorText {
		s = s[:maxErrorText]
		for len(s) > 0 && !utf8.ValidString(s) {
			s = s[:len(s)-1]
		}
	}
	return s
}

// redirectOf says where a redirect leads, without what may be secret in it.
func redirectOf(resp *http.Response) string {
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
func (r *httpRefusal) callError() *jsonrpc.CallError {
	e := &jsonrpc.CallError{Err: r.status, Fate: jsonrpc.FateRefused, RetryAfter: r.after}
	if r.status.StatusCode == http.StatusTooManyRequests && r.message != nil && r.message.Err().Code == codeTooManyRequests {
		e.Err = &limitError{r.status, r.message.Err()} // the error says more than the status
	}
	switch code := r.status.StatusCode; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusProxyAuthRequired:
		e.Fate = jsonrpc.FateDenied
	case code == http.StatusTooManyRequests, code == http.StatusTooEarly, code == http.StatusServiceUnavailable && r.after > 0:
		e.Fate = jsonrpc.FateUnsent
	case code == http.StatusRequestTimeout, code >= 500:
		e.Fate = jsonrpc.FateLost
	}
	return e
}

// A limitError is the error of a request that the limits of the server have refused.
type limitError struct {
	status *StatusError
	answer *jsonrpc.Error
}

func (e *limitError) Error() string   { return e.status.Error() }
func (e *limitError) Unwrap() []error { return []error{e.status, e.answer} }

// isAnswer reports whether the error in the body answers the request, rather than that some server on the way has something to say.
func (r *httpRefusal) isAnswer() bool {
	if r.message == nil {
		return false
	}
	fate := r.callError().Fate
	return fate == jsonrpc.FateRefused || fate == jsonrpc.FateLost
}

// isAbout reports whether the error in the body is the answer to the request with that id.
func (r *httpRefusal) isAbout(id string) bool {
	return r.message != nil && id != "" && r.message.ID.Equal(jsonrpc.ID(id))
}

// noSuchMethod reports whether a 404 is about the method rather than about the session.
func (r *httpRefusal) noSuchMethod() bool {
	return r.message != nil && r.message.Err().Code == jsonrpc.CodeMethodNotFound
}

// retryAfterOf returns how long a Retry-After wants to be waited (RFC 9110, section 10.2.3); 0 if there is none.
func retryAfterOf(h http.Header, now time.Time) time.Duration {
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
