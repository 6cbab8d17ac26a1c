package check

import (
	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/printable"
	"mcpwire/mcp"
)

// rulesToolList returns the rules about listed tools, resources and prompts.
func rulesToolList() []rule {
	return []rule{
		{
			ID: "tools/name", Severity: Warning, Revisions: hasURLElicitation,
			Title: "Some hosts and models do not accept a tool's name",
			Why:   "Hosts pass names to models, whose APIs allow letters, digits and a few punctuation marks; hosts drop the tool, or the whole server.",
			Fix:   "Use 1 to 128 letters, digits, underscores, hyphens and dots. Put the name for people into title.",
			URL:   "server/tools",
			Good:  Example{rev20251125, toolsList(`{"tools":[{"name":"read_file","title":"Read a file","inputSchema":{"type":"object"}}]}`)},
			Bad:   Example{rev20251125, toolsList(`{"tools":[{"name":"Read a file","inputSchema":{"type":"object"}}]}`)},
			kinds: kindResult, methods: []string{mcp.MethodToolsList}, dir: capture.ToClient,
			check: func(v *view) {
				for i, t := range elements(v.result("tools")) {
					if name := jsonwire.Lookup(t, "name"); isString(name) && !era.IsUsualToolName(jsonwire.Text(name), 128) {
						v.report("/result/tools"+pointer(i)+"/name", "%s should be 1 to 128 letters, digits, underscores, hyphens and dots", showJSON(name))
					}
				}
			},
		},
		listRule("tools/duplicate", "tools", "name", mcp.MethodToolsList, "tools",
			Example{rev20251125, toolsList(`{"tools":[{"name":"a","inputSchema":{"type":"object"}},{"name":"b","inputSchema":{"type":"object"}}]}`)},
			Example{rev20251125, toolsList(`{"tools":[{"name":"a","inputSchema":{"type":"object"}},{"name":"a","inputSchema":{"type":"object"}}]}`)}),
		listRule("resources/duplicate", "resources", "uri", mcp.MethodResourcesList, "resources",
			Example{rev20251125, exList("resources", `{"uri":"file:///a","name":"a"},{"uri":"file:///b","name":"b"}`)},
			Example{rev20251125, exList("resources", `{"uri":"file:///a","name":"a"},{"uri":"file:///a","name":"b"}`)}),
		listRule("prompts/duplicate", "prompts", "name", mcp.MethodPromptsList, "prompts",
			Example{rev20251125, exList("prompts", `{"name":"a"},{"name":"b"}`)},
			Example{rev20251125, exList("prompts", `{"name":"a"},{"name":"a"}`)}),
		{
			ID: "tools/schema-invalid", Severity: Error,
			Title: "A tool's schema is not valid JSON Schema",
			Why:   "Hosts and models cannot tell which arguments the tool takes. Many drop the tool, some the whole list.",
			Fix:   "Validate the schema against its dialect, which is 2020-12 unless $schema names another.",
			URL:   "server/tools#tool",
			Good:  Example{rev20251125, toolsList(`{"tools":[{"name":"a","inputSchema":{"type":"object","properties":{"n":{"type":"integer"}}}}]}`)},
			Bad:   Example{rev20251125, toolsList(`{"tools":[{"name":"a","inputSchema":{"type":"object","properties":{"n":{"type":"int"}}}}]}`)},
			kinds: kindResult, methods: []string{mcp.MethodToolsList}, dir: capture.ToClient,
			check: func(v *view) {
				eachSchema(v, func(place string, s []byte) {
					if fault := schemaFault(s); fault != "" && !v.redactedWithin(place) {
						v.report(place, "this is not a valid schema: %s", clip.Prefix(printable.Line(fault), 2*maxShown))
					}
				})
			},
		}, {
			ID: "tools/external-ref", Severity: Warning, Revisions: modernRevisions,
			Title: "A tool's schema refers to a URL",
			Why:   "Clients must not fetch schemas automatically: a client that cannot resolve the reference should reject the tool.",
			Fix:   "Put the schema under $defs, and refer to it by #/$defs/….",
			URL:   "server/tools",
			Good:  Example{rev20260728, discovered + exModernTools(`{"name":"a","inputSchema":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"integer"}}}}`)},
			Bad:   Example{rev20260728, discovered + exModernTools(`{"name":"a","inputSchema":{"type":"object","properties":{"n":{"$ref":"https://example.com/n.json"}}}}`)},
			kinds: kindResult, methods: []string{mcp.MethodToolsList}, dir: capture.ToClient,
			check: func(v *view) {
				eachSchema(v, func(place string, s []byte) {
					if ref, at := externalRef(s, place, 0); ref != "" {
						v.report(at, "%s refers to a URL, which clients must not fetch automatically", show(ref))
					}
				})
			},
		}, {
			ID: "tools/header-annotation", Severity: Error, Revisions: modernRevisions,
			Title: "An x-mcp-header is invalid",
			Why:   "Clients on HTTP must omit the tool from the list.",
			Fix:   "Set x-mcp-header to a unique HTTP token, on a string, integer or boolean property that is reached through properties alone.",
			URL:   "basic/transports/streamable-http#custom-headers-from-tool-parameters",
			Good:  Example{rev20260728, discovered + exModernTools(`{"name":"a","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}`)},
			Bad:   Example{rev20260728, discovered + exModernTools(`{"name":"a","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"The region"}}}}`)},
			kinds: kindResult, methods: []string{mcp.MethodToolsList}, dir: capture.ToClient,
			check: func(v *view) {
				for i, t := range elements(v.result("tools")) {
					s, place := jsonwire.Lookup(t, "inputSchema"), "/result/tools"+pointer(i)+"/inputSchema"
					if !isObject(s) || v.redactedWithin(place) {
						continue
					}
					if _, err := mcp.HeaderParams(s); err != nil {
						v.report(place, "clients on HTTP must omit the tool %s: %s", show(jsonwire.Text(jsonwire.Lookup(t, "name"))), clip.Prefix(printable.Line(err.Error()), 2*maxShown))
					}
				}
			},
		},
	}
}

