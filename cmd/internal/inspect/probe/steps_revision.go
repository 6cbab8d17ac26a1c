package probe

import (
	"context"

	"mcpwire/check"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// rulesVersions are the rules about the legacy handshake.
var rulesVersions = []check.Rule{
	{
		ID: "probe/version-echoed", Severity: check.Error, Revisions: legacy,
		Title: "The server accepts an unknown version",
		Why:   "It does not check the version, and also accepts future versions, whose rules it does not know: both sides then follow different rules.",
		Fix:   "If the server does not speak the proposed version, respond with the latest one that it speaks.",
		URL:   "basic/lifecycle#version-negotiation",
		Good:  check.Example{Revision: rev20251125, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"1999-12-31\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"1999-12-31\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":\"1999-12-31\",\"capabilities\":{},\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}"},
	},
	{
		ID: "probe/version-error", Severity: check.Warning, Revisions: legacy,
		Title: "An unsupported version gets an error",
		Why:   "The client cannot know which version to try next. By the specification, the server responds with another version; only an example shows an error.",
		Fix:   "Respond with the latest version that the server speaks.",
		URL:   "basic/lifecycle#version-negotiation",
		Good:  check.Example{Revision: rev20251125, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"1999-12-31\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"1999-12-31\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"Unsupported protocol version\"}}"},
	},
	{
		ID: "probe/ping-first", Severity: check.Warning, Revisions: legacy,
		Title: "ping before initialize gets no result",
		Why:   "Clients may send ping at any time, to check whether the server has started.",
		Fix:   "Respond to ping with {}, whatever the state of the session.",
		URL:   "basic/utilities/ping",
		Good:  check.Example{Revision: rev20251125, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32600,\"message\":\"not initialized\"}}"},
	},
	{
		ID: "probe/before-initialize", Severity: check.Info, Revisions: legacy,
		Title: "The server handles requests before initialize",
		Why:   "The server does not know the client's version yet. The specification does not say how to respond.",
		Fix:   "Respond with an error until the handshake is complete.",
		URL:   "basic/lifecycle#initialization",
		Good:  check.Example{Revision: rev20251125, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32600,\"message\":\"not initialized\"}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"tools\":[]}}"},
	},
	{
		ID: "probe/second-initialize", Severity: check.Info, Revisions: legacy,
		Title: "A second initialize gets a result",
		Why:   "The client cannot tell which negotiated state is in effect. The specification does not say how to respond.",
		Fix:   "Respond with an error to initialize after the handshake.",
		URL:   "basic/lifecycle#initialization",
		Good:  check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\n< {\"jsonrpc\":\"2.0\",\"id\":9,\"error\":{\"code\":-32600,\"message\":\"already initialized\"}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\n< {\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}"},
	},
}

// unknownOffer proposes a version that does not exist.
func unknownOffer(ctx context.Context, d *driver) {
	a := d.send(ctx, outgoing{body: request(d.nextID(), mcp.MethodInitialize, d.r.initialize(noSuchVersion)), id: d.lastID()})
	switch {
	case d.connectionEnded(&a, "an unknown version"):
	case a.failed(), a.status >= 400:
		d.report("version-error", &a, "the version %s %s", noSuchVersion, d.outcomeText(&a))
	case d.version(&a) == noSuchVersion:
		d.report("version-echoed", &a, "the server accepted the unknown version %s", noSuchVersion)
	}
	d.offered = d.version(&a)
	// The probe provoked it.
	d.r.recorder.waive(a.event, "lifecycle/version-differs", "lifecycle/version-unknown")
	if id := a.header.Get(wireclient.HeaderSession); d.http != nil && id != "" {
		d.http.SetSessionHeader(wireclient.HeaderSession, id)
	}
}

// version returns the version in the response to initialize.
func (d *driver) version(a *reply) string { return textOf(member(a.result, "protocolVersion")) }

// completeHandshake completes the handshake that unknownOffer began, so that the steps behind it
// need no other process.
func completeHandshake(ctx context.Context, d *driver) {
	d.job.completed = true
	if d.stale = d.offered != d.rev.String(); !d.stale {
		d.notify(ctx, mcp.NotificationInitialized, nil)
	}
}

func pingFirst(ctx context.Context, d *driver) {
	a := d.call(ctx, mcp.MethodPing, nil)
	d.job.diedFirst = a.state == disconnected
	if !d.connectionEnded(&a, "ping before initialize") && a.failed() {
		d.r.recorder.waive(a.event)
		d.report("ping-first", &a, "it %s", d.outcomeText(&a))
	}
}

func listFirst(ctx context.Context, d *driver) {
	if d.job.diedFirst {
		return // it would exit again, for the same reason
	}
	a := d.call(ctx, mcp.MethodToolsList, nil, func(q *outgoing) {
		if d.stdio != nil && d.stdio.gotMessage {
			q.wait = min(initializeDelay, d.r.opts.Timeout)
		}
	})
	if d.stdio != nil && !d.conn.alive() {
		d.connectionEnded(&a, "tools/list before initialize")
	}
	if a.state == timedOut {
		d.r.recorder.waive(a.requestEvent)
	}
	if a.succeeded() {
		d.r.recorder.waive(a.event)
		d.report("before-initialize", &a, "tools/list got a result")
	}
}

func secondInitialize(ctx context.Context, d *driver) {
	a := d.call(ctx, mcp.MethodInitialize, d.r.initialize(d.rev.String()), func(q *outgoing) { q.wait = min(initializeDelay, d.r.opts.Timeout) })
	if !d.connectionEnded(&a, "a second initialize") && a.succeeded() {
		d.report("second-initialize", &a, "it got a result")
	}
	if a.state == timedOut {
		d.r.recorder.waive(a.requestEvent)
	}
}

// rulesModern are the rules about servers without a handshake.
var rulesModern = []check.Rule{
	{
		ID: "probe/modern-refusal", Severity: check.Error, Revisions: modern,
		Title: "A request is rejected with the wrong error",
		Why:   "Clients use the code to tell whether a server is modern, and which version to try next.",
		Fix:   "Send -32601 for unknown methods, -32602 for missing metadata, and -32022 for unsupported versions.",
		URL:   "basic#error-codes",
		Good:  check.Example{Revision: rev20260728, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"_meta\":{}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"no protocolVersion\"}}"},
		Bad:   check.Example{Revision: rev20260728, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"_meta\":{}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32603,\"message\":\"internal error\"}}"},
	},
	{
		ID: "probe/modern-status", Severity: check.Error, Revisions: modern,
		Title: "A request is rejected with the wrong HTTP status",
		Why:   "Clients use code and status to tell whether a server is modern, which version to try next, and which headers to fix.",
		Fix:   "Send -32601 with status 404 for unknown methods; with status 400, send -32602 for missing metadata, -32020 for headers that do not match, and -32022 for unsupported versions.",
		URL:   "basic/transports/streamable-http#server-validation",
		Good:  check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"_meta\":{}}}\nreply 400 {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"no protocolVersion\"}}"},
		Bad:   check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"_meta\":{}}}\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"no protocolVersion\"}}"},
	},
	{
		ID: "probe/client-info-required", Severity: check.Error, Revisions: modern,
		Title: "A request without clientInfo is rejected",
		Why:   "It is optional: clients that do not identify themselves omit it.",
		Fix:   "Require only protocolVersion and clientCapabilities.",
		URL:   "basic#_meta",
		Good:  check.Example{Revision: rev20260728, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"resultType\":\"complete\",\"supportedVersions\":[\"$rev\"],\"capabilities\":{},\"ttlMs\":0,\"cacheScope\":\"public\"}}"},
		Bad:   check.Example{Revision: rev20260728, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"no clientInfo\"}}"},
	},
	{
		ID: "probe/removed-method", Severity: check.Error, Revisions: modern,
		Title: "A method that the revision no longer has gets a result",
		Why:   "The revision has no sessions to ping, to initialize or to set a level for: the client treats the server as one of the other era.",
		Fix:   "Respond with -32601 to ping, initialize and logging/setLevel with the metadata of a modern request.",
		URL:   "basic/versioning",
		Good:  check.Example{Revision: rev20260728, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{\"_meta\":{$meta}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,\"message\":\"method not found\"}}"},
		Bad:   check.Example{Revision: rev20260728, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{\"_meta\":{$meta}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"resultType\":\"complete\"}}"},
	},
	{
		ID: "probe/listen", Severity: check.Error, Revisions: modern,
		Title: "subscriptions/listen is neither acknowledged nor rejected",
		Why:   "The client cannot tell whether it will be notified of changes.",
		Fix:   "Send notifications/subscriptions/acknowledged first, with the accepted part of the filter, even if it is empty; or respond with -32601.",
		URL:   "basic/utilities/subscriptions",
		Good:  check.Example{Revision: rev20260728, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"subscriptions/listen\",\"params\":{\"notifications\":{\"toolsListChanged\":true},\"_meta\":{$meta}}}\n< {\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{\"notifications\":{},\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":1}}}"},
		Bad:   check.Example{Revision: rev20260728, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"subscriptions/listen\",\"params\":{\"notifications\":{\"toolsListChanged\":true},\"_meta\":{$meta}}}\nwait 10s"},
	},
}

