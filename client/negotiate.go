package client

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"mcpwire/internal/era"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxOpeningAttempts bounds how often either kind of opening request is sent for one connection: versions may be negotiated, but not for ever.
const maxOpeningAttempts = 3

// An agreement is the search for what both sides speak (https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning). It is a chain of
// steps. A server that knows nothing of the modern era may answer the probe with any error, with silence, or by exiting; only an error that legacy
// servers cannot know says that it is modern.
type negotiation struct {
	c              *Client
	conn           *connection
	modern, legacy mcp.Revision // to try next; RevisionNone if that era is not wanted
	discoverCount  int          // requests sent so far
	handshakeCount int
	failureCount   int         // of them that their transport could not bring to an answer
	probedConn     *connection // the connection that the probe went to
	probeTimedOut  bool        // it had no answer: perhaps the server was only slow
	priorErr       error       // what became of the handshake on that connection
	initializeErr  error       // what initialize was answered with, if there is only one thing left to try
}

// A step returns the next one; nil at the end.
type step func(context.Context) (step, error)

// establish opens a connection and agrees on its terms.
func (c *Client) establish(ctx context.Context) (*connection, error) {
	n := &negotiation{c: c}
	n.modern, n.legacy = era.Newest(c.opts.Revisions)
	next := n.discover
	profile := c.profile.Load()
	switch {
	case profile != nil && profile.Revision.Modern() && profile.complete():
		next = n.useProfile
	case profile != nil && !profile.Revision.Modern():
		n.legacy, next = profile.Revision, n.handshake
	case n.modern == mcp.RevisionNone:
		next = n.handshake
	}
	for next != nil {
		var err error
		if next, err = next(ctx); err != nil {
			n.drop()
			return nil, err
		}
	}
	c.profile.Store(n.conn.negotiated.Load().profile)
	return n.conn, nil
}

// connect makes sure that there is a connection.
func (n *negotiation) connect(ctx context.Context) error {
	if n.conn != nil && !n.conn.ended() {
		return nil
	}
	n.drop()
	conn, err := n.c.open(ctx)
	if err != nil {
		if n.probedConn != nil && errors.Is(err, ErrNoReconnect) {
			return fmt.Errorf("the server did not get over being probed, which Options.Revisions or Options.Profile spare it: %w", errors.Join(n.priorErr, err))
		}
		return err
	}
	n.conn = conn
	return nil
}

// drop closes the connection, so that the next step opens another.
func (n *negotiation) drop() {
	if n.conn != nil {
		n.conn.close()
		n.conn = nil
	}
}

// useProfile takes up what is known already. Nothing is sent.
func (n *negotiation) useProfile(ctx context.Context) (step, error) {
	if err := n.connect(ctx); err != nil {
		return nil, err
	}
	n.conn.setNegotiated(n.c.newNegotiated(n.c.profile.Load()))
	return nil, nil
}

// discover asks a server that may be modern what it speaks.
func (n *negotiation) discover(ctx context.Context) (step, error) {
	if n.discoverCount++; n.discoverCount > maxOpeningAttempts {
		return nil, &ProtocolError{Method: mcp.MethodDiscover, Reason: fmt.Sprintf("no agreement on a revision after %d tries", maxOpeningAttempts)}
	}
	if err := n.connect(ctx); err != nil {
		return nil, err
	}
	timeout := n.c.opts.ProbeTimeout
	if n.legacy == mcp.RevisionNone || n.handshakeCount > 0 {
		timeout = n.c.opts.HandshakeTimeout // there is nothing else to try
	}
	n.probedConn = n.conn
	result, err := n.conn.openingCall(ctx, mcp.MethodDiscover, n.c.discoverParams(n.modern), timeout)
	if err == nil {
		info, decodeErr := era.ReadDiscover(result)
		if decodeErr == nil {
			return n.selectRevision(info.Versions, info, nil)
		}
		err = &ProtocolError{Method: mcp.MethodDiscover, Reason: "the answer is no DiscoverResult", Err: decodeErr}
	}
	if ctx.Err() != nil {
		return nil, err
	}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok && era.IsModernError(e) {
		if names := era.SupportedVersions(e); names != nil {
			return n.selectRevision(names, nil, err)
		}
		return nil, err
	}
	if e, ok := errors.AsType[*jsonrpc.CallError](err); ok && !indicatesLegacy(e) {
		n.discoverCount--
		return n.retryStep(ctx, n.discover, e, err)
	}
	return n.fallBackToLegacy(err)
}

