package check

import (
	"strings"

	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

// Since 2026-07-28 servers announce changes only to clients that subscribed with
// subscriptions/listen
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions).

// A subscription is the state of a subscriptions/listen.
type subscription struct {
	// acked is the number of the event with the acknowledgment, or 0.
	acked uint64
}

// observersSubscription records acknowledgments.
var observersSubscription = []observer{{
	kinds: kindNotification, dir: capture.ToClient, methods: []string{mcp.NotificationAcknowledged},
	observe: func(v *view) {
		if c := v.subscriptionCall(); c != nil {
			if l := stateOf[subscription](&c.state); l.acked == 0 {
				l.acked = v.e.N
			}
		}
	},
}}

// subscriptionCall returns the subscriptions/listen that a notification of the server belongs to,
// or nil if unknown. Over HTTP it is the call of the exchange.
func (v *view) subscriptionCall() *call {
	if v.exchange != nil {
		if c := v.exchange.call; c != nil && c.method == mcp.MethodSubscriptionsListen && v.session.transport == transportHTTP {
			return c
		}
		return nil
	}
	id := v.meta(mcp.MetaSubscriptionID)
	if id == nil {
		return nil
	}
	if c := v.session.pendingCall(capture.ToServer, id); c != nil && c.method == mcp.MethodSubscriptionsListen {
		return c
	}
	return nil
}

// filterName returns the member of the filter that selects a notification, or "".
func filterName(method string) string {
	switch method {
	case mcp.NotificationToolsChanged:
		return "toolsListChanged"
	case mcp.NotificationPromptsChanged:
		return "promptsListChanged"
	case mcp.NotificationResourcesChanged:
		return "resourcesListChanged"
	case mcp.NotificationResourceUpdated:
		return "resourceSubscriptions"
	}
	return ""
}

const (
	exListenCall   = `> {"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{$meta}}}`
	exListenAck    = `< {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}`
	exListenNotify = `< {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}`
	exListenEnd    = `< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":1}}}`
	exListenGood   = exListenCall + "\n" + exListenAck + "\n" + exListenNotify + "\n" + exListenEnd
)

