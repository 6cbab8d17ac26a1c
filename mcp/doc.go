// Package mcp defines the vocabulary of the Model Context Protocol: revisions, methods,
// error codes, and the types in messages, with the names of the specification
// (https://modelcontextprotocol.io/specification).
//
// Each concept has one Go type, with the fields of all revisions; comments say since and
// until when a field exists. Most types are generated from the schemas of all revisions.
// The JSON-RPC envelope is [mcpwire/jsonrpc.Message]. Nothing in this package blocks.
//
// # Reading and writing
//
// [Append] writes a value in the form of a revision. Each type T also has these methods:
//
//	func (v T) MarshalJSON() ([]byte, error) // all that is set
//	func (v *T) UnmarshalJSON(data []byte) error
//
// A decoded value is written as the same JSON value again, except for numbers that a float64 cannot
// hold exactly, and for members of a task's error that JSON-RPC does not know. A nil pointer,
// slice, map or [encoding/json.RawMessage] is absent, an empty one is not. An optional string or
// boolean is absent if it is empty or false. Members that no field can express are kept in Extra
// and written from there: unknown members, null where it means absence, and explicit "" or false. A
// field that is set takes precedence over a member of Extra. A required array is written even if it
// is nil, and must be present when it is read, except for the content of a [CallToolResult].
//
// Text is written on one line. It is valid JSON if the raw fields are: U+FFFD replaces
// invalid UTF-8 in strings, and an infinite number or NaN becomes null.
//
// # Errors
//
// UnmarshalJSON takes valid JSON text, as from [encoding/json] and [mcpwire/jsonrpc]. For
// other text the result is undefined, but nothing panics. It is strict about types: a
// member of a wrong type, a missing required member, and a duplicate member are a
// [*DecodeError], which has the path to the member. Do not use the value after an error.
//
// # Memory
//
// Values do not share memory with the text that they were decoded from.
//
// # Concurrency
//
// Values are plain data: many goroutines may read them at once.
package mcp

//go:generate go run ../tools/gen -spec ../../shared/spec -out .
