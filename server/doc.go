// Package server builds Model Context Protocol servers
// (https://modelcontextprotocol.io/specification/2026-07-28). Register tools with
// [AddTool], resources with [AddResource] and [AddResourceTemplate], and prompts
// with [AddPrompt]. Then pass the [Server] to a transport:
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
// Pass the errors of several registrations to [errors.Join], and test them once:
//
//	err := errors.Join(
//		server.AddTool(srv, "word_count", "Count the words of a text.", wordCount),
//		server.AddTool(srv, "reverse", "Reverse a text.", reverse),
//		server.AddResource(srv, mcp.Resource{URI: "docs://help", Name: "help"}, help),
//	)
//
// One server speaks all revisions of the protocol. It serves legacy clients, which start with the
// initialize handshake, and modern clients, whose requests carry their own metadata, even on the
// same connection. Handlers do not see the difference.
//
// # Asking the client
//
// The handler of a tool, a resource or a prompt can ask the client for input. [Call.Elicit] and
// [Elicit] ask the user, [Call.Sample] asks the model, [Call.Roots] asks for the client's folders,
// and [Call.InputRequests] asks for several things at once. The same code serves all revisions, but
// it runs differently, so read this:
//
// In legacy revisions an input request is a request to the client, and the handler
// waits for the response.
//
// In modern revisions NOTHING WAITS. The method returns [ErrInputRequired] and the handler returns.
// The client gets the input requests as the result of its request. It sends the request again with
// the responses, possibly to another process. Then the handler RUNS AGAIN FROM ITS BEGINNING, and
// this time the method returns the response. A handler with three input requests, one after the
// other, runs four times. Therefore:
//
//   - Return the error that the method returned. If a handler doesn't, the client is
//     asked anyway and the handler's result is dropped.
//   - Do nothing twice. Put side effects after the last input request, or into
//     [Once], which remembers a function's result.
//   - Ask the same in each run: under the same key, with the same text. A response
//     counts only for the input request that it was given to. Take random values and
//     times from [Once].
//   - Test it with package mcptest, which runs such handlers twice and compares.
//   - Ask for everything at once if you can. If the handler needs several features of
//     the client, call [Call.Require] first.
//
// The request state travels with the client. It holds the responses and the results of Once. It is
// encrypted and authenticated, and valid only for the same principal, method, name and arguments,
// for [InputOptions.StateTTL]. The server rejects an invalid state as invalid params before the
// handler runs. Processes that continue each other's calls must share [Options.StateKeys].
//
// # Around handlers
//
// [Server.Use] adds middleware, which sees the messages in both directions.
// [Options.View] limits what each caller sees of the server. [Options.Callers]
// limits the requests of one caller. [AddMethod] and [Server.OnNotification] add
// methods and notifications that the protocol doesn't have.
//
// # Several processes
//
// Servers behind a load balancer share what their clients come back for: [Options.StateKeys], the
// [TaskStore] of [Options.Tasks], and the sessions and events of the transport. With [Options.Bus]
// each server also notifies its own clients of what happens at the others: a changed list, an
// updated resource, the progress of a task. A [Bus] is a few lines around a message broker's
// client; [NewMemoryBus] returns one for servers in one process.
//
// # Concurrency
//
// A Server's methods may be called by multiple goroutines, also while it serves. Handlers run
// concurrently on goroutines of the server; [Limits.MaxInFlight] limits their number. A handler
// that usually returns within microseconds may run on the goroutine that reads the connection. If
// it blocks there, reading moves to another goroutine within milliseconds.
//
// # Cancellation
//
// The context of a handler ends when nobody needs its result. [context.Cause] then
// says why: a *[jsonrpc.CanceledError] with the client's reason if the client canceled
// the request, [jsonrpc.ErrDisconnected] if it disconnected, [jsonrpc.ErrShutdown] if
// the server ends, and [ErrHandlerTimeout] after [Limits.HandlerTimeout].
//
// # Errors
//
// An error from a tool's function becomes a result with isError and the error's text.
// Resources, prompts and completions have no such results: the client gets an
// internal error without the text. An error that wraps a [jsonrpc.Error] is sent as
// that protocol error instead. A panic is logged and answered as an internal error.
package server
