package stdio

import (
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// largePipeBytes is what a pipe's capacity is raised to when a message did not fit: as quick as writes that block, and a hundred such processes
// stay within what Linux grants one user in pipes (fs.pipe-user-pages-soft, 64 MiB).
const largePipeBytes = 512 << 10

// An fdOutput writes to a pipe or a socket the way an fdInput reads. No write blocks a thread, and Close interrupts them.
type fdOutput struct {
	gate
	fd       int  // of its own, and does not block, for a pipe
	socket   bool // does not matter whether fd blocks
	enlarged bool // the pipe's capacity was raised, or could not be

	waiter atomic.Pointer[waiter] // made when it is first needed, by the one writer
}

// newOutput takes over fd.
func newOutput(fd int) output {
	if out, err := newFDOutput(fd); err == nil {
		return out
	}
	return newPolledOutput(fd)
}

// newFDOutput takes over fd if it succeeds.
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

// writeAvailable writes what there is room for.
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

// waitWrite writes p, for which there is no room now, as the reader makes some.
func (o *fdOutput) waitWrite(p []byte) (n int, err error) {
	if !o.socket && !o.enlarged {
		o.enlarged = true
		unix.FcntlInt(uintptr(o.fd), unix.F_SETPIPE_SZ, largePipeBytes) // an optimisation; failing is no harm
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
