package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestEarlyResponse tests that responses of nodes arrive whole that begin as soon as the message is
// there, when the proxy may not have read the end of the request.
func TestEarlyResponse(t *testing.T) {
	const first, second = "data: first\n\n", "data: second\n\n"
	read := make(chan struct{}) // the client has read first
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.ReadFull(r.Body, make([]byte, r.ContentLength)) // not the end
		io.WriteString(w, first)
		http.NewResponseController(w).Flush()
		select {
		case <-read:
			io.WriteString(w, second)
		case <-r.Context().Done():
		}
	}))
	defer node.Close()
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, node.Listener.Addr().String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	urls, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- serveProxy(ctx, "127.0.0.1:0", dial, func(a net.Addr) { urls <- "http://" + a.String() })
	}()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	url := <-urls
	for range 1000 { // without full duplex, about one of fifty fails
		resp, err := http.Post(url, "application/json", strings.NewReader(`{"jsonrpc":"2.0"}`))
		if err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(resp.Body)
		got := make([]byte, len(first))
		if _, err := io.ReadFull(r, got); err != nil {
			t.Fatal(err)
		}
		select {
		case read <- struct{}{}:
		case <-t.Context().Done():
		}
		rest, err := io.ReadAll(r)
		if got := string(got) + string(rest); got != first+second || err != nil {
			t.Fatalf("response %q, %v, want %q", got, err, first+second)
		}
		resp.Body.Close()
	}
}