// discoverParams returns the params of server/discover.
func (c *Client) discoverParams(r mcp.Revision) []byte {
	f := era.Of(r)
	capabilities, _ := c.offer.Capabilities(f)
	return append(c.offer.AppendMeta([]byte(`{"_meta":`), f, capabilities), "}}"...)
}

// selectRevision chooses among the versions that a modern server names. hello is nil if it named them in an error.
func (n *negotiation) selectRevision(names []string, info *era.ServerProfile, cause error) (step, error) {
	modern, legacy := era.Common(n.c.opts.Revisions, names)
	switch {
	case modern != mcp.RevisionNone && info != nil:
		return nil, n.finish(mcp.MethodDiscover, modern, info)
	case modern != mcp.RevisionNone:
		n.modern = modern
		return n.discover, nil
	case legacy != mcp.RevisionNone:
		n.legacy = legacy
		return n.handshake, nil
	}
	return nil, &IncompatibleError{Client: n.c.opts.Revisions, Server: names, Err: cause}
}

// fallBackToLegacy goes on after a probe that no modern server would have taken so.
func (n *negotiation) fallBackToLegacy(err error) (step, error) {
	if n.initializeErr != nil {
		return nil, n.initializeErr
	}
	_, n.probeTimedOut = errors.AsType[*TimeoutError](err)
	if n.legacy != mcp.RevisionNone {
		n.c.log.Debug("server is not modern, or was slow to answer", "error", err)
		n.priorErr = err
		return n.handshake, nil
	}
	if _, malformed := errors.AsType[*ProtocolError](err); malformed || IsPeer(err) {
		return nil, &IncompatibleError{Client: n.c.opts.Revisions, Err: err}
	}
	return nil, err
}

// handshake opens a session with a legacy server.
func (n *negotiation) handshake(ctx context.Context) (step, error) {
	if n.handshakeCount++; n.handshakeCount > maxOpeningAttempts {
		return nil, &ProtocolError{Method: mcp.MethodInitialize, Reason: fmt.Sprintf("no agreement on a revision after %d tries", maxOpeningAttempts)}
	}
	if err := n.connect(ctx); err != nil {
		return nil, err
	}
	f := era.Of(n.legacy)
	capabilities, accepts := n.c.offer.Capabilities(f)
	n.conn.accepts.Store(&accepts)
	result, err := n.conn.openingCall(ctx, mcp.MethodInitialize, n.c.offer.AppendInitialize(nil, f, capabilities), n.c.opts.HandshakeTimeout)
	e, answered := errors.AsType[*jsonrpc.Error](err)
	callErr, undelivered := errors.AsType[*jsonrpc.CallError](err)
	switch {
	case err == nil:
		return nil, n.finishHandshake(ctx, result)
	case ctx.Err() != nil:
		return nil, err
	case answered && !undelivered:
		return n.initializeRejected(e, err)
	case undelivered && callErr.Outcome == jsonrpc.OutcomeRejected && n.probeTimedOut && n.modern != mcp.RevisionNone && n.initializeErr == nil:
		n.initializeErr = err // it was only slow to answer the probe
		return n.discover, nil
	case undelivered:
		n.handshakeCount--
		return n.retryStep(ctx, n.handshake, callErr, err)
	case n.probedConn == n.conn:
		n.c.log.Debug("server did not get over the probe: again, without", "error", err)
		n.priorErr = err
		n.drop()
		return n.handshake, nil
	}
	return nil, err
}

