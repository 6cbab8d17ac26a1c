// Package fullschema completes package schema: its [Engine] validates against
// schemas with every keyword of JSON Schema 2020-12 and the drafts before it
// (https://json-schema.org/specification), by way of
// github.com/santhosh-tekuri/jsonschema.
//
//	v, err := schema.Compile(text, fullschema.Engine)
//
// It compiles only schemas that package schema cannot compile. It is a separate
// package because the library takes about 3 MiB of memory in each program that
// links it, and decodes the instance before it validates.
//
// [Check] reports whether a text is a valid schema, by the rules of its dialect.
//
// # Limits
//
// Nothing is fetched: a $ref to another document is an error, except to the
// metaschemas of the drafts, which are built in. Numbers with an exponent beyond
// 1000 are rejected, since the library computes with them exactly. Otherwise its
// work is not limited, and an untrusted schema can make it exponential: compile
// those without an engine.
//
// # Concurrency
//
// Engine and the functions it returns may be called concurrently.
//
// # Errors
//
// The functions return a [*schema.Error].
package fullschema
