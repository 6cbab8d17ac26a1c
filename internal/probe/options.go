package probe

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/mcp"
)

// A Target is the server to probe: a process that is started, or a URL.
type Target struct {
	Command []string // the program first; nil for a server over HTTP
	Dir     string   // that it runs in; "" is this one
	Env     []string // that it gets besides this process's, as NAME=value

	URL    string
	Header http.Header // that goes along with all requests, such as Authorization
	// Transport makes the requests; nil is http.DefaultTransport. Redirects are not followed.
	Transport http.RoundTripper
}

// Options are the options of Run. nil means defaults.
type Options struct {
	Revisions []mcp.Revision // to probe; nil is all
	// Timeout is how long to wait for an answer; 0 is 30 s.
	Timeout time.Duration
	// Connect is how long to wait for the answer to a handshake, and to whatever a process is asked
	// first, from its start; 0 is 30 s.
	Connect time.Duration
	// Only and Disabled choose rules, as in [check.Options].
	Only, Disabled []string
	// Capture gets all that goes over the wire. nil keeps none. It is not closed.
	Capture *capture.Writer
	// Stderr, if not nil, gets what the server writes to its standard error, in the order of what
	// Progress tells. It must be good for many goroutines at once; its errors do not count.
	Stderr io.Writer
	// Baseline is what handshakes just before have shown of a process; nil if there were none. With it,
	// several processes start at once. Without, only one runs until the server has answered.
	Baseline *Baseline
	// Progress, if not nil, is called with what is done next, or waited for first: a short text,
	// with nothing of the server in it. It must not block. It is called by the goroutine that
	// called Run.
	Progress func(string)
	// Client and Version are how the probe calls itself; "" is mcpwire.
	Client, Version string
}

// Baseline says that a server has agreed to all revisions to probe.
type Baseline struct {
	Solo       time.Duration // that a handshake took while no other process of the server ran
	Concurrent time.Duration // the slowest of some that began at the same time; 0 if there were none
}

// A Report is what came of a probe.
type Report struct {
	// Findings are those about the server, in the order in which a probe that does one thing after
	// the other has them. Their events are those of the capture; without one, of such a probe.
	Findings []check.Finding
	// Revisions are the revisions that the server speaks, of those that were asked for, in ascending order.
	Revisions []mcp.Revision
	Events    uint64 // that were recorded and count
	Requests  int    // requests that were sent
}

// ErrNoAnswer is wrapped by the error of Run for a server that takes no revision.
var ErrNoAnswer = errors.New("the server speaks none of the revisions asked for")

// A StatusError says that the server refuses requests by an HTTP status, such as 401.
type StatusError struct {
	Status int
	Header http.Header // of the response
}

// Error implements error.
func (e *StatusError) Error() string {
	return fmt.Sprintf("the server answers HTTP status %d %s", e.Status, http.StatusText(e.Status))
}

// What a probe takes in at most.
const (
	defaultTimeout = 30 * time.Second
	defaultConnect = 30 * time.Second
	maxFrame       = 16 << 20 // bytes of a message
	maxVisit       = 64 << 20 // bytes of all that a connection brings
	maxPages       = 100      // of a list
	maxBefore      = 1000     // messages that come before an answer
)
