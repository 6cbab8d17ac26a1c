// Package rpc is the engine of JSON-RPC 2.0 connections: [Conn], on which both sides send
// requests, responses and notifications, over a [jsonrpc.Framer] or, detached, for transports
// that deliver each message separately.
//
// It does not know the Model Context Protocol: the layers above set the differences through
// [Options] and [Conn.SetPolicy], for example which notification cancels a request, whether
// batches exist, and whether an error without an id carries "id":null.
//
// # Ownership
//
// A [Request] holds slices into the frame it was parsed from. The slices are valid until the
// call that received them returns; copy what you keep. The caller owns the slices that
// [Conn.Call] returns.
//
// # Concurrency
//
// Many goroutines may use a [Conn] at once. A [jsonrpc.Framer] has one reader and one writer at
// a time; Conn ensures that.
//
// # Errors
//
// A peer's error response is a [*jsonrpc.Error]. A local failure (a closed connection, an
// expired context) is never one: test it with errors.Is against [jsonrpc.ErrClosed] or the
// context's errors.
package rpc
