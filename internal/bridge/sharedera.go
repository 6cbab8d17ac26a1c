package bridge

import (
	"context"
	"errors"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

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
