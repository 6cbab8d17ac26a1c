package replay

import "slices"

// A Status is the result of playing a request.
type Status string

// The statuses.
const (
	// Same means that the response equals the recorded one.
	Same Status = "same"
	// Different means that it differs.
	Different Status = "different"
	// Open means that the recording has no response to compare with.
	Open Status = "open"
	// Skipped means that the request could not be sent: see Result.Why.
	Skipped Status = "skipped"
	// Redacted means that the request was not sent because parts of it were hidden: see Result.Why.
	Redacted Status = "hidden"
	// Timeout means that no response came in time.
	Timeout Status = "timeout"
	// Lost means that no response came, for another reason: see Result.Why.
	Lost Status = "lost"
)

// A Result is the result of a recorded request, or of another comparison. Texts of peers are not
// escaped.
type Result struct {
	// N is the number of the event in the recording. Zero means that the recording has no such
	// event.
	N      uint64 `json:"n"`
	Method string `json:"method"`
	// Target is the tool, prompt, URI or task.
	Target string `json:"target,omitempty"`
	// Asked reports a request of the server.
	Asked bool `json:"asked,omitempty"`
	// OK reports that the result does not make the replay fail.
	OK     bool   `json:"ok"`
	Status Status `json:"status"`
	Why    string `json:"why,omitempty"`
	// Differences has the first differences, including notes. The last may report that there are
	// more.
	Differences []Difference `json:"differences"`
	// Redacted has the hidden places, as JSON pointers into the message.
	Redacted []string `json:"hidden,omitempty"`
	// Recorded and Live are latencies in milliseconds, or nil without a response.
	Recorded *float64 `json:"recordedMs,omitempty"`
	Live     *float64 `json:"liveMs,omitempty"`
	// LiveN is the number of the event with the response in the new capture.
	LiveN uint64 `json:"liveN,omitempty"`
}

// judge makes the result a failure if it has a difference that is not a note.
func (r *Result) judge() {
	if slices.ContainsFunc(r.Differences, func(d Difference) bool { return !d.Note }) {
		r.Status, r.OK = Different, false
	}
}

// A Difference is a deviation from the recording.
type Difference struct {
	// Op is an operation of package jsondiff (add, remove, replace, more), "notifications" or
	// "answer".
	Op string `json:"op"`
	// Pointer is a JSON pointer into the live message or, for a removal, into the recorded one.
	Pointer string `json:"pointer"`
	// Name is the tool, prompt, resource URI or URI template that contains the difference, or "".
	Name string `json:"name,omitempty"`
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
	// Note reports a difference that is not a failure.
	Note bool `json:"note,omitempty"`
}

// A Summary counts results by status.
type Summary struct {
	// Requests counts the selected requests of the recording.
	Requests int `json:"requests"`
	Same     int `json:"same"`
	// Different includes requests of the server.
	Different int `json:"different"`
	Open      int `json:"open"`
	Skipped   int `json:"skipped"`
	Redacted  int `json:"hidden"`
	Timeout   int `json:"timeout"`
	Lost      int `json:"lost"`
	// Unsent counts requests that were not sent because the replay ended early.
	Unsent int `json:"unsent"`
	Notes  int `json:"notes"`
	// Stray counts messages of the server that are invalid or answer no request.
	Stray int `json:"stray"`
}

// Add adds the counts of another replay.
func (s *Summary) Add(o *Summary) {
	s.Requests += o.Requests
	s.Same += o.Same
	s.Different += o.Different
	s.Open += o.Open
	s.Skipped += o.Skipped
	s.Redacted += o.Redacted
	s.Timeout += o.Timeout
	s.Lost += o.Lost
	s.Unsent += o.Unsent
	s.Notes += o.Notes
	s.Stray += o.Stray
}

// Completed reports whether all requests that could be sent were sent and answered.
func (s *Summary) Completed() bool { return s.Redacted+s.Timeout+s.Lost+s.Unsent == 0 }

// OK reports whether the replay is complete and without differences.
func (s *Summary) OK() bool { return s.Completed() && s.Different == 0 }

// count counts a result.
func (s *Summary) count(r *Result) {
	switch r.Status {
	case Same:
		s.Same++
	case Different:
		s.Different++
	case Open:
		s.Open++
	case Skipped:
		s.Skipped++
	case Redacted:
		s.Redacted++
	case Timeout:
		s.Timeout++
	case Lost:
		s.Lost++
	}
	for _, d := range r.Differences {
		if d.Note {
			s.Notes++
		}
	}
}

// results are the results of a replay, which are reported in recorded order.
type results struct {
	// calls and serverRequests are indexed as those of the recording. nil means unknown.
	calls, serverRequests []*Result
	// order has all of them in recorded order.
	order []**Result
	// reported counts the reported ones.
	reported int
	summary  Summary
	emit     func(*Result)
}

func newResults(rec *Recording, opts *Options) results {
	s := results{calls: make([]*Result, len(rec.calls)), serverRequests: make([]*Result, len(rec.serverRequests)), emit: opts.Report}
	s.summary.Requests = rec.selectedCount(opts)
	for i, j := 0, 0; i < len(rec.calls) || j < len(rec.serverRequests); {
		if j == len(rec.serverRequests) || i < len(rec.calls) && rec.calls[i].n <= rec.serverRequests[j].n {
			s.order = append(s.order, &s.calls[i])
			i++
		} else {
			s.order = append(s.order, &s.serverRequests[j])
			j++
		}
	}
	return s
}

// add sets the result of a call or of a request of the server, and reports results in recorded
// order. A result without a method is not reported.
func (s *results) add(of **Result, r *Result) {
	for *of = r; s.reported < len(s.order) && *s.order[s.reported] != nil; s.reported++ {
		if next := *s.order[s.reported]; next.Method != "" {
			s.report(next)
		}
	}
}

// report reports a result at once.
func (s *results) report(r *Result) {
	if r.Differences == nil {
		r.Differences = []Difference{}
	}
	s.summary.count(r)
	s.emit(r)
}
