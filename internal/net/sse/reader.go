package sse

import (
	"bytes"
	"io"
	"math"
	"time"
	"weak"
)

// A Reader reads the events of a stream. It needs no Close; whoever owns the source closes it, which should make a blocked Read return.
type Reader struct {
	win window
	max int // bytes of data in an event

	started  bool // past the place for a byte order mark
	skipLF   bool // the last line ended with a CR that may be half of a CRLF
	skipLine bool // passing over the rest of a line

	// The event that is being read.
	hasFields bool // it has any, besides comments
	tooLarge  *TooLargeError
	name      string
	id        []byte
	hasID     bool
	hasData   bool
	retry     time.Duration
	hasRetry  bool

	lastID   []byte
	lastName string // the last name that was no default, so that equal ones do not allocate
}

var bom = []byte("\xef\xbb\xbf")

// NewReader returns a Reader of the stream src, which refuses events of more than maxEvent bytes of data; 0 or less means [DefaultMaxEvent].
// Names, ids and retries are limited to [MaxField]. Memory is a few KiB while the stream is quiet or its events small, and at most about twice
// maxEvent while a large one comes in.
//
// It reads ahead: src belongs to it from now on.
func NewReader(src io.Reader, maxEvent int) *Reader {
	const room = MaxField + minReadSize
	if maxEvent <= 0 {
		maxEvent = DefaultMaxEvent
	}
	maxEvent = min(maxEvent, math.MaxInt/4)
	return &Reader{win: window{src: src, limit: maxEvent + room}, max: maxEvent}
}

// LastEventID returns the id of the last event that had one and was read to its end: what a client that wants to resume sends as Last-Event-ID.
// It is empty if there was none, or if the last one was. The peer chose it: it holds no CR, LF or NUL, but maybe other bytes that a header
// must not.
func (r *Reader) LastEventID() string { return string(r.lastID) }

// SetLastEventID sets what LastEventID returns until an event brings an id, for a stream that continues another one.
func (r *Reader) SetLastEventID(id string) { r.lastID = []byte(id) }

// Read waits for the next event. It returns an event as soon as the first byte of the line end that completes it has come, and does not read
// from the source while it has a complete event. ID and Data are good until the next Read.
//
// After a [*TooLargeError] it can be called again. Other errors, see the package comment, are returned by all further calls.
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

// next returns the next event if it is in memory.
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

// skipBOM passes over a byte order mark at the start of the stream. It reports whether enough has been read to tell.
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

// readLine takes in the line buf[start:end], which is not empty.
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

// skipPartialLine deals with a line whose end has not been read: nothing of it is kept in memory that is not going to be used.
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

// fits reports whether a field may have a value of n bytes. If not, the event is given up.
func (r *Reader) fits(f field, n int) bool {
	limit := MaxField
	if f == fieldData {
		if r.tooLarge != nil {
			return true // and is passed over
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

// setName notes the name of the event. Most streams use one name besides the default.
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

// finish ends the event at a blank line. It reports whether there is one worth showing.
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

// commitID makes the event's id the last one of the stream. The two slices change places: the event's user may look at the one, while the next
// event is written to the other.
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

// endError turns the final error of the source into that of Read.
func (r *Reader) endError(err error) error {
	if err != io.EOF {
		return err
	}
	if r.tooLarge != nil {
		err := r.tooLarge // the rest of the event will not come, but why it was not kept matters more
		r.tooLarge = nil
		return err
	}
	if r.hasFields || r.win.pos < r.win.end {
		return io.ErrUnexpectedEOF
	}
	return io.EOF
}

// A field is what a line holds.
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

// parseField tells the field of a line that is not empty, and the value that it has so far if its end is missing.
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

// mayBecomeField reports whether the start of a line may become a known field but is none yet: "data" may go on as "database".
func mayBecomeField(start []byte) bool {
	for _, name := range fieldNames[fieldData:] {
		if len(start) <= len(name) && name[:len(start)] == string(start) {
			return true
		}
	}
	return false
}

// parseRetry reads a time in milliseconds, at most MaxRetry. Anything but ASCII digits makes the field void.
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
