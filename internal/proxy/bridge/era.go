package bridge

import (
	"context"
	"errors"
	"sync"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// eraCache is what was found out of the server's era. It is a property of the server, so it holds for all clients until something contradicts it.
type eraCache struct {
	mu             sync.Mutex
	legacy, modern support
}

// An answer is to a question that may not have been asked.
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

// reset makes it be found out again.
func (c *eraCache) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.legacy, c.modern = supportUnknown, supportUnknown
}

// eraOf returns the era that a message is of.
func eraOf(m *jsonrpc.Message) Era {
	if method := string(m.Method); isModern(m) || method == mcp.MethodDiscover || method == mcp.MethodSubscriptionsListen {
		return EraModern
	}
	return EraLegacy
}

// forwarderFor returns what a client talks to, by its first message of an era that is allowed, and whether that message has been dealt with.
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

// tryModern asks the server whether it is modern, as the client is.
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
		if err == nil { // what holds for this one only is that it has said nothing
			b.eras.update(supportYes, supportNo) // what else could it be
		}
		return b.newTranslator(cl, EraModern, up)
	}
	return b.newPassthroughOn(cl, up, cl.aggregate, nil)
}

// discover asks the server what it is, by a server/discover request. One that does not answer may be slow to start, or of those that answer nothing before a handshake, but for a ping: as soon as it answers
// that, the other answer is not going to come, which is a deadline that was exceeded, while ctx goes on.
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

// supportsModern judges what a server has answered to server/discover
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
	return supportUnknown // it cannot be reached, or does not let us in: that says nothing of its era
}

// onlyLegacy reports whether an answer to server/discover names revisions, and they are all legacy ones: the server knows of the modern era, and has been told not to
// speak it.
func onlyLegacy(m *jsonrpc.Message) bool {
	var versions []string
	if m.Kind == jsonrpc.KindError {
		versions = era.SupportedVersions(m.Err())
	} else if hello, err := era.ReadDiscover(m.Result); err == nil {
		versions = hello.Versions
	}
	modern, legacy := era.Common(mcp.Revisions(), versions)
	return modern == mcp.RevisionNone && legacy != mcp.RevisionNone
}

// tryLegacy forwards initialize, and sees whether the server knows it.
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
			pt.adoptHandshake(o, a.m)
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

// reachable reports whether a server that has not agreed to a handshake is worth being asked something else.
func reachable(err error) bool {
	if err == nil {
		return true
	}
	failed, ok := errors.AsType[*jsonrpc.CallError](err)
	return ok && failed.Outcome == jsonrpc.OutcomeRejected
}

// discoverRequest is the bridge's own question what a server is.
func discoverRequest() []byte {
	offer := era.ClientProfile{Info: mcp.Implementation{Name: "mcpwire bridge", Version: "1"}}
	f := era.Of(mcp.LatestRevision)
	capabilities, _ := offer.Capabilities(f)
	params := append(offer.AppendMeta([]byte(`{"_meta":`), f, capabilities), "}}"...)
	return jsonrpc.AppendRequest(nil, jsonrpc.StringID("mcpwire-discover"), mcp.MethodDiscover, params)
}

// discoverFor asks it as the client does whose first message it is: another bridge behind this one may go by who asks first.
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

// initializeRequest is the bridge's own handshake, of which only the answer is of interest.
func initializeRequest() []byte {
	offer := era.ClientProfile{Info: mcp.Implementation{Name: "mcpwire bridge", Version: "1"}}
	f := era.Of(mcp.LatestLegacyRevision)
	capabilities, _ := offer.Capabilities(f)
	return jsonrpc.AppendRequest(nil, jsonrpc.StringID("mcpwire-initialize"), mcp.MethodInitialize, offer.AppendInitialize(nil, f, capabilities))
}

// unresponsive is the party of a client whose server has said nothing at all. The next message of the client finds out anew whether it does, on another connection.
type unresponsive struct{ err error }

