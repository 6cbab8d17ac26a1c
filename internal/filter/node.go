package filter

import (
	"strings"
	"time"
)

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
