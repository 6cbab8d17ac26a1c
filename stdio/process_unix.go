//go:build unix

package stdio

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

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
