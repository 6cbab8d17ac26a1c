// Package bridge connects MCP clients to a server that they could not reach by themselves: one that is on another transport, or of the other era. It is what mcpwire bridge
// runs.
//
// The near side is the clients': one on standard input and output or on each connection of a socket ([Bridge.Serve]), or many over HTTP, in all revisions on one endpoint
// ([Bridge.Handler]). The far side is the server: whatever [Options.Connect] connects to, a process that is started, a URL, or a socket.
//
// # What is forwarded
//
// Where both sides are of the same era, messages are forwarded as the bytes that they are, whatever is in them; what had line breaks is written on one line, and a batch
// of a client as its messages. What can be read in two ways, because a member appears more than once in an object, at any level, is refused, in either direction. Cancellations
// of what is not open end here, and so do late answers; if one says that a modern server has made a task of a call that was given up, the bridge cancels the task. Only where clients share a connection to the server do ids get in each other's way: then the id, the progress token, the
// subscription's id and what a cancellation names are replaced in the bytes, and put back on the way back. Otherwise package internal/proxy/translate stands in between.
//
// # Lifecycle
//
// A client has a connection to the server of its own, with its own process if the server is one, unless [Options.Shared] says that clients share. It begins with the
// client's first message, and ends with the client: with its input, its connection, its session's DELETE, or when a session was idle for too long. Requests without a
// session have one for each principal. It ends when nobody has made any for as long, and what clients share when it was as long without clients. Options.MaxServers and
// Options.MaxServersPerCaller limit the connections; over HTTP, what exceeds them is refused with status 503 and 429.
//
// When the server's process ends, or its HTTP session does, each request that waits for it is answered with an error at once, which says how it ended
// and what it wrote to standard error last. It is started again after a pause, which grows until a request was answered, and told what the one before
// knew: the handshake, the log level, and what was subscribed to; the client is told that lists may have changed. Requests that were not sent yet wait for that, for
// Options.RestartWait. While it is not known yet what the server is, because it starts for the first time, up to Options.MaxBacklog messages of a client wait.
//
// # Clients that share
//
// With [Options.Shared], clients of one principal share a connection to the server; two principals never do. Where nobody has to log in, everybody who can connect is the same
// one.
//
// A modern server is told with each request who asks, so that all clients share one connection, those of both eras.
//
// A legacy server is told it once, in the handshake, and acts by it from then on: a tool asks the user because the client can, or does without because it cannot. No
// one handshake is true of clients that differ. Of all that they declare together, each would be asked what it has not declared, and tools fail that could have done
// without; besides, nobody knows when the handshake is due what clients are to come. Of what the first has declared, the others would have too much or too little, by
// chance. So the clients share that introduce themselves alike: by the revision, the capabilities and the name that they give. The server hears
// what each of them says, to the byte but for tasks of clients, whose ids are each client's own. Whoever says something else shares with others of its kind: a
// command may run once for each kind. Modern clients before a legacy server are translated, and have a session apart from the legacy ones.
//
// What a server says goes to the client that it is for, and to no other: answers and progress by the request, changes of resources by who has subscribed, subscriptions,
// tasks and pages to be visited by their ids, log messages from the level that the client has chosen, by the request. Over HTTP a legacy server says on which request's
// stream it asks, or logs. Over a pipe nothing tells: then a question goes to the client with the request that was begun last of those that may ask, or else to the one
// that has said something last, because somebody has to answer it; a log message goes to the client that alone has something under way, to all if none has, and
// to nobody otherwise. What concerns the session, that lists have changed for example, goes to all.
//
// Each client has a bounded outbox: one that does not read is cut off, and nobody waits for it. When the connection ends, all that wait are answered; it is made
// again for all, with everything that they have subscribed to. When the last client has gone, it ends after Options.IdleTimeout.
//
// A connection that is not on HTTP is given up too if a request had no answer in time and the server does not even answer a ping then; so is a client on a socket that takes
// nothing of what it is sent for a minute.
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
