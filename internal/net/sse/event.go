package sse

import (
	"errors"
	"fmt"
	"time"
)

const (
	// DefaultMaxEvent is how many bytes of data an event may have if NewReader is not told.
	DefaultMaxEvent = 4 << 20
	// MaxField is how many bytes a name, an id or a retry may have, in both directions. An id must fit in a Last-Event-ID header.
	MaxField = 8 << 10
	// MaxRetry is the longest Retry that a Reader reports: what is longer is cut to it, so that arithmetic with it cannot overflow.
	MaxRetry = 24 * time.Hour
)

// An Event is one event of a stream.
//
//	                       Name        ID      HasID  Data       Retry  HasRetry
//	a message              ""          nil     false  {...}      0      false
//	a priming event        ""          "s1-0"  true   empty      0      false
//	a retry on its own     ""          nil     false  nil        3s     true
//	where to POST, legacy  "endpoint"  nil     false  /messages  0      false
type Event struct {
	// Name is the type of the event. Empty is the default, "message": a Reader makes the two one; Append writes "message" out if it is given.
	Name string
	// ID is the event's own id if HasID is set. An empty one makes the stream forget the last id. It may hold any byte but CR, LF and NUL.
	ID    []byte
	HasID bool
	// Data is the data, its lines joined by LF. A Reader leaves it nil if there was no data field, and empty but not nil if there was one
	// without content.
	Data []byte
	// Retry is how long to wait before reconnecting, if HasRetry is set: whole milliseconds, at most MaxRetry. Callers should have limits
	// of their own in both directions.
	Retry    time.Duration
	HasRetry bool
}

var (
	// ErrInvalidID is returned for an id with CR, LF or NUL in it, or above MaxField.
	ErrInvalidID = errors.New("sse: id with a line end or NUL, or too long")
	// ErrInvalidName is returned for an event name with CR or LF in it, or above MaxField.
	ErrInvalidName = errors.New("sse: event name with a line end, or too long")
	// ErrInvalidRetry is returned for a negative retry.
	ErrInvalidRetry = errors.New("sse: negative retry")
	// ErrTooLarge is what every TooLargeError wraps.
	ErrTooLarge = errors.New("sse: event too large")
)

// A TooLargeError tells of an event that was passed over to its end, or to the end of the stream, because one of its fields was above the limit.
// The event's id, if it has a good one, counts for [Reader.LastEventID], so that resuming the stream does not run into the same event again.
// It is returned as a *TooLargeError.
type TooLargeError struct {
	Field string // "data", "id", "event" or "retry"
	Limit int    // bytes
}

// Error returns "sse: event with more than 4194304 bytes of data was skipped".
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("sse: event with more than %d bytes of %s was skipped", e.Limit, e.Field)
}

// Unwrap returns [ErrTooLarge].
func (e *TooLargeError) Unwrap() error { return ErrTooLarge }