func exList(what, items string) string {
	return `init
> {"jsonrpc":"2.0","id":1,"method":"` + what + `/list"}
< {"jsonrpc":"2.0","id":1,"result":{"` + what + `":[` + items + `]}}`
}

func exModernTools(tools string) string {
	return `> {"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{$meta}}}
< {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","tools":[` + tools + `],"ttlMs":0,"cacheScope":"public"}}`
}

// listRule returns the rule that forbids duplicates in a list.
func listRule(id, member1, key, method, page string, good, bad Example) rule {
	return rule{
		ID: id, Severity: Warning,
		Title: "Two of the server's " + member1 + " have the same " + key,
		Why:   "Hosts look them up by it: one of the two is unreachable, and which one differs between hosts.",
		Fix:   "Make it unique. A gateway that merges servers must add a prefix.",
		URL:   "server/" + page,
		Good:  good, Bad: bad,
		kinds: kindResult, methods: []string{method}, dir: capture.ToClient,
		check: func(v *view) {
			seen := map[string]int{}
			for i, item := range elements(v.result(member1)) {
				name := jsonwire.Lookup(item, key)
				place := "/result/" + member1 + pointer(i) + "/" + key
				if !isString(name) || len(name) > maxPairedID || i >= maxListed || v.redacted(place) {
					continue
				}
				if first, ok := seen[jsonwire.Text(name)]; ok {
					v.report(place, "%s is also number %d of the list", showJSON(name), first+1)
					continue
				}
				seen[jsonwire.Text(name)] = i
			}
		},
	}
}

const maxListed = 1 << 16

// eachSchema calls visit for the schemas in a list of tools.
func eachSchema(v *view, visit func(place string, s []byte)) {
	for i, t := range elements(v.result("tools")) {
		for _, name := range []string{"inputSchema", "outputSchema"} {
			if s := jsonwire.Lookup(t, name); isObject(s) && len(s) <= maxToolText {
				visit("/result/tools"+pointer(i)+"/"+name, s)
			}
		}
	}
}
