package bridge

import (
	"context"
	"errors"
	"sync"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
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

// eraOf returns the era of a client's message.
func eraOf(m *jsonrpc.Message) Era {
	if method := string(m.Method); isModern(m) || method == mcp.MethodDiscover || method == mcp.MethodSubscriptionsListen {
		return EraModern
	}
	return EraLegacy
}

// forwarderFor returns the forwarder of a client, by its first message, and reports if that message
// was handled.
func (b *Bridge) forwarderFor(cl *client, o clientMessage) (p forwarder, done bool) {
	clientEra := eraOf(o.m)
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
		return b.joinPassthrough(cl, b.newPassthrough(cl.aggregate)), false
	case clientEra == EraLegacy && legacy == supportNo && modern == supportYes, clientEra == EraModern && modern == supportNo && legacy == supportYes:
		return b.newTranslator(cl, clientEra, nil), false
	case clientEra == EraModern:
		return b.tryModern(cl, o), false
	}
	return b.tryLegacy(cl, o)
}

func (b *Bridge) joinPassthrough(cl *client, p *passthrough) forwarder {
	p.addClient(cl)
	return p
}

// tryModern detects the era of the server for a modern client.
func (b *Bridge) tryModern(cl *client, o clientMessage) forwarder {
	probe, up := b.newEraProbe()
	ctx, cancel := b.withConnectTimeout(cl.ctx)
	defer cancel()
	m, err := b.discover(ctx, probe, up, discoverFor(o.frame))
	if ctx.Err() != nil && cl.ctx.Err() == nil {
		up.close()
		return unresponsive{err}
	}
	if result := supportsModern(m, err); result == supportYes {
		b.eras.update(supportUnknown, supportYes)
	} else if result == supportNo {
		if err == nil { // a timeout may be true of this connection only
			b.eras.update(supportYes, supportNo) // it is the only other era
		}
		return b.newTranslator(cl, EraModern, up)
	}
	return b.newPassthroughOn(cl, up, cl.aggregate, nil)
}

// discover sends server/discover to the server. A server that does not answer may be slow to start,
// or may ignore everything but ping before a handshake. So after a timeout it sends a ping. If the
// server answers the ping first, discover returns context.DeadlineExceeded while ctx is still
// valid.
func (b *Bridge) discover(ctx context.Context, probe *eraProbe, up *upstream, request []byte) (*jsonrpc.Message, error) {
	short, cancel := b.withTimeout(ctx, b.opts.eraProbeTimeout())
	m, err := probe.roundTrip(short, up, request)
	cancel()
	if !isTimeout(err) || ctx.Err() != nil {
		return m, err
	}
	ping := jsonrpc.AppendRequest(nil, jsonrpc.StringID("mcpwire-ping"), mcp.MethodPing, nil)
	a := probe.roundTripMessage(ctx, up, queuedMessage{frame: ping})
	if a.err == nil && a.m.ID.Equal(jsonrpc.StringID("mcpwire-ping")) {
		return nil, context.DeadlineExceeded
	}
	return a.m, a.err
}

// supportsModern evaluates the response to server/discover
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning).
func supportsModern(m *jsonrpc.Message, err error) support {
	if err == nil {
		if m.Kind != jsonrpc.KindResponse && !era.IsModernError(m.Err()) || onlyLegacy(m) {
			return supportNo
		}
		return supportYes
	}
	if isTimeout(err) {
		return supportNo
	}
	if failed, ok := errors.AsType[*jsonrpc.CallError](err); ok && failed.Outcome == jsonrpc.OutcomeRejected {
		return supportNo
	}
	return supportUnknown // unreachable or unauthorized
}

// onlyLegacy reports if a response to server/discover names revisions that are all legacy. Such a
// server knows the modern era but is configured not to use it.
func onlyLegacy(m *jsonrpc.Message) bool {
	var versions []string
	if m.Kind == jsonrpc.KindError {
		versions = era.SupportedVersions(m.Err())
	} else if discovered, err := era.ReadDiscover(m.Result); err == nil {
		versions = discovered.Versions
	}
	modern, legacy := era.Common(mcp.Revisions(), versions)
	return modern == mcp.RevisionNone && legacy != mcp.RevisionNone
}

