package streamable

import (
	"sync"
	"time"
)

// A warmer calls a response again and again, for as long as that has not ended. Hardly any response lasts until the first time, and to start and stop a timer for
// each costs more than all else that is done for it: the timer of a warmer runs on, and looks when it comes whether it came too early or for nothing. It is
// used by one response after another.
type warmer struct {
	every time.Duration
	clock clock // that since is of

	mu    sync.Mutex
	timer *time.Timer
	armed bool          // the timer runs, or what it calls does
	calls bool          // a response is being called
	of    *response     // that is to be called; nil if none is
	since time.Duration // when that began, or was called
}

// start has p called, which began at that time.
func (w *warmer) start(p *response, began time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of, w.since = p, began
	switch {
	case w.armed:
		return
	case w.timer == nil:
		w.timer = time.AfterFunc(w.every, w.fire)
	default:
		w.timer.Reset(w.every)
	}
	w.armed = true
}

// stop has the response not called any more. It reports false if it may be called just now: it must not be used by another request then.
func (w *warmer) stop() (quiet bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of = nil
	return !w.calls
}

// fire is called by the timer.
func (w *warmer) fire() {
	p := w.due()
	if p == nil {
		return
	}
	again := p.tick()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = false
	if w.armed = again && w.of == p; w.armed {
		w.since = w.clock.since()
		w.timer.Reset(w.every)
	}
}

// due returns the response that is to be called now; nil if there is none.
func (w *warmer) due() *response {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of == nil {
		w.armed = false
		return nil
	}
	if early := w.every - (w.clock.since() - w.since); early > 0 {
		w.timer.Reset(early)
		return nil
	}
	w.calls = true
	return w.of
}
