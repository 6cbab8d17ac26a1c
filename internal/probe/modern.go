package probe

import (
	"context"

	"mcpwire/check"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// rulesModern are the rules about servers without a handshake.
var rulesModern = []check.Rule{
	{
		ID: "probe/modern-refusal", Severity: check.Error, Revisions: modern,
		Title: "A request is refused with another error than the one that is due",
		Why:   "Clients tell by the code whether a server is modern, and which version to try next.",
		Fix:   "Answer -32601 to unknown methods, -32602 to missing metadata, -32022 to versions that are not spoken.",
		URL:   "basic#error-codes",
		Good:  check.Example{Revision: r5, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"_meta\":{}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"no protocolVersion\"}}"},
		Bad:   check.Example{Revision: r5, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"_meta\":{}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32603,\"message\":\"internal error\"}}"},
	},
	{
		ID: "probe/modern-status", Severity: check.Error, Revisions: modern,
		Title: "A request is refused with another HTTP status than the one that is due",
		Why:   "Clients tell by code and status whether a server is modern, which version to try next, and which headers to mend.",
		Fix:   "Answer -32601 with status 404 to unknown methods; with status 400 -32602 to missing metadata, -32020 to headers that do not fit, -32022 to versions.",
		URL:   "basic/transports/streamable-http#server-validation",
		Good:  check.Example{Revision: r5, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"_meta\":{}}}\nreply 400 {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"no protocolVersion\"}}"},
		Bad:   check.Example{Revision: r5, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"_meta\":{}}}\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"no protocolVersion\"}}"},
	},
	{
		ID: "probe/client-info-required", Severity: check.Error, Revisions: modern,
		Title: "A request without clientInfo is refused",
		Why:   "It is optional: clients that do not want to be known leave it out.",
		Fix:   "Ask for protocolVersion and clientCapabilities only.",
		URL:   "basic#_meta",
		Good:  check.Example{Revision: r5, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"resultType\":\"complete\",\"supportedVersions\":[\"$rev\"],\"capabilities\":{},\"ttlMs\":0,\"cacheScope\":\"public\"}}"},
		Bad:   check.Example{Revision: r5, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"no clientInfo\"}}"},
	},
	{
		ID: "probe/removed-method", Severity: check.Error, Revisions: modern,
		Title: "A method that the revision no longer has is answered with a result",
		Why:   "There are no sessions to ping, to initialize or to set a level for: the client takes the server for one of the other era.",
		Fix:   "Answer -32601 to ping, initialize and logging/setLevel with the metadata of a modern request.",
		URL:   "basic/versioning",
		Good:  check.Example{Revision: r5, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{\"_meta\":{$meta}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,\"message\":\"method not found\"}}"},
		Bad:   check.Example{Revision: r5, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{\"_meta\":{$meta}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"resultType\":\"complete\"}}"},
	},
	{
		ID: "probe/listen", Severity: check.Error, Revisions: modern,
		Title: "subscriptions/listen is neither acknowledged nor refused",
		Why:   "The client cannot tell whether it will hear of changes.",
		Fix:   "Send notifications/subscriptions/acknowledged first, with what is honoured of the filter, be it nothing; or answer -32601.",
		URL:   "basic/utilities/subscriptions",
		Good:  check.Example{Revision: r5, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"subscriptions/listen\",\"params\":{\"notifications\":{\"toolsListChanged\":true},\"_meta\":{$meta}}}\n< {\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{\"notifications\":{},\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":1}}}"},
		Bad:   check.Example{Revision: r5, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"subscriptions/listen\",\"params\":{\"notifications\":{\"toolsListChanged\":true},\"_meta\":{$meta}}}\nwait 10s"},
	},
}

// modernRefusal holds a refusal against what the modern revisions demand. That there is one, the caller has seen to; status is the one due over HTTP.
func (v *visit) modernRefusal(a *answer, about string, status int, codes ...jsonrpc.Code) {
	if !v.rev.Modern() || a.fate != answered || a.succeeded() {
		return
	}
	switch {
	case !a.failed(codes...):
		v.find("modern-refusal", a, "%s %s; due is error %s", about, v.outcome(a), codesText(codes))
	case v.web != nil && a.status != status && a.failed(jsonrpc.CodeInvalidParams):
		// Of the other codes, package check knows the status.
		v.find("modern-status", a, "%s is answered with HTTP status %d; due is %d", about, a.status, status)
	}
}

func unknownVersion(ctx context.Context, v *visit) {
	a := v.call(ctx, mcp.MethodDiscover, object{"_meta": v.r.meta(nobodysVersion)})
	if v.ended(&a, "a version that does not exist") {
		return
	}
	v.r.journal.excuse(a.at, "modern/discover-missing") // what is wrong is said below
	v.modernRefusal(&a, "a version that does not exist", 400, mcp.CodeUnsupportedProtocolVersion)
	if a.failed(mcp.CodeUnsupportedProtocolVersion) && len(elements(member(a.rpc.Data, "supported"), 1)) == 0 {
		v.find("modern-refusal", &a, "the error about the version does not say which ones are supported")
	}
}

// missingMeta leaves out what every request needs. protocolVersion stays in place over stdio: without it a request may be one of the legacy era.
func missingMeta(ctx context.Context, v *visit) {
	without := func(key string) object {
		meta := v.r.meta(v.rev.String())
		delete(meta, key)
		return object{"_meta": meta}
	}
	method := mcp.MethodDiscover
	a := v.call(ctx, method, without(mcp.MetaClientCapabilities))
	if !v.ended(&a, "a request without clientCapabilities") {
		v.modernRefusal(&a, "a request without clientCapabilities", 400, jsonrpc.CodeInvalidParams)
	}
	if v.web == nil {
		return
	}
	a = v.call(ctx, method, without(mcp.MetaProtocolVersion))
	if !v.ended(&a, "a request without protocolVersion") {
		v.modernRefusal(&a, "a request without protocolVersion, but with the header", 400, jsonrpc.CodeInvalidParams)
	}
}

func missingInfo(ctx context.Context, v *visit) {
	meta := v.r.meta(v.rev.String())
	delete(meta, mcp.MetaClientInfo)
	a := v.call(ctx, mcp.MethodDiscover, object{"_meta": meta})
	if !v.ended(&a, "a request without clientInfo") && a.failed() {
		v.find("client-info-required", &a, "server/discover without clientInfo %s", v.outcome(&a))
	}
}

func removedMethods(ctx context.Context, v *visit) {
	for _, m := range []struct {
		method string
		params object
	}{
		{mcp.MethodPing, nil},
		{mcp.MethodInitialize, v.r.initialize(v.rev.String())},
		{mcp.MethodSetLevel, object{"level": "emergency"}},
	} {
		if !v.link.alive() {
			return
		}
		a := v.call(ctx, m.method, m.params)
		about := m.method + " with modern metadata"
		if v.ended(&a, about) {
			continue
		}
		if a.succeeded() {
			v.find("removed-method", &a, "%s is answered with a result", about)
		}
		v.modernRefusal(&a, about, 404, jsonrpc.CodeMethodNotFound)
	}
}

// listen subscribes to changes of the lists, and leaves again.
func listen(ctx context.Context, v *visit) {
	acknowledged := func(m *jsonrpc.Message) bool { return string(m.Method) == mcp.NotificationAcknowledged }
	filter := object{"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true}
	a := v.call(ctx, mcp.MethodSubscriptionsListen, object{"notifications": filter}, func(q *question) { q.until = acknowledged })
	switch a.fate {
	case gone:
		v.ended(&a, mcp.MethodSubscriptionsListen)
		return
	case silent:
		v.r.journal.excuse(a.asked)
		v.find("listen", &a, "nothing came in time")
	case answered:
		if a.succeeded() {
			v.find("listen", &a, "it is answered with a result, and was never acknowledged")
		} else if !outage(&a) { // it may be at a limit, or broken
			v.modernRefusal(&a, mcp.MethodSubscriptionsListen, 404, jsonrpc.CodeMethodNotFound)
		}
	}
	if v.pipe != nil && a.fate == stopped {
		v.r.journal.excuse(a.asked)
		v.tell(ctx, mcp.NotificationCancelled, object{"requestId": v.next})
		if a, ok := v.survives(ctx); !ok {
			v.ended(&a, "the cancellation of subscriptions/listen")
		}
	}
}
