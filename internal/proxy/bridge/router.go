package bridge

import (
	"maps"
	"slices"
	"sync"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/proxy/translate"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A router knows the codecs of an upstream, and chooses one for each message of the server. Clients
// of both eras may share an upstream to a modern server. The server keeps no state between
// requests, so the router chooses by request id. The zero value has no codec: the bridge is still
// detecting the era of the server. The methods may be called by many goroutines at once.
type router struct {
	mu sync.Mutex
	// only gets all messages. It is nil if clients of both eras share the upstream.
	only codec
	// muxed says that clients of both eras share the upstream.
	muxed bool
	// passthrough serves all modern clients; nil before the first.
	passthrough *passthrough
	// translators serve one legacy client each.
	translators map[*translator]struct{}
	// routes holds the pending requests of translators.
	routes map[int64]route
	// closed says that the upstream is closed.
	closed bool
}

// A route is a pending request of a translator.
type route struct {
	to *translator
	// logLevel is the lowest level of log messages that the request wants; LevelNone means none.
	logLevel mcp.LoggingLevel
	// subscription says that the request is a subscription. Messages without its id do not belong
	// to it.
	subscription bool
}

// setOnly makes c the codec for all messages.
func (r *router) setOnly(c codec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.only = c
}

// mux says that clients of both eras share the upstream.
func (r *router) mux() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.muxed, r.translators, r.routes = true, map[*translator]struct{}{}, map[int64]route{}
}

// soleCodec returns the codec of all messages, or nil if clients of both eras share the upstream.
func (r *router) soleCodec() codec {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.only
}

// hasCodec reports if the era of the server is known.
func (r *router) hasCodec() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.only != nil || r.muxed
}

// addTranslator adds the codec of a legacy client. It reports if the upstream is closed.
func (r *router) addTranslator(t *translator) (closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.translators[t] = struct{}{}
	return r.closed
}

// removeTranslator removes the codec of a legacy client.
func (r *router) removeTranslator(t *translator) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.translators, t)
	maps.DeleteFunc(r.routes, func(_ int64, to route) bool { return to.to == t })
}

// modernClients returns the codec of the modern clients. It calls first to make it.
func (r *router) modernClients(first func() *passthrough) *passthrough {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.passthrough == nil {
		r.passthrough = first()
		r.passthrough.closed = r.closed
	}
	return r.passthrough
}

// track records a request of a translator before it is sent.
func (r *router) track(id int64, t *translator, frame []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.muxed {
		level, _ := mcp.ParseLoggingLevel(stringOf(jsonwire.Lookup(frame, "params", "_meta", mcp.MetaLogLevel)))
		r.routes[id] = route{t, level, stringOf(jsonwire.Lookup(frame, "method")) == mcp.MethodSubscriptionsListen}
	}
}

// untrack forgets a request that was given up.
func (r *router) untrack(id int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.routes, id)
}

// codecs returns all codecs.
func (r *router) codecs() []codec {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.only != nil {
		return []codec{r.only}
	}
	var all []codec
	if r.passthrough != nil {
		all = append(all, r.passthrough)
	}
	for t := range r.translators {
		all = append(all, t)
	}
	return all
}

// codecOf returns the codec for a message that came on the stream of a request, or nil. on is nil
// if the request is unknown. It also reports if the message names a request.
func (r *router) codecOf(m *jsonrpc.Message, on jsonrpc.ID) (c codec, addressed bool) {
	r.mu.Lock()
	if r.only != nil || !r.muxed {
		defer r.mu.Unlock()
		return r.only, true
	}
	id, routed := translate.Route(m)
	if !routed {
		id, routed = intOf(on)
	}
	to, legacy := r.routes[id]
	if ended := len(m.Method) == 0 || string(m.Method) == mcp.NotificationCancelled; legacy && ended {
		delete(r.routes, id)
	}
	p := r.passthrough
	r.mu.Unlock()
	switch {
	case legacy:
		return to.to, true
	case !routed && m.Kind == jsonrpc.KindNotification:
		return r.codecOfUnaddressed(m), false
	case p != nil:
		return p, true
	}
	return nil, true
}

// codecOfUnaddressed returns the codec for a notification that names no request, if only one client
// can be its recipient, and nil otherwise.
func (r *router) codecOfUnaddressed(m *jsonrpc.Message) codec {
	level, isLog := logLevelOf(m)
	found := map[*translator]struct{}{}
	r.mu.Lock()
	for _, to := range r.routes {
		if !to.subscription && (!isLog || to.logLevel != mcp.LevelNone && level >= to.logLevel) {
			found[to.to] = struct{}{}
		}
	}
	p := r.passthrough
	r.mu.Unlock()
	modern := 0
	if p != nil {
		modern = len(p.candidateCalls(m))
	}
	switch {
	case modern == 1 && len(found) == 0:
		return p
	case modern == 0 && len(found) == 1:
		for t := range found {
			return t
		}
	}
	return nil
}

// codecOfFailed returns the codec of a request that failed, and forgets the request. It returns nil
// if there is none.
func (r *router) codecOfFailed(id jsonrpc.ID) codec {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.muxed {
		return r.only
	}
	n, _ := intOf(id)
	to, legacy := r.routes[n]
	delete(r.routes, n)
	switch {
	case legacy:
		return to.to
	case r.passthrough != nil:
		return r.passthrough
	}
	return nil
}

// disconnected tells each codec why the connection ended, and which of its requests were not sent.
func (r *router) disconnected(err error, unsent []queuedMessage) {
	unsentBy := map[codec][]queuedMessage{}
	codecs := r.codecs()
	r.mu.Lock()
	r.closed = r.closed || err == errUpstreamClosed
	unsent = slices.DeleteFunc(unsent, func(it queuedMessage) bool {
		n, ok := intOf(it.id)
		to, legacy := r.routes[n]
		if ok && legacy {
			unsentBy[to.to] = append(unsentBy[to.to], it)
		}
		return ok && legacy
	})
	switch {
	case r.only != nil:
		unsentBy[r.only] = unsent
	case r.passthrough != nil:
		unsentBy[r.passthrough] = unsent
	}
	clear(r.routes)
	r.mu.Unlock()
	for _, c := range codecs {
		c.disconnected(err, unsentBy[c])
	}
}
