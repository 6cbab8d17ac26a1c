//go:build unix

package stdio

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// A polledInput waits with poll(2) for its descriptor or for being stopped. That serves any kind of file on any Unix, at one more system call for
// each read and a thread for the waiting.
type polledInput struct {
	gate
	fd           int
	wakeR, wakeW int // a pipe; a byte in it wakes poll
	canPoll      bool
}

// newPolledInput takes over fd.
func newPolledInput(fd int) (*polledInput, error) {
	var wake [2]int
	if err := cloexecPipe(wake[:]); err != nil {
		return nil, os.NewSyscallError("pipe", err)
	}
	in := &polledInput{fd: fd, wakeR: wake[0], wakeW: wake[1], canPoll: true}
	in.release = func() {
		unix.Close(in.fd)
		unix.Close(in.wakeR)
		unix.Close(in.wakeW)
	}
	return in, nil
}

func (in *polledInput) Read(p []byte) (int, error) {
	if !in.enter() {
		return 0, io.EOF
	}
	defer in.leave()
	fds := []unix.PollFd{{Fd: int32(in.fd), Events: unix.POLLIN}, {Fd: int32(in.wakeR), Events: unix.POLLIN}}
	for {
		if in.canPoll {
			if _, err := pollFDs(fds, -1); err != nil {
				return 0, os.NewSyscallError("poll", err)
			}
			// Some systems cannot poll some devices; a plain read waits on those all the same.
			in.canPoll = fds[0].Revents&unix.POLLNVAL == 0
		}
		if in.stopped() {
			return 0, io.EOF
		}
		if in.canPoll && fds[0].Revents == 0 {
			continue
		}
		n, err := readFD(in.fd, p)
		if err == unix.EAGAIN {
			continue
		}
		return readResult(n, os.NewSyscallError("read", err), len(p))
	}
}

func (in *polledInput) ReadIdle(p []byte) (int, error) { return in.Read(p) }

func (in *polledInput) stop() {
	in.gate.stop(func() { writeFD(in.wakeW, []byte{0}) })
}

func (in *polledInput) Close() error {
	in.stop()
	in.shut()
	return nil
}

// A polledOutput writes with write(2), which blocks if the descriptor does.
type polledOutput struct {
	gate
	fd int
}

// newPolledOutput takes over fd.
func newPolledOutput(fd int) *polledOutput {
	out := &polledOutput{fd: fd}
	out.release = func() { unix.Close(out.fd) }
	return out
}

func (o *polledOutput) Write(p []byte) (int, error) {
	if !o.enter() {
		return 0, os.ErrClosed
	}
	defer o.leave()
	for done := 0; ; {
		n, err := writeFD(o.fd, p[done:])
		done += n
		switch {
		case err == unix.EAGAIN:
			if err := o.waitWritable(); err != nil {
				return done, err
			}
		case err != nil:
			return done, os.NewSyscallError("write", err)
		case done == len(p):
			return done, nil
		}
	}
}

// waitWritable waits for room on a descriptor that does not block. It looks up now and then so that Close is noticed.
func (o *polledOutput) waitWritable() error {
	const lookUp = 100 // milliseconds
	for !o.stopped() {
		n, err := pollFDs([]unix.PollFd{{Fd: int32(o.fd), Events: unix.POLLOUT}}, lookUp)
		if n > 0 || err != nil {
			return os.NewSyscallError("poll", err)
		}
	}
	return os.ErrClosed
}

// pipeBuf is what a pipe takes at once when poll says that it is writable (PIPE_BUF).
const pipeBuf = 4096

// tryWrite asks poll first, and leaves what may be more than there is room for to Write.
func (o *polledOutput) tryWrite(p []byte) (int, error) {
	if !o.enter() {
		return 0, os.ErrClosed
	}
	if len(p) > pipeBuf {
		o.leave()
		return 0, nil
	}
	defer o.leave()
	fds := []unix.PollFd{{Fd: int32(o.fd), Events: unix.POLLOUT}}
	if n, err := pollFDs(fds, 0); n == 0 || err != nil {
		return 0, os.NewSyscallError("poll", err)
	}
	n, err := writeFD(o.fd, p)
	if err == unix.EAGAIN {
		return n, nil
	}
	return n, os.NewSyscallError("write", err)
}

func (o *polledOutput) Close() error {
	o.shut()
	return nil
}
