package stdio

import (
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// largePipe is what a pipe's capacity is raised to when a message did not fit: as quick as writes that block, and a hundred such processes
// stay within what Linux grants one user in pipes (fs.pipe-user-pages-soft, 64 MiB).
const largePipe = 512 << 10

// An fdOutput writes to a pipe or a socket the way an fdInput reads. No write blocks a thread, and Close interrupts them.
type fdOutput struct {
	gate
	fd     int  // of its own, and does not block, for a pipe
	socket bool // does not matter whether fd blocks
	large  bool // the pipe's capacity was raised, or could not be

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
	now, err := openNow(fd, unix.O_WRONLY)
	if err != nil {
		return nil, err
	}
	out := &fdOutput{fd: fd, socket: now < 0}
	if !out.socket {
		unix.Close(fd)
		out.fd = now
	}
	out.release = func() {
		if w := out.waiter.Load(); w != nil {
			w.close()
		}
		unix.Close(out.fd)
	}
	return out, nil
}

func (out *fdOutput) Write(p []byte) (int, error) {
	if !out.enter() {
		return 0, os.ErrClosed
	}
	n, err := out.try(p)
	if n < len(p) && err == nil {
		var m int
		m, err = out.await(p[n:])
		n += m
	}
	out.leave()
	return n, err
}

func (out *fdOutput) tryWrite(p []byte) (int, error) {
	if !out.enter() {
		return 0, os.ErrClosed
	}
	n, err := out.try(p)
	out.leave()
	return n, err
}

// try writes what there is room for.
func (out *fdOutput) try(p []byte) (n int, err error) {
	if out.socket {
		n, err = transfer(unix.SYS_SENDTO, out.fd, p, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	} else {
		n, err = writeFD(out.fd, p)
	}
	if err == unix.EAGAIN {
		return 0, nil
	}
	return n, os.NewSyscallError("write", err)
}

// await writes p, for which there is no room now, as the reader makes some.
func (out *fdOutput) await(p []byte) (n int, err error) {
	if !out.socket && !out.large {
		out.large = true
		unix.FcntlInt(uintptr(out.fd), unix.F_SETPIPE_SZ, largePipe) // an optimisation; failing is no harm
	}
	w := out.waiter.Load()
	if w == nil {
		if w, err = newWaiter(); err != nil {
			return 0, err
		}
		out.waiter.Store(w)
	}
	if err := w.arm(out.fd, unix.EPOLLOUT); err != nil {
		return 0, err
	}
	defer w.disarm(out.fd)
	waitErr := w.wait(func(uintptr) bool {
		for n < len(p) && !out.stopped() {
			var m int
			if m, err = out.try(p[n:]); err != nil {
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

func (out *fdOutput) Close() error {
	out.stop(func() {
		if w := out.waiter.Load(); w != nil {
			w.interrupt()
		}
	})
	out.shut()
	return nil
}
