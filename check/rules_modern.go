package check

import (
	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/mcp"
)

// rulesModern returns the rules about who may send what in revisions without sessions
// (https://modelcontextprotocol.io/specification/2026-07-28/basic).
func rulesModern() []rule {
	return []rule{{
		ID: "modern/server-request", Severity: Error, Revisions: modernRevisions,
		Title: "The server sent a request",
		Why:   "Since $r5 only clients send requests. No client responds to this one.",
		Fix:   "Respond to the client's request with resultType input_required, and put the request into inputRequests.",
		URL:   "basic/patterns/mrtr",
		Good:  Example{rev20260728, discovered},
		Bad:   Example{rev20260728, discovered + "< {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"vendor/ask\"}"},
		kinds: kindRequest, dir: capture.ToClient,
		check: func(v *view) {
			if v.modern && (v.session.modern || v.checker.opts.Revision != mcp.RevisionNone) && v.session.initializeResult == 0 {
				v.report("", "the server sent a request (%s); in %s only clients send requests", show(v.msg.method), v.rev)
			}
		},
	}, {
		ID: "modern/client-response", Severity: Error, Revisions: modernRevisions,
		Title:        "The client sent a response",
		Why:          "Since $r5 servers send no requests, so there is nothing to respond to.",
		Fix:          "Put responses to inputRequests into inputResponses when sending the request again.",
		URL:          "basic/patterns/mrtr",
		Good:         Example{rev20260728, discovered},
		Bad:          Example{rev20260728, discovered + "> {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		consequences: []string{"jsonrpc/unknown-id"},
		kinds:        kindResponse, dir: capture.ToServer,
		check: func(v *view) {
			if v.modern && (v.session.modern || v.checker.opts.Revision != mcp.RevisionNone) && v.session.initializeResult == 0 {
				v.report("", "the client sent a response; in %s only servers send responses", v.rev)
			}
		},
	}, {
		ID: "modern/discover-missing", Severity: Error, Revisions: modernRevisions,
		Title: "The server does not implement server/discover",
		Why:   "Clients use it to detect the server's era: without it they fall back to the handshake.",
		Fix:   "Respond to server/discover with the server's versions and capabilities.",
		URL:   "server/discover",
		Good:  Example{rev20260728, discovered},
		Bad: Example{rev20260728, `> {"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{$meta}}}
< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"public"}}
> {"jsonrpc":"2.0","id":2,"method":"server/discover","params":{"_meta":{$meta}}}
< {"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"method not found"}}`},
		kinds: kindError, methods: []string{mcp.MethodDiscover}, dir: capture.ToClient,
		check: func(v *view) {
			if v.session.modern && v.msg.code() == -32601 {
				v.report("/error", "this server speaks %s, so it must implement server/discover", v.rev).with(v.call.n)
			}
		},
	}, {
		ID: "modern/metadata-accepted", Severity: Error, Revisions: modernRevisions,
		Title: "A request without metadata got a result",
		Why:   "A server that accepts such a request guesses the version and the capabilities, and the client never learns of its error.",
		Fix:   "Reject a request whose _meta lacks protocolVersion or clientCapabilities with -32602 (over HTTP: status 400).",
		URL:   "basic#_meta",
		Good: Example{rev20260728, discovered + `> {"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{$meta}}}
< {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"public"}}`},
		Bad: Example{rev20260728, discovered + `> {"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{$version}}}
< {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"public"}}`},
		consequences: []string{"shape/missing-member"},
		kinds:        kindResult, dir: capture.ToClient,
		check: func(v *view) {
			if v.call == nil || !v.modern || !v.session.modern || v.call.paramsLost || v.call.method == mcp.MethodInitialize {
				return
			}
			for _, name := range []string{mcp.MetaProtocolVersion, mcp.MetaClientCapabilities} {
				if v.call.param("_meta", name) == nil {
					v.report("", "the request has no %s in _meta; the server must reject it with -32602", name).with(v.call.n)
				}
			}
		},
	}, {
		ID: "modern/version-accepted", Severity: Error, Revisions: modernRevisions,
		Title: "A request with an unknown version got a result",
		Why:   "The client relies on the rules of that version, which the server does not know.",
		Fix:   "Reject it with -32022, and list the versions that the server speaks.",
		URL:   "basic/versioning",
		Good: Example{rev20260728, discovered + `> {"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{$meta}}}
< {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"public"}}`},
		Bad: Example{rev20260728, discovered + `> {"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"1900-01-01",$client:{}}}}
< {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"public"}}`},
		kinds: kindResult, dir: capture.ToClient,
		check: func(v *view) {
			if v.call == nil || !v.modern || !v.session.modern {
				return
			}
			d := stateOf[discovery](&v.session.state)
			if requested := v.call.param("_meta", mcp.MetaProtocolVersion); isString(requested) && d.n != 0 && !d.versions[jsonwire.Text(requested)] {
				v.report("", "the request has version %s, which server/discover does not list; the server must reject it with -32022", showJSON(requested)).with(v.call.n).with(d.n)
			}
		},
	}, {
		ID: "modern/result-type", Severity: Error, Revisions: modernRevisions,
		Title: "A result has an unknown resultType",
		Why:   "A client treats a response with an unknown resultType as invalid. Extensions may add result types, but only for clients that have declared them.",
		Fix:   "Send complete or input_required, or a result type of an extension that the request declares.",
		URL:   "schema#result",
		Good: Example{rev20260728, discovered + `> {"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{$meta}}}
< {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"public"}}`},
		Bad: Example{rev20260728, discovered + `> {"jsonrpc":"2.0","id":2,"method":"vendor/x","params":{"_meta":{$meta}}}
< {"jsonrpc":"2.0","id":2,"result":{"resultType":"partial"}}`},
		kinds: kindResult, dir: capture.ToClient,
		check: func(v *view) {
			t := v.result("resultType")
			if v.call == nil || !v.modern || !isString(t) || v.call.paramsLost {
				return
			}
			switch jsonwire.Text(t) {
			// rulesTasks checks tasks.
			case string(mcp.ResultTypeComplete), string(mcp.ResultTypeInputRequired), "task":
				return
			}
			for range members(jsonwire.Lookup(v.call.client, "extensions")) {
				// An extension may define it.
				return
			}
			v.report("/result/resultType", "resultType %s belongs neither to the protocol nor to an extension that the request declares", showJSON(t)).with(v.call.n)
		},
	}}
}

// A discovery is the result of server/discover.
type discovery struct {
	n        uint64
	versions map[string]bool
}

// observeDiscovery records the versions that a server lists.
var observeDiscovery = []observer{{
	kinds: kindResult, methods: []string{mcp.MethodDiscover}, dir: capture.ToClient,
	observe: func(v *view) {
		list := v.result("supportedVersions")
		if !isArray(list) || v.call == nil {
			return
		}
		d := stateOf[discovery](&v.session.state)
		*d = discovery{n: v.e.N, versions: map[string]bool{}}
		for i, version := range elements(list) {
			if i < 64 {
				d.versions[clip.Prefix(jsonwire.Text(version), maxShown)] = true
			}
		}
	},
}}
