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
	upkeep     bool   // the client makes it by itself on each new connection: that it was answered says nothing about how the server serves
	asTask     bool   // it asks a legacy server for a task, and is not cancelled otherwise than as one
	watch      *watch // of a task, which outlasts the request; nil if what opts want ends with it

	limit time.Time // when the time of the whole call is over that the request is a part of; the zero time if it is all of it

	rounds int // of questions that it took; set by roundTrip
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
		result, err = c.call(ctx, &q)
		r.rounds = q.rounds
		return result, err
	}
	return c.perform(ctx, r)
}

// perform is roundTrip without the middleware.
func (c *Client) perform(ctx context.Context, r *request) (result []byte, err error) {
	x := c.begin(r)
	defer x.end()
	for r.rounds = 0; ; r.rounds++ {
		result, asks, err := x.request(ctx)
		if err != nil || !asks {
			return result, err
		}
		x.r.rounds = r.rounds
		if r.rounds >= c.opts.MaxRounds {
			return nil, fmt.Errorf("call %s: %w: %d times", r.method, ErrTooManyRounds, r.rounds+1)
		}
		if err := x.answer(ctx, result); err != nil {
			return nil, err
		}
	}
}

// request gets one result: it sends the request again where the protocol or the caller allows it.
func (x *exchange) request(ctx context.Context) (result []byte, asks bool, err error) {
	x.arm()
	for {
		l, err := x.link(ctx)
		if err != nil {
			return nil, false, err
		}
		t := l.terms.Load()
		result, sent, err := x.send(ctx, l, t)
		if err == nil {
			t.confirm()
			x.answered(l)
			asks, err = x.check(t, result)
			if err != nil {
				return nil, false, err
			}
			return result, asks, nil
		}
		if err := x.failed(ctx, l, t, sent, err); err != nil {
			return nil, false, err
		}
		if sent {
			x.arm()
		}
	}
}

// answered notes that a link serves.
func (x *exchange) answered(l *link) {
	if !x.r.upkeep && !l.served.Load() {
		l.served.Store(true)
	}
}

// failed decides what becomes of a request that failed: its error is the call's or, if failed returns nil, it is sent again.
func (x *exchange) failed(ctx context.Context, l *link, t *terms, sent bool, err error) error {
	if _, ok := errors.AsType[*jsonrpc.TooLargeError](err); ok {
		return err // it has been carried out, and would be as large the next time
	}
	if e, ok := errors.AsType[*jsonrpc.CallError](err); ok && !errors.Is(err, jsonrpc.ErrMalformed) { // first: what it wraps may be an error of the server's, which is no answer
		return x.miscarried(ctx, l, t, e, err)
	}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		x.answered(l)
		switch {
		case t.Modern && e.Code == mcp.CodeUnsupportedProtocolVersion:
			return x.adopt(l, t, e, err)
		case t.Modern && e.Code == mcp.CodeHeaderMismatch && x.r.method == mcp.MethodToolsCall && !x.relisted:
			return x.relist(ctx)
		case !t.confirmed.Load() && !era.IsModernError(e):
			return x.doubt(ctx, l, t, err)
		}
		return err
	}
	if errors.Is(err, jsonrpc.ErrMalformed) {
		return &ProtocolError{Method: x.r.method, Reason: "the response is no JSON-RPC response", Err: err}
	}
	if !isLost(err) {
		return err
	}
	x.c.lost(l)
	if !sent {
		return nil // nothing has happened: it is not even a repetition
	}
	if !x.mayRepeat() {
		return err
	}
	x.attempts++
	return x.pauseFor(ctx, x.c.opts.Retry.after(x.attempts-1), err)
}

// adopt goes on in a revision that the server names in an error about the version. The request was not carried out, so it may be sent again.
func (x *exchange) adopt(l *link, t *terms, e *jsonrpc.Error, err error) error {
	c := x.c
	if x.adopted++; x.adopted > maxAdopted {
		return err
	}
	names := era.Supported(e)
	modern, legacy := era.Common(c.opts.Revisions, names)
	switch {
	case l.terms.Load() != t: // another call did it
	case modern != mcp.RevisionNone:
		v := *t.verdict
		v.Revision = modern
		c.known.Store(&v)
		l.setTerms(c.newTerms(&v))
	case legacy != mcp.RevisionNone:
		l.retire(&Verdict{Revision: legacy})
	default:
		return &IncompatibleError{Client: c.opts.Revisions, Server: names, Err: err}
	}
	return nil
}

// doubt looks whether a server whose first answer is an error is as modern as [Options.Known] says. If it is not, the connection is made anew.
func (x *exchange) doubt(ctx context.Context, l *link, t *terms, err error) error {
	ctx, cancel := x.bounded(ctx)
	defer cancel()
	result, probe := l.ask(ctx, mcp.MethodDiscover, x.c.discoverParams(t.Revision), x.c.opts.ProbeTimeout)
	e, answered := errors.AsType[*jsonrpc.Error](probe)
	if probe == nil {
		_, probe = era.ReadDiscover(result)
	}
	if probe == nil || answered && era.IsModernError(e) {
		t.confirm()
		return err
	}
	if ctx.Err() != nil {
		return err
	}
	x.c.log.Warn("the server is not as modern as it was said to be", "error", probe)
	l.retire(nil)
	if !x.mayRepeat() {
		return fmt.Errorf("%w (the server turned out not to speak %v; what it does speak is found out now)", err, t.Revision)
	}
	x.attempts++
	return nil
}

// mayRepeat reports whether a request that the server may have carried out may be sent once more.
func (x *exchange) mayRepeat() bool {
	r := &x.r
	repeatable := r.opts.retry == retryAlways || r.repeatable && r.opts.retry != retryNever
	return repeatable && x.attempts < x.c.opts.Retry.MaxAttempts
}

// pauseFor waits before a request is sent again that failed with err, nil if it did not fail. If the call has not so much time left, it fails with err at once.
func (x *exchange) pauseFor(ctx context.Context, d time.Duration, err error) error {
	ctx, cancel := x.bounded(ctx)
	defer cancel()
	if end, ok := ctx.Deadline(); err != nil && (ok && time.Until(end) < d || x.idle > 0 && x.idle < d) {
		return err
	}
	if !pause(ctx, d) {
		return x.interrupted(ctx)
	}
	return nil
}

// bounded returns a context that also ends when the time of the whole call is over.
func (x *exchange) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if x.max == 0 {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, x.limit, &TimeoutError{Method: x.r.method, After: x.max, Max: true})
}

// interrupted is the error of a call whose context, as bounded gave it, has ended between two requests.
func (x *exchange) interrupted(ctx context.Context) error {
	cause := context.Cause(ctx)
	if _, ok := errors.AsType[*TimeoutError](cause); ok {
		return cause
	}
	return fmt.Errorf("call %s: %w", x.r.method, cause)
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

// inside returns the members of an object's text, without the brackets.
func inside(object []byte) []byte {
	object = bytes.TrimSpace(object)
	if len(object) < 2 {
		return nil
	}
	return bytes.TrimSpace(object[1 : len(object)-1])
}
