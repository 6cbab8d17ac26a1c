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
	rev20241105 = mcp.Revision20241105
	rev20250326 = mcp.Revision20250326
	rev20250618 = mcp.Revision20250618
	rev20251125 = mcp.Revision20251125
	rev20260728 = mcp.Revision20260728
)

// Lists of revisions for rules. They must not be changed.
var (
	legacy           = []mcp.Revision{rev20241105, rev20250326, rev20250618, rev20251125}
	modern           = []mcp.Revision{rev20260728}
	hasBatches       = []mcp.Revision{rev20250326}
	lacksBatches     = []mcp.Revision{rev20250618, rev20251125, rev20260728}
	hasOriginStatus  = []mcp.Revision{rev20251125, rev20260728}
	hasSessions      = []mcp.Revision{rev20250326, rev20250618, rev20251125} // with sessions over Streamable HTTP
	hasVersionHeader = []mcp.Revision{rev20250618, rev20251125}
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

// Enabled reports whether a rule is one of those to check: only, if it is not empty, names those that are, and disabled those that are not. "GROUP/*" is
// all rules of a group.
func Enabled(id string, only, disabled []string) bool {
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
