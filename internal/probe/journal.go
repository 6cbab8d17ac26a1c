package probe

import (
	"cmp"
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
	n       uint64
	found   []check.Finding     // of package check
	own     []check.Finding     // of the steps
	excused map[uint64][]string // by the numbers of events that are our own doing: the rules that do not count there; nil is all
	chosen  func(id string) bool
}

func newJournal(transport string, opts *Options) *journal {
	j := &journal{
		head:  &capture.Head{Version: capture.Version, ID: "probe", Transport: transport, Redact: "off", At: time.Now()},
		w:     opts.Capture,
		start: time.Now(), excused: map[uint64][]string{},
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
	seen := *e
	seen.N, seen.At, seen.Capture = j.n, time.Now(), j.head.ID
	seen.T = seen.At.Sub(j.start)
	if j.w != nil {
		if n := j.w.Record(e); n > 0 {
			seen.N = n
			j.n = n
		}
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

// close returns all findings about the server, and the number of events.
func (j *journal) close() ([]check.Finding, uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.add(j.k.Close())
	var list []check.Finding
	for _, f := range j.found {
		rules, ok := j.excused[f.Event]
		if !ok || rules != nil && !slices.Contains(rules, f.Rule.ID) {
			list = append(list, f)
		}
	}
	list = append(list, j.own...)
	slices.SortStableFunc(list, func(a, b check.Finding) int { return cmp.Compare(a.Event, b.Event) })
	return list, j.n
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
