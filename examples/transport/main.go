// Transport is a server and a client over a transport of your own, here a Unix socket. All that a
// transport needs is an io.ReadWriteCloser for each connection.
//
//	go run ./examples/transport serve /tmp/echo.sock
//	go run ./examples/transport call /tmp/echo.sock hi
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"sync"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/server"
)

// maxConnections limits the clients at one time. Others wait.
const maxConnections = 100

// serve accepts connections until ctx ends, and waits until all of them have ended.
func serve(ctx context.Context, l net.Listener) error {
	srv, err := server.New("echo", "1.0.0", nil)
	if err != nil {
		return err
	}
	err = server.AddTool(srv, "echo", "Repeat a text.", func(ctx context.Context, in struct {
		Text string `json:"text"`
	}) (string, error) {
		return in.Text, nil
	})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { l.Close() })() // ends Accept
	var connections sync.WaitGroup
	defer connections.Wait()
	slots := make(chan struct{}, maxConnections)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		conn, err := l.Accept()
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		connections.Go(func() {
			defer func() { <-slots }()
			// The framer puts each message on a line. Serve closes it, and with it conn.
			if err := srv.Serve(ctx, jsonrpc.NewFramer(conn, nil)); err != nil && ctx.Err() == nil {
				log.Print(err)
			}
		})
	}
}

// dial returns the client's side. The client calls the function to connect, and again when the
// connection is lost.
func dial(socket string) client.Transport {
	return client.TransportFunc(func(ctx context.Context) (jsonrpc.Framer, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err != nil {
			return nil, err
		}
		return jsonrpc.NewFramer(conn, nil), nil
	})
}

// call calls the tool once.
func call(ctx context.Context, socket, text string, stdout io.Writer) error {
	c, err := client.Dial(ctx, dial(socket), nil)
	if err != nil {
		return err
	}
	defer c.Close()
	said, err := client.CallTool[string](ctx, c, "echo", map[string]string{"text": text})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, said)
	return err
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 2 && args[0] == "serve":
		l, err := net.Listen("unix", args[1])
		if err != nil {
			return err
		}
		defer l.Close()
		return serve(ctx, l)
	case len(args) == 3 && args[0] == "call":
		return call(ctx, args[1], args[2], os.Stdout)
	default:
		return errors.New("usage: transport serve SOCKET | call SOCKET TEXT")
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}