// modernRefusal reports an error response that differs from what modern revisions require. status
// is the required HTTP status. It ignores results.
func (d *driver) modernRefusal(a *reply, about string, status int, codes ...jsonrpc.Code) {
	if !d.rev.Modern() || a.state != answered || a.succeeded() {
		return
	}
	switch {
	case !a.failed(codes...):
		d.report("modern-refusal", a, "%s %s; want error %s", about, d.outcomeText(a), codesText(codes))
	case d.http != nil && a.status != status && a.failed(jsonrpc.CodeInvalidParams):
		// Package check knows the status of the other codes.
		d.report("modern-status", a, "%s got HTTP status %d; want %d", about, a.status, status)
	}
}

func unknownVersion(ctx context.Context, d *driver) {
	a := d.call(ctx, mcp.MethodDiscover, object{"_meta": d.r.meta(noSuchVersion)})
	if d.connectionEnded(&a, "an unknown version") {
		return
	}
	// The checks below report it.
	d.r.recorder.waive(a.event, "modern/discover-missing")
	d.modernRefusal(&a, "an unknown version", 400, mcp.CodeUnsupportedProtocolVersion)
	if a.failed(mcp.CodeUnsupportedProtocolVersion) && len(elements(member(a.rpcError.Data, "supported"), 1)) == 0 {
		d.report("modern-refusal", &a, "the error about the version does not list the supported versions")
	}
}

