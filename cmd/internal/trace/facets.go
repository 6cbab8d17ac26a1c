package trace

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Facets count the rows of a timeline by some of their properties. A row of the timeline counts
// once for each value that occurs in it or in the rows inside it, as in filters.
type Facets struct {
	// Servers are ordered by their first events. A row behind a gateway counts for its server and
	// for the gateway. The others have a fixed order.
	Servers  []Facet `json:"server"`
	Kinds    []Facet `json:"kind"`
	Statuses []Facet `json:"status"`
	Findings []Facet `json:"finding"`
}

// A Facet is a value of a property.
type Facet struct {
	Value string `json:"v"`
	// Index is that of a server: see [Session.ServerIndex].
	Index int `json:"i,omitempty"`
	// Count is the number of rows.
	Count int `json:"n"`
}

// The orders of values. The severities are those of [Finding.Severity].
var (
	kindOrder     = []Kind{Request, Notification, Progress, Log, Stderr, Stdout, Invalid, Response, HTTP, SSE, Body, Translate, Start, Exit, EOF, Gap, Note}
	statusOrder   = []Status{OK, Pending, InputRequired, TaskCreated, ToolFailed, Failed, HTTPFailed, Unanswered, Canceled}
	severityOrder = []string{"error", "warning", "info"}
)

// facetCounts are the counts of facets.
type facetCounts struct {
	servers                     map[string]Facet
	kinds, statuses, severities []int
}

func newFacetCounts() facetCounts {
	return facetCounts{map[string]Facet{}, make([]int, len(kindOrder)), make([]int, len(statusOrder)), make([]int, len(severityOrder))}
}

// add counts a row of the timeline.
func (c *facetCounts) add(r *Row) {
	c.addServer(r.Capture.Name, r.Capture.ServerIndex)
	if name := r.Session.serverName; name != "" && name != r.Capture.Name {
		c.addServer(name, r.Session.serverIndex)
	}
	var values facetBits
	for x := range r.All() {
		values.add(x)
	}
	values.count(values.kinds, c.kinds)
	values.count(values.statuses, c.statuses)
	values.count(values.severities, c.severities)
}

func (c *facetCounts) addServer(name string, index int) {
	if n := c.servers[name].Count; n > 0 || len(c.servers) < maxCaptures {
		c.servers[name] = Facet{name, index, n + 1}
	}
}

// Facets counts the rows that the timeline has had, including evicted ones.
func (m *Model) Facets() Facets {
	p := m.timeline.past
	counts := facetCounts{maps.Clone(p.servers), slices.Clone(p.kinds), slices.Clone(p.statuses), slices.Clone(p.severities)}
	for _, r := range m.Rows() {
		counts.add(r)
	}
	out := Facets{Servers: []Facet{}}
	for _, f := range counts.servers {
		if f.Value != "" {
			out.Servers = append(out.Servers, f)
		}
	}
	slices.SortFunc(out.Servers, func(a, b Facet) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), strings.Compare(a.Value, b.Value))
	})
	out.Kinds, out.Statuses, out.Findings = facetsOf(kindOrder, counts.kinds), facetsOf(statusOrder, counts.statuses), facetsOf(severityOrder, counts.severities)
	return out
}

// facetBits are sets of indexes in the orders of values.
type facetBits struct{ kinds, statuses, severities uint32 }

func (b *facetBits) add(r *Row) {
	b.kinds |= bitOf(kindOrder, r.Kind)
	b.statuses |= bitOf(statusOrder, r.Status)
	for i := range r.Findings {
		b.severities |= bitOf(severityOrder, r.Findings[i].Severity)
	}
}

func bitOf[T comparable](order []T, v T) uint32 {
	if i := slices.Index(order, v); i >= 0 {
		return 1 << i
	}
	return 0
}

// count adds a set to counts.
func (*facetBits) count(set uint32, counts []int) {
	for i := range counts {
		counts[i] += int(set >> i & 1)
	}
}

// facetsOf returns the values that occur.
func facetsOf[T ~string](order []T, counts []int) []Facet {
	list := []Facet{}
	for i, n := range counts {
		if n > 0 {
			list = append(list, Facet{Value: string(order[i]), Count: n})
		}
	}
	return list
}
