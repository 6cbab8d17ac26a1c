// Package conn has connections that speak JSON-RPC 2.0 (https://www.jsonrpc.org/specification),
// for protocols other than MCP, such as the Language Server Protocol. Both sides of a [Conn] send
// requests, responses and notifications. The messages, errors and framers are those of package
// [mcpwire/jsonrpc].
//
// For MCP, use the packages server and client.
//
// # Ownership
//
// The message that a [Handler] gets, and its slices, are valid until the handler returns; copy
// what you keep. The caller owns the slice that [Conn.Call] returns.
//
// # Concurrency
//
// Many goroutines may use a [Conn] at once. Handlers of requests run concurrently. Handlers of
// notifications run one after the other, in the order of arrival.
//
// # Errors
//
// The peer's error response is a [*jsonrpc.Error]. A local failure (a closed connection, an
// expired context) is never one: test it with errors.Is against [jsonrpc.ErrClosed] or the errors
// of package context. The error of a handler goes to the peer as [jsonrpc.ErrorOf] maps it.
package conn
