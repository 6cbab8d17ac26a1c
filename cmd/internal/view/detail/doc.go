// Package detail prepares everything that terminals and pages show about
// one row of the timeline (package trace): a summary in words, the lines of
// the request and the response, the exact bytes with invisible characters
// marked, HTTP heads, event streams, timing, findings, and translations by
// a bridge. It also formats the exchange as a command line for this program
// and for curl.
//
// It works in two steps, because rows may be read only while the model is
// locked, and payloads are read from files: [TakeSnapshot] copies the
// needed parts of a row, and [Build] does the rest.
//
// # Untrusted text
//
// All texts of peers in a [Detail] are safe to show: anything that would
// control a terminal, change the writing direction or be invisible becomes
// an escape sequence, in a [Span] with its own kind. Raw bytes are only in
// members of type []byte, for files, previews and hex dumps. Pages must
// still put texts into text nodes.
//
// # Limits
//
// Payloads may have tens of megabytes, or ten thousand levels of nesting. A
// Detail shows at most [Options.MaxShown] bytes of each and counts the
// omitted ones. All other parts have limits too. Time and memory follow the
// limits, except for one pass over each payload to check whether it is
// JSON.
//
// # Concurrency
//
// The functions are safe for concurrent use. A [Snapshot] and a [Detail]
// are immutable and may be shared.
//
// # Errors
//
// [Build] fails only if the context ends; payloads that cannot be read are
// listed in Detail.Missing. [CallCommand] returns an error that wraps
// [ErrNoCommand], and [CurlCommand] one that wraps [ErrNotHTTP] or
// ErrNoCommand. Their texts give the reason for people.
package detail
