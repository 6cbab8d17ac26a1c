// Package specref is an offline reference of the Model Context Protocol
// (https://modelcontextprotocol.io/specification/2026-07-28). It describes
// methods, error codes, headers, members and types, revision by revision.
//
// Shapes, examples and differences between revisions come from package
// internal/era/shape. Other facts (purpose, requirements, rules, what to do
// about an error) are in the text files of this folder, in our own words.
// Lookup finds the meanings of a word, and Write shows them.
//
// # Concurrency
//
// A Book is immutable and safe for concurrent use.
//
// # Errors
//
// The texts are embedded and checked by tests, so Open panics if they are
// invalid. An unknown word is not an error; see Suggest.
package specref
