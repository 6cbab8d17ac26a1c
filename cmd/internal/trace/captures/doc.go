// Package captures manages the folder with a user's captures (see package
// capture and doc/capture-format.md): it creates and lists captures, finds
// them by name, and prunes them on request.
//
// It removes only captures of probes by itself. A recorder locks its file until it
// ends, so that others can tell that the capture is being written.
//
// # Concurrency
//
// The package has no state outside the file system. Any number of
// goroutines and processes may use the same folder.
//
// # Errors
//
// Functions return the errors of the file system. [Newest] and [Find] may
// wrap [ErrNotFound].
package captures
