package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// An exchange is one call from its first request to its last answer: a request may be sent again when its connection is lost, under another revision, and
// with answers to what the server asked. It is used again by later calls.
type activeCall struct {
	c           *Client
	req         request // a copy, so that the caller's need not be allocated
	timer       *time.Timer
	idleTimeout time.Duration // until an answer or progress; 0 is for ever
	maxTimeout  time.Duration // of the whole call; 0 is for ever
	deadline    time.Time     // when that is over

	params         []byte // of the request at hand
	inputResponses []byte // text of inputResponses for it; nil if there are none
	requestState   []byte // text of the requestState that goes with them; nil if the server gave none

	attempts         int            // after losses of the connection, with the first
	revisionSwitches int            // revisions that the server wanted instead
	sessionRenewals  int            // sessions that the server has ended meanwhile
	toolsRelisted    bool           // the tools have been listed anew, since the headers of a call were not those that the server wants
	callbacks        *callbackQueue // nil if no callback wants anything
}

// maxRevisionSwitches bounds how often a server may want a request in another revision.
const maxRevisionSwitches = 2

func (c *Client) newActiveCall(r *request) *activeCall {
	ac, _ := c.callPool.Get().(*activeCall)
	if ac == nil {
		ac = &activeCall{c: c}
	}
	ac.req, ac.attempts, ac.revisionSwitches, ac.sessionRenewals, ac.toolsRelisted = *r, 1, 0, 0, false
	ac.idleTimeout = effectiveTimeout(r.opts.timeout, c.opts.CallTimeout)
	if ac.maxTimeout = effectiveTimeout(r.opts.maxTimeout, c.opts.MaxCallTimeout); ac.maxTimeout > 0 {
		if ac.deadline = r.deadline; ac.deadline.IsZero() {
			ac.deadline = time.Now().Add(ac.maxTimeout)
		}
	}
	if ac.callbacks = r.callbacks; ac.callbacks == nil {
		ac.callbacks = c.newCallbackQueue(&r.opts)
	}
	return ac
}

// effectiveTimeout returns the timeout of a call, 0 for none.
func effectiveTimeout(override, fallback time.Duration) time.Duration {
	if override == 0 {
		override = fallback
	}
	return max(override, 0)
}

// maxPooledBytes is the largest buffer that an exchange keeps for the next call.
const maxPooledBytes = 64 << 10

func (ac *activeCall) release() {
	ac.stopCallbacks()
	if ac.timer != nil {
		ac.timer.Stop()
	}
	ac.req, ac.inputResponses, ac.requestState, ac.callbacks = request{}, nil, nil, nil
	if cap(ac.params) > maxPooledBytes {
		ac.params = nil
	}
	ac.c.callPool.Put(ac)
}

// stopCallbacks makes notifications that come late miss the call, unless a task goes on with them.
func (ac *activeCall) stopCallbacks() {
	if ac.req.callbacks == nil {
		ac.c.callbacks.remove(ac.callbacks)
	}
}

// startTimer sets the timer for the wait that begins now.
func (ac *activeCall) startTimer() { ac.startTimerFor(ac.idleTimeout) }

// startTimerFor sets the timer to go off after d, or when the time of the whole call is over. A d of 0 is for ever.
func (ac *activeCall) startTimerFor(d time.Duration) {
	if ac.maxTimeout > 0 {
		if remaining := max(time.Until(ac.deadline), 0); d == 0 || remaining < d {
			d = remaining
		}
	}
	switch {
	case d == 0 && ac.maxTimeout == 0:
		if ac.timer != nil {
			ac.timer.Stop()
		}
	case ac.timer == nil:
		ac.timer = time.NewTimer(d)
	default:
		ac.timer.Reset(d)
	}
}

// sendTimeout is how long the call may wait before it is even sent; 0 is for ever.
func (ac *activeCall) sendTimeout() time.Duration {
	if ac.maxTimeout == 0 {
		return ac.idleTimeout
	}
	remaining := max(time.Until(ac.deadline), time.Nanosecond)
	if ac.idleTimeout == 0 {
		return remaining
	}
	return min(ac.idleTimeout, remaining)
}

// timerC is the timer's channel; nil if there is none.
func (ac *activeCall) timerC() <-chan time.Time {
	if ac.timer == nil {
		return nil
	}
	return ac.timer.C
}

// pastDeadline reports whether the time of the whole call is over.
func (ac *activeCall) pastDeadline() bool {
	return ac.maxTimeout > 0 && !time.Now().Before(ac.deadline)
}

// timeoutError returns the error for a timer that went off.
func (ac *activeCall) timeoutError() error {
	if ac.pastDeadline() {
		return &TimeoutError{Method: ac.req.method, After: ac.maxTimeout, Max: true}
	}
	return &TimeoutError{Method: ac.req.method, After: ac.idleTimeout}
}

// connection waits until there is a connection.
func (ac *activeCall) connection(ctx context.Context) (*connection, error) {
	conn, err := ac.c.waitConnection(ctx, ac.req.method, ac.timerC())
	if err == nil {
		return conn, nil
	}
	if e, ok := err.(*NotConnectedError); ok && e.Err == nil {
		e.Err = ac.timeoutError()
	}
	return nil, fmt.Errorf("call %s: %w", ac.req.method, err)
}

