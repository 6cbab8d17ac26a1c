package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"time"

	"mcpwire/internal/base/wait"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/middleware"
)

// The flow of a call is:
//
//	Call, CallTool, getCacheable …  encode params; cachedRequest.do may answer from a cache
//	roundTrip                       runs the middleware around roundTripDirect
//	roundTripDirect                 counts input rounds; each is one activeCall.roundTrip
//	activeCall.roundTrip            sends requests until one has a result or the call fails:
//	  connection                    waits until supervise publishes a connection
//	  send                          buildParams (_meta, input responses), then wait
//	  wait                          response, callbacks, timeouts; cancels the request
//	  checkResult                   final, or input required
//	  handleFailure                 error of the call, or retry: waitRetry, switchRevision,
//	                                reprobe, relistTools, handleCallError (HTTP)
//	handleInputRequired             inputServer.answer runs the handlers; then the next round
//
// Connections are made apart from calls, by the connector. Dial calls its establish, which opens a
// connection and runs the steps of a negotiation (useProfile, discover, handshake). When a
// connection ends, supervise calls reconnect, which repeats establish with backoff, and use wakes
// the waiting calls. The flow of an incoming message is described in input.go.

// Call sends a request of any method and decodes its result. params is nil, a [json.RawMessage], an
// [mcp.Value], or a value that encoding/json marshals to an object. result is nil, a
// *json.RawMessage, or a pointer that encoding/json can decode into. Call does not repeat the
// request when the connection is lost, unless [WithRetry] is given.
//
// The error wraps a *[jsonrpc.Error] if and only if the server answered with one. Otherwise it is a
// *[NotConnectedError], a *[TimeoutError], a *[ProtocolError] or a *[jsonrpc.CallError], or wraps
// [jsonrpc.ErrClosed] or the context's error.
func (c *Client) Call(ctx context.Context, method string, params, result any, opts ...CallOption) error {
	text, err := encodeParams(params)
	if err != nil {
		return fmt.Errorf("call %s: params: %w", method, err)
	}
	r := &request{method: method, opts: newCallOptions(opts)}
	var meta []byte
	if r.params, meta = splitMeta(text); meta != nil {
		r.opts.addMeta(meta)
	}
	text, err = c.roundTrip(ctx, r)
	if err != nil {
		return err
	}
	return decodeCallResult(method, text, result)
}

// Notify sends a notification of any method. params is as for [Client.Call]. Without a connection,
// Notify waits for one as calls do: see [ReconnectPolicy.MaxWait].
func (c *Client) Notify(ctx context.Context, method string, params any) error {
	text, err := encodeParams(params)
	if err != nil {
		return fmt.Errorf("notify %s: params: %w", method, err)
	}
	m := middleware.Message{Direction: jsonrpc.Outgoing, Notification: true, Method: method, Params: text}
	_, err = c.runChain(ctx, m, func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
		return nil, c.notifyDirect(ctx, method, m.Params)
	})
	return err
}

// notifyDirect is Notify without the middleware.
func (c *Client) notifyDirect(ctx context.Context, method string, text []byte) error {
	for {
		conn, err := c.conns.wait(ctx, method, nil)
		if err != nil {
			return fmt.Errorf("notify %s: %w", method, err)
		}
		if err := conn.rpc.Notify(ctx, method, conn.negotiated.Load().notificationParams(text)); !isConnectionLost(err) {
			return err
		}
		c.conns.drop(conn)
	}
}

// notificationParams returns the params of a notification with the _meta that the revision
// requires.
func (n *negotiated) notificationParams(text []byte) []byte {
	rest, meta := splitMeta(text)
	if !n.Modern || bytes.Contains(meta, []byte(mcp.MetaProtocolVersion)) {
		return text
	}
	all := slices.Clip(n.meta)
	if members := objectBody(meta); len(members) > 0 {
		all = append(append(all, ','), members...)
	}
	return joinMeta(rest, all)
}

// encodeParams returns the JSON text of params, which must be an object or nil.
func encodeParams(params any) ([]byte, error) {
	text, err := encodeValue(params)
	if err != nil || text == nil {
		return nil, err
	}
	if text = bytes.TrimSpace(text); len(text) == 0 || text[0] != '{' {
		return nil, errNotObject
	}
	return text, nil
}

