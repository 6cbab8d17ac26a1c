// Package streamable carries MCP over HTTP, on both sides and in all revisions
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http).
//
// # Server
//
// [NewHandler] makes a [Handler] for one URL, which serves a *server.Server. [ListenAndServe] runs it with the limits that a server on a network needs; it
// can also be mounted in an [net/http.Server] that there is already:
//
//	h := streamable.MustHandler(srv, nil)
//	mux.Handle("/mcp", h)
//	err := streamable.ListenAndServe(ctx, ":8080", mux, &streamable.ServeOptions{OnShutdown: h.Shutdown})
//
// Each request is told apart by what it says of itself. Modern ones stand alone: there is no session, and a client that hangs up has cancelled. Their
// headers must agree with their body; what is wrong with a request is a status of 400 or 404, with a JSON-RPC error. Legacy clients have a session, which
// begins with initialize; their requests go on when they hang up. The answer is JSON, or an event stream if something precedes it, or if it takes longer than
// [Options.KeepAlive].
//
// [Handler.SSE] serves the transport of revision 2024-11-05, on paths of its own. With [Options].NDJSON, programs that only pipe can post any number of
// messages, one on each line, and get lines back while they still send. Neither is on unless asked for.
//
// # Client
//
// [Dial] makes a transport for package client: client.Dial(ctx, streamable.Dial(url, nil), nil). It finds out what the server speaks, sends the headers
// that repeat what is in the body, keeps the stream of a legacy session open and resumes it, and puts an OAuth client of package auth to use as the
// Transport of its HTTP client.
//
// # Security defaults
//
// A server that only this machine is to reach is still within reach of every page in its browsers. So a Handler refuses, with status 403, requests whose
// Host header is neither local nor among [Options].Hosts, and those of pages whose origin is not among [Options].Origins. Bodies must say that they are JSON,
// cannot be compressed, and are bounded, as is everything else in [Options] and [ServeOptions]: what is too much is answered with 429 or 503, and
// Retry-After. [ListenAndServe] takes no address that other machines reach unless [ServeOptions].AllowRemote is set.
//
// [Options].Guard asks for tokens. Sessions, their streams and their events belong to the principal whose token opened them, and do not exist for others;
// that a request has the id of a session proves nothing. What lasts, such as the stream of a subscription, ends when the token does. [Options].Scopes says
// what a request needs besides, whatever the revision.
//
// Requests in flight are shared among callers, which are principals, or network addresses where there
// are none ([Options].ClientAddr says which, behind a proxy): [Options].MaxInFlightPerCaller limits
// those of one, and when [Options].MaxInFlight is nearly reached, the callers with the most are
// rejected first. A caller over its share gets status 429; 503 means that the server as a whole has
// too much to do. Both come with Retry-After, and so do the limits of the server's own options.
//
// # Streams and resumption
//
// What a legacy session sends by event streams is kept in an [EventStore], by default in memory and bounded in bytes, number and age, so that a client whose
// connection broke gets the rest, by a GET with the id of the last event that it had. If that cannot be done without a gap, the status is 400. An answer
// that nothing precedes is kept only in 2025-11-25, where streams begin with an id: others have none to come back with. What belongs
// to no request comes by a GET stream; while nobody listens, the first 128 of it are kept, until the client listens. The GET stream that was opened last is
// the one that counts. [CloseStream] lets a handler that takes long give up the connection until there is something to say.
//
// Modern streams are not resumed: a request whose stream breaks is cancelled, and a subscription has to be made again.
//
// # Scaling out
//
// Modern requests can go to any process, as long as the servers share what server.Options says. So can those of legacy sessions if the handlers share
// [Options].Sessions and [Options].Events: a process that does not know a session takes it over, by having its initialize handled again. What else a client has
// told the other process does not come along, such as its log level and subscriptions to resources; and a session that ends by DELETE at one process
// lives on at others that know it, until it is idle for [Options].SessionTimeout. A [SessionStore] that fails makes requests of sessions that the process does not know fail with status 503, an [EventStore] that fails makes streams that cannot be resumed, but loses nothing that a connected client is sent. Balancers should therefore send a session to the same process while
// they can. Without these stores they have to. Requests that wait for an answer of the client get it only at the process that they are at.
//
// # Concurrency
//
// Handlers and transports may be used by many goroutines at once. Handlers of requests run on the goroutine that net/http has for them, but those of legacy
// requests of HTTP/2, which may outlast their stream, on one of their own. [Handler.Shutdown] ends streams and sessions, and waits for what is under way.
//
// # Errors
//
// [ErrRemoteAddress] is what [ListenAndServe] and [Serve] return for an address that other machines reach. [ErrNotResumable] is what [CloseStream] returns
// where clients would not come back. [ErrEventGone] is what an [EventStore] returns for an event that it does not have. Calls of a client fail with a
// *jsonrpc.CallError, around a [*StatusError] if the server answered with a status that is none of success.
package streamable
