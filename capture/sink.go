package capture

import (
	"encoding/base64"
	"io"
	"unicode/utf8"

	"mcpwire/internal/jsonwire"
)

// A sink collects what is written. Its buffer stays small however large a payload is: long runs go to the writer in pieces, so that a frame of many
// megabytes is not copied again.
type sink struct {
	w   io.Writer
	buf []byte
	err error // of the writer; nothing is written after it, until reset
}

const (
	sinkSize  = 64 << 10
	quoteSize = 16 << 10 // of payload that is quoted at once
)

// flush hands the buffer to the writer.
func (s *sink) flush() {
	if s.err == nil && len(s.buf) > 0 {
		_, s.err = s.w.Write(s.buf)
	}
	s.buf = s.buf[:0]
}

// reserve makes room for n bytes.
func (s *sink) reserve(n int) {
	if len(s.buf)+n > sinkSize {
		s.flush()
	}
}

func (s *sink) str(text string) { s.buf = append(s.buf, text...) }

// put writes bytes as they are.
func (s *sink) put(p []byte) {
	if len(p) < sinkSize/2 {
		s.reserve(len(p))
		s.buf = append(s.buf, p...)
		return
	}
	s.flush()
	if s.err == nil {
		_, s.err = s.w.Write(p)
	}
}

// quoted writes the inside of a JSON string. p must be valid UTF-8.
func (s *sink) quoted(p []byte) {
	for len(p) > 0 {
		n := min(len(p), quoteSize)
		for n < len(p) && !utf8.RuneStart(p[n]) {
			n--
		}
		s.reserve(n + 2)
		start := len(s.buf)
		s.buf = jsonwire.AppendQuote(s.buf, p[:n])
		s.buf = s.buf[:start+copy(s.buf[start:], s.buf[start+1:len(s.buf)-1])]
		p = p[n:]
	}
}

// base64 writes the pieces that each yields.
func (s *sink) base64(each func(put func([]byte))) {
	enc := base64.NewEncoder(base64.StdEncoding, sinkWriter{s})
	each(func(p []byte) { enc.Write(p) })
	enc.Close()
}

type sinkWriter struct{ s *sink }

func (w sinkWriter) Write(p []byte) (int, error) {
	w.s.put(p)
	return len(p), nil
}
