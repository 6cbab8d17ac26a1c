//go:build unix

package cli

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// whileRead returns a context that ends when nobody can read any more what is written to f, as is so when a host was killed: waiting for what it has asked for is in
// vain then. stop must be called in the end. A file that this cannot be told of, a terminal for example, is read for ever.
func whileRead(ctx context.Context, f *os.File) (watched context.Context, stop func()) {
	watched, cancel := context.WithCancel(ctx)
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0) // the descriptor itself is going to be another file's
	if err != nil {
		return watched, cancel
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer unix.Close(fd)
		for watched.Err() == nil {
			fds := []unix.PollFd{{Fd: int32(fd)}}
			n, err := unix.Poll(fds, pollEvery)
			switch {
			case err != nil && !errors.Is(err, unix.EINTR), n > 0 && fds[0].Revents&unix.POLLNVAL != 0:
				return
			case n > 0:
				cancel()
			}
		}
	}()
	return watched, func() {
		cancel()
		<-done
	}
}

// pollEvery is how often whileRead looks whether it is still wanted, in milliseconds.
const pollEvery = 250

// privately has files and sockets be their user's alone from the beginning, until what it returns is called. It is for the whole process.
func privately() (over func()) {
	before := unix.Umask(0o177)
	return func() { unix.Umask(before) }
}
