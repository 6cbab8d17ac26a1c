// Package jsondiff finds the differences between two JSON texts.
//
// A [Change] has the location as a JSON pointer
// (https://www.rfc-editor.org/rfc/rfc6901). The changes are in an order in
// which they can be applied to the first text, each to the result of the
// previous ones, like a JSON Patch (https://www.rfc-editor.org/rfc/rfc6902).
// The final result is equal to the second text.
//
// # What is equal
//
// Texts are compared by value. Strings are equal if they are equal with their
// escapes decoded. Numbers are equal if their values are exactly equal: 1, 1.0
// and 10e-1 are one number, while 0.1 and 0.10000000000000001 are two, even if
// they are equal in floating point; -0 is 0. The order of members does not
// matter, the order of elements does. Objects with a duplicate name are
// compared as a whole, with their members in order.
//
// Elements of arrays are aligned first, so that an inserted element is one
// change and not a change of each later element.
//
// # Limits
//
// Texts are untrusted. Above the limits of [Options] they are compared as a
// whole instead of part by part, and a Change with the Op [More] stands for
// omitted ones.
//
// # Concurrency
//
// All functions are safe for concurrent use and keep no state.
//
// # Errors
//
// No function returns an error. A text that is not JSON is equal only to the
// same bytes.
package jsondiff
