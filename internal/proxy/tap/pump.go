package tap

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"mcpwire/capture"
)

// chunkSize is how much is read at once: what a pipe holds.
const chunkSize = 64 << 10

// A pump reads a file to its end, and hands on what it reads.
type pump struct {
	src     *os.File
	forward func(p []byte) error
	idle    atomic.Bool   // it waits for src, and has forwarded all that it has read
	chunks  atomic.Uint64 // that were forwarded
	ended   chan struct{} // closed when run returns
	err     error         // of forward, after ended; nil if src has ended
}

func newPump(src *os.File, forward func([]byte) error) *pump {
	return &pump{src: src, forward: forward, ended: make(chan struct{})}
}

// run returns at the end of src, or when something cannot be forwarded.
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

// newStderrPump returns a pump for standard error. It goes on reading when nobody reads ours: the server shall not wait for it.
func newStderrPump(dst, src *os.File, lines *capture.Lines) *pump {
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

// stuckTimeout is how long what is left is offered to a host that does not take it, once the server was told to end. The host may be waiting for our end before it
// reads, or have no interest in standard error at all.
const stuckTimeout = 2 * time.Second

// drain waits until the pump of a pipe that a server wrote to has ended, or quit is closed. The server has ended; if somebody outside of its group holds on to
// the pipe, it does so only until what is in it was forwarded. If the server was told to end, a host that does not read is not waited for, and the result is false.
func (p *pump) drain(quit <-chan struct{}, stopRequested *atomic.Bool) (done bool) {
	pipeHeld := !waitHangup(p.src, lingerGrace/5) // reaping has waited already
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

// read and writeAll are for the host's files. The descriptions behind them may be shared with other processes, each of which can make them non-blocking at any time, for
// all; os.File, which looks once, then returns EAGAIN. Node.js does so to a standard error that it was given, for example.

// readFile is a call of Read.
func readFile(f *os.File, p []byte) (int, error) {
	for {
		n, err := f.Read(p)
		if n > 0 || !errors.Is(err, syscall.EAGAIN) || !waitReady(f, false) {
			return n, err
		}
	}
}

// writeAll writes all of p, unless that fails.
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
