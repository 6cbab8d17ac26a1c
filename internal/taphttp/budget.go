package taphttp

import "sync/atomic"

// A budget bounds what all exchanges together hold in memory for the record.
type budget struct {
	max  int64
	used atomic.Int64
}

// reserve reports whether there is room for n more bytes, which are taken then.
func (b *budget) reserve(n int) bool {
	if b.used.Add(int64(n)) > b.max {
		b.used.Add(-int64(n))
		return false
	}
	return true
}

func (b *budget) release(n int) { b.used.Add(-int64(n)) }

// A hoard is a growing text that counts for a budget.
type boundedBuffer struct {
	budget   *budget
	max      int // bytes
	buf      []byte
	reserved int // from b
}

// add appends p, as much of it as there is room for, and returns how much that was.
func (b *boundedBuffer) add(p []byte) int {
	n := min(len(p), b.max-len(b.buf))
	if more := len(b.buf) + n - cap(b.buf); more > 0 && !b.grow(len(b.buf)+n) {
		n = cap(b.buf) - len(b.buf)
	}
	b.buf = append(b.buf, p[:n]...)
	return n
}

// grow makes room for size bytes, and for more if that is cheap.
func (b *boundedBuffer) grow(size int) bool {
	for _, want := range [...]int{min(max(size, 2*cap(b.buf), 512), max(b.max, size)), size} {
		if more := want - b.reserved; b.budget.reserve(more) {
			b.reserved += more
			b.buf = append(make([]byte, 0, want), b.buf...)
			return true
		}
	}
	return false
}

// maxIdleBuffer is what an idle stream may hold on to, in bytes.
const maxIdleBuffer = 32 << 10

// reset empties it, and gives back what is large.
func (b *boundedBuffer) reset() {
	if cap(b.buf) > maxIdleBuffer {
		b.release()
		return
	}
	b.buf = b.buf[:0]
}

// release gives everything back.
func (b *boundedBuffer) release() {
	b.budget.release(b.reserved)
	b.buf, b.reserved = nil, 0
}
