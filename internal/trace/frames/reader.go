// Package frames splits what a server writes on a pipe into frames, as captures keep them: lines, and blocks behind a header with their length, one after the other in
// either framing. Nothing of what was written is left out, unless a frame is longer than what is kept of it.
//
// Package jsonrpc reads messages; this one reads whatever comes.
package frames

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"mcpwire/capture"
)

// maxHeader is how long the header of a block may be, in bytes. What is longer is no header.
const maxHeader = 4096

// A Frame is a line, or a block behind a header. Its text is the caller's.
type Frame struct {
	Text    []byte
	Framing capture.Framing
	Prefix  string // the header of a block
	Cut     bool   // Text is only the beginning
	Size    int64  // that it had, in bytes
}

// Event is what a capture has of the frame.
func (f *Frame) Event() *capture.Event {
	return &capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Data: f.Text, Framing: f.Framing, Prefix: f.Prefix, Cut: f.Cut, Len: f.Size}
}

// A Reader reads frames. It is for one goroutine.
type Reader struct {
	r        *bufio.Reader
	maxBytes int
}

// NewReader returns one that keeps at most so many bytes of a line, and of a block.
func NewReader(r io.Reader, maxBytes int) *Reader {
	return &Reader{bufio.NewReaderSize(r, 64<<10), maxBytes}
}

// Next returns the next frame. With an error, which is that of the reader beneath, there may be a last one without an end: then it has a text.
func (r *Reader) Next() (Frame, error) {
	text, size, err := r.readLine()
	out := Frame{Text: text, Framing: capture.FramingLF, Size: size, Cut: size > int64(len(text))}
	switch {
	case err != nil:
		out.Framing = capture.FramingNone
		return out, err
	case out.Cut:
		return out, nil
	case bytes.HasSuffix(text, []byte("\r")):
		out.Text, out.Framing = text[:len(text)-1], capture.FramingCRLF
		out.Size--
	}
	if n, ok := blockLength(out.Text); ok {
		return r.readBlock(text, n)
	}
	return out, nil
}

// readLine reads up to a line end, which it leaves out. Of a line that is too long it keeps the beginning.
func (r *Reader) readLine() (text []byte, size int64, err error) {
	for {
		part, err := r.r.ReadSlice('\n')
		if err == nil {
			part = part[:len(part)-1]
		}
		size += int64(len(part))
		text = append(text, part[:min(len(part), r.maxBytes-len(text))]...)
		if err == nil || !errors.Is(err, bufio.ErrBufferFull) {
			return text, size, err
		}
	}
}

// blockLength reads the header that announces a block.
func blockLength(line []byte) (int64, bool) {
	if len(line) > maxHeader {
		return 0, false
	}
	name, value, ok := strings.Cut(string(line), ":")
	if !ok || !strings.EqualFold(name, "Content-Length") {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	return n, err == nil && n > 0
}

// readBlock reads the rest of a header whose first line this is, and what it announces.
func (r *Reader) readBlock(header []byte, n int64) (Frame, error) {
	for more := true; more; {
		header = append(header, '\n')
		text, size, err := r.readLine()
		header = append(header, text...)
		if err != nil || size > int64(len(text)) || len(header) > maxHeader {
			size += int64(len(header) - len(text))
			out := Frame{Text: header, Framing: capture.FramingLF, Size: size, Cut: size > int64(len(header))}
			if err != nil {
				out.Framing = capture.FramingNone
			}
			return out, err
		}
		more = len(text) > 1 || len(text) == 1 && text[0] != '\r'
	}
	header = append(header, '\n')
	var body bytes.Buffer // grows with what comes, not with what was announced
	m, err := io.CopyN(&body, r.r, min(n, int64(r.maxBytes)))
	if m == 0 {
		return Frame{Text: header, Framing: capture.FramingNone, Size: int64(len(header))}, err
	}
	out := Frame{Text: body.Bytes(), Framing: capture.FramingHeader, Prefix: string(header), Size: m}
	if err == nil && n > m {
		var rest int64
		rest, err = io.CopyN(io.Discard, r.r, n-m)
		out.Size, out.Cut = m+rest, true
	}
	return out, err
}
