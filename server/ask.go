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

// maxQuestions is how many questions one run of a handler may ask.
const maxQuestions = 64

var (
	// ErrInputRequired is what asking the client fails with if the answer is not there yet and the revision has no way to wait for it. The handler should
	// return, with this error or another: the client is told what is asked, and when it comes back with the answers, the handler runs again from its
	// beginning. Whatever it returned is dropped.
	ErrInputRequired = errors.New("the client has to answer first; the handler will run again")
	// ErrCannotAsk is what asking the client fails with in requests of other methods than tools/call, prompts/get and resources/read
	// (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr).
	ErrCannotAsk = errors.New("the client can be asked in tools/call, prompts/get and resources/read only")

	errKey       = errors.New("it needs a key, of valid UTF-8")
	errAskedHere = errors.New("there was a question with that key already: each one of a call needs its own")
	errQuestions = fmt.Errorf("more than %d questions in one call", maxQuestions)
)

// An AnswerError says that a client did not answer a question in a way that can be used: what it sent is not what was asked for, or, in legacy
// revisions, it answered with an error. That a user declines is no error, but an answer.
type AnswerError struct {
	Key     string
	Method  string // that the client was asked with
	Refused bool   // the client answered with an error
	Err     error  // if Refused, the client's *jsonrpc.Error. Not unwrapped: an error of the client is not one of this server
}

func (e *AnswerError) Error() string {
	if e.Refused {
		return fmt.Sprintf("%s %q: the client refused: %v", e.Method, e.Key, e.Err)
	}
	return fmt.Sprintf("%s %q: the client's answer cannot be used: %v", e.Method, e.Key, e.Err)
}

// A question is one thing that the client is asked.
type question struct {
	key     string
	method  string
	params  []byte // in the shape of the call's revision; nil is none
	feature ClientFeature
	id      string // elicitationId, where the revision has it

	// take decodes and checks an answer, and leaves it where the handler looks for it. It keeps nothing of the text.
	take func(answer []byte) error
}

// A digest tells questions apart.
type digest [16]byte

func (q *question) digest() digest {
	h := sha256.New()
	h.Write([]byte(q.method))
	h.Write([]byte{0})
	h.Write(q.params)
	return digest(h.Sum(nil)[:len(digest{})])
}

// bad is the error for an answer that cannot be used.
func (q *question) bad(err error) error { return &AnswerError{Key: q.key, Method: q.method, Err: err} }

// An asker has questions answered in the way of an era. Its methods may be called by many goroutines at once.
type asker interface {
	// ask hands each question its answer, or fails. The questions are legitimate: the client has the features, and no other question has their keys.
	ask(ctx context.Context, questions []*question) error
	// settle turns what the handler returned, which is appended to head, into the answer to the request. It is called once, last.
	settle(d *dialogue, r *jsonrpc.Request, head, out []byte, err error) ([]byte, error)
}

// A dialogue is what one run of a handler asks the client, and what it must not do a second time.
type dialogue struct {
	asker asker
	stamp seal.Stamp // of the state that the request came with

	mu    sync.Mutex
	ended bool // the handler has returned
	asked map[string]struct{}
	memos map[string]*memo // see Once
}

func newDialogue(a asker) *dialogue {
	return &dialogue{asker: a, asked: make(map[string]struct{}), memos: make(map[string]*memo)}
}

// dialogue returns that of the call, which begins with its first question.
func (c *Call) dialogue() *dialogue {
	if d := c.talk.Load(); d != nil {
		return d
	}
	c.talk.CompareAndSwap(nil, newDialogue(c.newAsker()))
	return c.talk.Load()
}

func (c *Call) newAsker() asker {
	switch {
	case !mayAsk(c.method):
		return mute{}
	case c.ex.Modern:
		return &round{call: c}
	}
	return &peerAsker{call: c}
}

func mayAsk(method string) bool {
	switch method {
	case mcp.MethodToolsCall, mcp.MethodPromptsGet, mcp.MethodResourcesRead:
		return true
	}
	return false
}

