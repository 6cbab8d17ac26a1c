// Package probe tests a server of the Model Context Protocol
// (https://modelcontextprotocol.io/specification). It sends well-formed and
// malformed messages over stdio or Streamable HTTP, in all revisions that the
// server supports.
//
// All traffic is recorded as the events of a capture (package capture) and
// checked against the rules of package check. The package also has rules about
// responses to messages that no well-behaved client sends. Their ids begin with
// "probe/". Rules returns these.
//
// # Safety
//
// A probe calls no existing tool, reads no existing resource and subscribes to
// nothing that the server names. For tools, prompts and resources it uses names
// that no server has. It reads lists, requests a completion and, in the legacy
// era, sets the log level of the connection.
//
// # Concurrency
//
// Run may be called concurrently. The results of Rules belong to the caller.
//
// Over stdio, starting a process takes longer than all steps, so a probe starts few: one for each
// revision and, in the newest of an era, one for each way in which a session may begin or end that
// no other has. A server that rejects server/discover gets initialize on the same connection. If a
// step leaves a request without a response, the following ones get another process.
//
// Once a server has answered, up to five of its processes run at the same time. Their steps begin
// when the handshakes in all revisions are done, so that starts do not distort measurements. If
// processes interfere with each other, they run one at a time, and the results of the disturbed
// ones are discarded. Findings and the output to Options are in the order of a sequential probe
// that does all handshakes first. Over HTTP, sessions run one after another, because servers limit
// them, and each group of steps has a separate one. Run leaves nothing running when it returns.
//
// # Errors
//
// Run returns ErrNoAnswer, wrapped with the reason, for a server that supports
// none of the revisions; a *StatusError if an HTTP status says why; the error
// of starting the process; or the error of its context. Every other failure is
// a finding.
package probe
