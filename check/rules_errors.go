package check

import (
	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

// rulesErrors returns the rules about error codes
// (https://modelcontextprotocol.io/specification/2026-07-28/basic#error-codes).
func rulesErrors() []rule {
	return []rule{{
		ID: "errors/undefined-code", Severity: Error, Revisions: modernRevisions,
		Title: "An error code is reserved for the specification",
		Why:   "-32020 to -32099 belong to the specification, which has defined three of them so far: a later revision may define any other. -32042 was withdrawn.",
		Fix:   "Use a code outside -32768 to -32000 for your own errors.",
		URL:   "basic#error-codes",
		Good:  Example{rev20260728, modernError(`{"code":1,"message":"out of paper"}`)},
		Bad:   Example{rev20260728, modernError(`{"code":-32050,"message":"out of paper"}`)},
		kinds: kindError,
		check: func(v *view) {
			switch c := v.msg.code(); {
			case c > -32020 || c < -32099, c == int64(mcp.CodeHeaderMismatch), c == int64(mcp.CodeMissingRequiredClientCapability), c == int64(mcp.CodeUnsupportedProtocolVersion):
			default:
				v.report("/error/code", "the code %d is reserved, and %s does not define it", c, v.rev)
			}
		},
	}, {
		ID: "errors/resource-not-found", Severity: Error, Revisions: modernRevisions,
		Title: "The code -32002 belongs to older revisions",
		Why:   "Since $r5, a resource that does not exist is error -32602. Clients may not recognize the old code.",
		Fix:   "Respond with -32602 and the URI in data.",
		URL:   "server/resources",
		Good:  Example{rev20260728, modernError(`{"code":-32602,"message":"no such resource"}`)},
		Bad:   Example{rev20260728, modernError(`{"code":-32002,"message":"no such resource"}`)},
		kinds: kindError,
		check: func(v *view) {
			if v.msg.code() == -32002 {
				v.report("/error/code", "the code -32002 must not be sent in %s; a resource that does not exist is error -32602", v.rev)
			}
		},
	}, {
		ID: "errors/legacy-range", Severity: Warning, Revisions: modernRevisions,
		Title: "An error code no longer has a meaning",
		Why:   "Libraries used -32000 to -32019 for different purposes; since $r5 receivers must not interpret these codes, and no new ones are assigned.",
		Fix:   "Use a code that the specification defines, or one outside -32768 to -32000.",
		URL:   "basic#error-codes",
		Good:  Example{rev20260728, modernError(`{"code":-32603,"message":"internal error"}`)},
		Bad:   Example{rev20260728, modernError(`{"code":-32001,"message":"internal error"}`)},
		kinds: kindError,
		check: func(v *view) {
			// A legacy server that is probed may answer with any code.
			if c := v.msg.code(); v.session.modern && c <= -32000 && c >= -32019 && c != -32002 {
				v.report("/error/code", "the code %d has no meaning in %s", c, v.rev)
			}
		},
	}, {
		ID: "errors/reserved-code", Severity: Warning,
		Title: "An error code is reserved by JSON-RPC",
		Why:   "-32768 to -32100 are reserved, and only five of these codes are defined: peers do not know what this one means.",
		Fix:   "Use one of the defined codes, or one outside -32768 to -32000.",
		URL:   "https://www.jsonrpc.org/specification#error_object",
		Good:  Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"vendor/x\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,\"message\":\"method not found\"}}"},
		Bad:   Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"vendor/x\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32500,\"message\":\"method not found\"}}"},
		kinds: kindError,
		check: func(v *view) {
			c := v.msg.code()
			if c >= -32768 && c < -32099 && c != -32700 && (c > -32600 || c < -32603) {
				v.report("/error/code", "the code %d is reserved by JSON-RPC and not defined", c)
			}
		},
	}, {
		ID: "errors/capability-declared", Severity: Error, Revisions: modernRevisions,
		Title: "A capability was reported missing that the client has declared",
		Why:   "-32021 says that the request lacks a capability of the client. If the client has declared it, the client cannot fix anything and gives up.",
		Fix:   "Send -32021 only for capabilities that the metadata of this request does not declare.",
		URL:   "basic#error-codes",
		Good:  Example{rev20260728, capabilityError(`{"sampling":{}}`)},
		Bad:   Example{rev20260728, capabilityError(`{"elicitation":{}}`)},
		kinds: kindError, dir: capture.ToClient,
		check: func(v *view) {
			required := jsonwire.Lookup(v.msg.err, "data", "requiredCapabilities")
			if v.msg.code() != int64(mcp.CodeMissingRequiredClientCapability) || v.call == nil || !isObject(v.call.client) || !isObject(required) || v.redactedWithin("/error/data") {
				return
			}
			if n := 0; containsMembers(required, v.call.client, &n, 0) && n > 0 {
				v.report("/error/data/requiredCapabilities", "the client has declared what this error requires (%s)", showJSON(required)).with(v.call.n)
			}
		},
	}, {
		ID: "errors/version-requested", Severity: Error, Revisions: modernRevisions,
		Title: "The error about an unsupported version names another version",
		Why:   "data.requested is the version of the request; a client that compares it treats the error as the response to another request.",
		Fix:   "Copy the version from the request's metadata.",
		URL:   "basic/versioning",
		Good:  Example{rev20260728, versionError("1999-01-01")},
		Bad:   Example{rev20260728, versionError("1998-01-01")},
		kinds: kindError, dir: capture.ToClient,
		check: func(v *view) {
			requested := jsonwire.Lookup(v.msg.err, "data", "requested")
			if v.msg.code() != int64(mcp.CodeUnsupportedProtocolVersion) || v.call == nil || !isString(requested) {
				return
			}
			if sent := v.call.param("_meta", mcp.MetaProtocolVersion); isString(sent) && jsonwire.Text(sent) != jsonwire.Text(requested) {
				v.report("/error/data/requested", "requested is %s, but the request has %s", showJSON(requested), showJSON(sent)).with(v.call.n)
			}
		},
	}, {
		ID: "errors/header-mismatch-stdio", Severity: Error, Revisions: modernRevisions,
		Title: "An error about headers on a transport without headers",
		Why:   "-32020 means that HTTP headers and the message differ. Standard input has no headers.",
		Fix:   "Send the matching code, such as -32602.",
		URL:   "basic#error-codes",
		Good:  Example{rev20260728, modernError(`{"code":-32602,"message":"no name"}`)},
		Bad:   Example{rev20260728, modernError(`{"code":-32020,"message":"no name"}`)},
		kinds: kindError, dir: capture.ToClient,
		check: func(v *view) {
			if v.msg.code() == int64(mcp.CodeHeaderMismatch) && v.session.transport == transportStdio {
				v.report("/error/code", "the code -32020 is about HTTP headers, which this transport does not have")
			}
		},
	}}
}

