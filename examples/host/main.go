// Host is a program that uses several servers at once, as an agent does. Each argument is a server,
// as NAME=COMMAND or NAME=URL.
//
//	go run ./examples/host hello='go run ./examples/hello' bakery='go run ./examples/tasks'
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/stdio"
	"mcpwire/streamable"
)

// connectTimeout limits how long the program waits for servers that start slowly. An agent would
// set [client.GroupOptions.OnToolsChanged], and list the tools again when they have joined.
const connectTimeout = time.Minute

// connect dials all servers at once.
func connect(ctx context.Context, g *client.Group, servers map[string]client.Transport) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for name, transport := range servers {
		wg.Go(func() {
			// After an error the group tries again, and g.Tools returns the last error.
			g.Dial(ctx, name, transport, &client.Options{Info: mcp.Implementation{Name: "host", Version: "1.0.0"}})
		})
	}
	wg.Wait()
}

// run lists the tools of all servers. An agent would give the list to its model, and call what the
// model chooses with g.CallTool: the name of a tool in the group says which server has it.
func run(ctx context.Context, servers map[string]client.Transport, stdout, stderr io.Writer) error {
	g := client.NewGroup(nil)
	defer g.Close() // and with it the connections and the processes
	connect(ctx, g, servers)
	tools, err := g.Tools(ctx)
	if err != nil {
		fmt.Fprintln(stderr, err) // of some servers; tools has those of the others
	}
	for _, tool := range tools {
		if _, err := fmt.Fprintf(stdout, "%s\t%s\n", tool.Name, tool.Description); err != nil {
			return err
		}
	}
	return nil
}

// parse returns the transports that the arguments name.
func parse(args []string) (map[string]client.Transport, error) {
	if len(args) == 0 {
		return nil, errors.New("want at least one server, as NAME=COMMAND or NAME=URL")
	}
	servers := make(map[string]client.Transport)
	for _, arg := range args {
		name, target, _ := strings.Cut(arg, "=")
		words := strings.Fields(target) // no shell, no quotes
		switch {
		case len(words) == 0:
			return nil, fmt.Errorf("argument %q: want NAME=COMMAND or NAME=URL", arg)
		case strings.HasPrefix(target, "http://"), strings.HasPrefix(target, "https://"):
			servers[name] = streamable.NewTransport(target, nil)
		default:
			servers[name] = stdio.Command(words[0], words[1:]...)
		}
	}
	return servers, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	servers, err := parse(os.Args[1:])
	if err == nil {
		err = run(ctx, servers, os.Stdout, os.Stderr)
	}
	if err != nil {
		log.Fatal(err)
	}
}
