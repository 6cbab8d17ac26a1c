package server

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"mcpwire/jsonrpc"
)

// A peerAsker asks by requests to the client, and waits: the way of legacy revisions.
type peerAsker struct{ call *Call }

func (*peerAsker) settle(_ *dialogue, _ *jsonrpc.Request, _, out []byte, err error) ([]byte, error) {
	return out, err
}

// ask sends all questions at once. When one fails, the others are cancelled. The answers are read by the goroutine of the handler, as that may call code of
// the user's, which may panic.
func (a *peerAsker) ask(ctx context.Context, questions []*question) error {
	ctx, cancel := a.call.during(ctx)
	defer cancel()
	answers := make([][]byte, len(questions))
	var once sync.Once
	var first error
	request := func(i int) {
		var err error
		if answers[i], err = a.request(ctx, questions[i]); err != nil {
			once.Do(func() { first = err })
			cancel()
		}
	}
	var others sync.WaitGroup
	for i := 1; i < len(questions); i++ {
		others.Go(func() { request(i) })
	}
	request(0)
	others.Wait()
	if first != nil {
		return first
	}
	for i, q := range questions {
		if err := q.take(answers[i]); err != nil {
			return q.bad(err)
		}
	}
	return nil
}

// request asks one question and returns the answer as it came.
func (a *peerAsker) request(ctx context.Context, q *question) ([]byte, error) {
	if q.id != "" {
		a.call.session.elicited(q.id)
	}
	answer, err := a.call.session.call(ctx, a.call, q.method, q.params)
	if err == nil {
		return answer, nil
	}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return nil, &AnswerError{Key: q.key, Method: q.method, Refused: true, Err: e}
	}
	err = fmt.Errorf("ask the client %q: %w", q.key, err)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return nil, err
}

// during returns a context that stems from the call, so that a request made with it is one of the call, and that ends with ctx too.
func (c *Call) during(ctx context.Context) (context.Context, context.CancelFunc) {
	if CallOf(ctx) == c {
		return context.WithCancel(ctx)
	}
	both, cancel := context.WithCancelCause(c)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return both, func() { stop(); cancel(nil) }
}
