// Package stdio carries the Model Context Protocol over standard input and output
// (https://modelcontextprotocol.io/specification), from both ends: [Serve] runs a server on the process's own
// descriptors, [Command] runs one as a child process, [Supervise] keeps such a child alive, and [LogHandler] writes to a standard error that
// nobody may be reading.
//
// Framing is package jsonrpc's business: here are the bytes, the processes and the signals.
//
// # Standard output is sacred
//
// While [Serve] runs, the protocol has descriptors of its own. Descriptor 1 leads to a pipe whose content is logged with a warning, so a stray
// fmt.Println, a C library or a child of a handler cannot corrupt the stream; descriptor 0 is empty, so none of them can eat requests. Both are
// put back when Serve returns.
//
// # Concurrency
//
// A [Process] may be read, written and closed by different goroutines at once. A [Supervisor] and a [LogHandler] may be used by any number.
// Every goroutine that is started here has an owner whose Close, Wait or return waits for it; the exceptions say so.
//
// # Errors
//
// How a child process ended is an [*ExitError], which reads from its output return too, so that whatever waits for an answer fails with the
// reason. A [Supervisor] that has given up returns a [*GaveUpError].
//
// # Compatibility
//
// Linux, where reads and writes bypass os.File and can be interrupted; other Unix systems with poll(2); Windows, where descriptor 1 is
// guarded for Go code and for whoever asks for the standard handle, and a child is ended through a job object.
package stdio
