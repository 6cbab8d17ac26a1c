package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// IsServerError reports whether err is the server's response. err then wraps a *[jsonrpc.Error]
// with the code and data; local errors never wrap one. A call that the server rejected unprocessed,
// for example because of a limit over HTTP, has no response: see [jsonrpc.CallError].
func IsServerError(err error) bool {
	_, ok := errors.AsType[*jsonrpc.Error](err)
	_, undelivered := errors.AsType[*jsonrpc.CallError](err)
	return ok && !undelivered
}

// IsNotFound reports whether err is the server's response that a resource does not exist. Legacy
// servers use a dedicated code. Modern servers use the code for invalid params, so IsNotFound is
// true for those as well.
func IsNotFound(err error) bool {
	return hasCode(err, mcp.CodeResourceNotFound) || isInvalidParams(err)
}

// isConnectionLost reports whether err means that the connection has ended.
func isConnectionLost(err error) bool { return errors.Is(err, jsonrpc.ErrClosed) }

func isInvalidParams(err error) bool  { return hasCode(err, jsonrpc.CodeInvalidParams) }
func isMethodNotFound(err error) bool { return hasCode(err, jsonrpc.CodeMethodNotFound) }

func hasCode(err error, code jsonrpc.Code) bool {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	return ok && e.Code == code
}

// A TimeoutError is the error of a call that took too long. The Client has canceled the call,
// unless it opens a connection. It unwraps to [context.DeadlineExceeded].
type TimeoutError struct {
	// Method is the method of the request.
	Method string
	// After is the limit that was exceeded.
	After time.Duration
	// Max is set if After limits the whole call, not the wait for a response or for progress.
	Max bool

	// option names the option that sets the limit. "" means WithTimeout.
	option string
}

func (e *TimeoutError) Error() string {
	what := "no response"
	if e.Max {
		what = "not executed"
	}
	return fmt.Sprintf("call %s: %s %s", e.Method, what, e.bound())
}

// bound describes the limit that was exceeded and the option that sets it.
func (e *TimeoutError) bound() string {
	word, option := "within", "WithTimeout"
	switch {
	case e.Max:
		word, option = "after", "WithTotalTimeout"
	case e.option != "":
		option = e.option
	}
	return fmt.Sprintf("%s %v (see %s)", word, e.After, option)
}

// Unwrap makes errors.Is(err, context.DeadlineExceeded) true.
func (e *TimeoutError) Unwrap() error { return context.DeadlineExceeded }

// A NotConnectedError is the error of a call or notification that was not sent, because a lost
// connection was not replaced in time.
type NotConnectedError struct {
	// Method is the method of the call or the notification.
	Method string
	// Err is the reason why the wait ended: a *[TimeoutError], or the cause of the context's end.
	Err error
	// Last is the end of the last connection or the error of the last attempt to connect. Unwrap
	// does not return it, because it is not about this call.
	Last error
}

func (e *NotConnectedError) Error() string {
	text := fmt.Sprintf("not connected: %v", e.Err)
	if t, ok := e.Err.(*TimeoutError); ok {
		text = "not connected: no connection " + t.bound()
	}
	if e.Last != nil {
		text += fmt.Sprintf("; the last failure: %v", e.Last)
	}
	return text
}

// Unwrap returns Err.
func (e *NotConnectedError) Unwrap() error { return e.Err }

// A ProtocolError is a response of the server that violates the protocol.
type ProtocolError struct {
	// Method is the method of the request.
	Method string
	// Reason says what is wrong with the response.
	Reason string
	// Err is the error of decoding the response. It may be nil.
	Err error
}

func (e *ProtocolError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("call %s: the server violated the protocol: %s: %v", e.Method, e.Reason, e.Err)
	}
	return fmt.Sprintf("call %s: the server violated the protocol: %s", e.Method, e.Reason)
}

// Unwrap returns Err.
func (e *ProtocolError) Unwrap() error { return e.Err }

// An IncompatibleError is the error of [Dial] if both sides have no revision in common.
type IncompatibleError struct {
	// Client has the revisions that the client wants to speak.
	Client []mcp.Revision
	// Server has the revisions that the server named. It is nil if it named none.
	Server []string
	// Err is the server's error. It may be nil.
	Err error
}

func (e *IncompatibleError) Error() string {
	server := fmt.Sprintf("%.40s", e.Server[:min(len(e.Server), 20)])
	if e.Server == nil {
		server = "an older one: it does not know " + mcp.MethodDiscover
	}
	text := fmt.Sprintf("no common revision of the protocol: the client speaks %v, the server %s", e.Client, server)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns Err.
func (e *IncompatibleError) Unwrap() error { return e.Err }
