// Package interop contains only tests. They connect peers that were written elsewhere with mcpwire
// over real pipes and over HTTP, clients with our servers and servers with our client. It is a
// separate module so that the SDKs it compares with stay out of mcpwire's go.mod.
//
// Every client starts its server through a witness, a re-execution of the test
// binary that passes bytes on unchanged and writes down both directions, the
// signals and the exit code. A test therefore asserts on two things: what the
// client saw, and what crossed the pipe. Over HTTP, the witness is a reverse proxy
// in the test's own process. Servers written in Go are re-executions of the test
// binary as well.
package interop