// encodeValue returns the JSON text of any value, or nil for nil.
func encodeValue(v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		if v == nil {
			return nil, nil
		}
		return v, jsonwire.Valid(v, 0)
	case mcp.Value:
		return mcp.Append(nil, v, mcp.RevisionNone), nil
	}
	return json.Marshal(v)
}

func decodeCallResult(method string, text []byte, result any) error {
	var err error
	switch v := result.(type) {
	case nil:
	case *json.RawMessage:
		*v = text
	case json.Unmarshaler:
		err = v.UnmarshalJSON(text)
	default:
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		return &ProtocolError{Method: method, Reason: "unexpected result", Err: err}
	}
	return nil
}

// A request is one call in a form that does not depend on the revision.
type request struct {
	method string
	// params is the JSON text of an object without _meta (see splitMeta). Nil means {}.
	params []byte
	// repeatable is set if the request is safe to repeat: lists, reads, tools that say so.
	repeatable bool
	opts       callOptions
	// internal is set if the client sends the request on each new connection. Its success does not
	// mark the connection as serving.
	internal bool
	// asTask is set if the request asks a legacy server for a task. To cancel it, cancel the task.
	asTask bool
	// callbacks belong to a task, which outlasts the request. It is nil if the callbacks end with
	// the request.
	callbacks *callbackQueue

	// deadline is the end of the whole call that the request is a part of. Zero means that the
	// request is the whole call.
	deadline instant

	// inputRounds is the number of input rounds so far; roundTrip sets it.
	inputRounds int
	// buffer is the memory of params if it can be reused after the call. It may be nil.
	buffer *paramsBuffer
	// valid says that params is valid JSON on one line, so that it need not be checked.
	valid bool
	// pending holds the memory of the result; roundTrip sets it. It may be nil.
	pending *rpc.Pending
}

// errTooManyRounds is wrapped by the error of a call that exceeds InputOptions.MaxRounds.
var errTooManyRounds = errors.New("too many input rounds")

// roundTrip sends a request and returns the text of the result object. Its resultType is absent,
// "complete", or one that a declared extension adds ("task"). roundTrip handles _meta, input
// rounds, timeouts, retries and callbacks.
func (c *Client) roundTrip(ctx context.Context, r *request) (result []byte, err error) {
	if r.opts.err != nil {
		return nil, fmt.Errorf("call %s: %w", r.method, r.opts.err)
	}
	if c.chain != nil {
		q := *r // a copy, so that r does not escape
		q.valid = false
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
			r.pending = ac.pending
			return result, err
		}
		ac.req.inputRounds = r.inputRounds
		if r.inputRounds >= c.opts.Input.MaxRounds {
			return nil, fmt.Errorf("call %s: %w: %d times", r.method, errTooManyRounds, r.inputRounds+1)
		}
		if err := ac.handleInputRequired(ctx, result); err != nil {
			return nil, err
		}
	}
}

// roundTrip gets one result. It repeats the request where the protocol or the caller allows it.
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

// handleFailure decides what happens to a failed request. It returns the error of the call, or nil
// to send the request again.
func (ac *activeCall) handleFailure(ctx context.Context, conn *connection, neg *negotiated, sent bool, err error) error {
	if _, ok := errors.AsType[*jsonrpc.TooLargeError](err); ok {
		return err // the server processed it; a repetition would be as large
	}
	// First, because a CallError may wrap an error of the server that does not answer the call.
	if e, ok := errors.AsType[*jsonrpc.CallError](err); ok && !errors.Is(err, jsonrpc.ErrMalformed) {
		return ac.handleCallError(ctx, conn, neg, e, err)
	}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
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
		return &ProtocolError{Method: ac.req.method, Reason: "the response is not a JSON-RPC response", Err: err}
	}
	if !isConnectionLost(err) {
		return err
	}
	ac.c.conns.drop(conn)
	if !sent {
		return nil // the server has not seen it: this does not count as a retry
	}
	if !ac.mayRepeat() {
		return err
	}
	ac.attempts++
	return ac.waitRetry(ctx, ac.c.opts.Retry.backoff(ac.attempts-1), err)
}

