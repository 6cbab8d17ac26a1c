package web_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"

	"mcpwire/cmd/internal/view/watch"
	"mcpwire/cmd/internal/view/web"
)

// A server without captures, on a free port of this machine.
func ExampleServer() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	hub := watch.New(nil)
	server := web.New(hub, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	var running sync.WaitGroup
	running.Go(func() { hub.Run(ctx) })
	running.Go(func() { fmt.Println("served:", server.Serve(ctx, l)) })

	link, err := url.Parse(server.URL(l.Addr())) // the URL that the user opens
	if err != nil {
		fmt.Println(err)
		return
	}
	link.RawQuery = "" // the URL without the token
	res, err := http.Get(link.String())
	if err != nil {
		fmt.Println(err)
		return
	}
	io.Copy(io.Discard, res.Body)
	res.Body.Close()
	fmt.Println("without the token:", res.StatusCode)
	http.DefaultClient.CloseIdleConnections()
	cancel()
	running.Wait()
	// Output:
	// without the token: 401
	// served: <nil>
}
