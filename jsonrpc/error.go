package jsonrpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/plural"
)

// Code is a JSON-RPC error code.
type Code int

// The codes that JSON-RPC 2.0 defines (https://www.jsonrpc.org/specification#error_object).
const (
	CodeParseError     Code = -32700 // the frame is not JSON
	CodeInvalidRequest Code = -32600 // the frame is JSON, but not a JSON-RPC message
	CodeMethodNotFound Code = -32601
	CodeInvalidParams  Code = -32602
	CodeInternalError  Code = -32603
)

func (c Code) String() string {
	switch c {
	case CodeParseError:
		return "parse error"
	case CodeInvalidRequest:
		return "invalid request"
	case CodeMethodNotFound:
		return "method not found"
	case CodeInvalidParams:
		return "invalid params"
	case CodeInternalError:
		return "internal error"
	}
	return "error " + strconv.Itoa(int(c))
}

// An Error is an error object: a peer's error response, or the error that a handler answers with.
type Error struct {
	// Code is sent as CodeInternalError if it is zero.
	Code Code
	// Message is one sentence for people.
	Message string
	// Data is JSON text. Nil means that the error has no data.
	Data []byte
}

// Errorf returns an Error without data.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string {
	return e.Message + " (" + strconv.Itoa(int(e.Code)) + ")"
}

// Is reports whether target is an Error with the same code, and the same message if target has one:
// errors.Is(err, &Error{Code: CodeMethodNotFound}) tests for a code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && (t.Message == "" || t.Message == e.Message)
}

var (
	// ErrClosed is the error of calls on a connection that has ended. The error that wraps it holds
	// the cause.
	ErrClosed = errors.New("connection closed")
	// ErrMalformed is wrapped by the error of a call whose response is not valid JSON-RPC, or is
	// too large to be read (see [TooLargeError]).
	ErrMalformed = errors.New("peer sent a malformed response")
	// ErrRequestEnded is the error of a notification for a request that was already answered or
	// canceled.
	ErrRequestEnded = errors.New("request has ended")
	// ErrGap is the error of [Framer.ReadFrame] when messages that the peer sent on its own may be
	// lost. The next call reads on.
	ErrGap = errors.New("messages may have been missed")
	// ErrDisconnected is the cause of the end of a request's context when the peer has
	// disconnected. It wraps context.Canceled.
	ErrDisconnected = fmt.Errorf("the peer has disconnected: %w", context.Canceled)
	// ErrShutdown is the cause of the end of a request's context when this side ends the
	// connection. It wraps context.Canceled.
	ErrShutdown = fmt.Errorf("the connection is shutting down: %w", context.Canceled)
)

// A CanceledError is the cause of the end of a request's context when the peer has canceled the
// request. It wraps context.Canceled.
type CanceledError struct {
	// Reason is the text that the peer gave, at most 100 bytes. It may be empty.
	Reason string
}

func (e *CanceledError) Error() string {
	if e.Reason == "" {
		return "the peer has canceled the request"
	}
	return "the peer has canceled the request: " + e.Reason
}

// Unwrap returns context.Canceled.
func (e *CanceledError) Unwrap() error { return context.Canceled }

// MethodNotFound returns the error for an unknown method.
func MethodNotFound(method string) *Error {
	return &Error{Code: CodeMethodNotFound, Message: "method not found: " + clip.String(method, 100)}
}

// ErrorOf maps a handler's error to the error on the wire. No other function does. An *Error in
// err's chain is used unchanged, except that Data that is not JSON is dropped and Data with line
// breaks is put on one line. Every other error becomes an internal error with the name of its Go
// type as data.exception, unless it is a plain one of package errors or fmt. Its text is never
// sent, since it could hold paths or secrets of this machine: return an *Error to send one.
func ErrorOf(err error) *Error {
	var e *Error
	if errors.As(err, &e) && e != nil {
		return e.encodable()
	}
	var p *PanicError
	if errors.As(err, &p) {
		return p.wireError()
	}
	msg := CodeInternalError.String()
	if errors.Is(err, context.DeadlineExceeded) {
		msg = "request timed out"
	}
	return &Error{Code: CodeInternalError, Message: msg, Data: exceptionData(typeName(err))}
}

// encodable returns e if it can go on the wire, and otherwise a copy that can.
func (e *Error) encodable() *Error {
	f := *e
	if f.Code == 0 {
		f.Code = CodeInternalError // no path sends code 0
	}
	if len(f.Data) > 0 && jsonwire.Valid(f.Data, 0) != nil {
		f.Data = nil
	}
	f.Data = jsonwire.OneLine(f.Data)
	if f.Code == e.Code && len(f.Data) == len(e.Data) {
		return e
	}
	return &f
}

