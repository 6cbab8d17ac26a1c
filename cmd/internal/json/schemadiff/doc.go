// Package schemadiff classifies the changes of a JSON Schema
// (https://json-schema.org/draft/2020-12/json-schema-core) by their impact: on
// callers, whose arguments a new input schema may reject, and on readers of
// results that a new output schema may extend.
//
// It understands types, properties, required, enumerations, bounds, items and
// local references. Changes that it cannot judge are [Unclear], not
// [Compatible].
//
// # Concurrency
//
// All functions are safe for concurrent use and keep no state.
//
// # Errors
//
// No function returns an error. A text that is invalid, not a schema, or nested
// too deeply differs from others in an unclear way.
package schemadiff
