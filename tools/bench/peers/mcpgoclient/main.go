// Command mcpgoclient is the benchmark's client on
// github.com/mark3labs/mcp-go.
package main

import (
	"context"
	"errors"
	"log"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"mcpwire/tools/bench/loop"
)

type args struct {
	Text string `json:"text"`
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	f, err := loop.ParseFlags()
	if err != nil {
		return err
	}
	var opts []client.ClientOption
	if !f.Modern {
		//lint:ignore SA1019 the handshake is what this era is about
		opts = append(opts, client.WithLegacyProtocolOnly())
	}
	t, err := newTransport(f)
	if err != nil {
		return err
	}
	c := client.NewClient(t, opts...)
	if err := c.Start(ctx); err != nil {
		return err
	}
	defer c.Close()
	var hello mcp.InitializeRequest
	hello.Params.ProtocolVersion = f.Revision()
	hello.Params.ClientInfo = mcp.Implementation{Name: "bench", Version: "1.0.0"}
	initialized, err := c.Initialize(ctx, hello)
	if err != nil {
		return err
	}
	return loop.Run(initialized.ProtocolVersion, func(ctx context.Context, text string) (string, error) {
		var req mcp.CallToolRequest
		req.Params.Name, req.Params.Arguments = "echo", args{text}
		res, err := c.CallTool(ctx, req)
		if err != nil {
			return "", err
		}
		if res.IsError || len(res.Content) != 1 {
			return "", errors.New("not one block")
		}
		block, ok := res.Content[0].(mcp.TextContent)
		if !ok {
			return "", errors.New("not a text")
		}
		return block.Text, nil
	})
}

func newTransport(f loop.Flags) (transport.Interface, error) {
	if f.URL != "" {
		return transport.NewStreamableHTTP(f.URL, transport.WithHTTPBasicClient(loop.HTTPClient()))
	}
	return transport.NewStdio(f.Server[0], nil, f.Server[1:]...), nil
}
