// Package jsonrpc implements the messages of JSON-RPC 2.0
// (https://www.jsonrpc.org/specification): it parses and appends them, has their ids and errors,
// and divides byte streams into frames. It does not know the Model Context Protocol.
//
// # Ownership
//
// A [Message] holds slices into the frame it was parsed from, and is valid as long as the frame
// is. [Message.Clone] copies it.
//
// # Concurrency
//
// A [Framer] has one reader and one writer at a time. Other values may be read by many goroutines
// at once.
//
// # Errors
//
// An error response of the peer is an [*Error]. A failure of a connection is never one: it wraps
// [ErrClosed], is a [*CallError] if the transport failed for one call alone, or is the error of a
// context. [ErrorOf] turns the errors of Go into those that go on the wire.
package jsonrpc
