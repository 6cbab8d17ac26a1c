package taphttp

import (
	"context"
	"net"
	"net/http"
	"time"

	"mcpwire/streamable"
)

// ServeOptions are the options of [Handler.Serve]. nil means defaults: HTTP/1.1 on this machine's loopback.
type ServeOptions struct {
	// AllowRemote permits an address that other machines reach.
	AllowRemote bool
	// CertFile and KeyFile, in PEM, turn TLS on, and HTTP/2 with it.
	CertFile, KeyFile string
	// OnListen is called with the address before the first connection is accepted.
	OnListen func(net.Addr)
}

// Serve taps what comes by l until ctx ends, and then shuts down: see [Handler.Shutdown]. It returns nil if nothing had to be cut off. l is closed in any
// case. The error wraps [streamable.ErrRemoteAddress] for an address that other machines reach, without ServeOptions.AllowRemote.
//
// What has no deadline is a stream that goes on: connections without a request are closed after two minutes, and there is one for the head of a
// request, for each piece of its body, and for each write.
func (h *Handler) Serve(ctx context.Context, l net.Listener, o *ServeOptions) error {
	if o == nil {
		o = new(ServeOptions)
	}
	return streamable.Serve(ctx, h.Listener(l), http.Handler(h), &streamable.ServeOptions{
		AllowRemote: o.AllowRemote,
		CertFile:    o.CertFile, KeyFile: o.KeyFile,
		MaxHeader:     maxRequestHeader,
		HeaderTimeout: headerTimeout,
		WriteTimeout:  h.opts.WriteTimeout,
		OnListen:      o.OnListen,
		OnShutdown:    h.Shutdown,
		Logger:        h.opts.Logger,
	})
}

const (
	maxRequestHeader = 1 << 20          // bytes, as net/http has it
	headerTimeout    = 20 * time.Second // for the head of a request
)
