// Package mcp is the vocabulary of the Model Context Protocol: revisions, methods, error codes, and the types that travel in messages, in the
// specification's own names (https://modelcontextprotocol.io/specification).
//
// Nothing in it blocks. There is one Go type for each concept, which has all that some revision knows of it; a comment says since and until when
// there is what. Most are generated from the schemas of all revisions. The envelope of messages is [mcpwire/jsonrpc.Message].
//
// # Reading and writing
//
// [Append] writes a value as a revision has it. Each type T also has these methods:
//
//	func (v T) MarshalJSON() ([]byte, error) // all that is set
//	func (v *T) UnmarshalJSON(data []byte) error
//
// What is read is written again as the same JSON value, but for numbers that a float64 cannot hold exactly, and for members of a task's error that
// JSON-RPC does not know. A nil pointer, slice, map or
// [encoding/json.RawMessage] is absent, an empty one is not; an optional string or boolean is absent if it is empty or false. A member that no field can
// express goes to Extra and comes back from there: unknown ones, null where that means absence, and "" or false where they stand explicitly. A
// field that is set has precedence over a member of Extra. A required array is written even if it is nil; it must be there to be read, but for the
// content of a [CallToolResult].
//
// Text goes out on one line. It is valid JSON if the raw fields are: in a string, U+FFFD takes the place of what is not UTF-8, and a number that is
// infinite or none becomes null.
//
// # Errors
//
// UnmarshalJSON takes valid JSON text, as it comes from [encoding/json] and [mcpwire/jsonrpc]; other text makes it return anything, but does no harm.
// It is strict about types: a member of a wrong type, a required one that is missing, and one that stands twice are a [*DecodeError], which has the
// path to it. After an error the value is of no use.
//
// # Memory
//
// Values do not share memory with the text that they were read from.
//
// # Concurrency
//
// Values are plain data: share them for reading.
package mcp

//go:generate go run ../internal/gen -spec ../../shared/spec -out .
