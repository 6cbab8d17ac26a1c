package tap

import (
	"os"

	"golang.org/x/sys/unix"
)

// newPipe returns a pipe. Unless polled is set, its ends are not registered with the runtime's
// poller: reads and writes are plain system calls and wake no polling thread.
func newPipe(polled bool) (r, w *os.File, err error) {
	if polled {
		return os.Pipe()
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	return os.NewFile(uintptr(p[0]), "|0"), os.NewFile(uintptr(p[1]), "|1"), nil
}
