package taphttp

import "sync/atomic"

// A budget bounds what all exchanges together hold in memory for the record.
type budget struct {
	max  int64
	used atomic.Int64
}

// take reports whether there is room for n more bytes, which are taken then.
func (b *budget) take(n int) bool {
	if b.used.Add(int64(n)) > b.max {
		b.used.Add(-int64(n))
		return false
	}
	return true
}

func (b *budget) give(n int) { b.used.Add(-int64(n)) }

// A hoard is a growing text that counts for a budget.
type hoard struct {
	b     *budget
	max   int // bytes
	buf   []byte
	taken int // from b
}

// add appends p, as much of it as there is room for, and returns how much that was.
func (h *hoard) add(p []byte) int {
	n := min(len(p), h.max-len(h.buf))
	if more := len(h.buf) + n - cap(h.buf); more > 0 && !h.grow(len(h.buf)+n) {
		n = cap(h.buf) - len(h.buf)
	}
	h.buf = append(h.buf, p[:n]...)
	return n
}

// grow makes room for size bytes, and for more if that is cheap.
func (h *hoard) grow(size int) bool {
	for _, want := range [...]int{min(max(size, 2*cap(h.buf), 512), max(h.max, size)), size} {
		if more := want - h.taken; h.b.take(more) {
			h.taken += more
			h.buf = append(make([]byte, 0, want), h.buf...)
			return true
		}
	}
	return false
}

// keepHoard is what an idle stream may hold on to, in bytes.
const keepHoard = 32 << 10

// clear empties it, and gives back what is large.
func (h *hoard) clear() {
	if cap(h.buf) > keepHoard {
		h.free()
		return
	}
	h.buf = h.buf[:0]
}

// free gives everything back.
func (h *hoard) free() {
	h.b.give(h.taken)
	h.buf, h.taken = nil, 0
}
