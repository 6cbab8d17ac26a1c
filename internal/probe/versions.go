package probe

import (
	"context"

	"mcpwire/check"
	"mcpwire/mcp"
)

// rulesVersions are the rules about the legacy handshake.
var rulesVersions = []check.Rule{
	{
		ID: "probe/version-echoed", Severity: check.Error, Revisions: legacy,
		Title: "The server agrees to a version that does not exist",
		Why:   "It has not looked at the version, and agrees to those of the future, too, which it knows nothing about: then each side speaks by rules of its own.",
		Fix:   "Answer with a version that the server speaks, the latest, if it does not speak the one proposed.",
		URL:   "basic/lifecycle#version-negotiation",
		Good:  check.Example{Revision: rev20251125, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"1999-12-31\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"1999-12-31\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":\"1999-12-31\",\"capabilities\":{},\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}"},
	},
	{
		ID: "probe/version-error", Severity: check.Warning, Revisions: legacy,
		Title: "A version that the server does not speak is answered with an error",
		Why:   "The client cannot know which version to try next. The specification has the server answer with another one; only an example shows an error.",
		Fix:   "Answer with the latest version that the server speaks.",
		URL:   "basic/lifecycle#version-negotiation",
		Good:  check.Example{Revision: rev20251125, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"1999-12-31\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"1999-12-31\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"Unsupported protocol version\"}}"},
	},
	{
		ID: "probe/ping-first", Severity: check.Warning, Revisions: legacy,
		Title: "ping before initialize is not answered with a result",
		Why:   "It is the one request that clients may send at any time, to see whether the server has come up.",
		Fix:   "Answer ping with {}, whatever the state of the session.",
		URL:   "basic/utilities/ping",
		Good:  check.Example{Revision: rev20251125, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32600,\"message\":\"not initialized\"}}"},
	},
	{
		ID: "probe/before-initialize", Severity: check.Info, Revisions: legacy,
		Title: "Requests are carried out before initialize",
		Why:   "The server does not know yet in which version the client wants the answer. The specification leaves open what is due.",
		Fix:   "Answer an error until there was a handshake.",
		URL:   "basic/lifecycle#initialization",
		Good:  check.Example{Revision: rev20251125, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32600,\"message\":\"not initialized\"}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"tools\":[]}}"},
	},
	{
		ID: "probe/second-initialize", Severity: check.Info, Revisions: legacy,
		Title: "A second initialize is answered with a result",
		Why:   "What was agreed on before may be in force or not, and the client cannot tell. The specification leaves open what is due.",
		Fix:   "Answer an error to initialize once there was a handshake.",
		URL:   "basic/lifecycle#initialization",
		Good:  check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\n< {\"jsonrpc\":\"2.0\",\"id\":9,\"error\":{\"code\":-32600,\"message\":\"already initialized\"}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\n< {\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}"},
	},
}

// unknownOffer proposes a version that does not exist.
func unknownOffer(ctx context.Context, d *driver) {
	a := d.send(ctx, outgoing{body: request(d.nextID(), mcp.MethodInitialize, d.r.initialize(noSuchVersion)), id: d.lastID()})
	switch {
	case d.connectionEnded(&a, "a version that does not exist"):
	case a.failed(), a.status >= 400:
		d.report("version-error", &a, "the version %s %s", noSuchVersion, d.outcomeText(&a))
	case textOf(member(a.result, "protocolVersion")) == noSuchVersion:
		d.report("version-echoed", &a, "the version %s, which does not exist, is answered with the same", noSuchVersion)
	}
	d.r.recorder.waive(a.event, "lifecycle/version-differs", "lifecycle/version-unknown") // we have asked for it
	if id := a.header.Get("Mcp-Session-Id"); d.http != nil && id != "" {
		d.http.sessionHeader.Set("Mcp-Session-Id", id)
	}
}

func pingFirst(ctx context.Context, d *driver) {
	a := d.call(ctx, mcp.MethodPing, nil)
	if !d.connectionEnded(&a, "ping before initialize") && a.failed() {
		d.r.recorder.waive(a.event)
		d.report("ping-first", &a, "it %s", d.outcomeText(&a))
	}
}

func listFirst(ctx context.Context, d *driver) {
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
		d.report("before-initialize", &a, "tools/list is answered with a result")
	}
}

func secondInitialize(ctx context.Context, d *driver) {
	a := d.call(ctx, mcp.MethodInitialize, d.r.initialize(d.rev.String()), func(q *outgoing) { q.wait = min(initializeDelay, d.r.opts.Timeout) })
	if !d.connectionEnded(&a, "a second initialize") && a.succeeded() {
		d.report("second-initialize", &a, "it is answered with a result")
	}
	if a.state == timedOut {
		d.r.recorder.waive(a.requestEvent)
	}
}
