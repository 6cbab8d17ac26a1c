// Package live lets viewers watch running taps. Each tap has a Unix socket
// in a folder that only its user can access ([Dir]). It tells viewers what
// it records and sends them the redacted lines of the capture
// (doc/capture-format.md) as they are written.
//
// # Protocol
//
// The tap begins with a line of JSON, a [Greeting]. The head of the capture
// follows, and then every new line. Events before Greeting.Next are in the
// file of the capture. Without a file, or with a compressed one, the tap
// keeps the last lines for viewers that connect late. Without a file it
// records only the first MiB while it has no viewers ([Server.Wants]), and
// a gap marks what it did not record.
//
// A viewer may send lines of JSON. {"wake":true} makes
// the tap send only an empty line when there is something new, for viewers
// that read the file. {"restart":true} restarts the server, if
// Greeting.Restart is set.
//
// If Greeting.Intercept is set, the tap can hold messages. {"held":true} makes
// it send what it holds in place of events, now and after each change:
// {"held":INTERCEPTED}. {"intercept":DECISION} decides about a held message, or
// replaces the filter; {"error":TEXT} answers a decision that the tap rejects.
//
// Recording never waits for viewers. The tap disconnects a viewer that
// reads too slowly; it may connect again. With 16 viewers, by default, the
// tap rejects further ones.
//
// # Sockets
//
// On Unix, a [Server] binds a socket under a temporary name and renames it
// when it listens. Names are random and never reused. A socket that refuses
// connections therefore belongs to a tap that has died, and anyone may
// remove it ([Dial], [Clean]). The folder and the sockets must belong to
// the user, and the folder must be closed to others; otherwise functions
// return [ErrNotPrivate].
//
// # Concurrency
//
// A [Server] is safe for concurrent use; Close waits for its goroutines.
// One goroutine may read from a [Conn] while others call its other methods.
//
// # Errors
//
// Functions return [ErrNotPrivate], [ErrStale], [ErrGreeting] and the
// errors of the system.
package live
