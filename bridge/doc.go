// Package bridge connects MCP clients to a server on another transport or of another era. It is the
// library of the command mcpwire bridge, between all revisions of the specification
// (https://modelcontextprotocol.io/specification).
//
//	b, err := bridge.New(stdio.Command("node", "server.js"), nil)
//	...
//	defer b.Close()
//	h, err := b.Handler(nil)
//	...
//	mux.Handle("/mcp", h)
//
// [Bridge.Handler] serves many clients over HTTP, and [Bridge.Serve] one client on a byte stream,
// so [stdio.Serve] serves it on standard input and output. The server is a [client.Transport]: a
// [stdio.Command] is a process, and [streamable.NewTransport] a URL.
//
// If client and server are of the same era, messages pass through unchanged, including methods and
// members that this module does not know. If the eras differ, the bridge translates;
// doc/translation.md lists what cannot cross. It detects the era of each client by its first
// message, and the era of the server by asking it.
//
// # Upstreams
//
// Each client has a dedicated connection to the server, and its own process if the server is a
// command. It opens at the client's first message and closes when the input or the session of the
// client ends. Requests over HTTP that belong to no session use one connection for each principal.
//
// With [Options].Shared, the clients of one principal share a connection: all of them if the server
// is modern, those with the same handshake if it is legacy. Different principals never share.
// Without [streamable.Options].Guard, all clients are the same principal.
//
// # Restarts
//
// If a process or an HTTP session of the server ends, pending requests get an error at once. The
// bridge never repeats a request that may have been carried out. It connects again with a backoff,
// and repeats the handshake, the log level and the subscriptions of its clients.
//
// # Concurrency
//
// The methods of a [Bridge] may be called by multiple goroutines at once. [Bridge.Close] waits for
// the goroutines of the connections to the server.
//
// # Errors
//
// Failures of the server are JSON-RPC errors with code -32603 for the clients, and do not end the
// bridge. Their texts may recommend a flag of the command mcpwire bridge. [Bridge.Serve] returns
// [ErrClosed] or an error with [ErrFull].
package bridge
