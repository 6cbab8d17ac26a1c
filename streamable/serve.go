package streamable

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"mcpwire/internal/net/httpserve"
)

// Serve serves srv at the path /mcp of addr until ctx ends, or SIGINT or SIGTERM arrives. It then
// shuts down as [ListenAndServe] does; a second signal ends the process at once. opts are those of
// the [Handler], and may be nil. A nil [Options.Logger] means [slog.Default]. Serve logs the URL
// when it listens.
//
// The address must be on the loopback interface. For other addresses, for TLS, or for more than
// this handler, use [ListenAndServe].
func Serve(ctx context.Context, addr string, srv Server, opts *Options) error {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	h, err := NewHandler(srv, &o)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // the second signal has its default effect
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	return ListenAndServe(ctx, addr, mux, &ServeOptions{
		OnListen:   func(at net.Addr) { o.Logger.Info("listening", "url", "http://"+at.String()+"/mcp") },
		OnShutdown: h.Shutdown,
		Logger:     o.Logger,
	})
}

// ServeOptions are the options of [ListenAndServe]. The zero value, like nil, serves HTTP/1.1 on
// the loopback interface.
type ServeOptions struct {
	// AllowRemote permits addresses that other machines can reach. They are an error otherwise,
	// because an open server is rarely meant for everybody: set it once something authenticates
	// callers, such as package auth.
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

	// ShutdownDelay is the time between the end of ctx and the shutdown, in which the server serves
	// as before. A load balancer needs it to notice that the server is no longer ready, see package
	// health. Zero means none.
	ShutdownDelay time.Duration
	// ShutdownTimeout is the grace period for pending requests. Zero means 10 s.
	ShutdownTimeout time.Duration
	// OnListen is called with the address before the first connection is accepted. Nil means no
	// call.
	OnListen func(net.Addr)
	// OnShutdown is called on shutdown, with a context that ends after ShutdownTimeout. It must end
	// requests that would never end themselves. Nil calls the handler's method
	// Shutdown(context.Context) error, if any, such as [Handler.Shutdown]. Set OnShutdown if the
	// handler wraps one.
	OnShutdown func(context.Context) error

	// Logger receives the log. Nil discards it.
	Logger *slog.Logger
}

// ListenAndServe listens at a TCP address and serves h until ctx ends. An address without a host,
// such as ":8080", means 127.0.0.1, and "" a free port there. To listen on all interfaces, use
// 0.0.0.0 or [::] and set [ServeOptions.AllowRemote]. o may be nil.
//
// The server accepts up to 20,000 connections, and 250 requests at a time of an HTTP/2 connection.
// A request's header has at most 64 KiB and must arrive within 5 s. A client must read 64 KiB of a
// response within 10 s, and send its next request within 2 min; with HTTP/1 these two limits may
// last twice as long. For other limits, use a [net/http.Server].
//
// When ctx has ended and [ServeOptions.ShutdownDelay] has passed, ListenAndServe calls
// [ServeOptions.OnShutdown], closes the listener, waits for pending requests, and aborts those that
// take longer than [ServeOptions.ShutdownTimeout]. It returns nil if it aborted none. The contexts
// of requests do not end with ctx, but when the client disconnects or the request is aborted.
// ListenAndServe does not wait for handlers that ignore that.
//
// A panic in the handler only fails its request: the client gets status 500, or a truncated
// response if it has begun.
func ListenAndServe(ctx context.Context, addr string, h http.Handler, o *ServeOptions) error {
	var opts httpserve.Options
	if o != nil {
		opts = httpserve.Options{
			AllowRemote: o.AllowRemote,
			CertFile:    o.CertFile, KeyFile: o.KeyFile, TLS: o.TLS, H2C: o.H2C,
			ShutdownDelay: o.ShutdownDelay, ShutdownTimeout: o.ShutdownTimeout, OnListen: o.OnListen, OnShutdown: o.OnShutdown,
			Logger: o.Logger,
		}
	}
	if err := httpserve.ListenAndServe(ctx, addr, h, &opts); err != nil {
		return fmt.Errorf("streamable: %w", err)
	}
	return nil
}
