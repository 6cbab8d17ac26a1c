package client

import (
	"context"
	"errors"
	"fmt"

	"mcpwire/internal/era"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxTries bounds how often either kind of opening request is sent for one connection: versions may be negotiated, but not for ever.
const maxTries = 3

// An agreement is the search for what both sides speak (https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning). It is a chain of
// steps. A server that knows nothing of the modern era may answer the probe with any error, with silence, or by exiting; only an error that legacy
// servers cannot know says that it is modern.
type agreement struct {
	c              *Client
	l              *link
	modern, legacy mcp.Revision // to try next; RevisionNone if that era is not wanted
	discovers      int          // requests sent so far
	handshakes     int
	losses         int   // of them that their carrier could not bring to an answer
	probed         *link // the connection that the probe went to
	silent         bool  // it had no answer: perhaps the server was only slow
	upset          error // what became of the handshake on that connection
	refusal        error // what initialize was answered with, if there is only one thing left to try
}

// A step returns the next one; nil at the end.
type step func(context.Context) (step, error)

// establish opens a connection and agrees on its terms.
func (c *Client) establish(ctx context.Context) (*link, error) {
	a := &agreement{c: c}
	a.modern, a.legacy = era.Newest(c.opts.Revisions)
	next := a.discover
	known := c.known.Load()
	switch {
	case known != nil && known.Revision.Modern() && known.complete():
		next = a.resume
	case known != nil && !known.Revision.Modern():
		a.legacy, next = known.Revision, a.handshake
	case a.modern == mcp.RevisionNone:
		next = a.handshake
	}
	for next != nil {
		var err error
		if next, err = next(ctx); err != nil {
			a.drop()
			return nil, err
		}
	}
	c.known.Store(a.l.terms.Load().verdict)
	return a.l, nil
}

// connect makes sure that there is a connection.
func (a *agreement) connect(ctx context.Context) error {
	if a.l != nil && !a.l.ended() {
		return nil
	}
	a.drop()
	l, err := a.c.open(ctx)
	if err != nil {
		if a.probed != nil && errors.Is(err, ErrNoReconnect) {
			return fmt.Errorf("the server did not get over being probed, which Options.Revisions or Options.Known spare it: %w", errors.Join(a.upset, err))
		}
		return err
	}
	a.l = l
	return nil
}

// drop closes the connection, so that the next step opens another.
func (a *agreement) drop() {
	if a.l != nil {
		a.l.close()
		a.l = nil
	}
}

// resume takes up what is known already. Nothing is sent.
func (a *agreement) resume(ctx context.Context) (step, error) {
	if err := a.connect(ctx); err != nil {
		return nil, err
	}
	a.l.setTerms(a.c.newTerms(a.c.known.Load()))
	return nil, nil
}

// discover asks a server that may be modern what it speaks.
func (a *agreement) discover(ctx context.Context) (step, error) {
	if a.discovers++; a.discovers > maxTries {
		return nil, &ProtocolError{Method: mcp.MethodDiscover, Reason: fmt.Sprintf("no agreement on a revision after %d tries", maxTries)}
	}
	if err := a.connect(ctx); err != nil {
		return nil, err
	}
	timeout := a.c.opts.ProbeTimeout
	if a.legacy == mcp.RevisionNone || a.handshakes > 0 {
		timeout = a.c.opts.HandshakeTimeout // there is nothing else to try
	}
	a.probed = a.l
	result, err := a.l.ask(ctx, mcp.MethodDiscover, a.c.discoverParams(a.modern), timeout)
	if err == nil {
		hello, bad := era.ReadDiscover(result)
		if bad == nil {
			return a.pick(hello.Versions, hello, nil)
		}
		err = &ProtocolError{Method: mcp.MethodDiscover, Reason: "the answer is no DiscoverResult", Err: bad}
	}
	if ctx.Err() != nil {
		return nil, err
	}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok && era.IsModernError(e) {
		if names := era.Supported(e); names != nil {
			return a.pick(names, nil, err)
		}
		return nil, err
	}
	if e, ok := errors.AsType[*jsonrpc.CallError](err); ok && !isLegacySign(e) {
		a.discovers--
		return a.repeat(ctx, a.discover, e, err)
	}
	return a.fallBack(err)
}

// discoverParams returns the params of server/discover.
func (c *Client) discoverParams(r mcp.Revision) []byte {
	f := era.Of(r)
	capabilities, _ := c.offer.Capabilities(f)
	return append(c.offer.AppendMeta([]byte(`{"_meta":`), f, capabilities), "}}"...)
}

// pick chooses among the versions that a modern server names. hello is nil if it named them in an error.
func (a *agreement) pick(names []string, hello *era.Hello, cause error) (step, error) {
	modern, legacy := era.Common(a.c.opts.Revisions, names)
	switch {
	case modern != mcp.RevisionNone && hello != nil:
		return nil, a.settle(mcp.MethodDiscover, modern, hello)
	case modern != mcp.RevisionNone:
		a.modern = modern
		return a.discover, nil
	case legacy != mcp.RevisionNone:
		a.legacy = legacy
		return a.handshake, nil
	}
	return nil, &IncompatibleError{Client: a.c.opts.Revisions, Server: names, Err: cause}
}

// fallBack goes on after a probe that no modern server would have taken so.
func (a *agreement) fallBack(err error) (step, error) {
	if a.refusal != nil {
		return nil, a.refusal
	}
	_, a.silent = errors.AsType[*TimeoutError](err)
	if a.legacy != mcp.RevisionNone {
		a.c.log.Debug("server is not modern, or was slow to answer", "error", err)
		a.upset = err
		return a.handshake, nil
	}
	if _, odd := errors.AsType[*ProtocolError](err); odd || IsPeer(err) {
		return nil, &IncompatibleError{Client: a.c.opts.Revisions, Err: err}
	}
	return nil, err
}

// handshake opens a session with a legacy server.
func (a *agreement) handshake(ctx context.Context) (step, error) {
	if a.handshakes++; a.handshakes > maxTries {
		return nil, &ProtocolError{Method: mcp.MethodInitialize, Reason: fmt.Sprintf("no agreement on a revision after %d tries", maxTries)}
	}
	if err := a.connect(ctx); err != nil {
		return nil, err
	}
	f := era.Of(a.legacy)
	capabilities, accepts := a.c.offer.Capabilities(f)
	a.l.accepts.Store(&accepts)
	result, err := a.l.ask(ctx, mcp.MethodInitialize, a.c.offer.AppendInitialize(nil, f, capabilities), a.c.opts.HandshakeTimeout)
	e, answered := errors.AsType[*jsonrpc.Error](err)
	lost, miscarried := errors.AsType[*jsonrpc.CallError](err)
	switch {
	case err == nil:
		return nil, a.settleLegacy(ctx, result)
	case ctx.Err() != nil:
		return nil, err
	case answered && !miscarried:
		return a.refused(e, err)
	case miscarried && lost.Fate == jsonrpc.FateRefused && a.silent && a.modern != mcp.RevisionNone && a.refusal == nil:
		a.refusal = err // it was only slow to answer the probe
		return a.discover, nil
	case miscarried:
		a.handshakes--
		return a.repeat(ctx, a.handshake, lost, err)
	case a.probed == a.l:
		a.c.log.Debug("server did not get over the probe: again, without", "error", err)
		a.upset = err
		a.drop()
		return a.handshake, nil
	}
	return nil, err
}

// refused goes on after an error that initialize was answered with. By the specification a server names another version in its result; some
// name those they have in an error.
func (a *agreement) refused(e *jsonrpc.Error, err error) (step, error) {
	names := era.Supported(e)
	modern, legacy := era.Common(a.c.opts.Revisions, names)
	switch {
	case modern != mcp.RevisionNone && (a.discovers == 0 || legacy == mcp.RevisionNone):
		a.modern = modern
		return a.discover, nil
	case legacy != mcp.RevisionNone:
		a.legacy = legacy
		return a.handshake, nil
	case names != nil:
		return nil, &IncompatibleError{Client: a.c.opts.Revisions, Server: names, Err: err}
	case a.modern != mcp.RevisionNone && (a.discovers == 0 || a.silent):
		a.refusal = err
		return a.discover, nil
	case a.modern == mcp.RevisionNone && era.IsModernError(e): // only a modern server says so
		return nil, &IncompatibleError{Client: a.c.opts.Revisions, Err: err}
	}
	return nil, err
}

// settle ends the search with a modern revision.
func (a *agreement) settle(method string, r mcp.Revision, hello *era.Hello) error {
	v, err := verdictOf(method, r, hello)
	if err != nil {
		return err
	}
	t := a.c.newTerms(v)
	t.confirm()
	a.l.setTerms(t)
	return nil
}

// settleLegacy ends the search with what a server answered to initialize.
func (a *agreement) settleLegacy(ctx context.Context, result []byte) error {
	hello, bad := era.ReadInitialize(result)
	if bad != nil {
		return &ProtocolError{Method: mcp.MethodInitialize, Reason: "the answer is no InitializeResult", Err: bad}
	}
	_, r := era.Common(a.c.opts.Revisions, hello.Versions)
	if r == mcp.RevisionNone {
		return &IncompatibleError{Client: a.c.opts.Revisions, Server: hello.Versions}
	}
	if err := a.settle(mcp.MethodInitialize, r, hello); err != nil {
		return err
	}
	return a.l.initialized(ctx)
}
