//go:build windows || linux

package stdio

import (
	"io"
	"os"
	"sync"
)

// A pumpedInput reads a file whose reads cannot be interrupted (on Windows, an inherited end of a
// pipe) on another goroutine, so that Close can at least release the reader.
//
// Windows needs it; on Linux only its tests do.
//
// After Close that goroutine stays in its read until input arrives or the process ends.
type pumpedInput struct {
	chunks chan pumpedChunk
	// free returns buffers for the next read.
	free  chan []byte
	ended chan struct{}
	once  sync.Once

	// buf is the buffer of the last chunk.
	buf []byte
	// rest is the unread part of buf.
	rest []byte
	err  error
}

type pumpedChunk struct {
	buf []byte
	n   int
	err error
}

const pumpBufferBytes = 64 << 10

func newPumpedInput(f *os.File) *pumpedInput {
	in := &pumpedInput{chunks: make(chan pumpedChunk), free: make(chan []byte, 1), ended: make(chan struct{})}
	in.free <- make([]byte, pumpBufferBytes)
	go in.pump(f)
	return in
}

func (in *pumpedInput) pump(f *os.File) {
	for {
		var buf []byte
		select {
		case buf = <-in.free:
		case <-in.ended:
			return
		}
		n, err := f.Read(buf)
		select {
		case in.chunks <- pumpedChunk{buf, n, err}:
		case <-in.ended:
			return
		}
		if err != nil {
			return
		}
	}
}

func (in *pumpedInput) Read(p []byte) (int, error) {
	select {
	case <-in.ended:
		return 0, io.EOF
	default:
	}
	for len(in.rest) == 0 {
		if in.err != nil {
			return 0, in.err
		}
		if in.buf != nil {
			in.free <- in.buf
			in.buf = nil
		}
		select {
		case c := <-in.chunks:
			in.buf, in.rest, in.err = c.buf, c.buf[:c.n], c.err
		case <-in.ended:
			return 0, io.EOF
		}
	}
	n := copy(p, in.rest)
	in.rest = in.rest[n:]
	return n, nil
}

func (in *pumpedInput) ReadIdle(p []byte) (int, error) { return in.Read(p) }

func (in *pumpedInput) stop() { in.once.Do(func() { close(in.ended) }) }

func (in *pumpedInput) Close() error {
	in.stop()
	return nil
}
