package probe

import (
	"context"
	"net/http"

	"mcpwire/check"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// rulesHTTP are the rules about HTTP requests.
var rulesHTTP = []check.Rule{
	{
		ID: "probe/http-body", Severity: check.Error,
		Title: "A body that is no message is accepted",
		Why:   "The client takes the status for a promise that its message was understood.",
		Fix:   "Answer 400 with -32700 to what is no JSON, and with -32600 to JSON that is no message.",
		URL:   "basic/transports/streamable-http#sending-messages",
		Good:  check.Example{Revision: rev20260728, Text: "http\npost hello\nreply 400 {\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32700,\"message\":\"parse error\"}}"},
		Bad:   check.Example{Revision: rev20260728, Text: "http\npost hello\nreply 202"},
	},
	{
		ID: "probe/http-5xx", Severity: check.Warning,
		Title: "A mistake of the client is answered with a status of the 500s",
		Why:   "Clients and proxies take it for a fault of the server, try again, and alarms go off.",
		Fix:   "Answer 400 to what cannot be read.",
		URL:   "basic/transports/streamable-http#sending-messages",
		Good:  check.Example{Revision: rev20260728, Text: "http\npost hello\nreply 400 {\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32700,\"message\":\"parse error\"}}"},
		Bad:   check.Example{Revision: rev20260728, Text: "http\npost hello\nreply 500"},
	},
	{
		ID: "probe/http-lenient", Severity: check.Info,
		Title: "A request with a wrong Accept or Content-Type is carried out",
		Why:   "Browsers send text/plain to other sites without asking first, so that a strict Content-Type keeps pages out. The specification leaves open what is due.",
		Fix:   "Answer 415 to anything but application/json, and 406 to clients that do not accept both kinds of answer.",
		URL:   "basic/transports/streamable-http#sending-messages",
		Good:  check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}\n  Content-Type: text/plain\nreply 415"},
		Bad:   check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}\n  Content-Type: text/plain\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"resultType\":\"complete\",\"supportedVersions\":[\"$rev\"],\"capabilities\":{},\"ttlMs\":0,\"cacheScope\":\"public\"}}"},
	},
	{
		ID: "probe/header-spelling", Severity: check.Error, Revisions: modern,
		Title: "A header that is right, but written in another way, is refused",
		Why:   "Names of headers have no case, spaces around values do not count, and values that do not fit into a header come in base64: proxies change all of it.",
		Fix:   "Compare names without regard to case, trim values, and decode =?base64?…?= before comparing.",
		URL:   "basic/transports/streamable-http#custom-header-values",
		Good:  check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"nobody\",\"_meta\":{$meta}}}\n  Mcp-Name: =?base64?bm9ib2R5?=\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"unknown tool\"}}"},
		Bad:   check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"nobody\",\"_meta\":{$meta}}}\n  Mcp-Name: =?base64?bm9ib2R5?=\nreply 400 {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32020,\"message\":\"Mcp-Name differs\"}}"},
	},
	{
		ID: "probe/http-method", Severity: check.Warning, Revisions: modern,
		Title: "GET or DELETE is not answered with 405",
		Why:   "It tells clients of the legacy era at once that there are no streams and sessions here.",
		Fix:   "Answer 405 to everything but POST.",
		URL:   "basic/transports/streamable-http",
		Good:  check.Example{Revision: rev20260728, Text: "http\nget\nreply 405"},
		Bad:   check.Example{Revision: rev20260728, Text: "http\nget\nreply 500"},
	},
}

// badBodies posts what is no message.
func badBodies(ctx context.Context, d *driver) {
	for _, bad := range []struct {
		about, body string
		codes       []jsonrpc.Code
	}{
		{"a body that is no JSON", "this is no JSON {", []jsonrpc.Code{jsonrpc.CodeParseError}},
		{"a number", "42", []jsonrpc.Code{jsonrpc.CodeInvalidRequest, jsonrpc.CodeParseError}},
		{"an object without anything", "{}", []jsonrpc.Code{jsonrpc.CodeInvalidRequest, jsonrpc.CodeParseError}},
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

// badHeaders asks for something harmless with headers that do not go with it.
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
			d.report("http-lenient", &a, "a request with %s: %s is answered with a result", bad.name, bad.value)
		}
	}
}

// wrongHeaders sends modern requests whose headers say something else than their bodies. That one is carried out, package check says.
func wrongHeaders(ctx context.Context, d *driver) {
	name := func(n string) object { return object{"name": n, "arguments": object{}} }
	for _, bad := range []struct {
		about, method string
		params        object
		header        func(http.Header)
	}{
		{"a request without Mcp-Method", mcp.MethodDiscover, nil, func(h http.Header) { h.Del("Mcp-Method") }},
		{"a request with another Mcp-Method", mcp.MethodDiscover, nil, func(h http.Header) { h.Set("Mcp-Method", mcp.MethodToolsList) }},
		{"a request with Mcp-Method in capital letters", mcp.MethodDiscover, nil, func(h http.Header) { h.Set("Mcp-Method", "SERVER/DISCOVER") }},
		{"a request with another MCP-Protocol-Version", mcp.MethodDiscover, nil, func(h http.Header) { h.Set("MCP-Protocol-Version", rev20251125.String()) }},
		{"a request with another Mcp-Name", mcp.MethodToolsCall, name(noSuchTool), func(h http.Header) { h.Set("Mcp-Name", "other") }},
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

// headerSpelling writes right headers in other ways.
func headerSpelling(ctx context.Context, d *driver) {
	const encoded = "=?base64?bWNwd2lyZS1wcm9iZS1uby1zdWNoLXRvb2wtN2YzYQ==?=" // noSuchTool
	for _, good := range []struct {
		about  string
		header func(http.Header)
	}{
		{"Mcp-Name in base64", func(h http.Header) { h.Set("Mcp-Name", encoded) }},
		{"the names of headers in capital letters", func(h http.Header) {
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

// otherMethods asks by GET and DELETE, for which modern servers have nothing. One that speaks a legacy revision too may.
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
