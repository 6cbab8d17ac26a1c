package client

import (
	"testing"
	"testing/synctest"
	"time"
)

// waitFor waits as a call does, and returns how long it took. A response comes after answer; zero
// means never.
func (t *callTimer) waitFor(limit, answer time.Duration) (took time.Duration, expired bool) {
	began := now()
	if limit == 0 {
		t.startWithoutLimit()
	} else {
		t.start(began, limit)
	}
	var answered <-chan time.Time
	if answer > 0 {
		answered = time.After(answer)
	}
	for {
		select {
		case <-answered:
			return now().sub(began), false
		case <-t.C():
			if t.expired() {
				return now().sub(began), true
			}
		}
	}
}

func TestCallTimer(t *testing.T) {
	type wait struct {
		limit, answer time.Duration
		expires       bool
	}
	tests := []struct {
		name  string
		waits []wait
	}{
		{"expires", []wait{{time.Second, 0, true}}},
		{"gets a response", []wait{{time.Second, time.Millisecond, false}}},
		{"longer than the running timer", []wait{{3*maxArmed + 1, 0, true}}},
		{"expires twice", []wait{{time.Second, 0, true}, {time.Second, 0, true}}},
		{"fires for an earlier wait", []wait{{time.Second, 999 * time.Millisecond, false}, {time.Second, 0, true}}},
		{"has fired between waits", []wait{{time.Second, time.Millisecond, false}, {0, 2 * time.Second, false}, {time.Second, 0, true}}},
		{"shorter than the wait before", []wait{{time.Minute, time.Millisecond, false}, {time.Second, 0, true}}},
		{"longer than the wait before", []wait{{time.Second, time.Millisecond, false}, {time.Minute, 0, true}}},
		{"no limit after a limit", []wait{{time.Second, time.Millisecond, false}, {0, time.Hour, false}}},
		{"a limit after no limit", []wait{{0, time.Hour, false}, {time.Nanosecond, 0, true}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var timer callTimer
				for i, w := range tt.waits {
					want := w.answer
					if w.expires {
						want = w.limit
					}
					got, expired := timer.waitFor(w.limit, w.answer)
					if got != want || expired != w.expires {
						t.Errorf("wait %d took %v, expired %v; want %v, %v", i, got, expired, want, w.expires)
					}
				}
			})
		})
	}
}

func TestCallTimerResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var timer callTimer
		timer.start(now(), time.Second)
		for range 10 { // the limits of these waits are after the first one's
			time.Sleep(time.Millisecond)
			timer.start(now(), time.Second)
		}
		if got, want := timer.armed.sub(now()), 990*time.Millisecond; got != want {
			t.Errorf("the timer fires in %v, want %v: it was reset for each wait", got, want)
		}
		if got, want := timer.left(now()), time.Second; got != want {
			t.Errorf("%v is left of the wait, want %v", got, want)
		}
	})
}
