// Package mock implements a mock MCP server: it answers clients with a server's
// recorded responses from a capture (see package capture).
//
//	rec, err := mock.Read(events, nil) // of a capture.Reader
//	srv := mock.New(rec, nil)
//	err := stdio.Serve(ctx, srv)        // or srv.Handler(nil), over HTTP
//
// # Matching
//
// A request gets the response of a recorded one with the same method and the same
// params, except for _meta. The order of members and the spelling of numbers and
// strings do not matter. A value that was hidden in the recording matches anything.
// Several matching exchanges are used in their order, and the last one repeatedly.
// Exchanges of the client's assigned session, which is the recorded session most like
// its own, are preferred. Modern clients over HTTP have no sessions and share the
// position in that order.
//
// A further input round of a request
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr) gets
// the recorded next round. Rounds with the same state are preferred, and among those
// the ones with the same input responses.
//
// # What is sent
//
// Messages have the recorded text, except for ids, progress tokens and subscription
// ids, which are the client's. The messages that preceded a response precede it again:
// progress, log messages, and input requests, whose answers the server awaits. Later
// unsolicited messages follow the same response as in the recording. Recorded delays
// apply only if [Options.Latency] says so.
//
// A client may have used another process to ask what the server speaks, so that a
// capture has no server/discover. The mock then answers it with the recorded revisions
// and the capabilities for the recorded methods, and likewise initialize if the capture
// has no handshake.
//
// # Limits
//
// The server's messages are stored in memory, equal ones once; [ReadOptions] limits
// their size. The number of pending requests and the waiting time for a client are
// limited too.
//
// # Concurrency
//
// A Recording is immutable. A Server is safe for concurrent use. Its goroutines end
// when Serve or Close returns.
//
// # Errors
//
// Open and Read return errors of the capture, ErrTooLarge and ErrNothing. A
// *FaultError describes an invalid fault. Serve returns ErrMissed if a strict server
// got a request that is not in the capture, and an *ExitError if a fault ended the
// server. All other errors are sent to clients or logged.
package mock
