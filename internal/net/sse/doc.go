// Package sse reads and writes event streams (text/event-stream) by the rules of
// https://html.spec.whatwg.org/multipage/server-sent-events.html, as the HTTP transports of the Model Context Protocol use them
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#streamable-http).
//
// [Append], [AppendMessage], [AppendMessageID] and [AppendComment] write into a slice; a [Reader] hands out slices of its buffer. Neither
// allocates once its buffers have grown to the size of the traffic.
//
// # What a Reader shows
//
// Browsers drop events without data. A Reader offers every block that has a data, id or retry field, because MCP gives meaning to some of them:
// a priming event has an id and empty data, and a server may send a retry alone. [Event] says how they look. Blocks of comments, unknown fields
// or an event name alone show nothing. A Reader that sees only comments stays in Read: whoever wants to notice that the peer is alive watches the
// [io.Reader] underneath.
//
// Text is passed on as it comes. Invalid UTF-8 is not replaced by U+FFFD: who parses the data judges it.
//
// # Ownership
//
// Data and ID of an Event that was read are good until the next Read. Append functions keep nothing of their arguments.
//
// # Concurrency
//
// A Reader is for one goroutine at a time. There is no package state.
//
// # Errors
//
// A Reader returns [*TooLargeError] for an event that it has passed over, and may be read on. All other errors are final: [io.EOF] when the
// stream ended between events, [io.ErrUnexpectedEOF] when it ended inside one, which is discarded, [io.ErrNoProgress] for a source that keeps
// bringing nothing, and else whatever the source returned. The Append functions refuse what would break out of its field with [ErrInvalidID],
// [ErrInvalidName] or [ErrInvalidRetry].
package sse
