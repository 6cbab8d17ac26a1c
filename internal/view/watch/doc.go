// Package watch follows captures and running taps, and keeps one model of their traffic (package wireview) with what the rules find in it (package check): what the live
// views in the terminal and in the browser show.
//
// A [Hub] finds captures in a folder, and taps by their sockets (package live). Where there is a file that grows, the file is what it reads, and the tap's socket tells when to look; a tap
// that records nothing, or compresses what it records, is read through its socket. Captures that were there at the beginning are merged into one timeline by time, and what is recorded from then on
// comes in as it does.
//
// Payloads are not kept: [Hub.Event] reads an event again from its file. Of taps without a file the last ones are kept, up to 64 MiB over all.
//
// # Views
//
// A [Selection] is the rows for which a filter holds, a [Feed] tells what has changed. Both are kept up to date while events come, and cost next to nothing while none do.
//
// # Concurrency
//
// All methods of a Hub may be called by any number of goroutines at once. The model is behind a lock: rows, and the methods of a Selection that say so, may be used only inside
// the functions that are given to [Hub.Read] and [Feed.Next], which must return soon and not call them, [Hub.Select] or [Hub.Subscribe]. All else may be called there, too. The lock is taken
// event by event, and never while something is read or searched. [Hub.Run] owns all goroutines and waits for them.
//
// # Errors
//
// [ErrGone], [ErrNoRestart], [ErrStopped], [ErrClosed], those of package capture and those of the system. What goes wrong with a source that is followed is in [Source].
package watch
