package resend

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"mcpwire/internal/printable"
	"mcpwire/jsonrpc"
)

var (
	// ErrNotFound is wrapped by the error of [Find] for an event that the capture does not have, or not in that session.
	ErrNotFound = errors.New("the capture has no such event")
	// ErrNotMessage is wrapped by the error of [Find] for an event that is nothing a client has sent.
	ErrNotMessage = errors.New("the event is no message of the client's")
	// ErrTruncated is wrapped by the error of [Find] for a message of which the capture has the beginning alone.
	ErrTruncated = errors.New("the capture has only the beginning of the message")
	// ErrNoServer is wrapped where the capture does not say how the server is started or reached, and the options do not either.
	ErrNoServer = errors.New("the capture does not say how the server is reached")
	// ErrTimeout is wrapped where something did not come within [Options.Timeout].
	ErrTimeout = errors.New("no answer in time")
	// ErrNoAnswer is wrapped where the server has ended the HTTP exchange of a request without answering it.
	ErrNoAnswer = errors.New("the server has ended the exchange without an answer")
	// ErrTooLarge is wrapped where the traffic exceeds [Options.MaxCapture] or [Options.MaxMessage].
	ErrTooLarge = errors.New("more than is taken")
	// ErrClosed is returned by calls on a [Session] that was closed.
	ErrClosed = errors.New("the session is closed")
)

// A RedactedError says that something was hidden when it was recorded, and is therefore not known.
type RedactedError struct {
	What     string   // "message", "command" or "URL"
	Pointers []string // JSON pointers into it; "" is all of it. There is at least one
	More     int      // places of which the capture does not say where they are
}

// Error names the places.
func (e *RedactedError) Error() string {
	const most = 5
	var b strings.Builder
	fmt.Fprintf(&b, "the %s has a secret that was hidden when it was recorded", e.What)
	for i, p := range e.Pointers[:min(len(e.Pointers), most)] {
		if p == "" {
			continue
		}
		b.WriteString(map[bool]string{true: ", at ", false: ", "}[i == 0] + printable.Line(p))
	}
	if n := len(e.Pointers) - most + e.More; n > 0 {
		b.WriteString(" and " + strconv.Itoa(n) + " other places")
	}
	return b.String()
}

// A HandshakeError says that the copy has refused to begin a session.
type HandshakeError struct {
	N   uint64         // number of the event with the answer
	Err *jsonrpc.Error // the server's
}

// Error has the server's words, as a peer chose them.
func (e *HandshakeError) Error() string { return "initialize was refused: " + e.Err.Error() }

// Unwrap returns the server's error.
func (e *HandshakeError) Unwrap() error { return e.Err }

// A StatusError is a response of HTTP that has no answer in it, and a status that says why.
type StatusError struct {
	Status int
	N      uint64 // number of the event with the head of the response
}

// Error names the status.
func (e *StatusError) Error() string {
	return "the server answered with HTTP status " + strconv.Itoa(e.Status)
}

// An EndedError says that the connection to the server has ended.
type EndedError struct {
	Err error // why: often a *stdio.ExitError, with the end of what the server wrote to standard error, or io.EOF
}

// Error says why.
func (e *EndedError) Error() string { return "the server has ended the connection: " + e.Err.Error() }

// Unwrap returns Err.
func (e *EndedError) Unwrap() error { return e.Err }
