package translate

import (
	"maps"
	"slices"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

const (
	firstBackOff = time.Second
	longBackOff  = 30 * time.Second
	firstListen  = time.Second // that requests wait for the first subscription, which nothing that they change may come before
)

// A listening is the one subscription that stands for all that a legacy client is told without asking each time: changes of lists, and of the resources
// that it subscribed to. Whenever that changes, a new subscription takes the place of the old one, which goes on until the new one is acknowledged.
type listening struct {
	tools, prompts, resources bool // lists of which the server tells changes
	subscribe                 bool // resources can be subscribed to

	uris    map[string]struct{} // that the client wants to hear of
	current int64               // call that is acknowledged; 0 is none
	pending int64               // call that is not yet
	asked   map[string]struct{} // uris of the pending call
	changed bool                // since the pending call was sent
	waiting []*request          // subscribe requests of the client, until their URI is acknowledged
	backOff time.Duration
	retry   *timer
	begins  *timer // bounds how long requests wait for the first subscription to be acknowledged; nil if they do not
	gap     bool   // there was a time without a subscription, of which nobody tells what has changed
	broken  bool   // it is the carrier's fault that a call ends now
}

// offer takes what the server says that it tells.
func (l *listening) offer(caps []byte) {
	is := func(path ...string) bool { return string(era.Lookup(caps, path...)) == "true" }
	l.tools, l.prompts = is("tools", "listChanged"), is("prompts", "listChanged")
	l.resources, l.subscribe = is("resources", "listChanged"), is("resources", "subscribe")
}

// subscribe serves resources/subscribe and its opposite.
func (t *LegacyClient) subscribe(r *request, m *jsonrpc.Message) {
	v, _ := m.Param("uri")
	uri, ok := jsonrpc.ID(v).Text()
	l := &t.listen
	switch {
	case !ok:
		t.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: uri is no string"), "")
	case r.method == mcp.MethodResourcesUnsubscribe:
		_, had := l.uris[uri]
		delete(l.uris, uri)
		t.forgetSubscribes(uri)
		t.answer(r, []byte("{}"), "resources/unsubscribe → subscriptions/listen without it")
		if had {
			t.relisten()
		}
	case t.server.known && !l.subscribe:
		t.fail(r, jsonrpc.MethodNotFound(r.method), "the server has no subscriptions to resources")
	case len(l.uris) >= t.opts.Limits.Subscriptions || len(uri) > maxIntroduction:
		t.fail(r, internal("too many resources are subscribed to"), "refused")
	default:
		if l.uris == nil {
			l.uris = make(map[string]struct{})
		}
		l.uris[uri] = struct{}{}
		l.waiting = append(l.waiting, r)
		t.drop("resources/subscribe → subscriptions/listen")
		t.relisten()
	}
}

// forgetSubscribes answers requests to subscribe to what the client has unsubscribed from since.
func (t *LegacyClient) forgetSubscribes(uri string) {
	l := &t.listen
	waiting := l.waiting
	l.waiting = nil
	for _, r := range waiting {
		if era.LookupString(r.params, "uri") == uri {
			t.answer(r, []byte("{}"), "unsubscribed since")
		} else if !r.over {
			l.waiting = append(l.waiting, r)
		}
	}
}

// failListen fails what waits for a subscription.
func (t *LegacyClient) failListen(e *jsonrpc.Error) {
	waiting := t.listen.waiting
	t.listen.waiting = nil
	for _, r := range waiting {
		delete(t.listen.uris, era.LookupString(r.params, "uri"))
		t.fail(r, e, "")
	}
}

// relisten makes a subscription to what is to be heard now, unless one is about to be.
func (t *LegacyClient) relisten() {
	l := &t.listen
	t.later.stop(l.retry)
	if l.pending != 0 {
		l.changed = true
		return
	}
	if t.down {
		return
	}
	if !l.tools && !l.prompts && !l.resources && len(l.uris) == 0 {
		t.unlisten(l.current, "nothing to listen for")
		l.current = 0
		return
	}
	l.asked, l.changed = maps.Clone(l.uris), false
	var c *call
	c = t.newCall(mcp.MethodSubscriptionsListen, nil, func(a answer) { t.listenAnswered(c.id, a) })
	l.pending = c.id
	t.sendFar(c.id, c.method, t.listenParams(), "listen")
}

func (t *LegacyClient) listenParams() []byte {
	l := &t.listen
	var filter []byte
	for _, kind := range []struct {
		name string
		on   bool
	}{{"toolsListChanged", l.tools}, {"promptsListChanged", l.prompts}, {"resourcesListChanged", l.resources}} {
		if kind.on {
			filter = append(append(append(filter, `,"`...), kind.name...), `":true`...)
		}
	}
	if len(l.asked) > 0 {
		filter = append(filter, `,"resourceSubscriptions":[`...)
		for i, uri := range slices.Sorted(maps.Keys(l.asked)) {
			if i > 0 {
				filter = append(filter, ',')
			}
			filter = jsonwire.AppendQuote(filter, uri)
		}
		filter = append(filter, ']')
	}
	params := append(append([]byte(`{"notifications":{`), filter[1:]...), `},"_meta":`...)
	return append(append(params, t.metaOf(nil, false, nil)...), '}')
}

// acknowledged takes the first message of a subscription.
func (t *LegacyClient) acknowledged(m *jsonrpc.Message) {
	l := &t.listen
	id := subscriptionOf(m)
	if l.pending == 0 || id != l.pending {
		t.drop("acknowledges nothing that is open")
		return
	}
	t.drop("the server listens")
	if l.current != 0 {
		t.unlisten(l.current, "another subscription takes its place")
	}
	l.current, l.pending, l.backOff = id, 0, 0
	t.begun()
	honoured := make(map[string]bool)
	if list := era.Lookup(m.Params, "notifications", "resourceSubscriptions"); len(list) > 0 && list[0] == '[' {
		elements := jsonwire.ArrayElements(list)
		for elements.Next() {
			if uri, ok := jsonrpc.ID(elements.Value()).Text(); ok {
				honoured[uri] = true
			}
		}
	}
	t.settle(func(uri string) *jsonrpc.Error {
		if honoured[uri] {
			return nil
		}
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "the server does not let this resource be subscribed to")
	})
	if l.gap {
		l.gap = false
		t.tellAll(m.Params, honoured)
	}
	if l.changed || len(l.waiting) > 0 {
		t.relisten()
	}
}