// missingMeta omits required metadata. Over stdio it keeps protocolVersion, because a request
// without it may be a legacy one.
func missingMeta(ctx context.Context, d *driver) {
	without := func(key string) object {
		meta := d.r.meta(d.rev.String())
		delete(meta, key)
		return object{"_meta": meta}
	}
	method := mcp.MethodDiscover
	a := d.call(ctx, method, without(mcp.MetaClientCapabilities))
	if !d.connectionEnded(&a, "a request without clientCapabilities") {
		d.modernRefusal(&a, "a request without clientCapabilities", 400, jsonrpc.CodeInvalidParams)
	}
	if d.http == nil {
		return
	}
	a = d.call(ctx, method, without(mcp.MetaProtocolVersion))
	if !d.connectionEnded(&a, "a request without protocolVersion") {
		d.modernRefusal(&a, "a request without protocolVersion, but with the header", 400, jsonrpc.CodeInvalidParams)
	}
}

func missingInfo(ctx context.Context, d *driver) {
	meta := d.r.meta(d.rev.String())
	delete(meta, mcp.MetaClientInfo)
	a := d.call(ctx, mcp.MethodDiscover, object{"_meta": meta})
	if !d.connectionEnded(&a, "a request without clientInfo") && a.failed() {
		d.report("client-info-required", &a, "server/discover without clientInfo %s", d.outcomeText(&a))
	}
}

func removedMethods(ctx context.Context, d *driver) {
	for _, m := range []struct {
		method string
		params object
	}{
		{mcp.MethodPing, nil},
		{mcp.MethodInitialize, d.r.initialize(d.rev.String())},
		{mcp.MethodSetLevel, object{"level": "emergency"}},
	} {
		if !d.conn.alive() {
			return
		}
		a := d.call(ctx, m.method, m.params)
		about := m.method + " with modern metadata"
		if d.connectionEnded(&a, about) {
			continue
		}
		if a.succeeded() {
			d.r.recorder.waive(a.event) // its form does not matter
			d.report("removed-method", &a, "%s got a result", about)
		}
		d.modernRefusal(&a, about, 404, jsonrpc.CodeMethodNotFound)
	}
}

// subscribe subscribes to changes of the lists and cancels the subscription.
func subscribe(ctx context.Context, d *driver) {
	acknowledged := func(m *jsonrpc.Message) bool { return string(m.Method) == mcp.NotificationAcknowledged }
	filter := object{"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true}
	a := d.call(ctx, mcp.MethodSubscriptionsListen, object{"notifications": filter}, func(q *outgoing) { q.stopAt = acknowledged })
	switch a.state {
	case disconnected:
		d.connectionEnded(&a, mcp.MethodSubscriptionsListen)
		return
	case timedOut:
		d.r.recorder.waive(a.requestEvent)
		d.report("listen", &a, "nothing came in time")
	case answered:
		if a.succeeded() {
			d.report("listen", &a, "it got a result, but was never acknowledged")
			// The server may be overloaded or broken.
		} else if !outage(&a) {
			d.modernRefusal(&a, mcp.MethodSubscriptionsListen, 404, jsonrpc.CodeMethodNotFound)
		}
	}
	if d.stdio != nil && a.state == stoppedEarly {
		d.r.recorder.waive(a.requestEvent)
		d.notify(ctx, mcp.NotificationCancelled, object{"requestId": d.idCount})
		if a, ok := d.stillAnswers(ctx); !ok {
			d.connectionEnded(&a, "the cancellation of subscriptions/listen")
		}
	}
}
