package server

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxCompletions is how many values a client gets at once
// (https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/completion#completion-results).
const maxCompletions = 100

// A CompleteRequest is what a user has typed so far.
type CompleteRequest struct {
	Prompt      string            // whose argument it is; or
	URITemplate string            // the resource template whose variable it is
	Argument    string            // the name of the argument or variable
	Value       string            // what is typed of it, maybe nothing
	Arguments   map[string]string // the values of others, as far as the client says, since 2025-06-18. They are unchecked
}

// CompletionOutput is what a function for [Complete] returns: all values, of which the client gets the first hundred and the number; or some values,
// with what is known of the others.
type CompletionOutput interface {
	[]string | mcp.Completion
}

// A Completer suggests values for one argument of a prompt, or one variable of a resource template. It is given to [AddPrompt] or [AddResourceTemplate].
// Make one with [Complete] or [CompleteFrom].
type Completer struct {
	name    string
	suggest suggestFunc
}

type suggestFunc func(ctx context.Context, req CompleteRequest) (mcp.Completion, error)

// Complete returns a Completer for the argument or variable of that name. f returns values that begin with what was typed, or are a good guess for
// other reasons, the best first. It should return nothing that the caller may not know: see [Call.Principal].
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

// CompleteFrom returns a Completer that suggests those of the values that begin with what was typed, in upper or lower case.
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

// completionOf returns what the client gets.
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

// completers are those of one prompt or template by the names of all of its arguments. It is nil for an argument without one.
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
			return nil, fmt.Errorf("there is no %q for a completer", c.name)
		case before != nil:
			return nil, fmt.Errorf("%q has two completers", c.name)
		case c.suggest == nil:
			return nil, fmt.Errorf("%q: %w", c.name, errNoSuggest)
		}
		all[c.name] = c.suggest
	}
	return all, nil
}

// noteCompleters takes note of what was registered: with the first completer, the server has completion.
func (s *Server) noteCompleters(all completers) {
	for _, f := range all {
		if f != nil {
			s.hasCompleter.Store(true)
		}
	}
}

// complete answers completion/complete. An argument without a completer has no suggestions; one that does not exist is an error.
func (s *session) complete(c *Call, r *jsonrpc.Request, dst []byte) ([]byte, error) {
	var params mcp.CompleteRequestParams
	if err := params.UnmarshalJSON(r.Params); err != nil {
		return dst, decodeParamsError(err)
	}
	req := CompleteRequest{Argument: params.Argument.Name, Value: params.Argument.Value}
	if params.Context != nil {
		req.Arguments = params.Context.Arguments
	}
	all, err := s.completersOf(c, params.Ref, &req)
	if err != nil {
		return dst, err
	}
	f, ok := all[req.Argument]
	if !ok {
		return dst, invalidParams("params.argument.name: %s has no %q", clip(c.name), clip(req.Argument))
	}
	result := mcp.CompleteResult{Completion: completionOf([]string{})}
	if f != nil {
		defer c.startTimer()()
		if result.Completion, err = f(c, req); err != nil {
			return dst, err
		}
		if err := checkExtra(result.Completion.Extra); err != nil {
			return dst, c.invalidResult("%v", err)
		}
	}
	return c.endWithMeta(mcp.Append(dst, &result, c.ex.Revision), nil), nil
}

// decodeParamsError is the error for params that do not have the form of the method's.
func decodeParamsError(err error) error {
	var e *mcp.DecodeError
	if errors.As(err, &e) && e.Path != "" {
		return invalidParams("params.%v", err)
	}
	return invalidParams("params: %v", err)
}

// completersOf returns those of what is referred to, if the caller sees it.
func (s *session) completersOf(c *Call, ref mcp.Reference, req *CompleteRequest) (completers, error) {
	switch ref := ref.(type) {
	case mcp.PromptReference:
		c.name, req.Prompt = ref.Name, ref.Name
		if p := s.srv.prompts.catalog().byKey[ref.Name]; p != nil && c.view.shows(KindPrompt, ref.Name) {
			return p.completers, nil
		}
		return nil, unknownPrompt(ref.Name)
	case mcp.ResourceTemplateReference:
		c.name, req.URITemplate = ref.URI, ref.URI
		if t := s.srv.templates.catalog().byKey[ref.URI]; t != nil && c.view.shows(KindResourceTemplate, ref.URI) {
			return t.completers, nil
		}
	}
	return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "unknown resource template: %s", clip(c.name))
}

// checkExtra returns an error unless members that go into an object are nil or those of one.
func checkExtra(extra []byte) error {
	if extra == nil {
		return nil
	}
	if err := checkObject(extra); err != nil {
		return fmt.Errorf("members in Extra: %w", err)
	}
	return nil
}
