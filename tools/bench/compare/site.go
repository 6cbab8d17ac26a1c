//go:build linux

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"
)

// A site is a running HTTP server, and connections to it.
type site struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{} // when the process has
	addr  string
	conns []*httpConn
}

const (
	endpoint   = "/mcp"
	startLimit = 30 * time.Second // what runs on Node takes its time on a busy machine
)

// startSite runs a server at a free address and waits until it listens.
func startSite(p peer) (*site, error) {
	return launchSite(p.name, func(addr string) *exec.Cmd {
		cmd := exec.Command(p.path, append(slices.Clone(p.args), "-http", addr)...)
		cmd.Stderr = os.Stderr
		return cmd
	})
}

// launchSite is startSite for any command.
func launchSite(name string, command func(addr string) *exec.Cmd) (*site, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &site{name: name, addr: l.Addr().String(), ended: make(chan struct{})}
	if err := l.Close(); err != nil {
		return nil, err
	}
	s.cmd = command(s.addr)
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		s.cmd.Wait()
		close(s.ended)
	}()
	for began := time.Now(); ; {
		c, err := net.Dial("tcp", s.addr)
		if err == nil {
			return s, c.Close()
		}
		select {
		case <-s.ended:
			return nil, fmt.Errorf("%s: exited: %v", name, s.cmd.ProcessState)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Since(began) > startLimit {
			return nil, errors.Join(fmt.Errorf("%s: %w", name, err), s.close())
		}
	}
}

func (s *site) url() string { return "http://" + s.addr + endpoint }

// close ends the connections and the process.
func (s *site) close() error {
	var err error
	for _, c := range s.conns {
		err = errors.Join(err, c.close())
	}
	s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(5 * time.Second):
		s.cmd.Process.Kill()
		<-s.ended
	}
	return err
}

// connect makes n connections that call echo, in the legacy era each with its own session.
func (s *site) connect(n int, e era, text string) error {
	for len(s.conns) < n {
		c, err := dialHTTP(s.addr)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		s.conns = append(s.conns, c)
		session, err := c.open(e)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		c.prepare(e, session, text)
	}
	return nil
}

// load keeps one call in flight on each of n connections for the duration. The
// time is the median round trip of one connection, or what many take per call.
func (s *site) load(n int, duration time.Duration) (sample, error) {
	pid := s.cmd.Process.Pid
	before, err := cpuTime(pid)
	if err != nil {
		return sample{}, err
	}
	r, err := s.call(n, duration)
	if err != nil {
		return sample{}, err
	}
	after, err := cpuTime(pid)
	if err != nil {
		return sample{}, err
	}
	r.cpu = (after - before) / time.Duration(r.calls)
	return r, nil
}

// call is load that does not look at the server's processor time.
func (s *site) call(n int, duration time.Duration) (sample, error) {
	began := time.Now()
	if n == 1 {
		took, err := s.conns[0].one(began.Add(duration))
		if err != nil {
			return sample{}, fmt.Errorf("%s: %w", s.name, err)
		}
		slices.Sort(took)
		return sample{time: took[len(took)/2], calls: len(took)}, nil
	}
	calls, err := many(s.conns[:n], began.Add(duration))
	if err != nil {
		return sample{}, fmt.Errorf("%s: %w", s.name, err)
	}
	return sample{time: time.Since(began) / time.Duration(calls), calls: calls}, nil
}
