package bridge

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/oauth"
	"mcpwire/stdio"
	"mcpwire/streamable"
)

// asRPCError returns the JSON-RPC error for a client: the server's own if err contains one.
func (o *Options) asRPCError(err error) *jsonrpc.Error {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return e
	}
	return o.clientError(err)
}

// visibleError returns the version of a connection's error that clients may see. With
// Options.Remote it says only how a process ended. Otherwise it includes the command and the last
// standard error, redacted unless Options.Unredacted is set.
func (o *Options) visibleError(err error) error {
	exit, exited := errors.AsType[*stdio.ExitError](err)
	start, failed := errors.AsType[*connectError](err)
	switch {
	case o.HTTP:
		return err
	case o.Remote && exited:
		return &exitError{code: exit.Code, signal: exit.Signal, after: exit.After}
	case o.Remote && failed && errors.Is(start.err, context.DeadlineExceeded):
		return &connectError{context.DeadlineExceeded}
	case o.Remote && failed:
		return &connectError{errors.New("see the operator's log")}
	case o.Remote || !exited || o.Unredacted:
		return err
	}
	r := capture.NewRedactor(nil)
	safe := *exit
	safe.Name, safe.Stderr = r.Text(exit.Name), r.Text(exit.Stderr)
	if text, ok := strings.CutSuffix(err.Error(), exit.Error()); ok {
		return fmt.Errorf("%s%w", text, &safe)
	}
	return &safe
}

// An exitError says how a process ended, without details.
type exitError struct {
	code   int
	signal os.Signal
	after  time.Duration
}

func (e *exitError) Error() string {
	how := fmt.Sprintf("its process exited with status %d", e.code)
	if e.signal != nil {
		how = fmt.Sprintf("its process was terminated by a signal (%v)", e.signal)
	}
	return fmt.Sprintf("%s after %v; its last output is in the operator's log", how, e.after.Round(time.Millisecond))
}

// clientError returns the JSON-RPC error for the end of a connection or a failed request. Its data
// has the exit status and the last standard error of a process.
func (o *Options) clientError(err error) *jsonrpc.Error {
	e := jsonrpc.Errorf(jsonrpc.CodeInternalError, "%s", o.Hints.describe(err))
	if exit, ok := errors.AsType[*stdio.ExitError](err); ok {
		e.Data = exitData(exit.Code, exit.Signal, exit.Stderr)
	}
	if ended, ok := errors.AsType[*exitError](err); ok {
		e.Data = exitData(ended.code, ended.signal, "")
	}
	if large, ok := errors.AsType[*jsonrpc.TooLargeError](err); ok {
		e.Data = strconv.AppendInt([]byte(`{"limit":`), int64(large.Limit), 10)
		e.Data = append(strconv.AppendInt(append(e.Data, `,"size":`...), large.Size, 10), '}')
	}
	if with, ok := errors.AsType[dataError](err); ok {
		e.Data = with.ErrorData()
	}
	return e
}

// named returns an error for a client, with the name of the server if Options.NameErrors is set.
func (o *Options) named(e *jsonrpc.Error) *jsonrpc.Error {
	if !o.NameErrors || e.Code != jsonrpc.CodeInternalError {
		return e
	}
	own := *e
	own.Message = o.Name + ": " + e.Message
	return &own
}

// namedRejection is named for a client or a request above a limit.
func (o *Options) namedRejection(e *relay.RejectedError) *relay.RejectedError {
	if !o.NameErrors {
		return e
	}
	own := *e
	own.Reason = o.Name + ": " + e.Reason
	return &own
}

// A dataError is an error of Options.Connect, or of its connection, that has data for clients.
type dataError interface {
	error
	// ErrorData returns the data of the JSON-RPC error, a JSON text.
	ErrorData() []byte
}

// Hints say how the user of a bridge corrects its configuration. They end the errors that clients
// get. An empty text is left out.
type Hints struct {
	// Login is for a server that requires a login.
	Login string
	// Certificate is for a server whose certificate is not trusted.
	Certificate string
	// MaxMessage is for a response above the limit of a message's size.
	MaxMessage string
}

// withHint returns a text with a hint, which may be empty.
func withHint(text, hint string) string {
	if hint == "" {
		return text
	}
	return text + "; " + hint
}

