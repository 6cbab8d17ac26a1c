package jsonrpc

import (
	"bytes"
	"fmt"
	"strconv"
)

const (
	contentLength = "content-length"
	headerRoom    = 32 // at most what putHeader writes
	maxHeader     = 8 << 10
	maxLengthLine = len(contentLength) + 24 // longest line that findHeader takes for a header
)

var headerBlank = make([]byte, headerRoom)

// putHeader writes the header of the message in dst[start+headerRoom:] and closes the gap.
func putHeader(dst []byte, start int) []byte {
	n := len(dst) - start - headerRoom
	var h [headerRoom]byte
	head := append(h[:0], "Content-Length: "...)
	head = append(strconv.AppendInt(head, int64(n), 10), "\r\n\r\n"...)
	body := copy(dst[start:], head) + start
	copy(dst[body:], dst[start+headerRoom:])
	return dst[:body+n]
}

// detectFraming tells the framing by the first bytes of a stream that are no white space. It answers FramingAuto when they are too few.
func detectFraming(b []byte, eof bool) Framing {
	const prefix = "content-"
	for i := range min(len(b), len(prefix)) {
		if lower(b[i]) != prefix[i] {
			return FramingLine
		}
	}
	switch {
	case len(b) >= len(prefix):
		return FramingHeader
	case eof && len(b) > 0:
		return FramingLine
	}
	return FramingAuto
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// nextHeader returns the next body. What it can't make sense of is passed over up to the next thing that looks like a header: no JSON text can
// hold one, because it has a raw line break right behind a number outside of a string's grammar.
func (f *StreamFramer) nextHeader() ([]byte, error) {
	for {
		if f.badHeader != nil { // told before the rest is skipped, which may wait for the peer
			err := f.badHeader
			f.badHeader = nil
			return nil, err
		}
		if f.skipping {
			from := f.start
			done := f.skip()
			if f.oversize != nil {
				if err := f.skipChunk(f.buf[from:f.start], done); err != nil {
					return nil, err
				}
			}
			if !done {
				return nil, f.incomplete()
			}
		}
		if f.bodyLen < 0 {
			if ok, err := f.readHeader(); err != nil || !ok {
				return nil, err
			}
			continue // to what the header led to
		}
		if f.end-f.start >= f.bodyLen {
			body := f.buf[f.start : f.start+f.bodyLen]
			f.start += f.bodyLen
			f.scanned = f.start
			f.bodyLen = -1
			return body, nil
		}
		if f.readErr == nil {
			return nil, errNeedMore
		}
		f.bodyLen = -1
		f.start = f.end
		return nil, &FrameError{Code: CodeParseError, Reason: "the input ended within a frame: Content-Length is larger than what followed"}
	}
}

// readHeader reads a header block, if one is complete, and sets body or starts skipping. ok is false when err or the caller's next step is final.
func (f *StreamFramer) readHeader() (ok bool, err error) {
	for f.start < f.end && (f.buf[f.start] == '\r' || f.buf[f.start] == '\n') {
		f.start++ // line breaks between frames do no harm
	}
	f.scanned = f.start
	block := f.buf[f.start:f.end]
	n := headerEnd(block)
	if n > maxHeader || n < 0 && len(block) > maxHeader {
		f.resync(1, fmt.Sprintf("no end of the header within %d bytes", maxHeader))
		return true, nil
	}
	if n < 0 {
		switch {
		case f.readErr != nil && len(block) > 0:
			f.start = f.end
			return false, &FrameError{Code: CodeParseError, Reason: "the input ended within a header"}
		}
		return false, f.incomplete()
	}
	length, reason := parseHeader(block[:n])
	if reason != "" {
		if length < 0 {
			n = 1 // a good header may be further down, behind a piece of something else
		}
		f.resync(n, reason)
		return true, nil
	}
	f.start += n
	f.scanned = f.start
	if length > int64(f.max) {
		f.oversize = &oversizeScanner{limit: f.max, size: length, sizeKnown: true}
		f.skipping, f.skipLeft = true, length
		return true, nil
	}
	f.bodyLen = int(length)
	return true, nil
}

// resync makes the framer look for a header behind the first n bytes, so that the one that was refused is not found again.
func (f *StreamFramer) resync(n int, reason string) {
	f.badHeader = &FrameError{Code: CodeParseError, Reason: "bad frame header: " + reason}
	f.skipping, f.skipLeft = true, -1
	f.start += n
}

// skip passes over input up to the end of the frame or the next header, whichever comes first, and reports whether it got there.
func (f *StreamFramer) skip() bool {
	b := f.buf[f.start:f.end]
	n := len(b)
	if f.skipLeft >= 0 && f.skipLeft < int64(n) {
		n = int(f.skipLeft)
	}
	if at := findHeader(b[:n]); at >= 0 {
		f.start += at
		f.scanned, f.skipping = f.start, false
		return true
	}
	done := f.skipLeft >= 0 && int64(n) == f.skipLeft
	keep := 0
	if !done && f.readErr == nil {
		keep = min(n, maxLengthLine) // a header may have come in part
	}
	f.start += n - keep
	f.scanned = f.start
	if f.skipLeft >= 0 {
		f.skipLeft -= int64(n - keep)
	}
	if f.readErr != nil && !done {
		done = true
		f.start = f.end
	}
	if done {
		f.skipping = false
	}
	return done
}

// headerEnd returns the length of the header block with the blank line that ends it, or -1.
func headerEnd(b []byte) int {
	for i := 0; ; {
		j := bytes.IndexByte(b[i:], '\n')
		if j < 0 {
			return -1
		}
		line := b[i : i+j]
		i += j + 1
		if len(line) == 0 || len(line) == 1 && line[0] == '\r' {
			return i
		}
	}
}

// parseHeader returns the body length, or why there is none. With a reason, the length is negative unless there were several.
func parseHeader(block []byte) (length int64, reason string) {
	length = -1
	for line := range bytes.Lines(block) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			break
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		name = bytes.TrimSpace(name)
		if !ok || !isFieldName(name) {
			return -1, fmt.Sprintf("line %.40q is no header field", line)
		}
		if !bytes.EqualFold(name, []byte(contentLength)) {
			continue // Content-Type and whatever else comes
		}
		value = bytes.TrimSpace(value)
		n, err := strconv.ParseUint(string(value), 10, 62)
		switch {
		case err != nil:
			return -1, fmt.Sprintf("Content-Length %.40q is not a length in bytes", value)
		case length >= 0 && length != int64(n):
			return length, "two Content-Length headers that differ"
		}
		length = int64(n)
	}
	if length < 0 {
		return -1, "Content-Length is missing"
	}
	return length, ""
}

// isFieldName tells header fields from pieces of a body, JSON above all.
func isFieldName(b []byte) bool {
	for _, c := range b {
		if l := lower(c); (l < 'a' || l > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return len(b) > 0
}

// findHeader returns where something that looks like a header starts: Content-Length, a number and a line break.
func findHeader(b []byte) int {
	for i := 0; i < len(b); i++ {
		j := bytes.IndexAny(b[i:], "cC")
		if j < 0 {
			return -1
		}
		i += j
		line := b[i:min(len(b), i+maxLengthLine)]
		if len(line) > len(contentLength) && bytes.EqualFold(line[:len(contentLength)], []byte(contentLength)) && isLengthLine(line[len(contentLength):]) {
			return i
		}
	}
	return -1
}

func isLengthLine(b []byte) bool {
	line, _, ok := bytes.Cut(b, []byte("\n"))
	if !ok || len(line) == 0 || line[0] != ':' {
		return false
	}
	value := bytes.TrimSpace(line[1:])
	for _, c := range value {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(value) > 0
}
