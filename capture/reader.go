package capture

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"mcpwire/internal/base/defaults"
	"mcpwire/internal/json/jsonwire"
)

// Defaults of a Reader.
const (
	// defaultMaxLine is above the longest line of a Writer in bytes, see growsWhenQuoted.
	defaultMaxLine = 2*defaultMaxPayload + 8<<20
	// defaultPoll is the time between two checks of a growing file.
	defaultPoll = 100 * time.Millisecond
)

// The limits of the output of a compressed capture: a fixed amount plus a multiple of the input.
const (
	baseUnpacked = 64 << 20 // bytes
	maxRatio     = 200
)

var (
	// ErrVersion is wrapped by the error for a capture in a newer version of the format.
	ErrVersion = errors.New("capture: written in a newer version of the format")
	// ErrNotCapture is wrapped by the error for a file that does not begin like a capture: its
	// first 64 KiB are part of one line that is not a JSON object.
	ErrNotCapture = errors.New("capture: not a capture")
	// errFollowCompressed is returned by Follow for a compressed capture, which cannot be read
	// before it is complete.
	errFollowCompressed = fmt.Errorf("capture: cannot follow a compressed file: %w", errors.ErrUnsupported)
	// errUnpacked is wrapped by the error for a compressed capture that unpacks to more than
	// ReaderOptions.MaxUnpacked, or by default to far more than traffic does.
	errUnpacked = errors.New("capture: the compressed file unpacks to too much")
)

// ReaderOptions are the options of a [Reader]. Nil means defaults.
type ReaderOptions struct {
	// MaxLine limits the length of a line in bytes. Zero means 136 MiB, which is above the
	// longest line of a [Writer]. A gap replaces a longer line.
	MaxLine int
	// MaxUnpacked limits the output of a compressed capture in bytes. Whatever it is, the output is
	// limited to 64 MiB plus 200 times the bytes read from the file. Zero means that limit alone.
	MaxUnpacked int64
	// Poll is the time between two checks of Follow for more data. Zero means 100 ms.
	Poll time.Duration
	// Side selects one side of a bridge's capture. The Reader then skips the other side and the
	// links between the two, and clears Event.Side, so that the rest reads like a capture of that
	// side alone. A capture without sides is read completely. Empty selects both sides.
	Side Side
}

// selects reports whether an event belongs to the selected side. It clears the event's side.
func (r *Reader) selects(e *Event) bool {
	if r.opts.Side == "" {
		return true
	}
	other := e.Side != "" && e.Side != r.opts.Side || e.Kind == KindTranslate
	e.Side = ""
	return !other
}

// A Reader reads a capture as a stream. Its memory is bounded by the longest line. It is not safe
// for concurrent use.
//
// Its input is untrusted: the recorded peers and anyone who can write to the file control it.
type Reader struct {
	src *bufio.Reader
	// file is nil if the caller owns the source.
	file io.Closer
	opts ReaderOptions
	// in is src, decompressed. It is nil before the first read.
	in   *bufio.Reader
	stop func()
	// chunks hold a line that is longer than the buffer of in.
	chunks [][]byte
	// size is the length of chunks in bytes.
	size int
	// skipped counts the bytes of a line above the limit.
	skipped int64
	// lines counts the lines read.
	lines int64

	head *Head
	last time.Duration
	ev   Event
	// data is the payload of ev if it is not a slice of the line.
	data []byte
	scan jsonwire.Scanner
}

// NewReader returns a Reader of src, which may be compressed with gzip or zstd.
func NewReader(src io.Reader, opts *ReaderOptions) *Reader {
	r := &Reader{src: bufio.NewReaderSize(src, 64<<10)}
	if opts != nil {
		r.opts = *opts
	}
	defaults.IfNotPositive(&r.opts.MaxLine, defaultMaxLine)
	defaults.IfNotPositive(&r.opts.Poll, defaultPoll)
	return r
}

// Open opens a capture file. The caller must close the Reader.
func Open(name string, opts *ReaderOptions) (*Reader, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	r := NewReader(f, opts)
	r.file = f
	return r, nil
}

// Close closes the file that Open opened, and the decompressor.
func (r *Reader) Close() error {
	if r.stop != nil {
		r.stop()
		r.stop = nil
	}
	if r.file != nil {
		return r.file.Close()
	}
	return nil
}

