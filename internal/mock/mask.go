package mock

import (
	"slices"
	"strconv"
	"strings"
)

// A mask says which parts of the params of a request were hidden when it was recorded: there, anything matches. nil hides nothing.
type mask struct {
	all    bool
	inside map[string]*mask
}

// maxMask is how many parts of one request may be hidden.
const maxMask = 256

// maskOf makes a mask of the pointers that a recorded event has of what was hidden in it; prefix is where the params are. spelt is the same for equal masks.
func maskOf(pointers []string, prefix string) (m *mask, spelt string) {
	var inside []string
	for _, p := range pointers {
		if rest, ok := strings.CutPrefix(p, prefix); ok && (rest == "" || rest[0] == '/') && len(inside) < maxMask {
			inside = append(inside, rest)
		}
	}
	if len(inside) == 0 {
		return nil, ""
	}
	slices.Sort(inside)
	m = new(mask)
	for _, p := range inside {
		at := m
		for token := range strings.SplitSeq(strings.TrimPrefix(p, "/"), "/") {
			if p == "" {
				break
			}
			name := strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
			if at.inside == nil {
				at.inside = map[string]*mask{}
			}
			if at.inside[name] == nil {
				at.inside[name] = new(mask)
			}
			at = at.inside[name]
		}
		at.all = true
	}
	return m, strings.Join(inside, " ")
}

func (m *mask) member(name string) *mask {
	if m == nil {
		return nil
	}
	return m.inside[name]
}

func (m *mask) at(i int) *mask {
	if m == nil {
		return nil
	}
	return m.inside[strconv.Itoa(i)]
}
