// Package specref is the offline reference of the Model Context Protocol: what a method, an error code, a header, a member or a type is, revision by
// revision (https://modelcontextprotocol.io/specification/2026-07-28).
//
// Shapes, examples and the differences between revisions come from package internal/era/shape; what these do not tell (what a thing is for, what it needs,
// which rules concern it, what to do about an error) stands in the text files of this folder, in our own words. Lookup finds what a word means, and
// Write shows it.
//
// # Concurrency
//
// A Book is not changed after Open has returned, and may be used by many goroutines at once.
//
// # Errors
//
// The texts are part of the program: what is wrong with them is found by tests, and Open panics. Words that mean nothing are no errors; see Suggest.
package specref
