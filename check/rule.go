package check

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/internal/text/spelling"
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

// A Severity says how bad a finding is. Greater is worse.
type Severity int

// The severities.
const (
	Info    Severity = iota // worth knowing, nothing is broken
	Warning                 // what the specification says SHOULD be otherwise, or what many peers stumble over
	Error                   // what the specification says MUST be otherwise
)

var severityNames = [...]string{"info", "warning", "error"}

// String returns "info", "warning" or "error".
func (s Severity) String() string {
	if s < Info || s > Error {
		return fmt.Sprintf("Severity(%d)", int(s))
	}
	return severityNames[s]
}

// MarshalText implements [encoding.TextMarshaler].
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. It takes what String returns.
func (s *Severity) UnmarshalText(text []byte) error {
	for i, name := range severityNames {
		if string(text) == name {
			*s = Severity(i)
			return nil
		}
	}
	return fmt.Errorf("unknown severity %.20q (known: info, warning, error)", text)
}

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
	legacyRevisions            = []mcp.Revision{rev20241105, rev20250326, rev20250618, rev20251125}
	modernRevisions            = []mcp.Revision{rev20260728}
	hasBatches                 = []mcp.Revision{rev20250326}
	hasCoreTasks               = []mcp.Revision{rev20251125}
	hasStreamableHTTP          = []mcp.Revision{rev20250326, rev20250618, rev20251125, rev20260728}
	hasStructuredOutput        = []mcp.Revision{rev20250618, rev20251125, rev20260728}
	hasURLElicitation          = []mcp.Revision{rev20251125, rev20260728}
	hasSessions                = []mcp.Revision{rev20250326, rev20250618, rev20251125} // with sessions over Streamable HTTP
	hasNegotiatedVersionHeader = []mcp.Revision{rev20250618, rev20251125}
)

// A rule is the description of a rule with the functions that find where it is broken. What is not set does not restrict, but a function is called for messages or for
// events only where kinds or events say so.
//
// To add one, write it into the table of its role: rules_<role>.go, which tables lists.
//
//   - kinds and methods say which messages check looks at: methods is that of the request or notification or, for responses, of the request that is answered. dir is the
//     way the message goes. Revisions of the description is checked before: with nil, the rule holds also where the revision is not known.
//   - events says which events without a message (or with bytes that are none) it looks at: v.msg is nil there.
//   - end is called once for each session when everything was seen.
//
// Functions see the context as it was before the message, see view. What they want to remember goes to recall(&v.sess.state) and its like, and must be bounded. A function
// that only remembers is an observer: it is called whether or not rules are disabled, behind the rules.
//
// Every rule has a good and a bad example, which TestExamples runs: the bad one must lead to the rule, and to nothing else but what the rule lists in consequences.
type rule struct {
	Rule
	kinds   kind
	methods []string
	dir     capture.Dir
	events  []capture.Kind
	check   func(*view)
	end     func(*view)
	// consequences are ids of other rules that the bad example breaks, too.
	consequences []string

	public   *Rule // what findings refer to
	publicIn map[mcp.Revision]*Rule
}

// An observer remembers something of messages or events for rules.
type observer struct {
	kinds   kind
	methods []string
	dir     capture.Dir
	events  []capture.Kind
	observe func(*view)
}

// ruleTables returns all rules. They must not be changed.
func ruleTables() [][]rule {
	return [][]rule{
		rulesJSONRPC, rulesPairing, rulesErrors, rulesShape, rulesStdio, rulesLifecycle, rulesModern, rulesCapability, rulesMeta,
		rulesTools, rulesToolList, rulesContent, rulesUtilities, rulesPages, rulesClient,
		rulesHTTPRequest, rulesHTTPHeader, rulesHTTPResponse, rulesHTTPSession, rulesHTTPStream,
		rulesInput, rulesSubscription, rulesCache, rulesTasks,
	}
}

// observers returns all observers.
func observers() []observer {
	return slices.Concat(observeLevel, observeCursors, observeElicited, observeContent, observeVersions, observeDiscovery, observersHTTP, observersInput, observersSubscription, observersCache, observersTasks, observePairing)
}

// A plan is which rules look at what.
type ruleSet struct {
	messages  []*rule // that look at messages
	events    map[capture.Kind][]*rule
	ends      []*rule
	observers []observer
	byMethod  map[messageKey][]*rule
}

// A dispatch is what the rules for a message are chosen by.
type messageKey struct {
	kind   kind
	method string
	dir    capture.Dir
}

// newRuleSet takes the rules that the options leave.
func newRuleSet(opts *Options) *ruleSet {
	rs := &ruleSet{events: map[capture.Kind][]*rule{}, observers: observers(), byMethod: map[messageKey][]*rule{}}
	for _, table := range ruleTables() {
		for i := range table {
			if !opts.enabled(table[i].ID) {
				continue
			}
			r := new(table[i])
			r.public, r.publicIn = r.describe(), map[mcp.Revision]*Rule{}
			if r.kinds != 0 {
				rs.messages = append(rs.messages, r)
			}
			for _, kind := range r.events {
				rs.events[kind] = append(rs.events[kind], r)
			}
			if r.end != nil {
				rs.ends = append(rs.ends, r)
			}
		}
	}
	return rs
}

// enabled reports whether a rule is to be checked.
func (o *Options) enabled(id string) bool {
	named := func(pattern string) bool {
		group, all := strings.CutSuffix(pattern, "*")
		return pattern == id || all && strings.HasSuffix(group, "/") && strings.HasPrefix(id, group)
	}
	return (len(o.Only) == 0 || slices.ContainsFunc(o.Only, named)) && !slices.ContainsFunc(o.Disabled, named)
}

const maxMessageKeys = 512 // methods that peers make up must not fill the memory

// rulesFor returns the rules for a message.
func (rs *ruleSet) rulesFor(kind kind, method string, dir capture.Dir) []*rule {
	d := messageKey{kind, method, dir}
	if list, ok := rs.byMethod[d]; ok {
		return list
	}
	var list []*rule
	for _, r := range rs.messages {
		if r.kinds&kind != 0 && (r.dir == "" || r.dir == dir) && (len(r.methods) == 0 || slices.Contains(r.methods, method)) {
			list = append(list, r)
		}
	}
	if len(rs.byMethod) < maxMessageKeys {
		rs.byMethod[d] = list
	}
	return list
}

// inRevision is the public rule as a finding in a revision refers to it.
func (r *rule) inRevision(rev mcp.Revision) *Rule {
	public := r.publicIn[rev]
	if public == nil {
		public = r.public.In(rev)
		r.publicIn[rev] = public
	}
	return public
}

// appliesTo reports whether the rule belongs to a revision.
func (r *rule) appliesTo(rev mcp.Revision) bool {
	return len(r.Revisions) == 0 || slices.Contains(r.Revisions, rev)
}