// tryLegacy forwards initialize and checks if the server understands it.
func (b *Bridge) tryLegacy(cl *client, o clientMessage) (p forwarder, done bool) {
	if o.call == nil || o.call.method != mcp.MethodInitialize {
		return b.joinPassthrough(cl, b.newPassthrough(cl.aggregate)), false
	}
	probe, up := b.newEraProbe()
	ctx, cancel := b.withConnectTimeout(o.call.ctx)
	defer cancel()
	defer context.AfterFunc(cl.ctx, cancel)()
	a := probe.roundTripMessage(ctx, up, queuedMessage{frame: o.frame, id: o.call.id, from: provenance{rec: o.call.rec, event: o.call.event, rule: "same"}})
	if isTimeout(a.err) && ctx.Err() != nil {
		up.close()
		return unresponsive{a.err}, false
	}
	if a.err == nil && a.m.Kind == jsonrpc.KindResponse {
		b.eras.update(supportYes, supportUnknown)
		return b.newPassthroughOn(cl, up, false, func(pt *passthrough) {
			pt.resume.SetHandshake(o.frame, a.m.Result)
			o.call.finish(a.frame, provenance{rec: up.rec, event: a.event, rule: "same"})
		}), true
	}
	short, stop := b.withTimeout(cl.ctx, probeTimeout)
	defer stop()
	if reachable(a.err) {
		if d, failed := probe.roundTrip(short, up, discoverRequest()); failed == nil && supportsModern(d, nil) == supportYes {
			b.eras.update(supportNo, supportYes)
			return b.newTranslator(cl, EraLegacy, up), false
		}
	}
	if a.err == nil {
		o.call.finish(a.frame, provenance{rec: up.rec, event: a.event, rule: "same"})
	} else {
		o.call.fail(asRPCError(a.err))
	}
	return b.newPassthroughOn(cl, up, false, nil), true
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
	at := locate(first, "params", "_meta")
	if !locate(first, "params", "_meta", mcp.MetaProtocolVersion).found() {
		return discoverRequest()
	}
	params := era.Rewrite([]byte(`{"_meta":`), at.slice(first), func(m *jsonwire.Members) []byte {
		if m.KeyIs(mcp.MetaProgressToken) || m.KeyIs(mcp.MetaLogLevel) {
			return nil
		}
		return m.Value()
	}, nil)
	return jsonrpc.AppendRequest(nil, jsonrpc.StringID("mcpwire-discover"), mcp.MethodDiscover, append(params, '}'))
}

// initializeRequest returns the bridge's own initialize request. Only the response matters.
func initializeRequest() []byte {
	offer := era.ClientProfile{Info: mcp.Implementation{Name: "mcpwire bridge", Version: "1"}}
	f := era.Of(mcp.LatestLegacyRevision)
	capabilities, _ := offer.Capabilities(f)
	return jsonrpc.AppendRequest(nil, jsonrpc.StringID("mcpwire-initialize"), mcp.MethodInitialize, offer.AppendInitialize(nil, f, capabilities))
}

// unresponsive is the forwarder of a client if the server does not answer at all. The next message
// of the client detects the era again on another connection.
type unresponsive struct{ err error }

func (u unresponsive) request(c *call, _ []byte, _ *jsonrpc.Message) {
	c.failTimeout(errors.New(describe(u.err)))
}
func (unresponsive) notification(*client, []byte, *jsonrpc.Message, uint64) {}
func (unresponsive) response(*client, []byte, *jsonrpc.Message, uint64)     {}
func (unresponsive) abandon(*call)                                          {}
func (unresponsive) removeClient(*client)                                   {}

// wrongEra is the forwarder of messages of an era that is not allowed. The client may support both
// eras and continue with the other one.
type wrongEra struct{ allowed Era }

func (w wrongEra) request(c *call, _ []byte, m *jsonrpc.Message) {
	if w.allowed == EraLegacy {
		c.fail(jsonrpc.MethodNotFound(c.method)) // as a server that knows no other era
		return
	}
	version, _ := m.Param("protocolVersion")
	c.fail(mcp.UnsupportedProtocolVersion(w.allowed.revisions(), stringOf(version)))
}
func (wrongEra) notification(*client, []byte, *jsonrpc.Message, uint64) {}
func (wrongEra) response(*client, []byte, *jsonrpc.Message, uint64)     {}
func (wrongEra) abandon(*call)                                          {}
func (wrongEra) removeClient(*client)                                   {}

