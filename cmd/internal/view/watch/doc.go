// Package watch follows captures and running taps and keeps one model of
// their traffic (package trace) with the findings of the rules (package
// check). The live views in the terminal and the browser show this model.
//
// A [Hub] finds captures in a folder and taps by their sockets (package
// live). If a tap writes an uncompressed file, the hub reads the file and
// uses the socket only to learn when to read. It reads other taps through
// their sockets. Captures that exist at the beginning are merged into one
// timeline by time; later events are inserted by time as they come.
//
// The hub does not keep payloads: [Hub.Event] reads an event again from its
// file. For taps without a file it keeps the last events, up to 64 MiB in
// total.
//
// # Views
//
// A [Selection] has the rows that match a filter, a [Feed] reports changes.
// [Hub.SelectWhole] also finds rows that were evicted, by reading the files again.
// Both are kept up to date as events come and cost almost nothing while
// none come.
//
// # Concurrency
//
// The methods of a [Hub] are safe for concurrent use. A lock guards the
// model: use rows, and the methods of a Selection that say so, only inside
// functions passed to [Hub.Read] and [Feed.Next]. These functions must
// return soon and must not call Read, Next, [Hub.Select] or
// [Hub.Subscribe]; other methods are allowed unless their comments say
// otherwise. The hub takes the lock for one event at a time, and not while
// it reads or searches files. [Hub.Run] owns all goroutines and waits for
// them.
//
// # Errors
//
// Functions return [ErrGone], [ErrNoRestart], [ErrStopped], [ErrClosed],
// the errors of package capture and those of the system. [Source] has the
// errors of a source that is followed.
package watch
