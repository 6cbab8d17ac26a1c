package check

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"mcpwire/internal/era"
	"mcpwire/internal/spelling"
	"mcpwire/mcp"
)

// A Rule is something that messages on the wire have to keep to, described for people.
type Rule struct {
	ID        string         // stable, such as "jsonrpc/id-null": what the rule is about, a slash, what is wrong
	Severity  Severity       // of its findings
	Revisions []mcp.Revision // in which it holds, in ascending order; nil is all of them
	Title     string         // one line: what is wrong
	Why       string         // why it matters
	Fix       string         // how to mend it
	URL       string         // of the specification that says so, in the newest revision that has the rule; see In
	Good, Bad Example        // sessions that keep to it and that do not
}

// Rules returns all rules, sorted by their ids. They belong to the caller.
func Rules() []*Rule {
	var all []*Rule
	for _, table := range ruleTables() {
		for i := range table {
			all = append(all, table[i].describe())
		}
	}
	slices.SortFunc(all, func(a, b *Rule) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Lookup returns the rule with an id. It belongs to the caller.
func Lookup(id string) (*Rule, bool) {
	for _, table := range ruleTables() {
		for i := range table {
			if table[i].ID == id {
				return table[i].describe(), true
			}
		}
	}
	return nil, false
}

// Nearest returns up to three ids of rules that someone who wrote id may have meant, the likeliest first.
func Nearest(id string) []string {
	type candidate struct {
		id       string
		distance int
	}
	var candidates []candidate
	id = strings.ToLower(clipBytes(id, 100))
	_, name, _ := strings.Cut(id, "/")
	for _, table := range ruleTables() {
		for i := range table {
			_, ruleName, _ := strings.Cut(table[i].ID, "/")
			d := min(spelling.Distance(id, table[i].ID), spelling.Distance(id, ruleName))
			switch {
			case ruleName == id || ruleName == name:
				d = 0
			case len(id) >= 3 && strings.Contains(table[i].ID, id):
				d = min(d, 2)
			}
			if d <= max(2, len(id)/3) {
				candidates = append(candidates, candidate{table[i].ID, d})
			}
		}
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.id, b.id))
	})
	var ids []string
	for _, c := range candidates[:min(len(candidates), 3)] {
		ids = append(ids, c.id)
	}
	return ids
}

const specificationURL = "https://modelcontextprotocol.io/specification/"

// describe returns a copy of the description of r, with the whole URL.
func (r *rule) describe() *Rule {
	d := r.Rule
	d.Revisions = slices.Clone(d.Revisions)
	d.Title, d.Why, d.Fix = expandDates(d.Title), expandDates(d.Why), expandDates(d.Fix)
	if !strings.HasPrefix(d.URL, "https:") {
		newest := mcp.LatestRevision
		if n := len(d.Revisions); n > 0 {
			newest = d.Revisions[n-1]
		}
		d.URL = specificationURL + newest.String() + "/" + d.URL
	}
	return &d
}

// In returns the rule as a finding in a revision refers to it: with the page of that revision that
// says so. The rule itself is not changed.
func (r *Rule) In(rev mcp.Revision) *Rule {
	path, ok := strings.CutPrefix(r.URL, specificationURL)
	if !ok || rev == mcp.RevisionNone || len(r.Revisions) > 0 && !slices.Contains(r.Revisions, rev) {
		return r
	}
	_, path, _ = strings.Cut(path, "/")
	c := *r
	c.URL = specificationURL + rev.String() + "/" + pageIn(path, rev)
	return &c
}

// movedPages are the pages of the modern era that were elsewhere in the legacy one.
var movedPages = map[string]string{
	"basic/versioning":                                         "basic/lifecycle#version-negotiation",
	"basic/patterns/cancellation":                              "basic/utilities/cancellation",
	"basic/transports/stdio":                                   "basic/transports#stdio",
	"basic/transports/stdio#shutdown":                          "basic/lifecycle#stdio",
	"basic/transports/streamable-http#security-warning":        "basic/transports#security-warning",
	"basic/transports/streamable-http#sending-messages":        "basic/transports#sending-messages-to-the-server",
	"basic/transports/streamable-http#protocol-version-header": "basic/transports#protocol-version-header",
}

// pageIn is where the page of a newer revision is in an older one.
func pageIn(path string, rev mcp.Revision) string {
	if era.Of(rev).Modern {
		return path
	}
	if to, ok := movedPages[path]; ok {
		path = to
	} else if strings.HasPrefix(path, "basic/transports/streamable-http") {
		path = "basic/transports#streamable-http"
	}
	if rev != mcp.Revision20241105 {
		return path
	}
	switch page, place, _ := strings.Cut(path, "#"); {
	case page == "basic" && (place == "requests" || place == "responses" || place == "notifications"):
		return "basic/messages#" + place
	case page == "basic/transports" && place != "" && place != "stdio":
		return "basic/transports#http-with-sse"
	}
	return path
}

// expandDates writes out the dates of revisions, which tables have as $r1 to $r5, the oldest first.
func expandDates(s string) string {
	if !strings.Contains(s, "$r") {
		return s
	}
	for i, r := range mcp.Revisions() {
		s = strings.ReplaceAll(s, "$r"+strconv.Itoa(i+1), r.String())
	}
	return s
}
