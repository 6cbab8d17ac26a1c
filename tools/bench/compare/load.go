//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"
)

// A conn is a session with a running server. It is used by one goroutine.
type conn struct {
	cmd     *exec.Cmd
	in, out *os.File
	inFD    int // of in; blocking
	outFD   int // of out; not blocking
	call    request
	want    []byte // a text that every correct response contains
	nextID  int

	read    []byte                     // what came in and is not a whole line yet
	write   []byte                     // scratch for requests
	unsent  []byte                     // what the pipe had no room for
	post    func(message []byte) error // sends instead of a pipe, if it is not nil
	started map[int]time.Time          // calls in flight, by id
	took    []time.Duration            // calls answered in this block
}

func newConn(cmd *exec.Cmd, in, out *os.File, e era, text string) *conn {
	c := &conn{cmd: cmd, in: in, out: out, inFD: int(in.Fd()), outFD: int(out.Fd()), started: map[int]time.Time{}}
	c.prepare(e, text)
	return c
}

// prepare makes a call of echo the request that is sent.
func (c *conn) prepare(e era, text string) {
	c.call, c.want = e.call(text), []byte(`"text":"`+text+`"`)
}

// open goes through the era's handshake, one message at a time.
func (c *conn) open(e era) error {
	for _, template := range e.handshake {
		r := parseRequest(template)
		if err := c.send(r.append(nil, c.nextID)); err != nil {
			return err
		}
		if r.tail == "" {
			continue
		}
		line, err := c.answer(c.nextID)
		if err != nil {
			return fmt.Errorf("handshake: %w", err)
		}
		if !bytes.Contains(line, []byte(`"result"`)) {
			return fmt.Errorf("handshake: unexpected answer %s", line)
		}
		c.nextID++
	}
	return nil
}

// close ends the input and waits for the server.
func (c *conn) close() error {
	err := errors.Join(c.out.Close(), c.in.Close())
	timer := time.AfterFunc(5*time.Second, func() { c.cmd.Process.Kill() })
	defer timer.Stop()
	return errors.Join(err, c.cmd.Wait())
}

// A sample is what one block showed.
type sample struct {
	time time.Duration // the median from request to response, or the mean per call
	cpu  time.Duration // of the program that is measured, per call

	calls int
}

// load keeps so many calls in flight for the duration, waits for the last
// response and checks all of them.
func (c *conn) load(window int, duration time.Duration, onOne bool) (s sample, err error) {
	err = placeWith(c.cmd.Process.Pid, onOne, func() error {
		s, err = c.loadHere(window, duration)
		return err
	})
	return s, err
}

func (c *conn) loadHere(window int, duration time.Duration) (sample, error) {
	before, err := cpuTime(c.cmd.Process.Pid)
	if err != nil {
		return sample{}, err
	}
	s, err := c.exchange(window, duration)
	if err != nil {
		return sample{}, err
	}
	after, err := cpuTime(c.cmd.Process.Pid)
	if err != nil {
		return sample{}, err
	}
	s.cpu = (after - before) / time.Duration(s.calls)
	return s, nil
}

// exchange is load that does not look at the processor time.
func (c *conn) exchange(window int, duration time.Duration) (sample, error) {
	c.took = c.took[:0]
	end := time.Now().Add(duration)
	if err := c.ask(window); err != nil {
		return sample{}, err
	}
	for len(c.started) > 0 {
		n, err := c.receive()
		if err != nil {
			return sample{}, err
		}
		if n > 0 && time.Now().Before(end) {
			if err := c.ask(n); err != nil {
				return sample{}, err
			}
		}
	}
	slices.Sort(c.took)
	return sample{time: c.took[len(c.took)/2], calls: len(c.took)}, nil
}

// ask sends n calls in one write.
func (c *conn) ask(n int) error {
	c.write = c.write[:0]
	now := time.Now()
	for range n {
		c.started[c.nextID] = now
		c.write = c.call.append(c.write, c.nextID)
		c.nextID++
		if c.post == nil {
			continue
		}
		if err := c.post(c.write); err != nil {
			return err
		}
		c.write = c.write[:0]
	}
	return c.send(c.write)
}

// receive reads once and returns how many calls that answered.
func (c *conn) receive() (int, error) {
	if err := c.fill(); err != nil {
		return 0, err
	}
	now := time.Now()
	answered, rest := 0, c.read
	for {
		line, tail, found := bytes.Cut(rest, []byte("\n"))
		if !found {
			break
		}
		rest = tail
		id := responseID(line)
		if id < 0 {
			continue // a notification
		}
		start, ok := c.started[id]
		if !ok || !bytes.Contains(line, c.want) {
			return 0, fmt.Errorf("a wrong response: %s", line)
		}
		delete(c.started, id)
		c.took = append(c.took, now.Sub(start))
		answered++
	}
	c.read = append(c.read[:0], rest...)
	return answered, nil
}

// answer reads the response to a request.
func (c *conn) answer(id int) ([]byte, error) {
	for {
		line, err := c.line()
		if err != nil || responseID(line) == id {
			return line, err
		}
	}
}

// line reads the next line.
func (c *conn) line() ([]byte, error) {
	for {
		if line, rest, found := bytes.Cut(c.read, []byte("\n")); found {
			c.read = rest
			return line, nil
		}
		if err := c.fill(); err != nil {
			return nil, err
		}
	}
}

// fill and send use system calls: through os.File they would wait in the runtime's poller, which
// costs more than the fastest server. What does not fit into the pipe is sent while fill waits,
// because the reader may need to write first.
func (c *conn) fill() error {
	c.read = slices.Grow(c.read, 64<<10)
	for {
		if len(c.unsent) > 0 {
			if readable, err := c.push(); err != nil {
				return err
			} else if !readable {
				continue
			}
		}
		n, err := syscall.Read(c.inFD, c.read[len(c.read):cap(c.read)])
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return io.ErrUnexpectedEOF
		}
		c.read = c.read[:len(c.read)+n]
		return nil
	}
}

// push waits until something can be sent or read, sends what can be, and reports
// whether something can be read.
func (c *conn) push() (readable bool, err error) {
	in, out, err := await(c.inFD, c.outFD)
	if err != nil || !out {
		return in, err
	}
	rest, err := put(c.outFD, c.unsent)
	c.unsent = append(c.unsent[:0], rest...)
	return in, err
}

func (c *conn) send(data []byte) error {
	if c.post != nil && len(data) > 0 {
		return c.post(data)
	}
	if len(c.unsent) > 0 {
		c.unsent = append(c.unsent, data...)
		return nil
	}
	rest, err := put(c.outFD, data)
	c.unsent = append(c.unsent, rest...)
	return err
}

// put writes what there is room for, and returns the rest.
func put(fd int, data []byte) ([]byte, error) {
	for len(data) > 0 {
		n, err := syscall.Write(fd, data)
		switch {
		case err == syscall.EAGAIN:
			return data, nil
		case err != nil && err != syscall.EINTR:
			return data, err
		}
		data = data[max(n, 0):]
	}
	return nil, nil
}
