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

	sessions, exchanges uint64
	asked               int
	speaks              []mcp.Revision
	discovered          []string // that the server says it supports, in server/discover
	last                error    // why there was no answer
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
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.Client, o.Version = cmp.Or(o.Client, "mcpwire"), cmp.Or(o.Version, "0")
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if len(o.Revisions) == 0 {
		o.Revisions = mcp.Revisions()
	}
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
	return r
}

func (r *run) stdio() bool { return r.target.Command != nil }

func (r *run) nextSession() uint64 {
	r.sessions++
	return r.sessions
}

func (r *run) nextExchange() uint64 {
	r.exchanges++
	return r.exchanges
}

// patience is how long to wait for the answer to a question.
func (r *run) patience(q question) time.Duration { return cmp.Or(q.wait, r.opts.Timeout) }

func (r *run) report() *Report {
	findings, events := r.journal.close()
	slices.Reverse(r.speaks)
	return &Report{Findings: findings, Speaks: r.speaks, Events: events, Asked: r.asked}
}

// all goes through the revisions, the newest first: servers are to be seen at their best.
func (r *run) all(ctx context.Context) error {
	list := slices.Clone(r.opts.Revisions)
	slices.Reverse(list)
	whole := false // the groups were gone through for a legacy revision
	for _, rev := range list {
		v, err := r.open(ctx, rev, true)
		if err != nil {
			return err
		}
		if !v.spoken {
			v.link.close()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			continue
		}
		r.speaks = append(r.speaks, rev)
		r.visits(ctx, v, rev.Modern() || !whole)
		whole = whole || !rev.Modern()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if len(r.speaks) == 0 {
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

// maxReopen is how often a group may lose its connection.
const maxReopen = 5

// visits goes through the groups for a revision. v is a connection that is made already.
func (r *run) visits(ctx context.Context, v *visit, whole bool) {
	for _, g := range groups() {
		switch {
		case !whole && !g.always, g.web && r.stdio(), g.pipe && !r.stdio(), g.modern && !v.rev.Modern(), g.legacy && v.rev.Modern():
			continue
		}
		r.opts.Progress(v.rev.String() + ": " + g.name)
		first := v
		if g.bare || v.link == nil {
			first = nil
		} else {
			v = &visit{rev: v.rev}
		}
		r.visit(ctx, &g, v.rev, first)
		if ctx.Err() != nil {
			break
		}
	}
	if v.link != nil {
		v.link.close()
	}
}

// visit goes through a group.
func (r *run) visit(ctx context.Context, g *group, rev mcp.Revision, v *visit) {
	lost := 0
	for _, s := range g.steps {
		if v == nil {
			var err error
			if v, err = r.open(ctx, rev, !g.bare); err != nil || !g.bare && !v.spoken {
				if err == nil {
					v.link.close()
				}
				return // it was well a moment ago, and that it no longer is the findings of the handshake say
			}
		}
		s(ctx, v)
		if ctx.Err() != nil {
			break
		}
		if !v.link.alive() {
			v.link.close()
			v = nil
			if lost++; lost > maxReopen {
				return
			}
		}
	}
	if v != nil {
		v.link.close()
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
