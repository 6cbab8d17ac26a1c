// Command client is mcpwire's entry in benchmarks of clients, over stdio and
// over HTTP.
package main

import (
	"context"
	"fmt"
	"os"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/stdio"
	"mcpwire/streamable"
	"mcpwire/tools/bench/loop"
)

type args struct {
	Text string `json:"text"`
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	f, err := loop.ParseFlags()
	if err != nil {
		return err
	}
	var revision mcp.Revision
	if err := revision.UnmarshalText([]byte(f.Revision())); err != nil {
		return err
	}
	c, err := client.Dial(ctx, transport(f), &client.Options{Info: mcp.Implementation{Name: "bench", Version: "1.0.0"}, Revisions: []mcp.Revision{revision}})
	if err != nil {
		return err
	}
	defer c.Close()
	return loop.Run(c.Revision().String(), func(ctx context.Context, text string) (string, error) {
		return client.CallTool[string](ctx, c, "echo", args{text})
	})
}

func transport(f loop.Flags) client.Transport {
	if f.URL != "" {
		return streamable.NewTransport(f.URL, nil)
	}
	cmd := stdio.Command(f.Server[0], f.Server[1:]...)
	cmd.Stderr = os.Stderr
	return cmd
}
