//go:build unix

package stdio

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// isBrokenPipe reports whether a write failed because nobody is left to read.
func isBrokenPipe(err error) bool {
	return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET)
}

// openInput returns an input with descriptors of its own for f, or for descriptor 0 if f is nil: os.Stdin may be something else by now.
func openInput(f *os.File) (input, error) {
	fd, err := dup(f, unix.Stdin)
	if err != nil {
		return nil, err
	}
	in, err := newInput(fd)
	if err != nil {
		unix.Close(fd)
	}
	return in, err
}

// openOutput returns an output with descriptors of its own for f, or for descriptor 1 if f is nil.
func openOutput(f *os.File) (output, error) {
	fd, err := dup(f, unix.Stdout)
	if err != nil {
		return nil, err
	}
	return newOutput(fd), nil
}

// dup returns another descriptor for f's open file, or for fd if f is nil. Programs that are started later do not inherit it. f.Fd is not used
// because it would switch the open file, which other processes may share, to blocking.
func dup(f *os.File, fd int) (int, error) {
	if f == nil {
		return dupFD(fd)
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	own := -1
	controlErr := conn.Control(func(fd uintptr) { own, err = dupFD(int(fd)) })
	return own, errors.Join(controlErr, err)
}

func dupFD(fd int) (int, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	return own, os.NewSyscallError("dup", err)
}

// readFD is read(2) without interruptions by signals.
func readFD(fd int, p []byte) (int, error) {
	for {
		n, err := unix.Read(fd, p)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// writeFD is write(2) without interruptions by signals. It may write less than len(p).
func writeFD(fd int, p []byte) (int, error) {
	for {
		n, err := unix.Write(fd, p)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// pollFDs is poll(2) without interruptions by signals; timeout is in milliseconds, negative for none.
func pollFDs(fds []unix.PollFd, timeout int) (int, error) {
	for {
		n, err := unix.Poll(fds, timeout)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// readResult turns what read(2) reported into what io.Reader wants.
func readResult(n int, err error, want int) (int, error) {
	switch {
	case err != nil:
		return max(n, 0), err
	case n == 0 && want > 0:
		return 0, io.EOF
	}
	return n, nil
}
