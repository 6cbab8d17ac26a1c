// Package server builds MCP servers. Register tools with [AddTool], resources with [AddResource] and [AddResourceTemplate], prompts with [AddPrompt], then
// hand the [Server] to a transport:
//
//	srv := server.MustNew("demo", "1.0.0", nil)
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
// # Asking the client
//
// A handler of a tool, a resource or a prompt can ask the client: [Call.Elicit] and [Elicit] the user, [Call.Sample] its model, [Call.Roots] for the folders
// it works in, [Call.InputRequests] for several things at once. The same code serves all revisions, but it does not run in the same way, so read this:
//
// In legacy revisions the question is a request to the client, and the handler waits for the answer.
//
// In modern ones NOTHING WAITS. The method returns [ErrInputRequired]; the handler returns; the client gets the questions as the answer to its request,
// and sends the request again with what the user said, maybe to another process. Then the handler RUNS AGAIN FROM ITS BEGINNING, and this time the method
// returns the answer. A handler that asks three things, one after the other, runs four times. So
//
//   - return the error that asking returns. (If a handler does not, the client is asked all the same, and what it returned is dropped.)
//   - do nothing twice: what has an effect comes behind the last question, or into [Once], which remembers what a function returned.
//   - ask the same in each run: under the same key, with the same text. An answer counts only for the question that it was given to. What is random, or
//     depends on the time, comes from [Once].
//   - ask everything at once if you can, and call [Call.Require] first if there is no point in asking a client that cannot answer everything.
//
// What a call remembers, its answers and what Once returned, travels with the client in the request state. It is encrypted and authenticated, and good
// only for the same principal, method, name and arguments, for [Options.StateTTL]. A state that is not is refused as invalid params, before the handler
// runs. Processes that are to take up each other's calls share [Options.StateKeys].
//
// # Around handlers
//
// [Server.Use] adds middleware, which sees all messages in both directions. [Options.View] shows each caller its part of the server, [Options.RateLimit] and
// [Options.MaxConcurrent] limit what one may ask for. [AddMethod] and [Server.OnNotification] are for what the protocol does not have.
//
// # Several processes
//
// Servers that serve the same clients, behind a load balancer say, share what clients come back for: [Options.StateKeys], the [TaskStore] of [Options.Tasks],
// and the sessions and events of their transport. [Options.Bus] has each of them tell its own clients what is announced at the others: that a list has
// changed, a resource was updated, a task has gone on. A [Bus] is a few lines around a message broker's client; [MemoryBus] is one within a process.
//
// # Concurrency
//
// A Server's methods may be called by many goroutines at once, and while it serves. Handlers run concurrently, on goroutines that belong to the
// server; [Options.MaxInFlight] bounds how many. A handler that is known to return within microseconds may run on the goroutine that
// reads the connection; one that then blocks is moved off within milliseconds.
//
// # Errors
//
// What the function of a tool returns as an error is the tool's failure: the client gets a result with isError, whose text is the error's. Resources, prompts
// and completions have no such results: there the client gets an internal error without the text. An error that wraps a [jsonrpc.Error] is answered as
// that protocol error instead. A panic is answered as an internal error, and logged.
package server
