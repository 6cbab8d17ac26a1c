package httpserve

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"time"

	"mcpwire/internal/base/defaults"
)

// Options are the options of [ListenAndServe] and [Serve]. The zero value, like nil, serves
// HTTP/1.1 on the loopback interface.
type Options struct {
	// AllowRemote permits addresses that other machines can reach. They are an error otherwise,
	// because an open server is rarely meant for everybody: set it once something authenticates
	// callers.
	AllowRemote bool

	// CertFile and KeyFile turn on TLS and HTTP/2. They are in PEM; the certificate is followed by
	// the chain to the root. The server reloads them when they change, and keeps the last valid
	// pair.
	CertFile, KeyFile string
	// TLS turns on TLS with a configuration that contains certificates, or adds to CertFile and
	// KeyFile, for example ClientCAs. It is copied. The minimum version is 1.2.
	TLS *tls.Config
	// H2C also accepts HTTP/2 without TLS from clients with prior knowledge (RFC 9113, section
	// 3.3), such as a proxy in front.
	H2C bool

	// MaxConns limits the open connections. More wait to be accepted. Zero means 20,000.
	MaxConns int
	// MaxHeader limits a request's header, in bytes. Zero means 64 KiB.
	MaxHeader int
	// HeaderTimeout limits the time for a request's header to arrive, and for the part of the body
	// that the handler has not read. Zero means 5 s.
	HeaderTimeout time.Duration
	// WriteTimeout limits the time for a client to read up to 64 KiB of one write, unless the
	// handler sets a deadline. With HTTP/1 it may last twice as long. Zero means 10 s.
	WriteTimeout time.Duration
	// ShutdownDelay is the time between the end of ctx and the shutdown, in which the server serves
	// as before. Zero means none.
	ShutdownDelay time.Duration
	// ShutdownTimeout is the grace period for pending requests. Zero means 10 s.
	ShutdownTimeout time.Duration

	// OnListen is called with the address before the first connection is accepted.
	OnListen func(net.Addr)
	// OnShutdown is called on shutdown, with a context that ends after ShutdownTimeout. It must end
	// requests that would never end themselves. Nil calls the handler's method
	// Shutdown(context.Context) error, if any. Set OnShutdown if the handler wraps one that has it.
	OnShutdown func(context.Context) error

	// Logger receives the log. Nil discards it.
	Logger *slog.Logger
}

const (
	maxConnStreams = 250             // requests of one HTTP/2 connection
	idleTimeout    = 2 * time.Minute // between requests; up to twice that with HTTP/1 without TLS
)

func (o *Options) setDefaults() {
	defaults.IfNotPositive(&o.MaxConns, 20_000)
	defaults.IfNotPositive(&o.MaxHeader, 64<<10)
	defaults.IfNotPositive(&o.HeaderTimeout, 5*time.Second)
	defaults.IfNotPositive(&o.WriteTimeout, 10*time.Second)
	defaults.IfNotPositive(&o.ShutdownTimeout, 10*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// ErrRemoteAddress is the error for an address that other machines can reach, see
// [Options.AllowRemote].
var ErrRemoteAddress = errors.New("other machines can reach this address, so requests need authentication")

// ListenAndServe listens at a TCP address and calls [Serve]. An address without a host, such as
// ":8080", means 127.0.0.1, and "" a free port there. To listen on all interfaces, use 0.0.0.0 or
// [::] and set [Options.AllowRemote].
func ListenAndServe(ctx context.Context, addr string, h http.Handler, o *Options) error {
	addr, err := localAddress(addr, o != nil && o.AllowRemote)
	if err != nil {
		return err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return Serve(ctx, l, h, o)
}

// localAddress completes an address. It rejects remote IP addresses; Serve checks the others when
// there is a listener.
func localAddress(addr string, remote bool) (string, error) {
	if addr == "" {
		addr = ":0"
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	if host == "" {
		host = "127.0.0.1"
	}
	if ip, err := netip.ParseAddr(host); err == nil && !ip.IsLoopback() && !remote {
		return "", remoteAddressError(addr)
	}
	return net.JoinHostPort(host, port), nil
}

func remoteAddressError(addr string) error {
	return fmt.Errorf("listen at %.100q: %w; then set AllowRemote, or listen at 127.0.0.1", addr, ErrRemoteAddress)
}

// Serve accepts connections from l until ctx ends and [Options.ShutdownDelay] has passed. It then
// shuts down: it calls [Options.OnShutdown], closes the listener, waits for pending requests, and
// aborts those that take longer than [Options.ShutdownTimeout]. It returns nil if it aborted none.
// The contexts of requests do not end with ctx, but when the client disconnects or the request is
// aborted. Serve does not wait for handlers that ignore that.
//
// A panic in the handler only fails its request: the client gets status 500, or a truncated
// response if it has begun. Serve copies o, which may be nil, and always closes l. It returns
// [ErrRemoteAddress] for a TCP listener that is not on a loopback address, without
// [Options.AllowRemote].
func Serve(ctx context.Context, l net.Listener, h http.Handler, o *Options) error {
	var opts Options
	if o != nil {
		opts = *o
	}
	opts.setDefaults()
	if at, ok := l.Addr().(*net.TCPAddr); ok && !at.IP.IsLoopback() && !opts.AllowRemote {
		l.Close()
		return remoteAddressError(at.String())
	}
	config, err := opts.tlsConfig()
	if err != nil {
		l.Close()
		return err
	}
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	srv := opts.httpServer(base, h, config)
	bounded := newBoundedListener(l, opts.connLimits(config), opts.Logger)
	defer bounded.Close()
	if opts.OnListen != nil {
		opts.OnListen(l.Addr())
	}
	failed := make(chan error, 1)
	// This goroutine ends when the listener is closed, which shutdown waits for.
	go func() {
		if config != nil {
			failed <- srv.ServeTLS(bounded, "", "")
		} else {
			failed <- srv.Serve(bounded)
		}
	}()
	serving, stop := context.WithCancel(base)
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(opts.ShutdownDelay, stop) })()
	select {
	case <-serving.Done():
		err = opts.shutdown(ctx, srv, h, bounded)
		<-failed
	case err = <-failed:
		err = errors.Join(err, opts.shutdown(ctx, srv, h, nil))
	}
	return err
}

// httpServer returns the HTTP server. It has no WriteTimeout and no ReadTimeout, since both would
// end live streams: the handler, serverHandler and the connection set the limits instead.
func (o *Options) httpServer(base context.Context, h http.Handler, config *tls.Config) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(config != nil)
	protocols.SetUnencryptedHTTP2(o.H2C)
	srv := &http.Server{
		Handler:        &serverHandler{next: h, opts: o},
		TLSConfig:      config,
		MaxHeaderBytes: o.MaxHeader,
		Protocols:      &protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxConnStreams,
			SendPingTimeout:      h2PingInterval,
			PingTimeout:          h2PingTimeout,
			WriteByteTimeout:     o.WriteTimeout,
		},
		BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog:    slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),
	}
	if o.onlyHTTP1(config) {
		srv.ConnState = onConnState
		srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		}
	} else {
		srv.IdleTimeout, srv.ReadHeaderTimeout = idleTimeout, o.HeaderTimeout
	}
	return srv
}

