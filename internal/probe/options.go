package probe

import (
	"errors"
	"fmt"
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
	// Timeout is how long to wait for an answer; 0 is 10 s.
	Timeout time.Duration
	// Only and Disabled choose rules, as in [check.Options].
	Only, Disabled []string
	// Capture gets all that goes over the wire. nil keeps none. It is not closed.
	Capture *capture.Writer
	// Progress, if not nil, is called with what is done next: a short text, with nothing of the server in it. It must not block.
	Progress func(string)
	// Client and Version are how the probe calls itself; "" is mcpwire.
	Client, Version string
}

// A Report is what came of a probe.
type Report struct {
	// Findings are those about the server, in the order of the events.
	Findings []check.Finding
	// Speaks are the revisions that the server speaks, of those that were asked for, in ascending order.
	Speaks []mcp.Revision
	Events uint64 // that were recorded
	Asked  int    // requests that were sent
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
	defaultTimeout = 10 * time.Second
	maxFrame       = 16 << 20 // bytes of a message
	maxVisit       = 64 << 20 // bytes of all that a connection brings
	maxPages       = 100      // of a list
	maxBefore      = 1000     // messages that come before an answer
)
