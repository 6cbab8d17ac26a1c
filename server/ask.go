package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"unicode/utf8"

	"mcpwire/internal/jsonwire"
	"mcpwire/internal/seal"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxInputRequests is how many questions one run of a handler may ask.
const maxInputRequests = 64

var (
	// ErrInputRequired is what asking the client fails with if the answer is not there yet and the revision has no way to wait for it. The handler should
	// return, with this error or another: the client is told what is asked, and when it comes back with the answers, the handler runs again from its
	// beginning. Whatever it returned is dropped.
	ErrInputRequired = errors.New("the client has to answer first; the handler will run again")
	// ErrCannotAsk is what asking the client fails with in requests of other methods than tools/call, prompts/get and resources/read
	// (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr).
	ErrCannotAsk = errors.New("the client can be asked in tools/call, prompts/get and resources/read only")

	errInvalidKey           = errors.New("it needs a key, of valid UTF-8")
	errDuplicateKey         = errors.New("there was a question with that key already: each one of a call needs its own")
	errTooManyInputRequests = fmt.Errorf("more than %d questions in one call", maxInputRequests)
)

// An InputError says that a client did not answer a question in a way that can be used: what it sent is not what was asked for, or, in legacy
// revisions, it answered with an error. That a user declines is no error, but an answer.
type InputError struct {
	Key     string
	Method  string // that the client was asked with
	Refused bool   // the client answered with an error
	Err     error  // if Refused, the client's *jsonrpc.Error. Not unwrapped: an error of the client is not one of this server
}

func (e *InputError) Error() string {
	if e.Refused {
		return fmt.Sprintf("%s %q: the client refused: %v", e.Method, e.Key, e.Err)
	}
	return fmt.Sprintf("%s %q: the client's answer cannot be used: %v", e.Method, e.Key, e.Err)
}

// A question is one thing that the client is asked.
type inputRequest struct {
	key     string
	method  string
	params  []byte // in the shape of the call's revision; nil is none
	feature ClientFeature
	id      string // elicitationId, where the revision has it

	// decode decodes and checks an answer, and leaves it where the handler looks for it. It keeps nothing of the text.
	decode func(answer []byte) error
}

// A digest tells questions apart.
type digest [16]byte

func (ir *inputRequest) digest() digest {
	h := sha256.New()
	h.Write([]byte(ir.method))
	h.Write([]byte{0})
	h.Write(ir.params)
	return digest(h.Sum(nil)[:len(digest{})])
}

// invalid is the error for an answer that cannot be used.
func (ir *inputRequest) invalid(err error) error {
	return &InputError{Key: ir.key, Method: ir.method, Err: err}
}

// An asker has questions answered in the way of an era. Its methods may be called by many goroutines at once.
type inputRequester interface {
	// ask hands each question its answer, or fails. The questions are legitimate: the client has the features, and no other question has their keys.
	ask(ctx context.Context, questions []*inputRequest) error
	// respond turns what the handler returned, which is appended to head, into the answer to the request. It is called once, last.
	respond(d *inputState, r *jsonrpc.Request, head, out []byte, err error) ([]byte, error)
}

// A dialogue is what one run of a handler asks the client, and what it must not do a second time.
type inputState struct {
	requester inputRequester
	stamp     seal.Stamp // of the state that the request came with

	mu          sync.Mutex
	ended       bool // the handler has returned
	asked       map[string]struct{}
	onceResults map[string]*onceResult // see Once
}

func newInputState(requester inputRequester) *inputState {
	return &inputState{requester: requester, asked: make(map[string]struct{}), onceResults: make(map[string]*onceResult)}
}

// inputState returns that of the call, which begins with its first question.
func (c *Call) inputState() *inputState {
	if d := c.input.Load(); d != nil {
		return d
	}
	c.input.CompareAndSwap(nil, newInputState(c.newRequester()))
	return c.input.Load()
}

func (c *Call) newRequester() inputRequester {
	switch {
	case !mayRequestInput(c.method):
		return noInput{}
	case c.ex.Modern:
		return &inputRound{call: c}
	}
	return &legacyRequester{call: c}
}

func mayRequestInput(method string) bool {
	switch method {
	case mcp.MethodToolsCall, mcp.MethodPromptsGet, mcp.MethodResourcesRead:
		return true
	}
	return false
}

// respond makes the answer to the request of what its handler returned, which is appended to head: a call with questions that are open is answered with
// them. It is the last thing that is done for a call that may ask.
func (c *Call) respond(r *jsonrpc.Request, head, out []byte, err error) ([]byte, error) {
	if err != nil {
		out, err = c.convertURLRequired(head, out, err)
	}
	d := c.input.Load()
	if d == nil {
		return out, err
	}
	d.mu.Lock()
	d.ended = true
	d.mu.Unlock()
	return d.requester.respond(d, r, head, out, err)
}

