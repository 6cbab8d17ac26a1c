// Package server builds MCP servers. Register tools with [AddTool], then hand the [Server] to a carrier:
//
//	srv := server.New("demo", "1.0.0", nil)
//	err := server.AddTool(srv, "word_count", "Count words in the input string.",
//		func(ctx context.Context, in struct {
//			Text string `json:"text" jsonschema:"text to count"`
//		}) (int, error) {
//			return len(strings.Fields(in.Text)), nil
//		})
//	…
//	if err := stdio.Serve(ctx, srv); err != nil {
//		log.Fatal(err)
//	}
//
// One server speaks all revisions of the protocol, to legacy clients that start with the initialize handshake and to modern ones whose requests
// carry their own metadata, on the same connection if need be. Handlers do not see the difference.
//
// # Concurrency
//
// A Server's methods may be called by many goroutines at once, and while it serves. Handlers run concurrently, on goroutines that belong to the
// server; [Options.MaxInFlight] bounds how many. A handler that is known to return within microseconds may run on the goroutine that
// reads the connection; one that then blocks is moved off within milliseconds.
//
// # Errors
//
// What a handler returns as an error is the tool's failure: the client gets a result with isError, whose text is the error's. An error that wraps a
// [jsonrpc.Error] is answered as that protocol error instead. A panic is answered as an internal error, and logged.
package server