func (u unresponsive) request(c *call, _ []byte, _ *jsonrpc.Message) {
	c.failTimeout(errors.New(describe(u.err)))
}
func (unresponsive) notification(*client, []byte, *jsonrpc.Message, uint64) {}
func (unresponsive) response(*client, []byte, *jsonrpc.Message, uint64)     {}
func (unresponsive) abandon(*call)                                          {}
func (unresponsive) removeClient(*client)                                   {}

// wrongEra is the party of messages of an era that is not allowed. The client may have both, and go on with the other.
type wrongEra struct{ allowed Era }

func (w wrongEra) request(c *call, _ []byte, m *jsonrpc.Message) {
	if w.allowed == EraLegacy {
		c.fail(jsonrpc.MethodNotFound(c.method)) // as a server answers that knows no other
		return
	}
	version, _ := m.Param("protocolVersion")
	c.fail(mcp.UnsupportedProtocolVersion(w.allowed.revisions(), stringOf(version)))
}
func (wrongEra) notification(*client, []byte, *jsonrpc.Message, uint64) {}
func (wrongEra) response(*client, []byte, *jsonrpc.Message, uint64)     {}
func (wrongEra) abandon(*call)                                          {}
func (wrongEra) removeClient(*client)                                   {}

// probeTimeout is how long a server may take to say whether it is modern.
const probeTimeout = 5 * time.Second

// eraProbeTimeout is the part of the time for a connection that is left to the first question.
func (o *Options) eraProbeTimeout() time.Duration {
	if o.ConnectTimeout < 0 {
		return probeTimeout
	}
	return min(probeTimeout, o.ConnectTimeout/2)
}

// A prober is the user of a line of which nobody knows yet what it is for: it asks one thing after the other.
type eraProbe struct {
	results          chan probeResult
	unsolicited      []probeResult // what the server has sent of itself, which is for the next user; guarded by the line's passing, as is
	unsolicitedBytes int           // of it

	initialize, initializeResult []byte // the handshake that there was, for the next user; nil if there was none
}

// discardResults throws away what was answered to what was asked before.
func (e *eraProbe) discardResults() {
	for {
		select {
		case <-e.results:
		default:
			return
		}
	}
}

// maxUnsolicited is how many messages are kept, and maxUnsolicitedBytes how much of them besides the first.
const (
	maxUnsolicited      = 256
	maxUnsolicitedBytes = 1 << 20
)

// probeResult is an answer, or why there is none.
type probeResult struct {
	m     *jsonrpc.Message
	frame []byte
	from  origin
	event uint64 // in the capture
	err   error
}

// newEraProbe returns a prober and its line.
func (b *Bridge) newEraProbe() (*eraProbe, *upstream) { return b.newEraProbeWithContext(b.ctx) }

// newEraProbeWithContext is newEraProbe with a context for what the line does, of b.ctx.
func (b *Bridge) newEraProbeWithContext(ctx context.Context) (*eraProbe, *upstream) {
	probe := &eraProbe{results: make(chan probeResult, 8)}
	up := b.newUpstreamWithContext(ctx, probe)
	b.wg.Go(up.run)
	return probe, up
}

// roundTrip sends a request of the bridge's own, and waits for the answer.
func (e *eraProbe) roundTrip(ctx context.Context, up *upstream, frame []byte) (*jsonrpc.Message, error) {
	id := locate(frame, "id")
	a := e.roundTripMessage(ctx, up, queuedMessage{frame: frame, id: id.slice(frame)})
	return a.m, a.err
}

