package translate

import (
	"maps"
	"slices"
	"time"

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

// An upstreamSubscription is the one subscriptions/listen request for all that a legacy client
// hears of: changes of lists and of subscribed resources. When these change, a new subscription
// replaces the old one, which stays open until the new one is acknowledged.
type upstreamSubscription struct {
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
func (s *upstreamSubscription) setCapabilities(caps []byte) {
	s.lists = announcedLists(caps)
	s.canSubscribe = string(era.Lookup(caps, "resources", "subscribe")) == "true"
}

// subscribe serves resources/subscribe and resources/unsubscribe.
func (t *LegacyToModern) subscribe(r *legacyRequest, m *jsonrpc.Message) {
	v, _ := m.Param("uri")
	uri, ok := jsonrpc.ID(v).Text()
	l := &t.subscription
	switch {
	case !ok:
		t.requests.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: uri is not a string"), "")
	case r.method == mcp.MethodResourcesUnsubscribe:
		_, had := l.uris[uri]
		delete(l.uris, uri)
		t.answerUnsubscribed(uri)
		t.requests.respond(r, []byte("{}"), "resources/unsubscribe → subscriptions/listen without it")
		if had {
			t.resubscribe()
		}
	case t.handshake.serverKnown && !l.canSubscribe:
		t.requests.fail(r, jsonrpc.MethodNotFound(r.method), "the server has no subscriptions to resources")
	case len(l.uris) >= t.opts.Limits.Resources || len(uri) > maxPeerInfo:
		t.requests.fail(r, internalError("too many subscribed resources"), "refused")
	default:
		if l.uris == nil {
			l.uris = make(map[string]struct{})
		}
		l.uris[uri] = struct{}{}
		l.waiting = append(l.waiting, r)
		t.drop("resources/subscribe → subscriptions/listen")
		t.resubscribe()
	}
}

// answerUnsubscribed answers pending subscribe requests for a URI that the client has unsubscribed.
func (t *LegacyToModern) answerUnsubscribed(uri string) {
	l := &t.subscription
	waiting := l.waiting
	l.waiting = nil
	for _, r := range waiting {
		if era.LookupString(r.params, "uri") == uri {
			t.requests.respond(r, []byte("{}"), "unsubscribed since")
		} else if !r.finished {
			l.waiting = append(l.waiting, r)
		}
	}
}

// failSubscribes fails pending subscribe requests.
func (t *LegacyToModern) failSubscribes(e *jsonrpc.Error) {
	waiting := t.subscription.waiting
	t.subscription.waiting = nil
	for _, r := range waiting {
		delete(t.subscription.uris, era.LookupString(r.params, "uri"))
		t.requests.fail(r, e, "")
	}
}

// resubscribe sends a new subscription, unless one is pending.
func (t *LegacyToModern) resubscribe() {
	l := &t.subscription
	t.timers.stop(l.retry)
	if l.pending != 0 {
		l.changed = true
		return
	}
	if t.calls.down {
		return
	}
	if (l.lists == lists{}) && len(l.uris) == 0 {
		t.calls.cancel(l.current, "nothing to listen for")
		l.current = 0
		return
	}
	l.pendingURIs, l.changed = maps.Clone(l.uris), false
	var c *legacyCall
	c = t.calls.add(mcp.MethodSubscriptionsListen, nil, func(o outcome) { t.subscriptionAnswered(c.id, o) })
	l.pending = c.id
	t.sendUpstream(c.id, c.method, t.subscriptionParams(), "listen")
}

func (t *LegacyToModern) subscriptionParams() []byte {
	l := &t.subscription
	filter := l.lists.appendFilter([]byte(`"notifications":`), slices.Sorted(maps.Keys(l.pendingURIs)))
	return t.handshake.params(filter, false)
}

// subscriptionAcknowledged handles the first message of a subscription.
func (t *LegacyToModern) subscriptionAcknowledged(m *jsonrpc.Message) {
	l := &t.subscription
	id := subscriptionID(m)
	if l.pending == 0 || id != l.pending {
		t.drop("acknowledges no open subscription")
		return
	}
	t.drop("the subscription is open")
	if l.current != 0 {
		t.calls.cancel(l.current, "replaced by another subscription")
	}
	l.current, l.pending, l.backoff = id, 0, 0
	t.releaseWaiting()
	accepted := make(map[string]bool)
	filter := era.Lookup(m.Params, "notifications")
	for uri := range filteredResources(filter) {
		accepted[uri] = true
	}
	t.resolveSubscribes(func(uri string) *jsonrpc.Error {
		if accepted[uri] {
			return nil
		}
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "the server does not allow a subscription to this resource")
	})
	if l.gap {
		l.gap = false
		t.announceAll(filteredLists(filter), accepted)
	}
	if l.changed || len(l.waiting) > 0 {
		t.resubscribe()
	}
}

// announceAll announces changes of everything subscribed, because some may have been missed.
func (t *LegacyToModern) announceAll(changed lists, accepted map[string]bool) {
	const rule = "no subscription existed for a while"
	for _, method := range changed.notifications() {
		t.emit(Out{To: Downstream, Message: jsonrpc.AppendNotification(nil, method, nil), Rule: rule})
	}
	for _, uri := range slices.Sorted(maps.Keys(t.subscription.uris)) {
		if accepted[uri] {
			t.emit(Out{To: Downstream, Message: jsonrpc.AppendNotification(nil, mcp.NotificationResourceUpdated, uriParams(uri)), Rule: rule})
		}
	}
}

// startSubscription sends the first subscription. Client requests wait for it, so that no change is
// missed.
func (t *LegacyToModern) startSubscription() {
	t.resubscribe()
	if t.subscription.pending != 0 && t.subscription.current == 0 && t.subscription.startTimer == nil {
		t.calls.held = true
		t.subscription.startTimer = t.after(firstSubscriptionTimeout, t.releaseWaiting)
	}
}

// releaseWaiting runs the requests that wait for the first subscription.
func (t *LegacyToModern) releaseWaiting() {
	if t.subscription.startTimer == nil {
		return
	}
	t.timers.stop(t.subscription.startTimer)
	t.subscription.startTimer = nil
	t.calls.release()
}

// resolveSubscribes answers the subscribe requests of the pending call.
func (t *LegacyToModern) resolveSubscribes(errorOf func(uri string) *jsonrpc.Error) {
	l := &t.subscription
	waiting := l.waiting
	l.waiting = nil
	for _, r := range waiting {
		if r.finished {
			continue
		}
		uri := era.LookupString(r.params, "uri")
		if _, asked := l.pendingURIs[uri]; !asked {
			l.waiting = append(l.waiting, r)
			continue
		}
		if e := errorOf(uri); e != nil {
			delete(l.uris, uri)
			t.requests.fail(r, e, "subscriptions/acknowledged → resources/subscribe")
		} else {
			t.requests.respond(r, []byte("{}"), "subscriptions/acknowledged → resources/subscribe")
		}
	}
}

// subscriptionAnswered handles the response to a subscription.
func (t *LegacyToModern) subscriptionAnswered(id int64, o outcome) {
	if l := &t.subscription; l.pending == id && o.err != nil {
		t.resolveSubscribes(func(string) *jsonrpc.Error {
			return era.ConvertError(o.err, mcp.MethodResourcesSubscribe, t.handshake.legacy)
		})
		if !o.lost { // the server would repeat the error
			l.lists = lists{}
		}
	}
	t.subscriptionEnded(id)
}

var errUnacknowledged = internalError("the server ended the subscription before acknowledging it")

// subscriptionEnded removes a subscription, and schedules another if it was in use.
func (t *LegacyToModern) subscriptionEnded(id int64) {
	l := &t.subscription
	t.calls.take(id)
	switch {
	case id == 0, id != l.pending && id != l.current:
		return
	case id == l.pending:
		l.pending = 0
		t.releaseWaiting()
		t.resolveSubscribes(func(string) *jsonrpc.Error { return errUnacknowledged })
	default:
		l.current, l.gap = 0, true
	}
	if l.pending != 0 || t.calls.down {
		return
	}
	l.backoff = min(max(2*l.backoff, minBackoff), maxBackoff)
	t.timers.stop(l.retry)
	l.retry = t.after(l.backoff, t.resubscribe)
}

// upstreamChanged forwards a change notification to the client.
func (t *LegacyToModern) upstreamChanged(m *jsonrpc.Message, frame []byte) {
	l := &t.subscription
	if id := subscriptionID(m); id != l.current || id == 0 {
		t.drop("matches no open subscription")
		return
	}
	if string(m.Method) == mcp.NotificationResourceUpdated {
		v, _ := m.Param("uri")
		uri, _ := jsonrpc.ID(v).Text()
		if !matchesSubscription(maps.Keys(l.uris), uri) {
			t.drop("the client has unsubscribed")
			return
		}
	}
	msg := era.Rewrite(nil, frame, func(m *jsonwire.Members) []byte {
		if m.KeyIs("params") {
			return withoutSubscriptionID(m.Value())
		}
		return m.Value()
	}, nil)
	t.emit(Out{To: Downstream, Message: msg, Rule: "− subscriptionId"})
}

// subscriptionID returns the call of a notification's subscription, or 0.
func subscriptionID(m *jsonrpc.Message) int64 {
	id, _ := jsonwire.ParseInt(era.Lookup(m.Params, "_meta", mcp.MetaSubscriptionID))
	return id
}