// connKey is the key of a request's *boundedConn in its context.
type connKey struct{}

// onlyHTTP1 reports whether the server speaks HTTP/1 only, directly on connections of type
// boundedConn. These then limit the wait for a request and for its header: net/http would read the
// clock for that, twice in each request.
func (o *Options) onlyHTTP1(config *tls.Config) bool { return config == nil && !o.H2C }

// connLimits returns the limits of the server's connections.
func (o *Options) connLimits(config *tls.Config) connLimits {
	b := connLimits{slots: make(chan struct{}, o.MaxConns), epoch: time.Now(), writeTimeout: o.WriteTimeout}
	if o.onlyHTTP1(config) {
		b.idleTimeout, b.headerTimeout = idleTimeout, o.HeaderTimeout
	}
	return b
}

// Intervals that detect a lost HTTP/2 peer. HTTP/1.1 depends on the keep-alives of streams, and of
// TCP, which the standard library turns on.
const (
	h2PingInterval = 30 * time.Second // without a frame
	h2PingTimeout  = 15 * time.Second
)

// shutdown shuts the server down within ShutdownTimeout. l is nil if it accepts no connections any
// longer.
func (o *Options) shutdown(ctx context.Context, srv *http.Server, h http.Handler, l *boundedListener) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.ShutdownTimeout)
	defer cancel()
	end := o.OnShutdown
	if s, ok := h.(interface{ Shutdown(context.Context) error }); ok && end == nil {
		end = s.Shutdown
	}
	var err error
	if end != nil {
		err = end(ctx)
	}
	if l != nil {
		l.drain(ctx)
	}
	if err = errors.Join(err, srv.Shutdown(ctx)); err != nil {
		srv.Close()
		return fmt.Errorf("shutdown: %w", err)
	}
	return nil
}

// A serverHandler wraps the handler of a server with the duties that net/http leaves to handlers.
type serverHandler struct {
	next http.Handler
	opts *Options
}

// ServeHTTP implements [http.Handler].
func (sh *serverHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := &trackingWriter{ResponseWriter: w, ctx: r.Context(), body: r.Body}
	if r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
		// net/http has removed a Content-Length next to it, so a request with both looks like a
		// plain chunked one. A proxy may have used the length: accept nothing more on the
		// connection (RFC 9112, section 6.1).
		w.Header()["Connection"] = closeConnection
	}
	defer sh.setFinishDeadline(out, r)
	defer sh.recoverPanic(out, r)
	sh.next.ServeHTTP(out, r)
}

// closeConnection is shared by responses and never changed.
var closeConnection = []string{"close"}

