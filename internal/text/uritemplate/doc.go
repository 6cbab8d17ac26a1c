// Package uritemplate extracts the values of the variables of a URI template from a URI. It applies
// RFC 6570 (https://www.rfc-editor.org/rfc/rfc6570), levels 1 to 4, in reverse.
//
// # What matches
//
// The RFC does not define that direction, in which a URI may have many
// meanings. Here a URI has at most one:
//
//   - {x} is one string of unreserved and percent-encoded characters, {+x} also
//     of reserved characters, {#x} the same after a #. {x} and {+x} are never
//     empty or absent, nor is any of several variables, as in {x,y}.
//   - {.x}, {/x}, {;x}, {?x}, {&x} and {#x} may be missing; then the variable
//     is absent. In {/x,y} and {.x,y} the last ones may be missing. The names
//     in {?x,y}, {&x,y} and {;x,y} may come in any order, each at most once,
//     without other names.
//   - {x*} is a list: a,b,c. So are {/x*}, as in /a/b/c, {.x*}, and {?x*}, as
//     in ?x=a&x=b. A variable without the star is never a list. No variable
//     matches names and values that the template does not name.
//   - {x:3} has at most three characters. If the prefixes of a template add up
//     to more than 100 characters, the later variables first match as much as
//     others do, and then fail if that is too long.
//   - A variable matches as much as it can, from left to right. But {+x} stops
//     before a ? or a # if an expression for that follows.
//
// Unreserved characters are equal to their percent-encoding; see [Normalize]. Values are
// percent-decoded, and a value that is not valid UTF-8 does not match. A value may contain a slash,
// dots or a NUL, so it must be checked before it is used as a file name.
//
// # Concurrency
//
// A [Template] is safe for concurrent use.
package uritemplate
