package translate

import (
	"maps"
	"slices"
	"time"

	"mcpwire/internal/base/sparse"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

const (
	minBackoff = time.Second
	// firstSubscriptionTimeout limits how long requests wait for the first subscription, so that no
	// change that they cause is missed.
	firstSubscriptionTimeout = time.Second
)

// A legacySubscription is the one subscriptions/listen request for all notifications that a legacy
// client gets: of lists and of subscribed resources. When these change, a new subscription replaces
// the old one, which stays open until the new one is acknowledged.
type legacySubscription struct {
	*core
	handshake *legacyHandshake
	requests  *legacyRequests
	calls     *legacyCalls

	// lists are the lists with change notifications.
	lists lists
	// canSubscribe says that resources have subscriptions.
	canSubscribe bool

	// uris are the subscribed resources.
	uris map[string]struct{}
	// current is the acknowledged call, or 0.
	current int64
	// pending is the unacknowledged call, or 0.
	pending     int64
	pendingURIs map[string]struct{}
	// changed says that uris changed since the pending call.
	changed bool
	// waiting holds subscribe requests until their URI is acknowledged.
	waiting []*legacyRequest
	backoff time.Duration
	retry   *timer
	// startTimer is set while requests wait for the first subscription.
	startTimer *timer
	// gap says that changes may be missed, because there was no subscription for a time.
	gap bool
}

// setCapabilities sets the notifications that the server supports.
func (ls *legacySubscription) setCapabilities(caps []byte) {
	ls.lists = announcedLists(caps)
	ls.canSubscribe = string(era.Lookup(caps, "resources", "subscribe")) == "true"
}

// subscribe serves resources/subscribe and resources/unsubscribe.
func (ls *legacySubscription) subscribe(r *legacyRequest, m *jsonrpc.Message) {
	v, _ := m.Param("uri")
	uri, ok := jsonrpc.ID(v).Text()
	switch {
	case !ok:
		ls.requests.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: uri is not a string"), "")
	case r.method == mcp.MethodResourcesUnsubscribe:
		_, had := ls.uris[uri]
		sparse.Delete(&ls.uris, uri)
		ls.resolveUnsubscribed(uri)
		ls.requests.respond(r, []byte("{}"), "resources/unsubscribe → subscriptions/listen without it")
		if had {
			ls.renew()
		}
	case ls.handshake.serverKnown && !ls.canSubscribe:
		ls.requests.fail(r, jsonrpc.MethodNotFound(r.method), "the server has no subscriptions to resources")
	case len(ls.uris) >= ls.opts.Limits.Resources || len(uri) > maxPeerInfo:
		ls.requests.fail(r, internalError("too many subscribed resources"), "refused")
	default:
		sparse.Set(&ls.uris, uri, struct{}{})
		ls.waiting = append(ls.waiting, r)
		ls.drop("resources/subscribe → subscriptions/listen")
		ls.renew()
	}
}

// resolveUnsubscribed answers pending subscribe requests for a URI that the client has since
// unsubscribed.
func (ls *legacySubscription) resolveUnsubscribed(uri string) {
	waiting := ls.waiting
	ls.waiting = nil
	for _, r := range waiting {
		if era.LookupString(r.params, "uri") == uri {
			ls.requests.respond(r, []byte("{}"), "unsubscribed since")
		} else if !r.finished {
			ls.waiting = append(ls.waiting, r)
		}
	}
}

// failWaiting fails pending subscribe requests.
func (ls *legacySubscription) failWaiting(e *jsonrpc.Error) {
	waiting := ls.waiting
	ls.waiting = nil
	for _, r := range waiting {
		sparse.Delete(&ls.uris, era.LookupString(r.params, "uri"))
		ls.requests.fail(r, e, "")
	}
}

// renew sends a new subscription, unless one is pending.
func (ls *legacySubscription) renew() {
	ls.timers.stop(ls.retry)
	if ls.pending != 0 {
		ls.changed = true
		return
	}
	if ls.calls.down {
		return
	}
	if (ls.lists == lists{}) && len(ls.uris) == 0 {
		ls.calls.cancel(ls.current, "nothing to listen for")
		ls.current = 0
		return
	}
	ls.pendingURIs, ls.changed = maps.Clone(ls.uris), false
	var c *legacyCall
	c = ls.calls.add(mcp.MethodSubscriptionsListen, nil, func(o outcome) { ls.answered(c.id, o) })
	ls.pending = c.id
	ls.sendUpstream(c.id, c.method, ls.params(), "listen")
}

func (ls *legacySubscription) params() []byte {
	filter := ls.lists.appendFilter([]byte(`"notifications":`), slices.Sorted(maps.Keys(ls.pendingURIs)))
	return ls.handshake.params(filter, false)
}

// acknowledged handles the first message of a subscription.
func (ls *legacySubscription) acknowledged(m *jsonrpc.Message) {
	id := subscriptionID(m)
	if ls.pending == 0 || id != ls.pending {
		ls.drop("acknowledges no open subscription")
		return
	}
	ls.drop("the subscription is open")
	if ls.current != 0 {
		ls.calls.cancel(ls.current, "replaced by another subscription")
	}
	ls.current, ls.pending, ls.backoff = id, 0, 0
	ls.started()
	accepted := make(map[string]bool)
	filter := era.Lookup(m.Params, "notifications")
	for uri := range filteredResources(filter) {
		accepted[uri] = true
	}
	ls.resolve(func(uri string) *jsonrpc.Error {
		if accepted[uri] {
			return nil
		}
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "the server does not allow a subscription to this resource")
	})
	if ls.gap {
		ls.gap = false
		ls.announceAll(filteredLists(filter), accepted)
	}
	if ls.changed || len(ls.waiting) > 0 {
		ls.renew()
	}
}

