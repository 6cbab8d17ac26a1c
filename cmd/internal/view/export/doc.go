// Package export converts captures (package capture) to the formats of
// other tools: [HAR], [PCAPNG], [OTLP], [Curl] and [Text].
//
// The functions do not invent data. They leave out events that a format
// cannot represent, and return how many: see [Omitted].
//
// # Memory
//
// Captures are streamed. The functions keep only what is in progress:
// requests without a response, and HTTP round trips with their bodies up to
// a limit.
//
// # Concurrency
//
// The functions are safe for concurrent use with different sequences of
// events.
//
// # Errors
//
// The functions return the errors of the events and of the writer. [HAR]
// and [Curl] may return [ErrNoHTTP].
package export
