package probe

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpwire/mcp"
)

// A run is one probe of a server.
type run struct {
	target    *Target
	opts      Options // with the defaults filled in
	journal   *journal
	transport http.RoundTripper
	start     func(context.Context, io.Writer) (process, error)

	list []mcp.Revision // to probe, in order
	plan plan

	speaks  []mcp.Revision
	last    error  // why there was no answer
	refused func() // reports that as a finding

	// mu guards what jobs change that run at the same time.
	mu                  sync.Mutex
	sessions, exchanges uint64
	asked               int
	discovered          []string      // that the server says it supports, in server/discover
	slowest             time.Duration // that a handshake took; 0 before the first
	sdkAnswers          []sdkAnswer
	paged               bool // a list has had a cursor
}

// Run probes a server. opts may be nil. With an error, the report has what was found until then.
func Run(ctx context.Context, target *Target, opts *Options) (*Report, error) {
	r := newRun(target, opts)
	err := r.all(ctx)
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
	r.list = slices.Clone(o.Revisions)
	slices.Reverse(r.list)
	r.transport = target.Transport
	if r.transport == nil {
		r.transport = http.DefaultTransport
	}
	r.start = func(ctx context.Context, stderr io.Writer) (process, error) { return startProcess(ctx, target, stderr) }
	kind := "stdio"
	if !r.stdio() {
		kind = "http"
	}
	r.journal = newJournal(kind, o)
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
	r.journal.assign(r.sessions, j.place)
	return r.sessions
}

// tookStart takes note of how long a handshake took.
func (r *run) tookStart(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slowest = max(r.slowest, d)
}

// supports takes note of the versions that the server says it supports.
func (r *run) supports(versions []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.discovered = versions
}

func (r *run) supported() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.discovered
}

// hasPages takes note of a list with a cursor.
func (r *run) hasPages() {
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

// patience is how long to wait for the answer to a question.
func (r *run) patience(q question) time.Duration { return cmp.Or(q.wait, r.opts.Timeout) }

func (r *run) report() *Report {
	findings, events := r.journal.close()
	r.judge(findings)
	r.journal.renumber(findings)
	slices.Reverse(r.speaks)
	return &Report{Findings: findings, Speaks: r.speaks, Events: events, Asked: r.asked}
}

// all goes through the revisions, the newest first: servers are to be seen at their best.
func (r *run) all(ctx context.Context) error {
	for len(r.plan.todo) > 0 {
		if err := r.do(ctx, r.take()); err != nil {
			return err
		}
	}
	if len(r.speaks) == 0 {
		if r.refused != nil {
			r.refused()
		}
		return r.unanswered()
	}
	return nil
}

func (r *run) unanswered() error {
	if r.last == nil {
		return ErrNoAnswer
	}
	return fmt.Errorf("%w: %w", ErrNoAnswer, r.last)
}

// A group is a series of steps on one connection.
type group struct {
	name   string
	bare   bool // the connection begins without a handshake
	always bool // for each revision, not only for the newest of its era
	web    bool // over HTTP only
	pipe   bool // over stdio only
	modern bool // in the modern era only
	legacy bool // in the legacy era only
	steps  []step
}

// A step asks something, and judges the answers.
type step func(ctx context.Context, v *visit)

func groups() []group {
	return []group{
		{name: "lists and requests", always: true, steps: []step{lists, unknownMethod, batch}},
		{name: "wrong requests", steps: []step{lists, invalidParams, unknownTool, unknownResource, unknownPrompt, completion, invalidCursor, logLevel, unknownNotification, cancelUnknown}},
		{name: "ids and texts", steps: []step{plainIDs, hugeID, escapedText, bigArgument}},
		{name: "before the handshake", bare: true, pipe: true, legacy: true, steps: []step{pingFirst, listFirst}},
		{name: "an unknown version", bare: true, legacy: true, steps: []step{unknownOffer}},
		{name: "a second handshake", legacy: true, pipe: true, steps: []step{secondInitialize}},
		{name: "metadata and versions", modern: true, steps: []step{unknownVersion, missingMeta, missingInfo, removedMethods}},
		{name: "subscriptions", modern: true, steps: []step{listen}},
		{name: "lines that are no messages", pipe: true, steps: []step{garbage, wrongEnvelope, lineEnds}},
		{name: "the end of the input", pipe: true, steps: []step{endOfInput}},
		{name: "answers at the end of the input", pipe: true, steps: []step{answersAtEnd}},
		{name: "SIGTERM", pipe: true, steps: []step{terminate}},
		{name: "headers that do not fit", web: true, modern: true, steps: []step{wrongHeaders, headerSpelling, otherMethods}},
		{name: "bodies that are no messages", web: true, steps: []step{badBodies, badHeaders}},
		{name: "sessions", web: true, legacy: true, steps: []step{sessions}},
		{name: "the version header", web: true, legacy: true, steps: []step{versionHeader}},
		{name: "other HTTP methods", web: true, legacy: true, steps: []step{getStream}},
		{name: "Origin and Host", web: true, always: false, steps: []step{origins}},
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
