package probe

import (
	"context"
	"net/http"

	"mcpwire/check"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// rulesHTTP are the rules about HTTP requests.
var rulesHTTP = []check.Rule{
	{
		ID: "probe/http-body", Severity: check.Error,
		Title: "A body that is not a message is accepted",
		Why:   "The client concludes from the status that the server understood its message.",
		Fix:   "Respond with 400 and -32700 to invalid JSON, and with 400 and -32600 to JSON that is not a message.",
		URL:   "basic/transports/streamable-http#sending-messages",
		Good:  check.Example{Revision: rev20260728, Text: "http\npost hello\nreply 400 {\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32700,\"message\":\"parse error\"}}"},
		Bad:   check.Example{Revision: rev20260728, Text: "http\npost hello\nreply 202"},
	},
	{
		ID: "probe/http-5xx", Severity: check.Warning,
		Title: "A client error gets a 5xx status",
		Why:   "Clients and proxies treat it as a server error, try again, and alert operators.",
		Fix:   "Respond with 400 to unreadable bodies.",
		URL:   "basic/transports/streamable-http#sending-messages",
		Good:  check.Example{Revision: rev20260728, Text: "http\npost hello\nreply 400 {\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32700,\"message\":\"parse error\"}}"},
		Bad:   check.Example{Revision: rev20260728, Text: "http\npost hello\nreply 500"},
	},
	{
		ID: "probe/http-lenient", Severity: check.Info,
		Title: "A request with a wrong Accept or Content-Type is accepted",
		Why:   "Browsers send text/plain to other sites without a preflight, so a strict Content-Type keeps web pages out. The specification does not say how to respond.",
		Fix:   "Respond with 415 to anything but application/json, and with 406 to clients that do not accept both response types.",
		URL:   "basic/transports/streamable-http#sending-messages",
		Good:  check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}\n  Content-Type: text/plain\nreply 415"},
		Bad:   check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}\n  Content-Type: text/plain\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"resultType\":\"complete\",\"supportedVersions\":[\"$rev\"],\"capabilities\":{},\"ttlMs\":0,\"cacheScope\":\"public\"}}"},
	},
	{
		ID: "probe/header-spelling", Severity: check.Error, Revisions: modern,
		Title: "A valid header in another spelling is rejected",
		Why:   "Header names are case-insensitive, spaces around values are ignored, and values that a header cannot contain are in base64: proxies change the spelling.",
		Fix:   "Compare names without regard to case, trim values, and decode =?base64?…?= before comparing.",
		URL:   "basic/transports/streamable-http#custom-header-values",
		Good:  check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"nobody\",\"_meta\":{$meta}}}\n  Mcp-Name: =?base64?bm9ib2R5?=\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"unknown tool\"}}"},
		Bad:   check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"nobody\",\"_meta\":{$meta}}}\n  Mcp-Name: =?base64?bm9ib2R5?=\nreply 400 {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32020,\"message\":\"Mcp-Name differs\"}}"},
	},
	{
		ID: "probe/http-method", Severity: check.Warning, Revisions: modern,
		Title: "GET or DELETE does not get 405",
		Why:   "It tells legacy clients at once that the server has no streams and sessions.",
		Fix:   "Respond with 405 to every method but POST.",
		URL:   "basic/transports/streamable-http",
		Good:  check.Example{Revision: rev20260728, Text: "http\nget\nreply 405"},
		Bad:   check.Example{Revision: rev20260728, Text: "http\nget\nreply 500"},
	},
}

// badBodies posts bodies that are not messages.
func badBodies(ctx context.Context, d *driver) {
	for _, bad := range []struct {
		about, body string
		codes       []jsonrpc.Code
	}{
		{"a body that is not JSON", "this is not JSON {", []jsonrpc.Code{jsonrpc.CodeParseError}},
		{"a number", "42", []jsonrpc.Code{jsonrpc.CodeInvalidRequest, jsonrpc.CodeParseError}},
		{"an empty object", "{}", []jsonrpc.Code{jsonrpc.CodeInvalidRequest, jsonrpc.CodeParseError}},
	} {
		a := d.send(ctx, outgoing{body: []byte(bad.body), anyID: true})
		switch {
		case d.connectionEnded(&a, bad.about):
		case a.status >= 500:
			d.report("http-5xx", &a, "%s %s", bad.about, d.outcomeText(&a))
		case a.status < 300 && !a.failed():
			d.report("http-body", &a, "%s %s", bad.about, d.outcomeText(&a))
		}
	}
}

