// Package client talks to MCP servers (https://modelcontextprotocol.io/specification) of every revision, as if they were all modern:
//
//	c, err := client.Dial(ctx, stdio.Command("node", "server.js"), nil)
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	n, err := client.CallTool[int](ctx, c, "word_count", map[string]any{"text": "a b c"})
//
// What else a [Client] does:
//
//	for tool, err := range c.Tools(ctx) { … }             // and Prompts, Resources, ResourceTemplates: all pages
//	result, err := c.CallTool(ctx, name, args)            // for a model, which is to see what went wrong too
//	task, err := c.StartTool(ctx, name, args)             // for tools that take long
//	r, err := c.ReadResource(ctx, "file:///notes.txt")
//	p, err := c.Prompt(ctx, "review", map[string]string{"language": "go"})
//	s, err := c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true})
//	err = c.Call(ctx, "acme/method", params, &result)     // whatever has no method of its own
//
// Calls take options, such as [WithTimeout] and [WithProgress]. An agent with many servers has them in a [Group].
//
// What a server asks for while it answers (the user's input, the user's model, folders) goes to the handlers in [Options], whether it comes as a request
// of its own, from a legacy server, or within a result, from a modern one.
//
// # Eras
//
// Dial asks first whether the server is modern. One that answers with any error but those that only modern servers know, that says nothing, or that
// exits, is taken for a legacy one and gets the handshake, in a fresh process if need be. [Options.Profile] spares a server that is known the question.
//
// # Lost connections
//
// A connection that ends is made again. Calls wait for the new one. Those that were under way fail with [jsonrpc.ErrClosed], unless they can be repeated
// without harm: lists, reads, and calls that [WithRetry] or the tool's annotations vouch for (see [Options.IgnoreHints]). Nothing else is ever sent twice.
// When there can be no other connection, the Client ends: see [Client.Done] and [ReconnectPolicy].
//
// Over HTTP a call can be lost by itself, with a *[jsonrpc.CallError], while the connection goes on. One that was certainly not carried out is sent again,
// within [RetryPolicy], whatever it is; for others the rule above holds.
//
// # Servers that mean no good
//
// What a server can make a client wait for, keep in memory or do again is bounded, and all that it says is checked before it is used. Its texts are not:
// what it calls itself, its tools and their errors are its own words. So are tools' annotations. A server can hold a call for as long as it makes
// progress; [Options.MaxCallTimeout] is for those that do not end.
//
// # Concurrency
//
// A [Client] may be used by many goroutines at once. Callbacks of a call run on the goroutine that made it. Handlers of [Options] run on goroutines of
// the client's, many at once, and may call the server in turn.
//
// # Errors
//
// An error wraps a *[jsonrpc.Error] if and only if the server answered one, see [IsPeer]. Others are a *[TimeoutError], a *[ProtocolError], an
// *[InputError], a *[jsonrpc.CallError], which says what its transport could not do for a call, the context's error, or wrap [jsonrpc.ErrClosed]. A tool that failed is none of these but a *[ToolError], and a result that is not what the
// tool's output schema promises an *[OutputError].
package client
