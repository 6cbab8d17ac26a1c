package bridge_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"

	"mcpwire/client"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// A legacy client uses a modern server.
func Example() {
	srv := server.MustNew("modern", "1", &server.Options{Revisions: []mcp.Revision{mcp.LatestRevision}})
	err := server.AddTool(srv, "greet", "greets", func(_ context.Context, in struct{ Name string }) (string, error) { return "hello " + in.Name, nil })
	if err != nil {
		log.Fatal(err)
	}
	b, err := bridge.New(&bridge.Options{Connect: func(context.Context, io.Writer) (jsonrpc.Framer, error) {
		clientEnd, serverEnd := net.Pipe()
		go srv.Serve(context.Background(), jsonrpc.NewFramer(serverEnd, nil))
		return jsonrpc.NewFramer(clientEnd, nil), nil
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()

	clientEnd, serverEnd := net.Pipe()
	go b.Serve(context.Background(), jsonrpc.NewFramer(serverEnd, nil))
	c, err := client.Dial(context.Background(), client.FramerTransport(jsonrpc.NewFramer(clientEnd, nil)), &client.Options{Revisions: []mcp.Revision{mcp.LatestLegacyRevision}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	text, err := client.CallTool[string](context.Background(), c, "greet", map[string]string{"Name": "you"})
	fmt.Println(text, err)
	// Output: hello you <nil>
}
