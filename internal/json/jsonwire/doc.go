// Package jsonwire scans and appends JSON text (RFC 8259) in its wire form:
// bytes in, slices of the same bytes out, append(dst, ...) to write.
//
// A [Scanner] validates a text in one pass and returns slices into it. Validated text can be walked
// again with [SkipValue], [Members] and [Elements], which check nothing and so are faster, or
// queried for a single value with [Lookup] and [Text]. [AppendQuote], [AppendUnquote],
// [UnquoteString] and [AppendCompact] write.
//
// # What is valid
//
// Valid texts follow the grammar of RFC 8259 exactly, in well-formed UTF-8. A byte order mark, a
// NUL, a raw control character in a string, an overlong or surrogate UTF-8 encoding and anything
// but white space after the value are errors. Escapes of unpaired surrogates ("\ud83d") are valid:
// JavaScript hosts send them when they cut a text inside an emoji, and they decode as U+FFFD.
// Duplicate member names are valid; see [Duplicate]. Numbers keep their text, whatever their size.
//
// # Ownership
//
// Every slice returned by a Scanner or a walker aliases the input, which must not change while the
// slice is in use. Append functions do not keep their arguments and return the extended dst; src
// and dst must not overlap unless documented. Returned strings are copies.
//
// # Concurrency
//
// The package has no mutable state. Scanners and walkers are values for one
// goroutine at a time; any number of them may read the same text.
//
// # Errors
//
// Every error is a [*SyntaxError]. Nothing allocates on success, except
// functions that return a string and appends that outgrow dst.
package jsonwire
