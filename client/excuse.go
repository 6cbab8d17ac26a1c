package client

import "time"

// handling notes that a handler of the user's runs for the server, until done is called.
func (l *link) handling() (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.handlers++; l.handlers == 1 {
		l.running = time.Now()
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.handlers--; l.handlers == 0 {
			l.busy += time.Since(l.running)
		}
	}
}

// handled returns how long the server has waited for handlers so far, all in all, and whether it does so now.
func (l *link) handled() (d time.Duration, now bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.handlers > 0 {
		return l.busy + time.Since(l.running), true
	}
	return l.busy, false
}

// An excuse is what a server has for being late with an answer: it has had no time while it waited for a handler.
type excuse struct {
	l    *link
	busy time.Duration // of the link, when the wait began or was last prolonged
}

func (l *link) excuse() excuse {
	busy, _ := l.handled()
	return excuse{l, busy}
}

// minExcuse is for how long at least a wait is prolonged while a handler runs, so as not to look too often.
const minExcuse = 100 * time.Millisecond

// more returns how much longer the server may take, after a wait that is over.
func (e *excuse) more() time.Duration {
	busy, now := e.l.handled()
	d := busy - e.busy
	e.busy = busy
	if now {
		d = max(d, minExcuse)
	}
	return d
}
