package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"mcpwire/streamable"
)

const (
	defaultSessionAge = 25 * time.Hour
	maxSessionBytes   = 256 << 20
)

// sessionStore is a streamable.SessionViewer.
type sessionStore struct {
	n       *Node
	records *records
	maxAge  time.Duration
	view    *sessionView
}

var _ streamable.SessionViewer = (*sessionStore)(nil)

// sessionRecord is the record of a session.
type sessionRecord struct {
	Key     string                  `json:"key"`
	Written time.Time               `json:"written"`
	Session streamable.SavedSession `json:"session"`
}

// SessionStore returns a store of legacy sessions that all nodes share. It keeps a session for
// maxAge after it was last changed, and one without Expires also after it was last loaded. Zero
// means 25 h, an hour more than the default of streamable.Timeouts.Lifetime. All nodes must use the
// same.
//
// Each node has a view of all records. A record that ends a session, or changes what its client has
// set, is in the views of all nodes when Update returns, except of those that do not respond within
// half a second: they are suspended, or cut off from this one. A node that is cut off from the
// backend notices that within three seconds, and uses its view for 30 seconds more.
func (n *Node) SessionStore(ctx context.Context, maxAge time.Duration) (streamable.SessionViewer, error) {
	if maxAge <= 0 {
		maxAge = defaultSessionAge
	}
	r, err := n.records(ctx, "sessions", RecordsOptions{TTL: maxAge, MaxBytes: maxSessionBytes})
	if err != nil {
		return nil, err
	}
	v, err := n.sessionView(ctx, r, maxAge)
	if err != nil {
		return nil, err
	}
	return &sessionStore{n, r, maxAge, v}, nil
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

// Update implements [streamable.SessionStore].
func (s *sessionStore) Update(ctx context.Context, key string, change func(*streamable.SavedSession)) error {
	announced := false
	value, rev, err := s.records.update(ctx, s.key(key), func(old []byte) ([]byte, error) {
		rec := sessionRecord{Key: key}
		if old != nil {
			if err := decode(old, &rec); err != nil {
				return nil, err
			}
			if !rec.isValid() {
				rec.Session = streamable.SavedSession{}
			}
		}
		before := rec.Session
		before.Subscriptions = slices.Clone(before.Subscriptions)
		change(&rec.Session)
		announced = mustHold(&before, &rec.Session)
		rec.Written = time.Now()
		if d := rec.Session.Expires.Sub(rec.Written); d > s.maxAge {
			return nil, fmt.Errorf("cluster: a session expires after %v, and the store keeps sessions for %v", d.Round(time.Second), s.maxAge)
		}
		return encode(&rec)
	})
	if err != nil {
		return err
	}
	if err := s.view.put(s.key(key), value, rev); err != nil {
		return err
	}
	if announced {
		s.view.announce(ctx, s.key(key), value, rev)
	}
	return nil
}

// View implements [streamable.SessionViewer].
func (s *sessionStore) View(key string) (saved *streamable.SavedSession, ok bool) {
	rec, ok := s.view.get(s.key(key))
	if rec == nil {
		return nil, ok
	}
	return &rec.Session, true
}

// Load implements [streamable.SessionStore].
func (s *sessionStore) Load(ctx context.Context, key string) (*streamable.SavedSession, error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	stored, err := s.records.Get(ctx, s.key(key))
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
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
		}
	}
	return &rec.Session, nil
}

// Watch implements [streamable.SessionWatcher].
func (s *sessionStore) Watch(ctx context.Context, ready func(), changed func(key string, saved *streamable.SavedSession)) error {
	return s.view.follow(ctx, ready, changed)
}
