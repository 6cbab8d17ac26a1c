package taphttp

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"mcpwire/capture"
)

// Options are the options of [New]. nil means defaults.
type Options struct {
	// TLS configures TLS to the server. It is copied. nil is crypto/tls's default.
	TLS *tls.Config
	// NoHTTP2 keeps to HTTP/1.1 where the server would speak HTTP/2, which it is asked for over TLS only.
	NoHTTP2 bool
	// Dial connects to the server, or to the proxy that the environment names. nil is a [net.Dialer].
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Hosts are names under which clients may reach the tap, besides localhost and all addresses. A "*" stands for any: then pages of other sites can reach the
	// server through the tap under a name of theirs (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#security-warning).
	Hosts []string
	// Origin is put in the place of an Origin header that a request has; "drop" removes it. "" passes it on, so that the server can judge it, as it does in any case
	// with those of pages that are neither of this machine nor of Hosts: they could otherwise use the server through the tap.
	Origin string

	MaxBody      int   // bytes of a body, or of an event, that are recorded in one piece, and of a request's that are read before the server gets any; 0 is 64 MiB
	MaxBuffered  int64 // bytes of all of them at once: what does not fit is recorded in parts, or cut; 0 is 512 MiB
	MaxHeader    int64 // bytes of a response's header; 0 is 1 MiB
	MaxExchanges int   // under way at once; more are refused with status 503; 0 is 2048

	BodyTimeout  time.Duration // without a byte of a request's body; 0 is 2 min
	WriteTimeout time.Duration // for a client to take 32 KiB of a response; 0 is 5 min
	Grace        time.Duration // for requests to be answered after Shutdown was called; 0 is 2 s. Standing streams have none

	// Observe is called with each event before the bytes are forwarded, in the order of the numbers, by one goroutine at a time. The event, whose N and T are set, and its
	// Data are good until it returns. All exchanges wait for it.
	Observe func(*capture.Event)

	Logger *slog.Logger // for what goes wrong at the tap; nil discards
}

func setDefault[T int | int64 | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// withDefaults returns a copy that is complete.
func (o *Options) withDefaults() Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	setDefault(&opts.MaxBody, 64<<20)
	setDefault(&opts.MaxBuffered, 512<<20)
	setDefault(&opts.MaxHeader, 1<<20)
	setDefault(&opts.MaxExchanges, 2048)
	setDefault(&opts.BodyTimeout, 2*time.Minute)
	setDefault(&opts.WriteTimeout, 5*time.Minute)
	setDefault(&opts.Grace, 2*time.Second)
	if opts.Dial == nil {
		opts.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return opts
}
