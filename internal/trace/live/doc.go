// Package live lets running taps be watched: each has a Unix socket in a folder that is its user's alone ([Dir]), and whoever connects is told what is tapped, and
// sent the lines of the capture (doc/capture-format.md) as they are written, with secrets hidden already.
//
// # Protocol
//
// The tap greets with a line of JSON, a [Greeting]. The head of the capture follows, and then every line that is written from then on; events before Greeting.Next are in the
// file, if there is one. If there is none, or one that is compressed, the tap keeps the last lines, so that who comes a moment late misses nothing; without a
// file it records no more than the first MiB while nobody watches ([Server.Wants]), and what it did not record is a gap. A viewer may write lines of JSON, of 4 KiB at most: {"wake":true} has the tap send no more than an empty line when there is something new, for viewers who read it in
// the file; {"restart":true} has the server started again, if Greeting.Restart says that the tap does that.
//
// Recording never waits for viewers. Who reads too slowly is cut off, and may come back; who comes when there are 16 already is turned away.
//
// # Sockets
//
// A [Server] binds under a name of which nobody takes notice, and renames the socket when it listens. Names are random and never used again. So a socket that refuses connections is of a
// tap that has died without removing it, and whoever meets it may remove it ([Dial], [Clean]), with no risk for one that lives. The folder and the sockets must belong to the user, and the folder must be closed to
// others, or nothing is done with them: nobody else can connect, or plant a socket.
//
// # Concurrency
//
// A Server may be used by any number of goroutines at once; Close waits for those of its own. A [Conn] is for one goroutine that reads, besides any number that call its other methods.
//
// # Errors
//
// [ErrNotPrivate], [ErrStale], [ErrGreeting], and those of the system.
package live
