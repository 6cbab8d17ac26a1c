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

// newTransport returns the transport to the server. It changes no requests: compression, cookies
// and redirects are left to the client.
func newTransport(o *Options) *http.Transport {
	config := o.TLS.Clone()
	if config == nil {
		config = new(tls.Config)
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := o.Dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &serverConn{Conn: c}, nil
	}
	return &http.Transport{
		Proxy:           http.ProxyFromEnvironment,
		DialContext:     dial,
		DialTLSContext:  dialTLS(o, config),
		TLSClientConfig: config,
		Protocols:       &protocols,
		HTTP2: &http.HTTP2Config{
			// This detects a server that disappeared silently.
			SendPingTimeout: 30 * time.Second,
			PingTimeout:     15 * time.Second,
			// This delays the server while a slow client does not read.
			MaxReceiveBufferPerStream:     256 << 10,
			MaxReceiveBufferPerConnection: 256 << 20,
		},
		TLSHandshakeTimeout:   handshakeTimeout,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true,
		MaxIdleConnsPerHost:   128,
		// Some frameworks close a connection after 5 s without traffic. A request sent meanwhile
		// would be lost and may not be repeated.
		IdleConnTimeout:        4 * time.Second,
		MaxResponseHeaderBytes: o.MaxHeader,
	}
}

const handshakeTimeout = 15 * time.Second

// dialTLS connects to a server directly; connections through a proxy do not use it. For HTTP/2 it
// returns the plain *tls.Conn, which net/http requires.
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
		clientConfig.NextProtos = []string{"h2", "http/1.1"}
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
		return &serverConn{Conn: conn}, nil
	}
}

// hopByHop are the hop-by-hop fields, in addition to those that Connection names
// (https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1).
var hopByHop = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Te", "Transfer-Encoding", "Upgrade", "Http2-Settings"}

// canonicalFields are fields that net/http looks up when it writes a header. In another spelling it
// would not find them and would write them twice. Other fields that it adds can be suppressed.
var canonicalFields = []string{"Content-Length", "Expect", "Host", "Trailer"}

// endToEnd returns the fields of a header to forward. list has the spelling on the wire, or is nil
// if unknown.
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
	// Connection cannot remove the fields that delimit the message.
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
		if _, read := h[name]; !read || drop[name] { // net/http has removed it
			continue
		}
		if !slices.Contains(canonicalFields, name) {
			name = f.Name
		}
		out[name] = append(out[name], f.Value)
	}
	// Only this value has a meaning beyond a proxy.
	if hasToken(h["Te"], "trailers") {
		out["Te"] = []string{"trailers"}
	}
	return out
}

// hasToken reports whether a list of tokens contains one.
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

// mediaType returns the media type of a body in lower case, without parameters.
func mediaType(h http.Header) string {
	t, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(t))
}

// isJSON reports whether a media type is JSON, including common variants.
func isJSON(media string) bool {
	return media == "application/json" || strings.HasSuffix(media, "+json") || media == "text/json"
}

const (
	typeEvents = "text/event-stream"
	typeLines  = "application/x-ndjson"
)

// A rawHead captures the head of an HTTP/1 message on its way to net/http, which keeps neither the
// order nor the spelling of fields. A captured head is used only if net/http has read the same
// fields (see sameFields), so rawHead need not parse bodies: expect announces the next head.
type rawHead struct {
	mu    sync.Mutex
	state headState
	buf   []byte
}

type headState int

const (
	headIdle  headState = iota // ignores data
	headBegin                  // waits for the first byte
	headIn
	headDone
	headNever // not HTTP/1
)

// expect starts waiting for a head.
func (h *rawHead) expect() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != headNever {
		h.state, h.buf = headBegin, nil
	}
}

// feed examines data that was read.
func (h *rawHead) feed(p []byte) {
	if len(p) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == headBegin {
		if p[0] < 'A' || p[0] > 'Z' { // such as a TLS record
			h.state = headNever
			return
		}
		h.state = headIn
	}
	if h.state != headIn {
		return
	}
	from := max(0, len(h.buf)-3) // the end may begin in earlier data
	h.buf = append(h.buf, p[:min(len(p), maxRawHead-len(h.buf))]...)
	for {
		end := headEnd(h.buf, from)
		switch {
		case end < 0 && len(h.buf) >= maxRawHead:
			h.state, h.buf = headIdle, nil
			return
		case end < 0:
			return
		case bytes.HasPrefix(h.buf, []byte("HTTP/1.1 1")): // the final response follows
			h.buf, from = slices.Clone(h.buf[end:]), 0
		default:
			h.state, h.buf = headDone, slices.Clip(h.buf[:end])
			return
		}
	}
}

// headEnd returns the index after the empty line that ends a head, or -1.
func headEnd(b []byte, from int) int {
	end := -1
	for _, mark := range [...]string{"\r\n\r\n", "\n\n", "\n\r\n"} {
		if i := bytes.Index(b[from:], []byte(mark)); i >= 0 && (end < 0 || from+i+len(mark) < end) {
			end = from + i + len(mark)
		}
	}
	return end
}

// take returns the fields of the last captured head.
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
		if !ok || line[0] == ' ' || line[0] == '\t' { // net/http joins folded lines
			return nil, false
		}
		list = append(list, capture.Header{Name: name, Value: textproto.TrimString(value)})
	}
	return list, true
}

// rewrittenFields are fields that net/http removes from a header or adds.
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

// A clientConn is a connection from a client, whose request heads it captures.
type clientConn struct {
	serverConn
	number connNumber
}

// CloseWrite lets net/http send the end of the last response before the connection is reset.
func (c *clientConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}

// LocalAddr implements [net.Conn]. The address leads back to the connection: net/http passes it to
// handlers, with any server, and also for TLS and HTTP/2.
func (c *clientConn) LocalAddr() net.Addr { return connAddr{c.Conn.LocalAddr(), c} }

type connAddr struct {
	net.Addr
	conn *clientConn
}

// connOf returns the connection of a request, or nil if another listener accepted it.
func connOf(r *http.Request) *clientConn {
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(connAddr); ok {
		return a.conn
	}
	return nil
}

// A serverConn is a connection to the server, whose response heads it captures.
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

// maxRawHead limits a captured head in bytes.
const maxRawHead = 64 << 10

type listener struct{ net.Listener }

// Accept implements [net.Listener].
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	conn := &clientConn{serverConn: serverConn{Conn: c}}
	conn.head.expect()
	return conn, nil
}