// reserveKeys makes sure that the questions may be asked, and that nobody else does it.
func (is *inputState) reserveKeys(requests []*inputRequest) error {
	is.mu.Lock()
	defer is.mu.Unlock()
	if is.ended {
		return jsonrpc.ErrRequestEnded
	}
	for i, q := range requests {
		_, duplicate := is.asked[q.key]
		for _, before := range requests[:i] {
			duplicate = duplicate || before.key == q.key
		}
		if duplicate {
			return fmt.Errorf("%s %q: %w", q.method, q.key, errDuplicateKey)
		}
	}
	if len(is.asked)+len(requests) > maxInputRequests {
		return errTooManyInputRequests
	}
	for _, q := range requests {
		is.asked[q.key] = struct{}{}
	}
	return nil
}

// noInput is the asker of calls that may not ask.
type noInput struct{}

func (noInput) ask(context.Context, []*inputRequest) error { return ErrCannotAsk }

func (noInput) respond(_ *inputState, _ *jsonrpc.Request, _, out []byte, err error) ([]byte, error) {
	return out, err
}

// InputRequests are put to the client together: in one round, and at the same time where it is asked by requests. Make some with [Call.InputRequests]. They are
// for one goroutine; several may have their own.
type InputRequests struct {
	call *Call
	list []*inputRequest
	err  error
}

// InputRequests returns an empty set of questions. Add them, then call [InputRequests.Wait].
//
//	q := call.InputRequests()
//	roots := q.Roots("roots")
//	name := server.Form[Name](q, "name", "What is it to be called?")
//	if err := q.Wait(ctx); err != nil {
//		return "", err
//	}
//	use(roots.Value(), name.Value())
func (c *Call) InputRequests() *InputRequests { return &InputRequests{call: c} }

// A Reply is where the answer to one of [InputRequests] is, once Wait has returned nil.
type Reply[T any] struct{ value T }

// Value returns the answer. It is the zero value as long as there is none.
func (r *Reply[T]) Value() T { return r.value }

// add adds a question, or the reason why it cannot be asked.
func (rs *InputRequests) add(q *inputRequest, err error) {
	switch {
	case err != nil:
	case q.key == "" || !utf8.ValidString(q.key):
		err = errInvalidKey
	case q.params != nil: // JSON texts in it may be anything
		err = jsonwire.Valid(q.params, 0)
	}
	if err != nil {
		rs.err = errors.Join(rs.err, fmt.Errorf("%s %q: %w", q.method, q.key, err))
		return
	}
	rs.list = append(rs.list, q)
}

// Wait asks the client what was added, all at once, and returns when each question is answered.
//
// In modern revisions no handler waits: Wait fails with [ErrInputRequired], the handler returns, and when the client comes back with the answers it RUNS
// AGAIN FROM ITS BEGINNING. This time Wait returns nil at once. What is done before a question is done as often as the handler runs, so put side effects
// behind the last question or into [Once].
//
// None is asked if one of them cannot be: a key is missing or was used before, a question has a fault, there are more than 64 in one run of the handler, or
// the client lacks a feature, which is an [*UnsupportedError]. An answer that cannot be used is an [*InputError]. When ctx or the call ends first, the client is told that it need not
// answer any more. In legacy revisions the time that the client takes is part of [Options.HandlerTimeout]; if ctx has no deadline, Wait gives up after
// [Options.StateTTL].
func (rs *InputRequests) Wait(ctx context.Context) error {
	list, err := rs.list, rs.err
	rs.list, rs.err = nil, nil
	if err != nil || len(list) == 0 {
		return err
	}
	c := rs.call
	if !mayRequestInput(c.method) {
		return ErrCannotAsk
	}
	features := make([]ClientFeature, 0, numClientFeatures)
	var seen [numClientFeatures]bool
	for _, q := range list {
		if !seen[q.feature] {
			seen[q.feature] = true
			features = append(features, q.feature)
		}
	}
	if err := c.Require(features...); err != nil {
		return err
	}
	for _, end := range []context.Context{ctx, c} {
		if err := end.Err(); err != nil {
			return fmt.Errorf("ask the client: %w", err)
		}
	}
	d := c.inputState()
	if err := d.reserveKeys(list); err != nil {
		return err
	}
	return d.requester.ask(ctx, list)
}

// askOne asks a single question.
func askOne[T any](ctx context.Context, c *Call, add func(*InputRequests) *Reply[T]) (T, error) {
	q := c.InputRequests()
	r := add(q)
	if err := q.Wait(ctx); err != nil {
		var zero T
		return zero, err
	}
	return r.Value(), nil
}
