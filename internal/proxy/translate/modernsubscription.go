package translate

import (
	"bytes"
	"maps"
	"slices"

	"mcpwire/internal/era"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A downstreamSubscription is a subscriptions/listen request of a client.
type downstreamSubscription struct {
	lists lists
	// uris are the granted resources, or the requested ones before the server has answered.
	uris []string
	// pending counts the resources without an answer.
	pending      int
	tasks        bool
	acknowledged bool
}

// A resourceSubscription is the server's subscription to a resource, for all clients that want it.
type resourceSubscription struct {
	uri         string
	subscribers map[*modernRequest]struct{}
	// active says that the server has accepted the subscription.
	active bool
	// pending says that a request to the server is pending.
	pending bool
	waiters []func(ok bool)
}

// reset forgets the server's state after it is lost.
func (rs *resourceSubscription) reset() { rs.active, rs.pending = false, false }

// subscribe serves subscriptions/listen.
func (t *ModernToLegacy) subscribe(r *modernRequest, m *jsonrpc.Message) {
	filter, ok := m.Param("notifications")
	switch {
	case !ok || !era.IsObject(filter):
		t.requests.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: notifications is not an object"), "")
		return
	case len(t.subscriptions) >= t.opts.Limits.Subscriptions:
		t.requests.fail(r, internalError("too many open subscriptions"), "refused")
		return
	}
	l := &downstreamSubscription{lists: filteredLists(filter), tasks: era.Lookup(filter, "taskIds") != nil}
	seen, size := make(map[string]struct{}), 0
	for uri := range filteredResources(filter) {
		if len(l.uris) == t.opts.Limits.Resources {
			break
		}
		if _, twice := seen[uri]; !twice && len(uri) <= maxPeerInfo {
			seen[uri] = struct{}{}
			l.uris = append(l.uris, uri)
			size += len(uri)
		}
	}
	if !t.requests.reserveFor(r, size) {
		return
	}
	r.subscription = l
	r.onFinish = func() { t.removeSubscription(r) }
	t.subscriptions = append(t.subscriptions, r)
	t.handshake.whenReady(r, func() { t.startSubscription(r) })
}

func (t *ModernToLegacy) startSubscription(r *modernRequest) {
	l := r.subscription
	if l.tasks && t.server.hasTasks() && r.client.Extension(t.modern, mcp.ExtensionTasks) == nil {
		t.requests.fail(r, errTasksUndeclared(), "")
		return
	}
	l.lists = l.lists.and(announcedLists(t.server.caps))
	uris := l.uris
	l.uris, l.pending = nil, 1
	if string(era.Lookup(t.server.caps, "resources", "subscribe")) == "true" {
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

// subscribeResource subscribes to a resource for a client.
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

// resourceAnswered handles the answer for a resource. After the last it acknowledges the
// subscription.
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
	params := l.lists.appendFilter([]byte(`{"notifications":`), l.uris)
	t.notifySubscriber(r, mcp.NotificationAcknowledged, append(params, '}'), "subscriptions/listen")
}

// notifySubscriber sends a notification on a subscription.
func (t *ModernToLegacy) notifySubscriber(r *modernRequest, method string, params []byte, rule string) {
	params = addMeta(params, append([]byte(`"`+mcp.MetaSubscriptionID+`":`), r.id...))
	t.emit(Out{To: Downstream, Stream: r.key.stream, Message: jsonrpc.AppendNotification(nil, method, params), Rule: rule})
}

// syncResource subscribes or unsubscribes at the server, depending on the clients.
func (t *ModernToLegacy) syncResource(u *resourceSubscription) {
	want := len(u.subscribers) > 0
	if !want && !u.active && !u.pending {
		delete(t.resources, u.uri)
		return
	}
	if u.pending || !t.handshake.ready() {
		return
	}
	params := uriParams(u.uri)
	switch {
	case want && !u.active:
		u.pending = true
		t.calls.call(mcp.MethodResourcesSubscribe, params, "subscriptions/listen → resources/subscribe", func(o outcome) {
			u.pending, u.active = false, o.err == nil
			if t.handshake.down { // waiters wait for the next server
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
		t.calls.call(mcp.MethodResourcesUnsubscribe, params, "subscriptions/listen → resources/unsubscribe", func(outcome) {
			u.pending, u.active = false, false
			t.syncResource(u)
		})
	}
}

// endSubscriptionsTo ends the subscriptions to a resource that a new server does not grant. The
// clients may subscribe again and learn what is granted.
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

// upstreamChanged forwards a change notification to the subscriptions that want it.
func (t *ModernToLegacy) upstreamChanged(m *jsonrpc.Message) {
	method := string(m.Method)
	v, _ := m.Param("uri")
	uri, _ := jsonrpc.ID(v).Text()
	notified := false
	for _, r := range t.subscriptions {
		l := r.subscription
		wants := slices.Contains(l.lists.notifications(), method)
		if method == mcp.NotificationResourceUpdated {
			wants = matchesSubscription(slices.Values(l.uris), uri)
		}
		if wants && l.acknowledged {
			t.notifySubscriber(r, method, bytes.Clone(m.Params), "+ subscriptionId")
			notified = true
		}
	}
	if !notified {
		t.drop("no client subscribes to it")
	}
}

// unsubscribe removes a subscription, and the server's subscriptions that nobody uses.
func (t *ModernToLegacy) unsubscribe(r *modernRequest) {
	t.removeSubscription(r)
	for _, uri := range slices.Sorted(maps.Keys(t.resources)) {
		u := t.resources[uri]
		if _, ok := u.subscribers[r]; ok {
			delete(u.subscribers, r)
			t.syncResource(u)
		}
	}
}

// removeSubscription removes a subscription from the list.
func (t *ModernToLegacy) removeSubscription(r *modernRequest) {
	t.subscriptions = slices.DeleteFunc(t.subscriptions, func(one *modernRequest) bool { return one == r })
}

// endSubscription ends a subscription on behalf of the server.
func (t *ModernToLegacy) endSubscription(r *modernRequest) {
	if r.subscription.acknowledged {
		name, params := era.Cancellation{}.Notice(r.id, r.method, "the server is shutting down")
		t.emit(Out{To: Downstream, Stream: r.key.stream, Message: jsonrpc.AppendNotification(nil, name, params), Rule: "subscription ends"})
	}
	result := append([]byte(`{"resultType":"complete","_meta":{"`+mcp.MetaSubscriptionID+`":`), r.id...)
	t.requests.sendResult(r, append(result, `}}`...), "subscription ends")
}

// resumeSubscriptions restores the subscriptions at a new server, and announces changes to clients.
func (t *ModernToLegacy) resumeSubscriptions(subscriptions []*modernRequest) {
	for _, uri := range slices.Sorted(maps.Keys(t.resources)) {
		t.syncResource(t.resources[uri])
	}
	t.announceAll(subscriptions, "the server is connected again")
}

// acknowledged returns the acknowledged subscriptions.
func (t *ModernToLegacy) acknowledged() []*modernRequest {
	return slices.DeleteFunc(slices.Clone(t.subscriptions), func(r *modernRequest) bool { return !r.subscription.acknowledged })
}

// announceAll announces changes of everything that is subscribed, because some may have been
// missed.
func (t *ModernToLegacy) announceAll(subscriptions []*modernRequest, rule string) {
	for _, r := range subscriptions {
		l := r.subscription
		if r.finished {
			continue
		}
		for _, method := range l.lists.notifications() {
			t.notifySubscriber(r, method, nil, rule)
		}
		for _, uri := range l.uris {
			t.notifySubscriber(r, mcp.NotificationResourceUpdated, uriParams(uri), rule)
		}
	}
}
