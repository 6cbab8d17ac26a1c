package check

import (
	"time"

	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

// rulesUtilities returns the rules about progress, cancellation and logging.
func rulesUtilities() []rule {
	return []rule{{
		ID: "progress/unknown-token", Severity: Error,
		Title: "A progress notification has an unknown token",
		Why:   "The receiver cannot tell which request makes progress, and the user sees none.",
		Fix:   "Copy progressToken from the request's _meta, including its type; if there is none, send no progress.",
		URL:   "schema#progressnotificationparams",
		Good:  Example{rev20251125, exProgress(`"t"`, exProgressed(`"t"`, "1"))},
		Bad:   Example{rev20251125, exProgress(`1`, exProgressed(`"1"`, "1"))},
		kinds: kindNotification, methods: []string{mcp.NotificationProgress},
		check: func(v *view) {
			token := v.param("progressToken")
			if x := v.exchange; x != nil && v.modern && x.call != nil && !x.call.paramsLost && x.call.method != mcp.MethodSubscriptionsListen && (isString(token) || isNumber(token)) {
				if own := x.call.param("_meta", mcp.MetaProgressToken); idKey(own) != idKey(token) {
					v.report("/params/progressToken", "the request of this stream does not have the token %s", showJSON(token)).with(x.call.n)
				}
				return
			}
			if progressOf(v) == nil && (isString(token) || isNumber(token)) && len(token) <= maxPairedID && v.session.complete() && !v.session.restarted && !stateOf[progressTokens](&v.session.state).full {
				v.report("/params/progressToken", "no request has the token %s", showJSON(token))
			}
		},
	}, {
		ID: "progress/backwards", Severity: Error,
		Title: "Progress does not increase",
		Why:   "Each notification must have a greater progress than the previous one, even if the total is unknown.",
		Fix:   "Count completed work, and never restart the count for the same token.",
		URL:   "schema#progressnotificationparams",
		Good:  Example{rev20251125, exProgress(`"t"`, exProgressed(`"t"`, "0.5")+exProgressed(`"t"`, "0.75"))},
		Bad:   Example{rev20251125, exProgress(`"t"`, exProgressed(`"t"`, "0.75")+exProgressed(`"t"`, "0.5"))},
		kinds: kindNotification, methods: []string{mcp.NotificationProgress},
		check: func(v *view) {
			if p := progressOf(v); p != nil && p.n != 0 && p.done == 0 && isNumber(v.param("progress")) && notIncreasing(p.value, v.param("progress")) {
				v.report("/params/progress", "progress is %s; it was %s before", showJSON(v.param("progress")), showJSON(p.value)).with(p.n)
			}
		},
	}, {
		ID: "progress/after-completion", Severity: Error,
		Title: "Progress after the response",
		Why:   "The token is invalid after the response; the peer drops the notification, or applies it to another request.",
		Fix:   "Stop sending progress before the response is sent.",
		URL:   "schema#progressnotificationparams",
		Good:  Example{rev20251125, exProgress(`"t"`, exProgressed(`"t"`, "1"))},
		Bad:   Example{rev20251125, exProgress(`"t"`, "") + "\n" + exProgressed(`"t"`, "1")},
		kinds: kindNotification, methods: []string{mcp.NotificationProgress},
		check: func(v *view) {
			if p := progressOf(v); p != nil && p.done != 0 && !p.task {
				v.report("/params/progressToken", "the request with the token %s already has a response", showJSON(v.param("progressToken"))).with(p.done)
			}
		},
	}, {
		ID: "progress/token-reused", Severity: Error,
		Title: "A progress token is used by another pending request",
		Why:   "Progress may belong to either request.",
		Fix:   "Give each request a unique token; its id is enough.",
		URL:   "basic#_meta",
		Good:  Example{rev20251125, exProgress(`"t"`, "")},
		Bad: Example{rev20251125, exProgress(`"t"`, `> {"jsonrpc":"2.0","id":2,"method":"ping","params":{"_meta":{"progressToken":"t"}}}
< {"jsonrpc":"2.0","id":2,"result":{}}
`)},
		kinds: kindRequest,
		check: func(v *view) {
			token := v.meta(mcp.MetaProgressToken)
			if token == nil || !v.session.certain || !isString(token) && !isNumber(token) {
				return
			}
			p := stateOf[progressTokens](&v.session.state).live[tokenKey{v.e.Dir, idKey(token)}]
			if p != nil && p.done == 0 && p.call.canceled == 0 && v.session.completeSince(p.call.n) && !v.session.restarted {
				v.report("/params/_meta/progressToken", "the token %s belongs to a pending request for %s", showJSON(token), show(p.call.method)).with(p.call.n)
			}
		},
	}, {
		ID: "cancel/unknown-request", Severity: Error,
		Title: "A cancellation for an unknown request",
		Why:   "A side can only cancel its own requests. The work continues.",
		Fix:   "Copy the id of the request, including its type.",
		URL:   "schema#cancellednotificationparams",
		Good:  Example{rev20251125, exCancel("1")},
		Bad:   Example{rev20251125, exCancel(`"1"`)},
		kinds: kindNotification, methods: []string{mcp.NotificationCancelled},
		check: func(v *view) {
			id := v.param("requestId")
			s := v.session
			// Over HTTP a cancellation may overtake its request, or be the only part of it that
			// was sent.
			if s.transport != transportStdio || !isString(id) && !isNumber(id) || len(id) > maxPairedID || !s.complete() || s.restarted || v.redacted("/params/requestId") || v.checker.callsEvicted || v.modern && v.toClient() {
				return
			}
			if !s.ids[v.e.Dir].has(idKey(id), v.checker.seed) && !s.ids[v.e.Dir].full() {
				v.report("/params/requestId", "the sender has sent no request with the id %s", showJSON(id))
			}
		},
	}, {
		ID: "cancel/answered", Severity: Info,
		Title: "A cancelled request got a response",
		Why:   "Usually the two crossed on the wire. If it always happens, the server ignores cancellations.",
		Fix:   "Stop the work when notifications/cancelled arrives, and send no response.",
		URL:   "schema#cancellednotificationparams",
		Good:  Example{rev20251125, exCancel("1")},
		Bad:   Example{rev20251125, exCancel("1") + "\n" + `< {"jsonrpc":"2.0","id":1,"result":{"tools":[]}}`},
		kinds: kindResponse,
		check: func(v *view) {
			if v.call != nil && v.call.canceled != 0 && v.call.method != mcp.MethodSubscriptionsListen {
				v.report("/id", "the request was cancelled earlier").with(v.call.canceled)
			}
		},
	}, {
		ID: "cancel/progress-after", Severity: Warning,
		Title: "Progress long after a cancellation",
		Why:   "The server continues work that is no longer needed.",
		Fix:   "Stop the work when notifications/cancelled arrives, and send nothing more for the request.",
		URL:   "schema#cancellednotificationparams",
		Good:  Example{rev20251125, exCanceled + exProgressed("1", "2")},
		Bad:   Example{rev20251125, exCanceled + "wait 10s\n" + exProgressed("1", "2")},
		kinds: kindNotification, methods: []string{mcp.NotificationProgress},
		check: func(v *view) {
			if p := progressOf(v); p != nil && p.call.canceled != 0 && v.e.T-p.call.canceledT > 5*time.Second {
				v.report("", "the request was cancelled %s earlier", (v.e.T - p.call.canceledT).Round(time.Second)).with(p.call.canceled)
			}
		},
	}, {
		ID: "cancel/by-server", Severity: Error, Revisions: modernRevisions,
		Title: "The server cancels a request that is not a subscription",
		Why:   "Servers send no requests, so they have none to cancel; they may only end a subscription.",
		Fix:   "Respond to the request with an error instead.",
		URL:   "basic/patterns/cancellation",
		Good: Example{rev20260728, discovered + exListen + `< {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}
< {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":2}}}`},
		Bad: Example{rev20260728, discovered + `> {"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{$meta}}}
< {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}
< {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"public"}}`},
		kinds: kindNotification, methods: []string{mcp.NotificationCancelled}, dir: capture.ToClient,
		check: func(v *view) {
			c := v.session.pendingCall(capture.ToServer, v.param("requestId"))
			if c != nil && c.modern && c.method != mcp.MethodSubscriptionsListen && v.session.initializeResult == 0 && v.session.certain {
				v.report("/params/requestId", "the request %s is %s; a server may cancel only subscriptions/listen", showJSON(v.param("requestId")), show(c.method)).with(c.n)
			}
		},
	}, {
		ID: "logging/below-level", Severity: Warning,
		Title: "A log message is below the requested level",
		Why:   "The client requested fewer messages, and must filter them itself.",
		Fix:   "Compare severities: debug is the lowest, emergency the highest.",
		URL:   "schema#loggingmessagenotificationparams",
		Good:  Example{rev20251125, exLog("error", "critical")},
		Bad:   Example{rev20251125, exLog("error", "warning")},
		kinds: kindNotification, methods: []string{mcp.NotificationMessage}, dir: capture.ToClient,
		check: checkLogLevel,
	}, {
		ID: "logging/not-asked", Severity: Error, Revisions: modernRevisions,
		Title: "A log message that no request enabled",
		Why:   "Log messages belong to a request whose metadata has a logLevel, and come before its response.",
		Fix:   "Send notifications/message only while such a request is pending; write other logs to standard error.",
		URL:   "schema#loggingmessagenotificationparams",
		Good:  Example{rev20260728, discovered + exModernLog(`,"io.modelcontextprotocol/logLevel":"info"`)},
		Bad:   Example{rev20260728, discovered + exModernLog("")},
		kinds: kindNotification, methods: []string{mcp.NotificationMessage}, dir: capture.ToClient,
		check: func(v *view) {
			if !v.modern || v.session.initializeResult != 0 || v.session.initialize != nil || !v.session.modern && v.exchange == nil {
				return
			}
			if level, known := requestedLevel(v); known && level == mcp.LevelNone {
				v.report("", "no pending request has a logLevel")
			}
		},
	}}
}

const exListen = `> {"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{$meta}}}
< {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":2}}}
`

func exProgress(token, during string) string {
	return `init
> {"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"progressToken":` + token + `}}}
` + during + `< {"jsonrpc":"2.0","id":1,"result":{"tools":[]}}`
}

func exProgressed(token, progress string) string {
	return `< {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + token + `,"progress":` + progress + `}}
