// Package matrix tests every behavior of the protocol between the server and the
// client of this module, in each revision, over each transport: in memory; over
// pipes and with a child process, in either framing; over Streamable HTTP, with
// HTTP/1.1 and HTTP/2, with responses as JSON or streams; and over the HTTP+SSE
// transport of 2024-11-05. It contains only tests.
//
// Each Test function covers one subject, with a server and a table of behaviors. A
// row names the revisions that have the behavior, and has a test for the others.
// It runs in every cell of the matrix:
//
//	go test ./internal/test/matrix -run TestTools/child/header/2025-11-25
//	go test ./internal/test/matrix -run TestTools/http2/stream/2026-07-28
//
// A row also has the reasons why it is not tested over some kinds of HTTP. Without MCPWIRE_SOAK,
// child processes have the last revisions only.
//
// Each connection has a separate server, as with a child process; over HTTP, each
// client has one. A test that needs the server's state calls a tool for it.
//
// In-memory transports run each behavior in a bubble of testing/synctest, where
// tests can compare times. Over other transports, no behavior depends on time, and
// the behaviors of one cell share a connection.
package matrix