// Head returns the head of the capture with the last event, or nil if no head has come.
func (r *Reader) Head() *Head { return r.head }

// Events returns the remaining events. An event and its Data are valid until the next one; Clone
// keeps one. Lines that are not events, are above the limit, or have no end become gaps. An error
// ends the sequence; it is that of the source, or wraps ErrVersion or ErrNotCapture.
//
// A file may hold several captures in sequence, each with a head.
func (r *Reader) Events() iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		if err := r.detectCompression(); err != nil {
			yield(nil, err)
			return
		}
		for {
			line, err := r.nextLine()
			if err != nil && !isEOF(err) {
				yield(nil, fmt.Errorf("read the capture: %w", err))
				return
			}
			e, bad := r.event(line, err != nil)
			if bad != nil {
				yield(nil, bad)
				return
			}
			// A compressed file is truncated.
			if e == nil && errors.Is(err, io.ErrUnexpectedEOF) {
				e = r.gap(GapTruncated, 0)
			}
			if e != nil && r.selects(e) && !yield(e, nil) {
				return
			}
			if err != nil {
				return
			}
			r.releaseLine()
		}
	}
}

// isEOF reports whether the input has ended, including a truncated compressed file.
func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// Follow is like Events for a capture that is still being written. At the end of the file it waits
// for more, until ctx ends or the tail of the capture has come. It then ends without an error. For
// a compressed capture, which cannot be read before it is complete, the error wraps
// [errors.ErrUnsupported].
func (r *Reader) Follow(ctx context.Context) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		timer := time.NewTimer(r.opts.Poll)
		defer timer.Stop()
		for ctx.Err() == nil {
			if err := r.detectCompression(); err != nil {
				yield(nil, err)
				return
			}
			if r.stop != nil {
				yield(nil, errFollowCompressed)
				return
			}
			line, err := r.read()
			if err == nil {
				if line == nil {
					line = r.joinChunks()
				}
				e, bad := r.event(line, false)
				if bad != nil {
					yield(nil, bad)
					return
				}
				if e != nil && r.selects(e) && (!yield(e, nil) || e.Kind == KindTail) {
					return
				}
				r.releaseLine()
				continue
			}
			if !isEOF(err) {
				yield(nil, fmt.Errorf("read the capture: %w", err))
				return
			}
			timer.Reset(r.opts.Poll)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		}
	}
}

// detectCompression finds out how the source is compressed.
func (r *Reader) detectCompression() error {
	if r.in != nil {
		return nil
	}
	if _, err := r.src.Peek(4); err != nil && r.src.Buffered() == 0 {
		if !errors.Is(err, io.EOF) {
			return fmt.Errorf("read the capture: %w", err)
		}
		return nil // nothing there yet; read will return io.EOF
	}
	packed := &unpacker{src: r.src, max: r.opts.MaxUnpacked}
	in, stop, err := decompress(r.src, packed)
	if err != nil {
		return err
	}
	if in == io.Reader(r.src) {
		r.in = r.src
	} else {
		packed.plain = in
		r.in, r.stop = bufio.NewReaderSize(unpacked{packed}, 64<<10), stop
	}
	return nil
}

// An unpacker counts the input and the output of a decompressor.
type unpacker struct {
	src     *bufio.Reader
	plain   io.Reader
	in, out int64
	// max limits out further than in does, unless it is zero.
	max int64
}

// Read implements [io.Reader], for the decompressor.
func (u *unpacker) Read(p []byte) (int, error) {
	n, err := u.src.Read(p)
	u.in += int64(n)
	return n, err
}

// ReadByte implements [io.ByteReader], so that gzip needs no second buffer.
func (u *unpacker) ReadByte() (byte, error) {
	c, err := u.src.ReadByte()
	if err == nil {
		u.in++
	}
	return c, err
}

// unpacked reads the output of the decompressor.
type unpacked struct{ u *unpacker }

func (u unpacked) Read(p []byte) (int, error) {
	counter := u.u
	limit := baseUnpacked + maxRatio*counter.in
	if counter.max > 0 {
		limit = min(limit, counter.max)
	}
	if counter.out > limit {
		return 0, errUnpacked
	}
	n, err := counter.plain.Read(p)
	counter.out += int64(n)
	return n, err
}

