// Package probe drives a server of the Model Context Protocol (https://modelcontextprotocol.io/specification) itself, to see how it takes what it should
// take and what it should refuse: over stdio and over Streamable HTTP, in all revisions that it speaks, with well-formed and with malformed input.
//
// All that goes over the wire is recorded as the events of a capture (package capture) and held against the rules of package check, just as the
// traffic of others is. Besides, the package has rules of its own, about how a server answers what no well-behaved client sends; their ids begin with
// "probe/". Rules has both.
//
// # Harmlessness
//
// No tool that exists is called, no resource that exists is read, and nothing is subscribed to that the server names: tools, prompts and resources are
// asked for by names that no server has. Lists are read, a completion is asked for, and in the legacy era the log level of the connection is set. Each
// group of steps has a connection of its own, which is a process of its own for stdio.
//
// # Concurrency
//
// Run may be called any number of times at once. What Rules returns belongs to the caller.
//
// Once a server has answered over stdio, several of its processes run at the same time, at most
// MaxProcesses. They start together, and their steps begin when all are up, so that no start
// disturbs what a step measures. Where processes disturb each other all the same, they run one by
// one, and nothing counts of those that were disturbed. Findings, and what Options has shown, are
// in the order of a probe that does one thing after the other. Over HTTP, one session follows the
// other, since servers limit them. Nothing that Run started is left when it returns.
//
// # Errors
//
// Run returns ErrNoAnswer, wrapped with the reason, for a server that takes no revision; *StatusError if HTTP says why; the error of the start for a process
// that cannot be started; and that of its context. Everything else that goes wrong is a finding.
package probe
