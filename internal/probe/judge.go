package probe

import (
	"bytes"
	"slices"
	"strings"

	"mcpwire/check"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// adjustFindings is the measure for findings, the same for all who probe:
//
//   - What breaks a rule in a superseded revision is at most a warning if the server speaks a newer
//     one of the same era: few clients ever see it.
//   - What the library does that a server is built with, in all servers, is an information: the
//     author of the server cannot change it. The finding names the library.
//   - Findings refer to the pages of their own revision.
func (r *run) adjustFindings(list []check.Finding) {
	revisions := mcp.Revisions()
	newest := map[bool]int{} // by whether it is modern
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

// An sdk is a library for servers, as far as the rules are concerned that all its servers break.
type sdk struct {
	name string
	// recognizes reports whether an answer is one that the library itself made.
	recognizes func(a *reply) bool
	// rules are those that the library breaks, whatever the server does.
	rules []string
	// replyRules are rules that it breaks where the answer is its own, and servers may break elsewhere.
	replyRules []string
}

// sdks are the libraries that are known. Their behavior was seen in servers of public registries.
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

// fromTypeScript knows the errors of the TypeScript SDK by their texts: the code within the message,
// or the list of what a schema of zod found.
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

// fromPython knows the errors of the Python SDK by their texts.
func fromPython(a *reply) bool {
	return a.rpcError != nil && (a.rpcError.Message == "Invalid request parameters" || strings.HasPrefix(a.rpcError.Message, "connection is serving the "))
}

// zodIssues reports whether a message is a list of issues, as JSON in the layout of the library.
func zodIssues(message string) bool {
	return strings.HasPrefix(message, "[\n  {\n") && strings.Contains(message, `"path": [`) && strings.Contains(message, `"code": "`)
}

// A sdkReply is an answer that a library itself made.
type sdkReply struct {
	sdk     *sdk
	session uint64
	at      uint64 // number of the event
}

// noteReply counts a question, and remembers which library made its answer.
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

// detectSDK returns the library that the server is built with, nil if it is not known, and the
// numbers of the events with answers that the library made. The first answer tells, in the order of
// the jobs: in a server that calls others, there may be several libraries.
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

// sdkOf returns the library that a finding is about, "" if it is the server's own.
func (r *run) sdkOf(f *check.Finding, lib *sdk, answers map[uint64]bool) string {
	switch {
	case lib == nil:
		return ""
	case slices.Contains(lib.rules, f.Rule.ID), slices.Contains(lib.replyRules, f.Rule.ID) && answers[f.Event]:
		return lib.name
	case f.Rule.ID == "probe/invalid-cursor" && !r.paged:
		return lib.name // without pages of its own, a server leaves cursors to the library
	}
	return ""
}

// outage reports whether an error says that something broke, not that the request is wrong: an
// internal error, or one that the server has defined.
func outage(a *reply) bool {
	return a.rpcError != nil && (a.rpcError.Code == jsonrpc.CodeInternalError || a.rpcError.Code >= -32019 && a.rpcError.Code <= -32000 || a.rpcError.Code > -32000 || a.rpcError.Code < -32768)
}

// sameError reports whether two answers are the same error.
func sameError(a, b *jsonrpc.Error) bool {
	return a != nil && b != nil && a.Code == b.Code && a.Message == b.Message && bytes.Equal(a.Data, b.Data)
}
