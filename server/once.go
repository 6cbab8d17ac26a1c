package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
)

// A memo is the result of a function that is run once in a call, or will be.
type onceResult struct {
	done  chan struct{}
	value json.RawMessage
	err   error
}

var errOncePanicked = errors.New("the function panicked")

// Once runs fn, unless an earlier run of the handler has done it for the same call: then it returns what fn returned then. It is for what must not be
// done again when the handler is run again after a question to the client: a side effect, or something that has to stay the same, such as a random
// number or the time. Several calls of Once with the same key, in one or many goroutines, run fn once.
//
//	order, err := server.Once(ctx, "order", func(ctx context.Context) (Order, error) { return shop.Place(ctx, in.Item) })
//
// The result is remembered in the state that the client keeps, where it can be neither read nor changed, and must fit there (see
// [Options.MaxStateBytes]). It is what encoding/json makes of it, in the first run too. An error is not remembered: the next run tries again. What
// fn has not finished when the handler returns is not remembered either.
//
// A client that repeats a call, or a round of one, has it done again: see [Options.SingleUseState], or give what fn calls an idempotency key that
// comes from the client. So has a [Middleware] that calls next again. fn must not call Once with the same key, which would wait for itself. If ctx does
// not stem from a call, fn just runs.
func Once[T any](ctx context.Context, key string, fn func(context.Context) (T, error)) (T, error) {
	var v T
	c := CallOf(ctx)
	switch {
	case c == nil:
		return fn(ctx)
	case !utf8.ValidString(key):
		return v, fmt.Errorf("once %q: %w", key, errInvalidKey)
	}
	text, err := c.inputState().once(ctx, key, func() (json.RawMessage, error) {
		v, err := fn(ctx)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(v)
		if err == nil {
			err = jsonwire.Valid(text, 0) // see Call.Log
		}
		if err == nil {
			err = json.Unmarshal(text, new(T))
		}
		if err != nil {
			return nil, fmt.Errorf("once %q: it was done, but its result cannot be remembered: %w", key, err)
		}
		return text, nil
	})
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return v, fmt.Errorf("once %q: what was remembered is not a %T: %w", key, v, err)
	}
	return v, nil
}

// once runs fn unless it is known what it returns.
func (is *inputState) once(ctx context.Context, key string, fn func() (json.RawMessage, error)) (json.RawMessage, error) {
	is.mu.Lock()
	m := is.onceResults[key]
	switch {
	case m == nil && is.ended:
		is.mu.Unlock()
		return nil, fmt.Errorf("once %q: %w", key, jsonrpc.ErrRequestEnded)
	case m == nil:
		m = &onceResult{done: make(chan struct{}), err: errOncePanicked}
		is.onceResults[key] = m
		is.mu.Unlock()
		is.runOnce(key, m, fn)
		return m.value, m.err
	}
	is.mu.Unlock()
	select {
	case <-m.done:
		return m.value, m.err
	case <-ctx.Done():
		return nil, fmt.Errorf("once %q: %w", key, ctx.Err())
	}
}

// runOnce runs fn, and forgets it again if it fails.
func (is *inputState) runOnce(key string, m *onceResult, fn func() (json.RawMessage, error)) {
	defer func() {
		is.mu.Lock()
		defer is.mu.Unlock()
		if m.err != nil {
			delete(is.onceResults, key)
		}
		close(m.done)
	}()
	m.value, m.err = fn()
}

var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// savedOnce returns the memo of an earlier run.
func savedOnce(value json.RawMessage) *onceResult { return &onceResult{done: closedChan, value: value} }

// onceValues returns the results there are.
func (is *inputState) onceValues() map[string]json.RawMessage {
	is.mu.Lock()
	defer is.mu.Unlock()
	all := make(map[string]json.RawMessage)
	for key, m := range is.onceResults {
		select {
		case <-m.done:
			all[key] = m.value
		default:
		}
	}
	return all
}
