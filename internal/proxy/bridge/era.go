package bridge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"mcpwire/internal/base/wait"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonedit"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/proxy/translate"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// An eraCache holds what is known about the eras of the server. It applies to all clients until
// something contradicts it.
type eraCache struct {
	mu             sync.Mutex
	legacy, modern support
}

// A support says if the server supports an era.
type support int8

const (
	supportUnknown support = iota
	supportYes
	supportNo
)

func (c *eraCache) get() (legacy, modern support) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.legacy, c.modern
}

func (c *eraCache) update(legacy, modern support) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if legacy != supportUnknown {
		c.legacy = legacy
	}
	if modern != supportUnknown {
		c.modern = modern
	}
}

// reset forgets the eras, so that they are detected again.
func (c *eraCache) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.legacy, c.modern = supportUnknown, supportUnknown
}

// EraOf returns the era of a client's message.
func EraOf(m *jsonrpc.Message) Era {
	if method := string(m.Method); isModern(m) || method == mcp.MethodDiscover || method == mcp.MethodSubscriptionsListen {
		return EraModern
	}
	return EraLegacy
}

// forwarderFor returns the forwarder of a client, by its first message, and reports if that message
// was handled.
func (b *Bridge) forwarderFor(cl *client, o clientMessage) (p forwarder, done bool) {
	clientEra := EraOf(o.m)
	if b.opts.Shared {
		return b.sharedForwarderFor(cl, o), false
	}
	legacy, modern := b.eras.get()
	switch b.opts.ServerEra {
	case EraLegacy:
		legacy, modern = supportYes, supportNo
	case EraModern:
		legacy, modern = supportNo, supportYes
	}
	switch {
	case clientEra == EraLegacy && legacy == supportYes, clientEra == EraModern && modern == supportYes:
		return b.dedicatedPassthrough(cl, b.newUpstream(), nil), false
	case clientEra == EraLegacy && legacy == supportNo && modern == supportYes, clientEra == EraModern && modern == supportNo:
		return b.dedicatedTranslator(cl, clientEra, b.newUpstream()), false
	case clientEra == EraModern:
		return b.tryModern(cl, o), false
	}
	return b.tryLegacy(cl, o)
}

// dedicatedPassthrough returns the forwarder of the only client of up. It calls first, which may be
// nil, before the client gets messages of the server.
func (b *Bridge) dedicatedPassthrough(cl *client, up *upstream, first func()) forwarder {
	p := newPassthrough(up, cl.aggregate)
	p.addClient(cl)
	up.setCodec(p, first)
	return p
}

// dedicatedTranslator returns the forwarder of the only client of up, which is of the other era.
func (b *Bridge) dedicatedTranslator(cl *client, clientEra Era, up *upstream) forwarder {
	var t *translator
	switch {
	case clientEra != EraModern:
		t = b.newTranslator(up, translate.NewLegacyToModern(nil), EraModern)
	case cl.aggregate:
		t = b.newModernTranslator(up)
	default:
		t = b.newTranslator(up, translate.NewModernToLegacy(&translate.Options{HandshakeFailed: b.eras.reset}), EraLegacy)
	}
	t.addClient(cl)
	up.setCodec(t, nil)
	return t
}

// tryModern detects the era of the server for a modern client.
func (b *Bridge) tryModern(cl *client, o clientMessage) forwarder {
	found, up, err := b.detectModern(cl, b.newUpstream(), o)
	if isTimeout(err) && cl.ctx.Err() == nil {
		up.close()
		return unresponsive(err)
	}
	b.eras.update(found.legacy, found.modern)
	if found.serverEra == EraLegacy {
		return b.dedicatedTranslator(cl, EraModern, up)
	}
	return b.dedicatedPassthrough(cl, up, nil)
}

// maxProbes limits how often the bridge sends server/discover to a server that is overloaded.
const maxProbes = 3

