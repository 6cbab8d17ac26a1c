package probe

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/mcp"
)

// A recorder records all traffic and checks it against the rules at once. It is safe for concurrent
// use.
type recorder struct {
	// mu keeps the events of the checker and of the capture in the same order.
	mu   sync.Mutex
	head *capture.Head
	// w may be nil.
	w       *capture.Writer
	checker *check.Checker
	start   time.Time
	events  uint64
	// findings are those of package check.
	findings []check.Finding
	// ownFindings are those of the steps.
	ownFindings []check.Finding
	// waived maps the numbers of events that the probe provoked to the rules that do not count
	// there. nil means all rules.
	waived  map[uint64][]string
	enabled func(id string) bool

	// sessions holds the sessions of jobs, by number. A capture interleaves concurrent sessions.
	// Without a capture, events are numbered as in a sequential probe, so that reports are
	// reproducible: until renumber, an event number is the session number followed by the number
	// within the session.
	sessions map[uint64]*sessionRecord
}

// A sessionRecord is the record of a session.
type sessionRecord struct {
	order  int
	events uint64
	// discarded reports that the session does not count.
	discarded bool
}

// eventBits is the number of bits for an event number within its session.
const eventBits = 40

func newRecorder(transport capture.Transport, opts *Options) *recorder {
	j := &recorder{
		head:  &capture.Head{Version: capture.Version, ID: "probe", Transport: transport, Redact: "off", At: time.Now()},
		w:     opts.Capture,
		start: time.Now(), waived: map[uint64][]string{}, sessions: map[uint64]*sessionRecord{},
		enabled: func(id string) bool { return Enabled(id, opts.Only, opts.Disabled) },
	}
	if j.w != nil {
		j.head.ID = j.w.ID()
	}
	j.checker = check.New(&check.Options{Only: opts.Only, Disabled: opts.Disabled, Transport: transport})
	return j
}

// record records an event and returns its number. It does not keep the event.
func (r *recorder) record(e *capture.Event) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events++
	s := r.sessions[e.Session]
	seen := *e
	seen.N, seen.At, seen.Capture = r.events, time.Now(), r.head.ID
	seen.T = seen.At.Sub(r.start)
	if s != nil {
		s.events++
	}
	switch {
	case r.w != nil:
		if n := r.w.Record(e); n > 0 {
			seen.N = n
			r.events = n
		}
	case s != nil:
		seen.N = e.Session<<eventBits | s.events
	}
	r.add(r.checker.Add(r.head, &seen))
	return seen.N
}

// waive drops findings about an event that the probe provoked: those of the rules, or all if rules
// is empty.
func (r *recorder) waive(n uint64, rules ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waived[n] = rules
}

func (r *recorder) assign(session uint64, place int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions[session] = &sessionRecord{order: place}
}

// discard excludes sessions from the results and notes the reason in the capture.
func (r *recorder) discard(sessions []uint64, why string) {
	for _, session := range sessions {
		r.record(&capture.Event{Kind: capture.KindNote, Session: session, Data: []byte("this session does not count: " + why)})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, session := range sessions {
		r.sessions[session].discarded = true
	}
}

func (r *recorder) counts(session uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.countsLocked(session)
}

func (r *recorder) countsLocked(session uint64) bool {
	s := r.sessions[session]
	return s == nil || !s.discarded
}

// compareEvents orders events by job, then by number.
func (r *recorder) compareEvents(session1, n1, session2, n2 uint64) int {
	place := func(session uint64) int {
		if s := r.sessions[session]; s != nil {
			return s.order
		}
		return 0
	}
	return cmp.Or(cmp.Compare(place(session1), place(session2)), cmp.Compare(n1, n2))
}

// close returns all findings about the server, in the order of the jobs, and the number of events
// that count.
func (r *recorder) close() ([]check.Finding, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(r.checker.Close())
	events := r.events
	for _, s := range r.sessions {
		if s.discarded {
			events -= s.events
		}
	}
	var list []check.Finding
	for _, f := range r.findings {
		rules, ok := r.waived[f.Event]
		if !ok || rules != nil && !slices.Contains(rules, f.Rule.ID) {
			list = append(list, f)
		}
	}
	list = slices.DeleteFunc(append(list, r.ownFindings...), func(f check.Finding) bool { return !r.countsLocked(f.Session) })
	slices.SortStableFunc(list, func(a, b check.Finding) int { return r.compareEvents(a.Session, a.Event, b.Session, b.Event) })
	return list, events
}

// renumber renumbers the events and sessions of findings in the order of the jobs. With a capture,
// they keep its numbers.
func (r *recorder) renumber(list []check.Finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.w != nil {
		return
	}
	order := slices.SortedFunc(maps.Keys(r.sessions), func(a, b uint64) int { return r.compareEvents(a, a, b, b) })
	sessions, before := map[uint64]uint64{}, map[uint64]uint64{}
	events := uint64(0)
	for _, n := range order {
		if s := r.sessions[n]; !s.discarded {
			sessions[n], before[n] = uint64(len(sessions)+1), events
			events += s.events
		}
	}
	event := func(n uint64) uint64 { return before[n>>eventBits] + n&(1<<eventBits-1) }
	for i := range list {
		f := &list[i]
		if sessions[f.Session] == 0 {
			continue
		}
		f.Event, f.Session = event(f.Event), sessions[f.Session]
		f.Related = slices.Clone(f.Related)
		for k, n := range f.Related {
			f.Related[k] = event(n)
		}
	}
}

func (r *recorder) add(list []check.Finding) {
	for _, f := range list {
		if aboutServer(&f) {
			r.findings = append(r.findings, f)
		}
	}
}

// serverOmits are the rules whose findings are about the server, although they refer to a client's
// message: the server omitted something. Other findings about client messages are caused by the
// probe.
var serverOmits = map[string]bool{"lifecycle/unanswered": true, "stdio/exit-pending": true, "http/stream-unfinished": true}

func aboutServer(f *check.Finding) bool {
	return f.Dir != capture.ToServer || serverOmits[f.Rule.ID]
}

func (r *recorder) report(f check.Finding) {
	if f.Rule == nil || !r.enabled(f.Rule.ID) || !appliesTo(f.Rule, f.Revision) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f.Capture = r.head.ID
	r.ownFindings = append(r.ownFindings, f)
}

func appliesTo(r *check.Rule, rev mcp.Revision) bool {
	return r.Revisions == nil || rev == mcp.RevisionNone || slices.Contains(r.Revisions, rev)
}
