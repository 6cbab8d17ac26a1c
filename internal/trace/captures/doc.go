// Package captures is the folder where a user's captures (see package capture and doc/capture-format.md) are kept: it makes them, lists them,
// finds them by name, and removes those that are asked to go.
//
// Nothing is ever removed by itself. Whether a capture is still being written is told by a lock on the file, which its recorder holds until it ends.
//
// # Concurrency
//
// There is no state: everything is in the file system, and any number of goroutines and processes may use the same folder.
//
// # Errors
//
// Those of the file system; [ErrNotFound] wraps in what looks for a capture.
package captures
