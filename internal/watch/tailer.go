package watch

import (
	"bytes"
	"context"
	"io"
	"os"
)

// A tailer reads a file line by line: a Read returns no more than one line, so that the capture.Reader above it has never read beyond the line whose event it
// yields, and the place of each event is known.
type tailer struct {
	ctx      context.Context // nil: none yet
	f        *os.File
	buf      []byte
	r, w     int
	off      int64 // behind what was handed out
	line     int64 // where the line began of which the last was handed out
	midLine  bool  // that line goes on
	waitMore func() bool
}

const tailBuffer = 128 << 10

func newTailer(f *os.File, more func() bool) *tailer {
	return &tailer{f: f, buf: make([]byte, tailBuffer), waitMore: more}
}

// Read implements io.Reader. At the end of the file it asks more, which may wait.
func (t *tailer) Read(p []byte) (int, error) {
	for t.r == t.w {
		if t.ctx != nil && t.ctx.Err() != nil {
			return 0, io.EOF
		}
		n, err := t.f.Read(t.buf)
		if n > 0 {
			t.r, t.w = 0, n
			break
		}
		if err != nil && err != io.EOF {
			return 0, err
		}
		if !t.waitMore() {
			return 0, io.EOF
		}
	}
	part := t.buf[t.r:t.w]
	end := bytes.IndexByte(part, '\n')
	if end >= 0 {
		part = part[:end+1]
	}
	n := copy(p, part)
	if !t.midLine {
		t.line = t.off
	}
	t.midLine = end < 0 || n < len(part)
	t.r += n
	t.off += int64(n)
	return n, nil
}

// A counter counts what is read of a compressed file.
type countingReader struct {
	r      io.Reader
	source *source
}

func (cr *countingReader) Read(p []byte) (int, error) {
	n, err := cr.r.Read(p)
	cr.source.addProgress(int64(n))
	return n, err
}
