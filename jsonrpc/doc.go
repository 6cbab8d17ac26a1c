// Package jsonrpc implements JSON-RPC 2.0 (https://www.jsonrpc.org/specification)
// over any byte stream: messages, ids, errors, framing, and [Conn], a connection on
// which both sides send requests, responses and notifications.
//
// It is the lowest layer of mcpwire that knows messages. It does not know the Model
// Context Protocol: the layers above set the differences through [Options] and
// [Conn.SetPolicy], for example which notification cancels a request, whether batches
// exist, and whether an error without an id carries "id":null.
//
// # Ownership
//
// [Message] and [Request] hold slices into the frame they were parsed from. The slices
// are valid until the call that received them returns; copy what you keep. The caller
// owns the slices that [Conn.Call] returns.
//
// # Concurrency
//
// Many goroutines may use a [Conn] at once. A [Framer] has one reader and one writer at
// a time; Conn ensures that.
//
// # Errors
//
// A peer's error response is an [*Error]. A local failure (a closed connection, an
// expired context) is never an *Error: test it with errors.Is against [ErrClosed] or the
// context's errors. [ErrorOf] turns Go errors into wire errors.
package jsonrpc
