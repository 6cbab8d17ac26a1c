package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"

	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
)

// Two connections over a pipe in memory: either side may call the other, also from within a
// handler.
func ExampleConn() {
	ctx := context.Background()
	near, far := net.Pipe()

	server := rpc.NewConn(jsonrpc.NewFramer(far, nil), &rpc.Options{
		Handler: rpc.HandlerFunc(func(ctx context.Context, r *rpc.Request) ([]byte, error) {
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
	client := rpc.NewConn(jsonrpc.NewFramer(near, nil), &rpc.Options{
		Handler: rpc.HandlerFunc(func(ctx context.Context, r *rpc.Request) ([]byte, error) {
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
