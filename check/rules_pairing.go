package check

import (
	"time"

	"mcpwire/capture"
	"mcpwire/internal/base/sparse"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// rulesPairing returns the rules about how responses match requests.
func rulesPairing() []rule {
	return []rule{{
		ID: "jsonrpc/id-reused", Severity: Error, Revisions: legacyRevisions,
		Title: "A request reuses an earlier id",
		Why:   "In a session every request has a unique id, so that a late response, a cancellation or a log entry refers to only one.",
		Fix:   "Number the requests of a session, and never restart the count.",
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
		kinds: kindRequest,
		check: func(v *view) {
			if !v.msg.paired() || !v.session.certain || v.session.restarted || v.redacted("/id") {
				return
			}
			if ids := v.session.ids[v.e.Dir]; ids.has(idKey(v.msg.id), v.checker.seed) {
				n := v.session.answered[v.e.Dir].numbers[idKey(v.msg.id)]
				v.report("/id", "the id %s was already used in this session", showJSON(v.msg.id)).with(n)
			}
		},
	}, {
		ID: "jsonrpc/id-outstanding", Severity: Error, Revisions: modernRevisions,
		Title: "A request has the id of a pending request",
		Why:   "The response cannot be matched to one of the two.",
		Fix:   "Reuse an id only after its response has arrived, or better never.",
		URL:   "basic",
		Good: Example{rev20260728, `> {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{$meta}}}
< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["$rev"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"public"}}
> {"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{$meta}}}
< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"public"}}`},
		Bad: Example{rev20260728, `> {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{$meta}}}
> {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{$meta}}}
< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["$rev"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"public"}}
< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["$rev"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"public"}}`},
		kinds: kindRequest,
		check: func(v *view) {
			if !v.msg.paired() || !v.session.certain || v.redacted("/id") {
				return
			}
			if c := v.session.pendingCall(v.e.Dir, v.msg.id); c != nil && c.canceled == 0 && v.session.completeSince(c.n) {
				v.report("/id", "the id %s belongs to a pending request for %s", showJSON(v.msg.id), show(c.method)).with(c.n)
			}
		},
	}, {
		ID: "jsonrpc/id-missing", Severity: Error,
		Title: "A response has no id",
		Why:   "It cannot be matched to its request, which waits until it times out. Only an error about an unreadable message has no id.",
		Fix:   "Copy the id of the request, byte for byte.",
		URL:   "basic",
		Good:  Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:   Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"result\":{}}"},
		kinds: kindResponse,
		check: func(v *view) {
			switch {
			case len(v.msg.id) > 0 && !v.msg.id.IsNull() || answersNotification(v):
			case v.msg.is(kindResult):
				v.report("", "this result has no id, so it cannot be matched to a request")
			case v.session.transport == transportStdio && !unreadable(v):
				v.report("", "this error has no id, but there was no unreadable message before it")
			}
		},
	}, {
		ID: "jsonrpc/error-id-null", Severity: Warning, Revisions: hasURLElicitation,
		Title:        "An error has the id null",
		Why:          "Since $r4, an error about a message whose id is unreadable has no id; strict clients reject null.",
		Fix:          "Omit the id.",
		URL:          "basic",
		Good:         Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"vendor/x\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,\"message\":\"method not found\"}}"},
		Bad:          Example{rev20251125, "init\n> [}\n< {\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"parse error\"}}"},
		consequences: []string{"stdio/stray-input"},
		kinds:        kindError,
		check: func(v *view) {
			if v.msg.id.IsNull() && !answersNotification(v) {
				v.report("/id", "the id of this error is null; since %s it must be omitted", rev20251125)
			}
		},
	}, {
		ID: "jsonrpc/notification-answered", Severity: Error,
		Title: "A notification got a response",
		Why:   "The sender expects no response: strict clients treat it as an invalid message.",
		Fix:   "Respond only to messages with an id. Ignore notifications with unknown methods.",
		URL:   "basic",
		Good:  Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"method\":\"notifications/roots/list_changed\"}"},
		Bad: Example{rev20251125, `init
> {"jsonrpc":"2.0","method":"notifications/roots/list_changed"}
< {"jsonrpc":"2.0","error":{"code":-32601,"message":"method not found"}}`},
		kinds: kindResponse,
		check: func(v *view) {
			if answersNotification(v) {
				v.report("", "this response belongs to no request: the message before it is a notification (%s)", show(stateOf[lastFrames](&v.session.state).of[opposite(v.e.Dir)].method)).
					with(stateOf[lastFrames](&v.session.state).of[opposite(v.e.Dir)].n)
			}
		},
	}, {
		ID: "jsonrpc/unknown-id", Severity: Error,
		Title: "A response matches no request",
		Why:   "No request has its id: usually the id was changed (1 became \"1\" or 1.0), and the real request waits forever.",
		Fix:   "Copy the id of the request, byte for byte.",
		URL:   "basic",
		Good:  Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:   Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":\"1\",\"result\":{}}"},
		kinds: kindResponse,
		check: func(v *view) {
			if x := loneExchange(v); x != nil && !x.call.id.Equal(v.msg.id) {
				v.report("/id", "the id is %s, but the request in this exchange has %s", showJSON(v.msg.id), showJSON(x.call.id)).with(x.call.n)
			}
			if !isUnmatched(v) {
				return
			}
			if _, ok := v.session.answered[opposite(v.e.Dir)].numbers[idKey(v.msg.id)]; !ok {
				v.report("/id", "no request has the id %s%s", showJSON(v.msg.id), similar(v))
			}
		},
	}, {
		ID: "jsonrpc/answered-twice", Severity: Error,
		Title: "A request got two responses",
		Why:   "The client uses the first. The second is lost, or breaks the connection.",
		Fix:   "Respond to each request once; send progress and logs as notifications.",
		URL:   "basic",
		Good:  Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:   Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		kinds: kindResponse,
		check: func(v *view) {
			if x := loneExchange(v); x != nil && x.answered && x.call.id.Equal(v.msg.id) {
				v.report("/id", "the request in this exchange already has a response").with(x.call.n)
			}
			if !isUnmatched(v) {
				return
			}
			if n, ok := v.session.answered[opposite(v.e.Dir)].numbers[idKey(v.msg.id)]; ok {
				v.report("/id", "the request with the id %s already has a response", showJSON(v.msg.id)).with(n)
			}
		},
	}, {
		ID: "lifecycle/unanswered", Severity: Warning,
		Title: "A request got no response",
		Why:   "Every request must get a response, even if it is an error. The client waits until it times out.",
		Fix:   "Respond even if a handler fails or is slow; send progress meanwhile. A client that no longer needs the response sends notifications/cancelled.",
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
		end: checkUnanswered,
	}}
}

