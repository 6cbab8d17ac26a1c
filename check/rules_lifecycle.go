package check

import (
	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
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

// rulesLifecycle returns the rules about the handshake of legacy revisions
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle).
func rulesLifecycle() []rule {
	return []rule{{
		ID: "lifecycle/no-handshake", Severity: Error,
		Title: "A request before the handshake",
		Why:   "Either initialize comes first, or each request carries its own metadata. Otherwise the server knows neither the revision nor the client.",
		Fix:   "Send initialize, wait for its result, and send notifications/initialized; or use $r5, with _meta in each request.",
		URL:   "basic/versioning",
		Good:  Example{rev20251125, "init\n" + exTools + exToolsResult},
		Bad:   Example{rev20251125, exTools + `< {"jsonrpc":"2.0","id":2,"error":{"code":-32600,"message":"not initialized"}}` + "\n" + exInitialize + exInitializeResult + exInitialized},
		kinds: kindRequest, dir: capture.ToServer,
		check: func(v *view) {
			s := v.session
			if v.modern || s.transport != transportStdio || !s.complete() || s.restarted || s.initialize != nil || s.modern {
				return
			}
			if v.msg.method != mcp.MethodInitialize && v.msg.method != mcp.MethodPing {
				v.report("", "%s was sent before initialize and without the metadata of a modern revision", show(v.msg.method))
			}
		},
	}, {
		ID: "lifecycle/request-before-answer", Severity: Warning, Revisions: legacyRevisions,
		Title: "A request before the response to initialize",
		Why:   "The client does not know the server's capabilities and revision yet; some servers reject or drop early requests.",
		Fix:   "Wait for the response to initialize. Only ping is allowed earlier.",
		URL:   "basic/lifecycle#initialization",
		Good:  Example{rev20251125, exInitialize + exInitializeResult + exInitialized + exTools + exToolsResult},
		Bad:   Example{rev20251125, exInitialize + exTools + exInitializeResult + exInitialized + exToolsResult},
		kinds: kindRequest, dir: capture.ToServer,
		check: func(v *view) {
			if v.session.handshaking() && !v.modern && v.session.certain && v.msg.method != mcp.MethodPing && v.msg.method != mcp.MethodInitialize {
				v.report("", "%s was sent before the response to initialize", show(v.msg.method)).with(v.session.initialize.n)
			}
		},
	}, {
		ID: "lifecycle/request-before-initialized", Severity: Warning, Revisions: legacyRevisions,
		Title: "A request before notifications/initialized",
		Why:   "Until this notification, the server is not ready for normal operation: strict servers reject requests, and no server may send its own.",
		Fix:   "Send notifications/initialized right after the response to initialize.",
		URL:   "basic/lifecycle#initialization",
		Good:  Example{rev20251125, exInitialize + exInitializeResult + exInitialized + exTools + exToolsResult},
		Bad:   Example{rev20251125, exInitialize + exInitializeResult + exTools + exToolsResult + exInitialized},
		kinds: kindRequest, dir: capture.ToServer,
		check: func(v *view) {
			s := v.session
			if s.initializeResult != 0 && s.initialized == 0 && !v.modern && s.complete() && !s.restarted && v.msg.method != mcp.MethodPing && v.msg.method != mcp.MethodInitialize && v.firstTime("before initialized") {
				v.report("", "%s was sent before notifications/initialized", show(v.msg.method)).with(s.initializeResult)
			}
		},
	}, {
		ID: "lifecycle/initialized-missing", Severity: Error, Revisions: legacyRevisions,
		Title:        "notifications/initialized was never sent",
		Why:          "The client must send it when initialize has succeeded; the server waits for it before it sends requests, and strict servers reject all earlier requests.",
		Fix:          "Send notifications/initialized right after the response to initialize.",
		URL:          "basic/lifecycle#initialization",
		Good:         Example{rev20251125, exInitialize + exInitializeResult + exInitialized + exTools + exToolsResult},
		Bad:          Example{rev20251125, exInitialize + exInitializeResult + exTools + exToolsResult},
		consequences: []string{"lifecycle/request-before-initialized"},
		end: func(v *view) {
			s := v.session
			if s.initializeResult != 0 && s.initialized == 0 && s.complete() && !s.restarted && stateOf[reported](&s.state).seen["before initialized"+string(capture.ToServer)] {
				v.report("", "initialize succeeded, but notifications/initialized was never sent").aboutCall(s.initialize).with(s.initializeResult)
			}
		},
	}, {
		ID: "lifecycle/initialized-early", Severity: Error, Revisions: legacyRevisions,
		Title: "notifications/initialized before the response to initialize",
		Why:   "It means that the handshake has succeeded, which the client cannot know yet.",
		Fix:   "Wait for the response to initialize.",
		URL:   "basic/lifecycle#initialization",
		Good:  Example{rev20251125, exInitialize + exInitializeResult + exInitialized},
		Bad:   Example{rev20251125, exInitialize + exInitialized + exInitializeResult},
		kinds: kindNotification, methods: []string{mcp.NotificationInitialized}, dir: capture.ToServer,
		check: func(v *view) {
			if v.session.handshaking() && v.session.certain {
				v.report("", "this was sent before the response to initialize").with(v.session.initialize.n)
			}
		},
	}, {
		ID: "lifecycle/server-request-early", Severity: Warning, Revisions: legacyRevisions,
		Title: "The server sent a request before notifications/initialized",
		Why:   "The client is not ready for it: it may reject the request, or never respond.",
		Fix:   "Wait for notifications/initialized. Only ping and log messages are allowed earlier.",
		URL:   "basic/lifecycle#initialization",
		Good:  Example{rev20251125, "init\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\"}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"roots\":[]}}"},
		Bad: Example{rev20251125, `> {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"$rev","capabilities":{"roots":{}},"clientInfo":{"name":"host","version":"1"}}}
` + exInitializeResult + "< {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\"}\n" + exInitialized + "> {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"roots\":[]}}"},
		kinds: kindRequest, dir: capture.ToClient,
		check: func(v *view) {
			s := v.session
			if s.initialize != nil && s.initialized == 0 && s.complete() && !s.restarted && v.msg.method != mcp.MethodPing {
				v.report("", "%s was sent before notifications/initialized", show(v.msg.method)).with(s.initialize.n)
			}
		},
	}, {
		ID: "lifecycle/initialize-twice", Severity: Error, Revisions: legacyRevisions,
		Title: "A second initialize in the same session",
		Why:   "The handshake is the first interaction of a session and happens once. Servers reject a second one, or lose the negotiated state.",
		Fix:   "Open a new connection, or a new session, for another handshake.",
		URL:   "basic/lifecycle#initialization",
		Good:  Example{rev20251125, exInitialize + exInitializeResult + exInitialized},
		Bad: Example{rev20251125, exInitialize + exInitializeResult + exInitialized + `> {"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"$rev","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}
< {"jsonrpc":"2.0","id":2,"error":{"code":-32600,"message":"already initialized"}}`},
		kinds: kindRequest, methods: []string{mcp.MethodInitialize}, dir: capture.ToServer,
		check: func(v *view) {
			if s := v.session; s.certain && !s.restarted && (s.initializeResult != 0 || s.handshaking()) {
				v.report("", "this session was already initialized").with(s.initialize.n)
			}
		},
	}, {
		ID: "lifecycle/version-unknown", Severity: Warning, Revisions: nil,
		Title: "The server responded to initialize with an unknown version",
		Why:   "The client must disconnect if it does not speak the version that the server names.",
		Fix:   "Respond with a revision of the specification: the requested one if the server speaks it, otherwise the newest that it speaks.",
		URL:   "basic/versioning",
		Good:  Example{rev20251125, exInitialize + exInitializeResult + exInitialized},
		Bad:   Example{rev20251125, exInitialize + `< {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"1.0","capabilities":{},"serverInfo":{"name":"server","version":"1"}}}`},
		kinds: kindResult, methods: []string{mcp.MethodInitialize}, dir: capture.ToClient,
		check: func(v *view) {
			version := v.result("protocolVersion")
			if _, ok := mcp.ParseRevision(jsonwire.Text(version)); !ok && isString(version) && !v.call.modern {
				v.report("/result/protocolVersion", "%s is not a known revision", showJSON(version))
			}
		},
	}, {
		ID: "lifecycle/version-modern", Severity: Error,
		Title: "The handshake negotiated a revision without a handshake",
		Why:   "Since $r5 there is no handshake: a client that follows the response sends metadata with each request, and the server expects a session.",
		Fix:   "Respond to initialize with a revision before $r5. Clients find modern revisions with server/discover.",
		URL:   "basic/versioning",
		Good:  Example{rev20251125, exInitialize + exInitializeResult + exInitialized},
		Bad:   Example{rev20260728, exInitialize + exInitializeResult},
		kinds: kindResult, methods: []string{mcp.MethodInitialize}, dir: capture.ToClient,
		check: func(v *view) {
			if r, ok := mcp.ParseRevision(jsonwire.Text(v.result("protocolVersion"))); ok && era.Of(r).Modern && !v.call.modern {
				v.report("/result/protocolVersion", "%s has no initialize", r)
			}
		},
	}, {
		ID: "lifecycle/version-differs", Severity: Info, Revisions: legacyRevisions,
		Title: "The server responded with another version than requested",
		Why:   "The server does not speak the requested version. That is allowed; the client must speak the version that the server names, or disconnect.",
		Fix:   "Update the server if clients need newer revisions. A client that speaks the version in the response needs no change.",
		URL:   "basic/lifecycle#version-negotiation",
		Good:  Example{rev20251125, exInitialize + exInitializeResult + exInitialized},
		Bad: Example{rev20251125, `> {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"1.0","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}
` + exInitializeResult + exInitialized},
		kinds: kindResult, methods: []string{mcp.MethodInitialize}, dir: capture.ToClient,
		check: func(v *view) {
			requested, got := v.call.param("protocolVersion"), v.result("protocolVersion")
			if _, known := mcp.ParseRevision(jsonwire.Text(got)); known && isString(requested) && jsonwire.Text(requested) != jsonwire.Text(got) && !refused(v, jsonwire.Text(requested)) {
				v.report("/result/protocolVersion", "the client requested %s, and the server responded with %s", showJSON(requested), showJSON(got)).with(v.call.n)
			}
		},
	}, {
		ID: "lifecycle/version-refused", Severity: Error, Revisions: legacyRevisions,
		Title: "The server does not respond with the requested version, though it speaks it",
		Why:   "If the server supports the version that the client proposes, it must respond with the same version; otherwise both lose its features.",
		Fix:   "Compare the proposed version with all that the server speaks, and return it if it is one of them.",
		URL:   "basic/lifecycle#version-negotiation",
		Good:  Example{rev20251125, exInitialize + exInitializeResult + exInitialized},
		Bad: Example{rev20251125, exInitialize + exInitializeResult + exInitialized + `>(s=2) {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"$rev","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}
<(s=2) {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"` + rev20250618.String() + `","capabilities":{"tools":{}},"serverInfo":{"name":"server","version":"1"}}}
>(s=2) {"jsonrpc":"2.0","method":"notifications/initialized"}`},
		kinds: kindResult, methods: []string{mcp.MethodInitialize}, dir: capture.ToClient,
		check: func(v *view) {
			requested, got := v.call.param("protocolVersion"), v.result("protocolVersion")
			if isString(requested) && isString(got) && jsonwire.Text(requested) != jsonwire.Text(got) && refused(v, jsonwire.Text(requested)) {
				v.report("/result/protocolVersion", "the client requested %s, which this server has used before, but now it responds with %s", showJSON(requested), showJSON(got)).with(v.call.n)
			}
		},
	}, {
		ID: "lifecycle/initialize-cancelled", Severity: Error, Revisions: legacyRevisions,
		Title: "initialize was cancelled",
		Why:   "A client must not cancel it: without the handshake there is no session.",
		Fix:   "Close the connection instead.",
		URL:   "basic/utilities/cancellation",
		Good:  Example{rev20251125, exInitialize + exInitializeResult + exInitialized},
		Bad:   Example{rev20251125, exInitialize + `> {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`},
		kinds: kindNotification, methods: []string{mcp.NotificationCancelled}, dir: capture.ToServer,
		check: func(v *view) {
			c := v.session.pendingCall(v.e.Dir, v.param("requestId"))
			if c != nil && c.method == mcp.MethodInitialize && v.session.certain {
				v.report("/params/requestId", "the request %s is initialize, which must not be cancelled", showJSON(v.param("requestId"))).with(c.n)
			}
		},
	}, {
		ID: "lifecycle/ping", Severity: Error, Revisions: legacyRevisions,
		Title: "The response to ping was not an empty result",
		Why:   "ping tests whether the other side responds. An error looks like a broken connection.",
		Fix:   "Respond with {}, whatever the state of the session.",
		URL:   "basic/utilities/ping",
		Good:  Example{rev20251125, "init\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:   Example{rev20251125, "init\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,\"message\":\"method not found\"}}"},
		kinds: kindResponse, methods: []string{mcp.MethodPing},
		check: func(v *view) {
			switch {
			case v.msg.is(kindError) && v.session.initializeResult != 0:
				v.report("/error", "the response to ping is an error; it must be an empty result").with(v.call.n)
			case v.msg.is(kindResult):
				for name := range members(v.msg.result) {
					if name != "_meta" {
						v.report("/result", "the result of ping has the member %s; it must be empty", show(name)).with(v.call.n)
						return
					}
				}
			}
		},
	}}
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
		if version := jsonwire.Text(v.result("protocolVersion")); version != "" && len(sp.versions) < 16 {
			sp.versions[clip.Prefix(version, maxShown)] = true
		}
		for _, version := range elements(v.result("supportedVersions")) {
			if len(sp.versions) < 16 {
				sp.versions[clip.Prefix(jsonwire.Text(version), maxShown)] = true
			}
		}
	},
}}
