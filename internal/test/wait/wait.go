// Package wait has tests wait for events that no channel or response announces.
package wait

import (
	"runtime"
	"testing"
	"time"
)

// Limit is how long tests wait for events that should happen at once. A busy machine may be slow.
const Limit = time.Minute

// pause is the time between two calls of a condition.
const pause = 2 * time.Millisecond

// Until calls a condition until it is true. It fails the test after Limit; what completes the
// sentence "timeout while waiting for".
func Until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(Limit); !condition(); <-time.After(pause) {
		if time.Now().After(end) {
			t.Fatalf("timeout while waiting for %s", what)
		}
	}
}

// Within fails the test, with the stacks of all goroutines, if f does not return within Limit.
func Within(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(Limit):
		buf := make([]byte, 1<<20)
		t.Fatalf("%s takes too long\n%s", what, buf[:runtime.Stack(buf, true)])
	}
}
