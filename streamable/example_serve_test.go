package streamable_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"

	"mcpwire/server"
	"mcpwire/streamable"
)

// A complete main function. It ends when ctx ends or on Ctrl-C.
func ExampleServe() {
	ctx, stop := context.WithCancel(context.Background())
	srv := server.MustNew("demo", "1.0.0", nil)
	err := streamable.Serve(ctx, "127.0.0.1:0", srv, &streamable.Options{
		Logger: slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key != slog.MessageKey { // the time, and the address with a free port
					return slog.Attr{}
				}
				stop() // ends the example
				return a
			},
		})),
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: msg=listening
}

// An address without a host is on the loopback interface. The server runs until the context ends.
func ExampleListenAndServe() {
	ctx, stop := context.WithCancel(context.Background())
	// a real program uses streamable.NewHandler
	initializeMessage := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") })
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
	// streamable: listen at "0.0.0.0:8080": other machines can reach this address, so requests need authentication; then set AllowRemote, or listen at 127.0.0.1
}
