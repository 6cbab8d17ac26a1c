// Package streamable implements the HTTP transports of MCP, client and server, in all revisions
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http).
//
// # Server
//
// [Serve] is all that a program on this machine needs. It logs where it listens,
// and ends gracefully on Ctrl-C:
//
//	err := streamable.Serve(ctx, "127.0.0.1:8080", srv, nil)
//
// [NewHandler] makes a [Handler] for one URL, which serves a *server.Server. [ListenAndServe] runs
// it, also for other machines, with the limits that a server on a network needs. The Handler can
// also be mounted in an existing [net/http.Server]:
//
//	h := streamable.MustHandler(srv, nil)
//	mux.Handle("/mcp", h)
//	err := streamable.ListenAndServe(ctx, ":8080", mux,
//		&streamable.ServeOptions{OnShutdown: h.Shutdown})
//
// A middleware around it that wraps the http.ResponseWriter needs a method Unwrap()
// http.ResponseWriter, or Flush. Without both, messages before a result arrive only with it, and
// standing streams and requests to a client are rejected; the log says so once.
//
// The Handler recognizes the era of each request by its metadata and headers. Modern requests are
// independent: they have no session, and a client that hangs up cancels its request. Their headers
// must agree with the body; an invalid request gets status 400 or 404 with a JSON-RPC error. A
// legacy client opens a session with initialize; its requests continue when it disconnects. The
// response is JSON. It is an event stream if a message precedes the result, or if the result takes
// longer than [Timeouts.KeepAlive].
//
// [Handler.SSE] serves the HTTP+SSE transport of revision 2024-11-05 on separate paths. With
// [Options].NDJSON, a program can post any number of messages, one a line, and reads the responses
// as lines while it still sends. Both are off by default.
//
// # Client
//
// [NewTransport] makes a transport for package client:
// client.Dial(ctx, streamable.NewTransport(url, nil), nil). It detects the era of the server, sends
// the headers that repeat the body, and keeps the stream of a legacy session open and resumes it.
// An OAuth client of package oauth serves as the Transport of its HTTP client.
//
// # Security defaults
//
// Every page in a local browser can reach a server that listens on the loopback interface. A
// Handler therefore rejects, with status 403, requests whose Host header is neither local nor in
// [Options].Hosts, and requests of pages whose origin is not in [Options].Origins, unless
// [Options].AnyOrigin is set, which needs a guard. Bodies must have the type application/json and
// must not be compressed. The limits of [Options] and [ListenAndServe] bound everything; a request
// beyond them gets status 429 or 503 and Retry-After. [ListenAndServe] accepts only loopback
// addresses unless [ServeOptions].AllowRemote is set.
//
// [Options].Guard requires tokens. Sessions, their streams and their events belong to the principal
// that opened them and do not exist for others; the id of a session proves nothing. Streams such as
// that of a subscription end when the token expires. [Options].Scopes names the scopes that a
// request needs in addition, in all revisions.
//
// Callers share the capacity for requests in flight. A caller is a principal, or a network address
// for anonymous requests ([Options].ClientAddr returns it behind a proxy).
// [Options].MaxInFlightPerCaller limits one caller, and when [Options].MaxInFlight is nearly
// reached, the callers with the most requests are rejected first. Status 429 means that the caller
// exceeds its share, 503 that the server is overloaded. Both come with Retry-After, and so do the
// limits of the server's own options.
//
// # Streams and resumption
//
// An [EventStore] keeps what a legacy session sends in event streams. The default store is in
// memory and bounded in bytes, events and age. A client whose connection broke gets the rest by a
// GET with the id of the last event it has seen. If that would leave a gap, the status is 400. A
// result that nothing precedes is kept only in 2025-11-25, where streams begin with an id; other
// revisions have no id to resume from. A GET stream carries the messages that belong to no request.
// While no client listens, the first 128 of them are kept. The GET stream opened last replaces
// earlier ones. [CloseStream] lets a slow handler release the connection until it has a result.
//
// Modern streams cannot be resumed: a request whose stream breaks is canceled, and
// a client must repeat its subscription.
//
// # Scaling out
//
// Any process can serve modern requests if the servers share what server.Options documents. That is
// also true of legacy sessions if the servers have the same server.Options.StateKeys: the id of a
// session then contains, sealed, what another process needs to take the session over by handling
// its initialize again. It may do so while the first one lives, or after a restart. The id is valid
// for [Timeouts].Lifetime and for the principal that opened the session.
//
// What happens later in a session needs stores that the processes share. With [Options].Sessions, a
// log level and resource subscriptions come along, and a DELETE ends the session everywhere. With
// [Options].Events, a stream can be resumed at any process, which passes on what follows. If the
// [SessionStore] fails, so do a DELETE, a change of the session, and, without a [SessionViewer],
// the requests of sessions that are unknown to the process. If the [EventStore] fails, streams
// cannot be resumed, but connected clients lose nothing. With [Options].Nodes, the response to an
// input request and a cancellation may be sent to any process, and messages that belong to no
// request reach the one where the client listens; without, they must be sent to the one that they
// are for. A client that resumes the stream of a process which is gone then gets an error after
// about two seconds; without, it waits until its own timeout.
//
// # Concurrency
//
// Handlers and transports are safe for concurrent use. A request's handler runs on the goroutine of
// net/http; handlers of legacy HTTP/2 requests run on a separate one because they may outlast their
// stream. [Handler.Shutdown] ends streams and sessions, and waits for pending requests.
//
// # Errors
//
// [CloseStream] returns an error if the client would not resume the stream. An
// [EventStore] returns [ErrEventGone] for an event that it does not have.
// Calls of a client fail with a *jsonrpc.CallError, which wraps a
// [*StatusError] if the server responded with a status other than 2xx.
package streamable