// badHeaders sends a harmless request with wrong headers.
func badHeaders(ctx context.Context, d *driver) {
	for _, bad := range []struct{ name, value string }{
		{"Content-Type", "text/plain"}, {"Accept", "text/html"}, {"Accept", "application/json"},
	} {
		a := d.send(ctx, outgoing{body: d.harmlessRequest(d.nextID()), id: d.lastID(), header: func(h http.Header) { h.Set(bad.name, bad.value) }})
		switch {
		case d.connectionEnded(&a, bad.name+": "+bad.value):
		case a.status >= 500:
			d.report("http-5xx", &a, "%s: %s %s", bad.name, bad.value, d.outcomeText(&a))
		case a.succeeded():
			d.report("http-lenient", &a, "a request with %s: %s got a result", bad.name, bad.value)
		}
	}
}

// wrongHeaders sends modern requests with headers that contradict the body. Package check reports
// those that succeed.
func wrongHeaders(ctx context.Context, d *driver) {
	name := func(n string) object { return object{"name": n, "arguments": object{}} }
	for _, bad := range []struct {
		about, method string
		params        object
		header        func(http.Header)
	}{
		{"a request without Mcp-Method", mcp.MethodDiscover, nil, func(h http.Header) { h.Del("Mcp-Method") }},
		{"a request with a wrong Mcp-Method", mcp.MethodDiscover, nil, func(h http.Header) { h.Set("Mcp-Method", mcp.MethodToolsList) }},
		{"a request with Mcp-Method in upper case", mcp.MethodDiscover, nil, func(h http.Header) { h.Set("Mcp-Method", "SERVER/DISCOVER") }},
		{"a request with a wrong MCP-Protocol-Version", mcp.MethodDiscover, nil, func(h http.Header) { h.Set("MCP-Protocol-Version", rev20251125.String()) }},
		{"a request with a wrong Mcp-Name", mcp.MethodToolsCall, name(noSuchTool), func(h http.Header) { h.Set("Mcp-Name", "other") }},
		{"a request without Mcp-Name", mcp.MethodToolsCall, name(noSuchTool), func(h http.Header) { h.Del("Mcp-Name") }},
	} {
		if bad.method == mcp.MethodToolsCall && !d.has("tools") {
			continue
		}
		a := d.call(ctx, bad.method, bad.params, func(q *outgoing) { q.header = bad.header })
		if !d.connectionEnded(&a, bad.about) {
			d.modernRefusal(&a, bad.about, 400, mcp.CodeHeaderMismatch)
		}
	}
}

// headerSpelling sends correct headers in other spellings.
func headerSpelling(ctx context.Context, d *driver) {
	const encoded = "=?base64?bWNwd2lyZS1wcm9iZS1uby1zdWNoLXRvb2wtN2YzYQ==?=" // of noSuchTool
	for _, good := range []struct {
		about  string
		header func(http.Header)
	}{
		{"Mcp-Name in base64", func(h http.Header) { h.Set("Mcp-Name", encoded) }},
		{"header names in upper case", func(h http.Header) {
			h["MCP-METHOD"] = h["Mcp-Method"]
			h["MCP-NAME"] = h["Mcp-Name"]
			h.Del("Mcp-Method")
			h.Del("Mcp-Name")
		}},
	} {
		if !d.has("tools") {
			return
		}
		a := d.call(ctx, mcp.MethodToolsCall, object{"name": noSuchTool, "arguments": object{}}, func(q *outgoing) { q.header = good.header })
		if !d.connectionEnded(&a, good.about) && a.failed(mcp.CodeHeaderMismatch) {
			d.report("header-spelling", &a, "%s: the request %s", good.about, d.outcomeText(&a))
		}
	}
}

