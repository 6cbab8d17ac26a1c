// Loadbalanced is a server over Streamable HTTP with two nodes behind a proxy that sends each
// request to the next node. For simplicity, all of them are in this process.
//
//	go run ./examples/loadbalanced 127.0.0.1:8080
//	mcpwire call http://127.0.0.1:8080/mcp order thing=hat
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"

	"mcpwire/server"
	"mcpwire/streamable"
)

// newNode returns the handler of one node. Nodes that have the same name of the server and the same
// secret continue each other's calls, lists and legacy sessions, without a store. Some things need
// one, such as that a DELETE ends a legacy session at both nodes: see doc/scaling.md.
func newNode(name string, secret []byte) (*streamable.Handler, error) {
	keys, err := server.NewStateKeys(secret)
	if err != nil {
		return nil, err
	}
	srv, err := server.New("shop", "1.0.0", &server.Options{StateKeys: keys})
	if err != nil {
		return nil, err
	}
	err = server.AddTool(srv, "order", "Order a thing.", func(ctx context.Context, in struct {
		Thing string `json:"thing" schema:"minLength=1"`
	}) (string, error) {
		// A modern client calls again with the answer, and the proxy sends that call to the other
		// node. What Once returned comes back sealed with the keys. For input requests to legacy
		// clients, the nodes must also be connected.
		begun, err := server.Once(ctx, "begun", func(context.Context) (string, error) { return name, nil })
		if err != nil {
			return "", err
		}
		type consent struct {
			Agree bool `json:"agree"`
		}
		pay, err := server.Elicit[consent](ctx, "pay", "Pay for the "+in.Thing+"?")
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("begun at %s, completed at %s, paid: %t", begun, name, pay.Accepted() && pay.Value.Agree), nil
	})
	if err != nil {
		return nil, err
	}
	err = server.AddTool(srv, "where", "Tell which node answers.", func(context.Context, struct{}) (string, error) {
		return name, nil
	})
	if err != nil {
		return nil, err
	}
	return streamable.NewHandler(srv, nil)
}

// newProxy returns a handler that sends each request to the next node.
func newProxy(nodes []*url.URL) http.Handler {
	var n atomic.Uint64
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(nodes[n.Add(1)%uint64(len(nodes))])
		r.SetXForwarded()
	}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A node may respond before the proxy has read the end of the request. Without full duplex,
		// net/http then closes the request's body, which fails the exchange.
		http.NewResponseController(w).EnableFullDuplex()
		proxy.ServeHTTP(w, r)
	})
}

// run serves until ctx ends. It calls listening with the proxy's address.
func run(ctx context.Context, addr string, listening func(net.Addr)) error {
	secret := make([]byte, 32) // if nodes are processes, give all of them the same
	rand.Read(secret)
	a, err := newNode("a", secret)
	if err != nil {
		return err
	}
	b, err := newNode("b", secret)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	ended := make(chan error, 3) // two nodes and the proxy
	var nodes []*url.URL
	for _, h := range []*streamable.Handler{a, b} {
		l := make(chan net.Addr, 1)
		wg.Go(func() {
			defer cancel() // a node that fails ends everything
			ended <- streamable.ListenAndServe(ctx, "127.0.0.1:0", h, &streamable.ServeOptions{OnListen: func(at net.Addr) { l <- at }})
		})
		select {
		case at := <-l:
			nodes = append(nodes, &url.URL{Scheme: "http", Host: at.String()})
		case <-ctx.Done():
		}
	}
	if ctx.Err() == nil {
		ended <- streamable.ListenAndServe(ctx, addr, newProxy(nodes), &streamable.ServeOptions{OnListen: listening})
		cancel()
	}
	wg.Wait()
	close(ended)
	var errs []error
	for err := range ended {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: loadbalanced ADDRESS")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, os.Args[1], func(at net.Addr) { log.Printf("listening at http://%s/mcp", at) })
	if err != nil {
		log.Fatal(err)
	}
}
