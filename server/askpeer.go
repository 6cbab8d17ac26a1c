package server

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"mcpwire/jsonrpc"
)

// A legacyRequester asks by requests to the client, and waits: the way of legacy revisions.
type legacyRequester struct{ call *Call }

func (*legacyRequester) respond(_ *inputState, _ *jsonrpc.Request, _, out []byte, err error) ([]byte, error) {
	return out, err
}

// ask sends all questions at once. When one fails, the others are cancelled. The answers are read by the goroutine of the handler, as that may call code of
// the user's, which may panic.
func (lr *legacyRequester) ask(ctx context.Context, requests []*inputRequest) error {
	ctx, cancel := lr.call.joinContext(ctx)
	defer cancel()
	answers := make([][]byte, len(requests))
	var once sync.Once
	var firstErr error
	request := func(i int) {
		var err error
		if answers[i], err = lr.request(ctx, requests[i]); err != nil {
			once.Do(func() { firstErr = err })
			cancel()
		}
	}
	var others sync.WaitGroup
	for i := 1; i < len(requests); i++ {
		others.Go(func() { request(i) })
	}
	request(0)
	others.Wait()
	if firstErr != nil {
		return firstErr
	}
	for i, q := range requests {
		if err := q.decode(answers[i]); err != nil {
			return q.invalid(err)
		}
	}
	return nil
}

// request asks one question and returns the answer as it came.
func (lr *legacyRequester) request(ctx context.Context, q *inputRequest) ([]byte, error) {
	if q.id != "" {
		lr.call.session.rememberElicitation(q.id)
	}
	answer, err := lr.call.session.call(ctx, lr.call, q.method, q.params)
	if err == nil {
		return answer, nil
	}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return nil, &InputError{Key: q.key, Method: q.method, Refused: true, Err: e}
	}
	err = fmt.Errorf("ask the client %q: %w", q.key, err)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return nil, err
}

// joinContext returns a context that stems from the call, so that a request made with it is one of the call, and that ends with ctx too.
func (c *Call) joinContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if CallOf(ctx) == c {
		return context.WithCancel(ctx)
	}
	joined, cancel := context.WithCancelCause(c)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return joined, func() { stop(); cancel(nil) }
}
