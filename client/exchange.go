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
type exchange struct {
	c     *Client
	r     request // a copy, so that the caller's need not be allocated
	timer *time.Timer
	idle  time.Duration // until an answer or progress; 0 is for ever
	max   time.Duration // of the whole call; 0 is for ever
	limit time.Time     // when that is over

	params []byte // of the request at hand
	inputs []byte // text of inputResponses for it; nil if there are none
	state  []byte // text of the requestState that goes with them; nil if the server gave none

	attempts int    // after losses of the connection, with the first
	adopted  int    // revisions that the server wanted instead
	renewed  int    // sessions that the server has ended meanwhile
	relisted bool   // the tools have been listed anew, since the headers of a call were not those that the server wants
	watch    *watch // nil if no callback wants anything
}

// maxAdopted bounds how often a server may want a request in another revision.
const maxAdopted = 2

func (c *Client) begin(r *request) *exchange {
	x, _ := c.exchanges.Get().(*exchange)
	if x == nil {
		x = &exchange{c: c}
	}
	x.r, x.attempts, x.adopted, x.renewed, x.relisted = *r, 1, 0, 0, false
	x.idle = choose(r.opts.timeout, c.opts.CallTimeout)
	if x.max = choose(r.opts.maxTimeout, c.opts.MaxCallTimeout); x.max > 0 {
		if x.limit = r.limit; x.limit.IsZero() {
			x.limit = time.Now().Add(x.max)
		}
	}
	if x.watch = r.watch; x.watch == nil {
		x.watch = c.newWatch(&r.opts)
	}
	return x
}

// choose returns the timeout of a call, 0 for none.
func choose(own, general time.Duration) time.Duration {
	if own == 0 {
		own = general
	}
	return max(own, 0)
}

// maxKept is the largest buffer that an exchange keeps for the next call.
const maxKept = 64 << 10

func (x *exchange) end() {
	x.forget()
	if x.timer != nil {
		x.timer.Stop()
	}
	x.r, x.inputs, x.state, x.watch = request{}, nil, nil, nil
	if cap(x.params) > maxKept {
		x.params = nil
	}
	x.c.exchanges.Put(x)
}

// forget makes notifications that come late miss the call, unless a task goes on with them.
func (x *exchange) forget() {
	if x.r.watch == nil {
		x.c.watchers.remove(x.watch)
	}
}

// arm sets the timer for the wait that begins now.
func (x *exchange) arm() { x.armFor(x.idle) }

// armFor sets the timer to go off after d, or when the time of the whole call is over. A d of 0 is for ever.
func (x *exchange) armFor(d time.Duration) {
	if x.max > 0 {
		if left := max(time.Until(x.limit), 0); d == 0 || left < d {
			d = left
		}
	}
	switch {
	case d == 0 && x.max == 0:
		if x.timer != nil {
			x.timer.Stop()
		}
	case x.timer == nil:
		x.timer = time.NewTimer(d)
	default:
		x.timer.Reset(d)
	}
}

// patience is how long the call may wait before it is even sent; 0 is for ever.
func (x *exchange) patience() time.Duration {
	if x.max == 0 {
		return x.idle
	}
	left := max(time.Until(x.limit), time.Nanosecond)
	if x.idle == 0 {
		return left
	}
	return min(x.idle, left)
}

// expired is the timer's channel; nil if there is none.
func (x *exchange) expired() <-chan time.Time {
	if x.timer == nil {
		return nil
	}
	return x.timer.C
}

// overdue reports whether the time of the whole call is over.
func (x *exchange) overdue() bool { return x.max > 0 && !time.Now().Before(x.limit) }

// timeout returns the error for a timer that went off.
func (x *exchange) timeout() error {
	if x.overdue() {
		return &TimeoutError{Method: x.r.method, After: x.max, Max: true}
	}
	return &TimeoutError{Method: x.r.method, After: x.idle}
}

// link waits until there is a connection.
func (x *exchange) link(ctx context.Context) (*link, error) {
	l, err := x.c.await(ctx, x.r.method, x.expired())
	if err == nil {
		return l, nil
	}
	if e, ok := err.(*NotConnectedError); ok && e.Err == nil {
		e.Err = x.timeout()
	}
	return nil, fmt.Errorf("call %s: %w", x.r.method, err)
}

// await waits for the next connection, no longer than ReconnectPolicy.MaxWait. The error is a *NotConnectedError if there was none in time, without an Err if that was because of
// expired, and otherwise why there will never be one.
func (c *Client) await(ctx context.Context, method string, expired <-chan time.Time) (*link, error) {
	if l, _, err := c.current(); l != nil || err != nil {
		return l, err
	}
	late := func(err error) error {
		e := &NotConnectedError{Method: method, Err: err}
		if last := c.down.Load(); last != nil {
			e.Last = *last
		}
		return e
	}
	var most <-chan time.Time // nil is for ever
	if d := c.opts.Reconnect.MaxWait; d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		most = timer.C
	}
	for {
		l, changed, err := c.current()
		if l != nil || err != nil {
			return l, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, late(context.Cause(ctx))
		case <-expired:
			return nil, late(nil)
		case <-most:
			return nil, late(&TimeoutError{Method: method, After: c.opts.Reconnect.MaxWait, option: "ReconnectPolicy.MaxWait"})
		}
	}
}

