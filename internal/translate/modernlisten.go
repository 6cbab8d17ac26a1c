package translate

import (
	"bytes"
	"maps"
	"slices"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A listener is what a subscriptions/listen request of a client is told.
type listener struct {
	tools, prompts, resources bool
	uris                      []string // that the server lets be subscribed to, or that were asked for until it has said so
	pending                   int      // uris that it has not said so of
	tasks                     bool     // it wants to hear of tasks
	acked                     bool
}

// subscribed is a resource that the server is subscribed to for all listeners that want it.
type subscribed struct {
	uri     string
	users   map[*exchange]struct{}
	have    bool // the server has said yes
	busy    bool // the server is being asked
	waiters []func(ok bool)
}

// lost forgets what the server has said: it is gone.
func (u *subscribed) lost() { u.have, u.busy = false, false }

// listenTo serves subscriptions/listen.
func (t *ModernClient) listenTo(x *exchange, m *jsonrpc.Message) {
	filter, ok := m.Param("notifications")
	switch {
	case !ok || !era.IsObject(filter):
		t.fail(x, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: notifications is no object"), "")
		return
	case len(t.listens) >= t.opts.Limits.Listens:
		t.fail(x, internal("too many subscriptions are open"), "refused")
		return
	}
	is := func(name string) bool { return string(era.Lookup(filter, name)) == "true" }
	l := &listener{tools: is("toolsListChanged"), prompts: is("promptsListChanged"), resources: is("resourcesListChanged")}
	if list := era.Lookup(filter, "resourceSubscriptions"); len(list) > 0 && list[0] == '[' {
		elements := jsonwire.ArrayElements(list)
		seen, size := make(map[string]struct{}), 0
		for elements.Next() && len(l.uris) < t.opts.Limits.Subscriptions {
			uri, ok := jsonrpc.ID(elements.Value()).Text()
			if _, twice := seen[uri]; ok && !twice && len(uri) <= maxIntroduction {
				seen[uri] = struct{}{}
				l.uris = append(l.uris, uri)
				size += len(uri)
			}
		}
		if !t.keepFor(x, size) {
			return
		}
	}
	l.tasks = era.Lookup(filter, "taskIds") != nil
	x.listen = l
	t.listens = append(t.listens, x)
	t.whenReady(x, func() { t.startListen(x) })
}

func (t *ModernClient) startListen(x *exchange) {
	l := x.listen
	if l.tasks && t.hasTasks() && x.client.Extension(t.modern, mcp.ExtensionTasks) == nil {
		t.fail(x, errTasksUndeclared(), "")
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
			if t.uris[uri] == nil && len(t.uris) >= t.opts.Limits.Subscriptions {
				break
			}
			l.pending++
			t.use(uri, x)
		}
	}
	t.subscribedTo(x, "", false)
}

// use subscribes to a resource for a listener.
func (t *ModernClient) use(uri string, x *exchange) {
	u := t.uris[uri]
	if u == nil {
		u = &subscribed{uri: uri, users: make(map[*exchange]struct{})}
		t.uris[uri] = u
	}
	u.users[x] = struct{}{}
	if u.have && !u.busy {
		t.subscribedTo(x, uri, true)
		return
	}
	u.waiters = append(u.waiters, func(ok bool) {
		if !ok {
			delete(u.users, x)
		}
		t.subscribedTo(x, uri, ok)
	})
	t.syncResource(u)
}

// subscribedTo takes the verdict on one of a listener's resources, and tells the client of all when the last is there.
func (t *ModernClient) subscribedTo(x *exchange, uri string, ok bool) {
	l := x.listen
	if x.over {
		return
	}
	l.pending--
	if ok {
		l.uris = append(l.uris, uri)
	}
	if l.pending > 0 {
		return
	}
	l.acked = true
	var honoured []byte
	for _, kind := range []struct {
		name string
		on   bool
	}{{"toolsListChanged", l.tools}, {"promptsListChanged", l.prompts}, {"resourcesListChanged", l.resources}} {
		if kind.on {
			honoured = append(append(append(honoured, `,"`...), kind.name...), `":true`...)
		}
	}
	if len(l.uris) > 0 {
		honoured = append(honoured, `,"resourceSubscriptions":[`...)
		for i, uri := range l.uris {
			if i > 0 {
				honoured = append(honoured, ',')
			}
			honoured = jsonwire.AppendQuote(honoured, uri)
		}
		honoured = append(honoured, ']')
	}
	params := []byte(`{"notifications":{`)
	if honoured != nil {
		params = append(params, honoured[1:]...)
	}
	t.tell(x, mcp.NotificationAcknowledged, append(params, `}}`...), "subscriptions/listen")
}

// tell sends a notification on a subscription.
func (t *ModernClient) tell(x *exchange, method string, params []byte, rule string) {
	params = addMeta(params, append([]byte(`"`+mcp.MetaSubscriptionID+`":`), x.id...))
	t.emit(Out{To: Near, Stream: x.key.stream, Message: jsonrpc.AppendNotification(nil, method, params), Rule: rule})
}

// syncResource makes the server's subscription what the listeners want.
func (t *ModernClient) syncResource(u *subscribed) {
	want := len(u.users) > 0
	if !want && !u.have && !u.busy {
		delete(t.uris, u.uri)
		return
	}
	if u.busy || t.phase != ready || t.down {
		return
	}
	params := append(jsonwire.AppendQuote([]byte(`{"uri":`), u.uri), '}')
	switch {
	case want && !u.have:
		u.busy = true
		t.callServer(mcp.MethodResourcesSubscribe, params, "subscriptions/listen → resources/subscribe", func(a answer) {
			u.busy, u.have = false, a.err == nil
			if t.down { // who waits does so until it is back
				t.syncResource(u)
				return
			}
			waiters := u.waiters
			u.waiters = nil
			for _, told := range waiters {
				told(u.have)
			}
			if !u.have {
				t.disappoint(u)
			}
			t.syncResource(u)
		})
	case !want && u.have:
		u.busy = true
		t.callServer(mcp.MethodResourcesUnsubscribe, params, "subscriptions/listen → resources/unsubscribe", func(answer) {
			u.busy, u.have = false, false
			t.syncResource(u)
		})
	}
}

// disappoint ends the subscriptions of those who were told that they have a resource which a server that came back does not let be subscribed to any more.
// They may subscribe again, and are then told what they get.
func (t *ModernClient) disappoint(u *subscribed) {
	users := u.users
	u.users = make(map[*exchange]struct{})
	for _, x := range slices.Clone(t.listens) {
		if _, ok := users[x]; ok {
			t.unlisten(x)
			t.endListen(x)
		}
	}
}

// farChanged tells all who want it.
func (t *ModernClient) farChanged(m *jsonrpc.Message) {
	method := string(m.Method)
	v, _ := m.Param("uri")
	uri, _ := jsonrpc.ID(v).Text()
	told := false
	for _, x := range t.listens {
		l := x.listen
		wants := false
		switch method {
		case mcp.NotificationToolsChanged:
			wants = l.tools
		case mcp.NotificationPromptsChanged:
			wants = l.prompts
		case mcp.NotificationResourcesChanged:
			wants = l.resources
		case mcp.NotificationResourceUpdated:
			wants = wanted(slices.Values(l.uris), uri)
		}
		if wants && l.acked {
			t.tell(x, method, bytes.Clone(m.Params), "+ subscriptionId")
			told = true
		}
	}
	if !told {
		t.drop("no client listens for it")
	}
}

// unlisten forgets a listener, and the server's subscriptions that nobody wants any more.
func (t *ModernClient) unlisten(x *exchange) {
	t.listens = slices.DeleteFunc(t.listens, func(one *exchange) bool { return one == x })
	for _, uri := range slices.Sorted(maps.Keys(t.uris)) {
		u := t.uris[uri]
		if _, ok := u.users[x]; ok {
			delete(u.users, x)
			t.syncResource(u)
		}
	}
}

// endListen ends a subscription on the server's side.
func (t *ModernClient) endListen(x *exchange) {
	if x.listen.acked {
		name, params := era.Cancellation{}.Notice(x.id, x.method, "the server is going away")
		t.emit(Out{To: Near, Stream: x.key.stream, Message: jsonrpc.AppendNotification(nil, name, params), Rule: "subscription ends"})
	}
	result := append([]byte(`{"resultType":"complete","_meta":{"`+mcp.MetaSubscriptionID+`":`), x.id...)
	t.reply(x, append(result, `}}`...), "subscription ends")
}

// listenAgain makes the subscriptions with a server that came back, and has clients that heard from it before look at what may have changed meanwhile.
func (t *ModernClient) listenAgain(heard []*exchange) {
	for _, uri := range slices.Sorted(maps.Keys(t.uris)) {
		t.syncResource(t.uris[uri])
	}
	t.tellAll(heard, "the server came back")
}

// heard are the subscriptions that have been acknowledged.
func (t *ModernClient) heard() []*exchange {
	return slices.DeleteFunc(slices.Clone(t.listens), func(x *exchange) bool { return !x.listen.acked })
}

// tellAll tells subscriptions that all has changed that they are about, as it may have.
func (t *ModernClient) tellAll(heard []*exchange, rule string) {
	for _, x := range heard {
		l := x.listen
		if x.over {
			continue
		}
		if l.tools {
			t.tell(x, mcp.NotificationToolsChanged, nil, rule)
		}
		if l.prompts {
			t.tell(x, mcp.NotificationPromptsChanged, nil, rule)
		}
		if l.resources {
			t.tell(x, mcp.NotificationResourcesChanged, nil, rule)
		}
		for _, uri := range l.uris {
			t.tell(x, mcp.NotificationResourceUpdated, append(jsonwire.AppendQuote([]byte(`{"uri":`), uri), '}'), rule)
		}
	}
}
