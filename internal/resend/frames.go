package resend

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"mcpwire/capture"
)

// maxHeader is how long the header of a frame may be, in bytes. What is longer is no header.
const maxHeader = 4096

// A frame is a line, or a block behind a header, that the server wrote.
type frame struct {
	text    []byte
	framing capture.Framing
	prefix  string
	cut     bool
	size    int64 // that it had
}

// A frameReader splits what a server writes into frames, in either framing.
type frameReader struct {
	r   *bufio.Reader
	max int // bytes of a frame that are kept
}

// next returns the next frame. With an error there may be a last one without an end.
func (f *frameReader) next() (frame, error) {
	text, size, err := f.line()
	if err != nil {
		return frame{text: text, framing: capture.FramingNone, size: size, cut: size > int64(len(text))}, err
	}
	out := frame{text: text, framing: capture.FramingLF, size: size, cut: size > int64(len(text))}
	if !out.cut && bytes.HasSuffix(text, []byte("\r")) {
		out.text, out.framing = text[:len(text)-1], capture.FramingCRLF
		out.size--
	}
	if n, ok := blockLength(out.text); ok && !out.cut {
		return f.block(string(text)+"\n", n)
	}
	return out, nil
}

// line reads up to a line end, which it leaves out. Of a line that is too long it keeps the beginning.
func (f *frameReader) line() (text []byte, size int64, err error) {
	for {
		part, err := f.r.ReadSlice('\n')
		if err == nil {
			part = part[:len(part)-1]
		}
		size += int64(len(part))
		text = append(text, part[:min(len(part), f.max-len(text))]...)
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

// contentLength is the header in front of a message.
func contentLength(n int) string { return "Content-Length: " + strconv.Itoa(n) + "\r\n\r\n" }

// block reads the rest of a header, and what it announces.
func (f *frameReader) block(prefix string, n int64) (frame, error) {
	for {
		text, _, err := f.line()
		if err != nil || len(prefix)+len(text) > maxHeader {
			prefix += string(text)
			return frame{text: []byte(prefix), framing: capture.FramingNone, size: int64(len(prefix))}, err
		}
		prefix += string(text) + "\n"
		if len(bytes.TrimSuffix(text, []byte("\r"))) == 0 {
			break
		}
	}
	var buf bytes.Buffer // grows with what comes, not with what was announced
	m, err := io.CopyN(&buf, f.r, min(n, int64(f.max)))
	out := frame{text: buf.Bytes(), framing: capture.FramingHeader, prefix: prefix, size: m}
	if err == nil && n > m {
		var rest int64
		rest, err = io.CopyN(io.Discard, f.r, n-m)
		out.size, out.cut = m+rest, true
	}
	return out, err
}