// nextLine returns the next line with its line end. With an error, the line is incomplete.
func (r *Reader) nextLine() ([]byte, error) {
	line, err := r.read()
	if line == nil {
		line = r.joinChunks()
	}
	return line, err
}

// read reads to the end of the line. It returns the line if the buffer holds all of it. Otherwise
// it adds what it read to the chunks, even on an error, and the next call continues.
func (r *Reader) read() ([]byte, error) {
	if r.in == nil {
		return nil, io.EOF
	}
	for {
		part, err := r.in.ReadSlice('\n')
		if err == nil && r.size == 0 && r.skipped == 0 {
			return part, nil
		}
		if r.lines == 0 && r.size == 0 && r.skipped == 0 && errors.Is(err, bufio.ErrBufferFull) && !looksLikeLine(part) {
			// This is a disk image or a device; its first line may have no end.
			return nil, ErrNotCapture
		}
		r.addChunk(part)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}

const (
	firstChunk = 256 << 10 // bytes; kept for the next line
	maxChunk   = 4 << 20
)

// addChunk adds a part of a line to the chunks without moving earlier parts. It drops all parts of
// a line above the limit.
func (r *Reader) addChunk(part []byte) {
	if r.skipped > 0 || r.size+len(part) > r.opts.MaxLine {
		r.skipped += int64(r.size + len(part))
		r.dropChunks()
		return
	}
	r.size += len(part)
	for len(part) > 0 {
		k := len(r.chunks) - 1
		if k < 0 || len(r.chunks[k]) == cap(r.chunks[k]) {
			if k++; k < cap(r.chunks) && cap(r.chunks[:k+1][k]) > 0 {
				r.chunks = r.chunks[:k+1]
			} else {
				r.chunks = append(r.chunks, make([]byte, 0, min(firstChunk<<min(k, 8), maxChunk)))
			}
		}
		last := r.chunks[k]
		n := min(len(part), cap(last)-len(last))
		r.chunks[k] = append(last, part[:n]...)
		part = part[n:]
	}
}

// joinChunks returns the line in the chunks, or the part that was read.
func (r *Reader) joinChunks() []byte {
	if len(r.chunks) > 1 {
		whole := bytes.Join(r.chunks, nil)
		r.dropChunks()
		r.chunks, r.size = append(r.chunks[:0], whole), len(whole)
	}
	if len(r.chunks) == 0 {
		return nil
	}
	return r.chunks[0]
}

// dropChunks releases the chunks and keeps the first one for reuse.
func (r *Reader) dropChunks() {
	r.size = 0
	if all := r.chunks[:cap(r.chunks)]; len(all) > 1 {
		clear(all[1:])
	}
	if r.chunks = r.chunks[:0]; cap(r.chunks) > 0 {
		if first := r.chunks[:1]; cap(first[0]) > firstChunk {
			first[0] = nil
		} else {
			first[0] = first[0][:0]
		}
	}
}

// looksLikeLine reports whether an incomplete line may belong to a capture.
func looksLikeLine(line []byte) bool {
	line = bytes.TrimLeft(bytes.TrimPrefix(line, bom), " \t\r")
	return len(line) == 0 || line[0] == '{'
}

func (r *Reader) releaseLine() {
	r.data, r.skipped = r.data[:0], 0
	r.dropChunks()
	if cap(r.data) > 1<<20 {
		r.data = nil
	}
}

var bom = []byte("\xef\xbb\xbf")

// event decodes a line, and returns nil for an empty one. cut reports that the line has no end. An
// error is final.
func (r *Reader) event(line []byte, cut bool) (*Event, error) {
	if r.skipped > 0 {
		return r.gap(GapLimit, r.skipped), nil
	}
	if r.lines == 0 {
		line = bytes.TrimPrefix(line, bom)
	}
	r.lines++
	if len(bytes.TrimSpace(line)) == 0 {
		return nil, nil
	}
	r.ev = Event{}
	if err := r.decode(line); err != nil {
		if cut {
			return r.gap(GapTruncated, int64(len(line))), nil
		}
		return r.gap(GapMalformed, int64(len(line))), nil
	}
	e := &r.ev
	if h := e.Head; h != nil {
		if h.Version > Version {
			return nil, fmt.Errorf("%w: %d; this program reads %d", ErrVersion, h.Version, Version)
		}
		r.head = h
	}
	r.last = e.T
	r.setOrigin(e)
	return e, nil
}

// setOrigin sets the capture and the wall time of the event.
func (r *Reader) setOrigin(e *Event) {
	if r.head != nil {
		e.Capture = r.head.ID
		e.At = r.head.At.Add(e.T)
	}
}

// gap returns an event for a line that could not be read.
func (r *Reader) gap(why GapReason, size int64) *Event {
	r.ev = Event{Kind: KindGap, T: r.last, Gap: &Gap{Lost: 1, Bytes: size, Until: r.last, Why: why}}
	r.setOrigin(&r.ev)
	return &r.ev
}

var errNotEvent = errors.New("not an event")

// lineDepth limits the nesting of a line, which contains a message.
const lineDepth = 2 * jsonwire.DefaultMaxDepth

// decode reads a line into r.ev. It skips unknown members and members of an unexpected type.
func (r *Reader) decode(line []byte) error {
	r.scan.Reset(line, lineDepth)
	more, err := r.scan.EnterObject()
	e := &r.ev
	for more && err == nil {
		var at jsonwire.Member
		if more, err = r.scan.Member(&at); err != nil {
			break
		}
		key, v := line[at.NameStart:at.NameEnd], line[at.Start:at.End]
		switch string(key) {
		case "k":
			e.Kind = oneOf(v, kinds)
		case "n":
			e.N = parseUint(v)
		case "t":
			e.T = parseSeconds(v)
		case "dir":
			e.Dir = oneOf(v, dirs)
		case "side":
			e.Side = oneOf(v, sides)
		case "s":
			e.Session = parseUint(v)
		case "x":
			e.Exchange = parseUint(v)
		case "msg":
			e.Data = v
		case "raw":
			if len(v) > 1 && v[0] == '"' {
				if len(v) > largePayload && cap(r.data) < len(v) {
					r.data = make([]byte, 0, len(v))
				}
				r.data = jsonwire.AppendUnquote(r.data[:0], v[1:len(v)-1])
				e.Data = nonNil(r.data)
			}
		case "b64":
			if r.data, err = appendBase64(r.data[:0], v); err != nil {
				return err
			}
			e.Data = nonNil(r.data)
		default:
			decodeMember(e, key, v)
		}
	}
	if err == nil {
		err = r.scan.End()
	}
	if err != nil {
		return err
	}
	if e.Kind == "" {
		return errNotEvent
	}
	e.Len = max(e.Len, 0)
	decodeKindMembers(e, line)
	return nil
}

// nonNil returns b, or an empty slice if b is nil.
func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func decodeMember(e *Event, key, v []byte) {
	switch string(key) {
	case "len":
		e.Len = parseInt(v)
	case "cut":
		e.Cut = string(v) == "true"
	case "part":
		e.Part = int(min(parseUint(v), math.MaxInt32))
	case "enc":
		e.Encoding = jsonwire.Text(v)
	case "frame":
		e.Framing = oneOf(v, framings)
	case "pre":
		e.Prefix = jsonwire.Text(v)
	case "why":
		e.Why = RawReason(jsonwire.Text(v))
	case "red":
		e.Redacted = unquoteList(v)
	case "redmore":
		e.RedactedMore = int(min(parseUint(v), math.MaxInt32))
	case "req":
		e.Request = decodeRequest(v)
	case "res":
		e.Response = decodeResponse(v)
	case "sse":
		e.SSE = decodeSSE(v)
	}
}

// decodeKindMembers reads the members whose meaning depends on the kind.
func decodeKindMembers(e *Event, line []byte) {
	switch e.Kind {
	case KindHead:
		h := new(Head)
		decodeFields(line, fields{
			"v": &h.Version, "id": &h.ID, "at": &h.At, "tool": &h.Tool, "transport": (*string)(&h.Transport), "name": &h.Name, "url": &h.URL, "redact": (*string)(&h.Redact),
		})
		e.Head = h
	case KindStart:
		s := new(Start)
		decodeFields(line, fields{"cmd": &s.Command, "cwd": &s.Dir, "env": &s.Env, "pid": &s.PID})
		e.Start = s
	case KindExit:
		x := new(Exit)
		decodeFields(line, fields{"code": &x.Code, "signal": &x.Signal})
		e.Exit = x
	case KindGap:
		g := &Gap{Why: GapReason(e.Why)}
		decodeFields(line, fields{"lost": &g.Lost, "bytes": &g.Bytes, "until": &g.Until})
		e.Why, e.Gap = "", g
	case KindTranslate:
		x := new(Translation)
		decodeFields(line, fields{"of": &x.Of, "to": &x.To, "rule": &x.Rule})
		e.Translation = x
	case KindTail:
		t := new(Tail)
		decodeFields(line, fields{"events": &t.Events, "lost": &t.Lost})
		e.Tail = t
	case KindSSE:
		if e.SSE == nil {
			e.SSE = new(SSE)
		}
		e.SSE.HasData = e.Data != nil
	}
}

// fields has pointers to the fields of a struct by the names of the members that they hold.
type fields map[string]any

// decodeFields sets fields to the members of an object. It skips members of an unexpected type.
func decodeFields(object []byte, to fields) {
	for key, v := range members(object) {
		switch field := to[string(key)].(type) {
		case *string:
			*field = jsonwire.Text(v)
		case *int:
			*field = int(max(min(parseInt(v), math.MaxInt), math.MinInt))
		case *int64:
			*field = parseInt(v)
		case *uint64:
			*field = parseUint(v)
		case *time.Duration:
			*field = parseSeconds(v)
		case *time.Time:
			*field, _ = time.Parse(time.RFC3339Nano, jsonwire.Text(v))
		case *[]string:
			*field = unquoteList(v)
		case *[]uint64:
			for n := range elements(v) {
				*field = append(*field, parseUint(n))
			}
		case *[]Header:
			*field = decodeHeaders(v)
		}
	}
}

func decodeRequest(v []byte) *Request {
	q := new(Request)
	decodeFields(v, fields{"method": &q.Method, "url": &q.URL, "proto": &q.Proto, "remote": &q.Remote, "headers": &q.Headers})
	return q
}

func decodeResponse(v []byte) *Response {
	s := new(Response)
	decodeFields(v, fields{"status": &s.Status, "proto": &s.Proto, "headers": &s.Headers})
	return s
}

func decodeHeaders(v []byte) []Header {
	var list []Header
	for pair := range elements(v) {
		var h Header
		n := 0
		for t := range elements(pair) {
			switch n {
			case 0:
				h.Name = jsonwire.Text(t)
			case 1:
				h.Value = jsonwire.Text(t)
			case 2:
				if exact, err := base64.StdEncoding.DecodeString(jsonwire.Text(t)); err == nil {
					h.Value = string(exact)
				}
			}
			n++
		}
		if n >= 2 {
			list = append(list, h)
		}
	}
	return list
}

func decodeSSE(v []byte) *SSE {
	s := new(SSE)
	for key, v := range members(v) {
		switch string(key) {
		case "event":
			s.Event = jsonwire.Text(v)
		case "id":
			s.ID, s.HasID = jsonwire.Text(v), true
		case "retry":
			s.Retry, s.HasRetry = time.Duration(min(parseUint(v), math.MaxInt64/uint64(time.Millisecond)))*time.Millisecond, true
		case "comment":
			s.Comment, s.HasComment = jsonwire.Text(v), true
		}
	}
	return s
}

// members returns the members of an object, and none for another value.
func members(v []byte) func(yield func(key, value []byte) bool) {
	return func(yield func(key, value []byte) bool) {
		if !startsWith(v, '{') {
			return
		}
		for m := jsonwire.ObjectMembers(v); m.Next(); {
			if !yield(m.RawKey(), m.Value()) {
				return
			}
		}
	}
}

// elements returns the elements of an array, and none for another value.
func elements(v []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		if !startsWith(v, '[') {
			return
		}
		for m := jsonwire.ArrayElements(v); m.Next(); {
			if !yield(m.Value()) {
				return
			}
		}
	}
}

