package translate

import (
	"container/heap"
	"time"
)

// A timer is something to do later. The driver's clock makes it happen.
type timer struct {
	at    time.Time
	do    func()
	index int // in the heap; -1 when it is over
}

// timers are what there is to do later, the next of it first.
type timers []*timer

// Len implements [heap.Interface].
func (t timers) Len() int { return len(t) }

// Less implements [heap.Interface].
func (t timers) Less(i, j int) bool { return t[i].at.Before(t[j].at) }

// Swap implements [heap.Interface].
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}

// Push implements [heap.Interface].
func (t *timers) Push(x any) {
	x.(*timer).index = len(*t)
	*t = append(*t, x.(*timer))
}

// Pop implements [heap.Interface].
func (t *timers) Pop() any {
	old := *t
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	last.index = -1
	return last
}

// add has something done at a time.
func (t *timers) add(at time.Time, do func()) *timer {
	x := &timer{at: at, do: do}
	heap.Push(t, x)
	return x
}

// stop calls a timer off. It may be nil, or over.
func (t *timers) stop(x *timer) {
	if x != nil && x.index >= 0 {
		heap.Remove(t, x.index)
	}
}

// run does what is due.
func (t *timers) run(now time.Time) {
	for len(*t) > 0 && !(*t)[0].at.After(now) {
		heap.Pop(t).(*timer).do()
	}
}
