package streamable

import (
	"context"
	"errors"
	"iter"
)

// An EventStore keeps what was sent on the streams of legacy sessions, so that a client that lost one can have the rest
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#resumability-and-redelivery). Its methods may be called by many goroutines at
// once; those of one stream come in order. session and stream are names of at most 64 characters without spaces.
type EventStore interface {
	// Append keeps an event and returns its id: visible ASCII, unique in the session, and such that After finds the stream by it. data is empty for an
	// event that only has an id. The slice is valid until Append returns.
	// If it fails, a client that is connected gets the event without an id, and the stream cannot be
	// resumed any more.
	Append(ctx context.Context, session, stream string, data []byte) (id string, err error)
	// After returns the stream that the event with that id is of, and the events behind it, in order. The error is [ErrEventGone] if the store does not have the
	// event (any more). The data may be kept, but not be changed.
	After(ctx context.Context, session, id string) (stream string, events iter.Seq2[StoredEvent, error], err error)
	// Drop forgets a session.
	Drop(ctx context.Context, session string) error
}

// A StoredEvent is one event of a stream.
type StoredEvent struct {
	ID   string
	Data []byte // empty if the event only has an id
}

// ErrEventGone says that a stream cannot be resumed behind an event, because the store does not have it.
var ErrEventGone = errors.New("no such event")

// A SessionStore keeps what another process, or the same one after a restart, needs to take over a session of a legacy client. Its methods may be called
// by many goroutines at once.
type SessionStore interface {
	// Save keeps a session until it is deleted, or until nobody has saved or loaded it for some time
	// that is the store's. That should be at least [Options].SessionTimeout: a session that is in use
	// is loaded again after a quarter of it.
	Save(ctx context.Context, id string, s *SavedSession) error
	// Load returns a session, nil without an error if there is none. If the error is not nil, the
	// request of the client is answered with status 503.
	Load(ctx context.Context, id string) (*SavedSession, error)
	// Delete forgets a session.
	Delete(ctx context.Context, id string) error
}

// A SavedSession is how a session came about. It can be kept as JSON.
type SavedSession struct {
	Principal  string `json:"principal,omitempty"` // whose it is, as auth.Principal.ID says; "" if nobody's in particular
	Initialize []byte `json:"initialize"`          // the client's initialize request
}
