package check

import (
	"hash/maphash"
	"iter"
	"slices"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/mcp"
)

// Options are the options of a Checker. nil means defaults.
type Options struct {
	// Revision is the one to hold everything against; RevisionNone lets the traffic tell.
	Revision mcp.Revision
	// Only names the rules to check; empty is all. Disabled names rules that are not checked. Ids that no rule has are passed over: ask [Lookup] before. "group/*"
	// names all rules whose ids begin with "group/".
	Only, Disabled []string
	// Transport is what moved the messages ("stdio", "http" or "sse"), where the capture does not say it.
	Transport string
	Limits    Limits
}

// Limits bound the memory of a Checker. What it has to forget is no finding.
type Limits struct {
	MaxSessions  int // 0 is 1024
	MaxExchanges int // HTTP exchanges that are open; 0 is 8192
	MaxPending   int // requests that wait for their response; 0 is 16384
	MaxHeld      int // bytes of parameters of such requests; 0 is 16 MiB
	MaxTools     int // of one server; 0 is 4096
	MaxPerRule   int // findings of one rule, beyond which it keeps quiet; 0 is 1000
}

// A Checker holds events against the rules, one by one, and may be used on traffic that is still going on. Its memory is bounded by its limits. It is for one goroutine at
// a time.
type Checker struct {
	opts   Options
	limits Limits
	plan   *plan
	seed   maphash.Seed

	pairer     *capture.Pairer
	calls      map[*capture.Call]*call
	held       int
	lossy      bool // calls were forgotten
	sessions   map[sessionKey]*session
	shared     map[sessionKey]*share
	posts      map[postKey]*session // endpoints of HTTP+SSE
	recordings map[string]*recording
	exchanges  map[exchangeKey]*exchange
	numbered   uint64
	ticks      uint64
	forgotten  uint64
	counts     map[*rule]int
	scratch    []byte
	closed     bool
}

// New returns a Checker. opts may be nil.
func New(opts *Options) *Checker {
	k := &Checker{
		seed: newSeed(), calls: map[*capture.Call]*call{}, sessions: map[sessionKey]*session{},
		shared: map[sessionKey]*share{}, posts: map[postKey]*session{},
		recordings: map[string]*recording{}, exchanges: map[exchangeKey]*exchange{}, counts: map[*rule]int{},
	}
	if opts != nil {
		k.opts = *opts
	}
	k.limits = k.opts.Limits
	set := func(v *int, def int) {
		if *v <= 0 {
			*v = def
		}
	}
	set(&k.limits.MaxSessions, 1024)
	set(&k.limits.MaxExchanges, 8192)
	set(&k.limits.MaxPending, 16384)
	set(&k.limits.MaxHeld, 16<<20)
	set(&k.limits.MaxTools, 4096)
	set(&k.limits.MaxPerRule, 1000)
	k.pairer = capture.NewPairer(&capture.PairOptions{MaxPending: 2 * k.limits.MaxPending})
	k.plan = newPlan(&k.opts)
	return k
}

// Run checks a capture, or several that stand behind one another, from where r is to the end. Findings come as they are made; an error is that of the Reader, and ends it.
// opts may be nil.
func Run(r *capture.Reader, opts *Options) iter.Seq2[Finding, error] {
	return func(yield func(Finding, error) bool) {
		k := New(opts)
		for e, err := range r.Events() {
			if err != nil {
				yield(Finding{}, err)
				return
			}
			for _, f := range k.Add(r.Head(), e) {
				if !yield(f, nil) {
					return
				}
			}
		}
		for _, f := range k.Close() {
			if !yield(f, nil) {
				return
			}
		}
	}
}