// switchRevision switches to a revision that the server names in a version error. The server did
// not process the request, so it is safe to send it again.
func (ac *activeCall) switchRevision(conn *connection, neg *negotiated, e *jsonrpc.Error, err error) error {
	c := ac.c
	if ac.revisionSwitches++; ac.revisionSwitches > maxRevisionSwitches {
		return err
	}
	names := era.SupportedVersions(e)
	modern, legacy := era.Common(c.opts.Revisions, names)
	switch {
	case conn.negotiated.Load() != neg: // another call has switched already
	case modern != mcp.RevisionNone:
		profile := *neg.profile
		profile.Revision = modern
		c.conns.profile.Store(&profile)
		conn.setNegotiated(c.conns.newNegotiated(&profile))
	case legacy != mcp.RevisionNone:
		conn.retire(&Profile{Revision: legacy})
	default:
		return &IncompatibleError{Client: c.opts.Revisions, Server: names, Err: err}
	}
	return nil
}

// reprobe checks that the server is modern, as [Options.Profile] says, after its first response is
// an error. If not, it replaces the connection.
func (ac *activeCall) reprobe(ctx context.Context, conn *connection, neg *negotiated, err error) error {
	ctx, cancel := ac.withDeadline(ctx)
	defer cancel()
	result, probeErr := conn.openingCall(ctx, mcp.MethodDiscover, ac.c.conns.discoverParams(neg.Revision), true)
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
	ac.c.log.Warn("the server does not support the revision of Options.Profile", "error", probeErr)
	conn.retire(nil)
	if !ac.mayRepeat() {
		return fmt.Errorf("%w (the server does not speak %v; negotiating again)", err, neg.Revision)
	}
	ac.attempts++
	return nil
}

// mayRepeat reports whether a request that the server may have processed may be sent again.
func (ac *activeCall) mayRepeat() bool {
	req := &ac.req
	repeatable := req.opts.retry == retryAlways || req.repeatable && req.opts.retry != retryNever
	return repeatable && ac.attempts < ac.c.opts.Retry.MaxAttempts
}

// waitRetry waits for d before a request is sent again. err is the reason, or nil if the request
// did not fail. waitRetry returns err at once if the call does not have that much time left.
func (ac *activeCall) waitRetry(ctx context.Context, d time.Duration, err error) error {
	ctx, cancel := ac.withDeadline(ctx)
	defer cancel()
	if end, ok := ctx.Deadline(); err != nil && (ok && time.Until(end) < d || ac.idleTimeout > 0 && ac.idleTimeout < d) {
		return err
	}
	if !wait.Sleep(ctx, d) {
		return ac.contextError(ctx)
	}
	return nil
}

// withDeadline returns a context that also ends at the deadline of the whole call.
func (ac *activeCall) withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if ac.maxTimeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, ac.deadline.sub(now()), &TimeoutError{Method: ac.req.method, After: ac.maxTimeout, Max: true})
}

// contextError returns the error of a call whose context from withDeadline has ended between two
// requests.
func (ac *activeCall) contextError(ctx context.Context) error {
	cause := context.Cause(ctx)
	if _, ok := errors.AsType[*TimeoutError](cause); ok {
		return cause
	}
	return fmt.Errorf("call %s: %w", ac.req.method, cause)
}

// splitMeta returns params without _meta, and the value of _meta, or nil without one.
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

// objectBody returns the members of an object's text, without the braces.
func objectBody(object []byte) []byte {
	object = bytes.TrimSpace(object)
	if len(object) < 2 {
		return nil
	}
	return bytes.TrimSpace(object[1 : len(object)-1])
}

// An activeCall is one call from its first request to its last response. It may send several
// requests: retries, requests in another revision, and requests with the responses to input
// requests. A pool reuses the values.
type activeCall struct {
	c *Client
	// req is a copy, so that the caller's request does not escape.
	req   request
	timer callTimer
	// idleTimeout limits the wait for a response or progress. Zero means no limit.
	idleTimeout time.Duration
	// now is when the timer was started, or when the call got a connection if it had to wait.
	now instant
	// maxTimeout limits the whole call. Zero means no limit.
	maxTimeout time.Duration
	// deadline is the end of maxTimeout.
	deadline instant

	// params is the text of the current request's params.
	params []byte
	// inputResponses is the text of that member of params. Nil means none.
	inputResponses []byte
	// requestState is the text of that member of params. Nil means none.
	requestState []byte

	// attempts counts the first attempt and the retries.
	attempts int
	// revisionSwitches counts switches to another revision.
	revisionSwitches int
	// sessionRenewals counts sessions that the server has ended during the call.
	sessionRenewals int
	// refusals counts the refused connections, the first of them at refusedSince.
	refusals     int
	refusedSince instant
	// toolsRelisted is set if the tools were listed again because of a header mismatch.
	toolsRelisted bool
	// callbacks is nil if the call has no callbacks.
	callbacks *callbackQueue
	// pending has the result of the last request.
	pending *rpc.Pending
}

