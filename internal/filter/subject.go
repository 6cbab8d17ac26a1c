package filter

import (
	"iter"
	"time"
)

// A Field is what a term can ask for by name.
type Field string

// The fields.
const (
	Tool     Field = "tool"
	Target   Field = "target" // a tool, a prompt, a URI
	Method   Field = "method"
	ID       Field = "id"
	Task     Field = "task"
	Dir      Field = "dir"
	Kind     Field = "kind"
	Status   Field = "status"
	Server   Field = "server"
	Session  Field = "session"
	Side     Field = "side"
	Era      Field = "era"
	Revision Field = "rev"
	Finding  Field = "lint"
)

// Fields returns the fields, in the order in which messages list them.
func Fields() []Field {
	return []Field{Tool, Target, Method, ID, Task, Dir, Kind, Status, Server, Session, Side, Era, Revision, Finding}
}

// A Subject is what a filter looks at.
type Subject interface {
	// MatchField reports whether match is true of one of the values that the field has.
	MatchField(f Field, match func(value string) bool) bool
	// HasEventIn reports whether it has to do with an event whose number is in the range.
	HasEventIn(from, to uint64) bool
	// Elapsed returns how long it took, and false if that is not known.
	Elapsed() (time.Duration, bool)
	// Bytes returns the size of its payloads on the wire.
	Bytes() int64
	// Payloads yields its payloads, and whatever else text is to be looked for in. It is called only if [Filter.NeedsPayload].
	Payloads() iter.Seq[[]byte]
}
