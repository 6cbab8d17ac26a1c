// Package stdio connects the Model Context Protocol to standard input and output
// (https://modelcontextprotocol.io/specification). [Serve] runs a server on the process's own
// descriptors, [Command] runs one as a child process, and [LogHandler] logs to a standard error
// that may have no reader. Package client restarts a child that ends, see client.ReconnectPolicy.
//
// Package jsonrpc frames the messages. This package handles bytes, processes and signals.
//
// # Standard output
//
// While [Serve] runs, only the protocol uses the real standard input and output. Descriptor 1 is a
// pipe, and Serve logs what arrives there as a warning. A stray fmt.Println, a C library or a child
// of a handler cannot corrupt the stream. Descriptor 0 is empty, so none of them can read requests.
// Serve restores both when it returns.
//
// # Concurrency
//
// Different goroutines may read, write and close a [Process] at once. Multiple goroutines may use a
// [LogHandler] at once. Every goroutine of this package has an owner that waits for it in Close,
// Wait or before it returns; the documentation names the exceptions.
//
// # Errors
//
// An [*ExitError] describes the end of a child process. Reads from its output
// return it, so pending calls fail with the reason.
//
// # Compatibility
//
// On Linux, reads and writes bypass os.File and can be interrupted. Other Unix systems use poll(2).
// On Windows, the protection of descriptor 1 covers Go code and code that uses the standard handle,
// and a job object ends a child with its descendants. The package does not compile for systems
// without processes, such as wasip1 and js: a server can use [jsonrpc.NewFramer] there.
package stdio
