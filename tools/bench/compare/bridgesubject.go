//go:build linux

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// A subject is what a client calls: a server, or a bridge in front of it.
type subject struct {
	name   string
	era    era // the client's
	failed error
	pid    int      // of the bridge; 0 without a bridge
	slow   bool     // it takes a while to get warm
	server string   // the binary of the server that it may start, which is no part of it
	log    *os.File // of standard error

	conn *conn      // on stdio, or the stream of old
	old  *oldClient // over HTTP+SSE
	site *site      // over HTTP and HTTP+SSE
	id   string     // of the session that all its connections have
	used time.Time  // when the last call was answered
}

// connect runs a command, or takes the URL that it is, and opens a session. The subject must be
// closed, unless it is nil.
func (p *bridgeEnd) connect(name string, w way, e era, command []string) (*subject, error) {
	log, err := os.CreateTemp(p.dir, "log")
	if err != nil {
		return nil, err
	}
	s := &subject{name: name, era: e, server: p.server, log: log}
	start := func(command []string) *exec.Cmd {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Stderr = log
		return cmd
	}
	switch {
	case w.downstream == onStdio:
		if s.conn, err = startConn(start(command), e, ""); err != nil {
			return s, err
		}
		s.pid = s.conn.cmd.Process.Pid
	case len(command) == 1:
		addr, _, _ := strings.Cut(strings.TrimPrefix(command[0], "http://"), "/")
		s.site = &site{name: name, addr: addr}
	default:
		var configured error
		s.site, err = launchSite(name, func(addr string) *exec.Cmd {
			if p.configure != nil {
				configured = p.configure(addr)
			}
			return start(at(command, addr))
		})
		if err := errors.Join(configured, err); err != nil {
			return s, err
		}
		s.pid = s.site.cmd.Process.Pid
	}
	if strings.HasPrefix(name, unbridged) { // it is the server
		s.pid = 0
	}
	if w.downstream == onOld {
		// Some listen before they can serve.
		for began := time.Now(); ; <-time.After(100 * time.Millisecond) {
			s.conn, s.old, err = dialOld(s.site.addr, cmp.Or(p.oldPath, oldPath), e)
			if err == nil {
				break
			}
			if time.Since(began) > startLimit {
				return s, err
			}
		}
	}
	return s, s.settle()
}

func (s *subject) close() error {
	defer s.log.Close()
	if s.old != nil {
		s.old.close()
		s.conn.in.Close()
	}
	switch {
	case s.conn != nil && s.old == nil:
		return s.conn.close()
	case s.site == nil:
		return nil
	case s.site.cmd != nil:
		return s.site.close()
	}
	for _, c := range s.site.conns {
		c.close()
	}
	return nil
}

// lastWords is what the bridge wrote last to standard error.
func (s *subject) lastWords() string {
	text, err := os.ReadFile(s.log.Name())
	text = bytes.TrimSpace(text)
	if err != nil || len(text) == 0 {
		return ""
	}
	return "\n" + string(text[max(0, len(text)-1000):])
}

// settle opens the session, and calls until that works: some bridges send the server the end of the
// handshake after they have reported it.
func (s *subject) settle() error {
	if s.conn == nil {
		c, err := dialHTTP(s.site.addr)
		if err != nil {
			return err
		}
		s.site.conns = append(s.site.conns, c)
		if s.id, err = c.open(s.era); err != nil {
			return err
		}
	}
	var last error
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for began := time.Now(); time.Since(began) < ioTimeout; <-again.C {
		if last = s.try(); last == nil {
			s.used = time.Now()
			return nil
		}
	}
	return last
}

// try makes one call.
func (s *subject) try() error {
	var answer []byte
	if s.conn == nil {
		c := s.site.conns[0]
		c.prepare(s.era, s.id, "")
		resp, body, err := c.roundTrip(c.request)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %.200q", resp.Status, body)
		}
		answer = body
	} else {
		c := s.conn
		c.nextID++
		if err := c.send(c.call.append(nil, c.nextID-1)); err != nil {
			return err
		}
		line, err := c.answer(c.nextID - 1)
		if err != nil {
			return err
		}
		answer = line
	}
	if !bytes.Contains(answer, []byte(`"content"`)) {
		return fmt.Errorf("a wrong answer: %.200q", answer)
	}
	return nil
}

// warmBlocks is how many blocks it may take until a just-in-time compiler has done its work.
const warmBlocks = 10

// prepare makes load send calls with a text, and warms up a subject that is slow to warm up.
func (s *subject) prepare(window int, text string, block time.Duration) error {
	if s.failed != nil {
		return nil
	}
	if s.old != nil {
		if err := s.old.dial(window, s.site.addr); err != nil {
			return err
		}
	}
	if s.conn != nil {
		s.conn.prepare(s.era, text)
	} else {
		for len(s.site.conns) < window {
			c, err := dialHTTP(s.site.addr)
			if err != nil {
				return err
			}
			s.site.conns = append(s.site.conns, c)
		}
		for i, c := range s.site.conns {
			c.id = firstID * (i + 1) // ids must differ within a session
			c.prepare(s.era, s.id, text)
		}
	}
	if !s.slow {
		return nil
	}
	_, err := s.load(window, warmBlocks*block)
	return err
}

// maxIdle is how long a connection is used again after the last call. One of the bridges closes it
// after 5 s.
const maxIdle = 2 * time.Second

// load keeps so many calls in flight for the duration, and returns the median round trip of one, or
// what many take per call, and the CPU time of the bridge.
func (s *subject) load(window int, duration time.Duration) (sample, error) {
	if time.Since(s.used) > maxIdle {
		if err := s.redial(); err != nil {
			return sample{}, err
		}
	}
	var bridge []int
	var err error
	if s.pid != 0 {
		if bridge, err = processes(s.pid, s.server); err != nil {
			return sample{}, err
		}
	}
	before, err := cpuTimes(bridge)
	if err != nil {
		return sample{}, err
	}
	began := time.Now()
	taken, err := s.call(window, duration)
	if err != nil {
		return sample{}, err
	}
	if s.used = time.Now(); window > 1 {
		taken.time = s.used.Sub(began) / time.Duration(taken.calls)
	}
	after, err := cpuTimes(bridge)
	taken.cpu = (after - before) / time.Duration(taken.calls)
	return taken, err
}

// redial makes all connections anew that requests are sent on.
func (s *subject) redial() error {
	if s.old != nil {
		return s.old.redial()
	}
	if s.site != nil {
		for _, c := range s.site.conns {
			if err := errors.Join(c.close(), c.dial()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *subject) call(window int, duration time.Duration) (sample, error) {
	switch {
	case s.conn == nil:
		return s.site.call(window, duration)
	case s.old != nil:
		return s.conn.exchange(window, duration) // its reads have a limit
	}
	limit := time.AfterFunc(duration+ioTimeout, func() { s.conn.cmd.Process.Kill() })
	taken, err := s.conn.exchange(window, duration)
	return taken, timedOut(limit, err)
}
