//go:build unix

package stdio

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// replaceFD duplicates fd as target and closes fd. It returns a function that restores target.
func replaceFD(fd, target int) (func(), error) {
	defer unix.Close(fd)
	saved, err := dupFD(target)
	if err != nil {
		return nil, err
	}
	if err := unix.Dup2(fd, target); err != nil {
		unix.Close(saved)
		return nil, os.NewSyscallError("dup2", err)
	}
	return func() {
		unix.Dup2(saved, target)
		unix.Close(saved)
	}, nil
}

// replaceStdin replaces descriptor 0 by the null device. It returns a function that restores it.
func replaceStdin() (func(), error) {
	null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	return replaceFD(null, unix.Stdin)
}

// replaceStdout makes g.pipe read what is written to descriptor 1. The write end blocks, because C
// code expects that.
func (g *guard) replaceStdout() (func(), error) {
	var p [2]int
	if err := cloexecPipe(p[:]); err != nil {
		return nil, os.NewSyscallError("pipe", err)
	}
	undo, err := replaceFD(p[1], unix.Stdout)
	if err != nil {
		unix.Close(p[0])
		return nil, err
	}
	if err := unix.SetNonblock(p[0], true); err == nil {
		g.pipe = os.NewFile(uintptr(p[0]), "stdout guard")
		err = g.pipe.SetReadDeadline(time.Time{})
		if err == nil {
			return undo, nil
		}
	}
	undo()
	unix.Close(p[0])
	g.pipe = nil
	return nil, errors.New("the pipe cannot be polled")
}

// readAvailable reads what is available without waiting, regardless of the file's deadline. It
// returns 0 if nothing is. The file's descriptor must not block.
func readAvailable(f *os.File, p []byte) (n int) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	conn.Control(func(fd uintptr) { n, _ = readFD(int(fd), p) })
	return max(n, 0)
}
