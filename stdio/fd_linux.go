package stdio

import (
	"errors"
	"io"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An fdInput reads a pipe or a socket. A read is one system call if data is available. It never
// changes the flags of an open file, which other processes may share:
//
//   - A pipe is opened a second time through /proc. The second open file does not block; ReadIdle
//     reads the first.
//   - A socket cannot be opened again, but recv(2) has a flag for one call that does not block.
type fdInput struct {
	gate
	// fd blocks unless this process inherited it nonblocking.
	fd int
	// nonblockFD does not block. It is -1 for a socket.
	nonblockFD int
	idling     atomic.Bool

	// The fields below belong to the one reader.
	waiter *waiter
	armed  bool
	// onReady reads into buf.
	onReady func(uintptr) bool
	buf     []byte
	n       int
	err     error
}

// newInput returns an input for fd, and owns fd unless it fails.
func newInput(fd int) (input, error) {
	if in, err := newFDInput(fd); err == nil {
		return in, nil
	}
	return newPolledInput(fd)
}

// newFDInput returns an input for fd, and owns fd unless it fails.
func newFDInput(fd int) (*fdInput, error) {
	nonblockFD, err := openNonblocking(fd, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	w, err := newWaiter()
	if err != nil {
		if nonblockFD >= 0 {
			unix.Close(nonblockFD)
		}
		return nil, err
	}
	in := &fdInput{fd: fd, nonblockFD: nonblockFD, waiter: w}
	in.release = func() {
		in.waiter.close()
		if in.nonblockFD >= 0 {
			unix.Close(in.nonblockFD)
		}
		unix.Close(in.fd)
	}
	in.onReady = func(uintptr) bool {
		if in.stopped() {
			return true
		}
		in.n, in.err = in.tryRead(in.buf)
		return in.err != unix.EAGAIN
	}
	return in, nil
}

// openNonblocking returns a descriptor for the pipe under fd that does not block, or -1 if fd is a
// socket. It returns an error for any other file.
func openNonblocking(fd, mode int) (int, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return -1, err
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFIFO:
		return reopen(fd, mode)
	case unix.S_IFSOCK:
		return -1, nil
	}
	return -1, errors.ErrUnsupported
}

// reopen opens the pipe under fd again, so that the new open file has its own flags.
func reopen(fd, mode int) (int, error) {
	return unix.Open("/proc/self/fd/"+strconv.Itoa(fd), mode|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
}

// waitFD returns the descriptor that waitRead waits for.
func (in *fdInput) waitFD() int {
	if in.nonblockFD >= 0 {
		return in.nonblockFD
	}
	return in.fd
}

func (in *fdInput) tryRead(p []byte) (int, error) {
	if in.nonblockFD >= 0 {
		return readFD(in.nonblockFD, p)
	}
	return transfer(unix.SYS_RECVFROM, in.fd, p, unix.MSG_DONTWAIT)
}

func (in *fdInput) Read(p []byte) (int, error) {
	if !in.enter() {
		return 0, io.EOF
	}
	n, err := in.tryRead(p)
	if err == unix.EAGAIN {
		n, err = in.waitRead(p)
	}
	return in.finish(n, err, len(p))
}

// waitRead reads p in the runtime's poller.
func (in *fdInput) waitRead(p []byte) (int, error) {
	if !in.armed {
		if err := in.waiter.arm(in.waitFD(), unix.EPOLLIN|unix.EPOLLRDHUP); err != nil {
			return 0, err
		}
		in.armed = true
	}
	in.buf, in.n, in.err = p, 0, nil
	if err := in.waiter.wait(in.onReady); err != nil {
		in.n, in.err = 0, err
	}
	in.buf = nil
	return in.n, in.err
}

func (in *fdInput) ReadIdle(p []byte) (int, error) {
	in.idling.Store(true)
	if !in.enter() {
		in.idling.Store(false)
		return 0, io.EOF
	}
	if in.armed {
		in.waiter.disarm(in.waitFD())
		in.armed = false
	}
	n, err := readFD(in.fd, p)
	for err == unix.EAGAIN && !in.stopped() {
		if _, err = pollFDs([]unix.PollFd{{Fd: int32(in.fd), Events: unix.POLLIN}}, -1); err == nil {
			n, err = readFD(in.fd, p)
		}
	}
	in.idling.Store(false)
	return in.finish(n, err, len(p))
}

// finish ends a read and converts its result.
func (in *fdInput) finish(n int, err error, want int) (int, error) {
	stopped := in.stopped()
	in.leave()
	if stopped {
		return 0, io.EOF
	}
	if err != nil {
		return 0, os.NewSyscallError("read", err)
	}
	return readResult(n, nil, want)
}

func (in *fdInput) stop() { in.gate.stop(in.wake) }

// wake makes pending reads return. Only input ends a blocking read(2), so wake writes a blank line
// into a pipe and shuts down a socket for reading. Later readers lose the rest of the input, but it
// belonged to this process alone.
func (in *fdInput) wake() {
	in.waiter.interrupt()
	if !in.idling.Load() {
		return
	}
	if in.nonblockFD < 0 {
		unix.Shutdown(in.fd, unix.SHUT_RD)
		return
	}
	if w, err := reopen(in.fd, unix.O_WRONLY); err == nil {
		writeFD(w, []byte{'\n'})
		unix.Close(w)
	}
}

func (in *fdInput) Close() error {
	in.stop()
	in.shut()
	return nil
}

// transfer is recv(2) or send(2), whose wrappers allocate.
func transfer(trap uintptr, fd int, p []byte, flags uintptr) (int, error) {
	for {
		n, _, errno := unix.Syscall6(trap, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), flags, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

func cloexecPipe(p []int) error { return unix.Pipe2(p, unix.O_CLOEXEC) }

// largePipeBytes is the capacity of a pipe after a message did not fit. It makes writes as fast as
// blocking ones, and a hundred such processes stay within Linux's limit for one user
// (fs.pipe-user-pages-soft, 64 MiB).
const largePipeBytes = 512 << 10

// An fdOutput writes to a pipe or a socket the way an fdInput reads. A write does not block a
// thread, and Close interrupts it.
type fdOutput struct {
	gate
	// fd does not block if it is a pipe. The fdOutput owns it.
	fd int
	// socket is set if fd is a socket, which may block.
	socket bool
	// enlarged is set after the attempt to raise the pipe's capacity.
	enlarged bool

	// waiter is nil until the one writer needs it.
	waiter atomic.Pointer[waiter]
}

// newOutput returns an output that owns fd.
func newOutput(fd int) output {
	if out, err := newFDOutput(fd); err == nil {
		return out
	}
	return newPolledOutput(fd)
}

// newFDOutput returns an output for fd, and owns fd unless it fails.
func newFDOutput(fd int) (*fdOutput, error) {
	nonblockFD, err := openNonblocking(fd, unix.O_WRONLY)
	if err != nil {
		return nil, err
	}
	out := &fdOutput{fd: fd, socket: nonblockFD < 0}
	if !out.socket {
		unix.Close(fd)
		out.fd = nonblockFD
	}
	out.release = func() {
		if w := out.waiter.Load(); w != nil {
			w.close()
		}
		unix.Close(out.fd)
	}
	return out, nil
}

func (o *fdOutput) Write(p []byte) (int, error) {
	if !o.enter() {
		return 0, os.ErrClosed
	}
	n, err := o.writeAvailable(p)
	if n < len(p) && err == nil {
		var m int
		m, err = o.waitWrite(p[n:])
		n += m
	}
	o.leave()
	return n, err
}

func (o *fdOutput) tryWrite(p []byte) (int, error) {
	if !o.enter() {
		return 0, os.ErrClosed
	}
	n, err := o.writeAvailable(p)
	o.leave()
	return n, err
}

// writeAvailable writes as much of p as fits without waiting.
func (o *fdOutput) writeAvailable(p []byte) (n int, err error) {
	if o.socket {
		n, err = transfer(unix.SYS_SENDTO, o.fd, p, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	} else {
		n, err = writeFD(o.fd, p)
	}
	if err == unix.EAGAIN {
		return 0, nil
	}
	return n, os.NewSyscallError("write", err)
}

// waitWrite writes p as the reader makes room.
func (o *fdOutput) waitWrite(p []byte) (n int, err error) {
	if !o.socket && !o.enlarged {
		o.enlarged = true
		// An optimization: failure is harmless.
		unix.FcntlInt(uintptr(o.fd), unix.F_SETPIPE_SZ, largePipeBytes)
	}
	w := o.waiter.Load()
	if w == nil {
		if w, err = newWaiter(); err != nil {
			return 0, err
		}
		o.waiter.Store(w)
	}
	if err := w.arm(o.fd, unix.EPOLLOUT); err != nil {
		return 0, err
	}
	defer w.disarm(o.fd)
	waitErr := w.wait(func(uintptr) bool {
		for n < len(p) && !o.stopped() {
			var m int
			if m, err = o.writeAvailable(p[n:]); err != nil {
				return true
			}
			if m == 0 {
				return false
			}
			n += m
		}
		return true
	})
	switch {
	case err != nil:
		return n, err
	case n < len(p) && waitErr == nil:
		return n, os.ErrClosed
	}
	return n, waitErr
}

func (o *fdOutput) Close() error {
	o.stop(func() {
		if w := o.waiter.Load(); w != nil {
			w.interrupt()
		}
	})
	o.shut()
	return nil
}

// A waiter lets a goroutine wait in the runtime's poller for a descriptor that is not registered
// there.
//
// Registering the descriptor would be simpler, but permanent: every message would then wake the
// thread in the poller as well as the reader. That doubles the time and the CPU use of a round trip
// (measured with two processors; one network connection of a handler puts a thread into the
// poller). So the waiter registers an epoll descriptor, which contains the descriptor only during a
// wait.
type waiter struct {
	// file is the epoll descriptor in the runtime's poller.
	file *os.File
	conn syscall.RawConn
	// ep is the descriptor of file.
	ep int
}

func newWaiter() (*waiter, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(ep, true); err != nil { // os.NewFile requires it
		unix.Close(ep)
		return nil, os.NewSyscallError("fcntl", err)
	}
	w := &waiter{file: os.NewFile(uintptr(ep), "epoll"), ep: ep}
	// SetReadDeadline fails if the poller did not accept the descriptor.
	if err := w.file.SetReadDeadline(time.Time{}); err != nil {
		w.file.Close()
		return nil, err
	}
	w.conn, _ = w.file.SyscallConn() // fails for nil files only
	return w, nil
}

// arm makes events of fd wake the waiting goroutine.
func (w *waiter) arm(fd int, events uint32) error {
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(w.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}))
}

// disarm undoes arm.
func (w *waiter) disarm(fd int) { unix.EpollCtl(w.ep, unix.EPOLL_CTL_DEL, fd, nil) }

// wait calls onReady after each event of the armed descriptor until it returns true.
func (w *waiter) wait(onReady func(uintptr) bool) error { return w.conn.Read(onReady) }

// interrupt makes current and future waits return.
func (w *waiter) interrupt() { w.file.SetReadDeadline(time.Unix(1, 0)) }

func (w *waiter) close() { w.file.Close() }