// rulesSubscription returns the rules about subscriptions.
func rulesSubscription() []rule {
	return []rule{{
		ID: "listen/ack-first", Severity: Error, Revisions: modernRevisions,
		Title: "A notification arrives before its subscription is acknowledged",
		Why:   "Until then the client does not know which notifications it will get, and may drop this one.",
		Fix:   "Send notifications/subscriptions/acknowledged before anything else with that subscriptionId.",
		URL:   "basic/patterns/subscriptions",
		Good:  Example{rev20260728, exListenGood},
		Bad:   Example{rev20260728, exListenCall + "\n" + exListenNotify + "\n" + exListenAck + "\n" + exListenEnd},
		kinds: kindNotification, dir: capture.ToClient,
		check: func(v *view) {
			c := v.subscriptionCall()
			if c == nil || v.msg.method == mcp.NotificationAcknowledged || stateOf[subscription](&c.state).acked != 0 || !v.session.completeSince(c.n) {
				return
			}
			v.report("", "%s arrived before the subscription was acknowledged", show(v.msg.method)).with(c.n)
		},
	}, {
		ID: "listen/not-requested", Severity: Error, Revisions: modernRevisions,
		Title: "A notification that the subscription did not request",
		Why:   "The client, or a proxy, may not be allowed to see it.",
		Fix:   "Send only the kinds of notification that the filter of subscriptions/listen names.",
		URL:   "basic/patterns/subscriptions",
		Good:  Example{rev20260728, exListenGood},
		Bad:   Example{rev20260728, exListenCall + "\n" + exListenAck + "\n" + `< {"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}` + "\n" + exListenEnd},
		kinds: kindNotification, dir: capture.ToClient,
		check: func(v *view) {
			c, name := v.subscriptionCall(), filterName(v.msg.method)
			if c == nil || name == "" || c.paramsLost {
				return
			}
			requested := c.param("notifications", name)
			if list := name == "resourceSubscriptions" && isArray(requested); list && count(requested) == 0 || !list && !isTrue(requested) {
				v.report("/method", "the subscription did not request %s", show(v.msg.method)).with(c.n)
			}
		},
	}, {
		ID: "listen/no-id", Severity: Error, Revisions: modernRevisions,
		Title: "A change notification has no subscription id",
		Why:   "On stdio the client cannot tell which of its subscriptions the notification belongs to.",
		Fix:   "Put the id of the subscriptions/listen request into _meta, under io.modelcontextprotocol/subscriptionId.",
		URL:   "basic/patterns/subscriptions",
		Good:  Example{rev20260728, exListenGood},
		Bad:   Example{rev20260728, cachePage("public") + "\n" + strings.Replace(exListenCall, `"id":1`, `"id":3`, 1) + "\n" + `< {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` + "\n" + strings.Replace(exListenEnd, `"id":1`, `"id":3`, 1)},
		kinds: kindNotification, dir: capture.ToClient,
		check: func(v *view) {
			if !v.modern || v.meta(mcp.MetaSubscriptionID) != nil || v.redactedWithin("/params/_meta") {
				return
			}
			if filterName(v.msg.method) != "" || v.msg.method == mcp.NotificationAcknowledged {
				v.report("/params", "%s has no subscriptionId in its _meta", show(v.msg.method))
			}
		},
	}, {
		ID: "listen/id-type", Severity: Error, Revisions: modernRevisions,
		Title: "The subscriptionId differs from the request's id",
		Why:   "Clients look up the exact id: 1 is not \"1\".",
		Fix:   "Repeat the id of the subscriptions/listen request with the same JSON type.",
		URL:   "basic/patterns/subscriptions",
		Good:  Example{rev20260728, exListenGood},
		Bad:   Example{rev20260728, "http\npost " + exListenCall[2:] + "\nstream\n" + exListenAck + "\n" + `< {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"1"}}}`},
		kinds: kindNotification, dir: capture.ToClient,
		check: func(v *view) {
			id, c := v.meta(mcp.MetaSubscriptionID), v.subscriptionCall()
			if id != nil && c == nil && v.exchange == nil && v.session.certain {
				c = v.otherSubscription(id)
			}
			if id != nil && c != nil && idKey(id) != idKey(c.id) {
				v.report(pointer("params", "_meta", mcp.MetaSubscriptionID), "the subscriptionId is %s, but the request's id is %s", showJSON(id), showJSON(c.id)).with(c.n)
			}
		},
	}, {
		ID: "listen/not-for-subscriptions", Severity: Error, Revisions: modernRevisions,
		Title: "A subscription stream carries progress or log messages",
		Why:   "They belong to the request that asked for them, and clients expect them only there.",
		Fix:   "Send notifications/progress and notifications/message on the stream of their request.",
		URL:   "basic/patterns/subscriptions",
		Good:  Example{rev20260728, exListenGood},
		Bad:   Example{rev20260728, exListenCall + "\n" + exListenAck + "\n" + `< {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x","_meta":{"io.modelcontextprotocol/subscriptionId":1}}}` + "\n" + exListenEnd},
		kinds: kindNotification, dir: capture.ToClient, methods: []string{mcp.NotificationProgress, mcp.NotificationMessage},
		check: func(v *view) {
			if c := v.subscriptionCall(); c != nil {
				v.report("/method", "%s was sent with the subscription %s", show(v.msg.method), showJSON(c.id)).with(c.n)
			}
		},
	}, {
		ID: "listen/elsewhere", Severity: Error, Revisions: modernRevisions,
		Title: "A change notification is on the stream of another request",
		Why:   "A response stream carries only messages of its request.",
		Fix:   "Send change notifications only on the streams of subscriptions/listen.",
		URL:   "basic/transports/streamable-http",
		Good:  Example{rev20260728, "http\npost " + exListenCall[2:] + "\nstream\n" + exListenAck + "\n" + exListenNotify + "\n" + exListenEnd + "\nend"},
		Bad:   Example{rev20260728, "http\npost " + `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a","_meta":{$meta}}}` + "\nstream\n" + `< {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}` + "\n" + `< {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[]}}` + "\nend"},
		kinds: kindNotification, dir: capture.ToClient,
		check: func(v *view) {
			if v.modern && v.exchange != nil && v.exchange.call != nil && v.exchange.call.method != mcp.MethodSubscriptionsListen && (filterName(v.msg.method) != "" || v.msg.method == mcp.NotificationAcknowledged) {
				v.report("/method", "%s was sent on the stream of %s", show(v.msg.method), show(v.exchange.call.method)).with(v.exchange.call.n)
			}
		},
	}}
}

// otherSubscription returns the only open subscription whose id has the same text as id but another
// type, or nil.
func (v *view) otherSubscription(id []byte) *call {
	read := func(id []byte) string {
		if isString(id) {
			return jsonwire.Text(id)
		}
		return string(id)
	}
	var found []*call
	for _, c := range v.session.calls {
		if c.method == mcp.MethodSubscriptionsListen && c.dir == capture.ToServer && read(c.id) == read(id) {
			found = append(found, c)
		}
	}
	if len(found) != 1 {
		return nil
	}
	return found[0]
}