// detectEra detects the era of the server with server/discover, and repeats the request if that
// fails on its way. It returns the upstream to use, which is up or takes the place of up. A legacy
// server may have ended because of the request; its upstream then connects again. An error says
// that the era is unknown.
func (b *Bridge) detectEra(ctx context.Context, up *upstream, request []byte) (eraResult, *upstream, error) {
	began, refusals := time.Now(), 1
	for probes := 1; ; probes++ {
		m, err := b.discover(ctx, up, request)
		if b.awaitRestart(ctx, err, began, refusals) {
			refusals++
			probes--
			continue
		}
		if err != nil && (ctx.Err() != nil || isUnreachable(err)) {
			return eraResult{}, up, err
		}
		found := eraResult{serverEra: EraLegacy, modern: supportNo}
		if m != nil {
			found.legacy = supportYes // it is the only other era
		}
		switch probe, cause := judgeProbe(m, err); probe {
		case era.ProbeDenied:
			return eraResult{}, up, err
		case era.ProbeModern:
			return eraResult{serverEra: EraModern, modern: supportYes}, up, nil
		case era.ProbeBusy:
			failed, _ := errors.AsType[*jsonrpc.CallError](err)
			pause := failed.RetryAfter + wait.Backoff(b.opts.MinBackoff, b.opts.MaxBackoff, probes, rand.Float64())
			if probes < maxProbes && pause <= b.opts.RestartWait {
				wait.Sleep(ctx, pause)
				continue
			}
		default:
			b.opts.Logger.Info("the server is not modern", "server", b.opts.Name, "error", cause)
			if err == errDisturbed {
				found.legacy = supportYes
				up.close()
				up = b.newUpstreamWithContext(up.base)
			}
		}
		return found, up, nil
	}
}

// isUnreachable reports if a request had no answer because there was no connection to a server.
func isUnreachable(err error) bool {
	_, unconnected := errors.AsType[*connectError](err)
	dial, ok := errors.AsType[*net.OpError](err)
	return unconnected || ok && dial.Op == "dial" || errors.Is(err, errUpstreamClosed) || errors.Is(err, errUrgentFull)
}

// errDisturbed is the error of discover if the server does not respond after server/discover, but
// responds to initialize on another connection.
var errDisturbed = errors.New("the server stops responding after " + mcp.MethodDiscover)

