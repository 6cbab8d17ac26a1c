package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A request is one call of the server, in the form of no particular revision.
type request struct {
	method     string
	params     []byte // JSON text of an object, without _meta (see splitMeta); nil is {}
	repeatable bool   // doing it twice changes nothing: lists, reads, tools that say so
	opts       callOptions
	internal   bool           // the client makes it by itself on each new connection: that it was answered says nothing about how the server serves
	asTask     bool           // it asks a legacy server for a task, and is not cancelled otherwise than as one
	callbacks  *callbackQueue // of a task, which outlasts the request; nil if what opts want ends with it

	deadline time.Time // when the time of the whole call is over that the request is a part of; the zero time if it is all of it

	inputRounds int // of questions that it took; set by roundTrip
}

// ErrTooManyRounds is wrapped by what a call fails with whose server keeps asking for input, see [Options.MaxRounds].
var ErrTooManyRounds = errors.New("the server asks for input again and again")

// roundTrip sends a request and returns the result, the text of a JSON object: with "resultType":"complete" or none, or another one that an extension
// which this client declares adds ("task"). It sees to _meta, the server's questions, timeouts, retries and callbacks.
func (c *Client) roundTrip(ctx context.Context, r *request) (result []byte, err error) {
	if r.opts.err != nil {
		return nil, fmt.Errorf("call %s: %w", r.method, r.opts.err)
	}
	if c.chain != nil {
		q := *r // so that the caller's need not be allocated
		result, err = c.roundTripChain(ctx, &q)
		r.inputRounds = q.inputRounds
		return result, err
	}
	return c.roundTripDirect(ctx, r)
}

// roundTripDirect is roundTrip without the middleware.
func (c *Client) roundTripDirect(ctx context.Context, r *request) (result []byte, err error) {
	ac := c.newActiveCall(r)
	defer ac.release()
	for r.inputRounds = 0; ; r.inputRounds++ {
		result, needsInput, err := ac.roundTrip(ctx)
		if err != nil || !needsInput {
			return result, err
		}
		ac.req.inputRounds = r.inputRounds
		if r.inputRounds >= c.opts.MaxRounds {
			return nil, fmt.Errorf("call %s: %w: %d times", r.method, ErrTooManyRounds, r.inputRounds+1)
		}
		if err := ac.handleInputRequired(ctx, result); err != nil {
			return nil, err
		}
	}
}

// roundTrip gets one result: it sends the request again where the protocol or the caller allows it.
func (ac *activeCall) roundTrip(ctx context.Context) (result []byte, needsInput bool, err error) {
	ac.startTimer()
	for {
		conn, err := ac.connection(ctx)
		if err != nil {
			return nil, false, err
		}
		neg := conn.negotiated.Load()
		result, sent, err := ac.send(ctx, conn, neg)
		if err == nil {
			neg.confirm()
			ac.markServed(conn)
			needsInput, err = ac.checkResult(neg, result)
			if err != nil {
				return nil, false, err
			}
			return result, needsInput, nil
		}
		if err := ac.handleFailure(ctx, conn, neg, sent, err); err != nil {
			return nil, false, err
		}
		if sent {
			ac.startTimer()
		}
	}
}

// markServed notes that a link serves.
func (ac *activeCall) markServed(conn *connection) {
	if !ac.req.internal && !conn.served.Load() {
		conn.served.Store(true)
	}
}

// handleFailure decides what becomes of a request that failed: its error is the call's or, if failed returns nil, it is sent again.
func (ac *activeCall) handleFailure(ctx context.Context, conn *connection, neg *negotiated, sent bool, err error) error {
	if _, ok := errors.AsType[*jsonrpc.TooLargeError](err); ok {
		return err // it has been carried out, and would be as large the next time
	}
	if e, ok := errors.AsType[*jsonrpc.CallError](err); ok && !errors.Is(err, jsonrpc.ErrMalformed) { // first: what it wraps may be an error of the server's, which is no answer
		return ac.handleCallError(ctx, conn, neg, e, err)
	}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		ac.markServed(conn)
		switch {
		case neg.Modern && e.Code == mcp.CodeUnsupportedProtocolVersion:
			return ac.switchRevision(conn, neg, e, err)
		case neg.Modern && e.Code == mcp.CodeHeaderMismatch && ac.req.method == mcp.MethodToolsCall && !ac.toolsRelisted:
			return ac.relistTools(ctx)
		case !neg.confirmed.Load() && !era.IsModernError(e):
			return ac.reprobe(ctx, conn, neg, err)
		}
		return err
	}
	if errors.Is(err, jsonrpc.ErrMalformed) {
		return &ProtocolError{Method: ac.req.method, Reason: "the response is no JSON-RPC response", Err: err}
	}
	if !isConnectionLost(err) {
		return err
	}
	ac.c.dropConnection(conn)
	if !sent {
		return nil // nothing has happened: it is not even a repetition
	}
	if !ac.mayRepeat() {
		return err
	}
	ac.attempts++
	return ac.waitRetry(ctx, ac.c.opts.Retry.backoff(ac.attempts-1), err)
}

