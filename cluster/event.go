package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"mcpwire/internal/base/coordination"
	"mcpwire/streamable"
)

const (
	// eventPart is the size of the entries into which a large event is divided.
	eventPart = coordination.MaxValue - 16
	// maxEvent limits the bytes of an event.
	maxEvent = 8 << 20
	// maxReadEntries limits the entries that one read of a log asks for.
	maxReadEntries = 256
)

// The bits of the second byte of an entry of the log of events.
const (
	eventMore      = 1 << iota // the next entry continues the event
	eventContinues             // the entry continues that of the entry before
)

// EventStoreOptions are the limits of [Node.EventStore].
type EventStoreOptions struct {
	// MaxStreamEvents limits the events of one stream. Zero means 1000.
	MaxStreamEvents int
	// MaxAge limits the age of events. Zero means 1 h.
	MaxAge time.Duration
	// MaxBytes limits the bytes of all events. Zero means 256 MiB.
	MaxBytes int64
}

// An eventStore is a streamable.EventFollower. The id of an event is the name of its stream and a
// number, and means nothing in another session.
type eventStore struct {
	n   *Node
	log Log
}

// EventStore returns the store of events that all nodes share. An event has up to 8 MiB. EventStore
// copies o, which may be nil. All nodes must use the same options.
func (n *Node) EventStore(ctx context.Context, o *EventStoreOptions) (streamable.EventFollower, error) {
	opts := LogOptions{MaxBytes: 256 << 20}
	if o != nil {
		opts.MaxEntries, opts.MaxAge = o.MaxStreamEvents, o.MaxAge
		if o.MaxBytes > 0 {
			opts.MaxBytes = o.MaxBytes
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, errOpenTimeout)
	defer cancel()
	log, err := n.backend.Log(ctx, "events", opts)
	if err != nil {
		return nil, fmt.Errorf("open the log of events: %w", callError(ctx, err))
	}
	return &eventStore{n, log}, nil
}

func (s *eventStore) key(session, stream string) LogKey {
	return LogKey{Group: s.n.key("session", session), Name: digest(stream)}
}

func eventID(stream string, seq uint64) string { return stream + "-" + strconv.FormatUint(seq, 10) }

// parseEventID returns false if the id does not belong to this store.
func parseEventID(id string) (stream string, seq uint64, ok bool) {
	dash := strings.LastIndexByte(id, '-')
	if dash < 0 {
		return "", 0, false
	}
	seq, err := strconv.ParseUint(id[dash+1:], 10, 64)
	return id[:dash], seq, err == nil && seq > 0 && eventID(id[:dash], seq) == id
}

func (s *eventStore) Append(ctx context.Context, session, stream string, data []byte) (id string, err error) {
	if len(data) > maxEvent {
		return "", fmt.Errorf("append an event: %w: %d bytes, limit %d", ErrTooLarge, len(data), maxEvent)
	}
	if observe := s.n.opts.OnAppend; observe != nil {
		start := time.Now()
		defer func() { observe(time.Since(start), err) }()
	}
	ctx, cancel := bound(ctx)
	defer cancel()
	key := s.key(session, stream)
	for first := true; first || len(data) > 0; first = false {
		part, bits := data, byte(0)
		if !first {
			bits |= eventContinues
		}
		if len(part) > eventPart {
			part, bits = part[:eventPart], bits|eventMore
		}
		data = data[len(part):]
		seq, err := s.log.Append(ctx, key, "", append([]byte{format, bits}, part...))
		if err != nil {
			return "", fmt.Errorf("append an event: %w", callError(ctx, err))
		}
		id = eventID(stream, seq)
	}
	return id, nil
}

// After implements [streamable.EventStore]. It returns the events that are stored when they are
// read.
func (s *eventStore) After(ctx context.Context, session, id string) (stream string, events iter.Seq2[streamable.StoredEvent, error], err error) {
	stream, after, ok := parseEventID(id)
	if !ok {
		return "", nil, streamable.ErrEventGone
	}
	key := s.key(session, stream)
	first, err := s.read(ctx, key, after)
	if err != nil {
		return "", nil, err
	}
	return stream, joinEvents(stream, func(yield func(Entry, error) bool) {
		for entries := first; len(entries) > 0; {
			for _, e := range entries {
				if after = e.Seq; !yield(e, nil) {
					return
				}
			}
			if entries, err = s.read(ctx, key, after); err != nil {
				yield(Entry{}, err)
				return
			}
		}
	}), nil
}

func (s *eventStore) StreamOf(id string) (stream string, ok bool) {
	stream, _, ok = parseEventID(id)
	return stream, ok
}

func (s *eventStore) Follow(ctx context.Context, session, id string) (stream string, events iter.Seq2[streamable.StoredEvent, error], err error) {
	stream, after, ok := parseEventID(id)
	if !ok {
		return "", nil, streamable.ErrEventGone
	}
	key := s.key(session, stream)
	if _, err := s.read(ctx, key, after); err != nil {
		return "", nil, err
	}
	return stream, joinEvents(stream, func(yield func(Entry, error) bool) {
		for e, err := range s.log.Follow(ctx, key, after) {
			if errors.Is(err, ErrGone) {
				err = streamable.ErrEventGone
			}
			if !yield(e, err) {
				return
			}
		}
	}), nil
}

// read reads entries of a stream.
func (s *eventStore) read(ctx context.Context, key LogKey, after uint64) ([]Entry, error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	entries, err := s.log.Read(ctx, key, after, maxReadEntries)
	if errors.Is(err, ErrGone) {
		return nil, streamable.ErrEventGone
	}
	if err != nil {
		return nil, fmt.Errorf("read events: %w", callError(ctx, err))
	}
	return entries, nil
}

// joinEvents makes events of entries. The entries begin after the end of an event. An event whose
// last part is missing was not appended completely, and is omitted.
func joinEvents(stream string, entries iter.Seq2[Entry, error]) iter.Seq2[streamable.StoredEvent, error] {
	return func(yield func(streamable.StoredEvent, error) bool) {
		var data []byte
		for e, err := range entries {
			var part []byte
			if err == nil {
				part, err = payload(e.Data)
			}
			if err == nil && (len(part) == 0 || len(data)+len(part) > maxEvent+coordination.MaxValue) {
				err = errors.New("cluster: invalid event")
			}
			if err != nil {
				yield(streamable.StoredEvent{}, err)
				return
			}
			if part[0]&eventContinues == 0 {
				data = nil
			}
			data = append(data, part[1:]...)
			if part[0]&eventMore != 0 {
				continue
			}
			if !yield(streamable.StoredEvent{ID: eventID(stream, e.Seq), Data: data}, nil) {
				return
			}
			data = nil
		}
	}
}

func (s *eventStore) Drop(ctx context.Context, session string) error {
	ctx, cancel := bound(ctx)
	defer cancel()
	if err := s.log.Drop(ctx, s.n.key("session", session)); err != nil {
		return fmt.Errorf("drop events: %w", callError(ctx, err))
	}
	return nil
}
