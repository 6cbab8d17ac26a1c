// Package frames splits the output of a server on a pipe into frames, as captures store them:
// lines, and blocks behind a Content-Length header, in any mixture. It keeps all bytes, except
// those of a frame beyond the size limit. [Lines] records standard error line by line.
//
// Package jsonrpc reads messages; this package accepts any input.
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

// maxHeader is the longest header of a block, in bytes. A longer one is not a header.
const maxHeader = 4096

// A Frame is a line, or a block behind a header. The caller owns Text.
type Frame struct {
	Text    []byte
	Framing capture.Framing
	// Prefix is the header of a block.
	Prefix string
	// Cut means that Text is only the beginning.
	Cut bool
	// Size is the original size, in bytes.
	Size int64
}

// Event returns the capture event for the frame.
func (f *Frame) Event() *capture.Event {
	return &capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Data: f.Text, Framing: f.Framing, Prefix: f.Prefix, Cut: f.Cut, Len: f.Size}
}

// A Reader reads frames. It is not safe for concurrent use.
type Reader struct {
	r        *bufio.Reader
	maxBytes int
}

// NewReader returns a Reader that keeps at most maxBytes of a line or block.
func NewReader(r io.Reader, maxBytes int) *Reader {
	return &Reader{bufio.NewReaderSize(r, 64<<10), maxBytes}
}

// Next returns the next frame. Errors are those of the underlying reader. A frame with Text may
// accompany an error: the input ended before the frame did.
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

// readLine reads up to a line end, which it removes. It keeps the beginning
// of a line that is too long.
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

// blockLength parses the header line that announces a block.
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

// readBlock reads the rest of the header that begins with the given line, and the block of n bytes.
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
	var body bytes.Buffer // grows with the input, not with the announced length
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
