//go:build linux

package main

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"syscall"
)

// oldPath is where the stream of the transport of 2024-11-05 begins.
const oldPath = "/sse"

// An oldClient sends messages by that transport: each is posted, and what comes back comes by one
// stream.
type oldClient struct {
	era     era
	path    string // where messages are posted
	conns   []*httpConn
	pending []bool // whether the response to the last one has yet to be read
	next    int
}

// dialOld opens a stream and a session on it. The conn reads the stream as it reads standard
// output: lines that are no message have no id.
func dialOld(addr, path string, e era) (*conn, *oldClient, error) {
	stream, err := net.DialTimeout("tcp", addr, ioTimeout)
	if err != nil {
		return nil, nil, err
	}
	defer stream.Close()
	// To a client of HTTP/1.0 nothing is sent in chunks.
	if _, err := fmt.Fprintf(stream, "GET %s HTTP/1.0\r\nHost: %s\r\nAccept: text/event-stream\r\n\r\n", path, addr); err != nil {
		return nil, nil, err
	}
	f, err := stream.(*net.TCPConn).File()
	if err != nil {
		return nil, nil, err
	}
	c := newConn(&exec.Cmd{}, f, f, e, "")
	limit := syscall.NsecToTimeval(int64(ioTimeout))
	if err := errors.Join(syscall.SetNonblock(c.inFD, false), syscall.SetsockoptTimeval(c.inFD, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &limit)); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	o := &oldClient{era: e}
	c.post = o.post
	for o.path == "" {
		line, err := c.line()
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("no stream: %w", err), f.Close())
		}
		if data, ok := strings.CutPrefix(string(line), "data:"); ok {
			o.path = strings.TrimPrefix(strings.TrimSpace(data), "http://"+addr)
		}
	}
	if err := errors.Join(o.dial(1, addr), c.open(e)); err != nil {
		return nil, nil, errors.Join(err, o.close(), f.Close())
	}
	return c, o, nil
}

// dial makes it n connections that messages are posted on.
func (o *oldClient) dial(n int, addr string) error {
	for len(o.conns) < n {
		c, err := dialHTTP(addr)
		if err != nil {
			return err
		}
		c.path = o.path
		o.conns, o.pending = append(o.conns, c), append(o.pending, false)
	}
	return nil
}

func (o *oldClient) post(message []byte) error {
	c, pending := o.conns[o.next], &o.pending[o.next]
	o.next = (o.next + 1) % len(o.conns)
	if *pending {
		if err := accepted(c); err != nil {
			return err
		}
	}
	*pending = true
	return c.write(c.post(o.era, "", "", "", message))
}

// accepted reads a response, which must say that the message was taken.
func accepted(c *httpConn) error {
	resp, body, err := c.response()
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %.200q", resp.Status, body)
	}
	return err
}

// redial makes all connections anew.
func (o *oldClient) redial() error {
	for i, c := range o.conns {
		if err := errors.Join(c.close(), c.dial()); err != nil {
			return err
		}
		o.pending[i] = false
	}
	return nil
}

func (o *oldClient) close() (err error) {
	for _, c := range o.conns {
		err = errors.Join(err, c.close())
	}
	return err
}