// otherMethods sends GET and DELETE, which modern servers do not support. A server that also
// supports a legacy revision may.
func otherMethods(ctx context.Context, d *driver) {
	for _, rev := range d.r.supported() {
		if r, ok := mcp.ParseRevision(rev); ok && !r.Modern() {
			return
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		a := d.send(ctx, outgoing{method: method})
		if !d.connectionEnded(&a, method) && a.status != http.StatusMethodNotAllowed {
			d.report("http-method", &a, "%s %s", method, d.outcomeText(&a))
		}
	}
}

// rulesSession are the rules about sessions and the version header.
var rulesSession = []check.Rule{
	{
		ID: "probe/session-missing", Severity: check.Warning, Revisions: hasSessions,
		Title: "A request without a session id is accepted",
		Why:   "The server has assigned an id to the client, so without it the server cannot tell which session the request belongs to.",
		Fix:   "Respond with 400 to requests without Mcp-Session-Id, except initialize.",
		URL:   "basic/transports#session-management",
		Good:  check.Example{Revision: rev20251125, Text: "http\ninit\nsession S1\npost {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}\n  -Mcp-Session-Id\nreply 400"},
		Bad:   check.Example{Revision: rev20251125, Text: "http\ninit\nsession S1\npost {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}\n  -Mcp-Session-Id\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{}}"},
	},
	{
		ID: "probe/session-unknown", Severity: check.Warning, Revisions: hasSessions,
		Title: "A request with an unknown session id is accepted",
		Why:   "Only the id separates sessions: an invented one must not open any.",
		Fix:   "Respond with 404 to unknown ids.",
		URL:   "basic/transports#session-management",
		Good:  check.Example{Revision: rev20251125, Text: "http\ninit\nsession nobodys\npost {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}\nreply 404"},
		Bad:   check.Example{Revision: rev20251125, Text: "http\ninit\nsession nobodys\npost {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{}}"},
	},
	{
		ID: "probe/session-status", Severity: check.Error, Revisions: hasSessions,
		Title: "The id of an ended session does not get 404",
		Why:   "404 tells clients to start a new session. At any other status they continue with the old one, and every request fails.",
		Fix:   "Respond with 404 to the id of a session that has ended.",
		URL:   "basic/transports#session-management",
		Good:  check.Example{Revision: rev20251125, Text: "http\ninit\ndelete\nreply 200\npost {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}\nreply 404"},
		Bad:   check.Example{Revision: rev20251125, Text: "http\ninit\ndelete\nreply 200\npost {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}\nreply 400"},
	},
	{
		ID: "probe/version-status", Severity: check.Error, Revisions: hasVersionHeader,
		Title: "An unknown version in the header does not get 400",
		Why:   "Clients interpret other statuses differently: 404 as an ended session, 500 as a server error.",
		Fix:   "Respond with 400 to an MCP-Protocol-Version that the server does not speak.",
		URL:   "basic/transports#protocol-version-header",
		Good:  check.Example{Revision: rev20251125, Text: "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}\n  MCP-Protocol-Version: 1999-12-31\nreply 400"},
		Bad:   check.Example{Revision: rev20251125, Text: "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}\n  MCP-Protocol-Version: 1999-12-31\nreply 500"},
	},
	{
		ID: "probe/version-absent", Severity: check.Warning, Revisions: hasVersionHeader,
		Title: "A request without MCP-Protocol-Version is rejected",
		Why:   "Older clients do not know the header. Servers should treat such clients as older ones.",
		Fix:   "Assume the version of the session, or the last version without the header.",
		URL:   "basic/transports#protocol-version-header",
		Good:  check.Example{Revision: rev20251125, Text: "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}\n  -MCP-Protocol-Version\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}\n  -MCP-Protocol-Version\nreply 400"},
	},
}

// sessions sends missing, invented and expired session ids.
func sessions(ctx context.Context, d *driver) {
	if d.http.SessionHeader(wireclient.HeaderSession) == "" {
		return
	}
	ping := func(header func(http.Header)) reply {
		return d.call(ctx, mcp.MethodPing, nil, func(q *outgoing) { q.header = header })
	}
	a := ping(func(h http.Header) { h.Del("Mcp-Session-Id") })
	if !d.connectionEnded(&a, "a request without a session id") && a.succeeded() {
		d.report("session-missing", &a, "ping without Mcp-Session-Id got a result")
	}
	a = ping(func(h http.Header) { h.Set("Mcp-Session-Id", "mcpwire-probe-nobodys") })
	if !d.connectionEnded(&a, "an invented session id") && a.succeeded() {
		d.report("session-unknown", &a, "ping with an invented session id got a result")
	}
	gone := d.send(ctx, outgoing{method: http.MethodDelete})
	if gone.status < 200 || gone.status > 299 {
		return
	}
	a = ping(nil)
	if !d.connectionEnded(&a, "the id of an ended session") && !a.succeeded() && a.status != http.StatusNotFound {
		d.report("session-status", &a, "after DELETE, ping %s", d.outcomeText(&a))
	}
	d.http.SetSessionHeader(wireclient.HeaderSession, "")
}

// versionHeader sends a version that does not exist, and no version.
func versionHeader(ctx context.Context, d *driver) {
	if d.http.SessionHeader(wireclient.HeaderVersion) == "" {
		return
	}
	a := d.call(ctx, mcp.MethodPing, nil, func(q *outgoing) {
		q.header = func(h http.Header) { h.Set("MCP-Protocol-Version", noSuchVersion) }
	})
	if !d.connectionEnded(&a, "an unknown version") && !a.succeeded() && a.status != http.StatusBadRequest {
		d.report("version-status", &a, "MCP-Protocol-Version: %s %s", noSuchVersion, d.outcomeText(&a))
	}
	a = d.call(ctx, mcp.MethodPing, nil, func(q *outgoing) {
		q.header = func(h http.Header) { h.Del("MCP-Protocol-Version") }
	})
	if !d.connectionEnded(&a, "a request without a version") && !a.succeeded() {
		d.report("version-absent", &a, "ping without MCP-Protocol-Version %s", d.outcomeText(&a))
	}
}

// getStream opens the stream of the session. Package check judges it.
func getStream(ctx context.Context, d *driver) {
	a := d.send(ctx, outgoing{method: http.MethodGet})
	d.connectionEnded(&a, "GET")
}

// rulesOrigin are the rules about requests from web pages.
var rulesOrigin = []check.Rule{
	{
		ID: "probe/origin", Severity: check.Error,
		Title: "A server on this machine accepts requests of any web page",
		Why:   "A page that the user visits can reach the server through the browser, by DNS rebinding, and call its tools.",
		Fix:   "Respond with 403 to an Origin that is not allowed; requests without Origin do not come from browsers.",
		URL:   "basic/transports/streamable-http#security-warning",
		Good:  check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}\n  Origin+: http://evil.invalid\nreply 403"},
		Bad:   check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}\n  Origin+: http://evil.invalid\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"resultType\":\"complete\",\"supportedVersions\":[\"$rev\"],\"capabilities\":{},\"ttlMs\":0,\"cacheScope\":\"public\"}}"},
	},
	{
		ID: "probe/origin-remote", Severity: check.Info,
		Title: "The server accepts requests of any web page",
		Why:   "This may be intended, but not for a server that identifies its users by cookies or by their network.",
		Fix:   "Respond with 403 to an Origin that is not allowed.",
		URL:   "basic/transports/streamable-http#security-warning",
		Good:  check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}\n  Origin+: http://evil.invalid\nreply 403"},
		Bad:   check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}\n  Origin+: http://evil.invalid\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"resultType\":\"complete\",\"supportedVersions\":[\"$rev\"],\"capabilities\":{},\"ttlMs\":0,\"cacheScope\":\"public\"}}"},
	},
	{
		ID: "probe/origin-status", Severity: check.Error, Revisions: hasOriginStatus,
		Title: "A foreign Origin is rejected with another status than 403",
		Why:   "Clients use the status to decide what to do: after 400 and 404 they try older protocols.",
		Fix:   "Respond with 403.",
		URL:   "basic/transports/streamable-http#security-warning",
		Good:  check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}\n  Origin+: http://evil.invalid\nreply 403"},
		Bad:   check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}\n  Origin+: http://evil.invalid\nreply 400"},
	},
	{
		ID: "probe/host", Severity: check.Info,
		Title: "A server on this machine does not check Host",
		Why:   "With DNS rebinding, requests of foreign pages have a foreign Host. They have an Origin too, but not in all requests.",
		Fix:   "Respond with 403 to hosts other than localhost, 127.0.0.1 and [::1] while listening on loopback.",
		URL:   "basic/transports/streamable-http#security-warning",
		Good:  check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}\n  Host: evil.invalid\nreply 403"},
		Bad:   check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}\n  Host: evil.invalid\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"resultType\":\"complete\",\"supportedVersions\":[\"$rev\"],\"capabilities\":{},\"ttlMs\":0,\"cacheScope\":\"public\"}}"},
	},
}

// origins sends requests as a foreign page would.
func origins(ctx context.Context, d *driver) {
	a := d.send(ctx, outgoing{body: d.harmlessRequest(d.nextID()), id: d.lastID(), header: func(h http.Header) { h.Set("Origin", hostileOrigin) }})
	rule := "origin-remote"
	if d.r.local() {
		rule = "origin"
	}
	switch {
	case d.connectionEnded(&a, "a foreign Origin"):
	case a.status < 300:
		d.report(rule, &a, "a request with Origin: %s %s", hostileOrigin, d.outcomeText(&a))
	case a.status != http.StatusForbidden:
		d.report("origin-status", &a, "a request with Origin: %s %s", hostileOrigin, d.outcomeText(&a))
	}
	if !d.r.local() {
		// For remote servers, the proxies check Host.
		return
	}
	a = d.send(ctx, outgoing{body: d.harmlessRequest(d.nextID()), id: d.lastID(), host: hostileHost})
	if !d.connectionEnded(&a, "a foreign Host") && a.succeeded() {
		d.report("host", &a, "a request with Host: %s got a result", hostileHost)
	}
}
