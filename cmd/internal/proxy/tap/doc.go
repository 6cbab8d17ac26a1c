// Package tap implements mcpwire tap: a proxy between a host and a server on standard
// input and output that records the traffic.
//
// # Transparency
//
// The tap forwards the bytes of both directions and of standard error unchanged, in
// the pieces in which they arrive, and also the end of input, signals and the exit
// status. It records a frame before it forwards its last bytes, so that the order of
// a capture is a possible order of cause and effect. Nothing waits for the disk:
// [mcpwire/capture.Writer] drops what it cannot write and records a gap.
//
// The tap detects frames only to record them: lines that end in LF or CRLF, and
// blocks after a Content-Length header, in each direction independently and in any
// mixture. It records all other bytes as lines. Blank lines are frames too, so that a
// capture holds every byte. Text that only begins like a header is recorded as lines
// once that is known; only such text may be forwarded before it is recorded. A frame
// that arrives in pieces is stored once, up to 64 MiB; the rest passes unrecorded.
//
// # Shutdown
//
// The server leads its own process group (on Windows, it is in a job object). A
// moment after it has ended, the tap ends the rest of the group. The host is gone if
// the tap's parent died, if a write to standard output failed, or if nobody reads
// standard output after the input has ended. The tap then closes the server's input;
// if that does not end the server, it sends SIGTERM and SIGKILL. If the tap itself is
// killed, a guardian (a shell that waits until the tap's end of a pipe closes) ends
// the group. On Linux the kernel also sends the server SIGTERM; on Windows the job
// ends with the tap.
//
// A host that does not read cannot block a server that was told to end: the tap
// offers the remaining output for a limited time.
//
// The server's group is in the background of a terminal. The system stops a program
// in it that reads a password from the terminal instead of standard input.
//
// The tap forwards SIGINT and SIGQUIT, which a terminal sends to the whole group, to
// the group. Other signals go to the server alone, since launchers forward them.
//
// # Restarts
//
// With [Options].Restart the tap keeps the host's connection while it restarts the
// server: after a crash, on demand, or when files have changed. In this mode it takes
// part in the session:
//
//   - The tap forwards complete frames of the host. Frames wait in a queue while no server
//     is ready; when the queue is full, the host waits.
//   - An unanswered request that was delivered gets error -32603 with the reason for the
//     restart. That includes subscriptions/listen, so that the client listens again
//     (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports).
//   - If there was a handshake, the tap sends its bytes again
//     (https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle), then the
//     last logging/setLevel and the active resources/subscribe. It withholds the responses
//     from the host. Instead it sends list_changed notifications for the capabilities that
//     the new server declares.
//   - Requests of the old server that the host has not answered are canceled, and late
//     responses dropped. If the new server reuses such an id before the late response arrives,
//     it gets that response: nothing on the wire distinguishes the two.
//   - Each server has its own session in the capture.
//
// The capture has all of this, preceded by a note. A restart cannot preserve the
// memory of the old server; tasks, cursors, elicitations and progress under way; or a
// frame that the old server did not finish, whose beginning the host has seen (the
// tap ends it, and it is invalid). If the new server answers the handshake
// differently, the host keeps the first response, and a note reports the difference.
//
// # Breakpoints
//
// With [Options].Breakpoints the tap forwards whole frames, unchanged, and holds those
// that match a filter until a viewer decides, or until a timeout. Frames of the same
// direction wait behind a held one, so the order within a direction stays; the other
// direction goes on. A cancellation therefore waits behind the request that it
// cancels. Frames above 8 MiB are never held and pass as they arrive. When the host
// disconnects, the tap is told to end, or the server ends, what is held for a side
// that still reads is passed on.
//
// A filter is evaluated on the exchange when a message arrives. A response stops if
// the filter matches it and did not match its request, or if the decision about the
// request asks for that.
//
// The capture has two sides, as that of a bridge: what was received, what was
// forwarded, and how they relate.
//
// # Concurrency
//
// [Run] starts goroutines and waits for them, with one exception: reads of Stdin, and
// reads and writes of a pipe that a process outside the server's group holds open,
// cannot be interrupted. They end when the other side closes or with the process.
//
// # Errors
//
// [Run] returns a [*StartError] if the server cannot be started. The way it ends is
// not an error.
package tap
