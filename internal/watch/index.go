package watch

import "sort"

const (
	maxEntries  = 1024     // of an index
	firstStride = 64 << 10 // bytes between two entries; it doubles when there are too many
)

// An index knows where some events of a capture stand in its file.
type index struct {
	entries   []entry
	stride    int64
	events    int
	unordered bool // numbers are not in order: nobody who records writes that
	last      uint64
	start     int64
}

type entry struct {
	n   uint64
	off int64
}

// add notes where an event stands.
func (ix *index) add(n uint64, off int64) {
	if ix.events == 0 {
		ix.stride, ix.start = firstStride, off
	}
	ix.events++
	if n == 0 {
		return // made up, or the head
	}
	if n < ix.last {
		ix.unordered = true
	}
	ix.last = n
	if k := len(ix.entries); k > 0 && off-ix.entries[k-1].off < ix.stride {
		return
	}
	if len(ix.entries) >= maxEntries {
		for i := range maxEntries / 2 {
			ix.entries[i] = ix.entries[2*i]
		}
		ix.entries = ix.entries[:maxEntries/2]
		ix.stride *= 2
	}
	ix.entries = append(ix.entries, entry{n, off})
}

// offsetBefore returns a place from which on the event is found, if it is there.
func (ix *index) offsetBefore(n uint64) int64 {
	i := sort.Search(len(ix.entries), func(i int) bool { return ix.entries[i].n > n })
	if i == 0 || ix.unordered {
		return ix.start
	}
	return ix.entries[i-1].off
}