// isUnmatched reports whether v is a response with an id that matches no pending request, in a
// session with no missing events. If two requests with that id are pending, it may answer either.
func isUnmatched(v *view) bool {
	return v.call == nil && v.msg.paired() && !v.checker.callsEvicted && v.session.complete() && !v.session.restarted && !v.redacted("/id") && v.session.pendingCall(opposite(v.e.Dir), v.msg.id) == nil
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
	if c := v.session.pendingCall(opposite(v.e.Dir), guess); c != nil {
		return "; the pending request has " + showJSON(guess) + ", which is a different id"
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
		bad := v.msg.is(kindOther) || v.msg.is(kindRequest) && !v.msg.id.Valid() || v.msg.badMethod != nil ||
			v.msg.is(kindCall) && v.msg.params != nil && !isObject(v.msg.params) || v.msg.batch || jsonwire.Text(v.msg.version) != "2.0" || v.e.Why != ""
		recordFrame(v, v.msg.kind, clip.Prefix(v.msg.method, maxShown), bad)
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
	bad = bad || last.of[v.e.Dir].unreadable
	sparse.Set(&last.of, v.e.Dir, lastFrame{v.e.N, k, method, bad})
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
			v.report("", "initialize got no response in the %s until the client gave up", silent.Round(1e9)).aboutCall(c).with(c.canceled)
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
