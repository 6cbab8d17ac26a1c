package streamable

import (
	"sync"
	"time"
)

// A warmer calls a response again and again, for as long as that has not ended. Hardly any response lasts until the first time, and to start and stop a timer for
// each costs more than all else that is done for it: the timer of a warmer runs on, and looks when it comes whether it came too early or for nothing. It is
// used by one response after another.
type keepAliveTimer struct {
	interval time.Duration
	clock    clock // that since is of

	mu       sync.Mutex
	timer    *time.Timer
	armed    bool          // the timer runs, or what it calls does
	ticking  bool          // a response is being called
	response *response     // that is to be called; nil if none is
	since    time.Duration // when that began, or was called
}

// start has p called, which began at that time.
func (k *keepAliveTimer) start(rs *response, began time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.response, k.since = rs, began
	switch {
	case k.armed:
		return
	case k.timer == nil:
		k.timer = time.AfterFunc(k.interval, k.fire)
	default:
		k.timer.Reset(k.interval)
	}
	k.armed = true
}

// stop has the response not called any more. It reports false if it may be called just now: it must not be used by another request then.
func (k *keepAliveTimer) stop() (quiet bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.response = nil
	return !k.ticking
}

// fire is called by the timer.
func (k *keepAliveTimer) fire() {
	rs := k.next()
	if rs == nil {
		return
	}
	again := rs.tick()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ticking = false
	if k.armed = again && k.response == rs; k.armed {
		k.since = k.clock.elapsed()
		k.timer.Reset(k.interval)
	}
}

// next returns the response that is to be called now; nil if there is none.
func (k *keepAliveTimer) next() *response {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.response == nil {
		k.armed = false
		return nil
	}
	if early := k.interval - (k.clock.elapsed() - k.since); early > 0 {
		k.timer.Reset(early)
		return nil
	}
	k.ticking = true
	return k.response
}
