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
	and   []node
	or    []node
	not   struct{ x node }
	field struct {
		field Field
		value pattern
	}
	compare struct { // dur and size
		name  string // "dur" or "size"
		op    string
		value int64
		spelt string
	}
	numbers struct {
		from, to uint64
		spelt    string
	}
	payload struct {
		bit   int
		spelt string
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

func (n or) eval(s Subject, h Hits) bool {
	for _, x := range n {
		if x.eval(s, h) {
			return true
		}
	}
	return false
}

func (n not) eval(s Subject, h Hits) bool { return !n.x.eval(s, h) }

func (n field) eval(s Subject, _ Hits) bool { return s.Any(n.field, n.value.match) }

func (n compare) eval(s Subject, _ Hits) bool {
	var v int64
	if n.name == "size" {
		v = s.Bytes()
	} else {
		took, known := s.Took()
		if !known {
			return false
		}
		v = int64(took / time.Nanosecond)
	}
	switch n.op {
	case ">":
		return v > n.value
	case ">=":
		return v >= n.value
	case "<":
		return v < n.value
	case "<=":
		return v <= n.value
	}
	return v == n.value
}

func (n numbers) eval(s Subject, _ Hits) bool { return s.Covers(n.from, n.to) }
func (n payload) eval(_ Subject, h Hits) bool { return h&(1<<n.bit) != 0 }

func (n and) text(inner bool) string { return join(n, " ", inner && len(n) != 1) }
func (n or) text(bool) string        { return join(n, " | ", true) }

func join(list []node, sep string, grouped bool) string {
	var parts []string
	for _, x := range list {
		parts = append(parts, x.text(true))
	}
	if s := strings.Join(parts, sep); !grouped {
		return s
	}
	return "(" + strings.Join(parts, sep) + ")"
}

func (n not) text(bool) string     { return "-" + n.x.text(true) }
func (n field) text(bool) string   { return string(n.field) + ":" + n.value.String() }
func (n compare) text(bool) string { return n.name + n.op + n.spelt }
func (n numbers) text(bool) string { return "n:" + n.spelt }
func (n payload) text(bool) string { return n.spelt }
