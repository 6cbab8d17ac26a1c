// Command gosdkclient is the benchmark's client on
// github.com/modelcontextprotocol/go-sdk.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"os/exec"

	"github.com/modelcontextprotocol/go-sdk/mcp"

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
	c := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1.0.0"}, nil)
	session, err := c.Connect(ctx, transport(f), &mcp.ClientSessionOptions{ProtocolVersion: f.Revision()})
	if err != nil {
		return err
	}
	defer session.Close()
	return loop.Run(session.InitializeResult().ProtocolVersion, func(ctx context.Context, text string) (string, error) {
		res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: args{text}})
		if err != nil {
			return "", err
		}
		if res.IsError || len(res.Content) != 1 {
			return "", errors.New("not one block")
		}
		block, ok := res.Content[0].(*mcp.TextContent)
		if !ok {
			return "", errors.New("not a text")
		}
		return block.Text, nil
	})
}

func transport(f loop.Flags) mcp.Transport {
	if f.URL != "" {
		return &mcp.StreamableClientTransport{Endpoint: f.URL, HTTPClient: loop.HTTPClient()}
	}
	cmd := exec.Command(f.Server[0], f.Server[1:]...)
	cmd.Stderr = os.Stderr
	return &mcp.CommandTransport{Command: cmd}
}
