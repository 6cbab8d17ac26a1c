// Package bridge connects MCP clients to a server that they could not reach by themselves: one that is on another carrier, or of the other era. It is what mcpwire bridge
// runs.
//
// The near side is the clients': one on standard input and output or on each connection of a socket ([Bridge.Serve]), or many over HTTP, in all revisions on one endpoint
// ([Bridge.Handler]). The far side is the server: whatever [Options.Connect] connects to, a process that is started, a URL, or a socket.
//
// # What is forwarded
//
// Where both sides are of the same era, messages are forwarded as the bytes that they are, whatever is in them; what had line breaks is written on one line, and a batch
// of a client as its messages. Only where clients share a connection to the server do ids get in each other's way: then the id, the progress token, the
// subscription's id and what a cancellation names are replaced in the bytes, and put back on the way back. Otherwise package internal/translate stands in between.
//
// # Lifecycle
//
// A client has a connection to the server of its own, with its own process if the server is one, unless [Options.Shared] says that all share one. It begins with the
// client's first message, and ends with the client: with its input, its connection, its session's DELETE, or when a session was idle for too long. Requests without a
// session have one for each principal. It ends when nobody has made any for as long, and what clients share when it was as long without clients.
//
// When the server's process ends, or its HTTP session does, each request that waits for it is answered with an error at once, which says how it ended
// and what it wrote to standard error last. It is started again after a pause, that grows while it does not help, and told what the one before
// knew: the handshake, the log level, and what was subscribed to; the client is told that lists may have changed. Requests that were not sent yet wait for that, a
// moment long.
//
// # Concurrency
//
// A Bridge and its methods may be used by many goroutines at once. Each connection to the server has three goroutines, which [Bridge.Close] waits for.
//
// # Errors
//
// What is wrong with the server is answered to clients as JSON-RPC errors with code -32603; nothing of it ends the bridge. [ErrClosed] is what Serve returns on a bridge that
// was closed.
package bridge
