//go:build linux

package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxKept limits the texts that a ledger keeps.
	maxKept = 20
	// maxErrors limits the errors of a kind that it keeps.
	maxErrors = 3
)

// A ledger records what clients have seen.
type ledger struct {
	mu     sync.Mutex
	kinds  map[string]*kind
	errors []string
	// violations are what must never happen.
	violations []string
	violated   int
}

// A kind is what is known of the calls of one kind.
type kind struct {
	succeeded, failed int
	times             []time.Duration
	// last is the last error.
	last string
}

func newLedger() *ledger { return &ledger{kinds: make(map[string]*kind)} }

// done records the end of a call.
func (l *ledger) done(what string, began time.Time, err error) { l.took(what, time.Since(began), err) }

// took records a call that has taken d.
func (l *ledger) took(what string, d time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kinds[what]
	if k == nil {
		k = new(kind)
		l.kinds[what] = k
	}
	if err != nil {
		k.failed++
		k.last = fmt.Sprintf("%s %s after %v: %v", time.Now().Format("05.000"), what, d.Round(time.Millisecond), err)
		if k.failed <= maxErrors {
			l.errors = append(l.errors, k.last)
		}
		return
	}
	k.succeeded++
	k.times = append(k.times, d)
}

// violation records what must never happen.
func (l *ledger) violation(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.violated++; l.violated <= maxKept {
		l.violations = append(l.violations, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

// counts returns the calls that succeeded and failed.
func (l *ledger) counts() (succeeded, failed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.kinds {
		succeeded, failed = succeeded+k.succeeded, failed+k.failed
	}
	return succeeded, failed
}

// failed returns the failures of the calls of one kind.
func (l *ledger) failed(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.kinds[what]; k != nil {
		return k.failed
	}
	return 0
}

// times returns the times of the calls of one kind that succeeded.
func (l *ledger) times(what string) times {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.kinds[what]; k != nil {
		return slices.Clone(k.times)
	}
	return nil
}

// String returns a line for each kind of call, and the first errors and the last one of each.
func (l *ledger) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(l.kinds)) {
		k := l.kinds[what]
		t := times(slices.Clone(k.times))
		fmt.Fprintf(&b, "    %-30s %6d succeeded, %4d failed, p50 %v, p99 %v, most %v\n", what, k.succeeded, k.failed, t.percentile(50), t.percentile(99), t.percentile(100))
	}
	for _, e := range l.errors {
		fmt.Fprintf(&b, "    error: %s\n", e)
	}
	for _, what := range slices.Sorted(maps.Keys(l.kinds)) {
		if k := l.kinds[what]; k.failed > maxErrors {
			fmt.Fprintf(&b, "    last error: %s\n", k.last)
		}
	}
	return b.String()
}

// times are durations of one kind.
type times []time.Duration

// percentile returns the duration that p percent do not exceed, 0 if there is none. It sorts t.
func (t times) percentile(p int) time.Duration {
	if len(t) == 0 {
		return 0
	}
	slices.Sort(t)
	d := t[min(len(t)*p/100, len(t)-1)]
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

// loadAverage returns that of the last minute.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	load, _, _ := strings.Cut(string(text), " ")
	return load
}
