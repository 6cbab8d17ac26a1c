package client

import "time"

// An instant is a time on the monotonic clock. The zero instant means none. To get one costs half
// of what time.Now costs, which also reads the wall clock.
type instant time.Duration

var clockStart = time.Now()

func now() instant { return instant(time.Since(clockStart)) }

func (i instant) add(d time.Duration) instant { return i + instant(d) }

// sub returns the time from j to i.
func (i instant) sub(j instant) time.Duration { return time.Duration(i - j) }

// A callTimer limits the waits of a call, and then of the next call that uses the same activeCall.
// Nearly all waits end long before their limit. So the timer is left armed after a wait, and armed
// again only if it would fire too late or has fired: to start and stop a timer for each wait takes
// 3 to 5 percent of the CPU time of a small call (BenchmarkCall).
type callTimer struct {
	// end is when the current wait ends. Zero means no limit.
	end instant
	// armed is when timer fires or has fired.
	armed instant
	// timer sends to fired. Nil means that no wait had a limit yet.
	timer *time.Timer
	// fired receives a value when timer fires, for this wait or for an earlier one. Its capacity is
	// one.
	fired chan struct{}
}

// maxArmed limits how long a timer that nobody waits for keeps its memory.
const maxArmed = time.Minute

// start begins a wait that ends after d.
func (t *callTimer) start(now instant, d time.Duration) {
	t.end = now.add(d)
	d = min(d, maxArmed)
	at := now.add(d)
	switch {
	case t.timer == nil:
		fired := make(chan struct{}, 1)
		t.fired = fired
		t.timer = time.AfterFunc(d, func() {
			select {
			case fired <- struct{}{}:
			default: // the value of an earlier wait is still there
			}
		})
	case t.armed > now && t.armed <= at:
		return // it fires early enough
	default:
		t.timer.Reset(d)
	}
	t.armed = at
}

// startWithoutLimit begins a wait that does not end.
func (t *callTimer) startWithoutLimit() { t.end = 0 }

// C returns the channel that says when to call expired, or nil if the wait has no limit. A nil
// callTimer has none.
func (t *callTimer) C() <-chan struct{} {
	if t == nil || t.end == 0 {
		return nil
	}
	return t.fired
}

// expired reports whether the wait has lasted to its end. If not, it arms the timer for the rest.
func (t *callTimer) expired() bool {
	now := now()
	if now >= t.end {
		return true
	}
	t.start(now, t.end.sub(now))
	return false
}

// left returns how much of the wait is left at a time before its end, at least a nanosecond. Zero
// means no limit.
func (t *callTimer) left(now instant) time.Duration {
	if t.end == 0 {
		return 0
	}
	return max(t.end.sub(now), 1)
}