// containsMembers reports whether an object contains all members of part. It adds the number of
// compared members to n.
func containsMembers(part, whole []byte, n *int, depth int) bool {
	if depth > 8 {
		return false
	}
	for m := jsonwire.ObjectMembers(part); m.Next(); {
		*n++
		other := jsonwire.Lookup(whole, m.KeyString())
		if other == nil || isObject(m.Value()) && (!isObject(other) || !containsMembers(m.Value(), other, n, depth+1)) {
			return false
		}
	}
	return true
}

// The functions below build examples: a request of a modern client, answered with an error.

func modernError(e string) string {
	return discovered + `> {"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"file:///a","_meta":{$meta}}}
< {"jsonrpc":"2.0","id":2,"error":` + e + `}`
}

func capabilityError(required string) string {
	return discovered + `> {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a","_meta":{$version,$client:{"elicitation":{}}}}}
< {"jsonrpc":"2.0","id":2,"error":{"code":-32021,"message":"the client cannot do what this needs","data":{"requiredCapabilities":` + required + `}}}`
}

func versionError(requested string) string {
	return discovered + `> {"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"1999-01-01",$client:{}}}}
< {"jsonrpc":"2.0","id":2,"error":{"code":-32022,"message":"unsupported version","data":{"supported":["$rev"],"requested":"` + requested + `"}}}`
}

// discovered is the beginning of an example of a modern session.
const discovered = `> {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{$meta}}}
< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["$rev"],"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"prompts":{"listChanged":true},"completions":{},"logging":{}},"ttlMs":0,"cacheScope":"public"}}
`
