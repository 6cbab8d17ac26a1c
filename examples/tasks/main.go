// Tasks is a server on standard input and output with a tool that takes long. Clients that support
// tasks get the result later, and may disconnect meanwhile or cancel.
//
//	mcpwire call bake --task -- go run ./examples/tasks
package main

import (
	"context"
	"errors"
	"log"
	"time"

	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/stdio"
)

// newServer returns a server with a bakery's oven. A loaf takes the time bake.
func newServer(bake time.Duration) (*server.Server, error) {
	srv, err := server.New("bakery", "1.0.0", &server.Options{Tasks: &server.TaskOptions{
		TTL:          10 * time.Minute, // a task may run so long, and its result is kept so long
		PollInterval: 200 * time.Millisecond,
	}})
	if err != nil {
		return nil, err
	}
	def := mcp.Tool{
		Name:        "bake",
		Description: "Bake a loaf of bread.",
		// Clients without tasks wait for the result. TaskSupportRequired would reject them.
		Execution: &mcp.ToolExecution{TaskSupport: mcp.TaskSupportOptional},
	}
	// The handler is that of any tool. It must return when its context ends: the task was canceled,
	// its TTL has expired, or the server is closing.
	err = server.AddToolWith(srv, def, func(ctx context.Context, _ struct{}) (string, error) {
		timer := time.NewTimer(bake)
		defer timer.Stop()
		select {
		case <-timer.C:
			return "A loaf of bread.", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	})
	return srv, err
}

func run(ctx context.Context) error {
	srv, err := newServer(5 * time.Second)
	if err != nil {
		return err
	}
	err = stdio.Serve(ctx, srv)
	// Tasks outlive their connection. Close cancels those that still run.
	return errors.Join(err, srv.Close(ctx))
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
