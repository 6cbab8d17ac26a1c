//go:build unix

package stdio

import (
	"io"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A processConn is a Process that can also write what fits into the pipe without a wait.
type processConn struct {
	*Process
	raw syscall.RawConn
	// write writes text and sets n. It is made once, so that TryWrite does not allocate.
	write func(fd uintptr) bool
	text  []byte
	n     int
}

// conn returns the Process for a framer.
func (p *Process) conn() io.ReadWriteCloser {
	raw, err := p.stdin.SyscallConn()
	if err != nil {
		return p
	}
	c := &processConn{Process: p, raw: raw}
	c.write = func(fd uintptr) bool {
		c.n, _ = writeFD(int(fd), c.text)
		return true
	}
	return c
}

// TryWrite writes as much of b as fits into the pipe, and returns the number of bytes. It must not
// be called concurrently.
func (c *processConn) TryWrite(b []byte) int {
	c.text, c.n = b, 0
	c.raw.Write(c.write) // Write returns the error, if there is one
	c.text = nil
	return c.n
}

// lingerWait limits how long the descendants of a server may hold its pipes open after its end.
const lingerWait = 250 * time.Millisecond

// linger waits until the descendants of the ended process have closed its pipes. Only Linux keeps
// the id of their group meanwhile, so elsewhere it does not wait.
func (p *Process) linger() {
	if runtime.GOOS != "linux" {
		return
	}
	limit := time.Now().Add(lingerWait)
	awaitHangup(p.stdout, time.Until(limit))
	awaitHangup(p.stderr, time.Until(limit))
}

// awaitHangup waits until the pipe has no writers or d has passed.
func awaitHangup(f *os.File, d time.Duration) {
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	conn.Control(func(fd uintptr) {
		pollFDs([]unix.PollFd{{Fd: int32(fd)}}, int(max(d, 0).Milliseconds()))
	})
}

// exitSignal returns the signal that ended a process, or nil.
func exitSignal(state *os.ProcessState) os.Signal {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return status.Signal()
	}
	return nil
}
