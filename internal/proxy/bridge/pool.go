package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/proxy/translate"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A sharedUpstream is an upstream that clients share. After the last of them it stays open for
// Options.IdleTimeout.
type sharedUpstream struct {
	b         *Bridge
	key       string
	handler   sharedHandler
	idleTimer *time.Timer

	// caller is the first client's, and is charged in limits; "" is nobody.
	caller string

	// clients counts the clients. Bridge.mu guards it and idleSince.
	clients int
	// idleSince is the time when clients became 0.
	idleSince time.Time
}

// A sharedHandler handles a shared upstream.
type sharedHandler interface {
	// attach returns the forwarder for a client of the era.
	attach(cl *client, downstream Era) forwarder
	// close ends the connection.
	close()
	// ping checks if the server answers.
	ping(ctx context.Context) error
	// isUp reports if the upstream is connected.
	isUp() bool
}

// anyShared returns the handler of a shared upstream that is connected, or nil.
func (b *Bridge) anyShared() sharedHandler {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.pool {
		if s.handler.isUp() {
			return s.handler
		}
	}
	return nil
}

// shareKey returns the key of the upstream for a client. Different principals never have the same
// key. For a modern server the key is the same for both eras. For a legacy server it depends on
// what the handshake says about the client.
func shareKey(cl *client, clientEra, serverEra Era, o clientMessage) string {
	key := cl.principalID + "\x00" + clientEra.String() + "\x00" + serverEra.String() + "\x00"
	switch {
	case serverEra == EraModern:
		return cl.principalID + "\x00" + serverEra.String()
	case clientEra == EraModern:
		return key + translate.ClientKey(o.frame)
	}
	params := era.Rewrite(nil, o.m.Params, func(m *jsonwire.Members) []byte {
		if m.KeyIs("_meta") {
			return nil
		}
		return m.Value()
	}, nil)
	sum := sha256.Sum256(jsonwire.AppendCompact(nil, params))
	return key + hex.EncodeToString(sum[:16])
}

// joinShared returns the forwarder of a client on a shared upstream. If that does not exist, it
// creates it on up, or on a new upstream if up is nil.
func (b *Bridge) joinShared(cl *client, clientEra, serverEra Era, o clientMessage, up *upstream) forwarder {
	key := shareKey(cl, clientEra, serverEra, o)
	b.mu.Lock()
	s := b.pool[key]
	if s == nil {
		if old := b.evictIdleLocked(cl.caller); old != nil {
			defer old.handler.close()
		}
		if err := b.reserveLocked(cl.caller); err != nil {
			b.metrics.rejected.Add(1)
			b.mu.Unlock()
			if up != nil {
				up.close()
			}
			return unreachable{why: err}
		}
		s = &sharedUpstream{b: b, key: key, caller: cl.caller}
		s.idleTimer = time.AfterFunc(b.opts.IdleTimeout, s.expire)
		s.handler = b.newSharedHandler(s, clientEra, serverEra, up)
		b.pool[key] = s
	} else if up != nil {
		defer up.close()
	}
	s.clients++
	s.idleTimer.Stop()
	b.mu.Unlock()
	return s.handler.attach(cl, clientEra)
}

// evictIdleLocked removes and returns the shared upstream that was idle longest, if a limit is
// reached, of the caller or of all. Otherwise a client that keeps changing its description could
// keep any number of upstreams.
func (b *Bridge) evictIdleLocked(caller string) (oldest *sharedUpstream) {
	all, own := b.overLimitLocked(caller)
	if !all && !own {
		return nil
	}
	for _, s := range b.pool {
		if s.clients == 0 && (!own || s.caller == caller) && (oldest == nil || s.idleSince.Before(oldest.idleSince)) {
			oldest = s
		}
	}
	if oldest != nil {
		oldest.idleTimer.Stop()
		b.removeSharedLocked(oldest)
	}
	return oldest
}

// removeSharedLocked removes a shared upstream.
func (b *Bridge) removeSharedLocked(s *sharedUpstream) {
	delete(b.pool, s.key)
	b.releaseLocked(s.caller)
}

// newSharedHandler returns the handler of a shared upstream between two eras. It creates the
// upstream if up is nil.
func (b *Bridge) newSharedHandler(s *sharedUpstream, clientEra, serverEra Era, up *upstream) sharedHandler {
	switch {
	case serverEra == EraModern:
		return newMux(s, up)
	case clientEra == EraModern:
		return b.newSharedTranslator(s, up)
	}
	return b.newSharedSession(s, up)
}

