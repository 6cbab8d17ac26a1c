package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
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

// A run is one probe of a server.
type run struct {
	target    *Target
	opts      Options // with the defaults filled in
	recorder  *recorder
	transport http.RoundTripper
	start     func(context.Context, io.Writer) (process, error)

	wanted []mcp.Revision // to probe, in order
	plan   plan

	negotiated []mcp.Revision
	lastErr    error  // why there was no answer
	refused    func() // reports that as a finding

	// mu guards what jobs change that run at the same time.
	mu                  sync.Mutex
	sessions, exchanges uint64
	requests            int
	serverVersions      []string      // that the server says it supports, in server/discover
	slowest             time.Duration // that a handshake took; 0 before the first
	sdkReplies          []sdkReply
	paged               bool // a list has had a cursor
}

// Run probes a server. opts may be nil. With an error, the report has what was found until then.
func Run(ctx context.Context, target *Target, opts *Options) (*Report, error) {
	r := newRun(target, opts)
	err := r.probeAll(ctx)
	return r.report(), err
}

func newRun(target *Target, opts *Options) *run {
	r := &run{target: target}
	if opts != nil {
		r.opts = *opts
	}
	o := &r.opts
	o.Timeout, o.Connect = cmp.Or(o.Timeout, defaultTimeout), cmp.Or(o.Connect, defaultConnect)
	o.Client, o.Version = cmp.Or(o.Client, "mcpwire"), cmp.Or(o.Version, "0")
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if len(o.Revisions) == 0 {
		o.Revisions = mcp.Revisions()
	}
	r.wanted = slices.Clone(o.Revisions)
	slices.Reverse(r.wanted)
	r.transport = target.Transport
	if r.transport == nil {
		r.transport = http.DefaultTransport
	}
	r.start = func(ctx context.Context, stderr io.Writer) (process, error) { return startProcess(ctx, target, stderr) }
	kind := "stdio"
	if !r.stdio() {
		kind = "http"
	}
	r.recorder = newRecorder(kind, o)
	r.newPlan()
	return r
}

func (r *run) stdio() bool { return r.target.Command != nil }

// nextSession returns the number of a session of a job, which is nil for an observation.
func (r *run) nextSession(j *job) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if j == nil {
		r.sessions++
		return r.sessions
	}
	if n := j.reserved; n != 0 {
		j.reserved = 0
		return n
	}
	r.sessions++
	j.sessions = append(j.sessions, r.sessions)
	r.recorder.assign(r.sessions, j.order)
	return r.sessions
}

// noteStart takes note of how long a handshake took.
func (r *run) noteStart(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slowest = max(r.slowest, d)
}

// noteVersions takes note of the versions that the server says it supports.
func (r *run) noteVersions(versions []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serverVersions = versions
}

func (r *run) supported() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.serverVersions
}

// notePages takes note of a list with a cursor.
func (r *run) notePages() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paged = true
}

func (r *run) nextExchange() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.exchanges++
	return r.exchanges
}

// replyTimeout is how long to wait for the answer to a question.
func (r *run) replyTimeout(q outgoing) time.Duration { return cmp.Or(q.wait, r.opts.Timeout) }

func (r *run) report() *Report {
	findings, events := r.recorder.close()
	r.adjustFindings(findings)
	r.recorder.renumber(findings)
	slices.Reverse(r.negotiated)
	return &Report{Findings: findings, Revisions: r.negotiated, Events: events, Requests: r.requests}
}

// probeAll goes through the revisions, the newest first: servers are to be seen at their best.
func (r *run) probeAll(ctx context.Context) error {
	for len(r.plan.todo) > 0 {
		if err := r.runWave(ctx, r.nextWave()); err != nil {
			return err
		}
	}
	if len(r.negotiated) == 0 {
		if r.refused != nil {
			r.refused()
		}
		return r.noAnswerError()
	}
	return nil
}

func (r *run) noAnswerError() error {
	if r.lastErr == nil {
		return ErrNoAnswer
	}
	return fmt.Errorf("%w: %w", ErrNoAnswer, r.lastErr)
}

// A group is a series of steps on one connection.
type group struct {
	name          string
	noHandshake   bool // the connection begins without a handshake
	everyRevision bool // for each revision, not only for the newest of its era
	httpOnly      bool // over HTTP only
	stdioOnly     bool // over stdio only
	modernOnly    bool // in the modern era only
	legacyOnly    bool // in the legacy era only
	steps         []step
}

// A step asks something, and judges the answers.
type step func(ctx context.Context, v *driver)

func groups() []group {
	return []group{
		{name: "lists and requests", everyRevision: true, steps: []step{lists, unknownMethod, batch}},
		{name: "wrong requests", steps: []step{lists, invalidParams, unknownTool, unknownResource, unknownPrompt, completion, invalidCursor, logLevel, unknownNotification, cancelUnknown}},
		{name: "ids and texts", steps: []step{plainIDs, hugeID, escapedText, bigArgument}},
		{name: "before the handshake", noHandshake: true, stdioOnly: true, legacyOnly: true, steps: []step{pingFirst, listFirst}},
		{name: "an unknown version", noHandshake: true, legacyOnly: true, steps: []step{unknownOffer}},
		{name: "a second handshake", legacyOnly: true, stdioOnly: true, steps: []step{secondInitialize}},
		{name: "metadata and versions", modernOnly: true, steps: []step{unknownVersion, missingMeta, missingInfo, removedMethods}},
		{name: "subscriptions", modernOnly: true, steps: []step{subscribe}},
		{name: "lines that are no messages", stdioOnly: true, steps: []step{badJSON, wrongEnvelope, lineEnds}},
		{name: "the end of the input", stdioOnly: true, steps: []step{endOfInput}},
		{name: "answers at the end of the input", stdioOnly: true, steps: []step{answersAtEnd}},
		{name: "SIGTERM", stdioOnly: true, steps: []step{terminate}},
		{name: "headers that do not fit", httpOnly: true, modernOnly: true, steps: []step{wrongHeaders, headerSpelling, otherMethods}},
		{name: "bodies that are no messages", httpOnly: true, steps: []step{badBodies, badHeaders}},
		{name: "sessions", httpOnly: true, legacyOnly: true, steps: []step{sessions}},
		{name: "the version header", httpOnly: true, legacyOnly: true, steps: []step{versionHeader}},
		{name: "other HTTP methods", httpOnly: true, legacyOnly: true, steps: []step{getStream}},
		{name: "Origin and Host", httpOnly: true, everyRevision: false, steps: []step{origins}},
	}
}

// local reports whether the server is on this machine.
func (r *run) local() bool {
	u, err := url.Parse(r.target.URL)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return strings.EqualFold(u.Hostname(), "localhost") || ip != nil && ip.IsLoopback()
}
