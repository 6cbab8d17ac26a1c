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

// A journal records all that goes over the wire, and holds it against the rules at once. It may be used by many goroutines at once.
type journal struct {
	mu      sync.Mutex // orders what the checker sees as the capture has it
	head    *capture.Head
	w       *capture.Writer // may be nil
	k       *check.Checker
	start   time.Time
	n       uint64              // events
	found   []check.Finding     // of package check
	own     []check.Finding     // of the steps
	excused map[uint64][]string // by the numbers of events that are our own doing: the rules that do not count there; nil is all
	chosen  func(id string) bool

	// sessions are those of jobs, by their numbers. Those that run at the same time take turns in a
	// capture. Without one, events get numbers as if the sessions had come one after another, in
	// the order of their jobs, so that reports are the same each time: until renumber, the number
	// of an event is that of its session, and behind it its number in that.
	sessions map[uint64]*recorded
}

// A recorded is what is recorded of a session.
type recorded struct {
	place   int    // of the job
	events  uint64 // how many
	dropped bool   // nothing of it counts
}

// eventBits is the length of the number of an event in its session.
const eventBits = 40

func newJournal(transport string, opts *Options) *journal {
	j := &journal{
		head:  &capture.Head{Version: capture.Version, ID: "probe", Transport: transport, Redact: "off", At: time.Now()},
		w:     opts.Capture,
		start: time.Now(), excused: map[uint64][]string{}, sessions: map[uint64]*recorded{},
		chosen: func(id string) bool { return Chosen(id, opts.Only, opts.Disabled) },
	}
	if j.w != nil {
		j.head.ID = j.w.ID()
	}
	j.k = check.New(&check.Options{Only: opts.Only, Disabled: opts.Disabled, Transport: transport})
	return j
}

// record records an event and returns its number. The event is not kept.
func (j *journal) record(e *capture.Event) uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.n++
	s := j.sessions[e.Session]
	seen := *e
	seen.N, seen.At, seen.Capture = j.n, time.Now(), j.head.ID
	seen.T = seen.At.Sub(j.start)
	if s != nil {
		s.events++
	}
	switch {
	case j.w != nil:
		if n := j.w.Record(e); n > 0 {
			seen.N = n
			j.n = n
		}
	case s != nil:
		seen.N = e.Session<<eventBits | s.events
	}
	j.add(j.k.Add(j.head, &seen))
	return seen.N
}

// excuse has nothing found in an event, which happened because the probe made it happen; with rules, nothing that breaks those.
func (j *journal) excuse(n uint64, rules ...string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.excused[n] = rules
}

// assign has a session belong to a job.
func (j *journal) assign(session uint64, place int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.sessions[session] = &recorded{place: place}
}

// drop has nothing count that is recorded of sessions, and says why in the capture.
func (j *journal) drop(sessions []uint64, why string) {
	for _, session := range sessions {
		j.record(&capture.Event{Kind: capture.KindNote, Session: session, Data: []byte("this session does not count: " + why)})
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, session := range sessions {
		j.sessions[session].dropped = true
	}
}

// counts reports whether what is recorded of a session counts.
func (j *journal) counts(session uint64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.sessions[session]
	return s == nil || !s.dropped
}

// compare orders events by the jobs that they belong to, and then by their numbers.
func (j *journal) compare(session1, n1, session2, n2 uint64) int {
	place := func(session uint64) int {
		if s := j.sessions[session]; s != nil {
			return s.place
		}
		return 0
	}
	return cmp.Or(cmp.Compare(place(session1), place(session2)), cmp.Compare(n1, n2))
}

// close returns all findings about the server in the order of the jobs, and how many events count.
func (j *journal) close() ([]check.Finding, uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.add(j.k.Close())
	events := j.n
	for _, s := range j.sessions {
		if s.dropped {
			events -= s.events
		}
	}
	dropped := func(f *check.Finding) bool {
		s := j.sessions[f.Session]
		return s != nil && s.dropped
	}
	var list []check.Finding
	for _, f := range j.found {
		rules, ok := j.excused[f.Event]
		if !ok || rules != nil && !slices.Contains(rules, f.Rule.ID) {
			list = append(list, f)
		}
	}
	list = slices.DeleteFunc(append(list, j.own...), func(f check.Finding) bool { return dropped(&f) })
	slices.SortStableFunc(list, func(a, b check.Finding) int { return j.compare(a.Session, a.Event, b.Session, b.Event) })
	return list, events
}

// renumber gives findings the numbers that events and sessions have in the order of the jobs. With
// a capture they keep those that they have in it.
func (j *journal) renumber(list []check.Finding) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.w != nil {
		return
	}
	order := slices.SortedFunc(maps.Keys(j.sessions), func(a, b uint64) int { return j.compare(a, a, b, b) })
	sessions, before := map[uint64]uint64{}, map[uint64]uint64{}
	events := uint64(0)
	for _, n := range order {
		if s := j.sessions[n]; !s.dropped {
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

func (j *journal) add(list []check.Finding) {
	for _, f := range list {
		if aboutServer(&f) {
			j.found = append(j.found, f)
		}
	}
}

// serverOmits are rules whose findings stand at a message of the client although they are about the server, which did not do something. Whatever else is
// wrong with what the client sends is the probe's own doing.
var serverOmits = map[string]bool{"lifecycle/unanswered": true, "stdio/exit-pending": true, "http/stream-unfinished": true}

func aboutServer(f *check.Finding) bool {
	return f.Dir != capture.ToServer || serverOmits[f.Rule.ID]
}

// report takes a finding of a step.
func (j *journal) report(f check.Finding) {
	if f.Rule == nil || !j.chosen(f.Rule.ID) || !holds(f.Rule, f.Revision) {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	f.Capture = j.head.ID
	j.own = append(j.own, f)
}

func holds(r *check.Rule, rev mcp.Revision) bool {
	if r.Revisions == nil || rev == mcp.RevisionNone {
		return true
	}
	for _, one := range r.Revisions {
		if one == rev {
			return true
		}
	}
	return false
}
