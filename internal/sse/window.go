package sse

import (
	"bytes"
	"io"
	"weak"
)

const (
	initialBuffer = 4 << 10  // of the buffer of a new stream: most stay that quiet
	maxIdleBuffer = 32 << 10 // what a stream may hold on to while it waits
	minReadSize   = 4 << 10  // beside the largest event
	maxEmptyReads = 100      // reads in a row without data or error after which a source counts as broken
)

// A window is the part of a stream that is in memory.
//
//	buf   [ ... | data | ... | line, and what was read ahead | free ]
//	            from   to    pos                             end
//
// Data of the event that is being read is kept where it was read. Further data lines are moved down behind the first: each is preceded by at
// least the four bytes of its field name, so there is room for the LF between them.
//
// Bytes from pos to lf hold no LF, those from pos to cr no CR; both may lag behind pos. That keeps the search for line ends linear: looking for LF
// anew in each line would scan a stream of lines that end with CR again and again.
type window struct {
	src io.Reader
	err error // of src, final

	buf                []byte
	dataStart, dataEnd int
	pos, end, lf, cr   int

	limit int // of len(buf)
	// Events that outgrow maxIdleBuffer get a block. While the stream waits for its next event the block is held by a weak pointer only, so
	// that busy streams go on using it and the collector takes it from idle ones.
	small []byte
	large *block
	spare weak.Pointer[block]
}

type block struct{ buf []byte }

// lineEnd returns the index of the next CR or LF, or w.end if none has been read.
func (w *window) lineEnd() int {
	w.lf = find(w.buf[:w.end], '\n', max(w.lf, w.pos))
	w.cr = find(w.buf[:w.end], '\r', max(w.cr, w.pos))
	return min(w.lf, w.cr)
}

// find returns the index of the first c in b[from:], or len(b).
func find(b []byte, c byte, from int) int {
	if from < len(b) && b[from] == c {
		return from
	}
	if i := bytes.IndexByte(b[from:], c); i >= 0 {
		return from + i
	}
	return len(b)
}

// addData appends the n bytes before index end, which lie beyond to, to the data; first tells that there is none yet.
func (w *window) addData(end, n int, first bool) {
	if first {
		w.dataStart, w.dataEnd = end-n, end
		return
	}
	w.buf[w.dataEnd] = '\n'
	w.dataEnd += 1 + copy(w.buf[w.dataEnd+1:], w.buf[end-n:end])
}

func (w *window) dropData() { w.dataStart, w.dataEnd = 0, 0 }

// fill waits for more input. Its error is that of the source, once all before it has been read.
func (w *window) fill() error {
	if w.err != nil {
		return w.err
	}
	w.makeRoom()
	for range maxEmptyReads {
		n, err := w.src.Read(w.buf[w.end:])
		w.end += n
		w.err = err
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	w.err = io.ErrNoProgress
	return w.err
}

// makeRoom sees to it that a quarter of the buffer is free, or at least minReadSize bytes when it is at its limit, at a cost that is linear in what
// was read: each move frees as much as it copies up to a constant factor, or nothing of it has to be moved again before its event has ended.
func (w *window) makeRoom() {
	live := w.dataEnd - w.dataStart + w.end - w.pos
	size := len(w.buf)
	switch {
	case w.large != nil && live <= maxIdleBuffer/2:
		w.spare = weak.Make(w.large)
		w.large = nil
		w.moveTo(w.small)
	case live > 0 && size-w.end >= size/4:
	case live <= size-size/4 && size > 0 || size == w.limit:
		w.slideDown()
	default:
		w.grow(min(max(2*size, initialBuffer), w.limit))
	}
}

func (w *window) grow(size int) {
	if size <= maxIdleBuffer {
		w.small = make([]byte, size)
		w.moveTo(w.small)
		return
	}
	if b := w.spare.Value(); b != nil && len(b.buf) >= size {
		w.large = b
	} else {
		w.large = &block{make([]byte, size)}
	}
	w.spare = weak.Pointer[block]{}
	w.moveTo(w.large.buf)
}

// slideDown moves what is live to the start of the buffer. What lies right there already is not touched: a large event that comes in small reads
// would otherwise be copied onto itself for each of them.
func (w *window) slideDown() {
	n := w.dataEnd - w.dataStart
	if w.dataStart > 0 {
		copy(w.buf, w.buf[w.dataStart:w.dataEnd])
	}
	if w.pos > n {
		copy(w.buf[n:], w.buf[w.pos:w.end])
	}
	w.rebase()
}

// moveTo moves what is live to another buffer.
func (w *window) moveTo(buf []byte) {
	n := copy(buf, w.buf[w.dataStart:w.dataEnd])
	copy(buf[n:], w.buf[w.pos:w.end])
	w.buf = buf
	w.rebase()
}

// rebase sets the indexes after a move to the start.
func (w *window) rebase() {
	w.dataStart, w.dataEnd = 0, w.dataEnd-w.dataStart
	shift := w.pos - w.dataEnd
	w.pos -= shift
	w.end -= shift
	w.lf -= shift
	w.cr -= shift
}
