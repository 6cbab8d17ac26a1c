// Package bridge connects MCP clients to a server on another transport or of
// another era. It implements mcpwire bridge, between all revisions of the
// specification (https://modelcontextprotocol.io/specification).
//
// [Bridge.Serve] serves one client on a byte stream, [Bridge.ServeListener]
// each client of a socket, and [Bridge.Handler] many clients over HTTP.
// [Options.Connect] connects to the server: a process, a URL or a socket.
//
// # Pass-through and translation
//
// If client and server are of the same era, the bridge forwards the bytes of a message. It only
// removes line breaks and splits batches. If clients share an upstream, it also replaces request
// ids, progress tokens, subscription ids and the ids in cancellations, and restores them on the way
// back. It refuses messages with duplicate member names, at any level, in both directions. It drops
// late responses, and cancellations of requests that are not pending. If a late response shows that
// a modern server made a task of an abandoned call, the bridge cancels the task.
//
// If the eras differ, package internal/proxy/translate converts the messages.
//
// # Upstreams
//
// By default each client has a dedicated upstream, and its own process if the server is a command.
// The upstream connects at the client's first message. It closes when the input, the connection or
// the session of the client ends. Requests without a session use one upstream for each principal;
// it closes after Options.IdleTimeout without requests.
//
// Options.MaxServers and Options.MaxServersPerCaller limit the upstreams. Over
// HTTP, the bridge rejects requests above a limit with status 503 or 429.
//
// # Restarts
//
// When the process or the HTTP session of the server ends, the bridge answers
// the requests that were sent with an error. The error says how the process
// ended and what it last wrote to standard error.
//
// The bridge then connects again, after a backoff that grows until a request is answered. It
// repeats the handshake, the log level and the subscriptions, and notifies clients that lists may
// have changed. Requests that were not sent wait for the new connection, up to Options.RestartWait.
// So do requests over HTTP, also the first of a client, for which the machine of a server that
// responded before refuses a connection, except those above 1 MiB if they exceed Options.MaxQueue
// together. While the bridge detects the era of the server, up to Options.MaxBacklog messages of a
// client wait.
//
// The bridge also ends a connection that is not HTTP if a request timed out and the server does not
// answer a ping. It closes a socket to a client that accepts no data for a minute.
//
// # Shared upstreams
//
// With [Options.Shared], the clients of one principal share an upstream.
// Different principals never share. Without authentication, all clients are the
// same principal. An upstream without clients closes after Options.IdleTimeout.
//
// A modern server gets the client's capabilities with each request, so the
// clients of both eras share one upstream.
//
// A legacy server gets them once, in the handshake, and acts on them in every call. So only clients
// whose initialize requests have the same revision, name and capabilities share a session. The
// bridge forwards these parameters unchanged, except that it does not declare the tasks of clients:
// clients choose the ids of those, and they could collide. A command may run once for each kind of
// client. Translated modern clients and legacy clients have separate sessions.
//
// # Routing in shared sessions
//
// The bridge sends a message of the server to the client that it is for:
//
//   - Responses and progress go by request id and progress token.
//   - Resource updates go to the clients that subscribed to the resource.
//   - Subscriptions, tasks and URL elicitations go by their ids.
//   - Log messages go by request, and from the level that the client chose.
//   - Messages about the session, such as changed lists, go to all clients.
//
// Over HTTP, the stream shows which request an input request or a log message belongs to. On a byte
// stream nothing does. Then an input request goes to the client with the latest call that may cause
// one, or else to the client that was active last. A log message goes to the only client with a
// pending request, to all clients if none has one, and is dropped otherwise.
//
// If the calls of several principals share the upstream, see [WithCallPrincipal], such an input
// request goes to the only principal with a pending call, and is refused otherwise. A call that was
// given up counts as pending for a while, because the server may not have noticed.
//
// Each client has a bounded outbox. The bridge evicts a client that does not
// read, so that it does not delay others.
//
// # Concurrency
//
// The methods of a Bridge may be called by many goroutines at once. Each
// connection to the server has three goroutines. [Bridge.Close] waits for them.
//
// # Errors
//
// The bridge reports failures of the server to clients as JSON-RPC errors with
// code -32603. They do not end the bridge. Serve returns [ErrClosed] if the
// bridge is closed, and an error with [ErrFull] if it has no room for the client.
package bridge
