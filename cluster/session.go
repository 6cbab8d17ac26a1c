package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"mcpwire/internal/base/defaults"
	"mcpwire/streamable"
)

const (
	defaultSessionAge = 25 * time.Hour
	maxSessionBytes   = 256 << 20
)

// sessionStore is a streamable.SessionViewer. While the record of a session is there, it is the one
// that counts. What a client must not lose is also in a durable copy, from which the next change
// begins if the record is gone because all machines of the backend have stopped.
type sessionStore struct {
	n             *Node
	records, kept *records
	maxAge        time.Duration
	views         *sessionViews
}

var _ streamable.SessionViewer = (*sessionStore)(nil)

// sessionRecord is the record of a session.
type sessionRecord struct {
	Key     string    `json:"key"`
	Written time.Time `json:"written"`
	// Write differs in each write, so that update never takes the same change by another node for
	// its own.
	Write   string                  `json:"write,omitempty"`
	Session streamable.SavedSession `json:"session"`
}

// SessionStore returns a store of legacy sessions that all nodes share. It keeps a session for
// maxAge after it was last changed, and one without Expires also after it was last loaded. Zero
// means 25 h, an hour more than the default of streamable.Timeouts.Lifetime. All nodes must use the
// same maxAge.
//
// The end of a session, its log level and its subscriptions are durable, as in [RecordsOptions].
//
// Each node has a view of all records. When Update returns, a record that ends a session, or
// changes what its client has set, is in the views of all nodes that respond within half a second.
// The others are suspended, or cut off from this one. A node that is cut off from the backend
// notices that within three seconds, and uses its view for another 30 seconds.
func (n *Node) SessionStore(ctx context.Context, maxAge time.Duration) (streamable.SessionViewer, error) {
	defaults.IfNotPositive(&maxAge, defaultSessionAge)
	r, err := n.records(ctx, "sessions", RecordsOptions{TTL: maxAge, MaxBytes: maxSessionBytes})
	if err != nil {
		return nil, err
	}
	kept, err := n.records(ctx, "sessions-kept", RecordsOptions{TTL: maxAge, MaxBytes: maxSessionBytes, Durable: true})
	if err != nil {
		return nil, err
	}
	v, err := n.sessionViews(ctx, r, kept, maxAge)
	if err != nil {
		return nil, err
	}
	return &sessionStore{n, r, kept, maxAge, v}, nil
}

func (s *sessionStore) key(key string) string { return s.n.key("session", key) }

// isValid reports whether a record has not expired.
func (r *sessionRecord) isValid() bool {
	return r.Session.Expires.IsZero() || time.Now().Before(r.Session.Expires)
}

// expires returns the time at which the record expires, unless it is loaded.
func (r *sessionRecord) expires(maxAge time.Duration) time.Time {
	if r.Session.Expires.IsZero() {
		return r.Written.Add(maxAge)
	}
	return r.Session.Expires
}

// mustHold reports whether all nodes must know a change of a session at once.
func mustHold(before, after *streamable.SavedSession) bool {
	return after.Ended || before.LogLevel != after.LogLevel || !slices.Equal(before.Subscriptions, after.Subscriptions)
}

// mustKeep reports whether a change of a session must survive the loss of the record.
func mustKeep(before, after *streamable.SavedSession) bool {
	isNew := len(before.Initialize) == 0 && len(after.Initialize) > 0
	// If the client listens, it later gets notifications of changes that it may have missed.
	listens := before.Listener == "" && after.Listener != "" && len(after.Subscriptions) > 0
	return isNew || listens || mustHold(before, after)
}

// Update implements [streamable.SessionStore]. It writes the durable copy first: if that fails,
// nothing has changed, and the client tries again.
func (s *sessionStore) Update(ctx context.Context, key string, change func(*streamable.SavedSession)) error {
	announced := false
	value, rev, err := s.records.update(ctx, s.key(key), func(old []byte) (value []byte, err error) {
		rec := sessionRecord{Key: key}
		if old == nil {
			old, err = s.readKept(ctx, key)
		}
		if err == nil && old != nil {
			err = decode(old, &rec)
		}
		if err != nil {
			return nil, err
		}
		if !rec.isValid() {
			rec.Session = streamable.SavedSession{}
		}
		before := rec.Session
		before.Subscriptions = slices.Clone(before.Subscriptions)
		change(&rec.Session)
		announced = mustHold(&before, &rec.Session)
		rec.Written, rec.Write = time.Now(), rand.Text()[:13]
		if d := rec.Session.Expires.Sub(rec.Written); d > s.maxAge {
			return nil, fmt.Errorf("cluster: a session expires after %v, and the store keeps sessions for %v", d.Round(time.Second), s.maxAge)
		}
		value, err = encode(&rec)
		if err == nil && mustKeep(&before, &rec.Session) {
			err = s.keep(ctx, &rec, value)
		}
		return value, err
	})
	if err != nil {
		return err
	}
	if err := s.views.live.put(s.key(key), value, rev); err != nil {
		return err
	}
	if announced {
		s.views.live.announce(ctx, s.key(key), value, rev)
	}
	return nil
}

// readKept returns the durable copy of a record, or nil if there is none.
func (s *sessionStore) readKept(ctx context.Context, key string) ([]byte, error) {
	if value, ok := s.views.kept.value(s.key(key)); ok {
		return value, nil
	}
	stored, err := s.kept.Get(ctx, s.key(key))
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return stored.Value, err
}

// keep stores the durable copy of a record, unless there is one of a later change.
func (s *sessionStore) keep(ctx context.Context, rec *sessionRecord, value []byte) error {
	_, _, err := s.kept.update(ctx, s.key(rec.Key), func(old []byte) ([]byte, error) {
		var had sessionRecord
		if old != nil && decode(old, &had) == nil && had.isValid() && had.Session.Version > rec.Session.Version {
			return nil, errNoChange
		}
		return value, nil
	})
	if err == errNoChange {
		return nil
	}
	return err
}

func (s *sessionStore) View(key string) (saved *streamable.SavedSession, ok bool) {
	rec, ok := s.views.get(s.key(key))
	if rec == nil {
		return nil, ok
	}
	return &rec.Session, true
}

func (s *sessionStore) Load(ctx context.Context, key string) (*streamable.SavedSession, error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	stored, err := s.records.Get(ctx, s.key(key))
	if errors.Is(err, ErrNotFound) {
		stored.Value, err = s.readKept(ctx, key)
	}
	if err != nil || stored.Value == nil {
		return nil, err
	}
	var rec sessionRecord
	if err := decode(stored.Value, &rec); err != nil {
		return nil, err
	}
	if !rec.isValid() {
		return nil, nil
	}
	if rec.Session.Expires.IsZero() && time.Since(rec.Written) > s.maxAge/8 {
		// Writing it again begins a new maxAge. If that fails, the next Load tries again.
		rec.Written = time.Now()
		if value, err := encode(&rec); err == nil {
			_, _ = s.records.Put(ctx, s.key(key), value, stored.Rev)
			_ = s.keep(ctx, &rec, value)
		}
	}
	return &rec.Session, nil
}

func (s *sessionStore) Watch(ctx context.Context, ready func(), changed func(key string, saved *streamable.SavedSession)) error {
	return s.views.follow(ctx, ready, changed)
}
