// Package tap stands between a host and a server on standard input and output, and records what passes: mcpwire tap.
//
// # Transparency
//
// The bytes of both directions and of standard error pass as they come, in the pieces in which they come; the end of input, signals and the exit status
// pass, too. A frame is recorded before its last bytes are forwarded, so that the order of a capture is one in which things may have caused each
// other. Nothing waits for the disk: [mcpwire/capture.Writer] drops what it cannot write, and says so.
//
// Frames are told apart only to record them: lines that end in LF or CRLF, and blocks behind a Content-Length header, in each direction by itself and in
// any mixture. What is neither is recorded as the line that it is. Blank lines are frames too, so that a capture holds every byte. What looks like a header
// and turns out not to be one is recorded, as lines, when that is known; it is the one thing that may be forwarded before. A frame that comes in pieces is
// held once, up to [Options].MaxCopy: what is beyond passes without being recorded.
//
// # Ends
//
// The server leads a process group of its own (on Windows, is in a job object). When it has ended, what it has left in the group is ended a moment later. When
// the host is gone, which shows in our parent having died, in a write to our standard output that fails, or in nobody reading it once the input has ended, the server's input is
// closed; if that does not end it, SIGTERM and SIGKILL do. When the tap itself is killed, a guardian (a shell that waits for our end of a pipe to close) ends the
// group; on Linux the server is sent SIGTERM by the kernel as well; on Windows the job ends with us.
//
// A server that was told to end, and has, is not kept from it by a host that does not read: what is left is offered for a while.
//
// The server's group is in the background of a terminal: a program that asks for a password there, not on its standard input, is stopped by the system.
//
// SIGINT and SIGQUIT, which a terminal would send to everybody in the group, are passed on to the group. Others go to the server alone, since launchers pass
// them on.
//
// # Restarts
//
// With [Options].Restart the tap keeps the host's connection while the server is started again: after a crash, on demand, or when files have changed. In this
// mode it is a party to the session:
//
//   - Frames of the host are forwarded when they are complete. While no server is ready they wait in a queue; when that is full, the host waits.
//   - A request that was delivered and not answered is answered with error -32603 that says that the server was restarted, and why. That includes
//     subscriptions/listen, so that the client listens again
//     (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports).
//   - If there was a handshake, its bytes are sent again (https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle), as are the last
//     logging/setLevel and the resources/subscribe that are in force. The responses are kept from the host, which is sent list_changed
//     notifications for what the new server declares instead.
//   - Requests of the old server that the host has not answered are cancelled, and late answers dropped. Should the new server use the same id before the late
//     answer comes, it gets that one: nothing on the wire tells the two apart.
//   - Each server is a session of its own in the capture.
//
// All of it is in the capture, with a note before it. What a restart cannot preserve: whatever the old server kept in memory; tasks, cursors, elicitations and
// progress under way; a frame that the server had begun, whose beginning the host has seen already (it is ended where it is, and is broken); and what the
// handshake agreed on, should the new server answer it differently: the host still believes the first answer, and a note tells of the difference.
//
// # Concurrency
//
// [Run] uses goroutines and waits for them. Left behind may be a read of Stdin, and reads and writes of a pipe that a process outside the server's group holds
// open: the system has no way to interrupt them. They end with the process, or when the other side closes.
//
// # Errors
//
// [Run] returns a [*StartError] if the server cannot be started. How it ended is no error.
package tap
