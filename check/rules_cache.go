package check

import (
	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
)

// cacheScopes maps the next cursor of a list in a session to the scope of the page before it.
type cacheScopes struct {
	scopes map[string]cacheScope
}

type cacheScope struct {
	scope string
	n     uint64
}

const maxPaging = 256 // cursors of a session

// observersCache records the scopes of pages.
var observersCache = []observer{{
	kinds: kindResult, dir: capture.ToClient,
	observe: func(v *view) {
		next := v.result("nextCursor")
		if !v.modern || v.call == nil || !isString(next) || len(next) > maxPairedID {
			return
		}
		p := stateOf[cacheScopes](&v.session.state)
		setBounded(&p.scopes, maxPaging, v.call.method+" "+jsonwire.Text(next), cacheScope{jsonwire.Text(v.result("cacheScope")), v.e.N})
	},
}}

func cachePage(scope string) string {
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{$meta}}}`
	return "> " + list + "\n" + `< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","tools":[],"nextCursor":"p2","ttlMs":1000,"cacheScope":"public"}}` + "\n" +
		`> {"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"cursor":"p2","_meta":{$meta}}}` + "\n" +
		`< {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","tools":[],"ttlMs":1000,"cacheScope":"` + scope + `"}}`
}

const cacheURL = "server/utilities/caching"

// rulesCache returns the rules about caching: how long and for whom a result stays valid.
func rulesCache() []rule {
	return []rule{{
		ID: "cache/scope-varies", Severity: Error, Revisions: modernRevisions,
		Title: "Pages of one list have different scopes",
		Why:   "A cache shared by several users would show part of the list to all of them and omit the rest.",
		Fix:   "Send the same cacheScope with every page of a list: private if any page is private.",
		URL:   cacheURL,
		Good:  Example{rev20260728, cachePage("public")},
		Bad:   Example{rev20260728, cachePage("private")},
		kinds: kindResult, dir: capture.ToClient,
		check: func(v *view) {
			if v.call == nil || !v.modern || !v.complete() {
				return
			}
			cursor, scope := v.call.param("cursor"), v.result("cacheScope")
			if !isString(cursor) || !isString(scope) {
				return
			}
			before, ok := stateOf[cacheScopes](&v.session.state).scopes[v.call.method+" "+jsonwire.Text(cursor)]
			if ok && before.scope != "" && before.scope != jsonwire.Text(scope) {
				v.report("/result/cacheScope", "the cacheScope is %s, but the previous page had %s", showJSON(scope), show(before.scope)).with(before.n)
			}
		},
	}, {
		ID: "cache/question-kept", Severity: Warning, Revisions: modernRevisions,
		Title: "An input_required result has cache fields",
		Why:   "A cache that honors them would show one user the input request of another.",
		Fix:   "Omit ttlMs and cacheScope from results with resultType input_required.",
		URL:   cacheURL,
		Good:  exInput(exInputRetry("2", exInputGood)),
		Bad:   Example{rev20260728, exInputCall + "\n" + `< {"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"s1","ttlMs":0}}`},
		kinds: kindResult, dir: capture.ToClient,
		check: func(v *view) {
			if !v.inputRequired() {
				return
			}
			for _, name := range []string{"ttlMs", "cacheScope"} {
				if v.result(name) != nil {
					v.report(pointer("result", name), "the input_required result has %s", name)
				}
			}
		},
	}}
}
