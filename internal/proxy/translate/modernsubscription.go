package translate

import (
	"bytes"
	"maps"
	"slices"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A listener is what a subscriptions/listen request of a client is told.
type downstreamSubscription struct {
	tools, prompts, resources bool
	uris                      []string // that the server lets be subscribed to, or that were asked for until it has said so
	pending                   int      // uris that it has not said so of
	tasks                     bool     // it wants to hear of tasks
	acknowledged              bool
}

// resourceSubscription is a resource that the server is subscribed to for all listeners that want it.
type resourceSubscription struct {
	uri         string
	subscribers map[*modernRequest]struct{}
	active      bool // the server has said yes
	pending     bool // the server is being asked
	waiters     []func(ok bool)
}

// reset forgets what the server has said: it is gone.
func (rs *resourceSubscription) reset() { rs.active, rs.pending = false, false }

// subscribe serves subscriptions/listen.
func (t *ModernToLegacy) subscribe(r *modernRequest, m *jsonrpc.Message) {
	filter, ok := m.Param("notifications")
	switch {
	case !ok || !era.IsObject(filter):
		t.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: notifications is no object"), "")
		return
	case len(t.subscriptions) >= t.opts.Limits.Subscriptions:
		t.fail(r, internalError("too many subscriptions are open"), "refused")
		return
	}
	is := func(name string) bool { return string(era.Lookup(filter, name)) == "true" }
	l := &downstreamSubscription{tools: is("toolsListChanged"), prompts: is("promptsListChanged"), resources: is("resourcesListChanged")}
	if list := era.Lookup(filter, "resourceSubscriptions"); len(list) > 0 && list[0] == '[' {
		elements := jsonwire.ArrayElements(list)
		seen, size := make(map[string]struct{}), 0
		for elements.Next() && len(l.uris) < t.opts.Limits.Resources {
			uri, ok := jsonrpc.ID(elements.Value()).Text()
			if _, twice := seen[uri]; ok && !twice && len(uri) <= maxPeerInfo {
				seen[uri] = struct{}{}
				l.uris = append(l.uris, uri)
				size += len(uri)
			}
		}
		if !t.reserveFor(r, size) {
			return
		}
	}
	l.tasks = era.Lookup(filter, "taskIds") != nil
	r.subscription = l
	t.subscriptions = append(t.subscriptions, r)
	t.whenReady(r, func() { t.startSubscription(r) })
}

func (t *ModernToLegacy) startSubscription(r *modernRequest) {
	l := r.subscription
	if l.tasks && t.hasTasks() && r.client.Extension(t.modern, mcp.ExtensionTasks) == nil {
		t.fail(r, errTasksUndeclared(), "")
		return
	}
	is := func(path ...string) bool { return string(era.Lookup(t.server.caps, path...)) == "true" }
	l.tools = l.tools && is("tools", "listChanged")
	l.prompts = l.prompts && is("prompts", "listChanged")
	l.resources = l.resources && is("resources", "listChanged")
	uris := l.uris
	l.uris, l.pending = nil, 1
	if is("resources", "subscribe") {
		for _, uri := range uris {
			if t.resources[uri] == nil && len(t.resources) >= t.opts.Limits.Resources {
				break
			}
			l.pending++
			t.subscribeResource(uri, r)
		}
	}
	t.resourceAnswered(r, "", false)
}

// subscribeResource subscribes to a resource for a listener.
func (t *ModernToLegacy) subscribeResource(uri string, r *modernRequest) {
	u := t.resources[uri]
	if u == nil {
		u = &resourceSubscription{uri: uri, subscribers: make(map[*modernRequest]struct{})}
		t.resources[uri] = u
	}
	u.subscribers[r] = struct{}{}
	if u.active && !u.pending {
		t.resourceAnswered(r, uri, true)
		return
	}
	u.waiters = append(u.waiters, func(ok bool) {
		if !ok {
			delete(u.subscribers, r)
		}
		t.resourceAnswered(r, uri, ok)
	})
	t.syncResource(u)
}

// resourceAnswered takes the verdict on one of a listener's resources, and tells the client of all when the last is there.
func (t *ModernToLegacy) resourceAnswered(r *modernRequest, uri string, ok bool) {
	l := r.subscription
	if r.finished {
		return
	}
	l.pending--
	if ok {
		l.uris = append(l.uris, uri)
	}
	if l.pending > 0 {
		return
	}
	l.acknowledged = true
	var accepted []byte
	for _, kind := range []struct {
		name string
		on   bool
	}{{"toolsListChanged", l.tools}, {"promptsListChanged", l.prompts}, {"resourcesListChanged", l.resources}} {
		if kind.on {
			accepted = append(append(append(accepted, `,"`...), kind.name...), `":true`...)
		}
	}
	if len(l.uris) > 0 {
		accepted = append(accepted, `,"resourceSubscriptions":[`...)
		for i, uri := range l.uris {
			if i > 0 {
				accepted = append(accepted, ',')
			}
			accepted = jsonwire.AppendQuote(accepted, uri)
		}
		accepted = append(accepted, ']')
	}
	params := []byte(`{"notifications":{`)
	if accepted != nil {
		params = append(params, accepted[1:]...)
	}
	t.notifySubscriber(r, mcp.NotificationAcknowledged, append(params, `}}`...), "subscriptions/listen")
}

// notifySubscriber sends a notification on a subscription.
func (t *ModernToLegacy) notifySubscriber(r *modernRequest, method string, params []byte, rule string) {
	params = addMeta(params, append([]byte(`"`+mcp.MetaSubscriptionID+`":`), r.id...))
	t.emit(Out{To: Downstream, Stream: r.key.stream, Message: jsonrpc.AppendNotification(nil, method, params), Rule: rule})
}

// syncResource makes the server's subscription what the listeners want.
func (t *ModernToLegacy) syncResource(u *resourceSubscription) {
	want := len(u.subscribers) > 0
	if !want && !u.active && !u.pending {
		delete(t.resources, u.uri)
		return
	}
	if u.pending || t.phase != ready || t.upstreamDown {
		return
	}
	params := append(jsonwire.AppendQuote([]byte(`{"uri":`), u.uri), '}')
	switch {
	case want && !u.active:
		u.pending = true
		t.callUpstream(mcp.MethodResourcesSubscribe, params, "subscriptions/listen → resources/subscribe", func(o outcome) {
			u.pending, u.active = false, o.err == nil
			if t.upstreamDown { // who waits does so until it is back
				t.syncResource(u)
				return
			}
			waiters := u.waiters
			u.waiters = nil
			for _, notify := range waiters {
				notify(u.active)
			}
			if !u.active {
				t.endSubscriptionsTo(u)
			}
			t.syncResource(u)
		})
	case !want && u.active:
		u.pending = true
		t.callUpstream(mcp.MethodResourcesUnsubscribe, params, "subscriptions/listen → resources/unsubscribe", func(outcome) {
			u.pending, u.active = false, false
			t.syncResource(u)
		})
	}
}

// endSubscriptionsTo ends the subscriptions of those who were told that they have a resource which a server that came back does not let be subscribed to any more.
// They may subscribe again, and are then told what they get.
func (t *ModernToLegacy) endSubscriptionsTo(u *resourceSubscription) {
	users := u.subscribers
	u.subscribers = make(map[*modernRequest]struct{})
	for _, r := range slices.Clone(t.subscriptions) {
		if _, ok := users[r]; ok {
			t.unsubscribe(r)
			t.endSubscription(r)
		}
	}
}

// upstreamChanged tells all who want it.
func (t *ModernToLegacy) upstreamChanged(m *jsonrpc.Message) {
	method := string(m.Method)
	v, _ := m.Param("uri")
	uri, _ := jsonrpc.ID(v).Text()
	notified := false
	for _, r := range t.subscriptions {
		l := r.subscription
		wants := false
		switch method {
		case mcp.NotificationToolsChanged:
			wants = l.tools
		case mcp.NotificationPromptsChanged:
			wants = l.prompts
		case mcp.NotificationResourcesChanged:
			wants = l.resources
		case mcp.NotificationResourceUpdated:
			wants = matchesSubscription(slices.Values(l.uris), uri)
		}
		if wants && l.acknowledged {
			t.notifySubscriber(r, method, bytes.Clone(m.Params), "+ subscriptionId")
			notified = true
		}
	}
	if !notified {
		t.drop("no client listens for it")
	}
}

// unsubscribe forgets a listener, and the server's subscriptions that nobody wants any more.
func (t *ModernToLegacy) unsubscribe(r *modernRequest) {
	t.subscriptions = slices.DeleteFunc(t.subscriptions, func(one *modernRequest) bool { return one == r })
	for _, uri := range slices.Sorted(maps.Keys(t.resources)) {
		u := t.resources[uri]
		if _, ok := u.subscribers[r]; ok {
			delete(u.subscribers, r)
			t.syncResource(u)
		}
	}
}

// endSubscription ends a subscription on the server's side.
func (t *ModernToLegacy) endSubscription(r *modernRequest) {
	if r.subscription.acknowledged {
		name, params := era.Cancellation{}.Notice(r.id, r.method, "the server is going away")
		t.emit(Out{To: Downstream, Stream: r.key.stream, Message: jsonrpc.AppendNotification(nil, name, params), Rule: "subscription ends"})
	}
	result := append([]byte(`{"resultType":"complete","_meta":{"`+mcp.MetaSubscriptionID+`":`), r.id...)
	t.sendResult(r, append(result, `}}`...), "subscription ends")
}

// resumeSubscriptions makes the subscriptions with a server that came back, and has clients that heard from it before look at what may have changed meanwhile.
func (t *ModernToLegacy) resumeSubscriptions(subscriptions []*modernRequest) {
	for _, uri := range slices.Sorted(maps.Keys(t.resources)) {
		t.syncResource(t.resources[uri])
	}
	t.announceAll(subscriptions, "the server came back")
}

// acknowledged are the subscriptions that have been acknowledged.
func (t *ModernToLegacy) acknowledged() []*modernRequest {
	return slices.DeleteFunc(slices.Clone(t.subscriptions), func(r *modernRequest) bool { return !r.subscription.acknowledged })
}

// announceAll tells subscriptions that all has changed that they are about, as it may have.
func (t *ModernToLegacy) announceAll(subscriptions []*modernRequest, rule string) {
	for _, r := range subscriptions {
		l := r.subscription
		if r.finished {
			continue
		}
		if l.tools {
			t.notifySubscriber(r, mcp.NotificationToolsChanged, nil, rule)
		}
		if l.prompts {
			t.notifySubscriber(r, mcp.NotificationPromptsChanged, nil, rule)
		}
		if l.resources {
			t.notifySubscriber(r, mcp.NotificationResourcesChanged, nil, rule)
		}
		for _, uri := range l.uris {
			t.notifySubscriber(r, mcp.NotificationResourceUpdated, append(jsonwire.AppendQuote([]byte(`{"uri":`), uri), '}'), rule)
		}
	}
}
