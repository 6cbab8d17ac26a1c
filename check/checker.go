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
	MaxSessions   int // 0 is 1024
	MaxExchanges  int // HTTP exchanges that are open; 0 is 8192
	MaxPending    int // requests that wait for their response; 0 is 16384
	MaxParamBytes int // bytes of parameters of such requests; 0 is 16 MiB
	MaxTools      int // of one server; 0 is 4096
	MaxPerRule    int // findings of one rule, beyond which it keeps quiet; 0 is 1000
}

// A Checker holds events against the rules, one by one, and may be used on traffic that is still going on. Its memory is bounded by its limits. It is for one goroutine at
// a time.
type Checker struct {
	opts   Options
	limits Limits
	rules  *ruleSet
	seed   maphash.Seed

	pairer          *capture.Pairer
	calls           map[*capture.Call]*call
	paramBytes      int
	callsEvicted    bool // calls were forgotten
	sessions        map[sessionKey]*session
	sharedHTTP      map[sessionKey]*sharedHTTP
	endpoints       map[endpointKey]*session // endpoints of HTTP+SSE
	captures        map[string]*captureState
	exchanges       map[exchangeKey]*exchange
	sessionCount    uint64
	ticks           uint64
	sessionsEvicted uint64
	counts          map[*rule]int
	scratch         []byte
	closed          bool
}

// New returns a Checker. opts may be nil.
func New(opts *Options) *Checker {
	ck := &Checker{
		seed: newSeed(), calls: map[*capture.Call]*call{}, sessions: map[sessionKey]*session{},
		sharedHTTP: map[sessionKey]*sharedHTTP{}, endpoints: map[endpointKey]*session{},
		captures: map[string]*captureState{}, exchanges: map[exchangeKey]*exchange{}, counts: map[*rule]int{},
	}
	if opts != nil {
		ck.opts = *opts
	}
	ck.limits = ck.opts.Limits
	set := func(v *int, def int) {
		if *v <= 0 {
			*v = def
		}
	}
	set(&ck.limits.MaxSessions, 1024)
	set(&ck.limits.MaxExchanges, 8192)
	set(&ck.limits.MaxPending, 16384)
	set(&ck.limits.MaxParamBytes, 16<<20)
	set(&ck.limits.MaxTools, 4096)
	set(&ck.limits.MaxPerRule, 1000)
	ck.pairer = capture.NewPairer(&capture.PairOptions{MaxPending: 2 * ck.limits.MaxPending})
	ck.rules = newRuleSet(&ck.opts)
	return ck
}

// Run checks a capture, or several that stand behind one another, from where r is to the end. Findings come as they are made; an error is that of the Reader, and ends it.
// opts may be nil.
func Run(r *capture.Reader, opts *Options) iter.Seq2[Finding, error] {
	return func(yield func(Finding, error) bool) {
		ck := New(opts)
		for e, err := range r.Events() {
			if err != nil {
				yield(Finding{}, err)
				return
			}
			for _, f := range ck.Add(r.Head(), e) {
				if !yield(f, nil) {
					return
				}
			}
		}
		for _, f := range ck.Close() {
			if !yield(f, nil) {
				return
			}
		}
	}
}

// Add takes the next event and returns what is wrong with it, or with what it ends. head is that of the capture that the event is in; nil if it is not known. Neither is kept.
// The findings belong to the caller.
func (ck *Checker) Add(head *capture.Head, e *capture.Event) []Finding {
	if ck.closed || e == nil {
		return nil
	}
	e = ck.prepare(head, e)
	r := ck.captureOf(e.Capture)
	r.lastN, r.lastT = max(r.lastN, e.N), max(r.lastT, int64(e.T))
	switch e.Kind {
	case capture.KindHead:
		return nil
	case capture.KindGap:
		ck.noteGap(r, e)
		return nil
	case capture.KindTail:
		r.tail = true
		if e.Tail != nil && e.Tail.Lost > 0 {
			r.lostAt = max(r.lostAt, e.N, 1)
		}
		return nil
	case capture.KindNote, capture.KindTranslate:
		return nil
	}
	if framed := e.Kind == capture.KindMessage || e.Kind == capture.KindInvalid; framed && e.Dir != capture.ToServer && e.Dir != capture.ToClient {
		r.lostAt = max(r.lostAt, e.N, 1) // whose it is cannot be told
		return nil
	}
	v := &view{checker: ck, e: e, exchange: ck.exchangeOf(e)}
	ck.handleEvent(v)
	return v.findings
}

// prepare returns the event with what the checker adds to it. Facts that the event keeps of the kind it claims to be are there afterwards.
func (ck *Checker) prepare(head *capture.Head, e *capture.Event) *capture.Event {
	c := *e
	if c.Kind == capture.KindHead && c.Head != nil {
		head = c.Head
	}
	if c.Capture == "" && head != nil {
		c.Capture = head.ID
	}
	if head != nil {
		ck.captureOf(c.Capture).transport = head.Transport
	} else if ck.opts.Transport != "" {
		ck.captureOf(c.Capture).transport = ck.opts.Transport
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

// noteGap takes note that events are missing.
func (ck *Checker) noteGap(r *captureState, e *capture.Event) {
	n := e.N
	if e.Gap != nil && e.Gap.Lost > 0 {
		n += e.Gap.Lost - 1
	}
	r.lostAt = max(r.lostAt, n, r.lastN, 1)
}

// Close returns what only the end shows. The Checker takes no more events.
func (ck *Checker) Close() []Finding {
	if ck.closed {
		return nil
	}
	ck.closed = true
	var all []Finding
	sessions := make([]*session, 0, len(ck.sessions))
	for _, s := range ck.sessions {
		sessions = append(sessions, s)
	}
	slices.SortFunc(sessions, func(a, b *session) int { return int(a.number) - int(b.number) })
	for _, s := range sessions {
		e := &capture.Event{Capture: s.key.capture, N: s.lastN, Session: s.key.number}
		v := &view{checker: ck, e: e, session: s}
		v.rev, v.modern = ck.revisionOf(s)
		for _, r := range ck.rules.ends {
			ck.runRule(v, r, r.end)
		}
		all = append(all, v.findings...)
	}
	return all
}

// revisionOf returns the revision of a session as a whole, where that can be said.
func (ck *Checker) revisionOf(s *session) (mcp.Revision, bool) {
	switch {
	case ck.opts.Revision != mcp.RevisionNone:
		return ck.opts.Revision, era.Of(ck.opts.Revision).Modern
	case s.initializeResult != 0:
		return s.rev, false
	case s.modern:
		return mcp.LatestRevision, true
	}
	return mcp.RevisionNone, false
}

// runRule has a rule look at v, unless it has said enough.
func (ck *Checker) runRule(v *view, r *rule, f func(*view)) {
	if f == nil || ck.counts[r] >= ck.limits.MaxPerRule {
		return
	}
	before := len(v.findings)
	v.rule = r
	f(v)
	ck.counts[r] += len(v.findings) - before
}