// initializeRejected goes on after an error that initialize was answered with. By the specification a server names another version in its result; some
// name those they have in an error.
func (n *negotiation) initializeRejected(e *jsonrpc.Error, err error) (step, error) {
	names := era.SupportedVersions(e)
	modern, legacy := era.Common(n.c.opts.Revisions, names)
	switch {
	case modern != mcp.RevisionNone && (n.discoverCount == 0 || legacy == mcp.RevisionNone):
		n.modern = modern
		return n.discover, nil
	case legacy != mcp.RevisionNone:
		n.legacy = legacy
		return n.handshake, nil
	case names != nil:
		return nil, &IncompatibleError{Client: n.c.opts.Revisions, Server: names, Err: err}
	case n.modern != mcp.RevisionNone && (n.discoverCount == 0 || n.probeTimedOut):
		n.initializeErr = err
		return n.discover, nil
	case n.modern == mcp.RevisionNone && era.IsModernError(e): // only a modern server says so
		return nil, &IncompatibleError{Client: n.c.opts.Revisions, Err: err}
	}
	return nil, err
}

// finish ends the search with a modern revision.
func (n *negotiation) finish(method string, r mcp.Revision, info *era.ServerProfile) error {
	profile, err := newProfile(method, r, info)
	if err != nil {
		return err
	}
	neg := n.c.newNegotiated(profile)
	neg.confirm()
	n.conn.setNegotiated(neg)
	return nil
}

// finishHandshake ends the search with what a server answered to initialize.
func (n *negotiation) finishHandshake(ctx context.Context, result []byte) error {
	info, decodeErr := era.ReadInitialize(result)
	if decodeErr != nil {
		return &ProtocolError{Method: mcp.MethodInitialize, Reason: "the answer is no InitializeResult", Err: decodeErr}
	}
	_, r := era.Common(n.c.opts.Revisions, info.Versions)
	if r == mcp.RevisionNone {
		return &IncompatibleError{Client: n.c.opts.Revisions, Server: info.Versions}
	}
	if err := n.finish(mcp.MethodInitialize, r, info); err != nil {
		return err
	}
	return n.conn.sendInitialized(ctx)
}

// A Profile is what [Dial] found out about a server. It can be kept, as JSON too, and given to a later Dial to the same server as [Options.Profile].
type Profile struct {
	Revision     mcp.Revision           `json:"revision"` // to speak with it
	Server       mcp.Implementation     `json:"server"`
	Capabilities mcp.ServerCapabilities `json:"capabilities"`
	Instructions string                 `json:"instructions,omitempty"`

	discovered bool // by this Client: nothing is missing
}

// complete reports whether the verdict says more than a revision to try.
func (p *Profile) complete() bool {
	return p.discovered || p.Server.Name != "" || p.Server.Version != ""
}

// negotiated are what the two sides have agreed on. They do not change.
type negotiated struct {
	*era.Features
	profile   *Profile
	accepts   era.InputSupport // what the server may ask for
	meta      []byte           // modern: `"_meta":{…` of each request, without the bracket that closes it
	confirmed atomic.Bool      // the server has shown that it is so; false of a Profile that nobody has checked yet
}

// terms returns the terms of a verdict.
func (c *Client) newNegotiated(profile *Profile) *negotiated {
	neg := &negotiated{Features: era.Of(profile.Revision), profile: profile}
	capabilities, accepts := c.offer.Capabilities(neg.Features)
	neg.accepts = accepts
	if neg.Modern {
		neg.meta = c.offer.AppendMeta([]byte(`"_meta":`), neg.Features, capabilities)
	}
	return neg
}

// confirm notes that the server speaks as the terms say.
func (n *negotiated) confirm() {
	if !n.confirmed.Load() {
		n.confirmed.Store(true)
	}
}

// newProfile makes a verdict of what a server says of itself.
func newProfile(method string, r mcp.Revision, info *era.ServerProfile) (*Profile, error) {
	profile := &Profile{Revision: r, Server: info.Info, Instructions: info.Instructions, discovered: true}
	if err := profile.Capabilities.UnmarshalJSON(info.Capabilities); err != nil {
		return nil, &ProtocolError{Method: method, Reason: "the server's capabilities are not as they should be", Err: err}
	}
	return profile, nil
}
