package check

import (
	"mime"

	"mcpwire/capture"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// body records the kinds of the posted messages.
type body struct{ kinds kind }

// observersHTTP records the facts that rules about responses need.
var observersHTTP = []observer{
	{kinds: kindAny, dir: capture.ToServer, observe: func(v *view) {
		if v.exchange != nil {
			stateOf[body](&v.exchange.state).kinds |= v.msg.kind
		}
	}},
	{events: []capture.Kind{capture.KindResponse}, observe: observeEnd},
	{events: []capture.Kind{capture.KindEnd, capture.KindSSE}, observe: observeStream},
	{kinds: kindAny, dir: capture.ToClient, observe: observeStream},
}

// expectsNoResponse reports whether only notifications and responses were posted, which get no
// response.
func (x *exchange) expectsNoResponse() bool {
	if x.method != "POST" || x.posted == 0 {
		return false
	}
	return stateOf[body](&x.state).kinds&^(kindNotification|kindResponse) == 0
}

func isSuccess(status int) bool { return status >= 200 && status <= 299 }

// mediaType returns the media type of the response, without parameters.
func (x *exchange) mediaType() string {
	t, _, _ := mime.ParseMediaType(x.responseHeader("Content-Type"))
	return t
}

// rulesHTTPResponse returns the rules about responses over Streamable HTTP, in all revisions that
// have it.
func rulesHTTPResponse() []rule {
	return []rule{{
		ID: "http/accepted-status", Severity: Error, Revisions: hasStreamableHTTP,
		Title:  "A notification or response is accepted with a status other than 202",
		Why:    "Clients treat 200 as a response and wait for its body, or report that it is missing.",
		Fix:    "Respond with 202 Accepted and no body to a POST that contains no request.",
		URL:    "basic/transports#sending-messages-to-the-server",
		Good:   Example{rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"method\":\"notifications/roots/list_changed\"}\nreply 202"},
		Bad:    Example{rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"method\":\"notifications/roots/list_changed\"}\nreply 200"},
		events: []capture.Kind{capture.KindResponse},
		check: func(v *view) {
			if v.session.transport == transportHTTP && v.exchange.expectsNoResponse() && isSuccess(v.exchange.status) && v.exchange.status != 202 {
				v.add("", "the POST contains no request, but the status is "+status(v.exchange.status)+", not 202")
			}
		},
	}, {
		ID: "http/accepted-body", Severity: Error, Revisions: hasStreamableHTTP,
		Title: "A notification or response gets a message in response",
		Why:   "No client waits for it.",
		Fix:   "Respond with 202 Accepted and no body to a POST that contains no request.",
		URL:   "basic/transports#sending-messages-to-the-server",
		Good:  Example{rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"method\":\"notifications/roots/list_changed\"}\nreply 202"},
		Bad:   Example{rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"method\":\"notifications/roots/list_changed\"}\nreply 202 {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}"},
		kinds: kindAny, dir: capture.ToClient,
		check: func(v *view) {
			if v.exchange != nil && v.session.transport == transportHTTP && v.exchange.expectsNoResponse() && isSuccess(v.exchange.status) {
				v.report("", "the POST contains no request, so the response must have no body")
			}
		},
	}, {
		ID: "http/reply-type", Severity: Error, Revisions: hasStreamableHTTP,
		Title:  "The response to a request is neither JSON nor an event stream",
		Why:    "Clients read nothing else, and report an unexpected content type.",
		Fix:    "Respond with Content-Type: application/json or text/event-stream.",
		URL:    "basic/transports#sending-messages-to-the-server",
		Good:   Example{rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:    Example{rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n  Content-Type: text/html"},
		events: []capture.Kind{capture.KindResponse},
		check: func(v *view) {
			if v.session.transport != transportHTTP || v.exchange.call == nil || v.exchange.status != 200 {
				return
			}
			if t := v.exchange.mediaType(); t != "application/json" && t != "text/event-stream" {
				v.add("", "the response has the Content-Type "+show(v.exchange.responseHeader("Content-Type")))
			}
		},
	}, {
		ID: "http/get-reply", Severity: Error, Revisions: hasSessions,
		Title:  "The response to a GET is not an event stream",
		Why:    "A client that requests a stream can only use a stream, or status 405, which means that the server has none.",
		Fix:    "Respond to the GET with text/event-stream, or with 405.",
		URL:    "basic/transports#listening-for-messages-from-the-server",
		Good:   Example{rev20251125, "http\ninit\nget\nreply 405"},
		Bad:    Example{rev20251125, "http\ninit\nget\nreply 200"},
		events: []capture.Kind{capture.KindResponse},
		check: func(v *view) {
			if v.exchange.method == "GET" && v.exchange.requestHeader("Mcp-Session-Id") != "" && isSuccess(v.exchange.status) && !v.exchange.isEventStream() {
				v.add("", "the response to the GET has status "+status(v.exchange.status)+" and the Content-Type "+show(v.exchange.responseHeader("Content-Type")))
			}
		},
	}, {
		ID: "http/response-on-get", Severity: Error, Revisions: hasSessions,
		Title: "A response is sent on the stream of a GET",
		Why:   "The client waits for it on the stream of its POST, and may not read it here.",
		Fix:   "Send a response on the stream of its request, or on the stream of a GET that resumes it with Last-Event-ID.",
		URL:   "basic/transports#listening-for-messages-from-the-server",
		Good:  Example{rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\nstream\nsse(id=1,data)\nend closed\nget\n  Last-Event-ID: 1\nstream\n<(id=2) {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\nend"},
		Bad:   Example{rev20251125, "http\ninit\nget\nstream\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n<(x=3,event=message) {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		kinds: kindResponse, dir: capture.ToClient,
		check: func(v *view) {
			if v.exchange != nil && v.exchange.method == "GET" && v.exchange.isEventStream() && v.session.transport == transportHTTP && v.exchange.requestHeader("Last-Event-ID") == "" {
				v.report("", "this response is on the stream of a GET that does not resume another stream")
			}
		},
	}, {
		ID: "http/status", Severity: Error, Revisions: modernRevisions,
		Title: "The status of an error does not match its code",
		Why:   "Clients and proxies use the status to tell whether a server is modern, and whether to try again.",
		Fix:   "Send -32601 with 404, and -32020, -32021 and -32022 with 400. Decide before sending the header of a stream.",
		URL:   "basic/transports/streamable-http#error-handling",
		Good:  Example{rev20260728, "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x/y\",\"params\":{\"_meta\":{$meta}}}\nreply 404 {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,\"message\":\"method not found\"}}"},
		Bad:   Example{rev20260728, "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x/y\",\"params\":{\"_meta\":{$meta}}}\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,\"message\":\"method not found\"}}"},
		kinds: kindError, dir: capture.ToClient,
		check: func(v *view) {
			if v.exchange == nil || v.call == nil || v.exchange.call != v.call || v.exchange.status == 0 {
				return
			}
			want := 0
			switch v.msg.code() {
			case int64(jsonrpc.CodeMethodNotFound):
				want = 404
			case int64(mcp.CodeHeaderMismatch), int64(mcp.CodeMissingRequiredClientCapability), int64(mcp.CodeUnsupportedProtocolVersion):
				want = 400
			}
			if want != 0 && v.exchange.status != want {
				v.report("/error/code", "the error with code %d has status %d; want %d", v.msg.code(), v.exchange.status, want)
			}
		},
	}, {
		ID: "http/version-accepted", Severity: Error, Revisions: hasNegotiatedVersionHeader,
		Title: "A request with an unknown version in its header succeeds",
		Why:   "Client and server then follow different rules without noticing.",
		Fix:   "Respond with 400 to an MCP-Protocol-Version that the server does not speak.",
		URL:   "basic/transports#protocol-version-header",
		Good:  Example{rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:   Example{rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n  MCP-Protocol-Version: tomorrow\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		kinds: kindResult, dir: capture.ToClient, consequences: []string{"http/version-header-other"},
		check: func(v *view) {
			header := v.exchange.requestHeader("MCP-Protocol-Version")
			if _, known := mcp.ParseRevision(header); header != "" && !known && v.call != nil && v.exchange.call == v.call {
				v.report("", "the request had the header MCP-Protocol-Version: %s, but got a result", show(header)).with(v.exchange.n)
			}
		},
	}, {
		ID: "http/challenge-missing", Severity: Warning, Revisions: hasStreamableHTTP,
		Title:  "A 401 does not say how to get authorization",
		Why:    "A client that does not know the authorization server must guess, and most give up.",
		Fix:    "Send WWW-Authenticate: Bearer with resource_metadata=\"…\" and the required scope.",
		URL:    "basic/authorization#protected-resource-metadata-discovery-requirements",
		Good:   Example{rev20251125, "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\nreply 401\n  WWW-Authenticate: Bearer resource_metadata=\"https://example.com/.well-known/oauth-protected-resource\""},
		Bad:    Example{rev20251125, "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\nreply 401"},
		events: []capture.Kind{capture.KindResponse},
		check: func(v *view) {
			if v.exchange.posted > 0 && v.exchange.status == 401 && len(v.exchange.responseFields("WWW-Authenticate")) == 0 {
				v.add("", "the status is 401, but the header WWW-Authenticate is missing")
			}
		},
	}}
}
