package bridge_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http/httptest"

	"mcpwire/bridge"
	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

// A client of the legacy era uses a modern server that does not speak HTTP.
func Example() {
	srv := server.MustNew("modern", "1.0.0", &server.Options{Revisions: []mcp.Revision{mcp.LatestRevision}})
	err := server.AddTool(srv, "greet", "greets", func(_ context.Context, in struct{ Name string }) (string, error) { return "hello " + in.Name, nil })
	if err != nil {
		log.Fatal(err)
	}
	upstream := client.TransportFunc(func(context.Context) (jsonrpc.Framer, error) { // or stdio.Command(…)
		clientEnd, serverEnd := net.Pipe()
		go srv.Serve(context.Background(), jsonrpc.NewFramer(serverEnd, nil))
		return jsonrpc.NewFramer(clientEnd, nil), nil
	})
	b, err := bridge.New(upstream, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	h, err := b.Handler(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer h.Shutdown(context.Background())
	web := httptest.NewServer(h)
	defer web.Close()

	c, err := client.Dial(context.Background(), streamable.NewTransport(web.URL, nil), &client.Options{Revisions: []mcp.Revision{mcp.LatestLegacyRevision}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	text, err := client.CallTool[string](context.Background(), c, "greet", map[string]string{"Name": "you"})
	fmt.Println(text, err)
	// Output: hello you <nil>
}
