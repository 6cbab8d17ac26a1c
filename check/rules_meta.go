package check

import (
	"strings"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/traceparent"
	"mcpwire/mcp"
)

// rulesMeta returns the rules about metadata
// (https://modelcontextprotocol.io/specification/2026-07-28/basic#_meta).
func rulesMeta() []rule {
	return []rule{{
		ID: "meta/key", Severity: Error, Revisions: hasStructuredOutput,
		Title: "A key of _meta is malformed",
		Why:   "Keys are names with a prefix that identifies their owner. Peers that sort metadata by prefix cannot handle this one.",
		Fix:   "Use name or com.example/name: labels of letters, digits and hyphens, separated by dots, then a slash and a name that begins and ends with a letter or a digit.",
		URL:   "basic#_meta",
		Good:  Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{\"_meta\":{\"com.example/trace_id\":1}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:   Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{\"_meta\":{\"-example/trace id\":1}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		kinds: kindCall | kindResult,
		check: func(v *view) {
			for place, meta := range metas(v) {
				for key := range members(meta) {
					if len(key) <= maxPairedID && era.CheckMetaKey(key) != nil {
						v.report(place+pointer(key), "%s is not a valid key of _meta: %s", show(key), metaKeyFault(key))
					}
				}
			}
		},
	}, {
		ID: "meta/trace-context", Severity: Error, Revisions: modernRevisions,
		Title: "Trace context is malformed",
		Why:   "Tracing systems drop what they cannot parse, and the trace ends here.",
		Fix:   "Create traceparent, tracestate and baggage with a tracing library.",
		URL:   "basic#_meta",
		Good:  Example{rev20260728, discovered + exTraced("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")},
		Bad:   Example{rev20260728, discovered + exTraced("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01")},
		kinds: kindCall | kindResult,
		check: func(v *view) {
			for place, meta := range metas(v) {
				for _, name := range []string{"traceparent", "tracestate", "baggage"} {
					value := jsonwire.Lookup(meta, name)
					if value != nil && (!isString(value) || !traceField(name, jsonwire.Text(value))) {
						v.report(place+"/"+name, "%s is not a valid %s", showJSON(value), name)
					}
				}
			}
		},
	}, {
		ID: "meta/extension-id", Severity: Error, Revisions: modernRevisions,
		Title: "An extension's identifier is malformed",
		Why:   "Identifiers have a prefix, so that two vendors cannot use the same one for different extensions.",
		Fix:   "Use the form com.example/name.",
		URL:   "basic",
		Good:  Example{rev20260728, discovered + exExtension("com.example/paint")},
		Bad:   Example{rev20260728, discovered + exExtension("paint")},
		kinds: kindRequest | kindResult,
		check: func(v *view) {
			place, caps := "/params/_meta"+pointer(mcp.MetaClientCapabilities), v.param("_meta", mcp.MetaClientCapabilities)
			if v.msg.is(kindResult) {
				if !v.isResultOf(mcp.MethodDiscover) {
					return
				}
				place, caps = "/result/capabilities", v.result("capabilities")
			}
			for id := range members(jsonwire.Lookup(caps, "extensions")) {
				if era.CheckExtensionID(id) != nil {
					v.report(place+"/extensions"+pointer(id), "%s is not a valid extension identifier: it needs a prefix and a name, such as com.example/name", show(id))
				}
			}
		},
	}, {
		ID: "meta/server-changes", Severity: Info, Revisions: modernRevisions,
		Title: "The server changes its name",
		Why:   "All results on one connection come from one server. If the name changes, a proxy probably mixes up responses.",
		Fix:   "Send the same io.modelcontextprotocol/serverInfo with each result.",
		URL:   "basic#_meta",
		Good:  Example{rev20260728, exNamed("a") + exNamedAgain("a")},
		Bad:   Example{rev20260728, exNamed("a") + exNamedAgain("b")},
		kinds: kindResult, dir: capture.ToClient,
		check: func(v *view) {
			name := jsonwire.Lookup(v.meta(mcp.MetaServerInfo), "name")
			if !isString(name) || v.session.transport != transportStdio || v.session.restarted || v.redacted("/result/_meta"+pointer(mcp.MetaServerInfo)+"/name") {
				return
			}
			k := stateOf[knownServer](&v.session.state)
			if k.n != 0 && k.name != jsonwire.Text(name) {
				v.report("/result/_meta"+pointer(mcp.MetaServerInfo), "the server is now %s; it was %s before", showJSON(name), show(k.name)).with(k.n)
			}
			k.n, k.name = v.e.N, clip.Prefix(jsonwire.Text(name), maxPairedID)
		},
	}}
}

// A knownServer records how the server of a connection has named itself.
type knownServer struct {
	n    uint64
	name string
}

func exTraced(parent string) string {
	return `> {"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{$meta,"traceparent":"` + parent + `"}}}
< {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"public"}}`
}

func exExtension(id string) string {
	return `> {"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{$version,$client:{"extensions":{"` + id + `":{}}}}}}
< {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"public"}}`
}

func exNamed(name string) string {
	return `> {"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{$meta}}}
< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"public","_meta":{"` + mcp.MetaServerInfo + `":{"name":"` + name + `","version":"1"}}}}
`
}

func exNamedAgain(name string) string {
	return `> {"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{$meta}}}
< {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"public","_meta":{"` + mcp.MetaServerInfo + `":{"name":"` + name + `","version":"1"}}}}
`
}

// metas yields the _meta objects of a message and of the items that it lists, with their places.
func metas(v *view) func(yield func(string, []byte) bool) {
	return func(yield func(string, []byte) bool) {
		root, meta := "/params", v.param("_meta")
		if v.msg.is(kindResult) {
			root, meta = "/result", v.result("_meta")
		}
		if meta != nil && !yield(root+"/_meta", meta) {
			return
		}
		if !v.msg.is(kindResult) || v.call == nil || !era.Of(v.rev).HasMethod([]byte(v.call.method)) {
			return
		}
		for _, list := range []string{"tools", "resources", "resourceTemplates", "prompts", "contents", "content"} {
			for i, item := range elements(v.result(list)) {
				if meta := jsonwire.Lookup(item, "_meta"); meta != nil && !yield(root+"/"+list+pointer(i)+"/_meta", meta) {
					return
				}
			}
		}
	}
}

// metaKeyFault describes the fault of an invalid key.
func metaKeyFault(key string) string {
	if key == "" {
		return "it is empty"
	}
	return "labels of a prefix begin with a letter and end with a letter or a digit, and names begin and end with one of these"
}

// traceField reports whether a value is a valid traceparent or tracestate
// (https://www.w3.org/TR/trace-context/), or baggage (https://www.w3.org/TR/baggage/).
func traceField(name, value string) bool {
	switch name {
	case "traceparent":
		_, _, _, ok := traceparent.Parse(value)
		return ok
	case "tracestate":
		return traceState(value)
	}
	return baggage(value)
}

func traceState(s string) bool {
	n := 0
	for entry := range strings.SplitSeq(s, ",") {
		entry = strings.Trim(entry, " \t")
		if entry == "" {
			continue
		}
		key, value, ok := strings.Cut(entry, "=")
		if n++; !ok || n > 32 || key == "" || len(key) > 256 || len(value) == 0 || len(value) > 256 {
			return false
		}
		for i := range len(key) {
			if c := key[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("_-*/@", c) >= 0) {
				return false
			}
		}
		for i := range len(value) {
			if c := value[i]; c < ' ' || c > '~' || c == ',' || c == '=' {
				return false
			}
		}
	}
	return true
}

// baggage checks that keys are tokens and that values have only allowed characters.
func baggage(s string) bool {
	if strings.Trim(s, " \t") == "" {
		return false
	}
	for entry := range strings.SplitSeq(s, ",") {
		entry, _, _ = strings.Cut(entry, ";")
		key, value, ok := strings.Cut(entry, "=")
		key, value = strings.Trim(key, " \t"), strings.Trim(value, " \t")
		if !ok || key == "" {
			return false
		}
		for i := range len(key) {
			if c := key[i]; c <= ' ' || c > '~' || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
				return false
			}
		}
		for i := range len(value) {
			if c := value[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' {
				return false
			}
		}
	}
	return true
}
