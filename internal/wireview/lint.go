package wireview

import "slices"

// A Lint is something that a check has found in an event.
type Lint struct {
	Rule     string `json:"rule"`     // its id
	Severity string `json:"severity"` // "error", "warning" …
	Message  string `json:"message"`
	Pointer  string `json:"pointer,omitempty"` // into the payload, a JSON pointer
	URL      string `json:"url,omitempty"`     // of the section of the specification
	Event    uint64 `json:"event"`             // set by Attach
}

const maxLints = 32 // on a row

// Attach notes a finding on the row that has an event, and returns the change as Add does: none if there is no such row. An empty captureID means the only
// capture. A row keeps its first 32 findings, and counts the others.
func (m *Model) Attach(captureID string, event uint64, l Lint) []Change {
	m.changes, m.hits = m.changes[:0], 0
	r := m.Find(captureID, event)
	if r == nil {
		return nil
	}
	if l.Event = event; len(r.Lints) < maxLints {
		r.Lints = append(r.Lints, l)
	} else {
		r.LintsGone++
	}
	m.changed(r)
	return m.changes
}

// CountLints returns how many findings a row has, with those inside it.
func (r *Row) CountLints() (n int) {
	for x := range r.All() {
		n += len(x.Lints) + x.LintsGone
	}
	return n
}

// WorstLint returns the severity of the worst finding that a row has, with those inside it: "error", "warning", "info", or "" if there is none.
func (r *Row) WorstLint() (worst string) {
	order := [...]string{"", "info", "warning", "error"}
	for x := range r.All() {
		for i := range x.Lints {
			if s := x.Lints[i].Severity; slices.Index(order[:], s) > slices.Index(order[:], worst) {
				worst = s
			}
		}
	}
	return worst
}
