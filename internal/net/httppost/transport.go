// Package httppost is an [http.RoundTripper] for small requests over plain HTTP/1.1, which it sends
// and whose responses it reads in the goroutine of the caller.
//
// The Transport of net/http has two goroutines for each connection, and each request wakes both.
// With one request at a time, that takes longer than the request itself on a loopback network.
//
// # Concurrency
//
// The methods of a [Transport] may be called by many goroutines at once.
//
// # Errors
//
// An error of dialing is that of [http.Transport.DialContext]. If the context ends, RoundTrip and
// the body of the response return its cause.
package httppost

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Limits.
const (
	// maxBody is the size of the largest body that is sent here, in bytes. It fits into the buffers
	// of a connection, so that a server that reads nothing does not block the write for long.
	maxBody = 32 << 10
	// maxHeader is the default of http.Transport.MaxResponseHeaderBytes, in bytes.
	maxHeader = 10 << 20
	// maxInformational is the number of responses with status 1xx that may precede a response.
	maxInformational = 5
	// maxBuffer is the size of the largest buffer that is kept, in bytes.
	maxBuffer = 64 << 10
)

// A Transport sends POST requests of a few KiB for http URLs by its own connections, if no proxy is
// between, and all others by an [http.Transport]. It does not ask for compression. It repeats a
// request only if nothing of it was written.
type Transport struct {
	base *http.Transport

	mu sync.Mutex
	// idle holds idle connections by the host of the URL, oldest first.
	idle map[string][]*conn
	// prune closes idle connections; nil if there are none.
	prune *time.Timer
}

// New returns a transport that dials as base does, with its limits. Base must not change
// afterwards.
func New(base *http.Transport) *Transport {
	return &Transport{base: base, idle: map[string][]*conn{}}
}

// CloseIdleConnections closes the connections that no request uses.
func (t *Transport) CloseIdleConnections() {
	t.closeIdle(func(*conn) bool { return true })
	t.base.CloseIdleConnections()
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !t.takes(r) {
		return t.base.RoundTrip(r)
	}
	buf := buffers.Get().(*bytes.Buffer)
	defer func() {
		if buf.Cap() <= maxBuffer {
			buf.Reset()
			buffers.Put(buf)
		}
	}()
	if err := r.Write(buf); err != nil { // it closes the body
		return nil, err
	}
	for {
		c, err := t.connect(r)
		if err != nil {
			return nil, err
		}
		c.begin(r.Context())
		n, err := c.Conn.Write(buf.Bytes())
		if err == nil {
			return c.readResponse(r)
		}
		reused := c.reused
		if err = c.fail(err); n > 0 || !reused || r.Context().Err() != nil {
			return nil, err
		}
	}
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// takes reports if the request is one that base need not send.
func (t *Transport) takes(r *http.Request) bool {
	switch {
	case !canCheckIdle, r.Method != http.MethodPost, r.URL == nil || r.URL.Scheme != "http" || r.URL.Host == "",
		r.Body == nil, r.ContentLength <= 0, r.ContentLength > maxBody, len(r.TransferEncoding) > 0, r.Trailer != nil, r.Close,
		r.Header["Expect"] != nil, r.Header["Upgrade"] != nil, r.Header["Connection"] != nil,
		t.base.DialContext == nil, t.base.ResponseHeaderTimeout != 0, t.base.MaxConnsPerHost != 0, t.base.DisableKeepAlives,
		strings.ContainsFunc(r.URL.Host, func(r rune) bool { return r >= 0x80 }), httptrace.ContextClientTrace(r.Context()) != nil,
		!isPlain(r.Header):
		return false
	case t.base.Proxy == nil:
		return true
	}
	proxy, err := t.base.Proxy(r)
	return proxy == nil && err == nil
}

// isPlain reports if a header has only names and values that can be sent. Base returns the error
// for others.
func isPlain(h http.Header) bool {
	for name, values := range h {
		for i := range len(name) {
			if c := name[i]; c != '-' && c != '_' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
				return false
			}
		}
		for _, value := range values {
			for i := range len(value) {
				if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
					return false
				}
			}
		}
	}
	return true
}

// connect returns an idle connection that is still open, or a new one.
func (t *Transport) connect(r *http.Request) (*conn, error) {
	ctx := r.Context()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	host := r.URL.Host
	for {
		c := t.takeIdle(host)
		if c == nil {
			break
		}
		if c.r.Buffered() == 0 && isQuiet(c.raw) {
			c.reused = true
			return c, nil
		}
		c.Conn.Close()
	}
	port := r.URL.Port()
	if port == "" {
		port = "80"
	}
	dialed, err := t.base.DialContext(ctx, "tcp", net.JoinHostPort(r.URL.Hostname(), port))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	}
	c := &conn{Conn: dialed, t: t, host: host}
	if sc, ok := dialed.(syscall.Conn); ok {
		c.raw, _ = sc.SyscallConn()
	}
	c.r = bufio.NewReader(c)
	return c, nil
}

func (t *Transport) takeIdle(host string) *conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.idle[host]
	if len(list) == 0 {
		return nil
	}
	c := list[len(list)-1]
	list[len(list)-1] = nil
	t.idle[host] = list[:len(list)-1]
	return c
}

