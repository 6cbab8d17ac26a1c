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
		Good:  check.Example{Revision: r4, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"1999-12-31\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}"},
		Bad:   check.Example{Revision: r4, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"1999-12-31\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":\"1999-12-31\",\"capabilities\":{},\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}"},
	},
	{
		ID: "probe/version-error", Severity: check.Warning, Revisions: legacy,
		Title: "A version that the server does not speak is answered with an error",
		Why:   "The client cannot know which version to try next. The specification has the server answer with another one; only an example shows an error.",
		Fix:   "Answer with the latest version that the server speaks.",
		URL:   "basic/lifecycle#version-negotiation",
		Good:  check.Example{Revision: r4, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"1999-12-31\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}"},
		Bad:   check.Example{Revision: r4, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"1999-12-31\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"Unsupported protocol version\"}}"},
	},
	{
		ID: "probe/ping-first", Severity: check.Warning, Revisions: legacy,
		Title: "ping before initialize is not answered with a result",
		Why:   "It is the one request that clients may send at any time, to see whether the server has come up.",
		Fix:   "Answer ping with {}, whatever the state of the session.",
		URL:   "basic/utilities/ping",
		Good:  check.Example{Revision: r4, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:   check.Example{Revision: r4, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32600,\"message\":\"not initialized\"}}"},
	},
	{
		ID: "probe/before-initialize", Severity: check.Info, Revisions: legacy,
		Title: "Requests are carried out before initialize",
		Why:   "The server does not know yet in which version the client wants the answer. The specification leaves open what is due.",
		Fix:   "Answer an error until there was a handshake.",
		URL:   "basic/lifecycle#initialization",
		Good:  check.Example{Revision: r4, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32600,\"message\":\"not initialized\"}}"},
		Bad:   check.Example{Revision: r4, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"tools\":[]}}"},
	},
	{
		ID: "probe/second-initialize", Severity: check.Info, Revisions: legacy,
		Title: "A second initialize is answered with a result",
		Why:   "What was agreed on before may be in force or not, and the client cannot tell. The specification leaves open what is due.",
		Fix:   "Answer an error to initialize once there was a handshake.",
		URL:   "basic/lifecycle#initialization",
		Good:  check.Example{Revision: r4, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\n< {\"jsonrpc\":\"2.0\",\"id\":9,\"error\":{\"code\":-32600,\"message\":\"already initialized\"}}"},
		Bad:   check.Example{Revision: r4, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\n< {\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}"},
	},
}

// unknownOffer proposes a version that does not exist.
func unknownOffer(ctx context.Context, v *visit) {
	a := v.ask(ctx, question{body: request(v.id(), mcp.MethodInitialize, v.r.initialize(nobodysVersion)), id: v.last()})
	switch {
	case v.ended(&a, "a version that does not exist"):
	case a.failed(), a.status >= 400:
		v.find("version-error", &a, "the version %s %s", nobodysVersion, v.outcome(&a))
	case textOf(member(a.result, "protocolVersion")) == nobodysVersion:
		v.find("version-echoed", &a, "the version %s, which does not exist, is answered with the same", nobodysVersion)
	}
	v.r.journal.excuse(a.at, "lifecycle/version-differs", "lifecycle/version-unknown") // we have asked for it
	if id := a.header.Get("Mcp-Session-Id"); v.web != nil && id != "" {
		v.web.sticky.Set("Mcp-Session-Id", id)
	}
}

func pingFirst(ctx context.Context, v *visit) {
	a := v.call(ctx, mcp.MethodPing, nil)
	if !v.ended(&a, "ping before initialize") && a.failed() {
		v.r.journal.excuse(a.at)
		v.find("ping-first", &a, "it %s", v.outcome(&a))
	}
}

func listFirst(ctx context.Context, v *visit) {
	a := v.call(ctx, mcp.MethodToolsList, nil, func(q *question) {
		if v.pipe != nil && v.pipe.spoke {
			q.wait = min(probeWait, v.r.opts.Timeout)
		}
	})
	if v.pipe != nil && !v.link.alive() {
		v.ended(&a, "tools/list before initialize")
	}
	if a.fate == silent {
		v.r.journal.excuse(a.asked)
	}
	if a.succeeded() {
		v.r.journal.excuse(a.at)
		v.find("before-initialize", &a, "tools/list is answered with a result")
	}
}

func secondInitialize(ctx context.Context, v *visit) {
	a := v.call(ctx, mcp.MethodInitialize, v.r.initialize(v.rev.String()), func(q *question) { q.wait = min(probeWait, v.r.opts.Timeout) })
	if !v.ended(&a, "a second initialize") && a.succeeded() {
		v.find("second-initialize", &a, "it is answered with a result")
	}
	if a.fate == silent {
		v.r.journal.excuse(a.asked)
	}
}
