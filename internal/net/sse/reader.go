package sse

import (
	"bytes"
	"io"
	"math"
	"time"
	"weak"
)

// A Reader reads the events of a stream. It has no Close: closing the source should make a blocked
// Read return.
type Reader struct {
	win window
	// max limits the data of an event, in bytes.
	max int

	// started says that the position is after a possible byte order mark.
	started bool
	// skipLF says that the last line ended with a CR, which may be half of a CRLF.
	skipLF bool
	// skipLine says that the rest of a line is skipped.
	skipLine bool

	// The current event. hasFields says that the event has a field that is not a comment.
	hasFields bool
	tooLarge  *TooLargeError
	name      string
	id        []byte
	hasID     bool
	hasData   bool
	retry     time.Duration
	hasRetry  bool

	lastID []byte
	// lastName is the last name other than the default, so that equal names do not allocate.
	lastName string
}

var bom = []byte("\xef\xbb\xbf")

// NewReader returns a Reader of the stream src, which rejects events with more than maxEvent bytes
// of data; 0 or less means [DefaultMaxEvent]. Names, ids and retries are limited to [MaxField]. It
// uses a few KiB of memory while the stream is idle or its events are small, and at most about
// twice maxEvent for a large event.
//
// It reads ahead, so nobody else may read src.
func NewReader(src io.Reader, maxEvent int) *Reader {
	const room = MaxField + minReadSize
	if maxEvent <= 0 {
		maxEvent = DefaultMaxEvent
	}
	maxEvent = min(maxEvent, math.MaxInt/4)
	return &Reader{win: window{src: src, limit: maxEvent + room}, max: maxEvent}
}

// LastEventID returns the id of the last complete event that had one: the Last-Event-ID of a client
// that resumes the stream. It is empty if no event had an id or the last id was empty. The peer
// chose it: it has no CR, LF or NUL, but may have other bytes that are invalid in a header.
func (r *Reader) LastEventID() string { return string(r.lastID) }

// SetLastEventID sets the result of LastEventID until an event has an id, for a stream that
// continues another one.
func (r *Reader) SetLastEventID(id string) { r.lastID = []byte(id) }

// Read waits for the next event. It returns an event as soon as the first byte of the line end that
// completes it has arrived, and does not read from the source while it has a complete event. ID and
// Data are valid until the next Read.
//
// After a [*TooLargeError] it can be called again. All later calls return any other error again;
// see the package comment.
func (r *Reader) Read() (Event, error) {
	for {
		e, ok, err := r.next()
		if ok || err != nil {
			return e, err
		}
		if err := r.win.fill(); err != nil {
			return Event{}, r.endError(err)
		}
	}
}

// next returns the next event that is in memory.
func (r *Reader) next() (Event, bool, error) {
	w := &r.win
	if !r.skipBOM() {
		return Event{}, false, nil
	}
	for {
		if r.skipLF && w.pos < w.end {
			r.skipLF = false
			if w.buf[w.pos] == '\n' {
				w.pos++
			}
		}
		start, end := w.pos, w.lineEnd()
		if end == w.end {
			r.skipPartialLine()
			return Event{}, false, nil
		}
		w.pos = end + 1
		r.skipLF = w.buf[end] == '\r'
		switch {
		case r.skipLine:
			r.skipLine = false
		case start < end:
			r.readLine(start, end)
		case !r.hasFields: // between events
		case r.tooLarge != nil:
			return Event{}, false, r.skipEvent()
		default:
			if e, ok := r.finish(); ok {
				return e, true, nil
			}
		}
	}
}

// skipBOM skips a byte order mark at the start of the stream. It reports whether enough was read to
// decide.
func (r *Reader) skipBOM() bool {
	if !r.started {
		head := r.win.buf[r.win.pos:r.win.end]
		if len(head) < len(bom) && bytes.HasPrefix(bom, head) {
			return false
		}
		if bytes.HasPrefix(head, bom) {
			r.win.pos += len(bom)
		}
		r.started = true
	}
	return true
}

