package sse

import (
	"errors"
	"fmt"
)

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
