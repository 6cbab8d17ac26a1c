package watch

import "sort"

const (
	maxEntries  = 1024     // of an index
	firstStride = 64 << 10 // bytes between two entries; it doubles when there are too many
)

// An index knows where some events of a capture stand in its file.
type index struct {
	entries  []entry
	stride   int64
	events   int
	unsorted bool // numbers are not in order: nobody who records writes that
	last     uint64
	begin    int64
}

type entry struct {
	n   uint64
	off int64
}

// add notes where an event stands.
func (x *index) add(n uint64, off int64) {
	if x.events == 0 {
		x.stride, x.begin = firstStride, off
	}
	x.events++
	if n == 0 {
		return // made up, or the head
	}
	if n < x.last {
		x.unsorted = true
	}
	x.last = n
	if k := len(x.entries); k > 0 && off-x.entries[k-1].off < x.stride {
		return
	}
	if len(x.entries) >= maxEntries {
		for i := range maxEntries / 2 {
			x.entries[i] = x.entries[2*i]
		}
		x.entries = x.entries[:maxEntries/2]
		x.stride *= 2
	}
	x.entries = append(x.entries, entry{n, off})
}

// before returns a place from which on the event is found, if it is there.
func (x *index) before(n uint64) int64 {
	i := sort.Search(len(x.entries), func(i int) bool { return x.entries[i].n > n })
	if i == 0 || x.unsorted {
		return x.begin
	}
	return x.entries[i-1].off
}
