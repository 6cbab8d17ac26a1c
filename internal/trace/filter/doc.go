// Package filter is the language in which exchanges are looked for, the same in commands and in the live views.
//
// A filter is a list of terms, all of which must hold:
//
//	tool:search                    a field has the value; case does not count, * stands for anything
//	method:/^tools\//  /time.?out/i  a regular expression (https://github.com/google/re2/wiki/Syntax), of a field or of the payload
//	timeout "two words"            the text is in a payload; case does not count
//	dur>500ms  size>=1MB           took longer, is larger
//	n:12-20                        has to do with the events of these numbers
//	has:_meta.traceparent          a payload has the member, at the top, or in params, result or error
//	finding:RULE                   a rule has found something there; by id or by severity
//	jq:(.params.arguments.q == 1)  the jq program (https://jqlang.org/manual/) says true of a payload
//	-method:ping                   not
//	a | b, a or b, (a b)           one of both; a group
//
// The fields are tool, target (a tool, a prompt, a URI), method, id, task, dir (c2s, s2c), kind, status, server, session, side (of a bridge: downstream, upstream), era, rev and lint. What an exchange has inside it
// counts as well: method:elicitation/create finds the call in which the server asked.
//
// Terms about payloads hold if they do for any message of the exchange. They are looked at one message at a time ([Filter.Scan]), so that whoever reads a capture need not
// keep payloads to filter by them.
//
// # Concurrency
//
// A Filter does not change and may be used by any number of goroutines.
//
// # Errors
//
// Parse returns a *[SyntaxError]. Matching has none: a jq program that fails, or takes too long, does not match.
package filter
