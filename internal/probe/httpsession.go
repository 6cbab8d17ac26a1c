package probe

import (
	"context"
	"net/http"

	"mcpwire/check"
	"mcpwire/mcp"
)

// rulesSession are the rules about sessions and the version over HTTP.
var rulesSession = []check.Rule{
	{
		ID: "probe/session-missing", Severity: check.Warning, Revisions: hasSessions,
		Title: "A request without the session's id is carried out",
		Why:   "The server has given the client an id, so it cannot know whose request this is.",
		Fix:   "Answer 400 to requests without Mcp-Session-Id, but for initialize.",
		URL:   "basic/transports#session-management",
		Good:  check.Example{Revision: rev20251125, Text: "http\ninit\nsession S1\npost {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}\n  -Mcp-Session-Id\nreply 400"},
		Bad:   check.Example{Revision: rev20251125, Text: "http\ninit\nsession S1\npost {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}\n  -Mcp-Session-Id\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{}}"},
	},
	{
		ID: "probe/session-unknown", Severity: check.Warning, Revisions: hasSessions,
		Title: "A request with a session's id that the server never gave is carried out",
		Why:   "Ids are the only thing that keeps sessions apart: one that is made up must not open any.",
		Fix:   "Answer 404 to ids that are not known.",
		URL:   "basic/transports#session-management",
		Good:  check.Example{Revision: rev20251125, Text: "http\ninit\nsession nobodys\npost {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}\nreply 404"},
		Bad:   check.Example{Revision: rev20251125, Text: "http\ninit\nsession nobodys\npost {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{}}"},
	},
	{
		ID: "probe/session-status", Severity: check.Error, Revisions: hasSessions,
		Title: "The id of a session that has ended is not answered with 404",
		Why:   "404 is what tells clients to begin a new session. At any other status they go on with the old one, and nothing works any more.",
		Fix:   "Answer 404 to the id of a session that has ended.",
		URL:   "basic/transports#session-management",
		Good:  check.Example{Revision: rev20251125, Text: "http\ninit\ndelete\nreply 200\npost {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}\nreply 404"},
		Bad:   check.Example{Revision: rev20251125, Text: "http\ninit\ndelete\nreply 200\npost {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}\nreply 400"},
	},
	{
		ID: "probe/version-status", Severity: check.Error, Revisions: hasVersionHeader,
		Title: "A version in the header that does not exist is not answered with 400",
		Why:   "Clients take other statuses for something else: 404 for a session that has ended, 500 for a fault.",
		Fix:   "Answer 400 to a MCP-Protocol-Version that the server does not speak.",
		URL:   "basic/transports#protocol-version-header",
		Good:  check.Example{Revision: rev20251125, Text: "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}\n  MCP-Protocol-Version: 1999-12-31\nreply 400"},
		Bad:   check.Example{Revision: rev20251125, Text: "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}\n  MCP-Protocol-Version: 1999-12-31\nreply 500"},
	},
	{
		ID: "probe/version-absent", Severity: check.Warning, Revisions: hasVersionHeader,
		Title: "A request without MCP-Protocol-Version is refused",
		Why:   "Older clients do not know the header. Servers should take them for such.",
		Fix:   "Assume the version of the session, or the last one that had no header.",
		URL:   "basic/transports#protocol-version-header",
		Good:  check.Example{Revision: rev20251125, Text: "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}\n  -MCP-Protocol-Version\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}\n  -MCP-Protocol-Version\nreply 400"},
	},
}

// sessions tries ids of sessions that are missing, made up and over.
func sessions(ctx context.Context, d *driver) {
	if d.http.sessionHeader.Get("Mcp-Session-Id") == "" {
		return
	}
	ping := func(header func(http.Header)) reply {
		return d.call(ctx, mcp.MethodPing, nil, func(q *outgoing) { q.header = header })
	}
	a := ping(func(h http.Header) { h.Del("Mcp-Session-Id") })
	if !d.connectionEnded(&a, "a request without the session's id") && a.succeeded() {
		d.report("session-missing", &a, "ping without Mcp-Session-Id is answered with a result")
	}
	a = ping(func(h http.Header) { h.Set("Mcp-Session-Id", "mcpwire-probe-nobodys") })
	if !d.connectionEnded(&a, "a session's id that was made up") && a.succeeded() {
		d.report("session-unknown", &a, "ping with an id that was made up is answered with a result")
	}
	gone := d.send(ctx, outgoing{method: http.MethodDelete})
	if gone.status < 200 || gone.status > 299 {
		return
	}
	a = ping(nil)
	if !d.connectionEnded(&a, "the id of a session that has ended") && !a.succeeded() && a.status != http.StatusNotFound {
		d.report("session-status", &a, "after DELETE, ping %s", d.outcomeText(&a))
	}
	d.http.sessionHeader.Del("Mcp-Session-Id")
}

// versionHeader sends a version that does not exist, and none.
func versionHeader(ctx context.Context, d *driver) {
	if d.http.sessionHeader.Get("MCP-Protocol-Version") == "" {
		return
	}
	a := d.call(ctx, mcp.MethodPing, nil, func(q *outgoing) {
		q.header = func(h http.Header) { h.Set("MCP-Protocol-Version", noSuchVersion) }
	})
	if !d.connectionEnded(&a, "a version that does not exist") && !a.succeeded() && a.status != http.StatusBadRequest {
		d.report("version-status", &a, "MCP-Protocol-Version: %s %s", noSuchVersion, d.outcomeText(&a))
	}
	a = d.call(ctx, mcp.MethodPing, nil, func(q *outgoing) {
		q.header = func(h http.Header) { h.Del("MCP-Protocol-Version") }
	})
	if !d.connectionEnded(&a, "a request without a version") && !a.succeeded() {
		d.report("version-absent", &a, "ping without MCP-Protocol-Version %s", d.outcomeText(&a))
	}
}

// getStream opens the stream of the session, which package check judges.
func getStream(ctx context.Context, d *driver) {
	a := d.send(ctx, outgoing{method: http.MethodGet})
	d.connectionEnded(&a, "GET")
}
