// Package filter implements the filter language for exchanges, which the
// commands and the live views share.
//
// A filter is a list of terms, all of which must match:
//
//	tool:search                      a field contains the text; case is ignored
//	tool:=search                     a field is the text
//	tool:search*                     a field is the text, with * as a wildcard
//	method:/^tools\//  /time.?out/i  a regular expression of a field or of the payload
//	timeout "two words"              the text is in a payload; case is ignored
//	dur>500ms  size>=1MB             took longer, is larger
//	n:12-20                          has events with these numbers
//	has:_meta.traceparent            a payload has the member, at the top
//	                                 or in params, result or error
//	finding:RULE                     a rule (id or severity) was violated
//	jq:(.params.arguments.q == 1)    the jq program is true for a payload
//	-method:ping                     not
//	a | b, a or b, (a b)             one of both; a group
//
// Regular expressions have the syntax of
// https://github.com/google/re2/wiki/Syntax, jq programs that of
// https://jqlang.org/manual/.
//
// The fields are tool, target (a tool, a prompt, a URI), method, id, task,
// dir (c2s, s2c), kind, status, server, session, side (of a bridge: downstream,
// upstream), era, rev and finding. A text matches whole values of id, dir, kind,
// status, session, side and era, and of the severity of a finding, and parts of
// other values. A term also matches rows inside the exchange:
// method:elicitation/create finds the call during which the server sent the
// request.
//
// A term about payloads matches if any message of the exchange matches.
// [Filter.Scan] evaluates these terms one message at a time, so that a
// reader of a capture need not keep payloads.
//
// # Concurrency
//
// A [Filter] is immutable and safe for concurrent use.
//
// # Errors
//
// Parse returns a *[SyntaxError]. Matching returns no errors: a jq program
// that fails or takes too long does not match.
package filter