// tellAll tells the client that everything has changed that it hears of, as it may have.
func (t *LegacyClient) tellAll(params []byte, honoured map[string]bool) {
	const rule = "there was a time without a subscription"
	for _, kind := range []struct{ name, method string }{
		{"toolsListChanged", mcp.NotificationToolsChanged}, {"promptsListChanged", mcp.NotificationPromptsChanged}, {"resourcesListChanged", mcp.NotificationResourcesChanged},
	} {
		if string(era.Lookup(params, "notifications", kind.name)) == "true" {
			t.emit(Out{To: Near, Message: jsonrpc.AppendNotification(nil, kind.method, nil), Rule: rule})
		}
	}
	for _, uri := range slices.Sorted(maps.Keys(t.listen.uris)) {
		if honoured[uri] {
			params := append(jsonwire.AppendQuote([]byte(`{"uri":`), uri), '}')
			t.emit(Out{To: Near, Message: jsonrpc.AppendNotification(nil, mcp.NotificationResourceUpdated, params), Rule: rule})
		}
	}
}

// beginListen makes the first subscription. What the client asks for meanwhile waits: it must hear of all that changes from now on.
func (t *LegacyClient) beginListen() {
	t.relisten()
	if t.listen.pending != 0 && t.listen.current == 0 && t.listen.begins == nil {
		t.listen.begins = t.after(firstListen, t.begun)
	}
}

// begun lets go what has waited for the first subscription.
func (t *LegacyClient) begun() {
	if t.listen.begins == nil {
		return
	}
	t.later.stop(t.listen.begins)
	t.listen.begins = nil
	if !t.down {
		t.flush()
	}
}

