package jsondiff

import (
	"strconv"
	"strings"

	"mcpwire/internal/jsonwire"
)

// patterns are what is not compared below a place. They do not change.
type patterns struct {
	list [][]string // what is left of each, segment by segment
	all  bool       // the place itself is not compared
}

func parsePatterns(pointers []string) (p patterns) {
	for _, s := range pointers {
		if s == "" {
			p.all = true
			continue
		}
		segments := strings.Split(strings.TrimPrefix(s, "/"), "/")
		for i, s := range segments {
			segments[i] = strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
		}
		p.list = append(p.list, segments)
	}
	return p
}

// member returns the patterns for a member, whose name stands between quotes.
func (ps patterns) member(raw []byte, escaped bool) patterns {
	if escaped {
		return ps.descend(jsonwire.UnquoteString(raw))
	}
	return ps.descend(string(raw))
}

// element returns the patterns for an element.
func (ps patterns) element(index int) patterns { return ps.descend(strconv.Itoa(index)) }

func (ps patterns) descend(name string) (below patterns) {
	for _, segments := range ps.list {
		switch {
		case !matchGlob(segments[0], name):
		case len(segments) == 1:
			below.all = true
		default:
			below.list = append(below.list, segments[1:])
		}
	}
	return below
}

// matchGlob reports whether a name fits a pattern in which each "*" stands for any text.
func matchGlob(pattern, name string) bool {
	first, rest, more := strings.Cut(pattern, "*")
	if !more {
		return pattern == name
	}
	if !strings.HasPrefix(name, first) {
		return false
	}
	name = name[len(first):]
	for {
		part, after, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(name, part)
		}
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name, rest = name[i+len(part):], after
	}
}