// roundTripMessage sends a request and waits for the answer; if it has no id, for any.
func (e *eraProbe) roundTripMessage(ctx context.Context, up *upstream, it queuedMessage) probeResult {
	id := it.id
	up.sendUrgent(it)
	for {
		select {
		case a := <-e.results:
			if a.err == nil && id != nil && !a.m.ID.Equal(id) && !a.m.ID.IsNull() && len(a.m.ID) > 0 {
				continue // to what was asked before
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
	default: // nobody asks that much
	}
}

// received implements user.
func (e *eraProbe) received(frame []byte, m *jsonrpc.Message, from origin) {
	if m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError {
		e.deliver(probeResult{m: m, frame: frame, event: from.rec.recordMessage(toClient, frame)})
		return
	}
	if len(e.unsolicited) >= maxUnsolicited || e.unsolicitedBytes > 0 && e.unsolicitedBytes+len(frame) > maxUnsolicitedBytes {
		from.rec.recordMessage(toClient, frame)
		return
	}
	e.unsolicited = append(e.unsolicited, probeResult{m: m, frame: frame, from: from}) // the next user records it
	e.unsolicitedBytes += len(frame)
}

// callFailed implements user.
func (e *eraProbe) callFailed(_ jsonrpc.ID, err error) { e.deliver(probeResult{err: err}) }

// disconnected implements user.
func (e *eraProbe) disconnected(err error, _ []queuedMessage) {
	if !errors.Is(err, errUpstreamClosed) {
		e.deliver(probeResult{err: err})
	}
}

func (e *eraProbe) messagesLost()                     {}
func (e *eraProbe) reconnected(context.Context) error { return nil }
func (e *eraProbe) wantsConnection() bool             { return false }

// A finding is under way while somebody finds out, for all clients that share, what the server is.
type sharedAttempt struct {
	done chan struct{} // closed in the end
	err  error         // why it could not be found out; set before
}

// sharedForwarderFor returns what a client talks to that shares. A client that comes while the server cannot be reached has nothing to talk to yet.
func (b *Bridge) sharedForwarderFor(cl *client, o clientMessage) forwarder {
	clientEra := eraOf(o.m)
	for {
		if serverEra := b.serverEraFor(clientEra); serverEra != EraAuto {
			return b.joinShared(cl, clientEra, serverEra, o, nil)
		}
		b.mu.Lock()
		f := b.detecting
		if f == nil && b.serverEraFor(clientEra) != EraAuto { // since a moment
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

// serverEraFor returns the era by which clients of the era near are served, EraAuto if that is not known: the same if the server has it.
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

// detect finds out what the server is, for a client, with the line that the client then shares.
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
		b.eras.update(found.legacy, found.modern) // not before: others would begin a connection of their own
	}
	b.mu.Lock()
	switch {
	case err == nil:
	case !b.closed && cl.ctx.Err() == nil && up.isDown(): // it knows when the next attempt may be made
		b.failedProbe, b.failedUpstream = probe, up
	default:
		up.close()
	}
	if cl.ctx.Err() == nil { // else it says nothing of the server, and somebody else has to try
		f.err = err
	}
	b.detecting = nil
	b.mu.Unlock()
	close(f.done)
	return fwd
}

// A verdict is what was found out: by which era the client is served, and what is known of the server for others.
type eraResult struct {
	serverEra      Era
	legacy, modern support
}

// detectModern asks the server whether it is modern.
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

// detectLegacy shakes hands with the server as the client does, and asks it whether it is modern if it knows no handshakes. One that knows neither is taken for legacy: it has
// said what is wrong, and is going to say it again.
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

// unreachable is the party of clients of a server that is away, for what they have asked for so far.
type unreachable struct {
	wrongEra
	why error
}

func (u unreachable) request(c *call, _ []byte, _ *jsonrpc.Message) {
	if e, ok := errors.AsType[*streamable.RejectedError](u.why); ok {
		c.reject(e)
		return
	}
	c.fail(asRPCError(u.why))
}

// identifiesClient reports whether a message tells what its client has to share.
func identifiesClient(m *jsonrpc.Message) bool {
	return eraOf(m) == EraModern || m.Kind == jsonrpc.KindRequest && string(m.Method) == mcp.MethodInitialize
}
