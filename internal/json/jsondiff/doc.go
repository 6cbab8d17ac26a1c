// Package jsondiff tells in which places two JSON texts differ.
//
// A [Change] has the place as a JSON pointer (https://www.rfc-editor.org/rfc/rfc6901). The changes are in an order in which they can be applied to the first
// text, each to what the ones before have left, in the way of a JSON Patch (https://www.rfc-editor.org/rfc/rfc6902); what comes out is equal to the second one.
//
// # What is equal
//
// Texts are compared by what they say. Strings are equal if they are once their escapes are decoded. Numbers are equal if their values are, exactly: 1, 1.0 and 10e-1 are one
// number, while 0.1 and 0.10000000000000001 are two, whatever floating point makes of them; -0 is 0. The order of members does not count, that of elements does. Objects with
// a name that comes up twice are compared as a whole, members in their order.
//
// Elements of arrays are aligned first, so that one that was put in between is one change and not one for each element behind it.
//
// # Limits
//
// Texts are hostile: above the limits of [Options] they are compared as a whole instead of part by part, and what is left out is told by a Change whose Op is [More].
//
// # Concurrency
//
// Functions may be called by many goroutines at once, and keep nothing.
//
// # Errors
//
// There are none. What is no JSON is equal to the same bytes only.
package jsondiff
