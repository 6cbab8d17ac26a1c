package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// IsPeer reports whether err is one that the server answered. Its code and data are in the *[jsonrpc.Error] that err wraps; errors that arose on this side
// never wrap one. A call that the server did not take at all, as one beyond its limits over HTTP, was not answered: see [*jsonrpc.CallError].
func IsPeer(err error) bool {
	_, ok := errors.AsType[*jsonrpc.Error](err)
	_, undelivered := errors.AsType[*jsonrpc.CallError](err)
	return ok && !undelivered
}

// IsNotFound reports whether err is the server's answer that a resource does not exist. Legacy servers have a code for that; modern ones answer as to any
// other params that cannot be.
func IsNotFound(err error) bool {
	return hasCode(err, mcp.CodeResourceNotFound) || isInvalidParams(err)
}

// isConnectionLost reports whether err says that the connection has ended.
func isConnectionLost(err error) bool { return errors.Is(err, jsonrpc.ErrClosed) }

func isInvalidParams(err error) bool  { return hasCode(err, jsonrpc.CodeInvalidParams) }
func isMethodNotFound(err error) bool { return hasCode(err, jsonrpc.CodeMethodNotFound) }

func hasCode(err error, code jsonrpc.Code) bool {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	return ok && e.Code == code
}

// A TimeoutError is what a call fails with that took too long. The server was told that it is cancelled. It unwraps to [context.DeadlineExceeded].
type TimeoutError struct {
	Method string
	After  time.Duration // the bound that was exceeded
	Max    bool          // it was that of the whole call, not that of the wait for an answer or for progress

	option string // that sets the bound; "" is WithTimeout
}

func (e *TimeoutError) Error() string {
	what := "no answer"
	if e.Max {
		what = "not done"
	}
	return fmt.Sprintf("call %s: %s %s", e.Method, what, e.bound())
}

// bound says which bound was exceeded, and what sets it.
func (e *TimeoutError) bound() string {
	word, option := "within", "WithTimeout"
	switch {
	case e.Max:
		word, option = "after", "WithMaxTimeout"
	case e.option != "":
		option = e.option
	}
	return fmt.Sprintf("%s %v (see %s)", word, e.After, option)
}

// Unwrap makes errors.Is(err, context.DeadlineExceeded) true.
func (e *TimeoutError) Unwrap() error { return context.DeadlineExceeded }

// Timeout reports true, as net.Error wants it.
func (e *TimeoutError) Timeout() bool { return true }

// A NotConnectedError is what a call or a notification fails with that was not sent: the connection was lost, and there was no other in time. Nothing of it has
// been carried out.
type NotConnectedError struct {
	// Method is the method of the call or the notification.
	Method string
	// Err is what ended the wait: a *[TimeoutError], or the cause of the context's end.
	Err error
	// Last says how the last connection ended, or why the last attempt to connect failed. Unwrap does not lead to it: it is not about this call.
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

// A ProtocolError is an answer of the server that the protocol does not allow.
type ProtocolError struct {
	Method string // of the request
	Reason string
	Err    error // that decoding the answer met; may be nil
}

func (e *ProtocolError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("call %s: server broke the protocol: %s: %v", e.Method, e.Reason, e.Err)
	}
	return fmt.Sprintf("call %s: server broke the protocol: %s", e.Method, e.Reason)
}

// Unwrap returns Err.
func (e *ProtocolError) Unwrap() error { return e.Err }

// An IncompatibleError is what [Dial] fails with if there is no revision that both sides speak.
type IncompatibleError struct {
	Client []mcp.Revision // that were to be spoken
	Server []string       // that the server named; nil if it named none
	Err    error          // that the server answered instead; may be nil
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
