package bridge

import (
	"context"
	"errors"
	"sync"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
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
