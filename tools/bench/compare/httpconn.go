//go:build linux

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// An httpConn is a connection that is kept alive. Its requests are encoded once,
// and their ids, all of the same length, are spliced in. A response is recognized
// by its length and by the place of its id, and parsed if it looks different, or
// if it is the turn of one to be looked at in full.
type httpConn struct {
	file    *os.File
	fd      int // of file; blocking
	addr    string
	path    string // endpoint if it is empty
	request []byte
	want    []byte // a text that every correct response contains
	idAt    int    // in request
	id      int

	read   []byte // what has come of the response
	length int    // of a response that was checked; 0 if none was
	place  int    // of the id in it
	taken  int    // responses that were not parsed since
}

const (
	firstID   = 100_000_000 // so that all have the same number of digits
	inFull    = 256         // one of so many responses is parsed
	ioTimeout = 10 * time.Second
)

func dialHTTP(addr string) (*httpConn, error) {
	c := &httpConn{addr: addr, id: firstID}
	return c, c.dial()
}

func (c *httpConn) dial() error {
	conn, err := net.DialTimeout("tcp", c.addr, ioTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	if c.file, err = conn.(*net.TCPConn).File(); err != nil {
		return err
	}
	c.fd = int(c.file.Fd())
	return errors.Join(syscall.SetNonblock(c.fd, false), c.wait(ioTimeout))
}

// wait bounds the time that a read may take.
func (c *httpConn) wait(d time.Duration) error {
	limit := syscall.NsecToTimeval(int64(d))
	return syscall.SetsockoptTimeval(c.fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &limit)
}

func (c *httpConn) close() error { return c.file.Close() }

// head returns a request's head. method and name are those of the message, which
// the modern era repeats in headers.
func (c *httpConn) head(verb string, e era, session, method, name string, length int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: compare\r\n", verb, cmp.Or(c.path, endpoint), c.addr)
	field := func(key, value string) {
		if value != "" {
			b.WriteString(key + ": " + value + "\r\n")
		}
	}
	accept := "application/json, text/event-stream"
	switch verb {
	case http.MethodPost:
		field("Content-Type", "application/json")
		field("Content-Length", strconv.Itoa(length))
	case http.MethodGet:
		accept = "text/event-stream"
	}
	field("Accept", accept)
	if method != "initialize" {
		field("MCP-Protocol-Version", e.revision)
	}
	field("Mcp-Session-Id", session)
	if e.modern() {
		field("Mcp-Method", method)
		field("Mcp-Name", name)
	}
	return b.String() + "\r\n"
}

// post returns a request for a message, as parseRequest makes it.
func (c *httpConn) post(e era, session, method, name string, message []byte) []byte {
	message = bytes.TrimSuffix(message, []byte("\n"))
	return append([]byte(c.head(http.MethodPost, e, session, method, name, len(message))), message...)
}

// open goes through the era's handshake and returns the id of the session.
func (c *httpConn) open(e era) (session string, err error) {
	for i, template := range e.handshake {
		method := []string{"initialize", "notifications/initialized"}[i]
		resp, body, err := c.roundTrip(c.post(e, session, method, "", parseRequest(template).append(nil, c.id)))
		if err != nil {
			return "", fmt.Errorf("%s: %w", method, err)
		}
		if resp.StatusCode >= http.StatusMultipleChoices || i == 0 && !bytes.Contains(body, []byte(`"result"`)) {
			return "", fmt.Errorf("%s: %s: %.200q", method, resp.Status, body)
		}
		if i == 0 {
			session = resp.Header.Get("Mcp-Session-Id")
		}
	}
	return session, nil
}

// prepare makes a call of echo the request that is sent.
func (c *httpConn) prepare(e era, session, text string) {
	c.request = c.post(e, session, "tools/call", e.toolName(), e.call(text).append(nil, c.id))
	c.idAt = bytes.LastIndex(c.request, strconv.AppendInt(nil, int64(c.id), 10))
	c.want = []byte(`"text":"` + text + `"`)
	c.length = 0
}

// roundTrip sends any request and reads its response.
func (c *httpConn) roundTrip(request []byte) (*http.Response, []byte, error) {
	if err := c.write(request); err != nil {
		return nil, nil, err
	}
	return c.response()
}

// response reads the response to any request.
func (c *httpConn) response() (*http.Response, []byte, error) {
	c.read = c.read[:0]
	for {
		if err := c.fill(); err != nil {
			return nil, nil, err
		}
		resp, body, err := parseResponse(c.read)
		if !errors.Is(err, errIncomplete) {
			return resp, body, err
		}
	}
}

// send sends the next call.
func (c *httpConn) send() error {
	c.id++
	strconv.AppendInt(c.request[c.idAt:c.idAt], int64(c.id), 10)
	c.read = c.read[:0]
	return c.write(c.request)
}

// accept looks at what has been read, and reports whether that is the response,
// and all of it.
func (c *httpConn) accept() (bool, error) {
	if c.length > 0 && c.taken < inFull {
		switch {
		case len(c.read) < c.length && bytes.HasPrefix(c.read, []byte("HTTP/1.1 200")) && !bytes.HasSuffix(c.read, []byte("0\r\n\r\n")):
			return false, nil // a shorter one, with ids of events, say, ends so
		case len(c.read) == c.length && responseID(c.read[c.place:]) == c.id:
			c.taken++
			return true, nil
		}
	}
	resp, body, err := parseResponse(c.read)
	if errors.Is(err, errIncomplete) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if resp.StatusCode != http.StatusOK || responseID(body) != c.id || !bytes.Contains(body, c.want) {
		return false, fmt.Errorf("a wrong response: %s: %.300q", resp.Status, body)
	}
	c.length, c.taken = len(c.read), 0
	c.place = bytes.LastIndex(c.read, []byte(`"id":`))
	return true, nil
}

var errIncomplete = errors.New("incomplete response")

// parseResponse parses what must be one response and nothing else.
func parseResponse(data []byte) (*http.Response, []byte, error) {
	if !bytes.Contains(data, []byte("\r\n\r\n")) {
		return nil, nil, errIncomplete
	}
	rest := bytes.NewReader(data)
	r := bufio.NewReader(rest)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return nil, nil, err
	}
	if resp.ContentLength < 0 && len(resp.TransferEncoding) == 0 || resp.Close {
		return nil, nil, fmt.Errorf("the response ends the connection: %.300q", data)
	}
	body, err := io.ReadAll(resp.Body)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), err != nil && resp.ContentLength < 0 && !bytes.HasSuffix(data, []byte("0\r\n\r\n")):
		return nil, nil, errIncomplete
	case err != nil:
		return nil, nil, err
	case rest.Len()+r.Buffered() > 0:
		return nil, nil, fmt.Errorf("more than a response: %.300q", data)
	}
	return resp, body, nil
}

// fill reads once, and write writes all, by system calls: see conn.fill.
func (c *httpConn) fill() error {
	c.read = slices.Grow(c.read, 8<<10)
	for {
		n, err := syscall.Read(c.fd, c.read[len(c.read):cap(c.read)])
		switch {
		case errors.Is(err, syscall.EINTR):
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

func (c *httpConn) write(data []byte) error {
	for len(data) > 0 {
		n, err := syscall.Write(c.fd, data)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return err
		}
		data = data[max(n, 0):]
	}
	return nil
}
