package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
)

const (
	maxInputs        = 100 // that one result may ask for
	concurrentInputs = 8   // handlers that answer them at once
)

// answer reads an InputRequiredResult (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr) and gets what it asks for. The state is
// the server's: it is handed back as it came, and not looked into.
func (x *exchange) answer(ctx context.Context, result []byte) error {
	var requests []byte
	x.inputs, x.state = nil, nil
	members := jsonwire.ObjectMembers(result)
	for members.Next() {
		v := members.Value()
		switch {
		case string(v) == "null":
		case members.KeyIs("inputRequests"):
			if v[0] != '{' {
				return x.violation("inputRequests is no object")
			}
			requests = v
		case members.KeyIs("requestState"):
			if v[0] != '"' {
				return x.violation("requestState is no string")
			}
			x.state = v
		}
	}
	if len(inside(requests)) == 0 {
		if x.state == nil {
			return x.violation("input is required, but neither inputRequests nor requestState says what to do")
		}
		return x.pauseFor(ctx, x.c.opts.Retry.after(x.r.rounds+1), nil) // the server is busy, or wants the request elsewhere
	}
	ctx, cancel := x.bounded(ctx)
	defer cancel()
	inputs, err := x.c.answerInputs(ctx, requests)
	x.inputs = inputs
	switch _, bad := errors.AsType[*refusal](err); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return x.interrupted(ctx)
	case bad:
		return x.violation(err.Error())
	}
	return fmt.Errorf("call %s: %w", x.r.method, err)
}

func (x *exchange) violation(reason string) error {
	return &ProtocolError{Method: x.r.method, Reason: reason}
}

// An InputError is what a call fails with because the server needed input that a handler of [Options] did not give.
type InputError struct {
	Method string // what the server asked for: sampling/createMessage, for example
	Err    error  // of the handler, or what is wrong with what it gave
}

func (e *InputError) Error() string {
	return fmt.Sprintf("no answer to the server's %s: %v", e.Method, e.Err)
}

// Unwrap returns Err, but for a *jsonrpc.Error: that would look as if the server had answered it.
func (e *InputError) Unwrap() error {
	if IsPeer(e.Err) {
		return nil
	}
	return e.Err
}

// answerInputs has the handlers answer what the server asks for. requests is the text of an InputRequests object, responses that of the matching
// InputResponses object. The error is an *InputError, or says what is wrong with the requests.
func (c *Client) answerInputs(ctx context.Context, requests []byte) (responses []byte, err error) {
	keys, inputs, err := readInputs(requests)
	if err != nil {
		return nil, err
	}
	t := c.terms.Load()
	results := make([][]byte, len(inputs))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	slots := make(chan struct{}, concurrentInputs)
	for i := range inputs {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			var err error
			if results[i], err = c.protect(ctx, &inputs[i], t); err != nil {
				cancel(err) // only the first counts
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	responses = append(responses, '{')
	for i, key := range keys {
		if i > 0 {
			responses = append(responses, ',')
		}
		responses = append(append(append(responses, '"'), key...), `":`...)
		responses = append(responses, results[i]...)
	}
	return append(responses, '}'), nil
}

// protect runs a handler and turns its panic into an error.
func (c *Client) protect(ctx context.Context, in *input, t *terms) (result []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			c.log.Error("handler panicked", "method", in.method, "panic", v, "stack", string(debug.Stack()))
			err = &InputError{in.method, &jsonrpc.PanicError{Value: v, Stack: debug.Stack()}}
		}
	}()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	result, err = c.serve(ctx, nil, in, &t.accepts, t.Revision)
	if _, bad := errors.AsType[*refusal](err); err != nil && !bad {
		err = &InputError{in.method, err}
	}
	return result, err
}

// readInputs takes an InputRequests object apart. The keys are as they stand between the quotes.
func readInputs(requests []byte) (keys [][]byte, inputs []input, err error) {
	members := jsonwire.ObjectMembers(requests)
	for members.Next() {
		if len(keys) == maxInputs {
			return nil, nil, &refusal{jsonrpc.CodeInvalidParams, fmt.Sprintf("more than %d inputs are asked for at once", maxInputs)}
		}
		in, ok := readInput(members.Value())
		if !ok {
			return nil, nil, &refusal{jsonrpc.CodeInvalidParams, fmt.Sprintf("input request %.40q is no object with a method and params", members.RawKey())}
		}
		keys, inputs = append(keys, bytes.Clone(members.RawKey())), append(inputs, in)
	}
	return keys, inputs, nil
}

func readInput(text []byte) (in input, ok bool) {
	if text[0] != '{' {
		return in, false
	}
	members := jsonwire.ObjectMembers(text)
	for members.Next() {
		v := members.Value()
		switch {
		case members.KeyIs("method") && v[0] == '"':
			in.method = jsonwire.UnquoteString(v[1 : len(v)-1])
		case members.KeyIs("params") && string(v) != "null":
			in.params = v
		}
	}
	return in, in.method != "" && (in.params == nil || in.params[0] == '{')
}
