package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"mcpwire/cluster"
	"mcpwire/streamable"
)

// probes are the endpoints that an orchestrator asks.
type probes struct {
	mu sync.Mutex
	// node is nil until the program serves.
	node     *cluster.Node
	draining bool
}

func (p *probes) serving(n *cluster.Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.node = n
}

func (p *probes) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draining = true
}

// state returns why the program is not ready, or "".
func (p *probes) state() (unready string, started bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.node == nil:
		return "starting", false
	case p.draining:
		return "draining", true
	}
	return "", true
}

// listen serves the probes until stop is called.
func (p *probes) listen(address string, log *slog.Logger) (stop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	listening, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- streamable.ListenAndServe(ctx, address, p, &streamable.ServeOptions{
			AllowRemote: true, // a host that other machines reach was given on purpose
			OnListen:    func(net.Addr) { close(listening) },
			Logger:      log,
		})
	}()
	select {
	case err := <-done:
		cancel()
		return nil, fmt.Errorf("--admin: %w", err)
	case <-listening:
	}
	return func() {
		cancel()
		if err := <-done; err != nil {
			log.Warn("the admin port was closed with a request in flight", "error", err)
		}
	}, nil
}

// ServeHTTP implements [http.Handler].
func (p *probes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	unready, started := p.state()
	switch {
	case r.URL.Path == "/livez":
		unready = ""
	case r.URL.Path == "/startupz" && started:
		unready = ""
	case r.URL.Path == "/readyz", r.URL.Path == "/startupz":
	default:
		http.NotFound(w, r)
		return
	}
	if unready != "" {
		http.Error(w, unready, http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
