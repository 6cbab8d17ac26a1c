//go:build unix

package stdio

import (
	"sync"
	"sync/atomic"
)

// A gate keeps descriptors from being closed under a system call that uses them. os.File has a lock for that which also queues readers; the
// hot path gets by with two atomic additions.
//
// Invariant: release runs once, after shut, when nobody is inside.
type gate struct {
	state   atomic.Int64 // gateStopped, gateShut, and gateUser for each user inside
	release func()
	once    sync.Once
}

const (
	gateStopped = 1 << iota // no more users
	gateShut                // and release when the last one leaves
	gateUser
)

// enter lets a user in, unless the gate is stopped. Each enter that returned true needs a leave.
func (g *gate) enter() bool {
	if g.state.Add(gateUser)&gateStopped != 0 {
		g.leave()
		return false
	}
	return true
}

// leave lets a user out.
func (g *gate) leave() { g.maybeRelease(g.state.Add(-gateUser)) }

// stop keeps new users out. If some are inside still, it has wake called, once in the gate's life, before anything is released.
func (g *gate) stop(wake func()) {
	g.state.Add(gateUser) // so that nothing is released under wake
	if before := g.state.Or(gateStopped); before&gateStopped == 0 && before/gateUser > 1 {
		wake()
	}
	g.leave()
}

// stopped reports whether stop or shut was called.
func (g *gate) stopped() bool { return g.state.Load()&gateStopped != 0 }

// shut keeps new users out and has release called when nobody is inside.
func (g *gate) shut() {
	const bits = gateStopped | gateShut
	g.maybeRelease(g.state.Or(bits) | bits)
}

func (g *gate) maybeRelease(state int64) {
	if state&gateShut != 0 && state/gateUser == 0 {
		g.once.Do(g.release)
	}
}
