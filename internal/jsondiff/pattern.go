package jsondiff

import (
	"strconv"
	"strings"

	"mcpwire/internal/jsonwire"
)

// patterns are what is not compared below a place. They do not change.
type patterns struct {
	list  [][]string // what is left of each, segment by segment
	whole bool       // the place itself is not compared
}

func parsePatterns(pointers []string) (p patterns) {
	for _, s := range pointers {
		if s == "" {
			p.whole = true
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

// below returns the patterns for a member, whose name stands between quotes.
func (p patterns) below(raw []byte, escaped bool) patterns {
	if escaped {
		return p.step(jsonwire.UnquoteString(raw))
	}
	return p.step(string(raw))
}

// element returns the patterns for an element.
func (p patterns) element(index int) patterns { return p.step(strconv.Itoa(index)) }

func (p patterns) step(name string) (below patterns) {
	for _, segments := range p.list {
		switch {
		case !glob(segments[0], name):
		case len(segments) == 1:
			below.whole = true
		default:
			below.list = append(below.list, segments[1:])
		}
	}
	return below
}

// glob reports whether a name fits a pattern in which each "*" stands for any text.
func glob(pattern, name string) bool {
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
