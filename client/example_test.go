package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

func ExampleDial() {
	// The example runs a server in this process. A server that is a separate program takes one
	// line, and is restarted if it crashes:
	//	transport := stdio.Command("node", "server.js")
	srv := server.MustNew("calculator", "1.2.0", nil)
	err := server.AddTool(srv, "add", "Add two numbers.", func(_ context.Context, in struct{ A, B int }) (int, error) {
		return in.A + in.B, nil
	})
	if err != nil {
		log.Fatal(err)
	}
	transport := client.TransportFunc(func(context.Context) (jsonrpc.Framer, error) {
		clientEnd, serverEnd := net.Pipe()
		go srv.Serve(context.Background(), jsonrpc.NewFramer(serverEnd, nil))
		return jsonrpc.NewFramer(clientEnd, nil), nil
	})

	ctx := context.Background()
	c, err := client.Dial(ctx, transport, &client.Options{Info: mcp.Implementation{Name: "example", Version: "1.0.0"}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Println(c.Profile().Server.Name, c.Revision())

	var result json.RawMessage
	params := map[string]any{"name": "add", "arguments": map[string]int{"A": 1, "B": 2}}
	if err := c.Call(ctx, "tools/call", params, &result); err != nil {
		log.Fatal(err)
	}
	err = c.Call(ctx, "no/such/method", nil, nil)
	fmt.Println(err, client.IsServerError(err))
	// Output:
	// calculator 2026-07-28
	// call no/such/method: method not found: no/such/method (-32601) true
}

// A handler answers input requests of servers. Show the user which server sent the request, and let
// the user decline.
func ExampleOptions() {
	opts := &client.Options{
		Input: client.InputOptions{Elicit: func(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			fmt.Printf("%s asks: %s\n", client.FromContext(ctx).Profile().Server.Name, p.Message)
			return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: json.RawMessage(`{"city":"Oslo"}`)}, nil
		}},
	}

	srv := server.MustNew("weather", "1.0.0", nil)
	err := server.AddTool(srv, "forecast", "Tell the weather.", func(ctx context.Context, _ struct{}) (string, error) {
		type place struct {
			City string `json:"city"`
		}
		answer, err := server.Elicit[place](ctx, "city", "Which city?")
		if err != nil {
			return "", err
		}
		return "Rain in " + answer.Value.City, nil
	})
	if err != nil {
		log.Fatal(err)
	}
	clientEnd, serverEnd := net.Pipe()
	go srv.Serve(context.Background(), jsonrpc.NewFramer(serverEnd, nil))

	ctx := context.Background()
	c, err := client.Dial(ctx, client.FramerTransport(jsonrpc.NewFramer(clientEnd, nil)), opts)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	var result struct{ Content []struct{ Text string } }
	if err := c.Call(ctx, "tools/call", map[string]any{"name": "forecast"}, &result); err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Content[0].Text)
	// Output:
	// weather asks: Which city?
	// Rain in Oslo
}
