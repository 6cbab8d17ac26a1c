package tap

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"mcpwire/internal/trace/textlines"
)

// chunkSize is the size of a read in bytes: the capacity of a pipe.
const chunkSize = 64 << 10

// A pump reads a file to its end and forwards what it reads.
type pump struct {
	src     *os.File
	forward func(p []byte) error
	// idle reports that the pump waits for src and has forwarded all it has read.
	idle atomic.Bool
	// chunks counts the forwarded chunks.
	chunks atomic.Uint64
	// ended is closed when run returns.
	ended chan struct{}
	// err is the error of forward, valid after ended. It is nil if src has ended.
	err error
}

func newPump(src *os.File, forward func([]byte) error) *pump {
	return &pump{src: src, forward: forward, ended: make(chan struct{})}
}

// run returns at the end of src, or when forward fails.
func (p *pump) run() {
	defer close(p.ended)
	buf := make([]byte, chunkSize)
	for {
		p.idle.Store(true)
		n, err := readFile(p.src, buf)
		p.idle.Store(false)
		if n > 0 {
			if p.err = p.forward(buf[:n]); p.err != nil {
				return
			}
			p.chunks.Add(1)
		}
		if err != nil {
			return
		}
	}
}

// newStderrPump returns a pump for standard error. It continues when writing to dst fails, so that
// the server never waits for it.
func newStderrPump(dst, src *os.File, lines *textlines.Lines) *pump {
	return newPump(src, func(p []byte) error {
		if lines != nil {
			_, _ = lines.Write(p) // never fails
		}
		if dst != nil {
			if err := writeAll(dst, p); err != nil {
				dst = nil
			}
		}
		return nil
	})
}

// stuckTimeout is the time for which the tap offers remaining output to a host that does not read,
// once the server was told to end. The host may wait for the tap's end before it reads, or may
// never read standard error.
const stuckTimeout = 2 * time.Second

// drain waits until the pump of a server that has ended is done, or quit is closed. If a process
// outside the server's group holds the pipe, drain returns once the contents are forwarded. If the
// server was told to end, drain stops waiting for a host that does not read, and returns false.
func (p *pump) drain(quit <-chan struct{}, stopRequested *atomic.Bool) (done bool) {
	pipeHeld := !waitHangup(p.src, lingerGrace/5) // reap has waited already
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	chunks, since := p.chunks.Load(), time.Now()
	for {
		select {
		case <-p.ended:
			return true
		case <-quit:
			return false
		case now := <-tick.C:
			if pipeHeld && pipeEmpty(p.src) && p.idle.Load() {
				return true
			}
			if n := p.chunks.Load(); n != chunks {
				chunks, since = n, now
			} else if stopRequested.Load() && now.Sub(since) > stuckTimeout {
				return false
			}
		}
	}
}

// readFile and writeAll are for the host's files. Other processes may share the open file
// descriptions and can make them non-blocking at any time; os.File, which checks once, then returns
// EAGAIN. Node.js, for example, does so with standard error.

// readFile calls Read, and waits on EAGAIN.
func readFile(f *os.File, p []byte) (int, error) {
	for {
		n, err := f.Read(p)
		if n > 0 || !errors.Is(err, syscall.EAGAIN) || !waitReady(f, false) {
			return n, err
		}
	}
}

// writeAll writes all of p, and waits on EAGAIN.
func writeAll(f *os.File, p []byte) error {
	for {
		n, err := f.Write(p)
		if !errors.Is(err, syscall.EAGAIN) {
			return err
		}
		if p = p[n:]; !waitReady(f, true) {
			return err
		}
	}
}
