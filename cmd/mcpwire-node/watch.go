package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"

	"mcpwire/capture"
	"mcpwire/cmd/internal/build"
	"mcpwire/cmd/internal/proxy/taphttp"
	"mcpwire/cmd/internal/trace/live"
	"mcpwire/internal/base/hooks"
	"mcpwire/streamable"
)

// serveWatched serves h behind a tap that mcpwire watch shows. o is for h.
func (f *nodeFlags) serveWatched(ctx context.Context, h http.Handler, o *streamable.ServeOptions, onListen func(net.Addr), log *slog.Logger) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return err
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	addresses, served := make(chan net.Addr, 1), make(chan error, 1)
	o.OnListen = func(a net.Addr) { addresses <- a }
	go func() { served <- streamable.ListenAndServe(ctx, "127.0.0.1:0", h, o) }()
	var at net.Addr
	select {
	case at = <-addresses:
	case err := <-served:
		return err
	}
	tapping, stopTap := context.WithCancel(context.WithoutCancel(ctx))
	defer stopTap()
	tapped := make(chan error, 1)
	go func() { tapped <- f.tap(tapping, l, at, onListen, log) }()
	select {
	case err = <-served: // it has shut down
		stopTap()
		if tapErr := <-tapped; err == nil {
			err = tapErr
		}
	case err = <-tapped: // it has failed
		cancel()
		<-served
	}
	return err
}

// tap forwards what arrives at l to the server at an address, and shows it to viewers, until ctx
// ends.
func (f *nodeFlags) tap(ctx context.Context, l net.Listener, server net.Addr, onListen func(net.Addr), log *slog.Logger) error {
	upstream := &url.URL{Scheme: "http", Host: server.String(), Path: endpointPath}
	viewers := live.NewServer(nil)
	defer viewers.Close()
	w := capture.NewWriter(io.Discard, &capture.Options{
		Tool: "mcpwire-node " + build.Version(), Transport: capture.TransportHTTP, Name: f.name, URL: upstream.String(),
		Hooks: &hooks.Writer[capture.Event]{Tee: viewers, Want: viewers.Wants},
	})
	defer w.Close()
	dir, err := live.Dir()
	if err == nil {
		err = viewers.Start(dir, live.Greeting{Capture: w.ID(), Name: f.name, Transport: capture.TransportHTTP})
	}
	if err != nil {
		return fmt.Errorf("--watch: %w", err)
	}
	h, err := taphttp.New(upstream, w, &taphttp.Options{Hosts: f.hosts, Logger: log})
	if err != nil {
		return fmt.Errorf("--watch: %w", err)
	}
	return h.Serve(ctx, l, &taphttp.ServeOptions{AllowRemote: f.insecure, OnListen: onListen})
}
