package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
)

// A onceResult is the result of a function that runs once in a call.
type onceResult struct {
	done  chan struct{}
	value json.RawMessage
	err   error
}

var errOncePanicked = errors.New("the function panicked")

// Once runs fn unless an earlier run of the handler for the same call has done so; then it returns
// the earlier result. Use it for code that must not run again after an input request: side effects,
// random numbers, the time. Calls with the same key, also from multiple goroutines, run fn once.
//
//	order, err := server.Once(ctx, "order", func(ctx context.Context) (Order, error) {
//		return shop.Place(ctx, in.Item)
//	})
//
// The result must fit into the request state that the client keeps (see
// [InputOptions.MaxStateBytes]). The client can neither read nor change it. It passes through
// encoding/json, also in the first run. Errors are not remembered: the next run calls fn again. A
// result is lost if fn finishes after the handler has returned.
//
// If a client repeats a call or a round, fn runs again: see [InputOptions.SingleUseState], or give
// fn an idempotency key from the client. The same is true for a [Middleware] that calls next again.
// fn must not call Once with the same key, which would deadlock. If ctx does not derive from a
// call, Once just runs fn.
func Once[T any](ctx context.Context, key string, fn func(context.Context) (T, error)) (T, error) {
	var v T
	c := CallOf(ctx)
	switch {
	case c == nil:
		return fn(ctx)
	case !utf8.ValidString(key):
		return v, fmt.Errorf("once %q: %w", key, errInvalidKey)
	}
	text, err := c.session.srv.inputs.stateOf(c).once(ctx, key, func() (json.RawMessage, error) {
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
			return nil, fmt.Errorf("once %q: the function ran, but its result cannot be stored: %w", key, err)
		}
		return text, nil
	})
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return v, fmt.Errorf("once %q: the stored result is not a %T: %w", key, v, err)
	}
	return v, nil
}

// once returns the result of fn, or a remembered one.
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

// runOnce runs fn and removes the result if it is an error.
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

// savedOnce returns the result of an earlier run.
func savedOnce(value json.RawMessage) *onceResult { return &onceResult{done: closedChan, value: value} }

// onceValues returns the finished results.
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
