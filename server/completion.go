package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"mcpwire/internal/rpc"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxCompletions limits the values in one completion
// (https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/completion#completion-results).
const maxCompletions = 100

// A CompleteRequest is what a user has typed so far.
type CompleteRequest struct {
	// Prompt is the name of the prompt, or empty for a resource template.
	Prompt string
	// URITemplate is the URI template of the resource template, or empty for a prompt.
	URITemplate string
	// Argument is the name of the argument or variable.
	Argument string
	// Value is the typed part of its value. It may be empty.
	Value string
	// Arguments holds the values of other arguments, as the client reports them since 2025-06-18.
	// They are not validated.
	Arguments map[string]string
}

// CompletionOutput is the result type of a function for [Complete]. A []string holds all values;
// the client gets the first hundred and their number. An [mcp.Completion] also describes the values
// that it leaves out.
type CompletionOutput interface {
	[]string | mcp.Completion
}

// A Completer suggests values for an argument of a prompt or a variable of a resource template.
// Pass it to [AddPrompt] or [AddResourceTemplate]. Create one with [Complete] or [CompleteFrom].
type Completer struct {
	name    string
	suggest suggestFunc
}

type suggestFunc func(ctx context.Context, req CompleteRequest) (mcp.Completion, error)

// Complete returns a Completer for the argument or variable of that name. f returns suggestions,
// the best first; they need not begin with the typed text. f must not reveal values that the caller
// may not know: see [PrincipalID].
// (https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/completion)
func Complete[Out CompletionOutput](name string, f func(ctx context.Context, req CompleteRequest) (Out, error)) Completer {
	if f == nil {
		return Completer{name: name}
	}
	return Completer{name, func(ctx context.Context, req CompleteRequest) (mcp.Completion, error) {
		out, err := f(ctx, req)
		return completionOf(out), err
	}}
}

// CompleteFrom returns a Completer that suggests the values that begin with the typed text,
// ignoring case.
func CompleteFrom(name string, values ...string) Completer {
	return Complete(name, func(_ context.Context, req CompleteRequest) ([]string, error) {
		var matching []string
		typed := strings.ToLower(req.Value)
		for _, v := range values {
			if strings.HasPrefix(strings.ToLower(v), typed) {
				matching = append(matching, v)
			}
		}
		return matching, nil
	})
}

// completionOf converts a function's result to a completion.
func completionOf[Out CompletionOutput](out Out) mcp.Completion {
	var v mcp.Completion
	switch out := any(out).(type) {
	case []string:
		v = mcp.Completion{Values: out, Total: new(int64(len(out)))}
	case mcp.Completion:
		v = out
	}
	if len(v.Values) > maxCompletions {
		v.Values, v.HasMore = v.Values[:maxCompletions], true
	}
	return v
}

// completers holds the function of each argument of a prompt or template by name. It is nil for an
// argument without a completer.
type completers map[string]suggestFunc

var errNoSuggest = errors.New("its completer needs a function")

func newCompleters(names []string, list []Completer) (completers, error) {
	all := make(completers, len(names))
	for _, name := range names {
		all[name] = nil
	}
	for _, c := range list {
		before, ok := all[c.name]
		switch {
		case !ok:
			return nil, fmt.Errorf("no %q for a completer", c.name)
		case before != nil:
			return nil, fmt.Errorf("%q has two completers", c.name)
		case c.suggest == nil:
			return nil, fmt.Errorf("%q: %w", c.name, errNoSuggest)
		}
		all[c.name] = c.suggest
	}
	return all, nil
}

// completions answers completion/complete.
type completions struct {
	// offered is set once a Completer is registered and never reset.
	offered atomic.Bool
}

// note enables the completions capability if there is a completer.
func (cs *completions) note(all completers) {
	for _, f := range all {
		if f != nil {
			cs.offered.Store(true)
		}
	}
}

// answer answers completion/complete. An argument without a completer has no suggestions; an
// unknown argument is an error.
func (cs *completions) answer(c *Call, r *rpc.Request, dst []byte) ([]byte, error) {
	var params mcp.CompleteRequestParams
	if err := params.UnmarshalJSON(r.Params); err != nil {
		return dst, decodeParamsError(err)
	}
	req := CompleteRequest{Argument: params.Argument.Name, Value: params.Argument.Value}
	if params.Context != nil {
		req.Arguments = params.Context.Arguments
	}
	all, err := completersOf(c, params.Ref, &req)
	if err != nil {
		return dst, err
	}
	f, ok := all[req.Argument]
	if !ok {
		return dst, invalidParams("params.argument.name: %s has no %q", clip.String(c.name, 100), clip.String(req.Argument, 100))
	}
	result := mcp.CompleteResult{Completion: completionOf([]string{})}
	if f != nil {
		defer c.startTimer(c.session.srv.opts.Limits.HandlerTimeout)()
		if result.Completion, err = f(c, req); err != nil {
			return dst, err
		}
		if err := checkExtra(result.Completion.Extra); err != nil {
			return dst, c.results().invalid("%v", err)
		}
	}
	return c.results().endWithMeta(mcp.Append(dst, &result, c.ex.Revision), nil), nil
}

// decodeParamsError returns the error for params that do not match the method's type.
func decodeParamsError(err error) error {
	var e *mcp.DecodeError
	if errors.As(err, &e) && e.Path != "" {
		return invalidParams("params.%v", err)
	}
	return invalidParams("params: %v", err)
}

// completersOf returns the completers of the referenced prompt or template, if the caller sees it.
func completersOf(c *Call, ref mcp.Reference, req *CompleteRequest) (completers, error) {
	s := c.session.srv
	switch ref := ref.(type) {
	case mcp.PromptReference:
		c.name, req.Prompt = ref.Name, ref.Name
		if p := s.prompts.catalog().byKey[ref.Name]; p != nil && c.view.shows(KindPrompt, ref.Name) {
			return p.completers, nil
		}
		return nil, unknownPrompt(ref.Name)
	case mcp.ResourceTemplateReference:
		c.name, req.URITemplate = ref.URI, ref.URI
		if t := s.resources.templates.catalog().byKey[ref.URI]; t != nil && c.view.shows(KindResourceTemplate, ref.URI) {
			return t.completers, nil
		}
	}
	return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "unknown resource template: %s", clip.String(c.name, 100))
}

// checkExtra returns an error unless extra is nil or a JSON object.
func checkExtra(extra []byte) error {
	if extra == nil {
		return nil
	}
	if err := checkObject(extra); err != nil {
		return fmt.Errorf("members in Extra: %w", err)
	}
	return nil
}
