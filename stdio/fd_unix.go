//go:build unix

package stdio

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// isBrokenPipe reports whether a write failed because the reader is gone.
func isBrokenPipe(err error) bool {
	return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET)
}

// openInput returns an input with a new descriptor for f, or for descriptor 0 if f is nil, because
// os.Stdin may be another file by now.
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

// openOutput returns an output with a new descriptor for f, or for descriptor 1 if f is nil.
func openOutput(f *os.File) (output, error) {
	fd, err := dup(f, unix.Stdout)
	if err != nil {
		return nil, err
	}
	return newOutput(fd), nil
}

// dup returns a new descriptor for f's open file, or for fd if f is nil. Child processes do not
// inherit it. dup avoids f.Fd, which would switch the open file to blocking; other processes may
// share it.
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

// readFD is read(2) with a retry after signals.
func readFD(fd int, p []byte) (int, error) {
	for {
		n, err := unix.Read(fd, p)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// writeFD is write(2) with a retry after signals. It may write less than len(p).
func writeFD(fd int, p []byte) (int, error) {
	for {
		n, err := unix.Write(fd, p)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// pollFDs is poll(2) with a retry after signals. timeout is in milliseconds; negative means no
// limit.
func pollFDs(fds []unix.PollFd, timeout int) (int, error) {
	for {
		n, err := unix.Poll(fds, timeout)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// retryInterval is the time between attempts to read or write a descriptor that neither blocks nor
// can be polled, in milliseconds: poll(2) of macOS does not support devices, and another process
// can make a terminal nonblocking, which all processes share.
const retryInterval = 10

// readResult converts the result of read(2) for io.Reader.
func readResult(n int, err error, want int) (int, error) {
	switch {
	case err != nil:
		return max(n, 0), err
	case n == 0 && want > 0:
		return 0, io.EOF
	}
	return n, nil
}

// A gate prevents the closing of descriptors during system calls that use them. The lock of os.File
// does that too, but it also queues readers. The gate costs the hot path two atomic additions.
//
// Invariant: release runs once, after shut, when no user is inside.
type gate struct {
	// state is gateStopped, gateShut, and gateUser for each user inside.
	state   atomic.Int64
	release func()
	once    sync.Once
}

const (
	gateStopped = 1 << iota // no new users
	gateShut                // call release when the last user leaves
	gateUser
)

// enter admits a user and returns true unless the gate is stopped. Each successful enter needs a
// leave.
func (g *gate) enter() bool {
	if g.state.Add(gateUser)&gateStopped != 0 {
		g.leave()
		return false
	}
	return true
}

// leave removes a user.
func (g *gate) leave() { g.maybeRelease(g.state.Add(-gateUser)) }

// stop rejects new users. If users are inside, the first stop calls wake before release can run.
func (g *gate) stop(wake func()) {
	g.state.Add(gateUser) // keeps release from running during wake
	if before := g.state.Or(gateStopped); before&gateStopped == 0 && before/gateUser > 1 {
		wake()
	}
	g.leave()
}

// stopped reports whether stop or shut was called.
func (g *gate) stopped() bool { return g.state.Load()&gateStopped != 0 }

// shut rejects new users and calls release when no user is inside.
func (g *gate) shut() {
	const bits = gateStopped | gateShut
	g.maybeRelease(g.state.Or(bits) | bits)
}

func (g *gate) maybeRelease(state int64) {
	if state&gateShut != 0 && state/gateUser == 0 {
		g.once.Do(g.release)
	}
}

// A polledInput waits with poll(2) for input or for stop. It supports any kind of file on any Unix,
// but costs one more system call per read and a thread that waits.
type polledInput struct {
	gate
	fd int
	// wakeR and wakeW are the ends of a pipe. A byte in it wakes poll.
	wakeR, wakeW int
	// canPoll belongs to the one reader.
	canPoll bool
}

// newPolledInput returns an input for fd, and owns fd unless it fails.
func newPolledInput(fd int) (input, error) {
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
			// Some systems cannot poll some devices. A plain read waits for those.
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
			if !in.canPoll {
				if _, err := pollFDs(fds[1:], retryInterval); err != nil {
					return 0, os.NewSyscallError("poll", err)
				}
			}
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
	// canPoll belongs to the one writer.
	canPoll bool
}

// newPolledOutput returns an output that owns fd.
func newPolledOutput(fd int) *polledOutput {
	out := &polledOutput{fd: fd, canPoll: true}
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

// waitWritable waits until a descriptor that does not block may have room. It checks for Close at
// intervals.
func (o *polledOutput) waitWritable() error {
	const checkInterval = 100 // milliseconds
	for !o.stopped() {
		if !o.canPoll {
			_, err := pollFDs(nil, retryInterval)
			return os.NewSyscallError("poll", err)
		}
		fds := []unix.PollFd{{Fd: int32(o.fd), Events: unix.POLLOUT}}
		n, err := pollFDs(fds, checkInterval)
		if o.canPoll = fds[0].Revents&unix.POLLNVAL == 0; !o.canPoll {
			continue
		}
		if n > 0 || err != nil {
			return os.NewSyscallError("poll", err)
		}
	}
	return os.ErrClosed
}

// pipeBuf is the size of a write that does not block if poll reports the pipe as writable
// (PIPE_BUF): what POSIX guarantees, and all that macOS and FreeBSD have. Linux has 4096.
const pipeBuf = 512

// tryWrite calls poll first. It leaves writes of more than pipeBuf bytes to Write.
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
	if n, err := pollFDs(fds, 0); n == 0 || err != nil || fds[0].Revents&unix.POLLNVAL != 0 {
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
