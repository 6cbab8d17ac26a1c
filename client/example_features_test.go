package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"strings"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// inMemory connects a client to a server in the same process. Closing the client closes both.
func inMemory(srv *server.Server) *client.Client {
	clientEnd, serverEnd := net.Pipe()
	go srv.Serve(context.Background(), jsonrpc.NewFramer(serverEnd, nil))
	c, err := client.Dial(context.Background(), client.FramerTransport(jsonrpc.NewFramer(clientEnd, nil)), nil)
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// library returns a server for the examples.
func library() *server.Server {
	srv := server.MustNew("library", "1.0.0", nil)
	type book struct {
		Title string `json:"title"`
		Year  int    `json:"year"`
	}
	errs := errors.Join(
		server.AddTool(srv, "word_count", "Count words.", func(_ context.Context, in struct {
			Text string `json:"text"`
		}) (int, error) {
			return len(strings.Fields(in.Text)), nil
		}),
		server.AddTool(srv, "find", "Find a book.", func(_ context.Context, in struct {
			Title string `json:"title"`
		}) (book, error) {
			if in.Title != "Emma" {
				return book{}, fmt.Errorf("there is no book called %q: ask for Emma", in.Title)
			}
			return book{"Emma", 1815}, nil
		}),
	)
	if errs != nil {
		log.Fatal(errs)
	}
	return srv
}

func ExampleCallTool() {
	ctx := context.Background()
	c := inMemory(library())
	defer c.Close()

	n, err := client.CallTool[int](ctx, c, "word_count", map[string]any{"text": "a b c"})
	fmt.Println(n, err)

	type book struct {
		Title string `json:"title"`
		Year  int    `json:"year"`
	}
	b, err := client.CallTool[book](ctx, c, "find", map[string]any{"title": "Emma"})
	fmt.Println(b.Title, b.Year, err)

	_, err = client.CallTool[book](ctx, c, "find", map[string]any{"title": "Ulysses"})
	if failed, ok := errors.AsType[*client.ToolError](err); ok {
		fmt.Println(failed) // for the model that made the call
	}

	_, err = client.CallTool[book](ctx, c, "lend", nil)
	fmt.Println(client.IsServerError(err)) // the server responded with an error: unknown tool
	// Output:
	// 3 <nil>
	// Emma 1815 <nil>
	// tool "find" failed: there is no book called "Ulysses": ask for Emma
	// true
}

func ExampleClient_CallTool() {
	c := inMemory(library())
	defer c.Close()

	// An agent passes everything that the tool returns to the model, including failures.
	result, err := c.CallTool(context.Background(), "find", map[string]any{"title": "Ulysses"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.IsError, result.Content[0].(mcp.TextContent).Text)
	// Output: true there is no book called "Ulysses": ask for Emma
}

func ExampleClient_Tools() {
	c := inMemory(library())
	defer c.Close()

	for tool, err := range c.Tools(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s\n", tool.Name, tool.Description)
	}
	// Output:
	// word_count: Count words.
	// find: Find a book.
}

func ExampleClient_Listen() {
	ctx := context.Background()
	srv := library()
	c := inMemory(srv)
	defer c.Close()

	sub, err := c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true})
	if err != nil {
		log.Fatal(err)
	}
	defer sub.Close()
	srv.RemoveTools("find")
	for event, err := range sub.Events(ctx) {
		if err != nil {
			log.Fatal(err) // the connection is lost for good
		}
		// This also covers changes missed while the connection was lost: see Event.Missed.
		fmt.Println(event.Kind)
		break
	}
	// Output: tools list changed
}

func ExampleGroup() {
	ctx := context.Background()
	g := client.NewGroup(nil)
	defer g.Close() // and with it the members

	clock := server.MustNew("clock", "1.0.0", nil)
	err := server.AddTool(clock, "now", "Tell the time.", func(context.Context, struct{}) (string, error) { return "noon", nil })
	if err != nil {
		log.Fatal(err)
	}
	for name, srv := range map[string]*server.Server{"library": library(), "clock": clock} {
		if err := g.Add(name, inMemory(srv)); err != nil {
			log.Fatal(err)
		}
	}
	tools, err := g.Tools(ctx)
	if err != nil {
		log.Print(err) // of some members; the tools of the others are there
	}
	for _, tool := range tools {
		fmt.Println(tool.Name)
	}
	result, err := g.CallTool(ctx, "clock__now", nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Content[0].(mcp.TextContent).Text)

	c, tool, err := g.Route("library__word_count")
	if err != nil {
		log.Fatal(err)
	}
	n, err := client.CallTool[int](ctx, c, tool, map[string]any{"text": "to be or not to be"})
	fmt.Println(n, err)
	// Output:
	// clock__now
	// library__word_count
	// library__find
	// noon
	// 6 <nil>
}
