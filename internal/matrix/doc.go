// Package matrix tries every behaviour of the protocol between the server and
// the client of this module, in each revision, over each carrier, in either
// framing. It has no code but its tests.
//
// A theme is a Test function: a server, and a table of behaviours. Each row says
// in which revisions it holds, and what holds in the others instead. It is tried
// in every cell of the matrix:
//
//	go test ./internal/matrix -run TestTools/child/header/2025-11-25
//
// Each connection has a server of its own, because a child process has one. What
// a behaviour has to know of the server's inside, it asks by a tool.
//
// Carriers in memory run in a bubble of testing/synctest, a bubble for each
// behaviour, so that time can be compared there. On the others no behaviour
// depends on time, and those of one cell share a connection.
package matrix
