// Package uritemplate finds out what the variables of a URI template are in a
// URI: it is RFC 6570 (https://www.rfc-editor.org/rfc/rfc6570), levels 1 to 4,
// read backwards.
//
// # What matches
//
// That direction is not in the RFC, which allows many values for one URI. Here
// a URI has at most one meaning:
//
//   - {x} is one string of unreserved and percent-encoded characters, {+x} one
//     of reserved characters too, {#x} the same behind a #. Neither {x} nor {+x}
//     is ever empty or left out, nor is one of several, as in {x,y}.
//   - {.x}, {/x}, {;x}, {?x}, {&x} and {#x} may be left out, and the variable is
//     then absent. Of {/x,y} and {.x,y} the last may be. The names in {?x,y},
//     {&x,y} and {;x,y} may come in any order, each once, and no other.
//   - {x*} is a list: a,b,c. So is {/x*}, as in /a/b/c, {.x*}, and {?x*}, as in
//     ?x=a&x=b. A variable without the star is never a list. No variable stands
//     for names and values that the template does not name.
//   - {x:3} has at most three characters. If the prefixes of a template come to more
//     than 100 characters, the later variables take as much as others do, and then do
//     not match if that is too much.
//   - A variable takes as much as it can, the first one first. But {+x} leaves
//     off before a ? or a # if an expression for that follows.
//
// Characters that need no percent-encoding are the same with it, see [Normalize].
// Values come with their percent-encoding undone. A value that is not UTF-8 then
// does not match. It may well contain a slash, dots or a NUL: whoever opens a
// file by it has to know.
//
// # Concurrency
//
// A [Template] is immutable for those who use it, by any number of goroutines.
package uritemplate
