// Package resend sends a message that was recorded, edited or not, to a fresh copy of the server it was recorded with, and records that in a capture of its own. The session that
// was recorded, which belongs to the host, is never touched: a command is started anew, and a server on HTTP gets a session of our own.
//
// [Find] reads from a capture what a copy takes: the command and its folder, or the URL; how the recorded session began; and the message. [Run] does the rest. Below both, a
// [Session] is a connection to the copy that sends what it is given and returns what comes, and has no opinion on either, for whoever wants to play a whole client.
//
// # What is sent
//
// In front of a message of a legacy session comes the handshake: the initialize request that was recorded, byte for byte, so that the copy sees the revision and the
// capabilities that the first server saw, then notifications/initialized, and the standing stream if the client had one. A modern message has all of that in itself.
//
// The message goes as it is, but for two things: an id that the handshake has used is replaced, and, where messages are lines, line breaks between the tokens of its JSON
// are taken out, since they would end it. Over HTTP the headers that repeat what a modern message says
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#standard-request-headers) are made
// from the message, those for arguments of tools as far as the capture knows the tool.
//
// Captures do not have what was secret. Credentials come from [Options.Headers] and [Options.Env] therefore; a message, a command or a URL with a place that was hidden is
// refused. Of the environment captures have names alone: a copy gets ours.
//
// What the server asks meanwhile is answered as a client would without its user: pings with an empty result, elicitations with decline, everything else with an error. A result
// that asks for input, in the modern era, is shown as it is.
//
// # Security
//
// Captures are input from strangers, and what they name as the command is run by [Run], with the user's rights and environment; what they name as the URL is sent to, with the
// credentials in the options. Whoever offers this to a user for a capture that was not made here asks before, and shows [Origin.Target].
//
// # Concurrency
//
// [Find] and [Run] have no state. A [Session] may be sent to by one goroutine and read by another; Close may be called by any. All goroutines that it starts have ended when Close returns.
//
// # Errors
//
// [Find] wraps [ErrNotFound], [ErrNotMessage] or [ErrTruncated]. Run returns a [*RedactedError] or [ErrNoServer] before anything is started; then a [*HandshakeError], a
// [*StatusError], a [*EndedError], or what wraps [ErrTimeout], [ErrNoAnswer] or [ErrTooLarge], together with the result as far as it came. An answer of the
// server that is a JSON-RPC error is no error here.
package resend
