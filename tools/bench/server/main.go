// Command server is mcpwire's entry in benchmarks: a stdio server with the two tools that every
// entry offers, and any number of further tools for lists. It imports only what a small server
// needs.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"mcpwire/server"
	"mcpwire/stdio"
	"mcpwire/tools/bench/offer"
)

func main() {
	tools := flag.Int("tools", 2, "how many tools to list; the first is echo, the second word_count")
	era := flag.String("era", "", "the only era to speak, `legacy` or modern; both if empty")
	everything := flag.Bool("everything", false, "offer resources, templates, prompts, completion, tasks and a method of its own as well")
	flag.Parse()
	if err := serve(context.Background(), *tools, *era, *everything); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, tools int, era string, everything bool) error {
	revisions, err := offer.Revisions(era)
	if err != nil {
		return err
	}
	opts := &server.Options{Revisions: revisions}
	if everything {
		opts.Tasks = &server.TaskOptions{}
	}
	srv := server.MustNew("bench", "1.0.0", opts)
	if err := offer.Tools(srv, tools, everything); err != nil {
		return err
	}
	if everything {
		if err := offer.Everything(srv); err != nil {
			return err
		}
	}
	return stdio.Serve(ctx, srv)
}