// probeTimeout limits how long the bridge waits for the response to server/discover.
const probeTimeout = 5 * time.Second

// eraProbeTimeout returns the part of ConnectTimeout for the first request of a detection.
func (o *Options) eraProbeTimeout() time.Duration {
	if o.ConnectTimeout < 0 {
		return probeTimeout
	}
	return min(probeTimeout, o.ConnectTimeout/2)
}

// An eraProbe handles an upstream during detection. It sends one request after the other.
type eraProbe struct {
	results chan probeResult
	// unsolicited holds the other messages of the server, for the next handler. deliverMu of the
	// upstream guards it and unsolicitedBytes.
	unsolicited      []probeResult
	unsolicitedBytes int

	// The handshake for the next handler; nil if there was none.
	initialize, initializeResult []byte
}

// discardResults removes the responses to earlier requests.
func (e *eraProbe) discardResults() {
	for {
		select {
		case <-e.results:
		default:
			return
		}
	}
}

// Limits for the unsolicited messages: their number, and their bytes, which the first message may
// exceed.
const (
	maxUnsolicited      = 256
	maxUnsolicitedBytes = 1 << 20
)

// A probeResult is a response, or the error without one.
type probeResult struct {
	m     *jsonrpc.Message
	frame []byte
	from  origin
	event uint64
	err   error
}

// newEraProbe returns a probe and its upstream.
func (b *Bridge) newEraProbe() (*eraProbe, *upstream) { return b.newEraProbeWithContext(b.ctx) }

// newEraProbeWithContext is newEraProbe with a context derived from b.ctx.
func (b *Bridge) newEraProbeWithContext(ctx context.Context) (*eraProbe, *upstream) {
	probe := &eraProbe{results: make(chan probeResult, 8)}
	up := b.newUpstreamWithContext(ctx, probe)
	b.wg.Go(up.run)
	return probe, up
}

// roundTrip sends a request of the bridge and waits for the response.
func (e *eraProbe) roundTrip(ctx context.Context, up *upstream, frame []byte) (*jsonrpc.Message, error) {
	id := locate(frame, "id")
	a := e.roundTripMessage(ctx, up, queuedMessage{frame: frame, id: id.slice(frame)})
	return a.m, a.err
}

// roundTripMessage sends a request and waits for its response, or for any response if it has no id.
func (e *eraProbe) roundTripMessage(ctx context.Context, up *upstream, it queuedMessage) probeResult {
	id := it.id
	if err := up.sendUrgent(it); err != nil {
		return probeResult{err: err}
	}
	for {
		select {
		case a := <-e.results:
			if a.err == nil && id != nil && !a.m.ID.Equal(id) && !a.m.ID.IsNull() && len(a.m.ID) > 0 {
				continue // the response to an earlier request
			}
			return a
		case <-ctx.Done():
			return probeResult{err: context.Cause(ctx)}
		}
	}
}

func (e *eraProbe) deliver(a probeResult) {
	select {
	case e.results <- a:
	default: // more responses than requests
	}
}

// received implements upstreamHandler.
func (e *eraProbe) received(frame []byte, m *jsonrpc.Message, from origin) {
	if m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError {
		e.deliver(probeResult{m: m, frame: frame, event: from.rec.recordMessage(toClient, frame)})
		return
	}
	if len(e.unsolicited) >= maxUnsolicited || e.unsolicitedBytes > 0 && e.unsolicitedBytes+len(frame) > maxUnsolicitedBytes {
		from.rec.recordMessage(toClient, frame)
		return
	}
	// The next handler records the message.
	e.unsolicited = append(e.unsolicited, probeResult{m: m, frame: frame, from: from})
	e.unsolicitedBytes += len(frame)
}

// callFailed implements upstreamHandler.
func (e *eraProbe) callFailed(_ jsonrpc.ID, err error) { e.deliver(probeResult{err: err}) }

// disconnected implements upstreamHandler.
func (e *eraProbe) disconnected(err error, _ []queuedMessage) {
	if !errors.Is(err, errUpstreamClosed) {
		e.deliver(probeResult{err: err})
	}
}

func (e *eraProbe) messagesLost()                     {}
func (e *eraProbe) reconnected(context.Context) error { return nil }
func (e *eraProbe) wantsConnection() bool             { return false }

