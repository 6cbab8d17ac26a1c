package streamable_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"

	"mcpwire/streamable"
)

// An address without a host is on this machine's loopback. The server runs until the context ends.
func ExampleListenAndServe() {
	ctx, stop := context.WithCancel(context.Background())
	initializeMessage := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") }) // in real life streamable.NewHandler
	err := streamable.ListenAndServe(ctx, ":0", initializeMessage, &streamable.ServeOptions{
		OnListen: func(at net.Addr) {
			fmt.Println("only local:", at.(*net.TCPAddr).IP.IsLoopback())
			stop()
		},
	})
	fmt.Println("ended:", err)
	// Output:
	// only local: true
	// ended: <nil>
}

func ExampleListenAndServe_remote() {
	err := streamable.ListenAndServe(context.Background(), "0.0.0.0:8080", http.NotFoundHandler(), nil)
	fmt.Println(err)
	// Output:
	// streamable: not listening at "0.0.0.0:8080": other machines can reach this address, so requests need authentication; then set AllowRemote, or listen at 127.0.0.1
}