// discover sends server/discover to the server. A server that does not answer may be slow to start,
// may ignore everything but ping before a handshake, or may be disturbed by the request. So after a
// timeout it sends a ping, and after another one initialize on another connection. If the server
// answers one of these first, discover returns context.DeadlineExceeded or errDisturbed while ctx
// is still valid.
func (b *Bridge) discover(ctx context.Context, up *upstream, request []byte) (*jsonrpc.Message, error) {
	id := jsonrpc.ID(jsonwire.Lookup(request, "id"))
	discovered, err := up.start(queuedMessage{frame: request, id: id})
	if err != nil {
		return nil, err
	}
	defer up.own.forget(id)
	var alive, initialized <-chan ownAnswer
	for phase := 0; ; {
		short, cancel := b.withTimeout(ctx, b.opts.eraProbeTimeout())
		defer cancel()
		late := short.Done()
		if phase == 2 {
			late = nil
		}
		select {
		case a := <-discovered:
			return a.m, a.err
		case a := <-alive:
			if a.err == nil {
				a.err = context.DeadlineExceeded
			}
			return nil, a.err
		case a := <-initialized:
			if a.err == nil && a.m.Kind == jsonrpc.KindResponse {
				return nil, errDisturbed
			}
			initialized = nil
			continue
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-late:
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if phase++; phase == 1 {
			ping := jsonrpc.StringID("mcpwire-ping")
			alive, err = up.start(queuedMessage{frame: jsonrpc.AppendRequest(nil, ping, mcp.MethodPing, nil), id: ping})
			if err != nil {
				return nil, err
			}
			defer up.own.forget(ping)
			continue
		}
		other := b.newUpstreamWithContext(up.base)
		other.setPrincipal(up.principal())
		defer other.close()
		frame := initializeRequest()
		if initialized, err = other.start(queuedMessage{frame: frame, id: jsonwire.Lookup(frame, "id")}); err != nil {
			return nil, err
		}
	}
}

// tryLegacy forwards initialize and checks if the server understands it.
func (b *Bridge) tryLegacy(cl *client, o clientMessage) (p forwarder, done bool) {
	if o.call == nil || o.call.method != mcp.MethodInitialize {
		return b.dedicatedPassthrough(cl, b.newUpstream(), nil), false
	}
	up := b.newUpstream()
	ctx, cancel := b.withConnectTimeout(o.call.ctx)
	defer cancel()
	defer context.AfterFunc(cl.ctx, cancel)()
	a := up.request(ctx, queuedMessage{frame: o.frame, id: o.call.id, from: Provenance{rec: o.call.rec, event: o.call.event, rule: "same"}})
	if isTimeout(a.err) && ctx.Err() != nil {
		up.close()
		return unresponsive(a.err), false
	}
	if a.err == nil && a.m.Kind == jsonrpc.KindResponse {
		b.eras.update(supportYes, supportUnknown)
		up.resume.SetHandshake(o.frame, a.m.Result)
		return b.dedicatedPassthrough(cl, up, func() {
			o.call.finish(a.frame, Provenance{rec: up.rec, event: a.event, rule: "same"})
		}), true
	}
	short, stop := b.withTimeout(cl.ctx, probeTimeout)
	defer stop()
	if reachable(a.err) {
		if b.speaksModern(short, up) {
			b.eras.update(supportNo, supportYes)
			return b.dedicatedTranslator(cl, EraLegacy, up), false
		}
	}
	if a.err == nil {
		o.call.finish(a.frame, Provenance{rec: up.rec, event: a.event, rule: "same"})
	} else {
		o.call.fail(b.opts.asRPCError(a.err))
	}
	return b.dedicatedPassthrough(cl, up, nil), true
}

// speaksModern sends server/discover after a handshake that failed. It reports if the server is
// modern.
func (b *Bridge) speaksModern(ctx context.Context, up *upstream) bool {
	probe, _ := judgeProbe(up.requestFrame(ctx, discoverRequest()))
	return probe == era.ProbeModern
}

// judgeProbe is era.JudgeProbe for the response to server/discover. A server that names only legacy
// revisions counts as legacy: it knows the modern era, but is configured not to use it.
func judgeProbe(m *jsonrpc.Message, err error) (era.ProbeResult, error) {
	var result []byte
	if err == nil && m.Kind == jsonrpc.KindResponse {
		result = m.Result
	} else if err == nil {
		err = m.Err()
	}
	probe, server, cause := era.JudgeProbe(result, err)
	if probe == era.ProbeModern {
		if modern, legacy := era.Common(mcp.Revisions(), server.Versions); modern == mcp.RevisionNone && legacy != mcp.RevisionNone {
			return era.ProbeLegacy, fmt.Errorf("it names only legacy revisions: %v", legacy)
		}
	}
	return probe, cause
}

// reachable reports if discovery may still succeed after a handshake that failed with err.
func reachable(err error) bool {
	if err == nil {
		return true
	}
	failed, ok := errors.AsType[*jsonrpc.CallError](err)
	return ok && failed.Outcome == jsonrpc.OutcomeRejected
}

// discoverRequest returns the bridge's own server/discover request.
func discoverRequest() []byte {
	offer := era.ClientProfile{Info: mcp.Implementation{Name: "mcpwire bridge", Version: "1"}}
	f := era.Of(mcp.LatestRevision)
	capabilities, _ := offer.Capabilities(f)
	params := append(offer.AppendMeta([]byte(`{"_meta":`), f, capabilities), "}}"...)
	return jsonrpc.AppendRequest(nil, jsonrpc.StringID("mcpwire-discover"), mcp.MethodDiscover, params)
}

// discoverFor returns a server/discover request with the _meta of the client's first message,
// because another bridge upstream may depend on the client's identity.
func discoverFor(first []byte) []byte {
	at := jsonedit.Locate(first, "params", "_meta")
	if !jsonedit.Locate(first, "params", "_meta", mcp.MetaProtocolVersion).Found() {
		return discoverRequest()
	}
	params := era.Rewrite([]byte(`{"_meta":`), at.Of(first), era.Without(mcp.MetaProgressToken, mcp.MetaLogLevel), nil)
	return jsonrpc.AppendRequest(nil, jsonrpc.StringID("mcpwire-discover"), mcp.MethodDiscover, append(params, '}'))
}

// initializeRequest returns the bridge's own initialize request. Only the response matters.
func initializeRequest() []byte {
	offer := era.ClientProfile{Info: mcp.Implementation{Name: "mcpwire bridge", Version: "1"}}
	f := era.Of(mcp.LatestLegacyRevision)
	capabilities, _ := offer.Capabilities(f)
	return jsonrpc.AppendRequest(nil, jsonrpc.StringID("mcpwire-initialize"), mcp.MethodInitialize, offer.AppendInitialize(nil, f, capabilities))
}

// A refuser is the forwarder of messages that cannot be forwarded. It answers requests and drops
// all else.
type refuser struct {
	answer func(c *call, m *jsonrpc.Message)
	// temporary says that the next message of the client detects the era again.
	temporary bool
}

func (r refuser) request(c *call, _ []byte, m *jsonrpc.Message)        { r.answer(c, m) }
func (refuser) notification(*client, []byte, *jsonrpc.Message, uint64) {}
func (refuser) response(*client, []byte, *jsonrpc.Message, uint64)     {}
func (refuser) abandon(*call)                                          {}
func (refuser) removeClient(*client)                                   {}

// unresponsive is the forwarder of a client if the server does not answer at all. The next message
// detects the era on another connection.
func unresponsive(err error) forwarder {
	return refuser{func(c *call, _ *jsonrpc.Message) { c.failTimeout(errors.New(c.client.b.opts.Hints.describe(err))) }, true}
}

// unreachable is the forwarder for the messages that came while the server could not be reached.
func unreachable(why error) forwarder {
	return refuser{func(c *call, _ *jsonrpc.Message) {
		if e, ok := errors.AsType[*relay.RejectedError](why); ok {
			c.reject(e)
			return
		}
		c.fail(c.client.b.opts.asRPCError(why))
	}, true}
}

// wrongEra is the forwarder of messages of an era that is not allowed. The client may support both
// eras and continue with the other one.
func wrongEra(allowed Era) forwarder {
	return refuser{answer: func(c *call, m *jsonrpc.Message) {
		if allowed == EraLegacy {
			c.fail(jsonrpc.MethodNotFound(c.method)) // as a server that knows no other era
			return
		}
		version, _ := m.Param("protocolVersion")
		c.fail(era.UnsupportedProtocolVersion(allowed.Revisions(), jsonwire.Text(version)))
	}}
}

// otherEra is wrongEra for one message, because the client is expected to go on in the other era.
func otherEra(serverEra Era) forwarder {
	r := wrongEra(serverEra).(refuser)
	r.temporary = true
	return r
}

// uninitialized is the forwarder of legacy clients that share, until they send initialize.
var uninitialized forwarder = refuser{answer: func(c *call, _ *jsonrpc.Message) {
	if c.method == mcp.MethodPing {
		c.finish(jsonrpc.AppendResult(nil, c.id, []byte("{}")), c.bridgeProvenance())
		return
	}
	c.fail(jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: send initialize first"))
}}

// probeTimeout limits how long the bridge waits for the response to server/discover.
const probeTimeout = 5 * time.Second

// eraProbeTimeout returns the part of ConnectTimeout for the first request of a detection.
func (o *Options) eraProbeTimeout() time.Duration {
	if o.ConnectTimeout < 0 {
		return probeTimeout
	}
	return min(probeTimeout, o.ConnectTimeout/2)
}

// A sharedAttempt is a detection or a handshake that one client makes for all that share.
type sharedAttempt struct {
	done chan struct{}
	// err is the error of the attempt. It is set before done is closed.
	err error
}

// sharedForwarderFor returns the forwarder of a client that shares. While the server cannot be
// reached, it is unreachable.
func (b *Bridge) sharedForwarderFor(cl *client, o clientMessage) forwarder {
	clientEra := EraOf(o.m)
	for {
		if serverEra := b.serverEraFor(clientEra); serverEra != EraAuto {
			if b.opts.NoTranslation && serverEra != clientEra {
				return otherEra(serverEra)
			}
			return b.joinShared(cl, clientEra, serverEra, o, nil)
		}
		b.mu.Lock()
		f := b.detecting
		if f == nil && b.serverEraFor(clientEra) != EraAuto { // another client just detected it
			b.mu.Unlock()
			continue
		}
		leader := f == nil
		if leader {
			f = &sharedAttempt{done: make(chan struct{})}
			b.detecting = f
		}
		b.mu.Unlock()
		if leader {
			return b.detect(f, cl, clientEra, o)
		}
		select {
		case <-f.done:
		case <-cl.ctx.Done():
			return unreachable(context.Cause(cl.ctx))
		}
		if f.err != nil {
			return unreachable(f.err)
		}
	}
}

// serverEraFor returns the era of the server to use for a client: the client's own if the server
// supports it, and EraAuto if that is unknown.
func (b *Bridge) serverEraFor(clientEra Era) Era {
	if b.opts.ServerEra != EraAuto {
		return b.opts.ServerEra
	}
	legacy, modern := b.eras.get()
	switch {
	case clientEra == EraLegacy && legacy == supportYes, clientEra == EraModern && modern == supportNo:
		return EraLegacy
	case clientEra == EraModern && modern == supportYes, clientEra == EraLegacy && legacy == supportNo:
		return EraModern
	}
	return EraAuto
}

// detect detects the era of the server for a client, on the upstream that the client then shares.
func (b *Bridge) detect(f *sharedAttempt, cl *client, clientEra Era, o clientMessage) (fwd forwarder) {
	b.mu.Lock()
	up := b.failedUpstream
	b.failedUpstream = nil
	b.mu.Unlock()
	if up == nil {
		up = b.newUpstream()
	}
	up.setPrincipal(cl.principalID)
	var found eraResult
	err := up.unavailable()
	if err == nil {
		if clientEra == EraModern {
			found, up, err = b.detectModern(cl, up, o)
		} else {
			found, err = b.detectLegacy(cl, up, o)
		}
	}
	spare := false
	switch {
	case err != nil:
		fwd = unreachable(err)
	case b.opts.NoTranslation && found.serverEra != clientEra:
		fwd, spare = otherEra(found.serverEra), true
		b.eras.update(found.legacy, found.modern)
	default:
		fwd = b.joinShared(cl, clientEra, found.serverEra, o, up)
		// Update the cache last, or other clients would connect by themselves.
		b.eras.update(found.legacy, found.modern)
	}
	b.mu.Lock()
	switch {
	case spare && !b.closed && b.spare == nil:
		b.spare = up
	case spare:
		up.close()
	case err == nil:
	case !b.closed && cl.ctx.Err() == nil && up.isDown(): // it knows when to retry
		b.failedUpstream = up
	default:
		up.close()
	}
	if cl.ctx.Err() == nil { // otherwise another client must try
		f.err = err
	}
	b.detecting = nil
	b.mu.Unlock()
	close(f.done)
	return fwd
}

// An eraResult is the result of a detection: the era to use for the client, and what is known about
// the server.
type eraResult struct {
	serverEra      Era
	legacy, modern support
}

// detectModern detects the era of the server for a modern client. It returns the upstream to use as
// detectEra does.
func (b *Bridge) detectModern(cl *client, up *upstream, o clientMessage) (eraResult, *upstream, error) {
	ctx, cancel := b.withConnectTimeout(cl.ctx)
	defer cancel()
	return b.detectEra(ctx, up, discoverFor(o.frame))
}

// detectLegacy sends the client's handshake to the server, and server/discover if the server does
// not understand it. A server that understands neither counts as legacy: it will repeat its error.
func (b *Bridge) detectLegacy(cl *client, up *upstream, o clientMessage) (eraResult, error) {
	ctx, cancel := b.withConnectTimeout(cl.ctx)
	defer cancel()
	initialize := sharedInitialize(o.frame, jsonrpc.StringID("mcpwire-initialize"))
	a := up.request(ctx, queuedMessage{frame: initialize, id: jsonrpc.StringID("mcpwire-initialize"), from: Provenance{rec: o.call.rec, event: o.call.event, rule: "id"}})
	if a.err == nil && a.m.Kind == jsonrpc.KindResponse {
		up.resume.SetHandshake(initialize, a.m.Result)
		return eraResult{EraLegacy, supportYes, supportUnknown}, nil
	}
	if !reachable(a.err) {
		return eraResult{}, a.err
	}
	short, stop := b.withTimeout(cl.ctx, probeTimeout)
	defer stop()
	if b.speaksModern(short, up) {
		return eraResult{EraModern, supportNo, supportYes}, nil
	}
	return eraResult{serverEra: EraLegacy}, nil
}

// identifiesClient reports if a message says which clients its client can share with.
func identifiesClient(m *jsonrpc.Message) bool {
	return EraOf(m) == EraModern || m.Kind == jsonrpc.KindRequest && string(m.Method) == mcp.MethodInitialize
}
