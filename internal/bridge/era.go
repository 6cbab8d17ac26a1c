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

// known is what was found out of the server's era. It is a property of the server, so it holds for all clients until something contradicts it.
type known struct {
	mu             sync.Mutex
	legacy, modern answer
}

// An answer is to a question that may not have been asked.
type answer int8

const (
	unknown answer = iota
	yes
	no
)

func (k *known) get() (legacy, modern answer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.legacy, k.modern
}

func (k *known) note(legacy, modern answer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if legacy != unknown {
		k.legacy = legacy
	}
	if modern != unknown {
		k.modern = modern
	}
}

// forget makes it be found out again.
func (k *known) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.legacy, k.modern = unknown, unknown
}

// eraOf returns the era that a message is of.
func eraOf(m *jsonrpc.Message) Era {
	if method := string(m.Method); isModern(m) || method == mcp.MethodDiscover || method == mcp.MethodSubscriptionsListen {
		return EraModern
	}
	return EraLegacy
}

// partyFor returns what a client talks to, by its first message of an era that is allowed, and whether that message has been dealt with.
func (b *Bridge) partyFor(cl *client, o opening) (p party, done bool) {
	near := eraOf(o.m)
	if b.opts.Shared {
		return b.sharedParty(cl, o), false
	}
	legacy, modern := b.known.get()
	switch b.opts.Far {
	case EraLegacy:
		legacy, modern = yes, no
	case EraModern:
		legacy, modern = no, yes
	}
	switch {
	case near == EraLegacy && legacy == yes, near == EraModern && modern == yes:
		return b.joined(cl, b.newPlain(cl.many)), false
	case near == EraLegacy && legacy == no && modern == yes, near == EraModern && modern == no && legacy == yes:
		return b.newTranslated(cl, near, nil), false
	case near == EraModern:
		return b.tryModern(cl, o), false
	}
	return b.tryLegacy(cl, o)
}

func (b *Bridge) joined(cl *client, p *plain) party {
	p.join(cl)
	return p
}

// tryModern asks the server whether it is modern, as the client is.
func (b *Bridge) tryModern(cl *client, o opening) party {
	u, l := b.newProber()
	ctx, cancel := b.whileConnecting(cl.ended)
	defer cancel()
	m, err := b.discover(ctx, u, l, discoverFor(o.frame))
	if ctx.Err() != nil && cl.ended.Err() == nil {
		l.close()
		return mute{err}
	}
	if verdict := modernBy(m, err); verdict == yes {
		b.known.note(unknown, yes)
	} else if verdict == no {
		if err == nil { // what holds for this one only is that it has said nothing
			b.known.note(yes, no) // what else could it be
		}
		return b.newTranslated(cl, EraModern, l)
	}
	return b.plainOn(cl, l, cl.many, nil)
}

// discover asks the server what it is, by a server/discover request. One that does not answer may be slow to start, or of those that answer nothing before a handshake, but for a ping: as soon as it answers
// that, the other answer is not going to come, which is a deadline that was exceeded, while ctx goes on.
func (b *Bridge) discover(ctx context.Context, u *prober, l *line, question []byte) (*jsonrpc.Message, error) {
	short, cancel := b.within(ctx, b.opts.probing())
	m, err := u.ask(short, l, question)
	cancel()
	if !isSilence(err) || ctx.Err() != nil {
		return m, err
	}
	ping := jsonrpc.AppendRequest(nil, jsonrpc.StringID("mcpwire-ping"), mcp.MethodPing, nil)
	a := u.await(ctx, l, item{frame: ping})
	if a.err == nil && a.m.ID.Equal(jsonrpc.StringID("mcpwire-ping")) {
		return nil, context.DeadlineExceeded
	}
	return a.m, a.err
}

// modernBy judges what a server has answered to server/discover
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning).
func modernBy(m *jsonrpc.Message, err error) answer {
	if err == nil {
		if m.Kind != jsonrpc.KindResponse && !era.IsModernError(m.Err()) || onlyLegacy(m) {
			return no
		}
		return yes
	}
	if isSilence(err) {
		return no
	}
	if failed, ok := errors.AsType[*jsonrpc.CallError](err); ok && failed.Fate == jsonrpc.FateRefused {
		return no
	}
	return unknown // it cannot be reached, or does not let us in: that says nothing of its era
}

// onlyLegacy reports whether an answer to server/discover names revisions, and they are all legacy ones: the server knows of the modern era, and has been told not to
// speak it.
func onlyLegacy(m *jsonrpc.Message) bool {
	var versions []string
	if m.Kind == jsonrpc.KindError {
		versions = era.Supported(m.Err())
	} else if hello, err := era.ReadDiscover(m.Result); err == nil {
		versions = hello.Versions
	}
	modern, legacy := era.Common(mcp.Revisions(), versions)
	return modern == mcp.RevisionNone && legacy != mcp.RevisionNone
}

