package server

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// callBy returns a call of a principal's.
func callBy(id string) *Call {
	return &Call{session: &session{}, sessionIdentity: &identity{principal: &Principal{ID: id}}}
}

// callersOf returns limits and a function that admits a request of a principal.
func callersOf(t *testing.T, o *Options) (l *limits, admit func(id string) *caller) {
	t.Helper()
	l = newLimits(o)
	return l, func(id string) *caller {
		t.Helper()
		k, err := l.admit(callBy(id))
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		return k
	}
}

func (l *limits) size(t *testing.T) int {
	t.Helper()
	if len(l.byID) != l.lru.Len() {
		t.Errorf("%d callers in the map, %d in the list", len(l.byID), l.lru.Len())
	}
	return len(l.byID)
}

// TestCallersAreForgotten: who would begin anew anyway is dropped; who has requests under way is not.
func TestCallersAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, admit := callersOf(t, &Options{RateLimit: RateLimit{PerSecond: 1, Burst: 10}, MaxConcurrent: 1})
		busy := admit("busy")
		for i := range 50 {
			l.release(admit(fmt.Sprint(i)))
		}
		if n := l.size(t); n != 51 {
			t.Errorf("%d callers, want 51", n)
		}
		<-time.After(10*time.Second - 1)
		l.release(admit("early"))
		if n := l.size(t); n != 52 {
			t.Errorf("%d callers, want 52", n)
		}
		<-time.After(1)
		for range 60 {
			l.release(admit("late"))
			<-time.After(time.Second)
		}
		if n := l.size(t); n != 2 {
			t.Errorf("%d callers, want 2", n)
		}
		if _, err := l.admit(callBy("busy")); err == nil {
			t.Error("the busy one was forgotten")
		}
		l.release(busy)
		l.release(admit("busy"))
	})
}

// TestCallersAreBounded: however many there are, those that were not there for longest make room, unless they have requests under way.
func TestCallersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, admit := callersOf(t, &Options{RateLimit: RateLimit{PerSecond: 0.001}})
		busy := admit("busy")
		for i := range 2 * maxCallers {
			l.release(admit(fmt.Sprint(i)))
			if n := l.size(t); n > maxCallers+1 {
				t.Fatalf("%d callers after %d", n, i)
			}
		}
		if _, err := l.admit(callBy("busy")); err == nil {
			t.Error("the busy one was forgotten")
		}
		if _, err := l.admit(callBy(fmt.Sprint(2*maxCallers - 1))); err == nil {
			t.Error("the last one was forgotten")
		}
		l.release(admit("0"))
		l.release(busy)
	})
}

// TestCallerKeepsItsPlace: who asks is not the one that makes room, though it was not there for longest.
func TestCallerKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, admit := callersOf(t, &Options{RateLimit: RateLimit{PerSecond: 0.001}})
		for i := range maxCallers {
			l.release(admit(fmt.Sprint(i)))
		}
		if _, err := l.admit(callBy("0")); err == nil {
			t.Error("the one that asked was forgotten")
		}
	})
}

// TestCallerIsNotForgottenWhileItRuns: with no limit on the rate, callers are forgotten at once, but not those with requests under way.
func TestCallerIsNotForgottenWhileItRuns(t *testing.T) {
	l, admit := callersOf(t, &Options{MaxConcurrent: 2})
	for _, id := range []string{"a", "b", "a", "b"} {
		defer l.release(admit(id))
	}
	for _, id := range []string{"a", "b", "b", "a"} {
		if _, err := l.admit(callBy(id)); err == nil {
			t.Errorf("%s was forgotten", id)
		}
	}
}
