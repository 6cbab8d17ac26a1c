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
	maxInputRequests    = 100 // that one result may ask for
	maxConcurrentInputs = 8   // handlers that answer them at once
)

// handleInputRequired reads an InputRequiredResult (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr) and gets what it asks for. The state is
// the server's: it is handed back as it came, and not looked into.
func (ac *activeCall) handleInputRequired(ctx context.Context, result []byte) error {
	var requests []byte
	ac.inputResponses, ac.requestState = nil, nil
	members := jsonwire.ObjectMembers(result)
	for members.Next() {
		v := members.Value()
		switch {
		case string(v) == "null":
		case members.KeyIs("inputRequests"):
			if v[0] != '{' {
				return ac.protocolError("inputRequests is no object")
			}
			requests = v
		case members.KeyIs("requestState"):
			if v[0] != '"' {
				return ac.protocolError("requestState is no string")
			}
			ac.requestState = v
		}
	}
	if len(objectBody(requests)) == 0 {
		if ac.requestState == nil {
			return ac.protocolError("input is required, but neither inputRequests nor requestState says what to do")
		}
		return ac.waitRetry(ctx, ac.c.opts.Retry.backoff(ac.req.inputRounds+1), nil) // the server is busy, or wants the request elsewhere
	}
	ctx, cancel := ac.withDeadline(ctx)
	defer cancel()
	inputs, err := ac.c.answerInputs(ctx, requests)
	ac.inputResponses = inputs
	switch _, rejected := errors.AsType[*inputRejectedError](err); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ac.contextError(ctx)
	case rejected:
		return ac.protocolError(err.Error())
	}
	return fmt.Errorf("call %s: %w", ac.req.method, err)
}

func (ac *activeCall) protocolError(reason string) error {
	return &ProtocolError{Method: ac.req.method, Reason: reason}
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
	keys, inputs, err := parseInputRequests(requests)
	if err != nil {
		return nil, err
	}
	neg := c.negotiated.Load()
	results := make([][]byte, len(inputs))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxConcurrentInputs)
	for i := range inputs {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			var err error
			if results[i], err = c.runInputHandler(ctx, &inputs[i], neg); err != nil {
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

// runInputHandler runs a handler and turns its panic into an error.
func (c *Client) runInputHandler(ctx context.Context, in *inputRequest, neg *negotiated) (result []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			c.log.Error("handler panicked", "method", in.method, "panic", v, "stack", string(debug.Stack()))
			err = &InputError{in.method, &jsonrpc.PanicError{Value: v, Stack: debug.Stack()}}
		}
	}()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	result, err = c.serveInput(ctx, nil, in, &neg.accepts, neg.Revision)
	if _, rejected := errors.AsType[*inputRejectedError](err); err != nil && !rejected {
		err = &InputError{in.method, err}
	}
	return result, err
}

// parseInputRequests takes an InputRequests object apart. The keys are as they stand between the quotes.
func parseInputRequests(requests []byte) (keys [][]byte, inputs []inputRequest, err error) {
	members := jsonwire.ObjectMembers(requests)
	for members.Next() {
		if len(keys) == maxInputRequests {
			return nil, nil, &inputRejectedError{jsonrpc.CodeInvalidParams, fmt.Sprintf("more than %d inputs are asked for at once", maxInputRequests)}
		}
		in, ok := parseInputRequest(members.Value())
		if !ok {
			return nil, nil, &inputRejectedError{jsonrpc.CodeInvalidParams, fmt.Sprintf("input request %.40q is no object with a method and params", members.RawKey())}
		}
		keys, inputs = append(keys, bytes.Clone(members.RawKey())), append(inputs, in)
	}
	return keys, inputs, nil
}

func parseInputRequest(text []byte) (in inputRequest, ok bool) {
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