// maxRevisionSwitches limits how often a call may switch to another revision.
const maxRevisionSwitches = 2

func (c *Client) newActiveCall(r *request) *activeCall {
	ac, _ := c.callPool.Get().(*activeCall)
	if ac == nil {
		ac = &activeCall{c: c}
	}
	ac.req, ac.attempts, ac.revisionSwitches, ac.sessionRenewals, ac.refusals, ac.toolsRelisted = *r, 1, 0, 0, 0, false
	ac.idleTimeout = effectiveTimeout(r.opts.timeout, c.opts.Timeouts.Call)
	if ac.maxTimeout = effectiveTimeout(r.opts.maxTimeout, c.opts.Timeouts.MaxCall); ac.maxTimeout > 0 {
		if ac.deadline = r.deadline; ac.deadline == 0 {
			ac.deadline = now().add(ac.maxTimeout)
		}
	}
	if ac.callbacks = r.callbacks; ac.callbacks == nil {
		ac.callbacks = c.callbacks.newQueue(&r.opts)
	}
	return ac
}

// effectiveTimeout returns the timeout of a call. Zero means no limit.
func effectiveTimeout(override, fallback time.Duration) time.Duration {
	return max(cmp.Or(override, fallback), 0)
}

// maxPooledBytes is the size of the largest buffer that is kept for reuse.
const maxPooledBytes = 64 << 10

func (ac *activeCall) release() {
	ac.stopCallbacks()
	ac.req, ac.inputResponses, ac.requestState, ac.callbacks, ac.pending = request{}, nil, nil, nil, nil
	if cap(ac.params) > maxPooledBytes {
		ac.params = nil
	}
	ac.c.callPool.Put(ac)
}

// stopCallbacks stops notifications to the call, unless a task goes on with them.
func (ac *activeCall) stopCallbacks() {
	if ac.req.callbacks == nil {
		ac.c.callbacks.remove(ac.callbacks)
	}
}

// startTimer starts the timer for the next wait.
func (ac *activeCall) startTimer() { ac.startTimerFor(ac.idleTimeout) }

// startTimerFor sets the timer to the earlier of d and the deadline. A d of 0 means no limit.
func (ac *activeCall) startTimerFor(d time.Duration) {
	ac.now = now()
	if ac.maxTimeout > 0 {
		if remaining := max(ac.deadline.sub(ac.now), 1); d == 0 || remaining < d {
			d = remaining
		}
	}
	if d == 0 {
		ac.timer.startWithoutLimit()
		return
	}
	ac.timer.start(ac.now, d)
}

// pastDeadline reports whether the deadline of the whole call has passed.
func (ac *activeCall) pastDeadline() bool {
	return ac.maxTimeout > 0 && now() >= ac.deadline
}

// timeoutError returns the error for an expired timer.
func (ac *activeCall) timeoutError() error {
	if ac.pastDeadline() {
		return &TimeoutError{Method: ac.req.method, After: ac.maxTimeout, Max: true}
	}
	return &TimeoutError{Method: ac.req.method, After: ac.idleTimeout}
}

// connection waits for a connection within the limits of the call.
func (ac *activeCall) connection(ctx context.Context) (*connection, error) {
	if conn, _, err := ac.c.conns.current(); err == nil && conn != nil {
		return conn, nil
	}
	conn, err := ac.c.conns.wait(ctx, ac.req.method, &ac.timer)
	ac.now = now()
	if err == nil {
		return conn, nil
	}
	if e, ok := err.(*NotConnectedError); ok && e.Err == nil {
		e.Err = ac.timeoutError()
	}
	return nil, fmt.Errorf("call %s: %w", ac.req.method, err)
}

