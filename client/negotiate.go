package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxOpeningAttempts limits the attempts with each kind of opening request, so that a server cannot
// negotiate versions without end.
const maxOpeningAttempts = 3

// maxSecondWait limits how long a server that has not answered the probe may take for initialize
// before another connection is opened.
const maxSecondWait = 5 * time.Second

// A negotiation finds the revision to speak. It is a chain of steps. A legacy server may answer the
// probe with any error, with silence, or by exiting; only an error that legacy servers do not know
// identifies a modern server. Spec:
// https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning
type negotiation struct {
	c    *Client
	conn *connection
	// modern and legacy are the revisions to try next. RevisionNone rules out the era.
	modern, legacy mcp.Revision
	// discoverCount and handshakeCount count the requests of each kind.
	discoverCount  int
	handshakeCount int
	// failureCount counts those that failed in their transport.
	failureCount int
	// probedConn is the connection that carried the probe.
	probedConn *connection
	// probeUnanswered is set if the probe had no response: the server may only be slow, or
	// overloaded.
	probeUnanswered bool
	// priorErr is the error of the probe, or of the handshake after it on the same connection.
	priorErr error
	// initializeErr is the error of initialize while discover is the last alternative.
	initializeErr error
}

// A step returns the next step, or nil at the end.
type step func(context.Context) (step, error)

// establish opens a connection and negotiates.
func (cc *connector) establish(ctx context.Context) (*connection, error) {
	n := &negotiation{c: cc.c}
	n.modern, n.legacy = era.Newest(cc.c.opts.Revisions)
	next := n.discover
	profile := cc.profile.Load()
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
	cc.profile.Store(n.conn.negotiated.Load().profile)
	return n.conn, nil
}

// connect opens a connection unless one is open.
func (n *negotiation) connect(ctx context.Context) error {
	if n.conn != nil && !n.conn.ended() {
		return nil
	}
	n.drop()
	conn, err := n.c.conns.open(ctx)
	if err != nil {
		if n.probedConn != nil && errors.Is(err, ErrNoReconnect) {
			return fmt.Errorf("the server failed after a probe; set Options.Revisions or Options.Profile to avoid the probe: %w", errors.Join(n.priorErr, err))
		}
		return err
	}
	n.conn = conn
	return nil
}

// drop closes the connection, so that the next step opens another.
func (n *negotiation) drop() {
	if n.conn != nil {
		n.conn.rpc.Close()
		n.conn = nil
	}
}

// useProfile uses a known profile without sending anything.
func (n *negotiation) useProfile(ctx context.Context) (step, error) {
	if err := n.connect(ctx); err != nil {
		return nil, err
	}
	n.conn.setNegotiated(n.c.conns.newNegotiated(n.c.conns.profile.Load()))
	return nil, nil
}

// discover probes the server with server/discover.
func (n *negotiation) discover(ctx context.Context) (step, error) {
	if n.discoverCount++; n.discoverCount > maxOpeningAttempts {
		return nil, &ProtocolError{Method: mcp.MethodDiscover, Reason: fmt.Sprintf("no revision negotiated after %d attempts", maxOpeningAttempts)}
	}
	if err := n.connect(ctx); err != nil {
		return nil, err
	}
	last := n.legacy == mcp.RevisionNone || n.handshakeCount > 0
	n.probedConn = n.conn
	result, err := n.conn.openingCall(ctx, mcp.MethodDiscover, n.c.conns.discoverParams(n.modern), !last)
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	probe, server, cause := era.JudgeProbe(result, err)
	_, n.probeUnanswered = errors.AsType[*TimeoutError](err)
	switch probe {
	case era.ProbeModern:
		if err == nil {
			return n.selectRevision(server.Versions, server, nil)
		} else if server.Versions != nil {
			return n.selectRevision(server.Versions, nil, err)
		}
		return nil, err
	case era.ProbeDenied:
		return nil, err
	case era.ProbeBusy:
		n.probeUnanswered = true
		next, failed := n.retryStep(ctx, n.discover, err)
		if failed == nil || ctx.Err() != nil || n.initializeErr != nil {
			n.discoverCount--
			return next, failed
		}
	}
	if err == nil {
		cause = &ProtocolError{Method: mcp.MethodDiscover, Reason: "the response is not a DiscoverResult", Err: cause}
	}
	return n.fallBackToLegacy(cause)
}

