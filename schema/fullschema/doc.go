// Package fullschema completes package schema: its [Engine] validates against
// schemas with every keyword of JSON Schema 2020-12 and the drafts before it
// (https://json-schema.org/specification), by way of
// github.com/santhosh-tekuri/jsonschema.
//
//	v, err := schema.Compile(text, fullschema.Engine)
//
// Only a schema that package schema cannot compile itself goes through it. It is
// a package of its own because the library takes about 3 MiB of memory as soon
// as it is linked, and its validation decodes the instance first.
//
// [Check] tells whether a text is a schema at all, by the rules of its dialect.
//
// # Limits
//
// Nothing is fetched: a $ref to another document is an error, except to the
// metaschemas of the drafts, which are built in. Numbers with an exponent beyond
// 1000 are refused, since the library computes with them exactly. Beyond that its
// work is not bounded: a schema of a stranger can make it exponential, which is
// why strangers' schemas are better compiled without an engine.
//
// # Concurrency
//
// Engine and the functions it returns may be called concurrently.
//
// # Errors
//
// The functions return a [*schema.Error].
package fullschema
