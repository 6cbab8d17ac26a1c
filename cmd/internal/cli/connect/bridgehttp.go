package connect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"mcpwire/auth"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/proxy/endpoint"
	"mcpwire/internal/net/httpserve"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/streamable"
)

// serveHTTP serves clients over HTTP until ctx ends.
func (f *bridgeFlags) serveHTTP(ctx context.Context, b *bridge.Bridge, sessionTimeout time.Duration, log *slog.Logger) (err error) {
	if _, _, err := net.SplitHostPort(f.listen); err != nil {
		return exit.Usagef("bridge: invalid value %q for flag --listen: want an address and a port such as 127.0.0.1:8080, unix:PATH or tcp:HOST:PORT", f.listen)
	}
	guard, err := f.http.guard(log)
	if err != nil {
		return exit.Usagef("bridge: %w", err)
	}
	h, err := b.Handler(&streamable.Options{
		Hosts: f.http.hosts, Origins: f.http.origins, Guard: guard, ClientAddr: f.http.clientAddr(),
		Limits:   streamable.Limits{MaxBody: f.maxFrame, MaxSessions: f.maxSessions},
		Timeouts: streamable.Timeouts{Session: sessionTimeout},
		Logger:   log,
	})
	if err != nil {
		return exit.Usagef("bridge: --host or --origin: %w", err)
	}
	r, err := f.router(b, h, guard)
	if err != nil {
		return exit.Usagef("bridge: --path: %w", err)
	}
	scheme := "http"
	if f.http.certFile != "" {
		scheme = "https"
	}
	err = httpserve.ListenAndServe(ctx, f.listen, r, &httpserve.Options{
		AllowRemote: guard != nil || f.allowRemote,
		CertFile:    f.http.certFile, KeyFile: f.http.keyFile,
		OnListen:        func(a net.Addr) { log.Info("listening", "url", scheme+"://"+a.String()+f.http.path) },
		OnShutdown:      h.Shutdown,
		ShutdownTimeout: f.drain,
		Logger:          log,
	})
	if errors.Is(err, httpserve.ErrRemoteAddress) {
		return exit.Fail(exit.Unexpected, "remote_address", "give --token-env, or --allow-remote, or listen at 127.0.0.1",
			fmt.Errorf("bridge: not listening at %s, which other machines can reach", f.listen))
	}
	return err
}

// router returns the HTTP handler of the bridge. It returns an error if the path of the endpoint is
// invalid.
func (f *bridgeFlags) router(b *bridge.Bridge, h *streamable.Handler, guard *auth.Guard) (*endpoint.Router, error) {
	handlers := map[string]http.Handler{"/metrics": h.Protect(b.Metrics())}
	if f.http.sse {
		old := b.Recorded(h.SSE("/messages"))
		handlers["/sse"], handlers["/messages"] = old, old
	}
	// Health checks from other machines have no token.
	if remote := guard != nil || f.allowRemote; remote {
		handlers["/healthz"], handlers["/readyz"] = b.Healthz(), b.Readyz(false)
	} else {
		handlers["/healthz"], handlers["/readyz"] = h.Protect(b.Healthz()), h.Protect(b.Readyz(true))
	}
	if guard != nil {
		for _, path := range guard.MetadataPaths() {
			handlers[path] = guard.Metadata()
		}
	}
	return endpoint.NewRouter(f.http.path, b.Recorded(h), handlers)
}

// serveSocket serves clients on a unix socket or a TCP port until ctx ends.
func (f *bridgeFlags) serveSocket(ctx context.Context, b *bridge.Bridge, kind, where string, log *slog.Logger) error {
	l, err := f.listenSocket(ctx, kind, where)
	if err != nil {
		return err
	}
	log.Info("listening", "address", kind+":"+l.Addr().String())
	return b.ServeListener(ctx, l, f.clientFraming, f.maxFrame)
}

func (f *bridgeFlags) listenSocket(ctx context.Context, kind, where string) (net.Listener, error) {
	if kind == "tcp" && !f.allowRemote {
		host, port, err := net.SplitHostPort(where)
		if err != nil {
			return nil, exit.Usagef("bridge: invalid value %q for flag --listen: want tcp:HOST:PORT", f.listen)
		}
		switch addr, err := netip.ParseAddr(host); {
		case host == "":
			where = net.JoinHostPort("127.0.0.1", port)
		case host != "localhost" && (err != nil || !addr.IsLoopback()):
			return nil, exit.Fail(exit.Unexpected, "remote_address", "a socket has no authentication: give --allow-remote, or listen at 127.0.0.1",
				fmt.Errorf("bridge: not listening at %s, which other machines can reach", f.listen))
		}
	}
	return endpoint.ListenSocket(ctx, kind, where)
}
