package taphttp

import (
	"bytes"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync"

	"mcpwire/capture"
)

// A rawHead sees the head of an HTTP/1 message on its way to net/http, which keeps neither the order nor the spelling of what is in it. What it saw is believed
// only if net/http has read the same (see same), so it need not understand the framing of bodies: it is told when the next head is due.
type rawHead struct {
	mu    sync.Mutex
	max   int
	state headState
	buf   []byte
}

type headState int

const (
	headIdle  headState = iota // what comes is of no interest
	headBegin                  // waiting for its first byte
	headIn
	headDone
	headNever // this is no HTTP/1
)

// expect makes it wait for a head.
func (h *rawHead) expect() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != headNever {
		h.state, h.buf = headBegin, nil
	}
}

// feed looks at what was read.
func (h *rawHead) feed(p []byte) {
	if len(p) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == headBegin {
		if p[0] < 'A' || p[0] > 'Z' { // such as a record of TLS
			h.state = headNever
			return
		}
		h.state = headIn
	}
	if h.state != headIn {
		return
	}
	from := max(0, len(h.buf)-3) // the end may have begun before
	h.buf = append(h.buf, p[:min(len(p), h.max-len(h.buf))]...)
	for {
		end := headEnd(h.buf, from)
		switch {
		case end < 0 && len(h.buf) >= h.max:
			h.state, h.buf = headIdle, nil
			return
		case end < 0:
			return
		case bytes.HasPrefix(h.buf, []byte("HTTP/1.1 1")): // the real one is behind it
			h.buf, from = slices.Clone(h.buf[end:]), 0
		default:
			h.state, h.buf = headDone, slices.Clip(h.buf[:end])
			return
		}
	}
}

// headEnd returns where the empty line ends that ends a head, or -1.
func headEnd(b []byte, from int) int {
	end := -1
	for _, mark := range [...]string{"\r\n\r\n", "\n\n", "\n\r\n"} {
		if i := bytes.Index(b[from:], []byte(mark)); i >= 0 && (end < 0 || from+i+len(mark) < end) {
			end = from + i + len(mark)
		}
	}
	return end
}

// take returns the fields of the head that was seen last.
func (h *rawHead) take() ([]capture.Header, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != headDone {
		return nil, false
	}
	text := string(h.buf)
	h.state, h.buf = headIdle, nil
	var list []capture.Header
	_, text, _ = strings.Cut(text, "\n") // the first line
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		name, value, ok := strings.Cut(line, ":")
		if line == "" {
			break
		}
		if !ok || line[0] == ' ' || line[0] == '\t' { // folded lines are joined by net/http
			return nil, false
		}
		list = append(list, capture.Header{Name: name, Value: textproto.TrimString(value)})
	}
	return list, true
}

// rewrittenFields are what net/http takes out of a header, or adds.
var rewrittenFields = []string{"Host", "Transfer-Encoding", "Trailer", "Content-Length", "Cache-Control", "Connection"}

// sameFields reports whether net/http has read these fields.
func sameFields(list []capture.Header, h http.Header) bool {
	got := http.Header{}
	for _, f := range list {
		got.Add(f.Name, f.Value)
	}
	for name, values := range h {
		if !slices.Contains(rewrittenFields, name) && !slices.Equal(got[name], values) {
			return false
		}
	}
	for name := range got {
		if _, ok := h[name]; !ok && !slices.Contains(rewrittenFields, name) {
			return false
		}
	}
	return true
}

// A clientConn is a connection of a client.
type clientConn struct {
	net.Conn
	number connNumber
	head   rawHead
}

// Read implements [net.Conn].
func (c *clientConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.head.feed(p[:n])
	return n, err
}

// CloseWrite lets net/http send the end of a last answer before the connection is reset.
func (c *clientConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}

// LocalAddr implements [net.Conn]. The address leads back to the connection: it is what net/http hands to handlers, whoever runs the server, and through TLS and HTTP/2.
func (c *clientConn) LocalAddr() net.Addr { return connAddr{c.Conn.LocalAddr(), c} }

type connAddr struct {
	net.Addr
	conn *clientConn
}

// connOf returns the connection of a request, or nil if the listener is not ours.
func connOf(r *http.Request) *clientConn {
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(connAddr); ok {
		return a.conn
	}
	return nil
}

// A serverConn is a connection to the server.
type serverConn struct {
	net.Conn
	head rawHead
}

// Read implements [net.Conn].
func (c *serverConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.head.feed(p[:n])
	return n, err
}

// maxRawHead is how long a head may be that is kept as it came, in bytes.
const maxRawHead = 64 << 10

type listener struct{ net.Listener }

// Accept implements [net.Listener].
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	conn := &clientConn{Conn: c}
	conn.head.max = maxRawHead
	conn.head.expect()
	return conn, nil
}