// discoverParams returns the params of server/discover.
func (cc *connector) discoverParams(r mcp.Revision) []byte {
	f := era.Of(r)
	capabilities, _ := cc.c.offer.Capabilities(f)
	return append(cc.c.offer.AppendMeta([]byte(`{"_meta":`), f, capabilities), "}}"...)
}

// selectRevision selects one of the versions that the server names. info is nil if the server named
// them in an error.
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

// fallBackToLegacy continues after a response to the probe that no modern server gives.
func (n *negotiation) fallBackToLegacy(err error) (step, error) {
	if n.initializeErr != nil {
		return nil, n.initializeErr
	}
	if n.legacy != mcp.RevisionNone {
		n.c.log.Debug("server is not modern, or does not respond", "error", err)
		n.priorErr = err
		return n.handshake, nil
	}
	if _, malformed := errors.AsType[*ProtocolError](err); malformed || IsServerError(err) {
		return nil, &IncompatibleError{Client: n.c.opts.Revisions, Err: err}
	}
	return nil, err
}

// handshake opens a session with a legacy server.
func (n *negotiation) handshake(ctx context.Context) (step, error) {
	if n.handshakeCount++; n.handshakeCount > maxOpeningAttempts {
		return nil, &ProtocolError{Method: mcp.MethodInitialize, Reason: fmt.Sprintf("no revision negotiated after %d attempts", maxOpeningAttempts)}
	}
	if err := n.connect(ctx); err != nil {
		return nil, err
	}
	f := era.Of(n.legacy)
	capabilities, accepts := n.c.offer.Capabilities(f)
	n.conn.accepts.Store(&accepts)
	result, err := n.initialize(ctx, n.c.offer.AppendInitialize(nil, f, capabilities))
	e, answered := errors.AsType[*jsonrpc.Error](err)
	callErr, undelivered := errors.AsType[*jsonrpc.CallError](err)
	switch {
	case err == nil:
		return nil, n.finishHandshake(ctx, result)
	case ctx.Err() != nil:
		return nil, err
	case answered && !undelivered:
		return n.initializeRejected(e, err)
	case undelivered && callErr.Outcome == jsonrpc.OutcomeRejected && n.probeUnanswered && n.modern != mcp.RevisionNone && n.initializeErr == nil:
		n.initializeErr = err // the server was slow to answer the probe
		return n.discover, nil
	case undelivered:
		n.handshakeCount--
		return n.retryStep(ctx, n.handshake, err)
	case n.probedConn == n.conn:
		n.c.log.Debug("server failed after the probe: connecting again without it", "error", err)
		n.priorErr = err
		n.drop()
		return n.handshake, nil
	}
	return nil, err
}

// initialize sends initialize and returns the result. A server that does not answer the probe may
// be slow to start, or the probe may have disturbed it. So if it does not answer initialize soon
// either, the request is also sent on a second connection, and the first answer counts.
func (n *negotiation) initialize(ctx context.Context, params []byte) (result []byte, err error) {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		conn   *connection
		result []byte
		err    error
	}
	answers := make(chan answer, 2)
	call := func(conn *connection) {
		result, err := conn.openingCall(ctx, mcp.MethodInitialize, params, false)
		answers <- answer{conn, result, err}
	}
	first, second := n.conn, (*connection)(nil)
	wg.Go(func() { call(first) })
	var late <-chan struct{}
	if n.probeUnanswered && n.probedConn == first {
		waiting, stop := first.withDeadline(ctx, min(n.c.opts.Timeouts.Probe, maxSecondWait))
		defer stop()
		late = waiting.Done()
	}
	var a answer
	select {
	case a = <-answers:
	case <-late:
		if err = ctx.Err(); err == nil {
			second, err = n.c.conns.open(ctx)
		}
		if err != nil {
			n.c.log.Debug("no second connection", "error", err)
			a = <-answers
			break
		}
		n.probedConn = nil
		second.accepts.Store(first.accepts.Load())
		wg.Go(func() { call(second) })
		if a = <-answers; a.err != nil && !IsServerError(a.err) && ctx.Err() == nil {
			a = <-answers
		}
	}
	if n.conn = a.conn; second != nil && a.conn == first {
		second.rpc.Close()
	} else if second != nil {
		n.c.log.Debug("the server does not respond after the probe; using another connection")
		first.rpc.Close()
	}
	return a.result, a.err
}

