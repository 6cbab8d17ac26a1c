// Package translate lets the two eras of the protocol talk to each other: a legacy client, which shakes hands, with a modern server
// ([LegacyToModern]), and a modern client, which says everything with each request, with a legacy server ([ModernToLegacy]). What the eras differ in is
// the business of internal/era; this package knows what has to be remembered between messages.
//
// A translator is a state machine. It has no transport, no goroutine and no clock: whoever has these hands it each message with the time, and sends what
// comes back. The client's side is near, the server's is far.
//
//	t := translate.NewLegacyToModern(nil)
//	for _, out := range t.FromDownstream(now, message, stream) { send(out) } // a message came from the client
//	for _, out := range t.FromUpstream(now, message, call) { send(out) }   // a message came from the server
//	timer.Reset(time.Until(t.Next()))                                 // then t.Tick(now)
//
// # Downstream: streams
//
// The driver numbers what can carry messages to the client. Over HTTP each POST is a stream of its own, with a number that is never used again; what
// belongs to none (stdio, a socket, the GET stream of a legacy session) is stream 0. A message for the client says on which stream it belongs, and the
// last one of a stream's request is [Out.Final]. When the client has closed a stream, the driver says so with StreamClosed; in the legacy era that is no
// cancellation, and what would have gone there has Stream 0 from then on.
//
// # Upstream: calls
//
// Requests to the server have integers for ids, from [Options].IDs, which are their [Out.Call]. Over HTTP each is a POST, and what comes back on
// its stream is handed to FromUpstream with that number; 0 is for stdio and for a GET stream. [Out.Cancel] gives a call up. To a modern server that means:
// over HTTP, drop the POST and do not send Message; over a pipe, send Message. To a legacy server: send Message over every transport, then drop the stream.
// When a transport fails to bring an answer, the driver says so with CallFailed (one call) or UpstreamLost (all of them, and the session).
//
// # Both sides of a message
//
// What comes out of a step was made of the message that went in, and of the earlier ones that [Out.Causes] names by their marks, if the driver gives any: a
// question that waited for others, or a request that waited for the handshake. [Out.Rule] says in a few words what was done.
//
// # What is bounded
//
// [Limits] bounds what is open, held and remembered, in number and in bytes, and for how long. What is beyond is refused with an error that says so.
//
// # Concurrency
//
// A translator is for one goroutine at a time. What Out holds belongs to who gets it; messages that are handed in are not kept.
//
// # Errors
//
// Nothing fails: whatever is wrong with a message becomes an answer to who sent it, or an Out to [Dropped] that says why it was dropped.
package translate
