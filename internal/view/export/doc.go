// Package export turns captures (package capture) into what other tools read: [HAR], [PCAPNG], [OTLP], [Curl] and [Text].
//
// Nothing is made up. What a format has no place for is left out, and counted: each function says how many events it has left out, see [Omitted].
//
// # Memory
//
// Captures are streamed. What is held is what goes on at one time: requests that wait for their responses, and HTTP exchanges with their bodies up to a limit.
//
// # Concurrency
//
// The functions may run at once, each with a sequence of events of its own.
//
// # Errors
//
// Those of the events and of the writer. [HAR] and [Curl] may wrap [ErrNoHTTP].
package export
