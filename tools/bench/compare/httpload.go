//go:build linux

package main

import (
	"errors"
	"syscall"
	"time"
)

// one calls until the time has come, one call after the other, and returns how
// long each took.
func (c *httpConn) one(end time.Time) (took []time.Duration, err error) {
	for {
		sent := time.Now()
		if !sent.Before(end) && len(took) > 0 {
			return took, nil
		}
		if err := c.send(); err != nil {
			return nil, err
		}
		for done := false; !done; {
			if err := c.fill(); err != nil {
				return nil, err
			}
			if done, err = c.accept(); err != nil {
				return nil, err
			}
		}
		took = append(took, time.Since(sent))
	}
}

// many keeps one call in flight on each connection until the time has come, and
// waits for the last response. It returns how many there were. All connections are
// served by one thread, which has nothing else to wait for.
func many(conns []*httpConn, end time.Time) (calls int, err error) {
	queue, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return 0, err
	}
	defer syscall.Close(queue)
	for i, c := range conns {
		e := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(i)}
		if err := syscall.EpollCtl(queue, syscall.EPOLL_CTL_ADD, c.fd, &e); err != nil {
			return 0, err
		}
		if err := c.send(); err != nil {
			return 0, err
		}
	}
	events := make([]syscall.EpollEvent, len(conns))
	for inFlight := len(conns); inFlight > 0; {
		n, err := syscall.EpollWait(queue, events, int(ioTimeout.Milliseconds()))
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return calls, err
		case n == 0:
			return calls, errors.New("no response")
		}
		for _, e := range events[:n] {
			c := conns[e.Fd]
			if err := c.fill(); err != nil {
				return calls, err
			}
			done, err := c.accept()
			if err != nil {
				return calls, err
			}
			if !done {
				continue
			}
			calls++
			if !time.Now().Before(end) {
				inFlight--
			} else if err := c.send(); err != nil {
				return calls, err
			}
		}
	}
	return calls, nil
}
