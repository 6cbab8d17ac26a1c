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

// A commons is a connection to the server that clients share. It outlives the last of them by Options.IdleTimeout.
type sharedUpstream struct {
	b         *Bridge
	key       string
	handler   sharedHandler
	idleTimer *time.Timer

	caller string // who is charged for it: the one who came first; "" is nobody

	clients   int       // guarded by Bridge.mu, as is
	idleSince time.Time // it has none
}

// A sharer is what a commons belongs to.
type sharedHandler interface {
	// attach returns what a client of the era talks to.
	attach(cl *client, near Era) forwarder
	// close ends the connection.
	close()
	// ping asks the server for a sign of life.
	ping(ctx context.Context) error
	// isUp reports whether there is a server to ask.
	isUp() bool
}

// anyShared returns a connection that clients share and that there is now; nil if there is none.
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

// shareKey names the connection that a client shares: nobody else's, and only with those for whom a server must be told the same. A modern server is told it with each
// request, so that clients of both eras are together there; a legacy one was told it once, in the handshake.
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

// joinShared has a client be one of those that share a connection. l is the line for it if there is none yet; nil is a new one.
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

// evictIdleLocked returns the connection that has been without clients for the longest, if there are as many as there may be, of all or of the caller, and forgets it: whoever says
// something else of himself each time would keep any number.
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

// removeSharedLocked forgets a connection that clients shared.
func (b *Bridge) removeSharedLocked(s *sharedUpstream) {
	delete(b.pool, s.key)
	b.releaseLocked(s.caller)
}

// newSharedHandler returns what a connection belongs to between these eras. It has a line of its own if l is nil.
func (b *Bridge) newSharedHandler(s *sharedUpstream, clientEra, serverEra Era, up *upstream) sharedHandler {
	switch {
	case serverEra == EraModern:
		return newMux(s, up)
	case clientEra == EraModern:
		return b.newSharedTranslator(s, up)
	}
	return b.newSharedSession(s, up)
}

// release notes that a client is gone.
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

// expire ends what nobody has used for long.
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

// uninitialized is the party of clients of the legacy era that share a connection, until they have said what they are.
type uninitialized struct{ wrongEra }

func (uninitialized) request(c *call, _ []byte, _ *jsonrpc.Message) {
	if c.method == mcp.MethodPing {
		c.finish(jsonrpc.AppendResult(nil, c.id, []byte("{}")), c.bridgeProvenance())
		return
	}
	c.fail(jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: initialize comes first"))
}

// A trunk is the user of a line to a modern server that clients of both eras share. The server keeps nothing between requests, so that all that has to be kept apart is whose
// they are, which their ids tell.
type mux struct {
	*sharedUpstream
	upstream *upstream
	lastID   atomic.Int64 // of requests to the server

	mu          sync.Mutex
	passthrough *passthrough // of modern clients, all of them; nil as long as there was none
	translators map[*translator]struct{}
	calls       map[int64]muxCall // of legacy clients, under way
	closed      bool
}

// A branch is whose a request is.
type muxCall struct {
	translator   *translator
	logLevel     mcp.LoggingLevel // of log messages; LevelNone is none
	subscription bool             // it is a subscription, which nothing belongs to that does not say so
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

// attach implements sharer.
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

// passthroughLocked returns what modern clients talk to, and the bridge itself.
func (mx *mux) passthroughLocked() *passthrough {
	if mx.passthrough == nil {
		mx.passthrough = newUnboundPassthrough(mx.b, true)
		mx.passthrough.upstream, mx.passthrough.shared, mx.passthrough.lastID, mx.passthrough.closed = mx.upstream, mx.sharedUpstream, &mx.lastID, mx.closed
	}
	return mx.passthrough
}

// close implements sharer.
func (mx *mux) close() { mx.upstream.close() }

// isUp implements sharer.
func (mx *mux) isUp() bool { return mx.upstream.isUp() }

// ping implements sharer.
func (mx *mux) ping(ctx context.Context) error {
	mx.mu.Lock()
	p := mx.passthroughLocked()
	mx.mu.Unlock()
	return p.ping(ctx)
}

// track notes whose a request is that is about to be sent.
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

// handlers returns those whom something is told that concerns the connection.
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

// received implements user.
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

// forwardUnaddressed hands on what does not say whose it is: to the client that it must be of, and to nobody if it may be that of several.
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
		mx.upstream.rec.note("message " + strconv.FormatUint(event, 10) + " goes no further: nothing says which client it is for")
	}
}

// callFailed implements user.
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

// messagesLost implements user.
func (mx *mux) messagesLost() {
	for _, u := range mx.handlers() {
		u.messagesLost()
	}
}

// reconnected implements user.
func (mx *mux) reconnected(ctx context.Context) (err error) {
	for _, u := range mx.handlers() {
		err = errors.Join(err, u.reconnected(ctx))
	}
	return err
}

// disconnected implements user. Each is told which of its own requests were not sent.
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

// wantsConnection implements user.
func (mx *mux) wantsConnection() bool {
	return slices.ContainsFunc(mx.handlers(), upstreamHandler.wantsConnection)
}
