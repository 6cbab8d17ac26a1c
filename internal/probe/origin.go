package probe

import (
	"context"
	"net/http"

	"mcpwire/check"
)

// rulesOrigin are the rules about pages that reach for servers.
var rulesOrigin = []check.Rule{
	{
		ID: "probe/origin", Severity: check.Error,
		Title: "A server on this machine takes requests of any web page",
		Why:   "A page that the user visits can reach the server through the browser, by DNS rebinding, and call its tools.",
		Fix:   "Answer 403 to an Origin that is not on a list; requests without one are no browser's.",
		URL:   "basic/transports/streamable-http#security-warning",
		Good:  check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}\n  Origin+: http://evil.invalid\nreply 403"},
		Bad:   check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}\n  Origin+: http://evil.invalid\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"resultType\":\"complete\",\"supportedVersions\":[\"$rev\"],\"capabilities\":{},\"ttlMs\":0,\"cacheScope\":\"public\"}}"},
	},
	{
		ID: "probe/origin-remote", Severity: check.Info,
		Title: "Requests of any web page are taken",
		Why:   "A server that is open to all pages may mean it so; one that knows its users by cookies, or by the network they are in, must not.",
		Fix:   "Answer 403 to an Origin that is not on a list.",
		URL:   "basic/transports/streamable-http#security-warning",
		Good:  check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}\n  Origin+: http://evil.invalid\nreply 403"},
		Bad:   check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}\n  Origin+: http://evil.invalid\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"resultType\":\"complete\",\"supportedVersions\":[\"$rev\"],\"capabilities\":{},\"ttlMs\":0,\"cacheScope\":\"public\"}}"},
	},
	{
		ID: "probe/origin-status", Severity: check.Error, Revisions: hasOriginStatus,
		Title: "A foreign Origin is refused with another status than 403",
		Why:   "Clients tell by it what to mend: at 400 and 404 they try older protocols.",
		Fix:   "Answer 403.",
		URL:   "basic/transports/streamable-http#security-warning",
		Good:  check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}\n  Origin+: http://evil.invalid\nreply 403"},
		Bad:   check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}\n  Origin+: http://evil.invalid\nreply 400"},
	},
	{
		ID: "probe/host", Severity: check.Info,
		Title: "A server on this machine does not look at Host",
		Why:   "With DNS rebinding, requests of foreign pages come with a foreign Host. Origin is there too, but not for all kinds of requests.",
		Fix:   "Answer 403 to hosts other than localhost, 127.0.0.1 and [::1] while listening on loopback.",
		URL:   "basic/transports/streamable-http#security-warning",
		Good:  check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}\n  Host: evil.invalid\nreply 403"},
		Bad:   check.Example{Revision: rev20260728, Text: "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}\n  Host: evil.invalid\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"resultType\":\"complete\",\"supportedVersions\":[\"$rev\"],\"capabilities\":{},\"ttlMs\":0,\"cacheScope\":\"public\"}}"},
	},
}

// origins asks as a foreign page would.
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
		return // behind proxies, it is they who look at Host
	}
	a = d.send(ctx, outgoing{body: d.harmlessRequest(d.nextID()), id: d.lastID(), host: hostileHost})
	if !d.connectionEnded(&a, "a foreign Host") && a.succeeded() {
		d.report("host", &a, "a request with Host: %s is answered with a result", hostileHost)
	}
}