// send makes one request and waits for its answer. sent tells whether the server may have seen it.
func (x *exchange) send(ctx context.Context, l *link, t *terms) (result []byte, sent bool, err error) {
	p, err := l.conn.NewCall(x.r.method)
	if err != nil {
		return nil, false, err
	}
	x.compose(t)
	if err := p.SendWithin(ctx, x.patience(), x.params); err != nil {
		x.forget()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = fmt.Errorf("not sent, the server does not read: %w", x.timeout())
		}
		return nil, false, err
	}
	result, err = x.wait(ctx, l, p)
	x.forget()
	return result, true, err
}

// wait waits for the answer and runs callbacks meanwhile, all that came before it.
func (x *exchange) wait(ctx context.Context, l *link, p *jsonrpc.Pending) ([]byte, error) {
	left := false
	if x.watch != nil {
		defer func() {
			if !left {
				p.Cancel("gave up") // if a callback panics; else there is nothing left to cancel
			}
		}()
	}
	late := l.excuse()
	for {
		var err error
		reason := "timed out"
		select {
		case <-p.Done():
			x.watch.callBack()
			return p.Result()
		case <-x.watch.news():
			if x.watch.callBack() {
				x.arm()
				late = l.excuse()
			}
			continue
		case <-ctx.Done():
			reason = ctx.Err().Error() // the cause is no business of the server's
			if err = context.Cause(ctx); !errors.Is(err, ctx.Err()) {
				err = fmt.Errorf("%w: %w", ctx.Err(), err)
			}
			err = fmt.Errorf("call %s: %w", x.r.method, err)
		case <-x.expired():
			if more := late.more(); more > 0 && !x.overdue() {
				x.armFor(more)
				continue
			}
			err = x.timeout()
		}
		if x.r.asTask {
			left = x.c.cancelTaskOf(p)
		} else {
			left = x.mayBeTask(l) && l.withdraw(p, reason)
		}
		if left || p.Cancel(reason) {
			x.watch.callBack()
			return nil, err
		}
		<-p.Done() // the answer was first, by a hair
	}
}

// mayBeTask reports whether the server may make a task of the call without being asked to.
func (x *exchange) mayBeTask(l *link) bool {
	return l.terms.Load().Modern && x.c.opts.knowsResult(x.r.method, mcp.ResultTypeTask)
}

// compose writes the params of the request, in the shape of the terms, and registers the call for notifications.
func (x *exchange) compose(t *terms) {
	r := &x.r
	if x.watch != nil && r.watch == nil {
		x.watch.begin()
	}
	dst := append(x.params[:0], '{')
	open := len(dst)
	if t.Modern {
		dst = append(dst, t.meta...)
	} else {
		dst = append(dst, `"_meta":{`...)
	}
	start := len(dst)
	member := func() {
		if len(dst) > start || t.Modern {
			dst = append(dst, ',')
		}
	}
	if r.opts.progress != nil {
		member()
		dst = strconv.AppendInt(append(dst, `"`+mcp.MetaProgressToken+`":`...), x.watch.token, 10)
	}
	if t.Modern && r.opts.log != nil {
		member()
		dst = jsonwire.AppendQuote(append(dst, `"`+mcp.MetaLogLevel+`":`...), r.opts.logLevel.String())
	}
	if len(r.opts.meta) > 0 {
		member()
		dst = append(dst, r.opts.meta...)
	}
	if len(dst) == start && !t.Modern {
		dst = dst[:open] // there is nothing to say
	} else {
		dst = append(dst, '}')
	}
	x.params = x.appendParams(dst, open)
}

// appendParams appends the members of the request's params, and what the round adds to them.
func (x *exchange) appendParams(dst []byte, open int) []byte {
	next := func(dst []byte) []byte {
		if len(dst) > open {
			dst = append(dst, ',')
		}
		return dst
	}
	if members := inside(x.r.params); len(members) > 0 {
		dst = append(next(dst), members...)
	}
	if x.inputs != nil {
		dst = append(append(next(dst), `"inputResponses":`...), x.inputs...)
	}
	if x.state != nil {
		dst = append(append(next(dst), `"requestState":`...), x.state...)
	}
	return append(dst, '}')
}

// check says what is wrong with a result of these terms, and otherwise whether the server asks for input.
func (x *exchange) check(t *terms, result []byte) (asks bool, err error) {
	if len(result) == 0 || result[0] != '{' {
		return false, &ProtocolError{Method: x.r.method, Reason: "the result is no object"}
	}
	if !t.Modern {
		return false, nil // a member of that name means nothing
	}
	switch kind := era.ResultType(result); {
	case kind == "" || kind == mcp.ResultTypeComplete:
		return false, nil
	case kind == mcp.ResultTypeInputRequired && era.AllowsInput(x.r.method):
		return true, nil
	case x.c.opts.knowsResult(x.r.method, kind):
		return false, nil
	default:
		return false, &ProtocolError{Method: x.r.method, Reason: fmt.Sprintf("resultType %.40q is not one for it", kind)}
	}
}
