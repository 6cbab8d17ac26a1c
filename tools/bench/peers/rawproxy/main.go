//go:build unix

// Command rawproxy is what gateways are compared with: the reverse proxy of net/http/httputil,
// which forwards requests to one server without reading them. With -post, it is a handler that
// does less: it reads a request, posts it with net/http's client, and writes the response that it
// reads.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"

	"mcpwire/tools/bench/probe"
)

func main() {
	addr := flag.String("http", "127.0.0.1:0", "`ADDRESS` to listen on")
	to := flag.String("to", "", "the `URL` of the server")
	post := flag.Bool("post", false, "use a handler that posts")
	flag.Parse()
	if err := serve(*addr, *to, *post); err != nil {
		fmt.Fprintln(os.Stderr, "rawproxy:", err)
		os.Exit(1)
	}
}

func serve(addr, to string, post bool) error {
	target, err := url.Parse(to)
	if err != nil {
		return err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 256, 256
	handler := http.Handler(&httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL, r.Out.Host = target, target.Host
	}})
	if post {
		handler = poster{to, &http.Client{Transport: transport}}
	}
	return probe.Run(func(ctx context.Context) error { return probe.Serve(ctx, addr, handler) })
}

// A poster posts each request to a server.
type poster struct {
	to     string
	client *http.Client
}

// ServeHTTP implements http.Handler.
func (p poster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	resp, err := p.post(r, body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	io.Copy(w, resp.Body)
}

func (p poster) post(r *http.Request, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(r.Context(), r.Method, p.to, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = r.Header
	return p.client.Do(req)
}
