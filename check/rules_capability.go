package check

import (
	"strings"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

// rulesCapability returns the rules about declared capabilities, as defined in
// https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#capability-negotiation
func rulesCapability() []rule {
	return []rule{{
		ID: "capability/server-undeclared", Severity: Error, Revisions: hasNegotiatedVersionHeader,
		Title: "The client uses a capability that the server has not declared",
		Why:   "Only negotiated capabilities may be used. The server responds with an error, or hangs.",
		Fix:   "Check the capabilities in the initialize result first.",
		URL:   "basic/lifecycle#capability-negotiation",
		Good:  Example{rev20251125, "init server={\"prompts\":{}}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"prompts/list\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"prompts\":[]}}"},
		Bad:   Example{rev20251125, "init server={\"tools\":{}}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"prompts/list\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,\"message\":\"method not found\"}}"},
		kinds: kindRequest, dir: capture.ToServer,
		check: func(v *view) {
			if need := era.ServerCapability(v.msg.method, v.features().Completions); need != nil && v.session.initializeResult != 0 && isObject(v.session.serverCaps) && !declared(v.session.serverCaps, need) {
				v.report("", "%s needs the server's capability %s, which it has not declared", show(v.msg.method), dotted(need)).with(v.session.initializeResult)
			}
		},
	}, {
		ID: "capability/client-undeclared", Severity: Error, Revisions: hasNegotiatedVersionHeader,
		Title: "The server uses a capability that the client has not declared",
		Why:   "The client does not implement it: it responds with an error, or never.",
		Fix:   "Check the capabilities in initialize first, and use only those.",
		URL:   "basic/lifecycle#capability-negotiation",
		Good: Example{rev20251125, `init client={"elicitation":{"url":{}}}
< {"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://example.com/","elicitationId":"e"}}
> {"jsonrpc":"2.0","id":1,"result":{"action":"decline"}}`},
		Bad: Example{rev20251125, `init client={"elicitation":{}}
< {"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://example.com/","elicitationId":"e"}}
> {"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no such mode"}}`},
		kinds: kindRequest, dir: capture.ToClient,
		check: func(v *view) {
			if !isObject(v.session.clientCaps) || v.session.initialize == nil {
				return
			}
			if need := undeclaredByClient(v.msg.method, v.msg.params, v.session.clientCaps); need != nil {
				v.report("", "%s needs the client's capability %s, which it has not declared", show(v.msg.method), dotted(need)).with(v.session.initialize.n)
			}
		},
	}, {
		ID: "capability/feature-undeclared", Severity: Error,
		Title: "The server supports a feature that it has not declared",
		Why:   "Clients check the capabilities and never use the feature: it does not exist for their users.",
		Fix:   "Declare the capability: tools, resources, prompts, completions.",
		URL:   "server/tools",
		Good:  Example{rev20250326, "init server={\"prompts\":{}}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"prompts/list\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"prompts\":[]}}"},
		Bad:   Example{rev20250326, "init server={}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"prompts/list\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"prompts\":[]}}"},
		kinds: kindResult, dir: capture.ToClient,
		check: func(v *view) {
			if v.call == nil || !isObject(v.session.serverCaps) || v.modern && !v.session.certain {
				return
			}
			need := era.ServerCapability(v.call.method, v.features().Completions)
			if len(need) > 0 && !declared(v.session.serverCaps, need[:1]) {
				v.report("", "%s got a result, but the capability %s is not declared", show(v.call.method), need[0]).with(v.session.initializeResult)
			}
		},
	}, {
		ID: "capability/list-missing", Severity: Error, Revisions: modernRevisions,
		Title: "The server declares a capability but does not implement its list",
		Why:   "A server that declares tools, resources or prompts must implement their list method, even if the list is empty.",
		Fix:   "Implement the list method, or do not declare the capability.",
		URL:   "server/tools",
		Good:  Example{rev20260728, discovered + exModernTools("")},
		Bad: Example{rev20260728, discovered + `> {"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{$meta}}}
< {"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"method not found"}}`},
		kinds: kindError, methods: []string{mcp.MethodToolsList, mcp.MethodResourcesList, mcp.MethodPromptsList}, dir: capture.ToClient,
		check: func(v *view) {
			need := era.ServerCapability(v.call.method, true)
			if v.msg.code() == -32601 && v.session.modern && isObject(v.session.serverCaps) && declared(v.session.serverCaps, need) {
				v.report("/error", "the server has declared %s but does not implement %s", need[0], show(v.call.method)).with(v.call.n)
			}
		},
	}, {
		ID: "capability/refused", Severity: Warning, Revisions: legacyRevisions,
		Title: "A declared capability is answered with -32601",
		Why:   "The peer asks because the capability was declared. What it needs the answer for does not work, and nothing says so.",
		Fix:   "Implement the method, or do not declare the capability.",
		URL:   "basic/lifecycle#capability-negotiation",
		Good: Example{rev20251125, `init client={"roots":{}}
< {"jsonrpc":"2.0","id":1,"method":"roots/list"}
> {"jsonrpc":"2.0","id":1,"result":{"roots":[]}}`},
		Bad: Example{rev20251125, `init client={"roots":{}}
< {"jsonrpc":"2.0","id":1,"method":"roots/list"}
> {"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"method not found"}}`},
		kinds: kindError, methods: []string{
			mcp.MethodRootsList, mcp.MethodCreateMessage, mcp.MethodElicit,
			mcp.MethodToolsList, mcp.MethodResourcesList, mcp.MethodPromptsList, mcp.MethodResourcesSubscribe, mcp.MethodSetLevel, mcp.MethodComplete,
		},
		check: func(v *view) {
			if v.msg.code() != -32601 {
				return
			}
			if v.call.dir == capture.ToClient {
				if isObject(v.session.clientCaps) && v.session.initialize != nil && undeclaredByClient(v.call.method, v.call.params, v.session.clientCaps) == nil {
					v.report("/error", "the client has declared the capability for %s but does not implement it", show(v.call.method)).with(v.session.initialize.n)
				}
				return
			}
			need := era.ServerCapability(v.call.method, v.features().Completions)
			if need != nil && isObject(v.session.serverCaps) && declared(v.session.serverCaps, need) {
				v.report("/error", "the server has declared %s but does not implement %s", dotted(need), show(v.call.method)).with(v.session.initializeResult)
			}
		},
	}, {
		ID: "capability/logging", Severity: Error,
		Title: "A server that has not declared logging sends log messages",
		Why:   "Clients that do not expect log messages drop them or treat them as errors.",
		Fix:   `Declare "logging":{}, or write logs to standard error.`,
		URL:   "schema#loggingmessagenotificationparams",
		Good:  Example{rev20251125, "init server={\"logging\":{}}\n< {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"ready\"}}"},
		Bad:   Example{rev20251125, "init server={}\n< {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"ready\"}}"},
		kinds: kindNotification, methods: []string{mcp.NotificationMessage}, dir: capture.ToClient,
		check: func(v *view) {
			if isObject(v.session.serverCaps) && !declared(v.session.serverCaps, []string{"logging"}) && (v.session.certain || !v.modern) {
				v.report("", "the server has not declared the capability logging").with(v.session.initializeResult)
			}
		},
	}, {
		ID: "capability/notification-undeclared", Severity: Error, Revisions: hasNegotiatedVersionHeader,
		Title: "A notification needs a capability that its sender has not declared",
		Why:   "Only negotiated capabilities may be used: the peer ignores the notification.",
		Fix:   "Declare listChanged (or subscribe) with the capability, or do not send the notification.",
		URL:   "basic/lifecycle#capability-negotiation",
		Good:  Example{rev20251125, "init\n< {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}"},
		Bad:   Example{rev20251125, "init server={\"tools\":{}}\n< {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}"},
		kinds: kindNotification,
		check: func(v *view) {
			caps, need := v.session.serverCaps, notificationCapability(v.msg.method)
			if v.toServer() {
				caps = v.session.clientCaps
			}
			if need == nil || v.session.initializeResult == 0 || !isObject(caps) || (v.msg.method == mcp.NotificationRootsChanged) != v.toServer() {
				return
			}
			if !declared(caps, need) {
				v.report("", "%s needs the capability %s, which its sender has not declared", show(v.msg.method), dotted(need)).with(v.session.initializeResult)
			}
		},
	}}
}

// notificationCapability returns the path of the capability that a notification needs, or nil.
func notificationCapability(method string) []string {
	switch method {
	case mcp.NotificationToolsChanged:
		return []string{"tools", "listChanged"}
	case mcp.NotificationResourcesChanged:
		return []string{"resources", "listChanged"}
	case mcp.NotificationPromptsChanged:
		return []string{"prompts", "listChanged"}
	case mcp.NotificationResourceUpdated:
		return []string{"resources", "subscribe"}
	case mcp.NotificationRootsChanged:
		return []string{"roots", "listChanged"}
	}
	return nil
}

// undeclaredByClient returns the path of a capability that a request to the client needs and the
// client has not declared, or nil. It also serves inputRequests.
func undeclaredByClient(method string, params, caps []byte) []string {
	var need []string
	switch method {
	case mcp.MethodRootsList:
		need = []string{"roots"}
	case mcp.MethodCreateMessage:
		need = []string{"sampling"}
		if declared(caps, need) && (jsonwire.Lookup(params, "tools") != nil || jsonwire.Lookup(params, "toolChoice") != nil) {
			need = []string{"sampling", "tools"}
		}
	case mcp.MethodElicit:
		need = []string{"elicitation"}
		e := jsonwire.Lookup(caps, "elicitation")
		if !isObject(e) {
			return need
		}
		// An empty object means form only.
		form := jsonwire.Lookup(e, "form") != nil || jsonwire.Lookup(e, "url") == nil
		switch {
		case jsonwire.Text(jsonwire.Lookup(params, "mode")) == string(mcp.ElicitModeURL):
			need = []string{"elicitation", "url"}
		case !form:
			need = []string{"elicitation", "form"}
		}
	default:
		return nil
	}
	if declared(caps, need) {
		return nil
	}
	return need
}

// declared reports whether capabilities contain the one at path. A value of false or null does not
// count.
func declared(caps []byte, path []string) bool {
	v := jsonwire.Lookup(caps, path...)
	return v != nil && string(v) != "false" && !isNull(v)
}

func dotted(path []string) string { return strings.Join(path, ".") }
