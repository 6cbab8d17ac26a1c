// Command server is mcpwire's entry in benchmarks: a stdio server with the two
// tools that every entry offers, and as many more as asked for to be listed.
// It imports what a small server needs and nothing else.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/stdio"
)

type text struct {
	Text string `json:"text" jsonschema:"the text"`
}

type count struct {
	Count int `json:"count"`
}

// query is what a tool that is only listed takes.
type query struct {
	Query string `json:"query" jsonschema:"what to look for"`
	Limit int    `json:"limit,omitempty" jsonschema:"how many results to return"`
	Exact bool   `json:"exact,omitempty" jsonschema:"whether the case matters"`
}

func main() {
	tools := flag.Int("tools", 2, "how many tools to list; the first is echo, the second word_count")
	everything := flag.Bool("everything", false, "offer resources, templates, prompts, completion, tasks and a method of its own as well")
	flag.Parse()
	if err := serve(context.Background(), *tools, *everything); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, tools int, everything bool) error {
	opts := &server.Options{}
	if everything {
		opts.Tasks = &server.TaskOptions{}
	}
	srv := server.New("bench", "1.0.0", opts)
	if err := register(srv, tools, everything); err != nil {
		return err
	}
	if everything {
		if err := registerRest(srv); err != nil {
			return err
		}
	}
	return stdio.Serve(ctx, srv)
}

// register adds as many tools as asked for, at least echo. With everything, word_count can run as a task.
func register(srv *server.Server, tools int, everything bool) error {
	err := server.AddTool(srv, "echo", "Returns the text it was given.",
		func(_ context.Context, in text) (string, error) { return in.Text, nil })
	if err != nil || tools < 2 {
		return err
	}
	words := mcp.Tool{Name: "word_count", Description: "Counts the words of a text."}
	if everything {
		words.Execution = &mcp.ToolExecution{TaskSupport: mcp.TaskSupportOptional}
	}
	err = server.AddToolWith(srv, words,
		func(_ context.Context, in text) (count, error) { return count{len(strings.Fields(in.Text))}, nil })
	if err != nil {
		return err
	}
	for i := range tools - 2 {
		err := server.AddTool(srv, fmt.Sprintf("find_%03d", i), "Finds nothing; it is there to be listed.",
			func(context.Context, query) (string, error) { return "", nil })
		if err != nil {
			return err
		}
	}
	return nil
}
