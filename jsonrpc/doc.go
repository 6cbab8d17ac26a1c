// Package jsonrpc speaks JSON-RPC 2.0 (https://www.jsonrpc.org/specification) over any byte stream: envelopes, ids, errors,
// framing, and [Conn], a connection on which either side calls, answers and notifies.
//
// It is the lowest layer of mcpwire that knows what a message is. It does not know the Model Context Protocol: what differs between
// the two (which notification cancels a request, whether batches exist, whether an error without an id carries "id":null) is set by the
// layers above through [Options] and [Conn.SetPolicy].
//
// # Ownership
//
// [Message] and [Request] hold slices into the frame they were parsed from. They are valid until the call that was given them returns; to keep
// a part, copy it. Slices that [Conn.Call] returns belong to the caller.
//
// # Concurrency
//
// A [Conn] may be used by many goroutines at once. A [Framer] has one reader and one writer at a time; Conn sees to that.
//
// # Errors
//
// What the peer answered is an [*Error]. What happened on this side (a closed connection, an expired context) is never an *Error:
// test it with errors.Is against [ErrClosed] or the context's errors. One function, [ErrorOf], turns Go errors into wire errors.
package jsonrpc
