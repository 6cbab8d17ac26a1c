package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"

	"mcpwire/tools/bench/loop"
)

// A pipe makes calls over stdio. The goroutine that is writing also writes what others queue
// meanwhile.
type pipe struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	modern bool

	mu      sync.Mutex
	nextID  int64
	waiting map[int64]*call
	queue   []byte
	spare   []byte
	writing bool
	failed  error // of the reader
	pool    sync.Pool
}

// A call waits for its text.
type call struct {
	text []byte
	err  error
	done chan struct{}
}

// start runs the server and goes through the handshake, in the era that has one.
func start(f loop.Flags) (*pipe, error) {
	c := &pipe{cmd: exec.Command(f.Server[0], f.Server[1:]...), modern: f.Modern, waiting: map[int64]*call{}}
	c.pool.New = func() any { return &call{done: make(chan struct{}, 1)} }
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(out, 256<<10)
	if !f.Modern {
		if _, err := io.WriteString(c.in, initialize+"\n"); err != nil {
			return nil, errors.Join(err, c.close())
		}
		if _, err := r.ReadSlice('\n'); err != nil {
			return nil, errors.Join(err, c.close())
		}
		if _, err := io.WriteString(c.in, initialized+"\n"); err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	go c.read(r)
	return c, nil
}

// close ends the server's input and waits for it.
func (c *pipe) close() error {
	return errors.Join(c.in.Close(), c.cmd.Wait())
}

func (c *pipe) echo(_ context.Context, text string) (string, error) {
	w := c.pool.Get().(*call)
	c.mu.Lock()
	if c.failed != nil {
		c.mu.Unlock()
		return "", c.failed
	}
	c.nextID++
	c.waiting[c.nextID] = w
	c.queue = append(appendCall(c.queue, c.modern, c.nextID, text), '\n')
	err := c.writeLocked()
	c.mu.Unlock()
	if err != nil {
		return "", err
	}
	<-w.done
	if w.err != nil {
		return "", w.err
	}
	got := string(w.text)
	c.pool.Put(w)
	return got, nil
}

// writeLocked writes what is queued, unless somebody does.
func (c *pipe) writeLocked() error {
	if c.writing {
		return nil
	}
	c.writing = true
	defer func() { c.writing = false }()
	for len(c.queue) > 0 {
		batch := c.queue
		c.queue = c.spare[:0]
		c.mu.Unlock()
		_, err := c.in.Write(batch)
		c.mu.Lock()
		c.spare = batch
		if err != nil {
			return err
		}
	}
	return nil
}

// read hands out responses until there are no more.
func (c *pipe) read(r *bufio.Reader) {
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			c.fail(err)
			return
		}
		_, rest, _ := bytes.Cut(line, []byte(`"id":`))
		digits, _, _ := bytes.Cut(rest, []byte(","))
		id, err := strconv.ParseInt(string(digits), 10, 64)
		if err != nil {
			continue // a notification
		}
		text, err := textOf(line)
		c.mu.Lock()
		w := c.waiting[id]
		delete(c.waiting, id)
		c.mu.Unlock()
		if w != nil {
			w.text, w.err = append(w.text[:0], text...), err
			w.done <- struct{}{}
		}
	}
}

// fail ends the calls that wait, and further ones.
func (c *pipe) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = err
	for _, w := range c.waiting {
		w.err = err
		w.done <- struct{}{}
	}
}
