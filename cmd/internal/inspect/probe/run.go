package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/net/loopback"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/stdio"
)

// A Target is the server to probe: a command to start, or a URL.
type Target struct {
	// Command is the program and its arguments. nil means a server over HTTP.
	Command []string
	// Dir is the working directory of the command. "" means the current one.
	Dir string
	// Env lists variables as NAME=value that are added to this process's environment.
	Env []string

	// Start starts the server in place of Command, in tests. nil starts Command.
	Start wireclient.Starter

	URL string
	// Header is added to all requests, for example Authorization.
	Header http.Header
	// Transport makes the requests. nil means http.DefaultTransport. Redirects are not followed.
	Transport http.RoundTripper
}

// Options configure Run. A nil *Options means defaults.
type Options struct {
	// Revisions lists the revisions to probe. nil means all.
	Revisions []mcp.Revision
	// Timeout limits the wait for a response. Zero means 30 s.
	Timeout time.Duration
	// Connect limits the wait for the response to a handshake, and to the first request to a
	// process, from its start. Zero means 30 s.
	Connect time.Duration
	// Only and Disabled select rules, as in [check.Options].
	Only, Disabled []string
	// Capture receives all traffic. nil discards it. Run does not close it.
	Capture *capture.Writer
	// Stderr, if not nil, receives the server's standard error, in the order of Progress. It must
	// be safe for concurrent use. Its errors are ignored.
	Stderr io.Writer
	// Handshake, if not nil, is called with the result of each first handshake in a revision over
	// stdio. The Observation belongs to the caller. If it returns false, the probe ends.
	Handshake func(*Observation) bool
	// Opened, if not nil, is called when the handshakes in all revisions are done. Like Handshake,
	// it must not block and runs on the goroutine that called Run.
	Opened func()
	// HandshakesOnly ends the probe then, after one request of the newest revision.
	HandshakesOnly bool
	// Progress, if not nil, is called before each step. It must not block. It runs on the goroutine
	// that called Run.
	Progress func(Step)
	// Version is that of the client mcpwire. "" means 0.
	Version string
}

// A Step is the next activity of a probe.
type Step struct {
	// Text describes the step, without text of the server.
	Text string
	// Session is the number of the session of a sequential probe, from 1. Sessions is the number of
	// sessions that are known to be needed so far.
	Session, Sessions int
}

// String describes the step and how many there are.
func (s Step) String() string {
	return fmt.Sprintf("session %d of %d, %s", s.Session, s.Sessions, s.Text)
}

// A Report is the result of a probe.
type Report struct {
	// Findings lists the findings about the server in the order of a sequential probe. Their event
	// numbers are those of the capture or, without one, of such a probe.
	Findings []check.Finding
	// Revisions lists the requested revisions that the server supports, in ascending order.
	Revisions []mcp.Revision
	// Events counts the recorded events, without discarded ones.
	Events uint64
	// Requests counts the sent requests.
	Requests int
	// Failures lists the connections that failed after the handshake, in the order of time.
	Failures []*Failure
}

// A Failure is a request after the handshake that got no response, or an error response although
// it is correct.
type Failure struct {
	Revision mcp.Revision
	// About describes the request. It is the method if the request is one that hosts send.
	About string
	// Usual reports that hosts send this request.
	Usual bool
	// Ended reports that the process or the connection ended. Otherwise, there is an Error or an
	// HTTP status, or no response came in time.
	Ended  bool
	Exit   *stdio.ExitError
	Error  *jsonrpc.Error
	Status int
	// Body is the beginning of an HTTP body that is not a message.
	Body []byte
	// List says what a result has in place of its list. It is "" if the list is there.
	List string
	// Item says what the first malformed element of a list lacks, or is "".
	Item string
	// Empty reports that a list is empty, although the server declares its capability.
	Empty bool
	// OtherID is the id of a response that came, as JSON text, if it is not that of the request.
	OtherID []byte
	// Multiline reports that what came is a message in several lines.
	Multiline bool

	stderr *stderrKeeper
}

// Stderr returns the beginning and the end of the standard error of the process.
func (f *Failure) Stderr() string { return f.stderr.text() }

// hopeless reports whether the server has ended at a request that hosts send: all other steps would
// only start it again.
func (r *run) hopeless() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.failures, func(f *Failure) bool { return f.Usual && f.Ended })
}

// maxFailures limits Report.Failures.
const maxFailures = 20

