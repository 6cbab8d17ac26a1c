// Package replay plays the client of a recorded session against a server: it sends
// the recorded messages and compares the responses with the recorded ones.
//
// [Read] takes the client's side from a capture. [Run] plays it over a
// [wireclient.Session]. The caller names the server; the capture never does.
//
// # What is sent, and when
//
// Messages keep their recorded order and ids. Each is sent when all requests that
// were answered before it in the recording are answered: concurrent requests stay
// concurrent. Values that a server chooses in each session are replaced by the new
// ones: cursors, task ids, and the state and keys of input requests
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr).
// HTTP headers are built anew, so that a session can be played over another
// transport. A canceled request is canceled as the transport and era require, by a
// notification or by ending its HTTP request, after as many notifications as in the
// recording. Input requests of the server get the recorded responses, by method and
// order; unrecorded ones are declined. An unfinished task is polled until it is done.
//
// A message with hidden parts is not sent unless [Options.Set] has their values.
//
// # What is compared
//
// The replay compares results and errors as JSON (package jsondiff), the input
// requests of the server, and the methods of the notifications for each request.
// Unless [Options.Strict] is set, it ignores values that differ each time: times,
// UUIDs and ULIDs anywhere, _meta, ttlMs, and the values of cursors, states and ids
// of tasks and sessions. A hidden value equals any value. Results hide the secrets of
// live responses, as captures do.
//
// # Security
//
// Recordings and servers are untrusted. [ReadOptions] and [resend.Options] limit
// memory, and [Options.Timeout] limits each wait; only [Keep] waits as long as the
// recording says.
//
// # Concurrency
//
// A [Recording] is immutable, and several goroutines may play it at once. Run starts
// a goroutine that reads, and waits for it. It calls Options.Report on the caller's
// goroutine.
//
// # Errors
//
// Read wraps [ErrNoSession], [ErrTooLarge], or the error of the events. Run returns
// errors that end the replay: those of [resend.Open], an [*EraError], a
// [*resend.HandshakeError], a [*wireclient.StatusError], a [*wireclient.EndedError], a
// [*resend.RedactedError] for a handshake that cannot be sent, or an error that wraps
// [resend.ErrTimeout], [wireclient.ErrTooLarge] or the cause of its context. Differences
// are not errors.
package replay
