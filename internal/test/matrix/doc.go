// Package matrix tests every behavior of the protocol between the server and the
// client of this module, in each revision, over each transport: in memory; over
// pipes and with a child process, in either framing; over Streamable HTTP, with
// HTTP/1.1 and HTTP/2, with answers as JSON or streams; and over the HTTP+SSE
// transport of 2024-11-05. It contains only tests.
//
// Each Test function covers one theme, with a server and a table of behaviors. A
// row says which revisions it holds for, and what holds in the others instead. It
// runs in every cell of the matrix:
//
//	go test ./internal/test/matrix -run TestTools/child/header/2025-11-25
//	go test ./internal/test/matrix -run TestTools/http2/stream/2026-07-28
//
// A row also says what can't be tested over HTTP, and why.
//
// Each connection has a separate server, as with a child process; over HTTP, each
// client has one. A test that needs the server's state calls a tool for it.
//
// In-memory transports run each behavior in a bubble of testing/synctest, where
// tests can compare times. Over other transports no behavior depends on time, and
// those of one cell share a connection.
package matrix
