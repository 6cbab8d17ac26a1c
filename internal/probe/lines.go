package probe

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"mcpwire/capture"
)

// A lineReader splits what a server writes into frames: lines, and blocks behind a Content-Length for those that use them.
type lineReader struct {
	r    *bufio.Reader
	left int // bytes that are still taken
}

type line struct {
	text    []byte
	framing capture.Framing
	prefix  string
	cut     bool
	size    int64
}

var errTooMuch = errors.New("the server wrote more than the probe takes")

// next returns the next line. With an error there may be a last one without an end.
func (l *lineReader) next() (line, error) {
	text, size, err := l.line()
	out := line{text: text, framing: capture.FramingLF, size: size, cut: size > int64(len(text))}
	if err != nil {
		out.framing = capture.FramingNone
		return out, err
	}
	if n := len(text); n > 0 && text[n-1] == '\r' {
		out.text, out.framing = text[:n-1], capture.FramingCRLF
		out.size--
	}
	if n, ok := contentLength(string(out.text)); ok {
		return l.block(string(text)+"\n", n)
	}
	return out, nil
}

// line reads up to a line end, which it leaves out. Of a line that is too long it keeps the beginning.
func (l *lineReader) line() (text []byte, size int64, err error) {
	for {
		part, err := l.r.ReadSlice('\n')
		if l.left -= len(part); l.left < 0 {
			return text, size, errTooMuch
		}
		size += int64(len(part))
		text = append(text, part[:min(len(part), maxFrame-len(text))]...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(text, []byte("\n")), size - 1, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return text, size, err
		}
	}
}

func contentLength(text string) (int, bool) {
	name, value, ok := strings.Cut(text, ":")
	if !ok || !strings.EqualFold(name, "Content-Length") {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(value))
	return n, err == nil && n > 0 && n <= maxFrame
}

// block reads the rest of a header and what it announces.
func (l *lineReader) block(prefix string, n int) (line, error) {
	for {
		text, _, err := l.line()
		if err != nil {
			prefix += string(text)
			return line{text: []byte(prefix), framing: capture.FramingNone, size: int64(len(prefix))}, err
		}
		prefix += string(text) + "\n"
		if len(bytes.TrimSuffix(text, []byte("\r"))) == 0 {
			break
		}
		if len(prefix) > 4096 {
			return line{text: []byte(prefix[:len(prefix)-1]), framing: capture.FramingLF, size: int64(len(prefix) - 1)}, nil
		}
	}
	if l.left -= n; l.left < 0 {
		return line{}, errTooMuch
	}
	body := make([]byte, n)
	m, err := io.ReadFull(l.r, body)
	out := line{text: body[:m], framing: capture.FramingHeader, prefix: prefix, size: int64(m)}
	if err != nil {
		return out, err
	}
	return out, nil
}
