package sse

import (
	"errors"
	"fmt"
	"time"
)

const (
	// DefaultMaxEvent is the default limit of the data of an event, in bytes.
	DefaultMaxEvent = 4 << 20
	// MaxField limits a name, an id or a retry in both directions, in bytes. An id must fit in a
	// Last-Event-ID header.
	MaxField = 8 << 10
	// MaxRetry is the longest Retry that a Reader returns: it reduces longer ones to this, so that
	// arithmetic with it cannot overflow.
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
	// Name is the type of the event. Empty means the default, "message", which a Reader returns as
	// empty; Append writes "message" if it is given.
	Name string
	// ID is the event's own id if HasID is set. An empty id resets the stream's last id. It may
	// contain any byte except CR, LF and NUL.
	ID    []byte
	HasID bool
	// Data is the data, with its lines joined by LF. A Reader leaves it nil without a data field,
	// and sets it to an empty slice for a data field without content.
	Data []byte
	// Retry is how long to wait before reconnecting, if HasRetry is set: whole milliseconds, at
	// most MaxRetry. Callers should apply their own limits in both directions.
	Retry    time.Duration
	HasRetry bool
}

var (
	// ErrInvalidID is the error for an id with CR, LF or NUL, or above MaxField.
	ErrInvalidID = errors.New("sse: id with a line end or NUL, or too long")
	// ErrInvalidName is the error for an event name with CR or LF, or above MaxField.
	ErrInvalidName = errors.New("sse: event name with a line end, or too long")
	// ErrInvalidRetry is the error for a negative retry.
	ErrInvalidRetry = errors.New("sse: negative retry")
	// ErrTooLarge is wrapped by every TooLargeError.
	ErrTooLarge = errors.New("sse: event too large")
)

// A TooLargeError is the error for an event that was skipped to its end, or to the end of the
// stream, because one of its fields was above the limit. If the event has a valid id,
// [Reader.LastEventID] returns it, so that resuming the stream does not meet the same event again.
// It is returned as a *TooLargeError.
type TooLargeError struct {
	// Field is "data", "id", "event" or "retry".
	Field string
	// Limit is the limit of the field, in bytes.
	Limit int
}

// Error returns, for example, "sse: event with more than 4194304 bytes of data was skipped".
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("sse: event with more than %d bytes of %s was skipped", e.Limit, e.Field)
}

// Unwrap returns [ErrTooLarge].
func (e *TooLargeError) Unwrap() error { return ErrTooLarge }
