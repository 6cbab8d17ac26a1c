// Package jsonwire scans and appends JSON text (RFC 8259) as it crosses the
// wire: bytes in, slices of the same bytes out, append(dst, ...) to write.
//
// A [Scanner] validates a text in one pass and hands out slices into it. What
// has passed a Scanner once may be walked again with [SkipValue], [Members] and
// [Elements], which check nothing and are faster for it, or asked for a single
// value with [Lookup] and [Text]. [AppendQuote], [AppendUnquote], [UnquoteString]
// and [AppendCompact] write.
//
// # What is valid
//
// The grammar of RFC 8259 and nothing more, in well-formed UTF-8. A byte order
// mark, a NUL, a raw control character in a string, an overlong or surrogate
// UTF-8 encoding and anything but white space behind the value are errors.
// Escapes of unpaired surrogates ("\ud83d") are valid: JavaScript hosts send
// them when they cut a text inside an emoji, and they decode as U+FFFD.
// Duplicate member names are valid here; who minds must compare them. Numbers
// keep their text, whatever their size.
//
// # Ownership
//
// Every slice returned by a Scanner or a walker aliases the input, which must
// not change as long as the slice is in use. Append functions keep nothing of
// their arguments, return the extended dst and need src and dst not to overlap
// unless they say otherwise. Strings returned are copies.
//
// # Concurrency
//
// There is no package state that changes. Scanners and walkers are values for
// one goroutine at a time; any number of them may read the same text.
//
// # Errors
//
// Every error is a [*SyntaxError]. Nothing allocates on success, except
// functions that return a string and appends that outgrow dst.
package jsonwire
