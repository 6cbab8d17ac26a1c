package check

import (
	"mime"
	"net/url"
	"strings"

	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

// isPost reports whether the message is the first one in the body of a Streamable HTTP POST with a
// known head.
func (v *view) isPost() bool {
	return v.exchange != nil && v.exchange.method == "POST" && v.exchange.posted == 0 && v.session.transport == transportHTTP
}

// accepts reports whether Accept fields allow a media type.
func accepts(fields []field, kind string) bool {
	group, _, _ := strings.Cut(kind, "/")
	for _, f := range fields {
		if f.redacted {
			return true
		}
		for part := range strings.SplitSeq(f.value, ",") {
			t, _, err := mime.ParseMediaType(strings.TrimSpace(part))
			if err == nil && (t == kind || t == group+"/*" || t == "*/*") {
				return true
			}
		}
	}
	return false
}

// rulesHTTPRequest returns the rules about requests over Streamable HTTP, except for headers that
// repeat the body.
func rulesHTTPRequest() []rule {
	return []rule{{
		ID: "http/accept", Severity: Error, Revisions: hasStreamableHTTP,
		Title: "A POST does not accept both JSON and event streams",
		Why:   "The server chooses how it responds; if it chooses a type that the client did not name, it may reject the request with 406.",
		Fix:   "Send Accept: application/json, text/event-stream with every POST.",
		URL:   "basic/transports#sending-messages-to-the-server",
		Good:  Example{rev20251125, "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\n  Accept: text/event-stream;q=0.5, application/json\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}"},
		Bad:   Example{rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n  Accept: application/json\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		kinds: kindAny, dir: capture.ToServer,
		check: func(v *view) {
			if !v.isPost() {
				return
			}
			accept := v.exchange.requestFields("Accept")
			for _, kind := range []string{"application/json", "text/event-stream"} {
				if !accepts(accept, kind) {
					v.report("", "this POST does not accept %s", kind)
				}
			}
		},
	}, {
		ID: "http/get-accept", Severity: Error, Revisions: hasSessions,
		Title:  "A GET does not accept an event stream",
		Why:    "The only successful response to a GET is an event stream.",
		Fix:    "Send Accept: text/event-stream with the GET.",
		URL:    "basic/transports#listening-for-messages-from-the-server",
		Good:   Example{rev20251125, "http\ninit\nget\nstream\nend"},
		Bad:    Example{rev20251125, "http\ninit\nget\n  Accept: application/json\nreply 405"},
		events: []capture.Kind{capture.KindRequest},
		check: func(v *view) {
			if v.exchange != nil && v.exchange.method == "GET" && v.exchange.requestHeader("Mcp-Session-Id") != "" && !accepts(v.exchange.requestFields("Accept"), "text/event-stream") {
				v.add("", "this GET within a session does not accept text/event-stream")
			}
		},
	}, {
		ID: "http/version-header-missing", Severity: Error, Revisions: hasStructuredOutput,
		Title: "A request has no header MCP-Protocol-Version",
		Why:   "A server with no other way to tell treats the request as one of an older revision, or rejects it.",
		Fix:   "Send the negotiated version with each request after initialize; where requests have metadata, send its version with every POST.",
		URL:   "basic/transports#protocol-version-header",
		Good:  Example{rev20260728, "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}"},
		Bad:   Example{rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n  -MCP-Protocol-Version\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		kinds: kindAny, dir: capture.ToServer,
		check: func(v *view) {
			if v.isPost() && len(v.exchange.requestFields("MCP-Protocol-Version")) == 0 && (v.modern || v.session.initializeResult != 0 && v.msg.method != mcp.MethodInitialize) {
				v.report("", "this POST has no header MCP-Protocol-Version; the session uses %s", v.rev)
			}
		},
	}, {
		ID: "http/version-header-mismatch", Severity: Error, Revisions: modernRevisions,
		Title: "The header MCP-Protocol-Version differs from the metadata",
		Why:   "A proxy that only reads headers would apply another version than the server; the server must reject the request.",
		Fix:   "Send the value of io.modelcontextprotocol/protocolVersion in params._meta as the header.",
		URL:   "basic/transports/streamable-http#protocol-version-header",
		Good:  Example{rev20260728, "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}"},
		Bad:   Example{rev20260728, "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{$meta}}}\n  MCP-Protocol-Version: draft"},
		kinds: kindCall, dir: capture.ToServer,
		check: func(v *view) {
			header, date := v.exchange.requestHeader("MCP-Protocol-Version"), metaVersion(v.msg)
			if v.isPost() && header != "" && date != nil && header != jsonwire.Text(date) {
				v.report("/params/_meta", "the header says %s, but the metadata says %s", show(header), showJSON(date))
			}
		},
	}, {
		ID: "http/version-header-other", Severity: Warning, Revisions: hasNegotiatedVersionHeader,
		Title: "The header MCP-Protocol-Version differs from the negotiated version",
		Why:   "The server may use the header instead of the handshake.",
		Fix:   "Send the protocolVersion of the server's initialize result.",
		URL:   "basic/transports#protocol-version-header",
		Good:  Example{rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:   Example{rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n  MCP-Protocol-Version: " + rev20250618.String() + "\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		kinds: kindAny, dir: capture.ToServer,
		check: func(v *view) {
			header := v.exchange.requestHeader("MCP-Protocol-Version")
			if v.isPost() && !v.modern && v.session.initializeResult != 0 && v.session.certain && header != "" && header != v.session.serverVersion && v.msg.method != mcp.MethodInitialize {
				v.report("", "the header says %s; %s was negotiated", show(header), show(v.session.serverVersion)).with(v.session.initializeResult)
			}
		},
	}, {
		ID: "http/token-in-query", Severity: Error, Revisions: hasStreamableHTTP,
		Title: "The URL contains an access token",
		Why:   "URLs are kept in logs and histories, and everyone who can read those can use the token.",
		Fix:   "Send the token in the header Authorization, and nowhere else.",
		URL:   "basic/authorization#token-requirements",
		Good:  Example{rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n  Authorization: Bearer x\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:   Example{rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n  :path: /mcp?access_token=x\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		kinds: kindAny, dir: capture.ToServer,
		check: func(v *view) {
			if !v.isPost() {
				return
			}
			if _, query, ok := strings.Cut(v.exchange.url, "?"); ok {
				if values, err := url.ParseQuery(query); err == nil && values.Has("access_token") {
					v.report("", "the URL has the parameter access_token")
				}
			}
		},
	}, {
		ID: "http/content-type", Severity: Warning, Revisions: hasStreamableHTTP,
		Title: "The body of a POST is not declared as JSON",
		Why:   "Servers reject it with 415, to keep out simple requests of web pages.",
		Fix:   "Send Content-Type: application/json.",
		URL:   "basic/transports#sending-messages-to-the-server",
		Good:  Example{rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n  Content-Type: application/json; charset=utf-8\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:   Example{rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n  Content-Type: text/plain\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		kinds: kindAny, dir: capture.ToServer,
		check: func(v *view) {
			if !v.isPost() {
				return
			}
			if t, _, _ := mime.ParseMediaType(v.exchange.requestHeader("Content-Type")); t != "application/json" {
				v.report("", "the Content-Type of this body is %s", show(v.exchange.requestHeader("Content-Type")))
			}
		},
	}}
}
