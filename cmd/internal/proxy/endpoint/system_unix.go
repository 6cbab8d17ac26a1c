//go:build unix

package endpoint

import (
	"context"
	"errors"
	"os"
	"time"

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
		tick := time.NewTicker(pollEvery)
		defer tick.Stop()
		for {
			// macOS reports a hangup only together with whether the file is writable, which it
			// mostly is: so poll does not wait.
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
			_, err := unix.Poll(fds, 0)
			switch revents := fds[0].Revents; {
			case err != nil && !errors.Is(err, unix.EINTR), revents&unix.POLLNVAL != 0:
				return
			case revents&(unix.POLLHUP|unix.POLLERR) != 0:
				cancel()
			}
			select {
			case <-watched.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return watched, func() {
		cancel()
		<-done
	}
}

// pollEvery is how often whileRead looks for a reader.
const pollEvery = 250 * time.Millisecond

// privately limits new files and sockets of the whole process to their owner until over is called.
func privately() (over func()) {
	before := unix.Umask(0o177)
	return func() { unix.Umask(before) }
}
