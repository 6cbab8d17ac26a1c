package stdio

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A waiter lets a goroutine wait in the runtime's poller for a descriptor that is not registered there.
//
// Registering it would be simpler, but lasts: every message that arrives would then wake the thread that sits in the poller as well as the one that
// reads, which doubles the time and the processor use of a round trip (measured with two processors; one network connection of a handler is enough for a
// thread to sit there). So the poller gets an epoll descriptor of ours, and the descriptor is in that one only while somebody waits.
type waiter struct {
	file *os.File // the epoll descriptor, in the runtime's poller
	conn syscall.RawConn
	ep   int // of file
}

func newWaiter() (*waiter, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(ep, true); err != nil { // os.NewFile looks at that
		unix.Close(ep)
		return nil, os.NewSyscallError("fcntl", err)
	}
	w := &waiter{file: os.NewFile(uintptr(ep), "epoll"), ep: ep}
	// Fails if the poller did not take the descriptor.
	if err := w.file.SetReadDeadline(time.Time{}); err != nil {
		w.file.Close()
		return nil, err
	}
	w.conn, _ = w.file.SyscallConn() // fails for nil files only
	return w, nil
}

// arm has events of fd wake who waits.
func (w *waiter) arm(fd int, events uint32) error {
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(w.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}))
}

// disarm undoes arm.
func (w *waiter) disarm(fd int) { unix.EpollCtl(w.ep, unix.EPOLL_CTL_DEL, fd, nil) }

// wait calls try until it returns true, whenever something has happened to the armed descriptor.
func (w *waiter) wait(onReady func(uintptr) bool) error { return w.conn.Read(onReady) }

// interrupt makes wait return, now and whenever it is called.
func (w *waiter) interrupt() { w.file.SetReadDeadline(time.Unix(1, 0)) }

func (w *waiter) close() { w.file.Close() }
