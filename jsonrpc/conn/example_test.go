package conn_test

import (
	"context"
	"errors"
	"fmt"
	"net"

	"mcpwire/jsonrpc"
	"mcpwire/jsonrpc/conn"
)

// Two connections over a pipe in memory. Both sides may call each other, also within a handler.
func ExampleConn() {
	ctx := context.Background()
	local, remote := net.Pipe()

	greet := func(ctx context.Context, c *conn.Conn, m *jsonrpc.Message) ([]byte, error) {
		switch string(m.Method) {
		case "greet":
			name, err := c.Call(ctx, "name", nil)
			if err != nil {
				return nil, err
			}
			return fmt.Appendf(nil, `{"greeting":"Hello, ","name":%s}`, name), nil
		default:
			return nil, jsonrpc.MethodNotFound(string(m.Method))
		}
	}
	name := func(context.Context, *conn.Conn, *jsonrpc.Message) ([]byte, error) {
		return []byte(`"Ada"`), nil
	}
	server := conn.New(jsonrpc.NewFramer(remote, nil), greet, nil)
	client := conn.New(jsonrpc.NewFramer(local, nil), name, nil)
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

// A server of the Language Server Protocol: each message has a Content-Length header, and there are
// no batches. $/cancelRequest cancels a request.
func ExampleNew() {
	editor, server := net.Pipe()
	c := conn.New(jsonrpc.NewFramer(server, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingHeader}),
		func(ctx context.Context, c *conn.Conn, m *jsonrpc.Message) ([]byte, error) {
			if string(m.Method) != "textDocument/hover" {
				return nil, jsonrpc.MethodNotFound(string(m.Method))
			}
			document, _ := m.Param("textDocument")
			return fmt.Appendf(nil, `{"contents":%s}`, document), nil
		}, &conn.Options{NoBatches: true})
	go c.Run(context.Background())
	defer c.Close()

	client := conn.New(jsonrpc.NewFramer(editor, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingHeader}), nil, nil)
	go client.Run(context.Background())
	defer client.Close()
	fmt.Printf("%s\n", must(client.Call(context.Background(), "textDocument/hover", []byte(`{"textDocument":"main.go"}`))))
	// Output: {"contents":"main.go"}
}

func must(result []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return result
}
