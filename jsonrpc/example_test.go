package jsonrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"mcpwire/jsonrpc"
)

// Two connections over a pipe in memory: either side may call the other, also from within a
// handler.
func ExampleConn() {
	ctx := context.Background()
	near, far := net.Pipe()

	server := jsonrpc.NewConn(jsonrpc.NewFramer(far, nil), &jsonrpc.Options{
		Handler: jsonrpc.HandlerFunc(func(ctx context.Context, r *jsonrpc.Request) ([]byte, error) {
			switch string(r.Method) {
			case "greet":
				name, err := r.Conn().Call(ctx, "name", nil)
				if err != nil {
					return nil, err
				}
				return fmt.Appendf(nil, `{"greeting":"Hello, ","name":%s}`, name), nil
			default:
				return nil, jsonrpc.MethodNotFound(string(r.Method))
			}
		}),
	})
	client := jsonrpc.NewConn(jsonrpc.NewFramer(near, nil), &jsonrpc.Options{
		Handler: jsonrpc.HandlerFunc(func(ctx context.Context, r *jsonrpc.Request) ([]byte, error) {
			return []byte(`"Ada"`), nil
		}),
	})
	go server.Run(ctx)
	go client.Run(ctx)

	result, err := client.Call(ctx, "greet", nil)
	fmt.Println(string(result), err)

	_, err = client.Call(ctx, "leave", []byte(`{"now":true}`))
	var wire *jsonrpc.Error
	fmt.Println(errors.As(err, &wire), wire.Code, err)

	client.Close()
	<-server.Done()
	_, err = client.Call(ctx, "greet", nil)
	fmt.Println(errors.Is(err, jsonrpc.ErrClosed))
	// Output:
	// {"greeting":"Hello, ","name":"Ada"} <nil>
	// true method not found call leave: method not found: leave (-32601)
	// true
}

// The peer's first bytes show its framing, and it is answered in the same.
func ExampleNewFramer() {
	stream := struct {
		io.Reader
		io.Writer
		io.Closer
	}{
		strings.NewReader("Content-Length: 2\r\n\r\n{}" + "content-length: 9\r\n\r\n{\"a\":\n 1}"),
		stdout{},
		io.NopCloser(nil),
	}
	f := jsonrpc.NewFramer(stream, nil)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			fmt.Println(err)
			break
		}
		fmt.Printf("%q in %v framing\n", frame, f.Framing())
	}
	f.WriteFrame([]byte(`{"jsonrpc":"2.0","method":"done"}`))
	// Output:
	// "{}" in header framing
	// "{\"a\":\n 1}" in header framing
	// EOF
	// "Content-Length: 33\r\n\r\n{\"jsonrpc\":\"2.0\",\"method\":\"done\"}"
}

// stdout shows line breaks.
type stdout struct{}

func (stdout) Write(p []byte) (int, error) {
	fmt.Printf("%q\n", p)
	return len(p), nil
}
