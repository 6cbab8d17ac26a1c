// Package resend sends a recorded message, edited or not, to a new instance of the
// server it was recorded with, and records that in a separate capture. It never
// touches the recorded session, which belongs to the host: it starts the command
// again, or opens a new session on HTTP.
//
// [Find] reads from a capture the data of a new instance: the command and its folder,
// or the URL; how the recorded session began; and the message. [Run] does the rest.
// [Open] connects to the new instance with a [wireclient.Session], for packages that play
// a whole client.
//
// # What is sent
//
// The handshake precedes a message of a legacy session: the recorded initialize
// request, byte for byte, so that the server sees the same revision and capabilities,
// then notifications/initialized, and the standing stream if the client had one. A
// modern message contains all of that.
//
// The message is sent unchanged, with two exceptions: an id that the handshake has used is
// replaced, and in line framing the line breaks between JSON tokens are removed. Over HTTP the
// headers that repeat parts of a modern message
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#standard-request-headers)
// are built from the message; those for tool arguments need the tool's schema in the capture.
//
// Captures lack secrets, so credentials come from [Options.Headers] and
// [Options.Env]. A message, command or URL with a hidden part is refused. Captures
// have only the names of environment variables; the new process gets the environment
// of this one.
//
// Requests of the server get the responses of a client without a user: an empty result
// for pings, decline for elicitations, and an error for all others. A modern result
// with input requests is returned as received.
//
// # Security
//
// Captures are untrusted input. [Run] executes the command of a capture with the
// user's rights and environment, and sends to its URL with the credentials in the
// options. A program that offers this for a foreign capture must ask the user first
// and show [Origin.Target].
//
// # Concurrency
//
// [Find], [Open] and [Run] have no state.
//
// # Errors
//
// [Find] wraps [ErrNotFound], [ErrNotMessage] or [ErrTruncated]. Run returns a
// [*RedactedError] or wraps [ErrNoServer] before it starts anything; then a
// [*HandshakeError], a [*wireclient.StatusError], a [*wireclient.EndedError], or an error
// that wraps [ErrTimeout], [ErrNoAnswer] or [wireclient.ErrTooLarge], together with the
// partial result. A JSON-RPC error from the server is not an error of Run.
package resend
