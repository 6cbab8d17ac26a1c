// Package mock is the recorded server: it answers clients with what a capture (see package capture) has of a server's answers.
//
//	tape, err := mock.Open("fs.mcpcap.ndjson", nil)
//	srv, err := mock.New(tape, nil)
//	err = stdio.Serve(ctx, srv)      // or srv.Handler(nil), over HTTP
//
// # Matching
//
// A request gets the answer of a recorded one with the same method and the same params, but for _meta; the order of members does not count, nor how a number or a
// string is written. What was hidden in the recorded params matches anything. If several were recorded, they are taken in their order, and the last one again and
// again. Those of the session that a client was given, which is the recorded one most like its own, are preferred. Clients of modern revisions over HTTP, which have no
// sessions, share the place in that order.
//
// A further round of a request that needed input (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr) gets the recorded next round: the one
// with the same state, and with the same responses if several of these were recorded, else whatever they are.
//
// # What is sent
//
// Messages are the recorded text but for ids, progress tokens and ids of subscriptions, which are the client's own. What the server sent before an answer goes before it
// again: progress, log messages, and questions, whose answer is waited for. What it sent later without being asked comes behind the answer it followed then. Time passes as it
// did then only if [Options.Latency] says so.
//
// # What is bounded
//
// The messages of the server that are in the capture are held in memory, equal ones once; a capture that has too many is refused (see [ReadOptions]). So is the number of
// requests under way, and how long a client is waited for.
//
// # Concurrency
//
// A Recording does not change. A Server and its methods may be used by many goroutines at once. Its goroutines belong to the clients' connections, and have ended when
// Serve has returned, or Close.
//
// # Errors
//
// Open and Read return those of the capture, ErrTooLarge and ErrNothing. A *FaultError says what is wrong with a fault. Serve returns ErrMissed if a strict server was asked for
// what the capture does not have, and an *ExitError if a fault ended it. Everything else is answered to clients, and logged.
package mock
