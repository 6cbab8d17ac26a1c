// Package sse reads and writes event streams (text/event-stream) according to
// https://html.spec.whatwg.org/multipage/server-sent-events.html, as the HTTP transports of
// the Model Context Protocol use them
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#streamable-http).
//
// [Append], [AppendMessage] and [AppendKeepAlive] write into a slice; a [Reader] returns slices of
// its buffer. Neither allocates once its buffers have grown to the size of the traffic.
//
// # Events without data
//
// Browsers drop events without data. A Reader returns every block that has a data, id or
// retry field, because MCP gives meaning to some of them: a priming event has an id and
// empty data, and a server may send only a retry. [Event] shows the cases. A Reader skips
// blocks of comments, unknown fields or an event name alone, and keeps blocking in Read. To
// notice that the peer is alive, watch the underlying [io.Reader].
//
// Text is passed on unchanged. A Reader does not replace invalid UTF-8 by U+FFFD: the
// parser of the data checks it.
//
// # Ownership
//
// Data and ID of an Event from a Reader are valid until the next Read. Append functions keep
// no reference to their arguments.
//
// # Concurrency
//
// Only one goroutine at a time may use a Reader. The package has no global state.
//
// # Errors
//
// A Reader returns [*TooLargeError] for an event that it has skipped, and can read on. All other
// errors are final: [io.EOF] when the stream ended between events, [io.ErrUnexpectedEOF] when it
// ended inside one, which is discarded, [io.ErrNoProgress] for a source that keeps returning
// nothing, and otherwise the source's error. The Append functions reject text that would break out
// of its field with [ErrInvalidID], [ErrInvalidName] or [ErrInvalidRetry].
package sse
