//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// holders are the servers that hold streams, which they do in the same way
// whatever else they answer by.
func holders(e era) []peer { return replies[0].servers(e) }

// memory is the memory of a process, in bytes.
type memory struct {
	resident, anonymous float64
}

// A holding is what holding streams took of a server.
type holding struct {
	before  memory // collected
	held    memory // the state after a while
	live    memory // collected
	after   memory // the streams closed, collected
	opening time.Duration
	closing time.Duration
}

// measureSessions has each server hold streams, one server after the other: the
// legacy era's, of a session each, or the modern era's subscriptions.
func measureSessions(r *run) ([]table, error) {
	var tables []table
	for _, e := range eras {
		peers, err := r.build(holders(e))
		if err != nil {
			return nil, err
		}
		stream := "sessions with a GET stream"
		if e.modern() {
			stream = "streams of subscriptions/listen"
		}
		t := table{
			title: fmt.Sprintf("%s era, %d %s: per stream", e.name, r.sessions, stream),
			columns: []string{"", "resident", "resident, collected", "anonymous, collected", "left after closing",
				"CPU to open", "CPU to close"},
		}
		for _, p := range peers {
			h, err := r.hold(e, p)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", e.name, p.name, err)
			}
			t.rows = append(t.rows, h.row(p.name, r.sessions))
		}
		tables = append(tables, t)
	}
	return tables, nil
}

func (h holding) row(name string, n int) []string {
	kb := func(bytes float64) string { return fmt.Sprintf("%.1f KB", bytes/1e3/float64(n)) }
	micros := func(d time.Duration) string { return fmt.Sprintf("%.0f µs", float64(d)/1e3/float64(n)) }
	return []string{
		name, kb(h.held.resident - h.before.resident), kb(h.live.resident - h.before.resident),
		kb(h.live.anonymous - h.before.anonymous), kb(h.after.anonymous - h.before.anonymous),
		micros(h.opening), micros(h.closing),
	}
}

// hold opens as many streams as asked for, and closes them.
func (r *run) hold(e era, p peer) (h holding, err error) {
	s, err := startSite(p)
	if err != nil {
		return h, err
	}
	defer s.close()
	// What is made once, by the first calls, is nothing that sessions take.
	if err := s.connect(1, e, r.echo); err != nil {
		return h, err
	}
	if _, err := s.load(1, r.block); err != nil {
		return h, err
	}
	if h.before, err = r.collected(s); err != nil {
		return h, err
	}
	var held []*stream
	h.opening, err = s.cost(r.settle(), func() error {
		held, err = s.openStreams(r.sessions, e)
		return err
	})
	if err != nil {
		return h, err
	}
	if h.held, err = memoryOf(s.cmd.Process.Pid); err != nil {
		return h, err
	}
	if h.live, err = r.collected(s); err != nil {
		return h, err
	}
	h.closing, err = s.cost(r.settle(), func() error { return s.closeStreams(held, e) })
	if err != nil {
		return h, err
	}
	h.after, err = r.collected(s)
	return h, err
}

// settle is how long a process is left alone before it is looked at.
func (r *run) settle() time.Duration { return min(time.Second, 10*r.block) }

// collected has the server collect its garbage, and returns its memory afterwards.
func (r *run) collected(s *site) (memory, error) {
	if err := s.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		return memory{}, err
	}
	time.Sleep(r.settle())
	return memoryOf(s.cmd.Process.Pid)
}

// cost returns the CPU time that the server takes while do runs, and for the
// time settle afterwards.
func (s *site) cost(settle time.Duration, do func() error) (time.Duration, error) {
	before, err := cpuTime(s.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	time.Sleep(settle)
	after, err := cpuTime(s.cmd.Process.Pid)
	return after - before, err
}

// A stream stays open until it is closed.
type stream struct {
	*httpConn
	session string // "" in the modern era
}

// openStreams opens sessions over the first connection, in an era that has sessions, and each
// stream over a separate connection.
func (s *site) openStreams(n int, e era) (held []*stream, err error) {
	late := false // the server says nothing before there is an event
	for i := range n {
		session := ""
		if !e.modern() {
			if session, err = s.conns[0].open(e); err != nil {
				return nil, err
			}
			if session == "" {
				return nil, errors.New("the server has no sessions")
			}
		}
		c, err := dialHTTP(s.addr)
		if err != nil {
			return nil, err
		}
		s.conns = append(s.conns, c)
		held = append(held, &stream{c, session})
		request := []byte(c.head(http.MethodGet, e, session, "", "", 0))
		if e.modern() {
			request = c.post(e, "", "subscriptions/listen", "", e.listen().append(nil, c.id))
		}
		if err := c.write(request); err != nil {
			return nil, err
		}
		if late {
			continue
		}
		if err := c.wait(time.Second); err != nil {
			return nil, err
		}
		err = c.fill()
		switch {
		case i == 0 && errors.Is(err, syscall.EAGAIN):
			late = true
		case err != nil:
			return nil, fmt.Errorf("stream %d: %w", i, err)
		case !bytes.HasPrefix(c.read, []byte("HTTP/1.1 200")):
			return nil, fmt.Errorf("stream %d: %.200q", i, c.read)
		}
	}
	return held, nil
}

// closeStreams closes the streams, and ends their sessions.
func (s *site) closeStreams(held []*stream, e era) error {
	for _, c := range held {
		if err := c.close(); err != nil {
			return err
		}
		if c.session == "" {
			continue
		}
		first := s.conns[0]
		resp, body, err := first.roundTrip([]byte(first.head(http.MethodDelete, e, c.session, "", "", 0)))
		if err != nil {
			return err
		}
		if resp.StatusCode >= http.StatusMultipleChoices {
			return fmt.Errorf("DELETE: %s: %.200q", resp.Status, body)
		}
	}
	s.conns = s.conns[:1]
	return nil
}

// memoryOf returns what the kernel counts as a process's. It does not count the
// buffers of sockets.
func memoryOf(pid int) (m memory, err error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return m, err
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		var kib float64
		if key != "VmRSS" && key != "RssAnon" {
			continue
		}
		if _, err := fmt.Sscanf(value, "%g kB", &kib); err != nil {
			return m, fmt.Errorf("%s: %w", line, err)
		}
		if key == "VmRSS" {
			m.resident = kib * 1024
		} else {
			m.anonymous = kib * 1024
		}
	}
	return m, nil
}