// readLine processes the line buf[start:end], which is not empty.
func (r *Reader) readLine(start, end int) {
	f, value := parseField(r.win.buf[start:end])
	if f == fieldComment {
		return
	}
	r.hasFields = true
	if f == fieldUnknown || !r.fits(f, len(value)) {
		return
	}
	switch f {
	case fieldData:
		if r.tooLarge == nil {
			r.win.addData(end, len(value), !r.hasData)
			r.hasData = true
		}
	case fieldID:
		if bytes.IndexByte(value, 0) < 0 {
			r.id = append(r.id[:0], value...)
			r.hasID = true
		}
	case fieldEvent:
		r.setName(value)
	case fieldRetry:
		if d, ok := parseRetry(value); ok {
			r.retry, r.hasRetry = d, true
		}
	}
}

// skipPartialLine handles an incomplete line. It drops the part that will not be used.
func (r *Reader) skipPartialLine() {
	w := &r.win
	if w.pos == w.end {
		return
	}
	if !r.skipLine {
		line := w.buf[w.pos:w.end]
		if mayBecomeField(line) {
			return
		}
		f, value := parseField(line)
		r.hasFields = r.hasFields || f != fieldComment
		if f != fieldComment && f != fieldUnknown && r.fits(f, len(value)) && !(f == fieldData && r.tooLarge != nil) {
			return
		}
		r.skipLine = true
	}
	w.pos = w.end
}

// fits reports whether a field may have a value of n bytes. If not, the event is skipped.
func (r *Reader) fits(f field, n int) bool {
	limit := MaxField
	if f == fieldData {
		if r.tooLarge != nil {
			return true // it is skipped
		}
		limit = r.max
		if r.hasData {
			n += r.win.dataEnd - r.win.dataStart + 1
		}
	}
	if n <= limit {
		return true
	}
	if r.tooLarge == nil {
		r.tooLarge = &TooLargeError{fieldNames[f], limit}
		r.win.dropData()
	}
	return false
}

// setName sets the name of the event. Most streams use one name other than the default.
func (r *Reader) setName(name []byte) {
	switch string(name) {
	case "", "message":
		r.name = ""
		return
	case r.lastName:
	default:
		r.lastName = string(name)
	}
	r.name = r.lastName
}

// finish ends the event at a blank line. It reports whether to return it.
func (r *Reader) finish() (Event, bool) {
	ok := r.hasData || r.hasID || r.hasRetry
	var e Event
	if ok {
		e = Event{Name: r.name, HasID: r.hasID, Retry: r.retry, HasRetry: r.hasRetry}
		if r.hasData {
			e.Data = r.win.buf[r.win.dataStart:r.win.dataEnd:r.win.dataEnd]
		}
	}
	if r.commitID() {
		e.ID = r.lastID[:len(r.lastID):len(r.lastID)]
	}
	r.reset()
	return e, ok
}

// skipEvent ends an event that was too large.
func (r *Reader) skipEvent() error {
	err := r.tooLarge
	r.commitID()
	r.reset()
	return err
}

// commitID makes the event's id the last one of the stream. It swaps the two slices: the caller may
// use one while the next event is written to the other.
func (r *Reader) commitID() bool {
	if r.hasID {
		r.lastID, r.id = r.id, r.lastID
	}
	return r.hasID
}

func (r *Reader) reset() {
	r.win.dropData()
	r.hasFields, r.hasID, r.hasData, r.hasRetry = false, false, false, false
	r.tooLarge, r.name, r.retry = nil, "", 0
}

// endError returns the final error of Read for that of the source.
func (r *Reader) endError(err error) error {
	if err != io.EOF {
		return err
	}
	if r.tooLarge != nil {
		err := r.tooLarge // more useful than io.ErrUnexpectedEOF
		r.tooLarge = nil
		return err
	}
	if r.hasFields || r.win.pos < r.win.end {
		return io.ErrUnexpectedEOF
	}
	return io.EOF
}

// A field is the kind of a line.
type field uint8

const (
	fieldUnknown field = iota
	fieldComment
	fieldData
	fieldEvent
	fieldID
	fieldRetry
)

