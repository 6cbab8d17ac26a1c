// Package fullschema completes package schema: its [Engine] validates against schemas with every
// keyword of JSON Schema 2020-12, 2019-09 and the drafts 7, 6 and 4
// (https://json-schema.org/specification).
//
//	v, err := schema.Compile(text, fullschema.Engine)
//
// It compiles only schemas that package schema cannot compile. It is a separate package because it
// decodes the instance before it validates, and because its work is not limited.
//
// [Check] reports whether a text is a valid schema, by the rules of its dialect.
//
// # Limits
//
// Nothing is fetched: a $ref to another document is an error, except to the metaschemas of the
// drafts, which are built in. A $schema that names another metaschema is an error too. Patterns are
// those of package regexp. Values of format are asserted as drafts 7, 6 and 4 do, and annotations
// in later drafts; idn-email and idn-hostname are not checked. Numbers with an exponent beyond 1000
// are rejected, since numbers are compared exactly. Otherwise the work is not limited, and an
// untrusted schema can make it exponential: compile those with [Bounded].
//
// # Concurrency
//
// Engine and the functions it returns may be called concurrently.
//
// # Errors
//
// The functions return a [*schema.Error].
package fullschema
