//go:build unix

// Command rawproxy is what gateways are compared with: the reverse proxy of net/http/httputil,
// which forwards requests to one server without reading them.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"

	"mcpwire/bench/probe"
)

func main() {
	addr := flag.String("http", "127.0.0.1:0", "`ADDRESS` to listen on")
	to := flag.String("to", "", "the `URL` of the server")
	flag.Parse()
	if err := serve(*addr, *to); err != nil {
		fmt.Fprintln(os.Stderr, "rawproxy:", err)
		os.Exit(1)
	}
}

func serve(addr, to string) error {
	target, err := url.Parse(to)
	if err != nil {
		return err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 256
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL, r.Out.Host = target, target.Host
	}}
	return probe.Run(func(ctx context.Context) error { return probe.Serve(ctx, addr, proxy) })
}
