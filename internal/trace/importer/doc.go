// Package importer turns what other tools have recorded into captures (package capture): logs of hosts, recordings of mcpsnoop, and HTTP archives.
//
// What is not in the source is not in the capture either: most logs have whole messages and lack the bytes around them, the exit status, or standard error. Lines that are not understood
// become notes, so that nothing is lost.
//
// # Memory
//
// Logs and recordings are streamed, line by line; how long a line may be is limited. HTTP archives, whose events must be sorted, are held; their size and the number of events are limited.
//
// # Concurrency
//
// [Run] may be called by many goroutines at once, each with a source and a destination of its own.
//
// # Errors
//
// Those of the source and of the destination, [ErrUnknown] for a source in no format that is known, and [ErrTooLarge] for an archive.
package importer
