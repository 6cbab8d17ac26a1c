package streamable

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

	"mcpwire/auth"
)

// ServeOptions are the options of [ListenAndServe] and [Serve]. The zero value is ready to use, and what nil means: HTTP/1.1 on this machine's loopback.
type ServeOptions struct {
	// AllowRemote permits addresses that other machines reach. Without it they are an error, because a server that lets everybody in is rarely meant for
	// everybody: set it once something checks who is asking, such as package auth.
	AllowRemote bool

	// CertFile and KeyFile turn TLS on, and HTTP/2 with it. They are in PEM, the certificate followed by those that lead to the root. When they change they are
	// read again; if they then make no pair, the last one that did is used on.
	CertFile, KeyFile string
	// TLS turns TLS on with a configuration that has certificates itself, or adds to CertFile and KeyFile, for example ClientCAs. It is copied, and takes no
	// version before 1.2.
	TLS *tls.Config
	// H2C also takes HTTP/2 without TLS, from clients that know that they may speak it (RFC 9113, section 3.3). It is for proxies in front.
	H2C bool

	MaxConns        int           // at once; more wait to be accepted; 0 is 20,000
	MaxConnStreams  int           // requests of one HTTP/2 connection at once; 0 is 250
	MaxHeader       int           // bytes of a request's header; 0 is 64 KiB
	HeaderTimeout   time.Duration // for a request's header to arrive, and for what the handler has left of the body; 0 is 5 s
	WriteTimeout    time.Duration // for a client to take up to 64 KiB that are written at once, up to twice that with HTTP/1, unless the handler sets a deadline; 0 is 10 s
	IdleTimeout     time.Duration // of a connection between requests, up to twice that with HTTP/1 and without TLS; 0 is 2 min
	ShutdownTimeout time.Duration // for all that is under way to end; 0 is 10 s

	// OnListen is called with the address before the first connection is accepted.
	OnListen func(net.Addr)
	// OnShutdown is called when no more is to be served, with a context that ends after ShutdownTimeout. It has to end what would never end by itself. nil
	// calls the method Shutdown(context.Context) error of the handler, if it has that: [Handler.Shutdown]. Set this if the handler wraps one.
	OnShutdown func(context.Context) error

	Logger *slog.Logger // nil discards
}

func (o *ServeOptions) setDefaults() {
	setDefault(&o.MaxConns, 20_000)
	setDefault(&o.MaxConnStreams, 250)
	setDefault(&o.MaxHeader, 64<<10)
	setDefault(&o.HeaderTimeout, 5*time.Second)
	setDefault(&o.WriteTimeout, 10*time.Second)
	setDefault(&o.IdleTimeout, 2*time.Minute)
	setDefault(&o.ShutdownTimeout, 10*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// ErrRemoteAddress is why a server does not begin to listen where other machines reach it: see [ServeOptions.AllowRemote].
var ErrRemoteAddress = errors.New("other machines could reach this address, so something has to check who is asking")

// ListenAndServe listens at a TCP address and calls [Serve]. An address without a host, such as ":8080", is on 127.0.0.1, and "" is any free port there; to
// listen everywhere, name 0.0.0.0 or [::] and set [ServeOptions.AllowRemote].
func ListenAndServe(ctx context.Context, addr string, h http.Handler, o *ServeOptions) error {
	addr, err := localAddress(addr, o != nil && o.AllowRemote)
	if err != nil {
		return fmt.Errorf("streamable: %w", err)
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("streamable: %w", err)
	}
	return Serve(ctx, l, h, o)
}

// localAddress completes an address. It refuses those of which it is clear already that they are not local; of the others that is seen when there is a listener.
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
	return fmt.Errorf("not listening at %.100q: %w; then set ServeOptions.AllowRemote, or listen at 127.0.0.1", addr, ErrRemoteAddress)
}

// Serve accepts connections from l until ctx ends, and then shuts down: it calls [ServeOptions.OnShutdown], closes the listener, waits for the requests under
// way, and cuts off those that are not done within [ServeOptions.ShutdownTimeout]. It returns nil if none had to be. The contexts of requests do not
// end with ctx, but when their client is gone or they are cut off; handlers that ignore that are left behind.
//
// A panic in the handler costs its request: the client gets status 500, or, if the answer has begun, sees it break off. o may be nil; it is copied. l is closed
// in any case. The error is [ErrRemoteAddress] for a TCP listener that is not at a loopback address, without [ServeOptions.AllowRemote].
func Serve(ctx context.Context, l net.Listener, h http.Handler, o *ServeOptions) error {
	var opts ServeOptions
	if o != nil {
		opts = *o
	}
	opts.setDefaults()
	if at, ok := l.Addr().(*net.TCPAddr); ok && !at.IP.IsLoopback() && !opts.AllowRemote {
		l.Close()
		return fmt.Errorf("streamable: %w", remoteAddressError(at.String()))
	}
	config, err := opts.tlsConfig()
	if err != nil {
		l.Close()
		return fmt.Errorf("streamable: %w", err)
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
	go func() { // it ends when the listener is closed, which shutdown waits for
		if config != nil {
			failed <- srv.ServeTLS(bounded, "", "")
		} else {
			failed <- srv.Serve(bounded)
		}
	}()
	select {
	case <-ctx.Done():
		err = opts.shutdown(ctx, srv, h)
		<-failed
	case err = <-failed:
		err = errors.Join(fmt.Errorf("streamable: %w", err), opts.shutdown(ctx, srv, h))
	}
	return err
}

// httpServer returns the server. It has no WriteTimeout and no ReadTimeout, since both would end streams that are alive: what they are for is bounded by the
// handler, its guard, and the connection.
func (o *ServeOptions) httpServer(base context.Context, h http.Handler, config *tls.Config) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(config != nil)
	protocols.SetUnencryptedHTTP2(o.H2C)
	srv := &http.Server{
		Handler:        &serverHandler{next: h, opts: o, hasPrincipal: auth.PrincipalOf(base) != nil},
		TLSConfig:      config,
		MaxHeaderBytes: o.MaxHeader,
		Protocols:      &protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: o.MaxConnStreams,
			SendPingTimeout:      h2PingInterval,
			PingTimeout:          h2PingTimeout,
			WriteByteTimeout:     o.WriteTimeout,
		},
		BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog:    slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),
	}
	if o.onlyHTTP1(config) {
		srv.ConnState = onConnState
	} else {
		srv.IdleTimeout, srv.ReadHeaderTimeout = o.IdleTimeout, o.HeaderTimeout
	}
	return srv
}