// settle makes the answer to the request of what its handler returned, which is appended to head: a call with questions that are open is answered with
// them. It is the last thing that is done for a call that may ask.
func (c *Call) settle(r *jsonrpc.Request, head, out []byte, err error) ([]byte, error) {
	if err != nil {
		out, err = c.convertURLRequired(head, out, err)
	}
	d := c.talk.Load()
	if d == nil {
		return out, err
	}
	d.mu.Lock()
	d.ended = true
	d.mu.Unlock()
	return d.asker.settle(d, r, head, out, err)
}

// claim makes sure that the questions may be asked, and that nobody else does it.
func (d *dialogue) claim(questions []*question) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return jsonrpc.ErrRequestEnded
	}
	for i, q := range questions {
		_, taken := d.asked[q.key]
		for _, before := range questions[:i] {
			taken = taken || before.key == q.key
		}
		if taken {
			return fmt.Errorf("%s %q: %w", q.method, q.key, errAskedHere)
		}
	}
	if len(d.asked)+len(questions) > maxQuestions {
		return errQuestions
	}
	for _, q := range questions {
		d.asked[q.key] = struct{}{}
	}
	return nil
}

// mute is the asker of calls that may not ask.
type mute struct{}

func (mute) ask(context.Context, []*question) error { return ErrCannotAsk }

func (mute) settle(_ *dialogue, _ *jsonrpc.Request, _, out []byte, err error) ([]byte, error) {
	return out, err
}

// Questions are put to the client together: in one round, and at the same time where it is asked by requests. Make some with [Call.Questions]. They are
// for one goroutine; several may have their own.
type Questions struct {
	call *Call
	list []*question
	err  error
}

// Questions returns an empty set of questions. Add them, then call [Questions.Wait].
//
//	q := call.Questions()
//	roots := q.Roots("roots")
//	name := server.Form[Name](q, "name", "What is it to be called?")
//	if err := q.Wait(ctx); err != nil {
//		return "", err
//	}
//	use(roots.Value(), name.Value())
func (c *Call) Questions() *Questions { return &Questions{call: c} }

// A Reply is where the answer to one of [Questions] is, once Wait has returned nil.
type Reply[T any] struct{ value T }

// Value returns the answer. It is the zero value as long as there is none.
func (r *Reply[T]) Value() T { return r.value }

// add adds a question, or the reason why it cannot be asked.
func (qs *Questions) add(q *question, err error) {
	switch {
	case err != nil:
	case q.key == "" || !utf8.ValidString(q.key):
		err = errKey
	case q.params != nil: // JSON texts in it may be anything
		err = jsonwire.Valid(q.params, 0)
	}
	if err != nil {
		qs.err = errors.Join(qs.err, fmt.Errorf("%s %q: %w", q.method, q.key, err))
		return
	}
	qs.list = append(qs.list, q)
}

// Wait asks the client what was added, all at once, and returns when each question is answered.
//
// In modern revisions no handler waits: Wait fails with [ErrInputRequired], the handler returns, and when the client comes back with the answers it RUNS
// AGAIN FROM ITS BEGINNING. This time Wait returns nil at once. What is done before a question is done as often as the handler runs, so put side effects
// behind the last question or into [Once].
//
// None is asked if one of them cannot be: a key is missing or was used before, a question has a fault, there are more than 64 in one run of the handler, or
// the client lacks a feature, which is an [*UnsupportedError]. An answer that cannot be used is an [*AnswerError]. When ctx or the call ends first, the client is told that it need not
// answer any more. In legacy revisions the time that the client takes is part of [Options.HandlerTimeout]; if ctx has no deadline, Wait gives up after
// [Options.StateTTL].
func (qs *Questions) Wait(ctx context.Context) error {
	list, err := qs.list, qs.err
	qs.list, qs.err = nil, nil
	if err != nil || len(list) == 0 {
		return err
	}
	c := qs.call
	if !mayAsk(c.method) {
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
	d := c.dialogue()
	if err := d.claim(list); err != nil {
		return err
	}
	return d.asker.ask(ctx, list)
}

// one asks a single question.
func one[T any](ctx context.Context, c *Call, add func(*Questions) *Reply[T]) (T, error) {
	q := c.Questions()
	r := add(q)
	if err := q.Wait(ctx); err != nil {
		var zero T
		return zero, err
	}
	return r.Value(), nil
}