// tryLegacy forwards initialize, and sees whether the server knows it.
func (b *Bridge) tryLegacy(cl *client, o opening) (p party, done bool) {
	if o.call == nil || o.call.method != mcp.MethodInitialize {
		return b.joined(cl, b.newPlain(cl.many)), false
	}
	u, l := b.newProber()
	ctx, cancel := b.whileConnecting(o.call.ctx)
	defer cancel()
	defer context.AfterFunc(cl.ended, cancel)()
	a := u.await(ctx, l, item{frame: o.frame, id: o.call.id, from: made{lane: o.call.lane, of: o.call.event, rule: "same"}})
	if isSilence(a.err) && ctx.Err() != nil {
		l.close()
		return mute{a.err}, false
	}
	if a.err == nil && a.m.Kind == jsonrpc.KindResponse {
		b.known.note(yes, unknown)
		return b.plainOn(cl, l, false, func(q *plain) {
			q.adopt(o, a.m)
			o.call.finish(a.frame, made{lane: l.lane, of: a.event, rule: "same"})
		}), true
	}
	short, stop := b.within(cl.ended, probeTimeout)
	defer stop()
	if reachable(a.err) {
		if d, failed := u.ask(short, l, discoverRequest()); failed == nil && modernBy(d, nil) == yes {
			b.known.note(no, yes)
			return b.newTranslated(cl, EraLegacy, l), false
		}
	}
	if a.err == nil {
		o.call.finish(a.frame, made{lane: l.lane, of: a.event, rule: "same"})
	} else {
		o.call.fail(asAnswer(a.err))
	}
	return b.plainOn(cl, l, false, nil), true
}

// reachable reports whether a server that has not agreed to a handshake is worth being asked something else.
func reachable(err error) bool {
	if err == nil {
		return true
	}
	failed, ok := errors.AsType[*jsonrpc.CallError](err)
	return ok && failed.Fate == jsonrpc.FateRefused
}

// discoverRequest is the bridge's own question what a server is.
func discoverRequest() []byte {
	offer := era.Offer{Info: mcp.Implementation{Name: "mcpwire bridge", Version: "1"}}
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
	params := era.Rewrite([]byte(`{"_meta":`), at.of(first), func(m *jsonwire.Members) []byte {
		if m.KeyIs(mcp.MetaProgressToken) || m.KeyIs(mcp.MetaLogLevel) {
			return nil
		}
		return m.Value()
	}, nil)
	return jsonrpc.AppendRequest(nil, jsonrpc.StringID("mcpwire-discover"), mcp.MethodDiscover, append(params, '}'))
}

// initializeRequest is the bridge's own handshake, of which only the answer is of interest.
func initializeRequest() []byte {
	offer := era.Offer{Info: mcp.Implementation{Name: "mcpwire bridge", Version: "1"}}
	f := era.Of(mcp.LatestLegacyRevision)
	capabilities, _ := offer.Capabilities(f)
	return jsonrpc.AppendRequest(nil, jsonrpc.StringID("mcpwire-initialize"), mcp.MethodInitialize, offer.AppendInitialize(nil, f, capabilities))
}

// mute is the party of a client whose server has said nothing at all. The next message of the client finds out anew whether it does, on another connection.
type mute struct{ err error }

func (p mute) request(c *call, _ []byte, _ *jsonrpc.Message) {
	c.tooLate(errors.New(told(p.err)))
}
func (mute) notification(*client, []byte, *jsonrpc.Message, uint64) {}
func (mute) response(*client, []byte, *jsonrpc.Message, uint64)     {}
func (mute) hangUp(*call)                                           {}
func (mute) leave(*client)                                          {}

// foreign is the party of messages of an era that is not allowed. The client may have both, and go on with the other.
type foreign struct{ allowed Era }

func (f foreign) request(c *call, _ []byte, m *jsonrpc.Message) {
	if f.allowed == EraLegacy {
		c.fail(jsonrpc.MethodNotFound(c.method)) // as a server answers that knows no other
		return
	}
	version, _ := m.Param("protocolVersion")
	c.fail(mcp.UnsupportedProtocolVersion(f.allowed.revisions(), text(version)))
}
func (foreign) notification(*client, []byte, *jsonrpc.Message, uint64) {}
func (foreign) response(*client, []byte, *jsonrpc.Message, uint64)     {}
func (foreign) hangUp(*call)                                           {}
func (foreign) leave(*client)                                          {}
