// Package replay plays the client of a recorded session against a server: it sends what the client has sent, and compares what comes with what came then.
//
// [Read] takes the client's side from a capture, [Run] plays it over a [resend.Session]; the server is the one that the caller names, never one that the capture names.
//
// # What is sent, and when
//
// Messages go in their recorded order and with their ids, each as soon as everything has been answered that was answered in front of it in the recording: what was sent at once then is
// sent at once now. What a server chooses anew in each session is replaced by what it chose in this one: cursors, ids of tasks, the state and the keys of requests for input
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr). Headers of HTTP are made anew, so that a session that was recorded over one transport can be played over
// another. A request that was cancelled is cancelled as the transport and the era have it, by a notification or by the end of its HTTP request, once as much was told of it as then.
// What the server asks is answered as it was, by method and order; what it did not ask then is declined. A task that is not done yet is polled until it is.
//
// A message with something in it that was hidden is not sent, unless [Options.Set] says what stood there.
//
// # What is compared
//
// Results and errors, as JSON (package jsondiff); what the server asks; and for each request the methods of the notifications that came for it. Not compared, unless [Options.Strict]
// asks for it, is what is another one each time: times, UUIDs and ULIDs wherever they stand, _meta, ttlMs, and the values of cursors, states and ids of tasks and sessions. What was
// hidden in the recording is equal to anything. Secrets of the live answers are hidden in the results as in captures.
//
// # Security
//
// Recordings and servers are hostile. Memory is bounded by [ReadOptions] and by [resend.Options], time by [Options.Timeout] for whatever is waited for; only [Keep] waits as long as the
// recording says.
//
// # Concurrency
//
// A [Recording] does not change, and may be played by several goroutines at once. Run has a goroutine that reads, and waits for it. It calls Options.Report on the caller's goroutine.
//
// # Errors
//
// Read wraps [ErrNoSession], [ErrTooLarge], or what the events yield. Run returns what [resend.Open] does, an [*EraError], a [*resend.HandshakeError], a [*resend.StatusError], a
// [*resend.EndedError], a [*resend.RedactedError] for a handshake that cannot be sent, or what wraps [resend.ErrTimeout], [resend.ErrTooLarge] or the cause of its context: whatever keeps
// it from going on. Differences are none of them.
package replay
