package probe

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"mcpwire/check"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

const prefix = "probe/"

//go:embed rules.txt
var rulesText string

// rules returns the rules of this package, sorted by id. They must not be modified.
var rules = sync.OnceValue(func() []check.Rule {
	list, err := readRules(rulesText)
	if err != nil {
		panic("probe: rules.txt: " + err.Error())
	}
	return list
})

// readRules parses the text of rules, without the comment at its beginning.
func readRules(text string) (all []check.Rule, err error) {
	var r check.Rule
	var example *check.Example
	texts := map[string]*string{"title": &r.Title, "why": &r.Why, "fix": &r.Fix, "url": &r.URL}
	// The last line ends the rule before it.
	for i, line := range append(strings.Split(text, "\n"), "rule: ") {
		if part, ok := strings.CutPrefix(line, "\t"); ok && example != nil {
			example.Text = strings.TrimPrefix(example.Text+"\n"+part, "\n")
			continue
		}
		key, value, ok := strings.Cut(line, ": ")
		ok = ok || line == "" || strings.HasPrefix(line, "#")
		switch key {
		case "rule":
			if r.ID != "" {
				r.URL = era.PageURL(r.URL, r.Revisions)
				all = append(all, r)
			}
			r, example = check.Rule{ID: prefix + value}, nil
		case "severity":
			ok = r.Severity.UnmarshalText([]byte(value)) == nil
		case "revisions":
			r.Revisions, ok = parseRevisions(value)
		case "title", "why", "fix", "url":
			*texts[key] = value
		case "good", "bad":
			if example = &r.Good; key == "bad" {
				example = &r.Bad
			}
			example.Revision, ok = mcp.ParseRevision(value)
		default:
			ok = ok && key == line
		}
		if !ok {
			return nil, fmt.Errorf("line %d: %q", i+1, line)
		}
	}
	slices.SortFunc(all, func(a, b check.Rule) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

// parseRevisions parses "legacy" or dates.
func parseRevisions(text string) (list []mcp.Revision, ok bool) {
	if text == "legacy" {
		return slices.DeleteFunc(mcp.Revisions(), mcp.Revision.Modern), true
	}
	for date := range strings.FieldsSeq(text) {
		rev, ok := mcp.ParseRevision(date)
		if !ok {
			return nil, false
		}
		list = append(list, rev)
	}
	return list, true
}

// Rules returns the rules of this package, sorted by id. They belong to the caller.
func Rules() []*check.Rule {
	var all []*check.Rule
	for _, r := range rules() {
		r.Revisions = slices.Clone(r.Revisions)
		all = append(all, &r)
	}
	return all
}

// Lookup returns the rule of this package with an id. It belongs to the caller.
func Lookup(id string) (*check.Rule, bool) {
	for _, r := range rules() {
		if r.ID == id {
			r.Revisions = slices.Clone(r.Revisions)
			return &r, true
		}
	}
	return nil, false
}

// Enabled reports whether a rule is to be checked. only lists the rules to check, and empty means
// all; disabled lists rules that are not checked. "GROUP/*" selects all rules of a group.
func Enabled(id string, only, disabled []string) bool {
	matchesID := func(pattern string) bool {
		group, all := strings.CutSuffix(pattern, "*")
		return pattern == id || all && strings.HasSuffix(group, "/") && strings.HasPrefix(id, group)
	}
	return (len(only) == 0 || slices.ContainsFunc(only, matchesID)) && !slices.ContainsFunc(disabled, matchesID)
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
		c := *f.Rule
		c.URL, c.Severity = era.PageIn(c.URL, c.Revisions, f.Revision), min(c.Severity, most)
		f.Rule = &c
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
	if string(jsonwire.Lookup(a.result, "isError")) != "true" {
		return false
	}
	for _, block := range elements(jsonwire.Lookup(a.result, "content"), 1) {
		if text := jsonwire.Text(jsonwire.Lookup(block, "text")); strings.HasPrefix(text, "MCP error -32") {
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
	case f.Rule.ID == "probe/invalid-cursor" && !r.paged.Load():
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

func sameError(a, b *jsonrpc.Error) bool {
	return a != nil && b != nil && a.Code == b.Code && a.Message == b.Message && bytes.Equal(a.Data, b.Data)
}
