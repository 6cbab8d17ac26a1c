// Package client talks to MCP servers of every revision of the protocol as if
// all were modern (https://modelcontextprotocol.io/specification).
//
//	c, err := client.Dial(ctx, stdio.Command("node", "server.js"), nil)
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	args := map[string]any{"text": "a b c"}
//	n, err := client.CallTool[int](ctx, c, "word_count", args)
//
// A [Client] has a method for each feature of the protocol:
//
//	for tool, err := range c.Tools(ctx) { … }  // also Prompts, Resources, …
//	result, err := c.CallTool(ctx, name, args) // shows a model the tool's errors
//	task, err := c.StartTool(ctx, name, args)  // for tools that take long
//	r, err := c.ReadResource(ctx, "file:///notes.txt")
//	p, err := c.GetPrompt(ctx, "review", map[string]string{"language": "go"})
//	s, err := c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true})
//	err = c.Call(ctx, "acme/method", params, &result) // any other method
//
// Calls take options, such as [WithTimeout] and [WithProgress]. A [Group] holds
// the clients of an agent with many servers.
//
// The handlers in [Options.Input] serve input requests: a server may ask for the
// user's input, the user's model, or folders while it answers. Legacy servers
// send them as requests, modern servers within a result.
//
// # Eras
//
// Dial first probes whether the server is modern. Whatever no modern server answers leads to the
// legacy handshake: any other result or error, the end of the process, silence, and, after some
// retries, an overload or a failed request. If the server exits at the probe, or does not respond
// after it, the handshake gets a fresh process. A known [Options.Profile] skips the probe.
//
// # Lost connections
//
// The Client replaces a lost connection, and calls wait for the new one. Calls in flight fail with
// [jsonrpc.ErrClosed] unless they are safe to repeat: lists, reads, and calls that [WithRetry] or
// the tool's annotations declare safe (see [RetryPolicy.IgnoreHints]). The Client ends when it
// cannot connect again: see [Client.Done] and [ReconnectPolicy].
//
// Over HTTP, a single call can fail with a *[jsonrpc.CallError] while the
// connection goes on. The Client retries a call that the server certainly did
// not process, within [RetryPolicy]. The rule above applies to all other calls.
//
// # Cancellation
//
// If the context of a call ends, the server gets a cancellation with the text of
// [context.Cause] as its reason. It must not contain secrets. The context of a
// handler in [Options.Input] has a cause as package server describes.
//
// # Untrusted servers
//
// Limits apply to the time, memory and retries that a server can cost, and the Client checks
// messages before it uses them. It cannot check texts: names, descriptions, error messages and tool
// annotations are the server's claims. A server can hold a call for as long as it reports progress;
// [Timeouts.MaxCall] limits that.
//
// # Concurrency
//
// Multiple goroutines may use a [Client] at once. The callbacks of a call run
// on the goroutine that made the call. The handlers in [Options.Input] run
// concurrently on goroutines of the Client, and may call the server.
//
// # Errors
//
// An error wraps a *[jsonrpc.Error] if and only if the server answered with
// one, see [IsServerError]. Other errors are a *[TimeoutError], a
// *[NotConnectedError], a *[ProtocolError], an *[InputError], the context's
// error, a *[jsonrpc.CallError] if the transport failed for one call, or wrap
// [jsonrpc.ErrClosed]. A tool that reports failure is a *[ToolError], and a
// result that violates the tool's output schema is an *[OutputError].
package client
