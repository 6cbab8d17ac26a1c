//go:build unix

// Command httpserver is mcpwire's entry in benchmarks over HTTP: the tools of
// command server at any path, for all revisions.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"

	"mcpwire/server"
	"mcpwire/streamable"
	"mcpwire/tools/bench/offer"
	"mcpwire/tools/bench/probe"
)

func main() {
	addr := flag.String("http", "127.0.0.1:0", "`ADDRESS` to listen on")
	tools := flag.Int("tools", 2, "how many tools to list; the first is echo, the second word_count")
	era := flag.String("era", "", "the only era to speak, `legacy` or modern; both if empty")
	stream := flag.Bool("sse", false, "answer with event streams")
	old := flag.Bool("old", false, "serve the transport of 2024-11-05, at /sse and /messages, and nothing else")
	flag.Parse()
	err := probe.Run(func(ctx context.Context) error { return serve(ctx, *addr, *tools, *era, *stream, *old) })
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, addr string, tools int, era string, stream, old bool) error {
	revisions, err := offer.Revisions(era)
	if err != nil {
		return err
	}
	srv := server.MustNew("bench", "1.0.0", &server.Options{Revisions: revisions})
	if err := offer.Tools(srv, tools, false); err != nil {
		return err
	}
	h := streamable.MustHandler(srv, &streamable.Options{StreamAlways: stream, Limits: streamable.Limits{MaxPerCaller: 10_000}})
	if old {
		sse := h.SSE("/messages")
		mux := http.NewServeMux()
		mux.Handle("/sse", sse)
		mux.Handle("/messages", sse)
		return streamable.ListenAndServe(ctx, addr, mux, &streamable.ServeOptions{OnShutdown: h.Shutdown})
	}
	return streamable.ListenAndServe(ctx, addr, h, nil) // at all paths, as rawhttp: a multiplexer is no part of either
}
