package jsonrpc

import (
	"bytes"
	"runtime"
	"testing"
)

// lastWrite is a stream that keeps what was written last.
type lastWrite struct {
	chunks
	last []byte
}

func (w *lastWrite) Write(p []byte) (int, error) {
	w.last = append(w.last[:0], p...)
	return len(p), nil
}

// Frames of any size are written by memory that is used again, and none has anything of another.
func TestWriteFrameMemory(t *testing.T) {
	for _, framing := range []Framing{FramingLine, FramingHeader} {
		w := &lastWrite{}
		f := NewFramer(w, &FramerOptions{Framing: framing})
		sizes := []int{200_000, 2, minBuffer - headerRoom, minBuffer - headerRoom + 1, 1 << 10, 300_000}
		write := func() {
			for i, n := range sizes {
				msg := bytes.Repeat([]byte{byte('a' + i)}, n)
				if err := f.WriteFrame(msg); err != nil {
					t.Fatal(err)
				}
				want := append(bytes.Clone(msg), '\n')
				if framing == FramingHeader {
					want = []byte(block(string(msg)))
				}
				if !bytes.Equal(w.last, want) {
					t.Errorf("%v framing, %d bytes: %.40q… of %d bytes was written, want %.40q… of %d", framing, n, w.last, len(w.last), want, len(want))
				}
			}
		}
		write()
		write()
		msg := make([]byte, 200_000)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		const times = 100
		for range times {
			f.WriteFrame(msg)
		}
		runtime.ReadMemStats(&after)
		if got := (after.TotalAlloc - before.TotalAlloc) / times; got > uint64(len(msg)*9/10) { // the race detector has pools forget some
			t.Errorf("%v framing: writing %d bytes takes %d bytes of memory", framing, len(msg), got)
		}
	}
}
