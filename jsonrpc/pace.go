package jsonrpc

import (
	"sync/atomic"
	"time"
)

// A Pace learns how long one kind of request takes, a tool for example, so that quick ones are answered on the goroutine that reads (a hop to
// another costs several times what they do) and slow ones never hold it up. The zero Pace knows nothing: its first requests run on goroutines
// of their own. It may be used by many goroutines at once.
type Pace struct {
	mean      atomic.Int64  // nanoseconds, exponentially weighted
	probation atomic.Int64  // observations still wanted before the reader runs it
	overruns  atomic.Int32  // how often a watchdog had to take over from it
	runs      atomic.Uint32 // on the reader, to take the time of some of them
}

const (
	quick        = 30 * time.Microsecond // above this, a goroutine costs less than the wait of those behind
	trialRuns    = 4
	bytesPerNano = 2  // what is decoded and encoded, at the least
	sampleMask   = 15 // the reader takes the time of one run in 16
)

// Presume makes a Pace that is not in use yet take for granted that a run takes d, until it learns better.
func (p *Pace) Presume(d time.Duration) { p.mean.Store(max(int64(d), 1)) }

// fast reports whether the reader may run it.
func (p *Pace) fast() bool {
	mean := p.mean.Load()
	return mean > 0 && mean <= int64(quick) && p.probation.Load() <= 0
}

// sample reports whether this run on the reader should be timed.
func (p *Pace) sample() bool { return p.runs.Add(1)&sampleMask == 0 }

// observe takes note of a run of d for a message of size bytes. The part of it that any handler of so large a message takes does not count: the
// reader spends as long again on reading it.
func (p *Pace) observe(d time.Duration, size int) {
	n := max(int64(d)-int64(size)/bytesPerNano, 1)
	switch mean := p.mean.Load(); {
	case mean == 0:
		p.probation.Store(trialRuns - 1)
		p.mean.Store(n)
		return
	default:
		p.mean.Store(mean + (n-mean)/4)
	}
	if n <= int64(quick) {
		p.probation.Add(-1)
	}
}

// overran is called when the reader was stuck in it. Once may be the machine's fault; after that it must prove itself for longer each time.
func (p *Pace) overran() {
	n := p.overruns.Add(1)
	if n > 1 {
		p.probation.Store(16 << min(n, 12))
	}
}
