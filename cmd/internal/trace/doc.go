// Package trace models recorded MCP traffic for everything that shows it:
// the terminal lists, the statistics and the live views. A [Model] is built
// event by event from captures (package capture), while they grow or
// afterwards. Several captures can share one timeline (capture.Merge).
//
// A [Row] is a line of the timeline. Most rows are requests with their
// outcome. Inside a row are the rows that it caused: progress, log
// messages, requests of the server, further rounds of a request that needed
// input
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr),
// polls of the task that it became, and HTTP events. Process output,
// process start and exit, and gaps in the capture are rows of the same
// timeline.
//
// A capture does not contain these relations. This package infers them, so
// a peer that breaks the rules can make them wrong, but nothing worse.
//
// # Memory
//
// The model keeps event numbers and short excerpts, not payloads. It evicts
// the oldest rows above [Options.MaxRows] and limits the rows inside a row;
// it keeps counts of what it evicted. Every structure is bounded, whatever
// the events contain.
//
// # Concurrency
//
// A [Model], and the rows, sessions and statistics that it returns, are not
// safe for concurrent use. Several goroutines need a lock.
//
// # Errors
//
// The package returns no errors. An event that should contain a message, but
// does not, becomes a row of kind [Invalid]. Unknown kinds of events are ignored.
package trace
