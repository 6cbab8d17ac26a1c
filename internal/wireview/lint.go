package trace

import "slices"

// A Finding is something that a check has found in an event.
type Finding struct {
	Rule     string `json:"rule"`     // its id
	Severity string `json:"severity"` // "error", "warning" …
	Message  string `json:"message"`
	Pointer  string `json:"pointer,omitempty"` // into the payload, a JSON pointer
	URL      string `json:"url,omitempty"`     // of the section of the specification
	Event    uint64 `json:"event"`             // set by AddFinding
}

const maxFindings = 32 // on a row

// AddFinding notes a finding on the row that has an event, and returns the change as Add does: none if there is no such row. An empty captureID means the only
// capture. A row keeps its first 32 findings, and counts the others.
func (m *Model) AddFinding(captureID string, event uint64, f Finding) []Change {
	m.changes, m.hits = m.changes[:0], 0
	r := m.Find(captureID, event)
	if r == nil {
		return nil
	}
	if f.Event = event; len(r.Findings) < maxFindings {
		r.Findings = append(r.Findings, f)
	} else {
		r.OmittedFindings++
	}
	m.markUpdated(r)
	return m.changes
}

// CountFindings returns how many findings a row has, with those inside it.
func (r *Row) CountFindings() (n int) {
	for x := range r.All() {
		n += len(x.Findings) + x.OmittedFindings
	}
	return n
}

// WorstSeverity returns the severity of the worst finding that a row has, with those inside it: "error", "warning", "info", or "" if there is none.
func (r *Row) WorstSeverity() (worst string) {
	order := [...]string{"", "info", "warning", "error"}
	for x := range r.All() {
		for i := range x.Findings {
			if s := x.Findings[i].Severity; slices.Index(order[:], s) > slices.Index(order[:], worst) {
				worst = s
			}
		}
	}
	return worst
}
