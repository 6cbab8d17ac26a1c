package check

import (
	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/mcp"
)

// Examples of this file.
const (
	exInitialize = `> {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"$rev","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}
`
	exInitializeResult = `< {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"$rev","capabilities":{"tools":{}},"serverInfo":{"name":"server","version":"1"}}}
`
	exInitialized = `> {"jsonrpc":"2.0","method":"notifications/initialized"}
`
	exTools = `> {"jsonrpc":"2.0","id":2,"method":"tools/list"}
`
	exToolsResult = `< {"jsonrpc":"2.0","id":2,"result":{"tools":[]}}
`
)

// rulesLifecycle are the rules about the handshake of legacy revisions
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle).
var rulesLifecycle = []rule{
	{
		Rule: Rule{
			ID: "lifecycle/no-handshake", Severity: Error,
			Title: "A request before the handshake",
			Why:   "initialize comes first, or else each request carries its own metadata. Without either the server knows neither the revision nor the client.",
			Fix:   "Send initialize, wait for its answer, and send notifications/initialized; or speak $r5, with _meta in each request.",
			URL:   "basic/versioning",
			Good:  Example{rev20251125, "init\n" + exTools + exToolsResult},
			Bad:   Example{rev20251125, exTools + `< {"jsonrpc":"2.0","id":2,"error":{"code":-32600,"message":"not initialized"}}` + "\n" + exInitialize + exInitializeResult + exInitialized},
		},
		kinds: kindRequest, dir: capture.ToServer,
		check: func(v *view) {
			s := v.session
			if v.modern || s.transport != transportStdio || !s.complete() || s.restarted || s.initialize != nil || s.modern {
				return
			}
			if v.msg.method != mcp.MethodInitialize && v.msg.method != mcp.MethodPing {
				v.report("", "%s was sent before initialize, and has no metadata of a modern revision", show(v.msg.method))
			}
		},
	},
	{
		Rule: Rule{
			ID: "lifecycle/request-before-answer", Severity: Warning, Revisions: legacyRevisions,
			Title: "A request before initialize was answered",
			Why:   "The client does not know yet what the server can do and which revision it speaks; some servers refuse, or drop, what comes too early.",
			Fix:   "Wait for the answer to initialize. Only ping may come before.",
			URL:   "basic/lifecycle#initialization",
			Good:  Example{rev20251125, exInitialize + exInitializeResult + exInitialized + exTools + exToolsResult},
			Bad:   Example{rev20251125, exInitialize + exTools + exInitializeResult + exInitialized + exToolsResult},
		},
		kinds: kindRequest, dir: capture.ToServer,
		check: func(v *view) {
			if v.session.handshaking() && !v.modern && v.session.certain && v.msg.method != mcp.MethodPing && v.msg.method != mcp.MethodInitialize {
				v.report("", "%s was sent before initialize was answered", show(v.msg.method)).with(v.session.initialize.n)
			}
		},
	},
	{
		Rule: Rule{
			ID: "lifecycle/request-before-initialized", Severity: Warning, Revisions: legacyRevisions,
			Title: "A request before notifications/initialized",
			Why:   "Until that notification the server is not ready for normal operation: strict servers refuse, and none may send requests of its own yet.",
			Fix:   "Send notifications/initialized right after the answer to initialize.",
			URL:   "basic/lifecycle#initialization",
			Good:  Example{rev20251125, exInitialize + exInitializeResult + exInitialized + exTools + exToolsResult},
			Bad:   Example{rev20251125, exInitialize + exInitializeResult + exTools + exToolsResult + exInitialized},
		},
		kinds: kindRequest, dir: capture.ToServer,
		check: func(v *view) {
			s := v.session
			if s.initializeResult != 0 && s.initialized == 0 && !v.modern && s.complete() && !s.restarted && v.msg.method != mcp.MethodPing && v.msg.method != mcp.MethodInitialize && v.firstTime("before initialized") {
				v.report("", "%s was sent before notifications/initialized", show(v.msg.method)).with(s.initializeResult)
			}
		},
	},
	{
		Rule: Rule{
			ID: "lifecycle/initialized-missing", Severity: Error, Revisions: legacyRevisions,
			Title: "notifications/initialized was never sent",
			Why:   "The client must send it when initialize has succeeded; the server waits for it before it sends requests, and strict servers refuse everything before.",
			Fix:   "Send notifications/initialized right after the answer to initialize.",
			URL:   "basic/lifecycle#initialization",
			Good:  Example{rev20251125, exInitialize + exInitializeResult + exInitialized + exTools + exToolsResult},
			Bad:   Example{rev20251125, exInitialize + exInitializeResult + exTools + exToolsResult},
		},
		consequences: []string{"lifecycle/request-before-initialized"},
		end: func(v *view) {
			s := v.session
			if s.initializeResult != 0 && s.initialized == 0 && s.complete() && !s.restarted && stateOf[reported](&s.state).seen["before initialized"+string(capture.ToServer)] {
				v.report("", "initialize was answered, and notifications/initialized never came").aboutCall(s.initialize).with(s.initializeResult)
			}
		},
	},
	{
		Rule: Rule{
			ID: "lifecycle/initialized-early", Severity: Error, Revisions: legacyRevisions,
			Title: "notifications/initialized before initialize was answered",
			Why:   "It says that the handshake has succeeded, which the client cannot know yet.",
			Fix:   "Wait for the answer to initialize.",
			URL:   "basic/lifecycle#initialization",
			Good:  Example{rev20251125, exInitialize + exInitializeResult + exInitialized},
			Bad:   Example{rev20251125, exInitialize + exInitialized + exInitializeResult},
		},
		kinds: kindNotification, methods: []string{mcp.NotificationInitialized}, dir: capture.ToServer,
		check: func(v *view) {
			if v.session.handshaking() && v.session.certain {
				v.report("", "this was sent before initialize was answered").with(v.session.initialize.n)
			}
		},
	},
	{
		Rule: Rule{
			ID: "lifecycle/server-request-early", Severity: Warning, Revisions: legacyRevisions,
			Title: "A request of the server before notifications/initialized",
			Why:   "The client is not ready for it: it may refuse, or never answer.",
			Fix:   "Wait for notifications/initialized. Only ping, and log messages, may come before.",
			URL:   "basic/lifecycle#initialization",
			Good:  Example{rev20251125, "init\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\"}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"roots\":[]}}"},
			Bad: Example{rev20251125, `> {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"$rev","capabilities":{"roots":{}},"clientInfo":{"name":"host","version":"1"}}}
` + exInitializeResult + "< {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\"}\n" + exInitialized + "> {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"roots\":[]}}"},
		},
		kinds: kindRequest, dir: capture.ToClient,
		check: func(v *view) {
			s := v.session
			if s.initialize != nil && s.initialized == 0 && s.complete() && !s.restarted && v.msg.method != mcp.MethodPing {
				v.report("", "%s was sent before notifications/initialized", show(v.msg.method)).with(s.initialize.n)
			}
		},
	},
	{
		Rule: Rule{
			ID: "lifecycle/initialize-twice", Severity: Error, Revisions: legacyRevisions,
			Title: "A second initialize in the same session",
			Why:   "The handshake is the first interaction of a session and happens once. Servers refuse another, or lose what was agreed on.",
			Fix:   "Open a new connection, or a new session, for another handshake.",
			URL:   "basic/lifecycle#initialization",
			Good:  Example{rev20251125, exInitialize + exInitializeResult + exInitialized},
			Bad: Example{rev20251125, exInitialize + exInitializeResult + exInitialized + `> {"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"$rev","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}
< {"jsonrpc":"2.0","id":2,"error":{"code":-32600,"message":"already initialized"}}`},
		},
		kinds: kindRequest, methods: []string{mcp.MethodInitialize}, dir: capture.ToServer,
		check: func(v *view) {
			if s := v.session; s.certain && !s.restarted && (s.initializeResult != 0 || s.handshaking()) {
				v.report("", "this session had an initialize before").with(s.initialize.n)
			}
		},
	},
	{
		Rule: Rule{
			ID: "lifecycle/version-unknown", Severity: Warning, Revisions: nil,
			Title: "The server answered initialize with a version that nobody knows",
			Why:   "The client has to disconnect if it does not speak the version that the server names.",
			Fix:   "Answer with a revision of the specification: the one that the client asked for if the server speaks it, else the newest that it does.",
			URL:   "basic/versioning",
			Good:  Example{rev20251125, exInitialize + exInitializeResult + exInitialized},
			Bad:   Example{rev20251125, exInitialize + `< {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"1.0","capabilities":{},"serverInfo":{"name":"server","version":"1"}}}`},
		},
		kinds: kindResult, methods: []string{mcp.MethodInitialize}, dir: capture.ToClient,
		check: func(v *view) {
			version := v.result("protocolVersion")
			if _, ok := mcp.ParseRevision(stringValue(version)); !ok && isString(version) && !v.call.modern {
				v.report("/result/protocolVersion", "%s is no revision that is known here", showJSON(version))
			}
		},
	},
	{
		Rule: Rule{
			ID: "lifecycle/version-modern", Severity: Error,
			Title: "The handshake agreed on a revision that has none",
			Why:   "Since $r5 there is no handshake: a client that takes the answer at its word sends metadata with each request, and the server expects a session.",
			Fix:   "Answer initialize with a revision before $r5. Modern revisions are found by server/discover.",
			URL:   "basic/versioning",
			Good:  Example{rev20251125, exInitialize + exInitializeResult + exInitialized},
			Bad:   Example{rev20260728, exInitialize + exInitializeResult},
		},
		kinds: kindResult, methods: []string{mcp.MethodInitialize}, dir: capture.ToClient,
		check: func(v *view) {
			if r, ok := mcp.ParseRevision(stringValue(v.result("protocolVersion"))); ok && era.Of(r).Modern && !v.call.modern {
				v.report("/result/protocolVersion", "%s has no initialize", r)
			}
		},
	},
	{
		Rule: Rule{
			ID: "lifecycle/version-differs", Severity: Info, Revisions: legacyRevisions,
			Title: "The server answered with another version than was asked for",
			Why:   "It does not speak what the client asked for. That is allowed; the client must speak the version that the server names, or disconnect.",
			Fix:   "Update the server if clients need what newer revisions have. A client that speaks the version it is given needs no change.",
			URL:   "basic/lifecycle#version-negotiation",
			Good:  Example{rev20251125, exInitialize + exInitializeResult + exInitialized},
			Bad: Example{rev20251125, `> {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"1.0","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}
` + exInitializeResult + exInitialized},
		},
		kinds: kindResult, methods: []string{mcp.MethodInitialize}, dir: capture.ToClient,
		check: func(v *view) {
			asked, got := v.call.param("protocolVersion"), v.result("protocolVersion")
			if _, known := mcp.ParseRevision(stringValue(got)); known && isString(asked) && stringValue(asked) != stringValue(got) && !refused(v, stringValue(asked)) {
				v.report("/result/protocolVersion", "the client asked for %s and the server answered %s", showJSON(asked), showJSON(got)).with(v.call.n)
			}
		},
	},
	{
		Rule: Rule{
			ID: "lifecycle/version-refused", Severity: Error, Revisions: legacyRevisions,
			Title: "The server does not answer with the version asked for, though it speaks it",
			Why:   "If the server supports the version that the client proposes, it must answer with the same; otherwise both lose what the version has.",
			Fix:   "Compare the proposed version with all that the server speaks, and echo it if it is among them.",
			URL:   "basic/lifecycle#version-negotiation",
			Good:  Example{rev20251125, exInitialize + exInitializeResult + exInitialized},
			Bad: Example{rev20251125, exInitialize + exInitializeResult + exInitialized + `>(s=2) {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"$rev","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}
<(s=2) {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"` + rev20250618.String() + `","capabilities":{"tools":{}},"serverInfo":{"name":"server","version":"1"}}}
>(s=2) {"jsonrpc":"2.0","method":"notifications/initialized"}`},
		},
		kinds: kindResult, methods: []string{mcp.MethodInitialize}, dir: capture.ToClient,
		check: func(v *view) {
			asked, got := v.call.param("protocolVersion"), v.result("protocolVersion")
			if isString(asked) && isString(got) && stringValue(asked) != stringValue(got) && refused(v, stringValue(asked)) {
				v.report("/result/protocolVersion", "the client asked for %s, which this server has answered with before, and now it answers %s", showJSON(asked), showJSON(got)).with(v.call.n)
			}
		},
	},
	{
		Rule: Rule{
			ID: "lifecycle/initialize-cancelled", Severity: Error, Revisions: legacyRevisions,
			Title: "initialize was cancelled",
			Why:   "A client must not: there is nothing left to talk about without the handshake.",
			Fix:   "Close the connection instead.",
			URL:   "basic/utilities/cancellation",
			Good:  Example{rev20251125, exInitialize + exInitializeResult + exInitialized},
			Bad:   Example{rev20251125, exInitialize + `> {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`},
		},
		kinds: kindNotification, methods: []string{mcp.NotificationCancelled}, dir: capture.ToServer,
		check: func(v *view) {
			c := v.session.calls[openKey{v.e.Dir, idKey(v.param("requestId"))}]
			if c != nil && c.method == mcp.MethodInitialize && v.session.certain {
				v.report("/params/requestId", "the request %s is initialize, which must not be cancelled", showJSON(v.param("requestId"))).with(c.n)
			}
		},
	},
	{
		Rule: Rule{
			ID: "lifecycle/ping", Severity: Error, Revisions: legacyRevisions,
			Title: "ping was not answered with an empty result",
			Why:   "ping tells whether the other side is alive. An error looks like a broken connection.",
			Fix:   "Answer with {}, whatever the state of the session.",
			URL:   "basic/utilities/ping",
			Good:  Example{rev20251125, "init\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
			Bad:   Example{rev20251125, "init\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,\"message\":\"method not found\"}}"},
		},
		kinds: kindResponse, methods: []string{mcp.MethodPing},
		check: func(v *view) {
			switch {
			case v.msg.is(kindError) && v.session.initializeResult != 0:
				v.report("/error", "ping was answered with an error; it must be answered with an empty result").with(v.call.n)
			case v.msg.is(kindResult):
				for name := range members(v.msg.result) {
					if name != "_meta" {
						v.report("/result", "the result of ping has the member %s; it must be empty", show(name)).with(v.call.n)
						return
					}
				}
			}
		},
	},
}

// supportedVersions holds the versions that the server of a capture has answered with or listed.
type supportedVersions struct{ versions map[string]bool }

// refused reports whether the server has shown that it supports a version.
func refused(v *view, version string) bool {
	return stateOf[supportedVersions](&v.session.capture.state).versions[version]
}

// observeVersions records the versions that the server supports.
var observeVersions = []observer{{
	kinds: kindResult, methods: []string{mcp.MethodInitialize, mcp.MethodDiscover}, dir: capture.ToClient,
	observe: func(v *view) {
		if v.call == nil {
			return
		}
		sp := stateOf[supportedVersions](&v.session.capture.state)
		if sp.versions == nil {
			sp.versions = map[string]bool{}
		}
		if version := stringValue(v.result("protocolVersion")); version != "" && len(sp.versions) < 16 {
			sp.versions[clipBytes(version, maxShown)] = true
		}
		for _, version := range elements(v.result("supportedVersions")) {
			if len(sp.versions) < 16 {
				sp.versions[clipBytes(stringValue(version), maxShown)] = true
			}
		}
	},
}}
