package probe

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"mcpwire/check"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

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
	legacy           = []mcp.Revision{rev20241105, rev20250326, rev20250618, rev20251125}
	modern           = []mcp.Revision{rev20260728}
	hasBatches       = []mcp.Revision{rev20250326}
	lacksBatches     = []mcp.Revision{rev20250618, rev20251125, rev20260728}
	hasOriginStatus  = []mcp.Revision{rev20251125, rev20260728}
	hasSessions      = []mcp.Revision{rev20250326, rev20250618, rev20251125}
	hasVersionHeader = []mcp.Revision{rev20250618, rev20251125}
)

// tables returns the rules by group.
func tables() [][]check.Rule {
	return [][]check.Rule{
		rulesLife, rulesAnswers, rulesIDs, rulesVersions, rulesModern, rulesStdio, rulesShutdown, rulesHTTP, rulesBatch, rulesSession, rulesOrigin,
	}
}

const prefix = "probe/"

// Rules returns the rules of this package, sorted by id. They belong to the caller.
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

// describe returns a copy of a rule with the complete URL.
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

// Enabled reports whether a rule is to be checked. only lists the rules to check, and empty means
// all; disabled lists rules that are not checked. "GROUP/*" selects all rules of a group.
func Enabled(id string, only, disabled []string) bool {
	matchesID := func(pattern string) bool { return matches(pattern, id) }
	return (len(only) == 0 || slices.ContainsFunc(only, matchesID)) && !slices.ContainsFunc(disabled, matchesID)
}

// matches reports whether an id or "GROUP/*" selects the rule.
func matches(pattern, id string) bool {
	if group, ok := strings.CutSuffix(pattern, "*"); ok && strings.HasSuffix(group, "/") {
		return strings.HasPrefix(id, group)
	}
	return pattern == id
}

// adjustFindings adjusts findings in the same way for all probes:
//
//   - A finding in an old revision is at most a warning if the server supports a newer one of the
//     same era, because few clients see it.
//   - A finding that is caused by the server's library is an info and names the library: the author
//     of the server cannot fix it.
//   - A finding refers to the specification page of the revision it was made in.
func (r *run) adjustFindings(list []check.Finding) {
	revisions := mcp.Revisions()
	// newest maps modern or not to the index of the newest revision.
	newest := map[bool]int{}
	for _, rev := range r.negotiated {
		newest[rev.Modern()] = max(newest[rev.Modern()], slices.Index(revisions, rev))
	}
	lib, answers := r.detectSDK()
	for i := range list {
		f := &list[i]
		most := check.Error
		if f.Revision != mcp.RevisionNone && slices.Index(revisions, f.Revision) < newest[f.Revision.Modern()] {
			most = check.Warning
		}
		if sdk := r.sdkOf(f, lib, answers); sdk != "" {
			f.SDK, most = sdk, check.Info
		}
		f.Rule = f.Rule.In(f.Revision)
		if f.Rule.Severity > most {
			c := *f.Rule
			c.Severity = most
			f.Rule = &c
		}
	}
}

// An sdk is a server library with the rules that all its servers break.
type sdk struct {
	name string
	// recognizes reports whether the library itself made a reply.
	recognizes func(a *reply) bool
	// rules are broken by the library in every server.
	rules []string
	// replyRules are broken by the library in its own replies. Servers may break them elsewhere.
	replyRules []string
}

// sdks are the known libraries. Their behavior was seen in servers of public registries.
var sdks = []sdk{
	{
		name:       "TypeScript SDK",
		recognizes: fromTypeScript,
		rules: []string{
			"probe/batch", "probe/before-initialize", "probe/garbage-unanswered", "probe/id-huge", "probe/invalid-request", "probe/second-initialize",
		},
		replyRules: []string{"probe/error-code", "tools/unknown-as-result"},
	},
	{
		name:       "Python SDK",
		recognizes: fromPython,
		rules:      []string{"capability/logging", "probe/batch", "probe/garbage-unanswered", "probe/invalid-request", "probe/second-initialize"},
		replyRules: []string{"probe/error-code", "probe/modern-refusal"},
	},
}

// fromTypeScript recognizes errors of the TypeScript SDK by their text: the code in the message, or
// a list of zod issues.
func fromTypeScript(a *reply) bool {
	if a.rpcError != nil {
		return strings.HasPrefix(a.rpcError.Message, "MCP error -32") || zodIssues(a.rpcError.Message)
	}
	if string(member(a.result, "isError")) != "true" {
		return false
	}
	for _, block := range elements(member(a.result, "content"), 1) {
		if text := textOf(member(block, "text")); strings.HasPrefix(text, "MCP error -32") {
			return true
		}
	}
	return false
}

// fromPython recognizes errors of the Python SDK by their text.
func fromPython(a *reply) bool {
	return a.rpcError != nil && (a.rpcError.Message == "Invalid request parameters" || strings.HasPrefix(a.rpcError.Message, "connection is serving the "))
}