// onlyHTTP1 reports whether nothing else is spoken, and nothing lies between the server and its connections. These then bound the wait for a request, and for its
// header: net/http would ask for the time for that, twice in each request.
func (o *ServeOptions) onlyHTTP1(config *tls.Config) bool { return config == nil && !o.H2C }

// connLimits returns those of the server's connections.
func (o *ServeOptions) connLimits(config *tls.Config) connLimits {
	b := connLimits{slots: make(chan struct{}, o.MaxConns), epoch: time.Now(), writeTimeout: o.WriteTimeout}
	if o.onlyHTTP1(config) {
		b.idleTimeout, b.headerTimeout = o.IdleTimeout, o.HeaderTimeout
	}
	return b
}

// How soon it is seen that the other end of an HTTP/2 connection is gone without a word. For HTTP/1.1 that is up to the signs of life that streams
// have, and to those of TCP, which the standard library turns on.
const (
	h2PingInterval = 30 * time.Second // without a frame
	h2PingTimeout  = 15 * time.Second
)

// shutdown ends everything, gently at first.
func (o *ServeOptions) shutdown(ctx context.Context, srv *http.Server, h http.Handler) error {
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
	if err = errors.Join(err, srv.Shutdown(ctx)); err != nil {
		srv.Close()
		return fmt.Errorf("streamable: shutdown: %w", err)
	}
	return nil
}

// A guard is around the handler of a server: it has what every request needs and net/http leaves to handlers.
type serverHandler struct {
	next         http.Handler
	opts         *ServeOptions
	hasPrincipal bool // the context of all requests has a principal
}

// ServeHTTP implements [http.Handler].
func (sh *serverHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := &trackingWriter{ResponseWriter: w}
	if !sh.hasPrincipal {
		out.anonymousCtx = r.Context()
	}
	out.body = r.Body
	if r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
		// A length that came together with it has been removed, so that it cannot be told from a chunked request without one. What stands between may have
		// gone by the length: nothing more is taken from there (RFC 9112, section 6.1).
		w.Header()["Connection"] = closeConnection
	}
	defer sh.setFinishDeadline(out, r)
	defer sh.recoverPanic(out, r)
	sh.next.ServeHTTP(out, r)
}

// closeConnection is shared by responses; nobody changes it.
var closeConnection = []string{"close"}

// setFinishDeadline bounds what net/http does when the handler has returned: with HTTP/1 it reads what is left of a small body, and with HTTP/2 it waits until the client has
// room for what is left of the answer, before anything is written to the connection, which is bounded by itself.
func (sh *serverHandler) setFinishDeadline(w *trackingWriter, r *http.Request) {
	switch {
	case w.hijacked:
	case r.ProtoMajor > 1:
		http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(sh.opts.WriteTimeout))
	case r.ContentLength != 0 && !w.bodyConsumed:
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
		panic(http.ErrAbortHandler) // lets the client see that the answer is not whole
	}
	h := w.Header()
	clear(h)
	setHeader(h, jsonType)
	if r.ProtoMajor == 1 {
		h["Connection"] = closeConnection
	}
	w.WriteHeader(http.StatusInternalServerError)
	w.Write([]byte(`{"jsonrpc":"2.0","error":{"code":-32603,"message":"internal error"}}` + "\n"))
}

// A trackingWriter knows what became of a request and its answer.
type trackingWriter struct {
	http.ResponseWriter
	anonymousCtx context.Context // of the request: as long as it has no other, it comes from nobody in particular; nil if that is not sure
	body         io.ReadCloser   // of the request, as net/http gave it
	wroteHeader  bool            // the answer has
	hijacked     bool            // the connection is not net/http's any more
	bodyConsumed bool            // the body was read to its end
}

// WriteHeader implements [http.ResponseWriter].
func (w *trackingWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.wroteHeader = true
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *trackingWriter) Write(b []byte) (int, error) {
	w.wroteHeader = true
	return w.ResponseWriter.Write(b)
}

// Flush implements [http.Flusher].
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
