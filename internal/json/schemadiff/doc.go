// Package schemadiff says what a change of a JSON Schema (https://json-schema.org/draft/2020-12/json-schema-core) means for those who rely on the old one: for callers, whose arguments a
// new input schema may refuse, and for readers of results, whom a new output schema may surprise.
//
// It knows types, properties, required, enumerations, bounds, items and local references. Of what it cannot judge it says so: [Unclear] is not [Compatible].
//
// # Concurrency
//
// There is no state.
//
// # Errors
//
// There are none: a schema that is no JSON, no schema, or nested very deep, is different from others in a way that is unclear.
package schemadiff
