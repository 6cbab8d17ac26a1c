package check

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/mcp"
)

// A Rule describes a requirement on messages, for people.
type Rule struct {
	// ID is stable, such as "jsonrpc/id-null": the subject, a slash, the problem.
	ID string
	// Severity is the severity of the rule's findings.
	Severity Severity
	// Revisions lists the revisions with this rule, in ascending order. Nil means all.
	Revisions []mcp.Revision
	// Title says in one line what is wrong.
	Title string
	// Why says why it matters.
	Why string
	// Fix says how to fix it.
	Fix string
	// URL is the page of the specification, in the newest revision with the rule. The rule of a
	// [Finding] has that of the revision of its session.
	URL string
	// Good is a session that obeys the rule, Bad one that breaks it.
	Good, Bad Example
}

// Rules returns all rules, sorted by id. They belong to the caller.
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
	all := Rules()
	i, ok := slices.BinarySearchFunc(all, id, func(r *Rule, id string) int { return cmp.Compare(r.ID, id) })
	if !ok {
		return nil, false
	}
	return all[i], true
}

// describe returns the rule's description, with the complete URL and dates.
func (r *rule) describe() *Rule {
	return &Rule{
		ID: r.ID, Severity: r.Severity, Revisions: slices.Clone(r.Revisions),
		Title: expandDates(r.Title), Why: expandDates(r.Why), Fix: expandDates(r.Fix), URL: era.PageURL(r.URL, r.Revisions),
		Good: r.Good, Bad: r.Bad,
	}
}

// in returns a copy of the rule with the URL of the page in revision rev, or r itself if that is
// the same.
func (r *Rule) in(rev mcp.Revision) *Rule {
	url := era.PageIn(r.URL, r.Revisions, rev)
	if url == r.URL {
		return r
	}
	c := *r
	c.URL = url
	return &c
}

// expandDates replaces $r1 to $r5 by the dates of the revisions, oldest first.
func expandDates(s string) string {
	if !strings.Contains(s, "$r") {
		return s
	}
	for i, r := range mcp.Revisions() {
		s = strings.ReplaceAll(s, "$r"+strconv.Itoa(i+1), r.String())
	}
	return s
}

// A Severity ranks findings. Greater is worse.
type Severity int

