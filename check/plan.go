package check

import (
	"slices"
	"strings"

	"mcpwire/capture"
	"mcpwire/mcp"
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