// waitConnection waits for the next connection, no longer than ReconnectPolicy.MaxWait. The error is a *NotConnectedError if there was none in time, without an Err if that was because of
// expired, and otherwise why there will never be one.
func (c *Client) waitConnection(ctx context.Context, method string, expired <-chan time.Time) (*connection, error) {
	if conn, _, err := c.current(); conn != nil || err != nil {
		return conn, err
	}
	notConnected := func(err error) error {
		e := &NotConnectedError{Method: method, Err: err}
		if last := c.lastFailure.Load(); last != nil {
			e.Last = *last
		}
		return e
	}
	var maxWait <-chan time.Time // nil is for ever
	if d := c.opts.Reconnect.MaxWait; d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		maxWait = timer.C
	}
	for {
		conn, changed, err := c.current()
		if conn != nil || err != nil {
			return conn, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, notConnected(context.Cause(ctx))
		case <-expired:
			return nil, notConnected(nil)
		case <-maxWait:
			return nil, notConnected(&TimeoutError{Method: method, After: c.opts.Reconnect.MaxWait, option: "ReconnectPolicy.MaxWait"})
		}
	}
}

// send makes one request and waits for its answer. sent tells whether the server may have seen it.
func (ac *activeCall) send(ctx context.Context, conn *connection, neg *negotiated) (result []byte, sent bool, err error) {
	p, err := conn.rpc.NewCall(ac.req.method)
	if err != nil {
		return nil, false, err
	}
	ac.buildParams(neg)
	if err := p.SendWithin(ctx, ac.sendTimeout(), ac.params); err != nil {
		ac.stopCallbacks()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = fmt.Errorf("not sent, the server does not read: %w", ac.timeoutError())
		}
		return nil, false, err
	}
	result, err = ac.wait(ctx, conn, p)
	ac.stopCallbacks()
	return result, true, err
}

// wait waits for the answer and runs callbacks meanwhile, all that came before it.
func (ac *activeCall) wait(ctx context.Context, conn *connection, p *jsonrpc.Pending) ([]byte, error) {
	detached := false
	if ac.callbacks != nil {
		defer func() {
			if !detached {
				p.Cancel("gave up") // if a callback panics; else there is nothing left to cancel
			}
		}()
	}
	grace := conn.handlerGrace()
	for {
		var err error
		reason := "timed out"
		select {
		case <-p.Done():
			ac.callbacks.deliver()
			return p.Result()
		case <-ac.callbacks.ready():
			if ac.callbacks.deliver() {
				ac.startTimer()
				grace = conn.handlerGrace()
			}
			continue
		case <-ctx.Done():
			reason = ctx.Err().Error() // the cause is no business of the server's
			if err = context.Cause(ctx); !errors.Is(err, ctx.Err()) {
				err = fmt.Errorf("%w: %w", ctx.Err(), err)
			}
			err = fmt.Errorf("call %s: %w", ac.req.method, err)
		case <-ac.timerC():
			if extension := grace.extension(); extension > 0 && !ac.pastDeadline() {
				ac.startTimerFor(extension)
				continue
			}
			err = ac.timeoutError()
		}
		if ac.req.asTask {
			detached = ac.c.cancelPendingTask(p)
		} else {
			detached = ac.mayBeTask(conn) && conn.cancelPossibleTask(p, reason)
		}
		if detached || p.Cancel(reason) {
			ac.callbacks.deliver()
			return nil, err
		}
		<-p.Done() // the answer was first, by a hair
	}
}

// mayBeTask reports whether the server may make a task of the call without being asked to.
func (ac *activeCall) mayBeTask(conn *connection) bool {
	return conn.negotiated.Load().Modern && ac.c.opts.acceptsResultType(ac.req.method, mcp.ResultTypeTask)
}

// buildParams writes the params of the request, in the shape of the terms, and registers the call for notifications.
func (ac *activeCall) buildParams(neg *negotiated) {
	req := &ac.req
	if ac.callbacks != nil && req.callbacks == nil {
		ac.callbacks.register()
	}
	dst := append(ac.params[:0], '{')
	open := len(dst)
	if neg.Modern {
		dst = append(dst, neg.meta...)
	} else {
		dst = append(dst, `"_meta":{`...)
	}
	start := len(dst)
	separate := func() {
		if len(dst) > start || neg.Modern {
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
	if len(dst) == start && !neg.Modern {
		dst = dst[:open] // there is nothing to say
	} else {
		dst = append(dst, '}')
	}
	ac.params = ac.appendParams(dst, open)
}

// appendParams appends the members of the request's params, and what the round adds to them.
func (ac *activeCall) appendParams(dst []byte, open int) []byte {
	separate := func(dst []byte) []byte {
		if len(dst) > open {
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

// checkResult says what is wrong with a result of these terms, and otherwise whether the server asks for input.
func (ac *activeCall) checkResult(neg *negotiated, result []byte) (needsInput bool, err error) {
	if len(result) == 0 || result[0] != '{' {
		return false, &ProtocolError{Method: ac.req.method, Reason: "the result is no object"}
	}
	if !neg.Modern {
		return false, nil // a member of that name means nothing
	}
	switch kind := era.ResultType(result); {
	case kind == "" || kind == mcp.ResultTypeComplete:
		return false, nil
	case kind == mcp.ResultTypeInputRequired && era.AllowsInput(ac.req.method):
		return true, nil
	case ac.c.opts.acceptsResultType(ac.req.method, kind):
		return false, nil
	default:
		return false, &ProtocolError{Method: ac.req.method, Reason: fmt.Sprintf("resultType %.40q is not one for it", kind)}
	}
}
