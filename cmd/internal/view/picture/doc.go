// Package picture draws recorded traffic as SVG: the sequence of messages between hosts, bridges
// and servers, and an overview of calls, latencies, tool definitions and the lives of servers. The
// page, exported pages and the command line show the same pictures. A sequence can also be written
// for Mermaid.
//
// A picture is a file that needs nothing else: it has its style sheet inside, with colors for light
// and for dark surroundings. The page leaves that out and uses colors.css and picture.css itself.
//
// # Concurrency
//
// [NewSequence] and [NewOverview] read rows, so the caller must hold the lock of the model. Their
// results share nothing with it, and may be used by several goroutines.
package picture
