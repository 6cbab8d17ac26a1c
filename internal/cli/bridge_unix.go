//go:build unix

package cli

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// whileRead returns a context that also ends when f has no reader left, for example because a host
// was killed: responses are useless then. The caller must call stop. Files that do not report this,
// such as terminals, never end the context.
func whileRead(ctx context.Context, f *os.File) (watched context.Context, stop func()) {
	watched, cancel := context.WithCancel(ctx)
	// A duplicate stays valid: the original number is reused for another file.
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
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

// pollEvery is how often whileRead checks whether its context has ended, in milliseconds.
const pollEvery = 250

// privately limits new files and sockets of the whole process to their owner until over is called.
func privately() (over func()) {
	before := unix.Umask(0o177)
	return func() { unix.Umask(before) }
}