// noteFailure records a failure of a connection after its handshake.
func (d *driver) noteFailure(about string, a *reply) {
	f := &Failure{Revision: d.rev, About: about, Usual: d.usual, Ended: a.state == disconnected, Error: a.rpcError, Status: a.status, Body: a.body, List: a.list, Item: a.item, Empty: a.empty, OtherID: a.otherID()}
	if d.stdio != nil {
		f.Multiline = formOneMessage(d.stdio.stray)
		f.stderr = d.stdio.stderr
		if f.Exit, _ = errors.AsType[*stdio.ExitError](a.err); f.Ended && f.Exit == nil && wait.Closed(d.stdio.Child().Done(), settleTime) {
			f.Exit, _ = errors.AsType[*stdio.ExitError](d.stdio.Child().Wait())
		}
	}
	d.r.mu.Lock()
	defer d.r.mu.Unlock()
	if len(d.r.failures) < maxFailures {
		d.r.failures = append(d.r.failures, f)
	}
}

// ErrNoAnswer is wrapped by the error of Run for a server that supports none of the revisions.
var ErrNoAnswer = errors.New("the server speaks none of the requested revisions")

// A StatusError reports that the server rejects requests with an HTTP status, such as 401.
type StatusError struct {
	Status int
	// Header is the header of the response.
	Header http.Header
}

// Error implements error.
func (e *StatusError) Error() string {
	return fmt.Sprintf("the server responds with HTTP status %d %s", e.Status, http.StatusText(e.Status))
}

// Limits and defaults of a probe.
const (
	defaultTimeout = 30 * time.Second
	defaultConnect = 30 * time.Second
	maxFrame       = 16 << 20 // bytes of a message
	maxVisit       = 64 << 20 // bytes from one connection
	maxPages       = 100      // pages of a list
	maxBefore      = 1000     // messages before a response
)

// A run is one probe of a server.
type run struct {
	target *Target
	// opts has the defaults filled in.
	opts      Options
	recorder  *recorder
	transport http.RoundTripper
	start     wireclient.Starter

	// observes reports that the caller gets the observations.
	observes bool

	// wanted lists the revisions to probe, newest first.
	wanted []mcp.Revision
	plan   plan

	negotiated []mcp.Revision
	// lastErr is the reason for ErrNoAnswer.
	lastErr error
	// refused reports that as a finding.
	refused func()

	// others are the goroutines that serve no job.
	others sync.WaitGroup

	exchanges atomic.Uint64
	// serverVersions are the supported versions in the result of server/discover.
	serverVersions atomic.Pointer[[]string]
	// paged reports that a list had a cursor.
	paged atomic.Bool

	// mu guards the fields below, which concurrent jobs change.
	mu       sync.Mutex
	sessions uint64
	requests int
	// slowest is the longest time of a handshake, or 0 before the first.
	slowest    time.Duration
	sdkReplies []sdkReply
	failures   []*Failure
}

// Run probes a server. opts may be nil. With an error, the report contains the results so far.
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
	o.Version = cmp.Or(o.Version, "0")
	if o.Progress == nil {
		o.Progress = func(Step) {}
	}
	if o.Handshake == nil {
		o.Handshake = func(*Observation) bool { return true }
	} else {
		r.observes = r.stdio()
	}
	if o.Opened == nil {
		o.Opened = func() {}
	}
	if len(o.Revisions) == 0 {
		o.Revisions = mcp.Revisions()
	}
	r.wanted = slices.Clone(o.Revisions)
	slices.Reverse(r.wanted)
	r.transport = cmp.Or(target.Transport, http.DefaultTransport)
	if r.start = target.Start; r.start == nil && r.stdio() {
		r.start = wireclient.Command(wireclient.NewCommand(target.Command, target.Dir, target.Env))
	}
	kind := capture.TransportStdio
	if !r.stdio() {
		kind = capture.TransportHTTP
	}
	r.recorder = newRecorder(kind, o)
	r.newPlan()
	return r
}

func (r *run) stdio() bool { return r.target.Command != nil }

// nextSession returns the session number for a job.
func (r *run) nextSession(j *job) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := j.reserved; n != 0 {
		j.reserved = 0
		return n
	}
	r.sessions++
	j.sessions = append(j.sessions, r.sessions)
	r.recorder.assign(r.sessions, j.order)
	return r.sessions
}

// noteStart records how long a handshake took.
func (r *run) noteStart(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slowest = max(r.slowest, d)
}

// supported returns the versions in the result of server/discover, or nil.
func (r *run) supported() []string {
	if list := r.serverVersions.Load(); list != nil {
		return *list
	}
	return nil
}

func (r *run) replyTimeout(q outgoing) time.Duration { return cmp.Or(q.wait, r.opts.Timeout) }