`
}

func exCancel(id string) string {
	return `init
> {"jsonrpc":"2.0","id":1,"method":"tools/list"}
> {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
}

func exLog(requested, got string) string {
	return `init
> {"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"` + requested + `"}}
< {"jsonrpc":"2.0","id":1,"result":{}}
< {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"` + got + `","data":"x"}}`
}

func exModernLog(meta string) string {
	return `> {"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{$meta` + meta + `}}}
< {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}
< {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"public"}}`
}

const exCanceled = `init
> {"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"progressToken":1}}}
< {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}
> {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}
`

// A logLevel is the level that a legacy client has set.
type logLevel struct {
	level mcp.LoggingLevel
	n     uint64
}

// observeLevel records the level once the server has accepted it.
var observeLevel = []observer{{
	kinds: kindResult, methods: []string{mcp.MethodSetLevel}, dir: capture.ToClient,
	observe: func(v *view) {
		if v.call == nil {
			return
		}
		if level, ok := mcp.ParseLoggingLevel(jsonwire.Text(v.call.param("level"))); ok {
			*stateOf[logLevel](&v.session.state) = logLevel{level, v.e.N}
		}
	},
}}

// requestedLevel returns the lowest level that a pending modern request asks for, or LevelNone.
// known is false if that is uncertain.
func requestedLevel(v *view) (level mcp.LoggingLevel, known bool) {
	add := func(c *call) bool {
		if c.paramsLost {
			return false
		}
		if l, ok := mcp.ParseLoggingLevel(jsonwire.Text(c.param("_meta", mcp.MetaLogLevel))); ok && (level == mcp.LevelNone || l < level) {
			level = l
		}
		return true
	}
	if v.exchange != nil {
		if v.exchange.call == nil || !add(v.exchange.call) {
			return level, false
		}
		return level, true
	}
	if !v.session.complete() || v.checker.callsEvicted {
		return level, false
	}
	for _, c := range v.session.calls {
		if c.dir == capture.ToServer && !add(c) {
			return level, false
		}
	}
	return level, true
}

func checkLogLevel(v *view) {
	got, ok := mcp.ParseLoggingLevel(jsonwire.Text(v.param("level")))
	if !ok {
		return
	}
	if v.modern {
		if level, known := requestedLevel(v); known && level != mcp.LevelNone && got < level && v.session.initializeResult == 0 {
			v.report("/params/level", "the level is %s, but %s was requested", showJSON(v.param("level")), level)
		}
		return
	}
	if set := stateOf[logLevel](&v.session.state); set.n != 0 && got < set.level && !pendingLevel(v.session) {
		v.report("/params/level", "the level is %s, but %s was requested", showJSON(v.param("level")), set.level).with(set.n)
	}
}

// pendingLevel reports whether a change of the level is pending.
func pendingLevel(s *session) bool {
	for _, c := range s.calls {
		if c.method == mcp.MethodSetLevel {
			return true
		}
	}
	return false
}