// Add takes the next event and returns what is wrong with it, or with what it ends. head is that of the capture that the event is in; nil if it is not known. Neither is kept.
// The findings belong to the caller.
func (k *Checker) Add(head *capture.Head, e *capture.Event) []Finding {
	if k.closed || e == nil {
		return nil
	}
	e = k.prepare(head, e)
	r := k.recordingOf(e.Capture)
	r.lastN, r.lastT = max(r.lastN, e.N), max(r.lastT, int64(e.T))
	switch e.Kind {
	case capture.KindHead:
		return nil
	case capture.KindGap:
		k.lose(r, e)
		return nil
	case capture.KindTail:
		r.tail = true
		if e.Tail != nil && e.Tail.Lost > 0 {
			r.lostAt = max(r.lostAt, e.N, 1)
		}
		return nil
	case capture.KindNote, capture.KindXlate:
		return nil
	}
	if framed := e.Kind == capture.KindMessage || e.Kind == capture.KindBad; framed && e.Dir != capture.ToServer && e.Dir != capture.ToClient {
		r.lostAt = max(r.lostAt, e.N, 1) // whose it is cannot be told
		return nil
	}
	v := &view{k: k, e: e, x: k.exchangeOf(e)}
	k.event(v)
	return v.findings
}

// prepare returns the event with what the checker adds to it. Facts that the event keeps of the kind it claims to be are there afterwards.
func (k *Checker) prepare(head *capture.Head, e *capture.Event) *capture.Event {
	c := *e
	if c.Kind == capture.KindHead && c.Head != nil {
		head = c.Head
	}
	if c.Capture == "" && head != nil {
		c.Capture = head.ID
	}
	if head != nil {
		k.recordingOf(c.Capture).transport = head.Transport
	} else if k.opts.Transport != "" {
		k.recordingOf(c.Capture).transport = k.opts.Transport
	}
	if c.Kind == capture.KindRequest && c.Request == nil {
		c.Request = &capture.Request{}
	}
	if c.Kind == capture.KindResponse && c.Response == nil {
		c.Response = &capture.Response{}
	}
	if c.Kind == capture.KindSSE && c.SSE == nil {
		c.SSE = &capture.SSE{}
	}
	if c.Kind == capture.KindExit && c.Exit == nil {
		c.Exit = &capture.Exit{}
	}
	return &c
}

// lose takes note that events are missing.
func (k *Checker) lose(r *recording, e *capture.Event) {
	n := e.N
	if e.Gap != nil && e.Gap.Lost > 0 {
		n += e.Gap.Lost - 1
	}
	r.lostAt = max(r.lostAt, n, r.lastN, 1)
}

// Close returns what only the end shows. The Checker takes no more events.
func (k *Checker) Close() []Finding {
	if k.closed {
		return nil
	}
	k.closed = true
	var all []Finding
	sessions := make([]*session, 0, len(k.sessions))
	for _, s := range k.sessions {
		sessions = append(sessions, s)
	}
	slices.SortFunc(sessions, func(a, b *session) int { return int(a.number) - int(b.number) })
	for _, s := range sessions {
		e := &capture.Event{Capture: s.key.capture, N: s.lastN, Session: s.key.number}
		v := &view{k: k, e: e, sess: s}
		v.rev, v.modern = k.revisionOf(s)
		for _, r := range k.plan.ends {
			k.run(v, r, r.end)
		}
		all = append(all, v.findings...)
	}
	return all
}

// revisionOf returns the revision of a session as a whole, where that can be said.
func (k *Checker) revisionOf(s *session) (mcp.Revision, bool) {
	switch {
	case k.opts.Revision != mcp.RevisionNone:
		return k.opts.Revision, era.Of(k.opts.Revision).Modern
	case s.shaken != 0:
		return s.rev, false
	case s.modern:
		return mcp.LatestRevision, true
	}
	return mcp.RevisionNone, false
}

// run has a rule look at v, unless it has said enough.
func (k *Checker) run(v *view, r *rule, f func(*view)) {
	if f == nil || k.counts[r] >= k.limits.MaxPerRule {
		return
	}
	before := len(v.findings)
	v.rule = r
	f(v)
	k.counts[r] += len(v.findings) - before
}
