package watch

import (
	"testing"

	"mcpwire/capture"
)

// TestIndex shows that an index stays small, and finds a place at or shortly before each event.
func TestIndex(t *testing.T) {
	const events, size = 300_000, 1000 // bytes of an event
	var x index
	x.add(0, 0) // the head
	for n := uint64(1); n <= events; n++ {
		x.add(n, int64(n)*size)
	}
	if len(x.entries) > maxEntries {
		t.Errorf("%d entries", len(x.entries))
	}
	for _, n := range []uint64{1, 2, 1000, 123_456, events} {
		off := x.offsetBefore(n)
		if at := int64(n) * size; off > at || at-off > events*size/maxEntries*4 {
			t.Errorf("event %d at %d: look from %d on", n, at, off)
		}
	}
	x.add(7, (events+1)*size) // a duplicate number
	if off := x.offsetBefore(events); off != 0 {
		t.Errorf("numbers are not in order: look from %d on, want the beginning", off)
	}
}

// TestRing shows that the oldest events are evicted, and that an event larger than the ring is not
// kept.
func TestRing(t *testing.T) {
	r := newRing(10 * (eventCost + 100))
	put := func(n uint64, size int) { r.put(&capture.Event{N: n, Capture: "c", Data: make([]byte, size)}) }
	for n := range uint64(25) {
		put(n+1, 100)
		put(n+1, 100) // the second one replaces the first
	}
	put(26, 1<<20)
	for n, want := range map[uint64]bool{1: false, 15: false, 16: true, 25: true, 26: false} {
		if got := r.get("c", n) != nil; got != want {
			t.Errorf("event %d is kept: %v", n, got)
		}
	}
	if got := len(r.all("c", 20)); got != 5 {
		t.Errorf("%d events up to 20, want 5", got)
	}
	if got := len(r.all("d", 20)); got != 0 {
		t.Errorf("got %d events of another capture", got)
	}
}

// TestChangeLog shows that the oldest changes are evicted.
func TestChangeLog(t *testing.T) {
	var l changeLog
	if !l.has(0) || l.has(1) {
		t.Error("an empty log must have the changes after 0 only")
	}
	const n = maxLog + 100
	for v := uint64(1); v <= n; v++ {
		l.add(v)
	}
	for after, want := range map[uint64]bool{0: false, 99: false, 100: true, n: true, n + 1: false} {
		if got := l.has(after); got != want {
			t.Errorf("has the changes after %d: %v", after, got)
		}
	}
	for _, v := range []uint64{101, maxLog, maxLog + 1, n} {
		if got := l.at(v); got != v {
			t.Errorf("version %d changed row %d", v, got)
		}
	}
}
