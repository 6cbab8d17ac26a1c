package probe

import (
	"context"
	"net/http"

	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

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
		{"a request with a wrong MCP-Protocol-Version", mcp.MethodDiscover, nil, func(h http.Header) { h.Set("MCP-Protocol-Version", mcp.Revision20251125.String()) }},
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