// announceAll announces changes of everything subscribed, because some may have been missed.
func (ls *legacySubscription) announceAll(changed lists, accepted map[string]bool) {
	const rule = "no subscription existed for a while"
	for _, method := range changed.notifications() {
		ls.emit(Out{To: Downstream, Message: jsonrpc.AppendNotification(nil, method, nil), Rule: rule})
	}
	for _, uri := range slices.Sorted(maps.Keys(ls.uris)) {
		if accepted[uri] {
			ls.emit(Out{To: Downstream, Message: jsonrpc.AppendNotification(nil, mcp.NotificationResourceUpdated, uriParams(uri)), Rule: rule})
		}
	}
}

// start sends the first subscription. Client requests wait for it, so that no change is missed.
func (ls *legacySubscription) start() {
	ls.renew()
	if ls.pending != 0 && ls.current == 0 && ls.startTimer == nil {
		ls.calls.hold()
		ls.startTimer = ls.after(firstSubscriptionTimeout, ls.started)
	}
}

// started runs the requests that wait for the first subscription.
func (ls *legacySubscription) started() {
	if ls.startTimer == nil {
		return
	}
	ls.timers.stop(ls.startTimer)
	ls.startTimer = nil
	ls.calls.release()
}

// resolve answers the subscribe requests of the pending call.
func (ls *legacySubscription) resolve(errorOf func(uri string) *jsonrpc.Error) {
	waiting := ls.waiting
	ls.waiting = nil
	for _, r := range waiting {
		if r.finished {
			continue
		}
		uri := era.LookupString(r.params, "uri")
		if _, asked := ls.pendingURIs[uri]; !asked {
			ls.waiting = append(ls.waiting, r)
			continue
		}
		if e := errorOf(uri); e != nil {
			sparse.Delete(&ls.uris, uri)
			ls.requests.fail(r, e, "subscriptions/acknowledged → resources/subscribe")
		} else {
			ls.requests.respond(r, []byte("{}"), "subscriptions/acknowledged → resources/subscribe")
		}
	}
}

// answered handles the response to a subscription.
func (ls *legacySubscription) answered(id int64, o outcome) {
	if ls.pending == id && o.err != nil {
		ls.resolve(func(string) *jsonrpc.Error {
			return era.ConvertError(o.err, mcp.MethodResourcesSubscribe, ls.handshake.legacy)
		})
		if !o.lost { // the server would repeat the error
			ls.lists = lists{}
		}
	}
	ls.ended(id)
}

var errUnacknowledged = internalError("the server ended the subscription before acknowledging it")

// canceled handles the server's cancellation of a subscription.
func (ls *legacySubscription) canceled(m *jsonrpc.Message) {
	id, _, _ := era.Cancellation{}.Target(m)
	n, _ := jsonwire.ParseInt(id)
	if n == 0 || n != ls.pending && n != ls.current {
		ls.drop("no open subscription")
		return
	}
	ls.ended(n)
	ls.drop("the server ends a subscription")
}

// ended removes a subscription, and schedules another if it was in use.
func (ls *legacySubscription) ended(id int64) {
	ls.calls.take(id)
	switch {
	case id == 0, id != ls.pending && id != ls.current:
		return
	case id == ls.pending:
		ls.pending = 0
		ls.started()
		ls.resolve(func(string) *jsonrpc.Error { return errUnacknowledged })
	default:
		ls.current, ls.gap = 0, true
	}
	if ls.pending != 0 || ls.calls.down {
		return
	}
	ls.backoff = min(max(2*ls.backoff, minBackoff), maxBackoff)
	ls.timers.stop(ls.retry)
	ls.retry = ls.after(ls.backoff, ls.renew)
}

// lost forgets that requests wait for the first subscription, because the server is lost.
func (ls *legacySubscription) lost() {
	ls.timers.stop(ls.startTimer)
	ls.startTimer = nil
}

// forward forwards a change notification to the client.
func (ls *legacySubscription) forward(m *jsonrpc.Message, frame []byte) {
	if id := subscriptionID(m); id != ls.current || id == 0 {
		ls.drop("matches no open subscription")
		return
	}
	if string(m.Method) == mcp.NotificationResourceUpdated {
		v, _ := m.Param("uri")
		uri, _ := jsonrpc.ID(v).Text()
		if !matchesSubscription(maps.Keys(ls.uris), uri) {
			ls.drop("the client has unsubscribed")
			return
		}
	}
	ls.emit(Out{To: Downstream, Message: era.RewriteMember(frame, "params", withoutSubscriptionID), Rule: "− subscriptionId"})
}

// subscriptionID returns the call of a notification's subscription, or 0.
func subscriptionID(m *jsonrpc.Message) int64 {
	id, _ := jsonwire.ParseInt(era.Lookup(m.Params, "_meta", mcp.MetaSubscriptionID))
	return id
}
