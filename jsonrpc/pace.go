package jsonrpc

import (
	"sync/atomic"
	"time"
)

// A CostEstimate learns how long one kind of request takes, a tool for example, so that quick ones are answered on the goroutine that reads (a hop to
// another costs several times what they do) and slow ones never hold it up. The zero CostEstimate knows nothing: its first requests run on goroutines
// of their own. It may be used by many goroutines at once.
type CostEstimate struct {
	mean      atomic.Int64  // nanoseconds, exponentially weighted
	probation atomic.Int64  // observations still wanted before the reader runs it
	overruns  atomic.Int32  // how often a watchdog had to take over from it
	runs      atomic.Uint32 // on the reader, to take the time of some of them
}

const (
	maxInlineCost = 30 * time.Microsecond // above this, a goroutine costs less than the wait of those behind
	trialRuns     = 4
	bytesPerNano  = 2  // what is decoded and encoded, at the least
	sampleMask    = 15 // the reader takes the time of one run in 16
)

// Seed makes a CostEstimate that is not in use yet take for granted that a run takes d, until it learns better.
func (e *CostEstimate) Seed(d time.Duration) { e.mean.Store(max(int64(d), 1)) }

// fast reports whether the reader may run it.
func (e *CostEstimate) fast() bool {
	mean := e.mean.Load()
	return mean > 0 && mean <= int64(maxInlineCost) && e.probation.Load() <= 0
}

// sample reports whether this run on the reader should be timed.
func (e *CostEstimate) sample() bool { return e.runs.Add(1)&sampleMask == 0 }

// observe takes note of a run of d for a message of size bytes. The part of it that any handler of so large a message takes does not count: the
// reader spends as long again on reading it.
func (e *CostEstimate) observe(d time.Duration, size int) {
	n := max(int64(d)-int64(size)/bytesPerNano, 1)
	switch mean := e.mean.Load(); {
	case mean == 0:
		e.probation.Store(trialRuns - 1)
		e.mean.Store(n)
		return
	default:
		e.mean.Store(mean + (n-mean)/4)
	}
	if n <= int64(maxInlineCost) {
		e.probation.Add(-1)
	}
}

// recordOverrun is called when the reader was stuck in it. Once may be the machine's fault; after that it must prove itself for longer each time.
func (e *CostEstimate) recordOverrun() {
	n := e.overruns.Add(1)
	if n > 1 {
		e.probation.Store(16 << min(n, 12))
	}
}
