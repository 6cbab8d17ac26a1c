package taphttp

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpwire/capture"
)

// newTransport returns what brings requests to the server. It adds nothing to them: compression is the client's business, as are cookies and redirects,
// which a transport does not know of.
func newTransport(o *Options) *http.Transport {
	config := o.TLS.Clone()
	if config == nil {
		config = new(tls.Config)
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(!o.NoHTTP2)
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := o.Dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return newServerConn(c), nil
	}
	return &http.Transport{
		Proxy:           http.ProxyFromEnvironment,
		DialContext:     dial,
		DialTLSContext:  dialTLS(o, config),
		TLSClientConfig: config,
		Protocols:       &protocols,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout:               30 * time.Second, // without a frame, to notice that the server is gone without a word
			PingTimeout:                   15 * time.Second,
			MaxReceiveBufferPerStream:     256 << 10, // what a slow client leaves unread stays at the server
			MaxReceiveBufferPerConnection: 256 << 20,
		},
		TLSHandshakeTimeout:   handshakeTimeout,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true,
		MaxIdleConnsPerHost:   128,
		// Some frameworks close a connection that was idle for 5 s. A request that is on its way then is lost, and it may not be sent again.
		IdleConnTimeout:        4 * time.Second,
		MaxResponseHeaderBytes: o.MaxHeader,
	}
}

const handshakeTimeout = 15 * time.Second

// newServerConn returns a connection of which the heads are seen.
func newServerConn(c net.Conn) *serverConn {
	s := &serverConn{Conn: c}
	s.head.max = maxRawHead
	return s
}

// dialTLS connects to a server directly: what goes by a proxy does not come here. If it turns out to be HTTP/2, net/http wants to see the connection itself.
func dialTLS(o *Options, config *tls.Config) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		clientConfig := config.Clone()
		if clientConfig.ServerName == "" {
			clientConfig.ServerName = host
		}
		clientConfig.NextProtos = []string{"http/1.1"}
		if !o.NoHTTP2 {
			clientConfig.NextProtos = []string{"h2", "http/1.1"}
		}
		raw, err := o.Dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		conn := tls.Client(raw, clientConfig)
		ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
		defer cancel()
		if err := conn.HandshakeContext(ctx); err != nil {
			raw.Close()
			return nil, err
		}
		if conn.ConnectionState().NegotiatedProtocol == "h2" {
			return conn, nil
		}
		return newServerConn(conn), nil
	}
}

// hopByHop are the fields that are for the next hop only, besides those that Connection names (https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1).
var hopByHop = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Te", "Transfer-Encoding", "Upgrade", "Http2-Settings"}

// canonicalFields are the fields that net/http goes by when it writes a header, which it would not find in another spelling, and then write a second time. Others that
// it would add can be kept from it.
var canonicalFields = []string{"Content-Length", "Expect", "Host", "Trailer"}

// endToEnd returns what of a header is passed on. list has the spelling of the wire, if it is known.
func endToEnd(h http.Header, list []capture.Header) http.Header {
	drop := map[string]bool{}
	for _, name := range hopByHop {
		drop[name] = true
	}
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			drop[http.CanonicalHeaderKey(strings.TrimSpace(name))] = true
		}
	}
	// What says how long the message is cannot be dropped by naming it.
	delete(drop, "Content-Length")
	delete(drop, "Host")
	out := make(http.Header, len(h))
	if list == nil {
		for name, values := range h {
			if !drop[name] {
				out[name] = slices.Clone(values)
			}
		}
	}
	for _, f := range list {
		name := http.CanonicalHeaderKey(f.Name)
		if _, read := h[name]; !read || drop[name] { // net/http has reasons to take some out
			continue
		}
		if !slices.Contains(canonicalFields, name) {
			name = f.Name
		}
		out[name] = append(out[name], f.Value)
	}
	if hasToken(h["Te"], "trailers") { // the only one that means something to those behind a proxy
		out["Te"] = []string{"trailers"}
	}
	return out
}

// hasToken reports whether a list of tokens has one.
func hasToken(values []string, token string) bool {
	for _, v := range values {
		for t := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(t), token) {
				return true
			}
		}
	}
	return false
}

// mediaType returns the media type of a body without its parameters, in lower case.
func mediaType(h http.Header) string {
	t, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(t))
}

// isJSON also takes what some send in its place.
func isJSON(media string) bool {
	return media == "application/json" || strings.HasSuffix(media, "+json") || media == "text/json"
}

const (
	typeEvents = "text/event-stream"
	typeLines  = "application/x-ndjson"
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
