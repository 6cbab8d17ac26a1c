//go:build linux

package main

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"sync/atomic"
	"time"
)

// nodeHeader is a header of requests that names the target of a balancer.
const nodeHeader = "Harness-Node"

// A balancer is an HTTP proxy that sends each request to the next node in turn, unless nodeHeader
// has the address of one. It knows nothing of MCP. It asks another node only if one refuses the
// connection, so it sends no request twice.
type balancer struct {
	targets []string
	next    atomic.Uint64
	dialer  http.RoundTripper
	server  *http.Server
	url     string
	done    chan struct{}
}

// newBalancer starts a balancer for nodes at the given addresses.
func newBalancer(targets []string) (*balancer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &balancer{
		targets: targets,
		// A connection for each request: one that a killed node had would fail later.
		dialer: &http.Transport{DisableKeepAlives: true, DisableCompression: true, DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext},
		url:    "http://" + l.Addr().String() + "/mcp",
		done:   make(chan struct{}),
	}
	quiet := log.New(io.Discard, "", 0) // nodes are killed all the time
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", targets[0] },
		Transport:     b,
		FlushInterval: -1,
		ErrorLog:      quiet,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusBadGateway)
		},
	}
	b.server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// A node may respond before the body of the request has ended.
			http.NewResponseController(w).EnableFullDuplex()
			proxy.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          quiet,
	}
	go func() {
		defer close(b.done)
		_ = b.server.Serve(l) // it returns when the balancer is closed
	}()
	return b, nil
}

// RoundTrip implements [http.RoundTripper].
func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	body := r.Body // ReverseProxy closes it at the end of the exchange
	var failed error
	first := b.next.Add(1) // other requests change it meanwhile
	if i := slices.Index(b.targets, r.Header.Get(nodeHeader)); i >= 0 {
		first = uint64(i)
	}
	for i := range b.targets {
		out := r.Clone(r.Context())
		out.URL.Host = b.targets[(first+uint64(i))%uint64(len(b.targets))]
		if body != nil {
			out.Body = io.NopCloser(body)
		}
		response, err := b.dialer.RoundTrip(out)
		var op *net.OpError
		if err == nil || !errors.As(err, &op) || op.Op != "dial" {
			return response, err
		}
		failed = err
	}
	return nil, failed
}

// close ends all connections.
func (b *balancer) close() {
	b.server.Close()
	<-b.done
	b.dialer.(*http.Transport).CloseIdleConnections()
}