// switchRevision goes on in a revision that the server names in an error about the version. The request was not carried out, so it may be sent again.
func (ac *activeCall) switchRevision(conn *connection, neg *negotiated, e *jsonrpc.Error, err error) error {
	c := ac.c
	if ac.revisionSwitches++; ac.revisionSwitches > maxRevisionSwitches {
		return err
	}
	names := era.SupportedVersions(e)
	modern, legacy := era.Common(c.opts.Revisions, names)
	switch {
	case conn.negotiated.Load() != neg: // another call did it
	case modern != mcp.RevisionNone:
		profile := *neg.profile
		profile.Revision = modern
		c.profile.Store(&profile)
		conn.setNegotiated(c.newNegotiated(&profile))
	case legacy != mcp.RevisionNone:
		conn.retire(&Profile{Revision: legacy})
	default:
		return &IncompatibleError{Client: c.opts.Revisions, Server: names, Err: err}
	}
	return nil
}

// reprobe looks whether a server whose first answer is an error is as modern as [Options.Profile] says. If it is not, the connection is made anew.
func (ac *activeCall) reprobe(ctx context.Context, conn *connection, neg *negotiated, err error) error {
	ctx, cancel := ac.withDeadline(ctx)
	defer cancel()
	result, probeErr := conn.openingCall(ctx, mcp.MethodDiscover, ac.c.discoverParams(neg.Revision), ac.c.opts.ProbeTimeout)
	e, answered := errors.AsType[*jsonrpc.Error](probeErr)
	if probeErr == nil {
		_, probeErr = era.ReadDiscover(result)
	}
	if probeErr == nil || answered && era.IsModernError(e) {
		neg.confirm()
		return err
	}
	if ctx.Err() != nil {
		return err
	}
	ac.c.log.Warn("the server is not as modern as it was said to be", "error", probeErr)
	conn.retire(nil)
	if !ac.mayRepeat() {
		return fmt.Errorf("%w (the server turned out not to speak %v; what it does speak is found out now)", err, neg.Revision)
	}
	ac.attempts++
	return nil
}

// isRepeatableTool reports whether a request that the server may have carried out may be sent once more.
func (ac *activeCall) mayRepeat() bool {
	req := &ac.req
	repeatable := req.opts.retry == retryAlways || req.repeatable && req.opts.retry != retryNever
	return repeatable && ac.attempts < ac.c.opts.Retry.MaxAttempts
}

// waitRetry waits before a request is sent again that failed with err, nil if it did not fail. If the call has not so much time left, it fails with err at once.
func (ac *activeCall) waitRetry(ctx context.Context, d time.Duration, err error) error {
	ctx, cancel := ac.withDeadline(ctx)
	defer cancel()
	if end, ok := ctx.Deadline(); err != nil && (ok && time.Until(end) < d || ac.idleTimeout > 0 && ac.idleTimeout < d) {
		return err
	}
	if !sleep(ctx, d) {
		return ac.contextError(ctx)
	}
	return nil
}

// withDeadline returns a context that also ends when the time of the whole call is over.
func (ac *activeCall) withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if ac.maxTimeout == 0 {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, ac.deadline, &TimeoutError{Method: ac.req.method, After: ac.maxTimeout, Max: true})
}

// contextError is the error of a call whose context, as bounded gave it, has ended between two requests.
func (ac *activeCall) contextError(ctx context.Context) error {
	cause := context.Cause(ctx)
	if _, ok := errors.AsType[*TimeoutError](cause); ok {
		return cause
	}
	return fmt.Errorf("call %s: %w", ac.req.method, cause)
}

// splitMeta returns params without _meta, and what _meta was; nil if there was none.
func splitMeta(params []byte) (rest, meta []byte) {
	if !bytes.Contains(params, []byte("_meta")) && bytes.IndexByte(params, '\\') < 0 {
		return params, nil
	}
	rest = append(make([]byte, 0, len(params)), '{')
	members := jsonwire.ObjectMembers(params)
	for members.Next() {
		if members.KeyIs("_meta") {
			meta = members.Value()
			continue
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = append(append(append(rest, '"'), members.RawKey()...), `":`...)
		rest = append(rest, members.Value()...)
	}
	if meta == nil {
		return params, nil
	}
	return append(rest, '}'), meta
}

// objectBody returns the members of an object's text, without the brackets.
func objectBody(object []byte) []byte {
	object = bytes.TrimSpace(object)
	if len(object) < 2 {
		return nil
	}
	return bytes.TrimSpace(object[1 : len(object)-1])
}