// The severities, in ascending order.
const (
	// Info is worth knowing; nothing is broken.
	Info Severity = iota
	// Warning means that a SHOULD of the specification is broken, or that many peers fail on it.
	Warning
	// Error means that a MUST of the specification is broken.
	Error
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

// UnmarshalText implements [encoding.TextUnmarshaler]. It accepts the results of String.
func (s *Severity) UnmarshalText(text []byte) error {
	for i, name := range severityNames {
		if string(text) == name {
			*s = Severity(i)
			return nil
		}
	}
	return fmt.Errorf("unknown severity %.20q (known: info, warning, error)", text)
}

// The revisions, oldest first.
const (
	rev20241105 = mcp.Revision20241105
	rev20250326 = mcp.Revision20250326
	rev20250618 = mcp.Revision20250618
	rev20251125 = mcp.Revision20251125
	rev20260728 = mcp.Revision20260728
)

// Lists of revisions for rules. They must not be modified.
var (
	legacyRevisions            = []mcp.Revision{rev20241105, rev20250326, rev20250618, rev20251125}
	modernRevisions            = []mcp.Revision{rev20260728}
	hasBatches                 = []mcp.Revision{rev20250326}
	hasCoreTasks               = []mcp.Revision{rev20251125}
	hasStreamableHTTP          = []mcp.Revision{rev20250326, rev20250618, rev20251125, rev20260728}
	hasStructuredOutput        = []mcp.Revision{rev20250618, rev20251125, rev20260728}
	hasURLElicitation          = []mcp.Revision{rev20251125, rev20260728}
	hasSessions                = []mcp.Revision{rev20250326, rev20250618, rev20251125}
	hasNegotiatedVersionHeader = []mcp.Revision{rev20250618, rev20251125}
)

// A rule is a description with the functions that find violations. Zero fields do not restrict, but
// a rule without kinds sees no messages and one without events sees no events.
//
// To add a rule, add an entry to the table of its group in rules_<group>.go. ruleTables lists the
// tables.
//
//   - kinds, methods and dir select the messages that check sees. For a response, methods compares
//     with the method of its request. Revisions restricts too; nil also covers traffic of an
//     unknown revision.
//   - events selects the events without a valid message that check sees. There v.msg is nil.
//   - end runs once for each session, after the last event.
//
// Functions see the context as it was before the message; see view. They store state with
// stateOf(&v.session.state) and the like, and must bound it. A function that only stores state is
// an observer. Observers run after the rules, even if rules are disabled.
//
// TestExamples runs the examples: Good must lead to no finding, and Bad only to findings of the
// rule and of its consequences.
type rule struct {
	// The description. See Rule.
	ID                   string
	Severity             Severity
	Revisions            []mcp.Revision
	Title, Why, Fix, URL string
	Good, Bad            Example

	kinds   kind
	methods []string
	dir     capture.Dir
	events  []capture.Kind
	check   func(*view)
	end     func(*view)
	// consequences lists the ids of other rules that the bad example also breaks.
	consequences []string

	// findings counts the findings of the Checker that this copy belongs to.
	findings int
	// public is the Rule of findings, and publicIn its variants by revision.
	public   *Rule
	publicIn map[mcp.Revision]*Rule
}

// An observer records facts about messages or events for rules.
type observer struct {
	kinds   kind
	methods []string
	dir     capture.Dir
	events  []capture.Kind
	observe func(*view)
}

// ruleTables returns all rules. They must not be modified. They are made when they are needed: most
// processes that have this package check nothing.
var ruleTables = sync.OnceValue(func() [][]rule {
	return [][]rule{
		rulesJSONRPC(), rulesPairing(), rulesErrors(), rulesShape(), rulesStdio(), rulesLifecycle(), rulesModern(), rulesCapability(), rulesMeta(),
		rulesTools(), rulesToolList(), rulesContent(), rulesUtilities(), rulesPages(), rulesClient(),
		rulesHTTPRequest(), rulesHTTPHeader(), rulesHTTPResponse(), rulesHTTPSession(), rulesHTTPStream(),
		rulesInput(), rulesSubscription(), rulesCache(), rulesTasks(),
	}
})

func observers() []observer {
	return slices.Concat(observeLevel, observeCursors, observeElicited, observeContent, observeVersions, observeDiscovery, observersHTTP, observersInput, observersSubscription, observersCache, observersTasks, observePairing)
}

// A ruleSet indexes the enabled rules by what they look at.
type ruleSet struct {
	messages  []*rule
	events    map[capture.Kind][]*rule
	ends      []*rule
	observers []observer
	byMethod  map[messageKey][]*rule
}

// A messageKey selects the rules for a message.
type messageKey struct {
	kind   kind
	method string
	dir    capture.Dir
	rev    mcp.Revision
}

// newRuleSet returns the rules that the options enable.
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

// Enabled returns the rules that the options enable, sorted by id. They belong to the caller. o may
// be nil.
func (o *Options) Enabled() []*Rule {
	all := Rules()
	if o == nil {
		return all
	}
	return slices.DeleteFunc(all, func(r *Rule) bool { return !o.enabled(r.ID) })
}

// enabled reports whether a rule is to be checked.
func (o *Options) enabled(id string) bool {
	named := func(pattern string) bool {
		group, all := strings.CutSuffix(pattern, "*")
		return pattern == id || all && strings.HasSuffix(group, "/") && strings.HasPrefix(id, group)
	}
	return (len(o.Only) == 0 || slices.ContainsFunc(o.Only, named)) && !slices.ContainsFunc(o.Disabled, named)
}

// maxMessageKeys bounds byMethod, because peers can invent methods.
const maxMessageKeys = 512

// rulesFor returns the rules for a message in a revision.
func (rs *ruleSet) rulesFor(kind kind, method string, dir capture.Dir, rev mcp.Revision) []*rule {
	d := messageKey{kind, method, dir, rev}
	if list, ok := rs.byMethod[d]; ok {
		return list
	}
	var list []*rule
	for _, r := range rs.messages {
		if r.kinds&kind != 0 && (r.dir == "" || r.dir == dir) && (len(r.methods) == 0 || slices.Contains(r.methods, method)) && r.appliesTo(rev) {
			list = append(list, r)
		}
	}
	if len(rs.byMethod) < maxMessageKeys {
		rs.byMethod[d] = list
	}
	return list
}

// inRevision returns the public rule as findings in revision rev refer to it.
func (r *rule) inRevision(rev mcp.Revision) *Rule {
	public := r.publicIn[rev]
	if public == nil {
		public = r.public.in(rev)
		r.publicIn[rev] = public
	}
	return public
}

// appliesTo reports whether the rule exists in a revision.
func (r *rule) appliesTo(rev mcp.Revision) bool {
	return len(r.Revisions) == 0 || slices.Contains(r.Revisions, rev)
}
