package translate

import (
	"bytes"
	"maps"
	"slices"

	"mcpwire/internal/era"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A modernSubscription is a subscriptions/listen request of a client.
type modernSubscription struct {
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

// A modernSubscriptions holds the subscriptions of modern clients, and the resources that the
// server notifies of.
type modernSubscriptions struct {
	*core
	server    *legacyServer
	requests  *modernRequests
	handshake *modernHandshake
	calls     *modernCalls

	// open holds the pending subscriptions/listen requests.
	open []*modernRequest
	// resources holds the subscribed resources by URI.
	resources map[string]*resourceSubscription
}

// subscribe serves subscriptions/listen.
func (ms *modernSubscriptions) subscribe(r *modernRequest, m *jsonrpc.Message) {
	filter, ok := m.Param("notifications")
	switch {
	case !ok || !era.IsObject(filter):
		ms.requests.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: notifications is not an object"), "")
		return
	case len(ms.open) >= ms.opts.Limits.Subscriptions:
		ms.requests.fail(r, internalError("too many open subscriptions"), "refused")
		return
	}
	l := &modernSubscription{lists: filteredLists(filter), tasks: era.Lookup(filter, "taskIds") != nil}
	seen, size := make(map[string]struct{}), 0
	for uri := range filteredResources(filter) {
		if len(l.uris) == ms.opts.Limits.Resources {
			break
		}
		if _, twice := seen[uri]; !twice && len(uri) <= maxPeerInfo {
			seen[uri] = struct{}{}
			l.uris = append(l.uris, uri)
			size += len(uri)
		}
	}
	if !ms.requests.reserveFor(r, size) {
		return
	}
	r.subscription = l
	r.onFinish = func() { ms.remove(r) }
	ms.open = append(ms.open, r)
	ms.handshake.whenReady(r, func() { ms.start(r) })
}

// start grants a subscription the lists that the server announces, and subscribes to its resources.
func (ms *modernSubscriptions) start(r *modernRequest) {
	l := r.subscription
	if l.tasks && ms.server.hasTasks() && r.client.Extension(ms.modern, mcp.ExtensionTasks) == nil {
		ms.requests.fail(r, errTasksUndeclared(), "")
		return
	}
	l.lists = l.lists.and(announcedLists(ms.server.caps))
	uris := l.uris
	l.uris, l.pending = nil, 1
	if string(era.Lookup(ms.server.caps, "resources", "subscribe")) == "true" {
		for _, uri := range uris {
			if ms.resources[uri] == nil && len(ms.resources) >= ms.opts.Limits.Resources {
				break
			}
			l.pending++
			ms.subscribeResource(uri, r)
		}
	}
	ms.resourceAnswered(r, "", false)
}

// subscribeResource subscribes to a resource for a client.
func (ms *modernSubscriptions) subscribeResource(uri string, r *modernRequest) {
	u := ms.resources[uri]
	if u == nil {
		u = &resourceSubscription{uri: uri, subscribers: make(map[*modernRequest]struct{})}
		ms.resources[uri] = u
	}
	u.subscribers[r] = struct{}{}
	if u.active && !u.pending {
		ms.resourceAnswered(r, uri, true)
		return
	}
	u.waiters = append(u.waiters, func(ok bool) {
		if !ok {
			delete(u.subscribers, r)
		}
		ms.resourceAnswered(r, uri, ok)
	})
	ms.sync(u)
}

// resourceAnswered handles the answer for a resource. After the last it acknowledges the
// subscription.
func (ms *modernSubscriptions) resourceAnswered(r *modernRequest, uri string, ok bool) {
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
	ms.notify(r, mcp.NotificationAcknowledged, append(params, '}'), "subscriptions/listen")
}

// notify sends a notification on a subscription.
func (ms *modernSubscriptions) notify(r *modernRequest, method string, params []byte, rule string) {
	params = addMeta(params, append([]byte(`"`+mcp.MetaSubscriptionID+`":`), r.id...))
	ms.emit(Out{To: Downstream, Stream: r.key.stream, Message: jsonrpc.AppendNotification(nil, method, params), Rule: rule})
}

// sync subscribes or unsubscribes at the server, depending on the clients.
func (ms *modernSubscriptions) sync(u *resourceSubscription) {
	want := len(u.subscribers) > 0
	if !want && !u.active && !u.pending {
		delete(ms.resources, u.uri)
		return
	}
	if u.pending || !ms.handshake.ready() {
		return
	}
	params := uriParams(u.uri)
	switch {
	case want && !u.active:
		u.pending = true
		ms.calls.call(mcp.MethodResourcesSubscribe, params, "subscriptions/listen → resources/subscribe", func(o outcome) {
			u.pending, u.active = false, o.err == nil
			if ms.handshake.down { // waiters wait for the next server
				ms.sync(u)
				return
			}
			waiters := u.waiters
			u.waiters = nil
			for _, notify := range waiters {
				notify(u.active)
			}
			if !u.active {
				ms.endAll(u)
			}
			ms.sync(u)
		})
	case !want && u.active:
		u.pending = true
		ms.calls.call(mcp.MethodResourcesUnsubscribe, params, "subscriptions/listen → resources/unsubscribe", func(outcome) {
			u.pending, u.active = false, false
			ms.sync(u)
		})
	}
}

// endAll ends the subscriptions to a resource that a new server does not grant. The clients
// may subscribe again and learn what is granted.
func (ms *modernSubscriptions) endAll(u *resourceSubscription) {
	users := u.subscribers
	u.subscribers = make(map[*modernRequest]struct{})
	for _, r := range slices.Clone(ms.open) {
		if _, ok := users[r]; ok {
			ms.unsubscribe(r)
			ms.end(r)
		}
	}
}

// forward forwards a change notification to the subscriptions that want it.
func (ms *modernSubscriptions) forward(m *jsonrpc.Message) {
	method := string(m.Method)
	v, _ := m.Param("uri")
	uri, _ := jsonrpc.ID(v).Text()
	notified := false
	for _, r := range ms.open {
		l := r.subscription
		wants := slices.Contains(l.lists.notifications(), method)
		if method == mcp.NotificationResourceUpdated {
			wants = matchesSubscription(slices.Values(l.uris), uri)
		}
		if wants && l.acknowledged {
			ms.notify(r, method, bytes.Clone(m.Params), "+ subscriptionId")
			notified = true
		}
	}
	if !notified {
		ms.drop("no client subscribes to it")
	}
}

// unsubscribe removes a subscription, and the server's subscriptions that nobody uses.
func (ms *modernSubscriptions) unsubscribe(r *modernRequest) {
	ms.remove(r)
	for _, uri := range slices.Sorted(maps.Keys(ms.resources)) {
		u := ms.resources[uri]
		if _, ok := u.subscribers[r]; ok {
			delete(u.subscribers, r)
			ms.sync(u)
		}
	}
}

// remove removes a subscription from the list.
func (ms *modernSubscriptions) remove(r *modernRequest) {
	ms.open = slices.DeleteFunc(ms.open, func(one *modernRequest) bool { return one == r })
}

// end ends a subscription on behalf of the server.
func (ms *modernSubscriptions) end(r *modernRequest) {
	if r.subscription.acknowledged {
		name, params := era.Cancellation{}.Notice(r.id, r.method, "the server is shutting down")
		ms.emit(Out{To: Downstream, Stream: r.key.stream, Message: jsonrpc.AppendNotification(nil, name, params), Rule: "subscription ends"})
	}
	result := append([]byte(`{"resultType":"complete","_meta":{"`+mcp.MetaSubscriptionID+`":`), r.id...)
	ms.requests.sendResult(r, append(result, `}}`...), "subscription ends")
}

// lost forgets the server's subscriptions, because the server is lost.
func (ms *modernSubscriptions) lost() {
	for _, u := range ms.resources {
		u.reset()
		ms.sync(u)
	}
}

// close ends the acknowledged subscriptions.
func (ms *modernSubscriptions) close() {
	for _, r := range ms.acknowledged() {
		ms.end(r)
	}
	ms.open = nil
}

// resume restores the subscriptions at a new server, and announces changes to clients.
func (ms *modernSubscriptions) resume(subscriptions []*modernRequest) {
	for _, uri := range slices.Sorted(maps.Keys(ms.resources)) {
		ms.sync(ms.resources[uri])
	}
	ms.announceAll(subscriptions, "the server is connected again")
}

func (ms *modernSubscriptions) acknowledged() []*modernRequest {
	return slices.DeleteFunc(slices.Clone(ms.open), func(r *modernRequest) bool { return !r.subscription.acknowledged })
}

// announceAll announces changes of everything that is subscribed, because some may have been
// missed.
func (ms *modernSubscriptions) announceAll(subscriptions []*modernRequest, rule string) {
	for _, r := range subscriptions {
		l := r.subscription
		if r.finished {
			continue
		}
		for _, method := range l.lists.notifications() {
			ms.notify(r, method, nil, rule)
		}
		for _, uri := range l.uris {
			ms.notify(r, mcp.NotificationResourceUpdated, uriParams(uri), rule)
		}
	}
}
