package check

import (
	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

// listMethods are the methods with paginated results.
var listMethods = []string{mcp.MethodToolsList, mcp.MethodResourcesList, mcp.MethodResourceTemplatesList, mcp.MethodPromptsList, mcp.MethodTasksList}

// rulesPages returns the rules about paginated lists
// (https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/pagination).
func rulesPages() []rule {
	return []rule{{
		ID: "pagination/unknown-cursor", Severity: Error, Revisions: legacyRevisions,
		Title: "A cursor that the server never sent",
		Why:   "Cursors are valid only for their server, their session and their list: the server responds with an error, or with another page.",
		Fix:   "Send nextCursor back unchanged, for the same list; omit cursor for the first page.",
		URL:   "server/utilities/pagination",
		Good:  Example{rev20251125, exPages("p2", "p2", "")},
		Bad:   Example{rev20251125, exPages("p2", "p3", "")},
		kinds: kindRequest, methods: listMethods, dir: capture.ToServer,
		check: func(v *view) {
			cursor := v.param("cursor")
			if !isString(cursor) || !v.session.complete() || v.session.restarted || v.redacted("/params/cursor") || len(cursor) > maxSessionText {
				return
			}
			if c := stateOf[cursors](&v.session.state); !c.full && !c.given[v.msg.method].has(idKey(cursor), v.checker.seed) {
				v.report("/params/cursor", "the server has not sent the cursor %s for %s", showJSON(cursor), v.msg.method)
			}
		},
	}, {
		ID: "pagination/loop", Severity: Warning,
		Title: "nextCursor is the cursor of the same page",
		Why:   "A client that reads all pages never finishes.",
		Fix:   "Omit nextCursor from the last page.",
		URL:   "server/utilities/pagination",
		Good:  Example{rev20251125, exPages("p2", "p2", "")},
		Bad:   Example{rev20251125, exPages("p2", "p2", `,"nextCursor":"p2"`)},
		kinds: kindResult, methods: listMethods, dir: capture.ToClient,
		check: func(v *view) {
			next, cursor := v.result("nextCursor"), v.call.param("cursor")
			if isString(next) && isString(cursor) && jsonwire.Text(next) == jsonwire.Text(cursor) {
				v.report("/result/nextCursor", "nextCursor is %s, which is the cursor of this page", showJSON(next)).with(v.call.n)
			}
		},
	}}
}

func exPages(given, taken, more string) string {
	return `init
> {"jsonrpc":"2.0","id":1,"method":"tools/list"}
< {"jsonrpc":"2.0","id":1,"result":{"tools":[],"nextCursor":"` + given + `"}}
> {"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"cursor":"` + taken + `"}}
< {"jsonrpc":"2.0","id":2,"result":{"tools":[]` + more + `}}`
}

// cursors holds the cursors that a server has issued, by list method.
type cursors struct {
	given map[string]*idSet
	// full reports that cursors were dropped.
	full bool
}

// observeCursors records the cursors that a server issues.
var observeCursors = []observer{{
	kinds: kindResult, methods: listMethods, dir: capture.ToClient,
	observe: func(v *view) {
		next := v.result("nextCursor")
		if !isString(next) || v.call == nil {
			return
		}
		c := stateOf[cursors](&v.session.state)
		if c.given == nil {
			c.given = map[string]*idSet{}
			for _, m := range listMethods {
				c.given[m] = &idSet{}
			}
		}
		if len(next) > maxSessionText || v.redacted("/result/nextCursor") || c.given[v.call.method].full() {
			c.full = true
			return
		}
		c.given[v.call.method].add(idKey(next), v.checker.seed)
	},
}}
