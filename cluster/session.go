package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mcpwire/streamable"
)

const (
	defaultSessionAge = 25 * time.Hour
	maxSessionBytes   = 256 << 20
)

// sessionStore is a streamable.SessionWatcher.
type sessionStore struct {
	n       *Node
	records *records
	maxAge  time.Duration
}

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
func (n *Node) SessionStore(ctx context.Context, maxAge time.Duration) (streamable.SessionWatcher, error) {
	if maxAge <= 0 {
		maxAge = defaultSessionAge
	}
	r, err := n.records(ctx, "sessions", RecordsOptions{TTL: maxAge, MaxBytes: maxSessionBytes})
	if err != nil {
		return nil, err
	}
	return &sessionStore{n, r, maxAge}, nil
}

func (s *sessionStore) key(key string) string { return s.n.key("session", key) }

// isValid reports whether a record has not expired.
func (r *sessionRecord) isValid() bool {
	return r.Session.Expires.IsZero() || time.Now().Before(r.Session.Expires)
}

// Update implements [streamable.SessionStore].
func (s *sessionStore) Update(ctx context.Context, key string, change func(*streamable.SavedSession)) error {
	_, _, err := s.records.update(ctx, s.key(key), func(old []byte) ([]byte, error) {
		rec := sessionRecord{Key: key}
		if old != nil {
			if err := decode(old, &rec); err != nil {
				return nil, err
			}
			if !rec.isValid() {
				rec.Session = streamable.SavedSession{}
			}
		}
		change(&rec.Session)
		rec.Written = time.Now()
		if d := rec.Session.Expires.Sub(rec.Written); d > s.maxAge {
			return nil, fmt.Errorf("cluster: a session expires after %v, and the store keeps sessions for %v", d.Round(time.Second), s.maxAge)
		}
		return encode(&rec)
	})
	return err
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.n.ctx, cancel)()
	synced := false
	for c, err := range s.records.Watch(ctx, s.n.tenant) {
		switch {
		case err != nil && s.n.ctx.Err() != nil:
			return ErrClosed
		case err != nil:
			return fmt.Errorf("watch sessions: %w", err)
		case c.Kind == ChangeSynced:
			synced = true
			ready()
		case c.Kind == ChangePut && synced:
			var rec sessionRecord
			if err := decode(c.Value, &rec); err != nil {
				return err
			}
			changed(rec.Key, &rec.Session)
		}
	}
	return fmt.Errorf("watch sessions: %w", ErrUnavailable)
}