// putIdle keeps a connection for another request, or closes it.
func (t *Transport) putIdle(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	limit := t.base.MaxIdleConnsPerHost
	if limit == 0 {
		limit = http.DefaultMaxIdleConnsPerHost
	}
	if len(t.idle[c.host]) >= limit {
		c.Conn.Close()
		return
	}
	c.idleSince = time.Now()
	t.idle[c.host] = append(t.idle[c.host], c)
	if t.prune == nil && t.base.IdleConnTimeout > 0 {
		t.prune = time.AfterFunc(t.base.IdleConnTimeout, t.closeExpired)
	}
}

// closeExpired closes the connections that were idle for IdleConnTimeout.
func (t *Transport) closeExpired() {
	oldest := time.Now().Add(-t.base.IdleConnTimeout)
	t.closeIdle(func(c *conn) bool { return !c.idleSince.After(oldest) })
}

// closeIdle closes the idle connections for which expired is true, and restarts or stops the timer.
func (t *Transport) closeIdle(expired func(*conn) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := time.Time{}
	for host, list := range t.idle {
		var keep []*conn
		for _, c := range list {
			if expired(c) {
				c.Conn.Close()
				continue
			}
			keep = append(keep, c)
			if next.IsZero() || c.idleSince.Before(next) {
				next = c.idleSince
			}
		}
		if t.idle[host] = keep; keep == nil {
			delete(t.idle, host)
		}
	}
	switch {
	case t.prune == nil:
	case next.IsZero():
		t.prune.Stop()
		t.prune = nil
	default:
		t.prune.Reset(time.Until(next.Add(t.base.IdleConnTimeout)))
	}
}

// A conn is a connection to a server. One goroutine uses it at a time.
type conn struct {
	net.Conn
	t    *Transport
	host string
	r    *bufio.Reader
	// raw is for isQuiet. It is nil if the connection has no descriptor.
	raw syscall.RawConn
	// reused says that the connection has served a request before.
	reused    bool
	idleSince time.Time

	ctx context.Context
	// stop ends the watch over ctx. It reports false if ctx ended.
	stop func() bool
	// headerLeft limits the bytes that may be read before the body.
	headerLeft int64
}

// begin starts a request, which ends with ctx.
func (c *conn) begin(ctx context.Context) {
	c.ctx = ctx
	c.stop = context.AfterFunc(ctx, func() { c.Conn.SetDeadline(time.Unix(1, 0)) })
	if c.headerLeft = c.t.base.MaxResponseHeaderBytes; c.headerLeft <= 0 {
		c.headerLeft = maxHeader
	}
}

// end ends a request. If keep is set, the connection can serve another one.
func (c *conn) end(keep bool) {
	if !c.stop() || !keep {
		c.Conn.Close()
		return
	}
	c.ctx, c.stop = nil, nil
	c.t.putIdle(c)
}

// fail ends a request with an error, and returns the error for the caller.
func (c *conn) fail(err error) error {
	ctx := c.ctx
	c.end(false)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Read implements io.Reader, for the bufio.Reader.
func (c *conn) Read(p []byte) (int, error) {
	if c.headerLeft <= 0 {
		return 0, errLargeHeader
	}
	if int64(len(p)) > c.headerLeft {
		p = p[:c.headerLeft]
	}
	n, err := c.Conn.Read(p)
	c.headerLeft -= int64(n)
	return n, err
}

var errLargeHeader = errors.New("the header of the response is too large")

// readResponse reads the head of the response. The body of the response ends the request.
func (c *conn) readResponse(r *http.Request) (*http.Response, error) {
	for range maxInformational + 1 {
		resp, err := http.ReadResponse(c.r, r)
		if err != nil {
			return nil, c.fail(fmt.Errorf("read the response: %w", err))
		}
		if resp.StatusCode/100 == 1 && resp.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		c.headerLeft = math.MaxInt64
		keep := !resp.Close && resp.StatusCode != http.StatusSwitchingProtocols
		if resp.Body == http.NoBody {
			c.end(keep && c.r.Buffered() == 0)
			return resp, nil
		}
		resp.Body = &body{c: c, r: resp.Body, keep: keep}
		return resp, nil
	}
	return nil, c.fail(errors.New("read the response: too many informational responses"))
}

// A body is the body of a response.
type body struct {
	r    io.Reader
	keep bool

	mu sync.Mutex
	// c is nil after the end.
	c *conn
	// err is the error of later reads.
	err error
}

// Read implements io.Reader. The end of the body frees the connection.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	c, err := b.c, b.err
	b.mu.Unlock()
	if c == nil {
		return 0, err
	}
	n, err := b.r.Read(p)
	if err == nil {
		return n, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c == nil { // closed in the meantime
		return n, b.err
	}
	b.c = nil
	if err == io.EOF {
		b.err = err
		c.end(b.keep && c.r.Buffered() == 0)
	} else {
		b.err = c.fail(err)
	}
	return n, b.err
}

// Close implements io.Closer. It may be called during Read. Before the end of the body, it closes
// the connection.
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.c; c != nil {
		b.c, b.err = nil, http.ErrBodyReadAfterClose
		c.end(false)
	}
	return nil
}