// exceptionData returns the data of an internal error. It is nil without a name.
func exceptionData(name string) []byte {
	if name == "" {
		return nil
	}
	return append(jsonwire.AppendQuote([]byte(`{"exception":`), name), '}')
}

// typeName returns the name of the type of err. It looks through wrappers that only add text, and
// returns "" if only types of the packages errors and fmt remain: they say nothing.
func typeName(err error) string {
	if err == nil {
		return ""
	}
	switch name := strings.TrimLeft(fmt.Sprintf("%T", err), "*"); name {
	case "errors.errorString", "fmt.wrapError", "fmt.wrapErrors", "errors.joinError":
	default:
		return name
	}
	inner := []error{errors.Unwrap(err)}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		inner = joined.Unwrap()
	}
	for _, err := range inner {
		if name := typeName(err); name != "" {
			return name
		}
	}
	return ""
}

// A PanicError is a panic in a handler. It fails one request.
type PanicError struct {
	// Value is the value of the panic. It is never sent.
	Value any
	// Stack is for the log and never sent.
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.Value) }

// wireError returns an error without the panic's value and stack.
func (e *PanicError) wireError() *Error {
	err, _ := e.Value.(error)
	return &Error{Code: CodeInternalError, Message: CodeInternalError.String(), Data: exceptionData(cmp.Or(typeName(err), "panic"))}
}

// Err decodes the error object of a KindError message. The Error shares no memory with the frame.
// An object without an integer code and a string message becomes an internal error that says so.
func (m *Message) Err() *Error {
	if m.Kind != KindError {
		return nil
	}
	e := &Error{}
	var hasCode, hasMessage bool
	if len(m.Error) > 0 && m.Error[0] == '{' {
		members := jsonwire.ObjectMembers(m.Error)
		for members.Next() {
			v := members.Value()
			switch {
			case members.KeyIs("code"):
				var n int64
				n, hasCode = jsonwire.ParseInt(v)
				e.Code = Code(n)
			case members.KeyIs("message") && v[0] == '"':
				e.Message, hasMessage = jsonwire.UnquoteString(v[1:len(v)-1]), true
			case members.KeyIs("data"):
				e.Data = append([]byte{}, v...)
			}
		}
	}
	if !hasCode || !hasMessage {
		return &Error{Code: CodeInternalError, Message: "peer sent a malformed error object", Data: append([]byte{}, m.Error...)}
	}
	return e
}

// A CallError is the failure of one call by its transport while the connection goes on: over HTTP,
// each call is a separate request. A Framer returns one from ReadFrame, and the error of the call
// wraps it. An error response of the peer is an *[Error] instead.
type CallError struct {
	// ID is the id of the failed call.
	ID ID
	// Err is the cause. It is never nil.
	Err error
	// Outcome says whether the peer carried out the request.
	Outcome Outcome
	// RetryAfter is the delay that the peer asks for before the next attempt. Zero means that it
	// did not ask.
	RetryAfter time.Duration
}

func (e *CallError) Error() string {
	return fmt.Sprintf("%s: %v", cmp.Or(e.Outcome, "no answer"), e.Err)
}

// Unwrap returns Err.
func (e *CallError) Unwrap() error { return e.Err }

// An Outcome says whether a request without a response was carried out, and so whether it may be
// sent again.
type Outcome string

// The outcomes of a request without a response.
const (
	// OutcomeUnknown means perhaps carried out: repeat only what is safe to repeat.
	OutcomeUnknown Outcome = ""
	// OutcomeUnprocessed means not carried out; sending it again may succeed.
	OutcomeUnprocessed Outcome = "not executed"
	// OutcomeRejected means not carried out; sending it again would fail again.
	OutcomeRejected Outcome = "refused"
	// OutcomeDenied means not carried out: one side does not trust the other.
	OutcomeDenied Outcome = "denied"
)

// A DrainError is the error of a connection if requests were running or queued at its drain
// timeout.
type DrainError struct {
	// Requests is the number of requests that were cut off. Each was answered with an error, if the
	// peer still reads.
	Requests int
	// After is the drain timeout.
	After time.Duration
	// Cause is the reason why the connection ended. It is nil at the end of input.
	Cause error
}

func (e *DrainError) Error() string {
	verb := "were"
	if e.Requests == 1 {
		verb = "was"
	}
	text := fmt.Sprintf("%s %s aborted %v after the end of input", plural.Of(e.Requests, "request"), verb, e.After)
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns Cause.
func (e *DrainError) Unwrap() error { return e.Cause }