// A sharedAttempt is a detection or a handshake that one client makes for all that share.
type sharedAttempt struct {
	done chan struct{}
	// err is the error of the attempt. It is set before done is closed.
	err error
}

// sharedForwarderFor returns the forwarder of a client that shares. While the server cannot be
// reached, it is unreachable.
func (b *Bridge) sharedForwarderFor(cl *client, o clientMessage) forwarder {
	clientEra := eraOf(o.m)
	for {
		if serverEra := b.serverEraFor(clientEra); serverEra != EraAuto {
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
			return unreachable{why: context.Cause(cl.ctx)}
		}
		if f.err != nil {
			return unreachable{why: f.err}
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
	probe, up := b.failedProbe, b.failedUpstream
	b.failedProbe, b.failedUpstream = nil, nil
	b.mu.Unlock()
	if probe == nil {
		probe, up = b.newEraProbe()
	}
	var found eraResult
	err := up.unavailable()
	if err == nil {
		probe.discardResults()
		if clientEra == EraModern {
			found, err = b.detectModern(cl, probe, up, o)
		} else {
			found, err = b.detectLegacy(cl, probe, up, o)
		}
	}
	if err != nil {
		fwd = unreachable{why: err}
	} else {
		fwd = b.joinShared(cl, clientEra, found.serverEra, o, up)
		// Update the cache last, or other clients would connect by themselves.
		b.eras.update(found.legacy, found.modern)
	}
	b.mu.Lock()
	switch {
	case err == nil:
	case !b.closed && cl.ctx.Err() == nil && up.isDown(): // it knows when to retry
		b.failedProbe, b.failedUpstream = probe, up
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

// detectModern detects the era of the server with server/discover.
func (b *Bridge) detectModern(cl *client, probe *eraProbe, up *upstream, o clientMessage) (eraResult, error) {
	ctx, cancel := b.withConnectTimeout(cl.ctx)
	defer cancel()
	m, err := b.discover(ctx, probe, up, discoverFor(o.frame))
	if ctx.Err() != nil {
		return eraResult{}, err
	}
	switch supportsModern(m, err) {
	case supportYes:
		return eraResult{EraModern, supportUnknown, supportYes}, nil
	case supportNo:
		return eraResult{EraLegacy, supportYes, supportNo}, nil
	}
	return eraResult{}, err
}

// detectLegacy sends the client's handshake to the server, and server/discover if the server does
// not understand it. A server that understands neither counts as legacy: it will repeat its error.
func (b *Bridge) detectLegacy(cl *client, probe *eraProbe, up *upstream, o clientMessage) (eraResult, error) {
	ctx, cancel := b.withConnectTimeout(cl.ctx)
	defer cancel()
	initialize := sharedInitialize(o.frame, jsonrpc.StringID("mcpwire-initialize"))
	a := probe.roundTripMessage(ctx, up, queuedMessage{frame: initialize, id: jsonrpc.StringID("mcpwire-initialize"), from: provenance{rec: o.call.rec, event: o.call.event, rule: "id"}})
	if a.err == nil && a.m.Kind == jsonrpc.KindResponse {
		probe.initialize, probe.initializeResult = initialize, a.m.Result
		return eraResult{EraLegacy, supportYes, supportUnknown}, nil
	}
	if !reachable(a.err) {
		return eraResult{}, a.err
	}
	short, stop := b.withTimeout(cl.ctx, probeTimeout)
	defer stop()
	if m, err := probe.roundTrip(short, up, discoverRequest()); err == nil && supportsModern(m, nil) == supportYes {
		return eraResult{EraModern, supportNo, supportYes}, nil
	}
	return eraResult{serverEra: EraLegacy}, nil
}

// unreachable is the forwarder for the messages that came while the server could not be reached.
type unreachable struct {
	wrongEra
	why error
}

func (u unreachable) request(c *call, _ []byte, _ *jsonrpc.Message) {
	if e, ok := errors.AsType[*relay.RejectedError](u.why); ok {
		c.reject(e)
		return
	}
	c.fail(asRPCError(u.why))
}

// identifiesClient reports if a message tells which clients its client can share with.
func identifiesClient(m *jsonrpc.Message) bool {
	return eraOf(m) == EraModern || m.Kind == jsonrpc.KindRequest && string(m.Method) == mcp.MethodInitialize
}