// describe returns a text for an error, with a fix if one is known.
func (h *Hints) describe(err error) string {
	if later, ok := errors.AsType[*retryError](err); ok {
		return fmt.Sprintf("%s (the next attempt is in %v)", h.describe(later.err), later.wait)
	}
	failed, isCall := errors.AsType[*jsonrpc.CallError](err)
	if status, ok := errors.AsType[*streamable.StatusError](err); ok {
		return h.describeStatus(status)
	}
	if large, ok := errors.AsType[*jsonrpc.TooLargeError](err); ok {
		return withHint(fmt.Sprintf("the server's response has more than %d bytes and was not read", large.Limit), h.MaxMessage)
	}
	var (
		login  *oauth.AuthorizationError
		verify *tls.CertificateVerificationError
		signed x509.UnknownAuthorityError
		notTLS tls.RecordHeaderError
		dns    *net.DNSError
		dial   *net.OpError
		silent timeoutError
	)
	switch {
	case errors.Is(err, errUpstreamClosed):
		return "the connection to the server is closed"
	case errors.Is(err, errQueueFull):
		return errQueueFull.Error()
	case errors.As(err, &login):
		return withHint(fmt.Sprintf("the server requires a login, and the bridge has no token: %v", login), h.Login)
	case errors.As(err, &verify), errors.As(err, &signed):
		return withHint(fmt.Sprintf("the server's certificate is not trusted: %v", causeOf(err, failed)), h.Certificate)
	case errors.As(err, &notTLS):
		return fmt.Sprintf("the server does not speak TLS: %v; try http:// in its URL", notTLS)
	case errors.As(err, &dns):
		return fmt.Sprintf("the server cannot be reached: %v", dns)
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Sprintf("the server cannot be reached: %v; check that it runs, and at this address", dial)
	case errors.As(err, &silent):
		return fmt.Sprintf("the server has not responded for %v", time.Duration(silent))
	case errors.Is(err, jsonrpc.ErrMalformed):
		return fmt.Sprintf("the server's response is malformed: %v", causeOf(err, failed))
	case isCall && failed.Outcome == jsonrpc.OutcomeUnknown:
		return fmt.Sprintf("the connection to the server was lost before its response: %v; it may have executed the request", failed.Err)
	case isCall:
		return fmt.Sprintf("the request did not reach the server: %v", failed.Err)
	}
	if start, ok := errors.AsType[*connectError](err); ok {
		return fmt.Sprintf("the server cannot be started: %v", start.err)
	}
	return fmt.Sprintf("the connection to the server ended: %v", err)
}

// describeStatus returns a text for an HTTP response without a JSON-RPC message.
func (h *Hints) describeStatus(s *streamable.StatusError) string {
	switch code := s.StatusCode; {
	case code == http.StatusUnauthorized:
		return withHint(fmt.Sprintf("the server requires a login: %v", s), h.Login)
	case code == http.StatusForbidden:
		return fmt.Sprintf("the server denies access: %v; mcpwire doctor looks for the cause", s)
	case code == http.StatusProxyAuthRequired:
		return fmt.Sprintf("the proxy requires authentication: %v", s)
	case code == http.StatusTooManyRequests, code == http.StatusTooEarly, code == http.StatusServiceUnavailable:
		return fmt.Sprintf("the server accepts no requests now: %v; try again later", s)
	case code >= 500, code == http.StatusRequestTimeout:
		return fmt.Sprintf("the server failed: %v", s)
	}
	return fmt.Sprintf("the server rejects the request: %v; check the URL of its endpoint: many use /mcp", s)
}

// causeOf returns the error in a CallError, without its outcome.
func causeOf(err error, failed *jsonrpc.CallError) error {
	if failed != nil {
		return failed.Err
	}
	return err
}

// A connectError says why a connection could not be made.
type connectError struct{ err error }

func (e *connectError) Error() string { return e.err.Error() }

func (e *connectError) Unwrap() error { return e.err }

// A retryError says why a connection is missing, and when the next attempt is.
type retryError struct {
	err  error
	wait time.Duration
}

func (e *retryError) Error() string {
	return fmt.Sprintf("%v (the next attempt is in %v)", e.err, e.wait)
}

func (e *retryError) Unwrap() error { return e.err }

// maxTail limits the bytes of standard error in an error's data.
const maxTail = 4 << 10

// exitData returns the data of an error that says how a process ended. signal may be nil. tail is
// the last standard error.
func exitData(code int, signal os.Signal, tail string) []byte {
	b := append([]byte(nil), `{"exitCode":`...)
	b = strconv.AppendInt(b, int64(code), 10)
	if signal != nil {
		b = append(b, `,"signal":`...)
		b = jsonwire.AppendQuote(b, signal.String())
	}
	if tail != "" {
		if len(tail) > maxTail {
			tail = tail[len(tail)-maxTail:]
			tail = tail[strings.IndexByte(tail, '\n')+1:]
		}
		b = append(b, `,"stderr":`...)
		b = jsonwire.AppendQuote(b, strings.ToValidUTF8(tail, "\uFFFD"))
	}
	return append(b, '}')
}
