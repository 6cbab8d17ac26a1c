package bridge

import (
	"context"
	"errors"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// A finding is under way while somebody finds out, for all clients that share, what the server is.
type finding struct {
	done chan struct{} // closed in the end
	err  error         // why it could not be found out; set before
}

// sharedParty returns what a client talks to that shares. A client that comes while the server cannot be reached has nothing to talk to yet.
func (b *Bridge) sharedParty(cl *client, o opening) party {
	near := eraOf(o.m)
	for {
		if far := b.farOf(near); far != EraAuto {
			return b.share(cl, near, far, o, nil)
		}
		b.mu.Lock()
		f := b.finding
		if f == nil && b.farOf(near) != EraAuto { // since a moment
			b.mu.Unlock()
			continue
		}
		lead := f == nil
		if lead {
			f = &finding{done: make(chan struct{})}
			b.finding = f
		}
		b.mu.Unlock()
		if lead {
			return b.find(f, cl, near, o)
		}
		select {
		case <-f.done:
		case <-cl.ended.Done():
			return unreachable{why: context.Cause(cl.ended)}
		}
		if f.err != nil {
			return unreachable{why: f.err}
		}
	}
}

// farOf returns the era by which clients of the era near are served, EraAuto if that is not known: the same if the server has it.
func (b *Bridge) farOf(near Era) Era {
	if b.opts.Far != EraAuto {
		return b.opts.Far
	}
	legacy, modern := b.known.get()
	switch {
	case near == EraLegacy && legacy == yes, near == EraModern && modern == no:
		return EraLegacy
	case near == EraModern && modern == yes, near == EraLegacy && legacy == no:
		return EraModern
	}
	return EraAuto
}

// find finds out what the server is, for a client, with the line that the client then shares.
func (b *Bridge) find(f *finding, cl *client, near Era, o opening) (p party) {
	b.mu.Lock()
	u, l := b.scout, b.scouting
	b.scout, b.scouting = nil, nil
	b.mu.Unlock()
	if u == nil {
		u, l = b.newProber()
	}
	var found verdict
	err := l.down()
	if err == nil {
		u.forget()
		if near == EraModern {
			found, err = b.findModern(cl, u, l, o)
		} else {
			found, err = b.findLegacy(cl, u, l, o)
		}
	}
	if err != nil {
		p = unreachable{why: err}
	} else {
		p = b.share(cl, near, found.far, o, l)
		b.known.note(found.legacy, found.modern) // not before: others would begin a connection of their own
	}
	b.mu.Lock()
	switch {
	case err == nil:
	case !b.closed && cl.ended.Err() == nil && l.broken(): // it knows when the next attempt may be made
		b.scout, b.scouting = u, l
	default:
		l.close()
	}
	if cl.ended.Err() == nil { // else it says nothing of the server, and somebody else has to try
		f.err = err
	}
	b.finding = nil
	b.mu.Unlock()
	close(f.done)
	return p
}

// A verdict is what was found out: by which era the client is served, and what is known of the server for others.
type verdict struct {
	far            Era
	legacy, modern answer
}

// findModern asks the server whether it is modern.
func (b *Bridge) findModern(cl *client, u *prober, l *line, o opening) (verdict, error) {
	ctx, cancel := b.whileConnecting(cl.ended)
	defer cancel()
	m, err := b.discover(ctx, u, l, discoverFor(o.frame))
	if ctx.Err() != nil {
		return verdict{}, err
	}
	switch modernBy(m, err) {
	case yes:
		return verdict{EraModern, unknown, yes}, nil
	case no:
		return verdict{EraLegacy, yes, no}, nil
	}
	return verdict{}, err
}

// findLegacy shakes hands with the server as the client does, and asks it whether it is modern if it knows no handshakes. One that knows neither is taken for legacy: it has
// said what is wrong, and is going to say it again.
func (b *Bridge) findLegacy(cl *client, u *prober, l *line, o opening) (verdict, error) {
	ctx, cancel := b.whileConnecting(cl.ended)
	defer cancel()
	hello := greeting(o.frame, jsonrpc.StringID("mcpwire-initialize"))
	a := u.await(ctx, l, item{frame: hello, id: jsonrpc.StringID("mcpwire-initialize"), from: made{lane: o.call.lane, of: o.call.event, rule: "id"}})
	if a.err == nil && a.m.Kind == jsonrpc.KindResponse {
		u.hello, u.welcome = hello, a.m.Result
		return verdict{EraLegacy, yes, unknown}, nil
	}
	if !reachable(a.err) {
		return verdict{}, a.err
	}
	short, stop := b.within(cl.ended, probeTimeout)
	defer stop()
	if m, err := u.ask(short, l, discoverRequest()); err == nil && modernBy(m, nil) == yes {
		return verdict{EraModern, no, yes}, nil
	}
	return verdict{far: EraLegacy}, nil
}

// unreachable is the party of clients of a server that is away, for what they have asked for so far.
type unreachable struct {
	foreign
	why error
}

func (u unreachable) request(c *call, _ []byte, _ *jsonrpc.Message) {
	if e, ok := errors.AsType[*streamable.RejectedError](u.why); ok {
		c.reject(e)
		return
	}
	c.fail(asAnswer(u.why))
}

// begins reports whether a message tells what its client has to share.
func begins(m *jsonrpc.Message) bool {
	return eraOf(m) == EraModern || m.Kind == jsonrpc.KindRequest && string(m.Method) == mcp.MethodInitialize
}
