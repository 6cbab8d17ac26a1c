package mcptest_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A fakeTB is a testing.TB that records failures.
type fakeTB struct {
	testing.TB // of the real test

	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func (t *fakeTB) Helper()                  {}
func (t *fakeTB) Logf(string, ...any)      {}
func (t *fakeTB) Context() context.Context { return context.Background() }

func (t *fakeTB) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

func (t *fakeTB) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.failures) > 0
}

func (t *fakeTB) Error(args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
}

func (t *fakeTB) Errorf(format string, args ...any) { t.Error(fmt.Sprintf(format, args...)) }

func (t *fakeTB) Fatal(args ...any) {
	t.Error(args...)
	runtime.Goexit()
}

func (t *fakeTB) Fatalf(format string, args ...any) { t.Fatal(fmt.Sprintf(format, args...)) }

// failures runs a test and its cleanup functions, and returns its failures.
func failures(t testing.TB, test func(t testing.TB)) []string {
	t.Helper()
	fake := &fakeTB{TB: t}
	run := func(f func()) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			f()
		}()
		<-done
	}
	run(func() { test(fake) })
	for _, f := range slices.Backward(fake.cleanups) {
		run(f)
	}
	return fake.failures
}
