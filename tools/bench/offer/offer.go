// Package offer provides the primitives of the benchmark's servers: the two tools that every entry
// has, any number of further tools for lists, and one of each other primitive.
package offer

import (
	"context"
	"fmt"
	"strings"

	"mcpwire/mcp"
	"mcpwire/server"
)

type text struct {
	Text string `json:"text" jsonschema:"the text"`
}

type count struct {
	Count int `json:"count"`
}

// query has the arguments of the tools that are only listed.
type query struct {
	Query string `json:"query" jsonschema:"what to look for"`
	Limit int    `json:"limit,omitempty" jsonschema:"how many results to return"`
	Exact bool   `json:"exact,omitempty" jsonschema:"whether the case matters"`
}

// Tools adds the given number of tools, at least echo. With everything, word_count can run as a
// task.
func Tools(srv *server.Server, tools int, everything bool) error {
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
		err := server.AddTool(srv, fmt.Sprintf("find_%03d", i), "Finds nothing; it only fills the list.",
			func(context.Context, query) (string, error) { return "", nil })
		if err != nil {
			return err
		}
	}
	return nil
}
