// Package interop contains only tests. They connect peers that were written elsewhere with mcpwire
// over real pipes and over HTTP, clients with our servers and servers with our client. It is
// in module tools so that the SDKs it compares with stay out of the library's go.mod.
//
// Every client starts its server through a recording proxy, a re-execution of the test binary that
// forwards bytes unchanged and records both directions, the signals and the exit code. So a test
// checks the client's report and the recorded traffic. Over HTTP, the recording proxy is a reverse
// proxy in the test's process. Servers written in Go are also re-executions of the test binary.
//
// The tests use these terms:
//
//   - A peer is a server on another SDK, or ours. A host is a client that runs the steps of a
//     session with our server; see scenario_test.go.
//   - A guest is a foreign client that uses all features of the everything server. Its run is a
//     visit; see guest_test.go.
//   - A tour is a connection of our client to a peer. Each of its stops tests one feature; see
//     tour_test.go.
//   - A quirk is a feature that a peer lacks or implements in another way. A deviation is a peer's
//     violation of a rule. Both have a reason, and fail the test when they no longer occur.
package interop
