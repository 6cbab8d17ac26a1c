// Package httpserve is an HTTP server with the limits that a server on a network needs. It knows
// nothing of MCP.
//
// [ListenAndServe] and [Serve] run a handler by package net/http, and add what that leaves to its
// users: only loopback addresses unless [Options].AllowRemote is set, a limit of connections and of
// the size of headers, a deadline for everything that a client must send or read, TLS certificates
// that are reloaded when their files change, and a shutdown that ends.
//
// net/http's own timeouts for reading and writing count for a whole request, and would end a
// stream that is alive. Here each wait has its own limit: for a header, for each 64 KiB of a write,
// for the rest of a body that the handler has not read, and for the next request. A handler may set
// deadlines with [net/http.ResponseController], which take precedence, and must limit the time for
// the body itself. When it has read a body to its end, it calls [MarkBodyRead].
//
// # Concurrency
//
// Serve returns when no request is in progress or ShutdownTimeout has passed, and leaves no
// goroutine except those of handlers that ignore the end of their context.
//
// # Errors
//
// Both functions return [ErrRemoteAddress] for an address that other machines can reach, and an
// error that wraps the context's if they aborted requests.
package httpserve