// send sends one request and waits for its response. sent reports whether the server may have seen
// it.
func (ac *activeCall) send(ctx context.Context, conn *connection, neg *negotiated) (result []byte, sent bool, err error) {
	p, err := conn.rpc.NewCall(ac.req.method)
	if err != nil {
		return nil, false, err
	}
	if !ac.req.internal {
		p.SetAnswered(&conn.served)
	}
	if ac.req.asTask {
		// A call that asks for a task must be canceled by tasks/cancel:
		// https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/cancellation
		p.SetSilent()
	}
	ac.buildParams(neg)
	send := p.SendWithin
	if ac.hasValidParams(neg) {
		send = p.SendValid
	}
	if err := send(ctx, ac.timer.left(ac.now), ac.params); err != nil {
		ac.stopCallbacks()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = fmt.Errorf("not sent: the server does not read: %w", ac.timeoutError())
		}
		return nil, false, err
	}
	result, err = ac.wait(ctx, conn, p)
	ac.stopCallbacks()
	return result, true, err
}

// hasValidParams reports whether all parts of the params are known to be valid JSON on one line.
func (ac *activeCall) hasValidParams(neg *negotiated) bool {
	return ac.req.valid && neg.validMeta && ac.req.opts.meta == nil && ac.inputResponses == nil && ac.requestState == nil
}

// wait waits for the response and runs the callbacks. Those of notifications that arrived before
// the response run before wait returns.
func (ac *activeCall) wait(ctx context.Context, conn *connection, p *rpc.Pending) ([]byte, error) {
	answered, returned := false, false
	if ac.callbacks != nil {
		defer func() {
			if !returned { // a callback panicked
				ac.giveUp(conn, p, answered)
			}
		}()
	}
	grace := conn.handlerGrace()
waiting:
	for {
		var err error
		reason := "timed out"
		select {
		case <-p.Done():
			break waiting
		case <-ac.callbacks.ready():
			if ac.callbacks.deliver() {
				ac.startTimer()
				grace = conn.handlerGrace()
			}
			continue
		case <-ctx.Done():
			reason = context.Cause(ctx).Error()
			if err = context.Cause(ctx); !errors.Is(err, ctx.Err()) {
				err = fmt.Errorf("%w: %w", ctx.Err(), err)
			}
			err = fmt.Errorf("call %s: %w", ac.req.method, err)
		case <-ac.timer.C():
			if !ac.timer.expired() {
				continue
			}
			if extension := grace.extension(); extension > 0 && !ac.pastDeadline() {
				ac.startTimerFor(extension)
				continue
			}
			err = ac.timeoutError()
		}
		if ac.cancel(conn, p, reason) {
			returned = true
			ac.callbacks.deliver()
			return nil, err
		}
		<-p.Done() // the response came first
		break
	}
	answered = true
	ac.callbacks.deliver()
	ac.pending = p
	result, err := p.Result()
	returned = true
	return result, err
}

// giveUp cancels a request whose caller does not get the response. answered reports whether it
// came.
func (ac *activeCall) giveUp(conn *connection, p *rpc.Pending, answered bool) {
	if !answered {
		ac.cancel(conn, p, "gave up")
	} else if tasks := &ac.c.tasks; ac.req.asTask || ac.mayBeTask(conn) {
		ac.c.goroutines.Start(func() { tasks.cancelLate(p) })
	}
}

// cancel cancels the request, or the task that the server makes of it. It returns false if the
// response came first.
func (ac *activeCall) cancel(conn *connection, p *rpc.Pending, reason string) bool {
	switch {
	case ac.req.asTask && ac.c.tasks.cancelPending(p), ac.mayBeTask(conn) && conn.cancelPossibleTask(p, reason):
		return true
	}
	return p.Cancel(reason)
}

// mayBeTask reports whether the server may turn the call into a task unasked.
func (ac *activeCall) mayBeTask(conn *connection) bool {
	return conn.negotiated.Load().Modern && ac.c.opts.acceptsResultType(ac.req.method, mcp.ResultTypeTask)
}