var fieldNames = [...]string{fieldData: "data", fieldEvent: "event", fieldID: "id", fieldRetry: "retry"}

// parseField returns the field of a line that is not empty, and its value. The line may be
// incomplete.
func parseField(line []byte) (field, []byte) {
	var f field
	switch line[0] {
	case ':':
		return fieldComment, nil
	case 'd':
		f = fieldData
	case 'e':
		f = fieldEvent
	case 'i':
		f = fieldID
	case 'r':
		f = fieldRetry
	default:
		return fieldUnknown, nil
	}
	name := fieldNames[f]
	if len(line) < len(name) || string(line[:len(name)]) != name {
		return fieldUnknown, nil
	}
	value := line[len(name):]
	switch {
	case len(value) == 0:
		return f, value
	case value[0] != ':':
		return fieldUnknown, nil
	case len(value) > 1 && value[1] == ' ':
		return f, value[2:]
	}
	return f, value[1:]
}

// mayBecomeField reports whether the start of a line may still become a known field: "data" may
// continue as "database".
func mayBecomeField(start []byte) bool {
	for _, name := range fieldNames[fieldData:] {
		if len(start) <= len(name) && name[:len(start)] == string(start) {
			return true
		}
	}
	return false
}

// parseRetry parses a time in milliseconds and limits it to MaxRetry. Only ASCII digits are valid.
func parseRetry(value []byte) (time.Duration, bool) {
	const most = int64(MaxRetry / time.Millisecond)
	var ms int64
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, false
		}
		ms = min(10*ms+int64(c-'0'), most)
	}
	return time.Duration(ms) * time.Millisecond, len(value) > 0
}

const (
	initialBuffer = 4 << 10  // enough for most streams
	maxIdleBuffer = 32 << 10 // limit while a stream waits
	minReadSize   = 4 << 10  // in addition to the largest event
	maxEmptyReads = 100      // then io.ErrNoProgress
)

// A window is the part of a stream that is in memory.
//
//	buf   [ ... |      data      | ... | line, and what was read ahead | free ]
//	         dataStart        dataEnd  pos                            end
//
// The data of the current event stays where it was read. Further data lines are moved down behind
// the first: each follows at least the four bytes of its field name, so there is room for the LF
// between them.
//
// Bytes from pos to lf contain no LF, those from pos to cr no CR; both may lag behind pos. That
// keeps the search for line ends linear: a new search for LF in each line would scan a stream of
// CR-terminated lines repeatedly.
type window struct {
	src io.Reader
	// err is the final error of src.
	err error

	buf                []byte
	dataStart, dataEnd int
	pos, end, lf, cr   int

	// limit limits len(buf).
	limit int
	// small is the buffer up to maxIdleBuffer; larger events use the block large. While the stream
	// waits for its next event, only the weak pointer spare refers to the block, so that busy
	// streams reuse it and the garbage collector takes it from idle ones.
	small []byte
	large *block
	spare weak.Pointer[block]
}

type block struct{ buf []byte }

// lineEnd returns the index of the next CR or LF, or w.end.
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

// addData appends the n bytes before index end, which are after dataEnd, to the data. first says
// that the data is empty.
func (w *window) addData(end, n int, first bool) {
	if first {
		w.dataStart, w.dataEnd = end-n, end
		return
	}
	w.buf[w.dataEnd] = '\n'
	w.dataEnd += 1 + copy(w.buf[w.dataEnd+1:], w.buf[end-n:end])
}

func (w *window) dropData() { w.dataStart, w.dataEnd = 0, 0 }

// fill waits for more input. It returns the error of the source after all input before it.
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

// makeRoom ensures that a quarter of the buffer is free, or at least minReadSize bytes if the
// buffer is at its limit. Its cost is linear in the input: each move frees as much as it copies up
// to a constant factor, or nothing of it must be moved again before its event has ended.
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

// slideDown moves the live bytes to the start of the buffer. It does not touch bytes that are
// already there: otherwise each small read of a large event would copy the event onto itself.
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

// moveTo moves the live bytes to another buffer.
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
