// Package importer converts recordings of other tools to captures (package
// capture): logs of hosts, recordings of mcpsnoop, and HTTP archives.
//
// A capture contains only what the source contains. Most logs have whole
// messages, but not the bytes around them, the exit status or standard
// error. Lines that cannot be parsed become notes. Lines before the first
// one with a timestamp are dropped and counted.
//
// # Memory
//
// Logs and recordings are streamed line by line, with a limit for the
// length of a line. The events of an HTTP archive must be sorted, so they
// are kept in memory; the size of the archive and the number of events are
// limited.
//
// # Concurrency
//
// [Run] is safe for concurrent use with different sources and destinations.
//
// # Errors
//
// Run returns the errors of the source and the destination, [ErrUnknown]
// for an unknown format, and [ErrTooLarge] for an archive above the limits.
package importer