// buildParams encodes the params of the request for the negotiated revision, and registers the call
// for notifications.
func (ac *activeCall) buildParams(neg *negotiated) {
	req := &ac.req
	if ac.callbacks != nil && req.callbacks == nil {
		ac.callbacks.register()
	}
	dst := append(ac.params[:0], `{"_meta":{`...)
	start := len(dst)
	dst = append(dst, neg.meta...)
	separate := func() {
		if len(dst) > start {
			dst = append(dst, ',')
		}
	}
	if req.opts.progress != nil {
		separate()
		dst = strconv.AppendInt(append(dst, `"`+mcp.MetaProgressToken+`":`...), ac.callbacks.token, 10)
	}
	if neg.Modern && req.opts.log != nil {
		separate()
		dst = jsonwire.AppendQuote(append(dst, `"`+mcp.MetaLogLevel+`":`...), req.opts.logLevel.String())
	}
	if len(req.opts.meta) > 0 {
		separate()
		dst = append(dst, req.opts.meta...)
	}
	if len(dst) == start {
		dst = dst[:1] // no _meta
	} else {
		dst = append(dst, '}')
	}
	ac.params = ac.appendParams(dst)
}

// appendParams appends the members of the request's params and those of the input round to an
// object, and ends it.
func (ac *activeCall) appendParams(dst []byte) []byte {
	separate := func(dst []byte) []byte {
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		return dst
	}
	if members := objectBody(ac.req.params); len(members) > 0 {
		dst = append(separate(dst), members...)
	}
	if ac.inputResponses != nil {
		dst = append(append(separate(dst), `"inputResponses":`...), ac.inputResponses...)
	}
	if ac.requestState != nil {
		dst = append(append(separate(dst), `"requestState":`...), ac.requestState...)
	}
	return append(dst, '}')
}

// checkResult validates a result and reports whether the server requires input.
func (ac *activeCall) checkResult(neg *negotiated, result []byte) (needsInput bool, err error) {
	if len(result) == 0 || result[0] != '{' {
		return false, &ProtocolError{Method: ac.req.method, Reason: "the result is not an object"}
	}
	if !neg.Modern {
		return false, nil // legacy revisions do not have resultType
	}
	switch kind := era.ResultType(result); {
	case kind == "" || kind == mcp.ResultTypeComplete:
		return false, nil
	case kind == mcp.ResultTypeInputRequired && era.AllowsInput(ac.req.method):
		return true, nil
	case ac.c.opts.acceptsResultType(ac.req.method, kind):
		return false, nil
	default:
		return false, &ProtocolError{Method: ac.req.method, Reason: fmt.Sprintf("invalid resultType %.40q", kind)}
	}
}

// maxRetryAfter is the longest delay of a retry that a server may ask for. Beyond it the call
// fails.
const maxRetryAfter = 30 * time.Second

// handleCallError is handleFailure for a request that failed in its transport.
func (ac *activeCall) handleCallError(ctx context.Context, conn *connection, neg *negotiated, e *jsonrpc.CallError, err error) error {
	connLost := isConnectionLost(err)
	if connLost {
		ac.c.conns.drop(conn)
	}
	switch e.Outcome {
	case jsonrpc.OutcomeUnprocessed:
		if connLost {
			if ac.sessionRenewals++; ac.sessionRenewals > 1 {
				return err
			}
			return nil // retry in a new session
		}
		switch refused := isRefusedDial(err) && ac.c.opts.Retry.MaxAttempts > 1; {
		case ac.req.opts.retry == retryNever, !refused && ac.attempts >= ac.c.opts.Retry.MaxAttempts:
			return err
		case refused: // the server restarts: wait as for a new connection
			if ac.refusals++; ac.refusals == 1 {
				ac.refusedSince = now()
			}
			if d := ac.c.opts.Reconnect.MaxWait; d > 0 && now().sub(ac.refusedSince) >= d {
				return err
			}
			return ac.waitRetry(ctx, ac.c.opts.Retry.backoff(ac.refusals), err)
		}
	case jsonrpc.OutcomeUnknown:
		if !ac.mayRepeat() {
			return err
		}
	case jsonrpc.OutcomeRejected:
		if !neg.confirmed.Load() {
			return ac.reprobe(ctx, conn, neg, err)
		}
		return err
	default:
		return err
	}
	if e.RetryAfter > maxRetryAfter {
		return err
	}
	ac.attempts++
	// The backoff is random, so that not all clients come back at the same time.
	return ac.waitRetry(ctx, e.RetryAfter+ac.c.opts.Retry.backoff(ac.attempts-1), err)
}

// isRefusedDial reports whether the server's machine refused a connection.
func isRefusedDial(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	_, dns := errors.AsType[*net.DNSError](err)
	return ok && op.Op == "dial" && !op.Timeout() && !dns
}

