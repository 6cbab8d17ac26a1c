package filter

import (
	"iter"
	"time"
)

// A Field is what a term can ask for by name.
type Field string

// The fields.
const (
	Tool    Field = "tool"
	Target  Field = "target" // a tool, a prompt, a URI
	Method  Field = "method"
	ID      Field = "id"
	Task    Field = "task"
	Dir     Field = "dir"
	Kind    Field = "kind"
	Status  Field = "status"
	Server  Field = "server"
	Session Field = "session"
	Side    Field = "side"
	Era     Field = "era"
	Rev     Field = "rev"
	Lint    Field = "lint"
)

// Fields returns the fields, in the order in which messages list them.
func Fields() []Field {
	return []Field{Tool, Target, Method, ID, Task, Dir, Kind, Status, Server, Session, Side, Era, Rev, Lint}
}

// A Subject is what a filter looks at.
type Subject interface {
	// Any reports whether match is true of one of the values that the field has.
	Any(f Field, match func(value string) bool) bool
	// Covers reports whether it has to do with an event whose number is in the range.
	Covers(from, to uint64) bool
	// Took returns how long it took, and false if that is not known.
	Took() (time.Duration, bool)
	// Bytes returns the size of its payloads on the wire.
	Bytes() int64
	// Payloads yields its payloads, and whatever else text is to be looked for in. It is called only if [Filter.NeedsPayload].
	Payloads() iter.Seq[[]byte]
}