// setFinishDeadline limits net/http's work after the handler has returned: with HTTP/1 it reads the
// rest of a small body, and with HTTP/2 it waits until the client has room for the rest of the
// response. Writes to the connection have their own limit.
func (sh *serverHandler) setFinishDeadline(w *trackingWriter, r *http.Request) {
	switch {
	case w.hijacked:
	case r.ProtoMajor > 1:
		http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(sh.opts.WriteTimeout))
	case r.ContentLength != 0 && !w.bodyRead:
		w.SetReadDeadline(time.Now().Add(sh.opts.HeaderTimeout))
	}
}

// recoverPanic ends a request whose handler panics.
func (sh *serverHandler) recoverPanic(w *trackingWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler {
		panic(v)
	}
	sh.opts.Logger.ErrorContext(r.Context(), "a handler panicked", "panic", v, "stack", string(debug.Stack()))
	if w.wroteHeader {
		panic(http.ErrAbortHandler) // truncates the response
	}
	h := w.Header()
	clear(h)
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	if r.ProtoMajor == 1 {
		h["Connection"] = closeConnection
	}
	w.WriteHeader(http.StatusInternalServerError)
	io.WriteString(w, panicResponse)
}

// panicResponse is the body of the response to a request whose handler panicked. It is an error of
// JSON-RPC, since most clients speak MCP; for others, any text would do.
const panicResponse = `{"jsonrpc":"2.0","error":{"code":-32603,"message":"internal error"}}` + "\n"

// A trackingWriter is an http.ResponseWriter that records the state of a request and its response.
type trackingWriter struct {
	http.ResponseWriter
	// ctx is the context of the request from net/http.
	ctx context.Context
	// body is the request's body from net/http.
	body io.ReadCloser
	// wroteHeader means that the response has begun.
	wroteHeader bool
	// hijacked means that net/http no longer has the connection.
	hijacked bool
	// bodyRead means that the body was read to its end.
	bodyRead bool
}

// MarkBodyRead notes that a handler has read the body of r to its end, so that the server does not
// look for more when the handler has returned. It has no effect if w neither is the ResponseWriter
// of a server of this package nor unwraps to it, or if a middleware replaced the body: the original
// one may have more.
func MarkBodyRead(w http.ResponseWriter, r *http.Request) {
	for {
		switch own := w.(type) {
		case *trackingWriter:
			if own.body == r.Body {
				own.bodyRead = true
				own.body.Close()
			}
			return
		case interface{ Unwrap() http.ResponseWriter }:
			w = own.Unwrap()
		default:
			return
		}
	}
}

// WriteAndFlush writes b, which must not be longer than 64 KiB, and flushes. If w is the
// ResponseWriter of a server of this package, and the connection only speaks HTTP/1 without TLS,
// one system call writes b and what precedes it in the buffers. If w cannot flush, the error is
// [http.ErrNotSupported] and b is written nevertheless. A ResponseWriter that wraps another
// one can have a method WriteAndFlush([]byte) error, which calls this function for the other.
func WriteAndFlush(w http.ResponseWriter, b []byte) error {
	t, ok := w.(*trackingWriter)
	if !ok {
		if own, ok := w.(interface{ WriteAndFlush([]byte) error }); ok {
			return own.WriteAndFlush(b)
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		return http.NewResponseController(w).Flush()
	}
	if len(b) > minJoined {
		if c, ok := t.ctx.Value(connKey{}).(*boundedConn); ok {
			c.join()
			err := t.writeAndFlush(b)
			return errors.Join(err, c.writeJoined())
		}
	}
	return t.writeAndFlush(b)
}

// CanFlush reports whether w can flush, or unwraps to a ResponseWriter that can.
func CanFlush(w http.ResponseWriter) bool {
	for {
		switch own := w.(type) {
		case http.Flusher, interface{ FlushError() error }:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = own.Unwrap()
		default:
			return false
		}
	}
}

// minJoined is the largest text that net/http certainly buffers, in bytes.
const minJoined = 2 << 10

func (w *trackingWriter) writeAndFlush(b []byte) error {
	if _, err := w.Write(b); err != nil {
		return err
	}
	return w.FlushError()
}

func (w *trackingWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.wroteHeader = true
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *trackingWriter) Write(b []byte) (int, error) {
	w.wroteHeader = true
	return w.ResponseWriter.Write(b)
}

func (w *trackingWriter) Flush() { w.FlushError() }

// FlushError is for [http.ResponseController].
func (w *trackingWriter) FlushError() error {
	w.wroteHeader = true
	if f, ok := w.ResponseWriter.(interface{ FlushError() error }); ok {
		return f.FlushError()
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// SetReadDeadline is for [http.ResponseController].
func (w *trackingWriter) SetReadDeadline(t time.Time) error {
	if d, ok := w.ResponseWriter.(interface{ SetReadDeadline(time.Time) error }); ok {
		return d.SetReadDeadline(t)
	}
	return http.NewResponseController(w.ResponseWriter).SetReadDeadline(t)
}

// Hijack is for [http.ResponseController].
func (w *trackingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.hijacked = true
		clearImplied(conn)
	}
	return conn, rw, err
}

// Unwrap is for [http.ResponseController].
func (w *trackingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