// flush does what has waited.
func (t *LegacyClient) flush() {
	queue := t.queue
	t.queue = nil
	for _, q := range queue {
		if !q.req.over {
			q.do()
		}
	}
}

// settle answers the subscribe requests that the pending call was about.
func (t *LegacyClient) settle(verdict func(uri string) *jsonrpc.Error) {
	l := &t.listen
	waiting := l.waiting
	l.waiting = nil
	for _, r := range waiting {
		if r.over {
			continue
		}
		uri := era.LookupString(r.params, "uri")
		if _, asked := l.asked[uri]; !asked {
			l.waiting = append(l.waiting, r)
			continue
		}
		if e := verdict(uri); e != nil {
			delete(l.uris, uri)
			t.fail(r, e, "subscriptions/acknowledged → resources/subscribe")
		} else {
			t.answer(r, []byte("{}"), "subscriptions/acknowledged → resources/subscribe")
		}
	}
}

// listenAnswered takes the end of a subscription.
func (t *LegacyClient) listenAnswered(id int64, a answer) {
	if l := &t.listen; l.pending == id && a.err != nil {
		t.settle(func(string) *jsonrpc.Error { return era.ConvertError(a.err, mcp.MethodResourcesSubscribe, t.legacy) })
		if !l.broken { // it would say the same again
			l.tools, l.prompts, l.resources = false, false, false
		}
	}
	t.listenEnded(id)
}

var errUnacknowledged = internal("the server ended the subscription before it had acknowledged it")

// listenEnded forgets a subscription, and makes another one later if it was needed.
func (t *LegacyClient) listenEnded(id int64) {
	l := &t.listen
	delete(t.calls, id)
	switch {
	case id == 0, id != l.pending && id != l.current:
		return
	case id == l.pending:
		l.pending = 0
		t.begun()
		t.settle(func(string) *jsonrpc.Error { return errUnacknowledged })
	default:
		l.current, l.gap = 0, true
	}
	if l.pending != 0 || t.down {
		return
	}
	l.backOff = min(max(2*l.backOff, firstBackOff), longBackOff)
	t.later.stop(l.retry)
	l.retry = t.after(l.backOff, t.relisten)
}

// unlisten ends a subscription.
func (t *LegacyClient) unlisten(id int64, reason string) {
	if t.calls[id] != nil {
		delete(t.calls, id)
		t.cancelFar(id, mcp.MethodSubscriptionsListen, reason)
	}
}

// farChanged tells the client what it subscribed to, or is told anyway.
func (t *LegacyClient) farChanged(m *jsonrpc.Message, frame []byte) {
	l := &t.listen
	if id := subscriptionOf(m); id != l.current || id == 0 {
		t.drop("of no subscription that is open")
		return
	}
	if string(m.Method) == mcp.NotificationResourceUpdated {
		v, _ := m.Param("uri")
		uri, _ := jsonrpc.ID(v).Text()
		if !wanted(maps.Keys(l.uris), uri) {
			t.drop("the client has unsubscribed")
			return
		}
	}
	msg := era.Rewrite(nil, frame, func(m *jsonwire.Members) []byte {
		if m.KeyIs("params") {
			return dropSubscription(m.Value())
		}
		return m.Value()
	}, nil)
	t.emit(Out{To: Near, Message: msg, Rule: "− subscriptionId"})
}

// dropSubscription takes the subscription out of params, and returns nil if nothing is left.
func dropSubscription(params []byte) []byte {
	params = era.Rewrite(nil, params, func(m *jsonwire.Members) []byte {
		if m.KeyIs("_meta") && era.IsObject(m.Value()) {
			return without(m.Value(), mcp.MetaSubscriptionID)
		}
		return m.Value()
	}, nil)
	if string(params) == "{}" {
		return nil
	}
	return params
}

// subscriptionOf returns the call whose subscription a notification belongs to, 0 for none.
func subscriptionOf(m *jsonrpc.Message) int64 {
	id, _ := jsonwire.ParseInt(era.Lookup(m.Params, "_meta", mcp.MetaSubscriptionID))
	return id
}
