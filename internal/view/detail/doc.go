// Package detail prepares all that there is to show about one row of the timeline (package wireview), for terminals and pages alike: a summary in plain words, the request and the
// response line by line, the exact bytes with what cannot be seen marked, the facts of HTTP and of event streams, times, findings, and what a bridge made of it.
// It also writes the exchange as a command, for this program and for curl.
//
// It takes two steps, because rows may be looked at behind a lock only, and payloads are read from files: [TakeSnapshot] copies what is needed of a row, [Build] does the rest.
//
// # What may be shown as it is
//
// All texts of peers in a [Detail] are fit to be shown: what would steer a terminal, change the direction of writing or hide is an escape sequence, in a [Span] of a kind of its own.
// Bytes are in members of type []byte only, which are for nothing but files, previews and hexadecimal digits. Pages must put texts into text nodes all the same.
//
// # Limits
//
// Payloads may be tens of megabytes, or nested ten thousand deep: of each, [Options.MaxShown] bytes are shown at most, and what is left out is counted. Of everything else there is a
// limited number. Time and memory follow the limits, but for finding out whether a payload is JSON, which is one pass over it.
//
// # Concurrency
//
// Functions may be called by many goroutines at once. A [Snapshot] and a [Detail] do not change, and may be shared.
//
// # Errors
//
// [Build] fails only if the context ends: payloads that cannot be read are said to be missing. [CallCommand] returns an error that wraps [ErrNoCommand], and [CurlCommand] one that wraps [ErrNotHTTP] or
// ErrNoCommand, which say why in words for people.
package detail
