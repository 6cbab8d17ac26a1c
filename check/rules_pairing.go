package check

import (
	"time"

	"mcpwire/capture"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// rulesPairing are the rules about how responses match requests.
var rulesPairing = []rule{
	{
		Rule: Rule{
			ID: "jsonrpc/id-reused", Severity: Error, Revisions: legacyRevisions,
			Title: "A request has the id of an earlier one",
			Why:   "Within a session every request has an id of its own, so that a late answer, a cancellation or a log can mean only one.",
			Fix:   "Count the requests of the session; do not start again.",
			URL:   "basic",
			Good: Example{rev20251125, `init
> {"jsonrpc":"2.0","id":1,"method":"ping"}
< {"jsonrpc":"2.0","id":1,"result":{}}
> {"jsonrpc":"2.0","id":2,"method":"ping"}
< {"jsonrpc":"2.0","id":2,"result":{}}`},
			Bad: Example{rev20251125, `init
> {"jsonrpc":"2.0","id":1,"method":"ping"}
< {"jsonrpc":"2.0","id":1,"result":{}}
> {"jsonrpc":"2.0","id":1,"method":"ping"}
< {"jsonrpc":"2.0","id":1,"result":{}}`},
		},
		kinds: kindRequest,
		check: func(v *view) {
			if !v.msg.paired() || !v.session.certain || v.session.restarted || v.redacted("/id") {
				return
			}
			if ids := v.session.ids[v.e.Dir]; ids.has(idKey(v.msg.id), v.checker.seed) {
				n, _ := v.session.answered[v.e.Dir].find(idKey(v.msg.id))
				v.report("/id", "the id %s was used before in this session", showJSON(v.msg.id)).with(n)
			}
		},
	},
	{
		Rule: Rule{
			ID: "jsonrpc/id-outstanding", Severity: Error, Revisions: modernRevisions,
			Title: "A request has the id of one that still waits",
			Why:   "Nobody can tell which of the two the answer belongs to.",
			Fix:   "Use an id again only when its answer has come, or better never.",
			URL:   "basic",
			Good: Example{rev20260728, `> {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{$meta}}}
< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["$rev"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"public"}}
> {"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{$meta}}}
< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"public"}}`},
			Bad: Example{rev20260728, `> {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{$meta}}}
> {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{$meta}}}
< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["$rev"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"public"}}
< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["$rev"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"public"}}`},
		},
		kinds: kindRequest,
		check: func(v *view) {
			if !v.msg.paired() || !v.session.certain || v.redacted("/id") {
				return
			}
			if c := v.session.calls[openKey{v.e.Dir, idKey(v.msg.id)}]; c != nil && c.canceled == 0 && v.session.completeSince(c.n) {
				v.report("/id", "the id %s is that of a request for %s which has no answer yet", showJSON(v.msg.id), show(c.method)).with(c.n)
			}
		},
	},
	{
		Rule: Rule{
			ID: "jsonrpc/id-missing", Severity: Error,
			Title: "A response has no id",
			Why:   "It cannot find its request, which waits until it times out. Only an error about a message that could not be read goes without an id.",
			Fix:   "Copy the id of the request, byte for byte.",
			URL:   "basic",
			Good:  Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
			Bad:   Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"result\":{}}"},
		},
		kinds: kindResponse,
		check: func(v *view) {
			switch {
			case len(v.msg.id) > 0 && !v.msg.id.IsNull() || answersNotification(v):
			case v.msg.is(kindResult):
				v.report("", "this result has no id, so nobody can tell what it answers")
			case v.session.transport == transportStdio && !unreadable(v):
				v.report("", "this error has no id, and there was no message before it that could not be read")
			}
		},
	},
	{
		Rule: Rule{
			ID: "jsonrpc/error-id-null", Severity: Warning, Revisions: hasURLElicitation,
			Title: "An error has the id null",
			Why:   "Since $r4 an error about a message whose id could not be read has no id at all; strict clients refuse null.",
			Fix:   "Leave id out.",
			URL:   "basic",
			Good:  Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"vendor/x\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,\"message\":\"method not found\"}}"},
			Bad:   Example{rev20251125, "init\n> [}\n< {\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"parse error\"}}"},
		},
		consequences: []string{"stdio/stray-input"},
		kinds:        kindError,
		check: func(v *view) {
			if v.msg.id.IsNull() && !answersNotification(v) {
				v.report("/id", "the id of this error is null; since %s it is left out", rev20251125)
			}
		},
	},
	{
		Rule: Rule{
			ID: "jsonrpc/notification-answered", Severity: Error, Revisions: hasStreamableHTTP,
			Title: "A notification was answered",
			Why:   "Whoever sent it does not wait for anything: strict clients take the answer for a broken message.",
			Fix:   "Answer only what has an id. Notifications of unknown methods are passed over.",
			URL:   "basic",
			Good:  Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"method\":\"notifications/roots/list_changed\"}"},
			Bad: Example{rev20251125, `init
> {"jsonrpc":"2.0","method":"notifications/roots/list_changed"}
< {"jsonrpc":"2.0","error":{"code":-32601,"message":"method not found"}}`},
		},
		kinds: kindResponse,
		check: func(v *view) {
			if answersNotification(v) {
				v.report("", "this response answers no request: what came before it is a notification (%s)", show(stateOf[lastFrames](&v.session.state).of[opposite(v.e.Dir)].method)).
					with(stateOf[lastFrames](&v.session.state).of[opposite(v.e.Dir)].n)
			}
		},
	},
	{
		Rule: Rule{
			ID: "jsonrpc/unknown-id", Severity: Error,
			Title: "A response to no request",
			Why:   "Its id is of no request that was sent: usually it was changed on the way (1 became \"1\" or 1.0), and the request it belongs to hangs.",
			Fix:   "Copy the id of the request, byte for byte.",
			URL:   "basic",
			Good:  Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
			Bad:   Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":\"1\",\"result\":{}}"},
		},
		kinds: kindResponse,
		check: func(v *view) {
			if x := loneExchange(v); x != nil && !x.call.id.Equal(v.msg.id) {
				v.report("/id", "the id is %s, and the request in this exchange has %s", showJSON(v.msg.id), showJSON(x.call.id)).with(x.call.n)
			}
			if !strayResponse(v) {
				return
			}
			if _, ok := v.session.answered[opposite(v.e.Dir)].find(idKey(v.msg.id)); !ok {
				v.report("/id", "no request has the id %s%s", showJSON(v.msg.id), similar(v))
			}
		},
	},
	{
		Rule: Rule{
			ID: "jsonrpc/answered-twice", Severity: Error,
			Title: "A request has two responses",
			Why:   "The client acts on the first. What the second says is lost, or breaks the connection.",
			Fix:   "Answer each request once; progress and logs are notifications.",
			URL:   "basic",
			Good:  Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
			Bad:   Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		},
		kinds: kindResponse,
		check: func(v *view) {
			if x := loneExchange(v); x != nil && x.answered && x.call.id.Equal(v.msg.id) {
				v.report("/id", "the request in this exchange was answered before").with(x.call.n)
			}
			if !strayResponse(v) {
				return
			}
			if n, ok := v.session.answered[opposite(v.e.Dir)].find(idKey(v.msg.id)); ok {
				v.report("/id", "the request with the id %s was answered before", showJSON(v.msg.id)).with(n)
			}
		},
	},
	{
		Rule: Rule{
			ID: "lifecycle/unanswered", Severity: Warning,
			Title: "A request was never answered",
			Why:   "Every request gets a response, be it an error. The client waits until it gives up, and what it has asked for hangs.",
			Fix:   "Answer, also when a handler fails or takes long; send progress meanwhile. A client that does not want the answer any more sends notifications/cancelled.",
			URL:   "basic",
			Good: Example{rev20251125, `init
> {"jsonrpc":"2.0","id":1,"method":"ping"}
< {"jsonrpc":"2.0","id":1,"result":{}}
wait 10m
> {"jsonrpc":"2.0","id":2,"method":"ping"}
< {"jsonrpc":"2.0","id":2,"result":{}}`},
			Bad: Example{rev20251125, `init
> {"jsonrpc":"2.0","id":1,"method":"ping"}
wait 10m
> {"jsonrpc":"2.0","id":2,"method":"ping"}
< {"jsonrpc":"2.0","id":2,"result":{}}`},
		},
		end: checkUnanswered,
	},
}