// initializeRejected continues after initialize was answered with an error. The specification wants
// a server to name another version in its result, but some name their versions in an error.
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
	case n.modern != mcp.RevisionNone && (n.discoverCount == 0 || n.probeUnanswered):
		n.initializeErr = err
		return n.discover, nil
	case n.modern == mcp.RevisionNone && era.IsModernError(e): // only a modern server answers so
		return nil, &IncompatibleError{Client: n.c.opts.Revisions, Err: err}
	}
	return nil, err
}

// finish stores the result of the negotiation with a server that describes itself as info.
func (n *negotiation) finish(method string, r mcp.Revision, info *era.ServerProfile) error {
	profile := &Profile{Revision: r, Server: info.Info, Instructions: info.Instructions, discovered: true}
	if err := profile.Capabilities.UnmarshalJSON(info.Capabilities); err != nil {
		return &ProtocolError{Method: method, Reason: "malformed capabilities of the server", Err: err}
	}
	neg := n.c.conns.newNegotiated(profile)
	neg.confirm()
	n.conn.setNegotiated(neg)
	return nil
}

// finishHandshake ends the negotiation with the result of initialize.
func (n *negotiation) finishHandshake(ctx context.Context, result []byte) error {
	info, decodeErr := era.ReadInitialize(result)
	if decodeErr != nil {
		return &ProtocolError{Method: mcp.MethodInitialize, Reason: "the response is not an InitializeResult", Err: decodeErr}
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

// A Profile is what [Dial] learned about a server. It can be stored, also as JSON, and passed as
// [Options.Profile] to a later Dial to the same server.
type Profile struct {
	// Revision is the revision to speak.
	Revision mcp.Revision `json:"revision"`
	// Server is the server's name and version, as it says.
	Server mcp.Implementation `json:"server"`
	// Capabilities are those that the server has declared.
	Capabilities mcp.ServerCapabilities `json:"capabilities"`
	// Instructions tell a model how to use the server. They may be empty.
	Instructions string `json:"instructions,omitempty"`

	// discovered is set if this Client made the profile, which is then complete.
	discovered bool
}

// complete reports whether the profile holds more than a revision.
func (p *Profile) complete() bool {
	return p.discovered || p.Server.Name != "" || p.Server.Version != ""
}

// A negotiated is the result of a negotiation. All but confirmed is immutable.
type negotiated struct {
	*era.Features
	profile *Profile
	// accepts are the input requests that the server may send.
	accepts era.InputSupport
	// meta has the members of _meta of each modern request. Legacy ones need none.
	meta []byte
	// validMeta says that meta is valid JSON on one line, which the capabilities that the user gave
	// may prevent.
	validMeta bool
	// confirmed is set once the server has confirmed the profile.
	confirmed atomic.Bool
}

// newNegotiated returns the result of a negotiation that ended with profile.
func (cc *connector) newNegotiated(profile *Profile) *negotiated {
	neg := &negotiated{Features: era.Of(profile.Revision), profile: profile, validMeta: true}
	capabilities, accepts := cc.c.offer.Capabilities(neg.Features)
	neg.accepts = accepts
	if neg.Modern {
		object := append(cc.c.offer.AppendMeta(nil, neg.Features, capabilities), '}')
		neg.meta = objectBody(object)
		neg.validMeta = jsonwire.Valid(object, 0) == nil && len(jsonwire.OneLine(object)) == len(object)
	}
	return neg
}

// confirm records that the server speaks the negotiated revision.
func (n *negotiated) confirm() {
	if !n.confirmed.Load() {
		n.confirmed.Store(true)
	}
}
