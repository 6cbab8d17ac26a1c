// Package matrix tries every behaviour of the protocol between the server and
// the client of this module, in each revision, over each transport: in memory, over
// pipes and with a child process, in either framing; over Streamable HTTP, by
// HTTP/1.1 and HTTP/2, with answers that are JSON or streams; and over the HTTP+SSE
// of 2024-11-05. It has no code but its tests.
//
// A theme is a Test function: a server, and a table of behaviours. Each row says
// in which revisions it holds, and what holds in the others instead. It is tried
// in every cell of the matrix:
//
//	go test ./internal/test/matrix -run TestTools/child/header/2025-11-25
//	go test ./internal/test/matrix -run TestTools/http2/stream/2026-07-28
//
// A row also says what cannot be tried over HTTP, and why.
//
// Each connection has a server of its own, because a child process has one, and
// each client has where there is HTTP. What a behaviour has to know of the server's
// inside, it asks by a tool.
//
// Transports in memory run in a bubble of testing/synctest, a bubble for each
// behaviour, so that time can be compared there. On the others no behaviour
// depends on time, and those of one cell share a connection.
package matrix