// release removes a client.
func (s *sharedUpstream) release() {
	s.b.mu.Lock()
	s.clients--
	switch {
	case s.clients > 0:
	case s.b.closed:
		defer s.handler.close()
	default:
		s.idleSince = time.Now()
		s.idleTimer.Reset(s.b.opts.IdleTimeout)
	}
	s.b.mu.Unlock()
}

// expire ends an upstream that was idle too long.
func (s *sharedUpstream) expire() {
	s.b.mu.Lock()
	if s.clients > 0 || s.b.pool[s.key] != s {
		s.b.mu.Unlock()
		return
	}
	s.b.removeSharedLocked(s)
	s.b.mu.Unlock()
	s.handler.close()
}

// uninitialized is the forwarder of legacy clients that share, until they send initialize.
type uninitialized struct{ wrongEra }

func (uninitialized) request(c *call, _ []byte, _ *jsonrpc.Message) {
	if c.method == mcp.MethodPing {
		c.finish(jsonrpc.AppendResult(nil, c.id, []byte("{}")), c.bridgeProvenance())
		return
	}
	c.fail(jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: send initialize first"))
}

// A mux handles an upstream to a modern server that clients of both eras share. The server keeps no
// state between requests, so the mux only routes messages, by request id.
type mux struct {
	*sharedUpstream
	upstream *upstream
	// lastID is the last request id.
	lastID atomic.Int64

	mu sync.Mutex
	// passthrough serves all modern clients; nil before the first.
	passthrough *passthrough
	translators map[*translator]struct{}
	// calls holds the pending requests of legacy clients.
	calls  map[int64]muxCall
	closed bool
}

// A muxCall is a pending request of a legacy client.
type muxCall struct {
	translator *translator
	// logLevel is the lowest level of log messages that the request wants; LevelNone means none.
	logLevel mcp.LoggingLevel
	// subscription says that the request is a subscription. Messages without its id do not belong
	// to it.
	subscription bool
}

func newMux(s *sharedUpstream, up *upstream) *mux {
	mx := &mux{sharedUpstream: s, translators: map[*translator]struct{}{}, calls: map[int64]muxCall{}, upstream: up}
	if up == nil {
		mx.upstream = s.b.newUpstream(mx)
		s.b.wg.Go(mx.upstream.run)
	} else {
		up.setHandler(mx, nil)
	}
	return mx
}

// attach implements sharedHandler.
func (mx *mux) attach(cl *client, clientEra Era) forwarder {
	mx.mu.Lock()
	defer mx.mu.Unlock()
	if clientEra == EraLegacy {
		p := newUnboundTranslator(mx.b, translate.NewLegacyToModern(&translate.Options{IDs: &mx.lastID}))
		p.clients[cl] = struct{}{}
		p.upstream, p.mux, p.closed = mx.upstream, mx, mx.closed
		mx.translators[p] = struct{}{}
		return p
	}
	p := mx.passthroughLocked()
	p.addClient(cl)
	return p
}

// passthroughLocked returns the passthrough of modern clients and of the bridge's own requests.
func (mx *mux) passthroughLocked() *passthrough {
	if mx.passthrough == nil {
		mx.passthrough = newUnboundPassthrough(mx.b, true)
		mx.passthrough.upstream, mx.passthrough.shared, mx.passthrough.lastID, mx.passthrough.closed = mx.upstream, mx.sharedUpstream, &mx.lastID, mx.closed
	}
	return mx.passthrough
}

// close implements sharedHandler.
func (mx *mux) close() { mx.upstream.close() }

// isUp implements sharedHandler.
func (mx *mux) isUp() bool { return mx.upstream.isUp() }

// ping implements sharedHandler.
func (mx *mux) ping(ctx context.Context) error {
	mx.mu.Lock()
	p := mx.passthroughLocked()
	mx.mu.Unlock()
	return p.ping(ctx)
}

// track records a request before it is sent.
func (mx *mux) track(id int64, p *translator, frame []byte) {
	level, _ := mcp.ParseLoggingLevel(stringOf(locate(frame, "params", "_meta", mcp.MetaLogLevel).slice(frame)))
	mx.mu.Lock()
	defer mx.mu.Unlock()
	mx.calls[id] = muxCall{p, level, stringOf(locate(frame, "method").slice(frame)) == mcp.MethodSubscriptionsListen}
}

// untrack forgets a request that was given up.
func (mx *mux) untrack(id int64) {
	mx.mu.Lock()
	defer mx.mu.Unlock()
	delete(mx.calls, id)
}

// removeTranslator forgets a client.
func (mx *mux) removeTranslator(p *translator) {
	mx.mu.Lock()
	delete(mx.translators, p)
	maps.DeleteFunc(mx.calls, func(_ int64, mc muxCall) bool { return mc.translator == p })
	mx.mu.Unlock()
	mx.release()
}

// handlers returns all handlers under the mux.
func (mx *mux) handlers() (all []upstreamHandler) {
	mx.mu.Lock()
	defer mx.mu.Unlock()
	if mx.passthrough != nil {
		all = append(all, mx.passthrough)
	}
	for p := range mx.translators {
		all = append(all, p)
	}
	return all
}

// received implements upstreamHandler.
func (mx *mux) received(frame []byte, m *jsonrpc.Message, from origin) {
	id, routed := translate.Route(frame)
	if !routed {
		id, routed = intOf(from.callID)
	}
	mx.mu.Lock()
	to, legacy := mx.calls[id]
	p := mx.passthrough
	if over := len(m.Method) == 0 || string(m.Method) == mcp.NotificationCancelled; legacy && over {
		delete(mx.calls, id)
	}
	mx.mu.Unlock()
	switch {
	case legacy:
		to.translator.received(frame, m, from)
	case !routed && m.Kind == jsonrpc.KindNotification:
		mx.forwardUnaddressed(frame, m, from)
	case p != nil:
		p.received(frame, m, from)
	default:
		from.rec.recordMessage(toClient, frame)
		mx.b.metrics.strayResponses.Add(1)
	}
}

// forwardUnaddressed forwards a notification that names no request, if only one client can be its
// recipient, and drops it otherwise.
func (mx *mux) forwardUnaddressed(frame []byte, m *jsonrpc.Message, from origin) {
	level, isLog := logLevelOf(m)
	found := map[*translator]struct{}{}
	mx.mu.Lock()
	for _, target := range mx.calls {
		if !target.subscription && (!isLog || target.logLevel != mcp.LevelNone && level >= target.logLevel) {
			found[target.translator] = struct{}{}
		}
	}
	p := mx.passthrough
	mx.mu.Unlock()
	modern := 0
	if p != nil {
		modern = len(p.candidateCalls(m))
	}
	switch {
	case modern == 1 && len(found) == 0:
		p.received(frame, m, from)
	case modern == 0 && len(found) == 1:
		for target := range found {
			target.received(frame, m, from)
		}
	default:
		event := from.rec.recordMessage(toClient, frame)
		mx.upstream.rec.note("message " + strconv.FormatUint(event, 10) + " not forwarded: it belongs to no client")
	}
}

// callFailed implements upstreamHandler.
func (mx *mux) callFailed(id jsonrpc.ID, err error) {
	n, _ := intOf(id)
	mx.mu.Lock()
	to, legacy := mx.calls[n]
	delete(mx.calls, n)
	p := mx.passthrough
	mx.mu.Unlock()
	if legacy {
		to.translator.callFailed(id, err)
	} else if p != nil {
		p.callFailed(id, err)
	}
}

// messagesLost implements upstreamHandler.
func (mx *mux) messagesLost() {
	for _, u := range mx.handlers() {
		u.messagesLost()
	}
}

// reconnected implements upstreamHandler.
func (mx *mux) reconnected(ctx context.Context) (err error) {
	for _, u := range mx.handlers() {
		err = errors.Join(err, u.reconnected(ctx))
	}
	return err
}

// disconnected implements upstreamHandler. Each handler gets its own unsent requests.
func (mx *mux) disconnected(err error, unsent []queuedMessage) {
	mx.mu.Lock()
	mx.closed = mx.closed || err == errUpstreamClosed
	p := mx.passthrough
	unsentBy := map[*translator][]queuedMessage{}
	for target := range mx.translators {
		unsentBy[target] = nil
	}
	unsent = slices.DeleteFunc(unsent, func(it queuedMessage) bool {
		n, ok := intOf(it.id)
		target, legacy := mx.calls[n]
		if ok && legacy {
			unsentBy[target.translator] = append(unsentBy[target.translator], it)
		}
		return ok && legacy
	})
	clear(mx.calls)
	mx.mu.Unlock()
	if p != nil {
		p.disconnected(err, unsent)
	}
	for target, items := range unsentBy {
		target.disconnected(err, items)
	}
}

// wantsConnection implements upstreamHandler.
func (mx *mux) wantsConnection() bool {
	return slices.ContainsFunc(mx.handlers(), upstreamHandler.wantsConnection)
}
