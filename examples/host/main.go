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

// connectTimeout limits how long a server may take to start.
const connectTimeout = time.Minute

// connect dials all servers at once and adds those that answer to g. The error names the others.
func connect(ctx context.Context, g *client.Group, servers map[string]client.Transport) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for name, transport := range servers {
		wg.Go(func() {
			c, err := client.Dial(ctx, transport, &client.Options{Info: mcp.Implementation{Name: "host", Version: "1.0.0"}})
			if err == nil {
				if err = g.Add(name, c); err != nil {
					c.Close()
				}
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("server %s: %w", name, err))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// run lists the tools of all servers. An agent would give the list to its model, and call what the
// model chooses with g.CallTool: the name of a tool in the group says which server has it.
func run(ctx context.Context, servers map[string]client.Transport, stdout, stderr io.Writer) error {
	g := client.NewGroup(nil)
	defer g.Close() // and with it the connections and the processes
	if err := connect(ctx, g, servers); err != nil {
		fmt.Fprintln(stderr, err) // a host goes on with the servers that work
	}
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
			servers[name] = streamable.Dial(target, nil)
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