// strayResponse reports whether v is a response with an id that matches no pending request, in a
// session with no missing events. If two requests with that id are pending, it may answer either.
func strayResponse(v *view) bool {
	return v.call == nil && v.msg.paired() && !v.checker.callsEvicted && v.session.complete() && !v.session.restarted && !v.redacted("/id") && v.session.calls[openKey{opposite(v.e.Dir), idKey(v.msg.id)}] == nil
}

// loneExchange returns the exchange of a response that matches no known request, if only one
// request can be meant: the only one posted in that exchange, in modern revisions. Otherwise it
// returns nil.
func loneExchange(v *view) *exchange {
	x := v.exchange
	if x == nil || !v.modern || v.call != nil || !v.toClient() || x.call == nil || x.posted != 1 || !v.msg.paired() || v.redacted("/id") || v.session.complete() {
		return nil
	}
	return x
}

// similar describes the pending request that a stray response may mean, or returns "".
func similar(v *view) string {
	id := v.msg.id
	var guess jsonrpc.ID
	if s, ok := id.Text(); ok {
		guess = jsonrpc.ID(s)
	} else {
		guess = jsonrpc.StringID(string(id))
	}
	if !guess.Valid() {
		return ""
	}
	if c := v.session.calls[openKey{opposite(v.e.Dir), idKey(guess)}]; c != nil {
		return "; the one that waits has " + showJSON(guess) + ", which is not the same"
	}
	return ""
}

