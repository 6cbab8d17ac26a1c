package filter

import (
	"bytes"
	"context"
	"iter"
	"regexp"
	"strings"
	"time"
	"unicode"

	"mcpwire/internal/rpc/traffic"
)

// A Filter selects exchanges. A nil Filter matches all.
type Filter struct {
	source string
	root   node
	// scans are the payload terms, indexed by their bits in Hits.
	scans []scan
}

// Hits is the set of payload terms that matched the payloads seen so far. Combine the hits of
// several payloads with "|".
type Hits uint64

const maxScans = 64 // bits in Hits

// A scan is a term that is matched with a payload.
type scan interface {
	match(ctx context.Context, p *payload) bool
}

// NeedsPayload reports whether the filter has payload terms.
func (f *Filter) NeedsPayload() bool { return f != nil && len(f.scans) > 0 }

// Scan returns the payload terms that match a payload. It does not keep the payload. ctx limits
// the run time of jq programs, in addition to the limit for each.
func (f *Filter) Scan(ctx context.Context, text []byte) Hits { return f.ScanFrame(ctx, text, nil) }

// ScanFrame is like Scan for a payload that may have been parsed. frame may be nil.
func (f *Filter) ScanFrame(ctx context.Context, text []byte, frame *traffic.Frame) Hits {
	var h Hits
	if f == nil || len(text) == 0 {
		return 0
	}
	p := payload{text: text}
	if frame != nil && frame.Err == nil {
		p.checked, p.json = true, bytes.TrimSpace(text)
	}
	for i, s := range f.scans {
		if s.match(ctx, &p) {
			h |= 1 << i
		}
	}
	return h
}

// MatchScanned reports whether the filter matches a subject whose payloads had these hits.
func (f *Filter) MatchScanned(s Subject, h Hits) bool {
	return f == nil || f.root.eval(s, h)
}

// Match reports whether the filter matches a subject. It reads payloads only if needed.
func (f *Filter) Match(ctx context.Context, s Subject) bool {
	var h Hits
	if f.NeedsPayload() {
		all := Hits(1)<<len(f.scans) - 1
		for p := range s.Payloads() {
			if h |= f.Scan(ctx, p); h == all || ctx.Err() != nil {
				break
			}
		}
	}
	return f.MatchScanned(s, h)
}

// String returns the text of the filter, without white space around it.
func (f *Filter) String() string {
	if f == nil {
		return ""
	}
	return f.source
}

// A Field is a named property that a term can match.
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
	Finding  Field = "finding"
)

// Fields returns the fields, in the order in which messages list them.
func Fields() []Field {
	return []Field{Tool, Target, Method, ID, Task, Dir, Kind, Status, Server, Session, Side, Era, Revision, Finding}
}

// A Subject is an exchange that a filter can match.
type Subject interface {
	// MatchField reports whether match is true for one of the values of the field.
	MatchField(f Field, match func(value string) bool) bool
	// HasEventIn reports whether the subject has an event with a number in the range.
	HasEventIn(from, to uint64) bool
	// Elapsed returns how long the exchange took, and whether that is known.
	Elapsed() (time.Duration, bool)
	// Bytes returns the size of the payloads on the wire.
	Bytes() int64
	// Payloads yields the payloads and other searchable text. It is called only if
	// [Filter.NeedsPayload].
	Payloads() iter.Seq[[]byte]
}

// A node is a part of a filter.
type node interface {
	eval(s Subject, h Hits) bool
}

type (
	and       []node
	or        []node
	not       struct{ x node }
	fieldTerm struct {
		field Field
		value pattern
	}
	comparison struct { // dur and size
		// name is "dur" or "size".
		name  string
		op    string
		value int64
	}
	eventRange  struct{ from, to uint64 }
	payloadTerm struct{ bit int }
)

func (n and) eval(s Subject, h Hits) bool {
	for _, x := range n {
		if !x.eval(s, h) {
			return false
		}
	}
	return true
}

func (o or) eval(s Subject, h Hits) bool {
	for _, x := range o {
		if x.eval(s, h) {
			return true
		}
	}
	return false
}

func (n not) eval(s Subject, h Hits) bool { return !n.x.eval(s, h) }

func (f fieldTerm) eval(s Subject, _ Hits) bool { return s.MatchField(f.field, f.value.match) }

func (c comparison) eval(s Subject, _ Hits) bool {
	var v int64
	if c.name == "size" {
		v = s.Bytes()
	} else {
		took, known := s.Elapsed()
		if !known {
			return false
		}
		v = int64(took / time.Nanosecond)
	}
	switch c.op {
	case ">":
		return v > c.value
	case ">=":
		return v >= c.value
	case "<":
		return v < c.value
	case "<=":
		return v <= c.value
	}
	return v == c.value
}

func (n eventRange) eval(s Subject, _ Hits) bool  { return s.HasEventIn(n.from, n.to) }
func (p payloadTerm) eval(_ Subject, h Hits) bool { return h&(1<<p.bit) != 0 }

// A pattern matches values of a field.
type pattern struct {
	// re is nil for text.
	re *regexp.Regexp
	// str is in lower case.
	str string
	// glob means that * in str is a wildcard.
	glob bool
	// part means that str matches values that contain it.
	part bool
}

func (p pattern) match(value string) bool {
	switch {
	case p.re != nil:
		return p.re.MatchString(value)
	case p.glob:
		return matchGlob(p.str, strings.ToLower(value))
	case p.part:
		return strings.Contains(strings.ToLower(value), p.str)
	}
	return len(value) < 4*len(p.str)+4 && strings.ToLower(value) == p.str
}

// matchGlob reports whether s matches a pattern in which * stands for any text.
func matchGlob(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	first, last := parts[0], parts[len(parts)-1]
	if !strings.HasPrefix(s, first) {
		return false
	}
	s = s[len(first):]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return strings.HasSuffix(s, last)
}

// QuoteValue quotes a value of a field if it would otherwise be parsed differently.
func QuoteValue(s string) string {
	if s == "" || strings.ContainsAny(s, "\"()|*\\") || strings.HasPrefix(s, "/") || strings.ContainsFunc(s, unicode.IsSpace) {
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
	}
	return s
}
