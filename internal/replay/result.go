package replay

// A Status says what became of a request that is played.
type Status string

// The statuses.
const (
	Same      Status = "same"      // the answer is the recorded one, as far as it is compared
	Different Status = "different" // it is not
	Open      Status = "open"      // the recording has no answer to compare with
	Skipped   Status = "skipped"   // it was not sent, since there was nothing to send it for: see Result.Why
	Redacted  Status = "hidden"    // it was not sent, since something in it was hidden: see Result.Why
	Timeout   Status = "timeout"   // no answer came in time
	Lost      Status = "lost"      // no answer came, for another reason: see Result.Why
)

// A Result is what became of a request of the recording, or of something else that was compared. Texts are as the peers wrote them.
type Result struct {
	N      uint64 `json:"n"` // of the event in the recording; 0 for what is not in it
	Method string `json:"method"`
	Target string `json:"target,omitempty"` // the tool, prompt, URI or task
	// Asked tells that it is a request of the server's.
	Asked  bool   `json:"asked,omitempty"`
	OK     bool   `json:"ok"` // there is nothing that makes a replay fail
	Status Status `json:"status"`
	Why    string `json:"why,omitempty"`
	// Differences are the first ones, notes included; the last may say that there are more.
	Differences []Difference `json:"differences"`
	// Redacted are the places that were hidden, as JSON pointers into the message.
	Redacted []string `json:"hidden,omitempty"`
	Recorded *float64 `json:"recordedMs,omitempty"` // the latency, in milliseconds; nil if there was no answer
	Live     *float64 `json:"liveMs,omitempty"`
	LiveN    uint64   `json:"liveN,omitempty"` // of the event with the answer in the new capture
}

// A Difference is something that is not as it was recorded.
type Difference struct {
	Op      string `json:"op"`      // of package jsondiff: add, remove, replace, more; or "notifications", "answer"
	Pointer string `json:"pointer"` // into the live message, a JSON pointer; that of what was removed, into the recorded one
	// Name is that of the tool or prompt, or the URI of the resource or template, in whose
	// definition it is; "" elsewhere.
	Name string `json:"name,omitempty"`
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
	// Note tells that it is worth to be known, but no failure.
	Note bool `json:"note,omitempty"`
}

// A Summary counts results by what they were.
type Summary struct {
	Requests  int `json:"requests"` // that the recording has, and that were chosen
	Same      int `json:"same"`
	Different int `json:"different"` // those of the server's included
	Open      int `json:"open"`
	Skipped   int `json:"skipped"`
	Redacted  int `json:"hidden"`
	Timeout   int `json:"timeout"`
	Lost      int `json:"lost"`
	Unsent    int `json:"unsent"` // because it ended before
	Notes     int `json:"notes"`
	Stray     int `json:"stray"` // what came from the server and was no message, or answered nothing
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

// Completed reports whether everything was sent that there was something to send for, and answered.
func (s *Summary) Completed() bool { return s.Redacted+s.Timeout+s.Lost+s.Unsent == 0 }

// OK reports whether nothing was different.
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
