package probe

import (
	"cmp"
	"slices"
	"strings"

	"mcpwire/check"
	"mcpwire/mcp"
)

// The revisions, the oldest first.
const (
	r1 = mcp.Revision20241105
	r2 = mcp.Revision20250326
	r3 = mcp.Revision20250618
	r4 = mcp.Revision20251125
	r5 = mcp.Revision20260728
)

// Lists of revisions for rules. They must not be changed.
var (
	legacy   = []mcp.Revision{r1, r2, r3, r4}
	modern   = []mcp.Revision{r5}
	only2    = []mcp.Revision{r2}
	from3    = []mcp.Revision{r3, r4, r5}
	from4    = []mcp.Revision{r4, r5}
	with2to4 = []mcp.Revision{r2, r3, r4} // with sessions over Streamable HTTP
	both34   = []mcp.Revision{r3, r4}
)

// tables returns the rules, role by role.
func tables() [][]check.Rule {
	return [][]check.Rule{
		rulesLife, rulesAnswers, rulesIDs, rulesVersions, rulesModern, rulesStdio, rulesShutdown, rulesHTTP, rulesBatch, rulesSession, rulesOrigin,
	}
}

const prefix = "probe/"

// Rules returns the rules of this package, sorted by their ids. They belong to the caller.
func Rules() []*check.Rule {
	var all []*check.Rule
	for _, table := range tables() {
		for i := range table {
			all = append(all, describe(&table[i]))
		}
	}
	slices.SortFunc(all, func(a, b *check.Rule) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Lookup returns the rule of this package with an id. It belongs to the caller.
func Lookup(id string) (*check.Rule, bool) {
	for _, table := range tables() {
		for i := range table {
			if table[i].ID == id {
				return describe(&table[i]), true
			}
		}
	}
	return nil, false
}

// describe returns a copy of a rule with the whole URL.
func describe(r *check.Rule) *check.Rule {
	d := *r
	d.Revisions = slices.Clone(r.Revisions)
	if !strings.HasPrefix(d.URL, "https:") {
		newest := mcp.LatestRevision
		if n := len(d.Revisions); n > 0 {
			newest = d.Revisions[n-1]
		}
		d.URL = "https://modelcontextprotocol.io/specification/" + newest.String() + "/" + d.URL
	}
	return &d
}

// Chosen reports whether a rule is one of those to check: only, if it is not empty, names those that are, and disabled those that are not. "GROUP/*" is
// all rules of a group.
func Chosen(id string, only, disabled []string) bool {
	meant := func(pattern string) bool { return matches(pattern, id) }
	return (len(only) == 0 || slices.ContainsFunc(only, meant)) && !slices.ContainsFunc(disabled, meant)
}

// matches reports whether "GROUP/*", or an id, means the rule.
func matches(pattern, id string) bool {
	if group, ok := strings.CutSuffix(pattern, "*"); ok && strings.HasSuffix(group, "/") {
		return strings.HasPrefix(id, group)
	}
	return pattern == id
}