// backoff returns the wait after that many failures.
func (p *RetryPolicy) backoff(failures int) time.Duration {
	return wait.Backoff(p.MinBackoff, p.MaxBackoff, failures, rand.Float64())
}

// relistTools lists the tools again, because the transport learns from the list which arguments the
// server wants in headers. The server did not process the request, so it is safe to send it again.
// Spec, custom headers from tool parameters:
// https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http
func (ac *activeCall) relistTools(ctx context.Context) error {
	ac.toolsRelisted = true
	ctx, cancel := ac.withDeadline(ctx)
	defer cancel()
	name := jsonwire.Text(jsonwire.Lookup(ac.req.params, "name"))
	ac.c.tools.find(ctx, name)
	if ctx.Err() != nil {
		return ac.contextError(ctx)
	}
	return nil
}

// isRefused reports whether a request failed for a reason that a retry does not change.
func isRefused(err error) bool {
	e, ok := errors.AsType[*jsonrpc.CallError](err)
	return ok && (e.Outcome == jsonrpc.OutcomeRejected || e.Outcome == jsonrpc.OutcomeDenied)
}

// retryStep decides what follows an opening request that failed in its transport, with a
// *jsonrpc.CallError. It waits and returns retry if another attempt may help.
func (n *negotiation) retryStep(ctx context.Context, retry step, err error) (step, error) {
	callErr, _ := errors.AsType[*jsonrpc.CallError](err)
	if n.failureCount++; n.failureCount >= maxOpeningAttempts || callErr.RetryAfter > maxRetryAfter || isRefused(err) || errors.Is(err, jsonrpc.ErrMalformed) {
		return nil, err
	}
	n.c.log.Debug("opening request failed, retrying", "error", err)
	if !wait.Sleep(ctx, callErr.RetryAfter+n.c.opts.Retry.backoff(n.failureCount)) {
		return nil, context.Cause(ctx)
	}
	return retry, nil
}

// get sends a request whose result is not cached, and decodes the result.
func (c *Client) get(ctx context.Context, r *request, result json.Unmarshaler) error {
	raw, err := c.roundTrip(ctx, r)
	if err != nil {
		return err
	}
	if err := c.checkFinal(r.method, era.ResultType(raw)); err != nil {
		return err
	}
	_, err = c.decodeResult(r.method, raw, result)
	return err
}

// checkFinal returns an error for a result of an extension's type, which the method does not have.
func (c *Client) checkFinal(method string, kind mcp.ResultType) error {
	if c.Revision().Modern() && kind != "" && kind != mcp.ResultTypeComplete {
		return &ProtocolError{Method: method, Reason: fmt.Sprintf("resultType is %.40q", kind)}
	}
	return nil
}

// maxLeftOut limits the malformed parts of one result that are logged.
const maxLeftOut = 10

// decodeResult decodes a final result. It leaves out malformed elements, such as a tool or a
// content block, and logs them. kept is the result without them.
func (c *Client) decodeResult(method string, raw []byte, v json.Unmarshaler) (kept []byte, err error) {
	if err = v.UnmarshalJSON(raw); err == nil {
		return raw, nil
	}
	kept, left := era.WithoutMalformed(method, raw)
	if left == nil || v.UnmarshalJSON(kept) != nil {
		return nil, &ProtocolError{Method: method, Reason: "malformed result", Err: err}
	}
	for _, err := range left[:min(len(left), maxLeftOut)] {
		c.log.Warn("a malformed part of a result is left out", "method", method, "error", err, "parts", len(left))
	}
	return kept, nil
}

// appendMember adds a member to an object that is not empty. name includes the colon.
func appendMember(object []byte, name string, value []byte) []byte {
	object = append(append(object[:len(object)-1], ','), name...)
	return append(append(object, value...), '}')
}

// cursorParams returns the params of a list request.
func cursorParams(cursor *string) []byte {
	if cursor == nil {
		return nil
	}
	return append(jsonwire.AppendQuote([]byte(`{"cursor":`), *cursor), '}')
}

// uriParams returns the params of a request about one resource. parseURIParam decodes them.
func uriParams(uri string) []byte {
	return append(jsonwire.AppendQuote([]byte(`{"uri":`), uri), '}')
}

func parseURIParam(params []byte) string {
	return jsonwire.Text(jsonwire.Lookup(params, "uri"))
}