// lastFrames holds the last message of each side.
type lastFrames struct {
	of map[capture.Dir]lastFrame
}

type lastFrame struct {
	n      uint64
	kind   kind
	method string
	// unreadable reports that this side sent something that could not be read, and that no error
	// response has covered it yet.
	unreadable bool
}

// observePairing records the last message of each side.
var observePairing = []observer{{
	kinds: kindAny,
	observe: func(v *view) {
		bad := v.msg.is(kindOther) || v.msg.is(kindRequest) && !v.msg.id.Valid() || v.msg.is(kindCall) && !isString(v.msg.name) ||
			v.msg.is(kindCall) && v.msg.params != nil && !isObject(v.msg.params) || v.msg.batch || stringValue(v.msg.version) != "2.0" || v.e.Why != ""
		recordFrame(v, v.msg.kind, clipBytes(v.msg.method, maxShown), bad)
		if last := stateOf[lastFrames](&v.session.state).of; v.msg.is(kindError) && len(v.msg.id) == 0 {
			f := last[opposite(v.e.Dir)]
			f.unreadable = false
			last[opposite(v.e.Dir)] = f
		}
	},
}, {
	events:  []capture.Kind{capture.KindInvalid},
	observe: func(v *view) { recordFrame(v, kindOther, "", true) },
}}

func recordFrame(v *view, k kind, method string, bad bool) {
	last := stateOf[lastFrames](&v.session.state)
	if last.of == nil {
		last.of = map[capture.Dir]lastFrame{}
	}
	bad = bad || last.of[v.e.Dir].unreadable
	last.of[v.e.Dir] = lastFrame{v.e.N, k, method, bad}
}

// unreadable reports whether an error without an id may be about a message of the other side.
func unreadable(v *view) bool {
	return stateOf[lastFrames](&v.session.state).of[opposite(v.e.Dir)].unreadable || !v.session.complete()
}

// answersNotification reports whether v is a response without an id, directly after a notification
// of the other side.
func answersNotification(v *view) bool {
	if len(v.msg.id) > 0 && !v.msg.id.IsNull() || v.session.transport != transportStdio || unreadable(v) {
		return false
	}
	return stateOf[lastFrames](&v.session.state).of[opposite(v.e.Dir)].kind == kindNotification
}

// responseTimeout is how long a request may be pending before it counts as unanswered.
const responseTimeout = 60e9

// silenceTimeout is how long a server may leave initialize unanswered before it counts as silent.
const silenceTimeout = 10 * time.Second

// silentFor returns how long a call of initialize was pending until the client canceled it or
// closed the connection. It is 0 for other calls.
func (s *session) silentFor(c *call) time.Duration {
	switch {
	case c.method != mcp.MethodInitialize || c.dir != capture.ToServer || s.initializeResult != 0 || s.ended[capture.ToClient] != 0 && s.ended[capture.ToClient] < s.ended[capture.ToServer]:
		return 0
	case c.canceled != 0:
		return c.canceledT - c.t
	case s.ended[capture.ToServer] != 0:
		return s.clientClosedT - c.t
	}
	return 0
}

func checkUnanswered(v *view) {
	for _, c := range sortedCalls(v.session) {
		rec := v.session.capture
		if silent := v.session.silentFor(c); silent >= silenceTimeout && !v.checker.callsEvicted && v.session.completeSince(c.n) && !v.session.restarted {
			v.report("", "initialize got no response in %s, until the client gave up", silent.Round(1e9)).aboutCall(c).with(c.canceled)
			continue
		}
		switch {
		case c.canceled != 0 || c.method == mcp.MethodSubscriptionsListen || c.method == mcp.MethodTasksResult:
		case v.checker.callsEvicted || !v.session.completeSince(c.n) || v.session.restarted:
		// Another rule covers this.
		case v.session.exited != 0 || v.session.ended[opposite(c.dir)] != 0:
		case v.session.ended[c.dir] != 0 || rec.elapsed(c.t) < responseTimeout:
		default:
			v.report("", "this request got no response in the %s until the end of the capture", rec.elapsed(c.t).Round(1e9)).aboutCall(c)
		}
	}
}