// zodIssues reports whether a message is a JSON list of issues as zod formats it.
func zodIssues(message string) bool {
	return strings.HasPrefix(message, "[\n  {\n") && strings.Contains(message, `"path": [`) && strings.Contains(message, `"code": "`)
}

// An sdkReply is a reply that a library itself made.
type sdkReply struct {
	sdk     *sdk
	session uint64
	// at is the number of the event.
	at uint64
}

// noteReply counts a request and records which library made its reply.
func (r *run) noteReply(session uint64, a *reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	for i := range sdks {
		if a.state == answered && sdks[i].recognizes(a) {
			r.sdkReplies = append(r.sdkReplies, sdkReply{&sdks[i], session, a.event})
		}
	}
}

// detectSDK returns the server's library, or nil if unknown, and the numbers of the events with its
// own replies. The first reply in the order of the jobs decides, because a server that calls others
// may show several libraries.
func (r *run) detectSDK() (*sdk, map[uint64]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := slices.DeleteFunc(r.sdkReplies, func(a sdkReply) bool { return !r.recorder.counts(a.session) })
	if len(list) == 0 {
		return nil, nil
	}
	first := slices.MinFunc(list, func(a, b sdkReply) int { return r.recorder.compareEvents(a.session, a.at, b.session, b.at) })
	answers := map[uint64]bool{}
	for _, a := range list {
		if a.sdk == first.sdk {
			answers[a.at] = true
		}
	}
	return first.sdk, answers
}

// sdkOf returns the library that causes a finding, or "".
func (r *run) sdkOf(f *check.Finding, lib *sdk, answers map[uint64]bool) string {
	switch {
	case lib == nil:
		return ""
	case slices.Contains(lib.rules, f.Rule.ID), slices.Contains(lib.replyRules, f.Rule.ID) && answers[f.Event]:
		return lib.name
	case f.Rule.ID == "probe/invalid-cursor" && !r.paged:
		// A server without pages leaves cursors to the library.
		return lib.name
	}
	return ""
}

// outage reports whether an error means that something broke, not that the request is wrong: an
// internal error, or one that the server defines.
func outage(a *reply) bool {
	return a.rpcError != nil && (a.rpcError.Code == jsonrpc.CodeInternalError || a.rpcError.Code >= -32019 && a.rpcError.Code <= -32000 || a.rpcError.Code > -32000 || a.rpcError.Code < -32768)
}

// sameError reports whether two errors are equal.
func sameError(a, b *jsonrpc.Error) bool {
	return a != nil && b != nil && a.Code == b.Code && a.Message == b.Message && bytes.Equal(a.Data, b.Data)
}

// rulesLife are the rules about servers that fail.
var rulesLife = []check.Rule{
	{
		ID: "probe/no-handshake", Severity: check.Error,
		Title: "No handshake succeeded",
		Why:   "No other test was possible: this server was not checked, and no client can use it.",
		Fix:   "Read its standard error; mcpwire doctor looks for the cause. If it is slow, set a longer --connect-timeout.",
		URL:   "basic/versioning",
		Good:  check.Example{Revision: rev20251125, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\nwait 30s"},
	},
	{
		ID: "probe/died", Severity: check.Error,
		Title: "A request makes the server exit",
		Why:   "One invalid request ends all requests of all clients. The response to an invalid request must be an error.",
		Fix:   "Catch exceptions of request handlers, and respond with an error.",
		URL:   "basic",
		Good:  check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"no name\"}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{}}\n! TypeError: undefined is not an object\nexit 1"},
	},
	{
		ID: "probe/unanswered", Severity: check.Error,
		Title: "A request got no response in time",
		Why:   "Every request must get a response, even if it is an error. Hosts wait until they time out, and then treat the server as dead.",
		Fix:   "Respond to unknown and invalid requests too. If the server is only slow, set a longer --timeout.",
		URL:   "basic#responses",
		Good:  check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"vendor/x\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,\"message\":\"method not found\"}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"vendor/x\"}\nwait 10s"},
	},
	{
		ID: "probe/fragile", Severity: check.Warning,
		Title: "Invalid or very large input makes the server exit",
		Why:   "A library that prints a line to the wrong pipe, or a large document, then disconnects the user.",
		Fix:   "Ignore unreadable input, or respond with -32700 or -32600, and continue to read.",
		URL:   "basic/transports#stdio",
		Good:  check.Example{Revision: rev20251125, Text: "init\n> hello\n< {\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32700,\"message\":\"parse error\"}}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init\n> hello\nexit 1"},
	},
	{
		ID: "probe/error-code", Severity: check.Warning,
		Title: "An error has the wrong code",
		Why:   "Clients use the code to decide whether to offer an alternative, give up, or request the list again.",
		Fix:   "Send -32601 for unknown methods, -32602 for invalid params, unknown names and unknown cursors, and -32603 only for internal errors.",
		URL:   "basic#responses",
		Good:  check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"vendor/x\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,\"message\":\"method not found\"}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"vendor/x\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32603,\"message\":\"internal error\"}}"},
	},
}
