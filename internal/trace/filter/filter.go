package filter

import (
	"context"
	"iter"
	"regexp"
	"strings"
	"time"
)

// A Filter says which exchanges to show. nil shows all.
type Filter struct {
	root  node
	scans []scan // of the terms about payloads, by their bit in Hits
}

// Hits tell which terms about payloads hold for the payloads of a subject seen so far. Those of several payloads are combined by "|".
type Hits uint64

const maxScans = 64 // bits in Hits

// A scan looks at a payload.
type scan interface {
	match(ctx context.Context, payload []byte) bool
}

// NeedsPayload reports whether there are terms about payloads.
func (f *Filter) NeedsPayload() bool { return f != nil && len(f.scans) > 0 }

// Scan returns which terms about payloads hold for a payload, which is not kept. ctx bounds how long jq programs run, besides a limit for each.
func (f *Filter) Scan(ctx context.Context, payload []byte) Hits {
	var h Hits
	if f == nil || len(payload) == 0 {
		return 0
	}
	for i, s := range f.scans {
		if s.match(ctx, payload) {
			h |= 1 << i
		}
	}
	return h
}

// MatchScanned reports whether the filter holds for a subject whose payloads had these hits.
func (f *Filter) MatchScanned(s Subject, h Hits) bool {
	return f == nil || f.root.eval(s, h)
}

// Match reports whether the filter holds for a subject. It asks for payloads only if it must.
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

// String returns the filter as text that Parse makes the same filter of.
func (f *Filter) String() string {
	if f == nil {
		return ""
	}
	return f.root.text(false)
}

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
	Finding  Field = "finding"
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

// A node is a part of a filter.
type node interface {
	eval(s Subject, h Hits) bool
	// text returns it in the language. inner tells that it is part of something else, so that a list needs parentheses.
	text(inner bool) string
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
		name   string // "dur" or "size"
		op     string
		value  int64
		source string
	}
	eventRange struct {
		from, to uint64
		source   string
	}
	payloadTerm struct {
		bit    int
		source string
	}
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

func (n and) text(inner bool) string { return joinNodes(n, " ", inner && len(n) != 1) }
func (o or) text(bool) string        { return joinNodes(o, " | ", true) }

func joinNodes(list []node, sep string, grouped bool) string {
	var parts []string
	for _, x := range list {
		parts = append(parts, x.text(true))
	}
	if s := strings.Join(parts, sep); !grouped {
		return s
	}
	return "(" + strings.Join(parts, sep) + ")"
}

func (n not) text(bool) string         { return "-" + n.x.text(true) }
func (f fieldTerm) text(bool) string   { return string(f.field) + ":" + f.value.String() }
func (c comparison) text(bool) string  { return c.name + c.op + c.source }
func (n eventRange) text(bool) string  { return "n:" + n.source }
func (p payloadTerm) text(bool) string { return p.source }

// A pattern is what a value is compared with.
type pattern struct {
	re     *regexp.Regexp // nil: text
	source string         // of re
	str    string         // in lower case
	glob   bool           // * in str stands for anything
}

func (p pattern) match(value string) bool {
	switch {
	case p.re != nil:
		return p.re.MatchString(value)
	case p.glob:
		return matchGlob(p.str, strings.ToLower(value))
	}
	return len(value) < 4*len(p.str)+4 && strings.ToLower(value) == p.str
}

func (p pattern) String() string {
	switch {
	case p.re != nil:
		return p.source
	case p.glob:
		return p.str // came without quotes, so it needs none
	}
	return quoteValue(p.str)
}

// matchGlob reports whether s is what the pattern says, in which * stands for any text.
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

// quoteValue returns a value so that it is read as this text.
func quoteValue(s string) string {
	if s == "" || strings.ContainsAny(s, "\"()|*\\") || strings.HasPrefix(s, "/") || strings.ContainsFunc(s, isSpace) {
		return quote(s)
	}
	return s
}

// quoteWord returns a word so that it is looked for as this text.
func quoteWord(s string) string {
	if strings.HasPrefix(s, "-") || strings.ContainsAny(s, ":<>=*") || s == "or" {
		return quote(s)
	}
	return quoteValue(s)
}

func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