func (r *run) report() *Report {
	findings, events := r.recorder.close()
	r.adjustFindings(findings)
	r.recorder.renumber(findings)
	slices.Reverse(r.negotiated)
	return &Report{Findings: findings, Revisions: r.negotiated, Events: events, Requests: r.requests, Failures: r.failures}
}

// probeAll probes the revisions, the newest first.
func (r *run) probeAll(ctx context.Context) error {
	defer r.others.Wait()
	for len(r.plan.todo)+len(r.plan.held) > 0 && !r.hopeless() {
		if err := r.runWave(ctx, r.nextWave()); err != nil {
			return err
		}
	}
	if r.hopeless() {
		closeAll(r.plan.held)
		r.abandon()
		if !r.plan.opened {
			r.opts.Opened()
		}
	}
	if len(r.negotiated) == 0 {
		if r.refused != nil {
			r.refused()
		}
		if r.lastErr == nil {
			return ErrNoAnswer
		}
		return fmt.Errorf("%w: %w", ErrNoAnswer, r.lastErr)
	}
	return nil
}

// A group is a series of steps on one connection.
type group struct {
	name        string
	noHandshake bool
	// everyRevision runs the group in each revision, not only in the newest of its era.
	everyRevision bool
	modernOnly    bool
	legacyOnly    bool
	// endsProcess reports that the only step ends the process, and may end that of another group.
	endsProcess bool
	steps       []step
	// more are steps on the same connection in the newest revision of an era.
	more []eraStep
}

// A step sends messages and judges the replies.
type step func(ctx context.Context, v *driver)

// An eraStep is a step that may be for one era only.
type eraStep struct {
	run        step
	modernOnly bool
	legacyOnly bool
}

func (r *run) groups() []group {
	if r.stdio() {
		return stdioGroups()
	}
	return httpGroups()
}

// stdioGroups returns the groups over stdio. Each needs a process, and starting one takes longer
// than all its steps. So they are few: steps share a process unless one ends it or precedes the
// handshake. Those that wait for responses that need not come are in two groups, which run at the
// same time.
func stdioGroups() []group {
	return []group{
		{name: "lists and requests", everyRevision: true, steps: []step{lists, unknownMethod, batch}, more: []eraStep{
			{run: invalidParams}, {run: unknownTool}, {run: unknownResource}, {run: unknownPrompt}, {run: completion}, {run: invalidCursor},
			{run: logLevel}, {run: unknownNotification}, {run: cancelUnknown}, {run: plainIDs}, {run: hugeID}, {run: escapedText}, {run: bigArgument},
			{run: unknownVersion, modernOnly: true}, {run: missingMeta, modernOnly: true}, {run: missingInfo, modernOnly: true},
			{run: removedMethods, modernOnly: true}, {run: subscribe, modernOnly: true}, {run: secondInitialize, legacyOnly: true}, {run: endOfInput},
		}},
		{name: "before the handshake, and invalid lines", noHandshake: true, legacyOnly: true, steps: []step{
			pingFirst, listFirst, unknownOffer, completeHandshake, badJSON, wrongEnvelope, lineEnds, closeInputEarly,
		}},
		{name: "invalid lines", modernOnly: true, steps: []step{badJSON, wrongEnvelope, lineEnds, closeInputEarly}},
		{name: "SIGTERM", endsProcess: true, steps: []step{terminate}},
	}
}

func httpGroups() []group {
	return []group{
		{name: "lists and requests", everyRevision: true, steps: []step{lists, unknownMethod, batch}},
		{name: "invalid requests", steps: []step{lists, invalidParams, unknownTool, unknownResource, unknownPrompt, completion, invalidCursor, logLevel, unknownNotification, cancelUnknown}},
		{name: "ids and texts", steps: []step{plainIDs, hugeID, escapedText, bigArgument}},
		{name: "an unknown version", noHandshake: true, legacyOnly: true, steps: []step{unknownOffer}},
		{name: "metadata and versions", modernOnly: true, steps: []step{unknownVersion, missingMeta, missingInfo, removedMethods}},
		{name: "subscriptions", modernOnly: true, steps: []step{subscribe}},
		{name: "headers that do not match", modernOnly: true, steps: []step{wrongHeaders, headerSpelling, otherMethods}},
		{name: "bodies that are not messages", steps: []step{badBodies, badHeaders}},
		{name: "sessions", legacyOnly: true, steps: []step{sessions}},
		{name: "the version header", legacyOnly: true, steps: []step{versionHeader}},
		{name: "other HTTP methods", legacyOnly: true, steps: []step{getStream}},
		{name: "Origin and Host", steps: []step{origins}},
	}
}

func (r *run) local() bool {
	u, err := url.Parse(r.target.URL)
	return err == nil && loopback.IsHost(u.Hostname())
}
