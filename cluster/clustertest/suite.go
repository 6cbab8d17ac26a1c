package clustertest

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"mcpwire/cluster"
)

// waitTimeout limits the waits of a test.
const waitTimeout = 30 * time.Second

// Run tests a backend. open returns the backend as two nodes see it, through connections of their
// own if it has connections, and is called once. It may be a backend in use: the tests use names
// that begin with "suite-", and random keys. A backend of one process may return the same twice.
func Run(t *testing.T, open func(t *testing.T) (a, b cluster.Backend)) {
	a, b := open(t)
	for _, test := range []struct {
		name string
		run  func(s *suite)
	}{
		{"Revisions", testRevisions},
		{"Absent", testAbsent},
		{"Ownership", testOwnership},
		{"Concurrency", testConcurrency},
		{"Full", testFull},
		{"Watch", testWatch},
		{"WatchSlowly", testWatchSlowly},
		{"Log", testLog},
		{"LogIDs", testLogIDs},
		{"LogEviction", testLogEviction},
		{"Follow", testFollow},
		{"FollowSlowly", testFollowSlowly},
		{"Bus", testBus},
		{"Request", testRequest},
		{"Overload", testOverload},
		{"Invalid", testInvalid},
		{"Canceled", testCanceled},
	} {
		t.Run(test.name, func(t *testing.T) { run(t, a, b, test.run) })
	}
	t.Run("Time", func(t *testing.T) {
		for _, test := range []struct {
			name string
			run  func(s *suite)
		}{
			{"TTL", testTTL},
			{"MaxAge", testMaxAge},
		} {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				run(t, a, b, test.run)
			})
		}
	})
}

// A suite has the resources of one test.
type suite struct {
	*testing.T
	ctx context.Context
	// a and b are the backend as two nodes see it.
	a, b cluster.Backend
}

func run(t *testing.T, a, b cluster.Backend, test func(s *suite)) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*waitTimeout)
	defer cancel()
	test(&suite{t, ctx, a, b})
}

// key returns a new key.
func (s *suite) key() string { return "k." + rand.Text() }

func (s *suite) wantError(what string, err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

// eventually waits until check returns "", and fails with its last result after a while.
func (s *suite) eventually(check func() string) {
	s.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(waitTimeout)
	for {
		problem := check()
		if problem == "" {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline:
			s.Fatal(problem)
		}
	}
}

func testInvalid(s *suite) {
	r, _ := s.plain()
	l, _ := s.log()
	for _, name := range []string{"", "A", "a.b", "a b", "a*", strings.Repeat("a", 65)} {
		if _, err := s.a.Records(s.ctx, name, cluster.RecordsOptions{}); err == nil {
			s.Errorf("a bucket with the name %q", name)
		}
		if _, err := s.a.Log(s.ctx, name, cluster.LogOptions{}); err == nil {
			s.Errorf("a log with the name %q", name)
		}
	}
	nothing := func(context.Context, []byte) []byte { return nil }
	for _, key := range []string{"", ".", "a.", ".a", "a..b", "a b", "*", "a.>", "a/b", "é", strings.Repeat("a", 201)} {
		_, get := r.Get(s.ctx, key)
		_, put := r.Put(s.ctx, key, nil, 0)
		_, group := l.Append(s.ctx, cluster.LogKey{Group: key, Name: "a"}, "", nil)
		_, name := l.Append(s.ctx, cluster.LogKey{Group: "a", Name: key}, "", nil)
		_, read := l.Read(s.ctx, cluster.LogKey{Group: key, Name: "a"}, 0, 1)
		_, subscribe := s.a.Bus().Subscribe(s.ctx, key, func([]byte) {})
		_, request := s.a.Bus().Request(s.ctx, key, "a", nil)
		_, topic := s.a.Bus().Request(s.ctx, "a", key, nil)
		_, handle := s.a.Bus().Handle(s.ctx, key, "a", nothing)
		for what, err := range map[string]error{
			"get": get, "put": put, "delete": r.Delete(s.ctx, key, 1), "append, group": group, "append, name": name, "read": read,
			"drop": l.Drop(s.ctx, key), "publish": s.a.Bus().Publish(s.ctx, key, nil), "subscribe": subscribe,
			"request, node": request, "request, topic": topic, "handle": handle,
		} {
			if err == nil || errors.Is(err, cluster.ErrConflict) || errors.Is(err, cluster.ErrNotFound) || errors.Is(err, cluster.ErrNoNode) {
				s.Errorf("%s with the key %.20q: %v", what, key, err)
			}
		}
	}
	if _, err := l.Append(s.ctx, cluster.LogKey{Group: "a", Name: "b.c"}, "", nil); err == nil {
		s.Error("the name of a sequence has a dot")
	}
}

// testCanceled checks that no call outlives its context.
func testCanceled(s *suite) {
	r, _ := s.plain()
	l, _ := s.log()
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	_, get := r.Get(ctx, "a")
	_, put := r.Put(ctx, "a", nil, 0)
	_, appended := l.Append(ctx, cluster.LogKey{Group: "a", Name: "b"}, "", nil)
	_, read := l.Read(ctx, cluster.LogKey{Group: "a", Name: "b"}, 0, 1)
	_, request := s.a.Bus().Request(ctx, "a", "b", nil)
	for what, err := range map[string]error{
		"get": get, "put": put, "delete": r.Delete(ctx, "a", 1), "append": appended, "read": read,
		"drop": l.Drop(ctx, "a"), "publish": s.a.Bus().Publish(ctx, "a", nil), "request": request,
	} {
		s.wantError(what, err, context.Canceled)
	}
	for _, err := range l.Follow(ctx, cluster.LogKey{Group: "a", Name: "b"}, 0) {
		s.wantError("follow", err, context.Canceled)
		break
	}
}