func startsWith(v []byte, c byte) bool {
	for _, b := range v {
		if b != ' ' && b != '\t' && b != '\r' && b != '\n' {
			return b == c
		}
	}
	return false
}

// The common words are shared, so that a line need not allocate them.
var (
	kinds = []Kind{
		KindMessage, KindStderr, KindInvalid, KindSSE, KindRequest, KindResponse, KindBody, KindEnd, KindHead, KindStart, KindEOF, KindExit, KindTranslate, KindNote, KindGap, KindTail,
	}
	dirs     = []Dir{ToServer, ToClient}
	sides    = []Side{Downstream, Upstream}
	framings = []Framing{FramingLF, FramingCRLF, FramingNone, FramingHeader}
)

// oneOf returns the text of a member, which is usually a known word.
func oneOf[T ~string](v []byte, known []T) T {
	if len(v) > 2 && v[0] == '"' {
		for _, w := range known {
			if string(v[1:len(v)-1]) == string(w) {
				return w
			}
		}
	}
	return T(jsonwire.Text(v))
}

func unquoteList(v []byte) []string {
	var list []string
	for t := range elements(v) {
		list = append(list, jsonwire.Text(t))
	}
	return list
}

func parseUint(v []byte) uint64 {
	n, err := strconv.ParseUint(string(v), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func parseInt(v []byte) int64 {
	n, _ := jsonwire.ParseInt(v)
	return n
}

// parseSeconds parses a number of seconds. Up to nine decimals are exact.
func parseSeconds(v []byte) time.Duration {
	if d, ok := parseUsualSeconds(v); ok {
		return d
	}
	whole, frac, _ := strings.Cut(string(v), ".")
	s, err := strconv.ParseInt(whole, 10, 64)
	if err == nil && len(frac) <= 9 && s >= 0 && s < math.MaxInt64/int64(time.Second) && strings.Trim(frac, "0123456789") == "" {
		ns, _ := strconv.ParseInt((frac + "000000000")[:9], 10, 64)
		return time.Duration(s)*time.Second + time.Duration(ns)
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || f < 0 || f > math.MaxInt64/1e9 {
		return 0
	}
	return time.Duration(f * 1e9)
}

// parseUsualSeconds parses a number of seconds as an Encoder writes it, with nine decimals.
func parseUsualSeconds(v []byte) (time.Duration, bool) {
	const decimals = 9
	point := len(v) - decimals - 1
	if point < 1 || point > 9 || v[point] != '.' {
		return 0, false
	}
	n := int64(0)
	for i, c := range v {
		if i == point {
			continue
		}
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return time.Duration(n), true
}

func appendBase64(dst, v []byte) ([]byte, error) {
	if len(v) < 2 || v[0] != '"' {
		return dst, errNotEvent
	}
	raw := v[1 : len(v)-1]
	// Other writers may escape the slash.
	if bytes.IndexByte(raw, '\\') >= 0 {
		raw = jsonwire.AppendUnquote(nil, raw)
	}
	return base64.StdEncoding.AppendDecode(dst, raw)
}

// Merge returns the events of several captures in one timeline, by their recorders' wall clocks. It
// keeps the order within each capture. Event.Capture distinguishes the captures. The event is valid
// until the next one. A capture that fails yields its error and ends; the others continue.
func Merge(captures ...iter.Seq2[*Event, error]) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		type source struct {
			next func() (*Event, error, bool)
			ev   *Event
		}
		var open []*source
		advance := func(s *source) (alive bool, more bool) {
			e, err, ok := s.next()
			s.ev = e
			if err != nil {
				return false, yield(nil, err)
			}
			return ok, true
		}
		for _, c := range captures {
			next, stop := iter.Pull2(c)
			defer stop()
			s := &source{next: next}
			alive, more := advance(s)
			if !more {
				return
			}
			if alive {
				open = append(open, s)
			}
		}
		for len(open) > 0 {
			first := 0
			for i, s := range open {
				if s.ev.At.Before(open[first].ev.At) {
					first = i
				}
			}
			s := open[first]
			if !yield(s.ev, nil) {
				return
			}
			alive, more := advance(s)
			if !more {
				return
			}
			if !alive {
				open = append(open[:first], open[first+1:]...)
			}
		}
	}
}
