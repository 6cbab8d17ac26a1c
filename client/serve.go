package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// ErrRefused is what [Options.Sample] returns when the user does not want it. Legacy servers are answered -1, as the specification has it.
var ErrRefused = errors.New("refused by the user")

const codeRefused jsonrpc.Code = -1

// Prepare implements [jsonrpc.Handler]. What notifications are to the client is done here, in the order in which they come and before answers behind them
// are delivered.
func (l *link) Prepare(r *jsonrpc.Request) *jsonrpc.Pace {
	if r.Kind == jsonrpc.KindNotification {
		l.notified(&r.Message)
		if l.c.opts.OnNotification == nil && l.c.chain == nil {
			return jsonrpc.Immediate
		}
		return nil
	}
	if string(r.Method) == mcp.MethodPing && l.c.chain == nil {
		return jsonrpc.Immediate
	}
	return nil
}

// Handle implements [jsonrpc.Handler]: it answers a legacy server's requests.
func (l *link) Handle(r *jsonrpc.Request, dst []byte) ([]byte, error) {
	if l.c.serves(r) {
		ctx := new(jsonrpc.Context)
		r.InitContext(ctx, jsonrpc.TraceOf(r.Params))
		result, err := l.c.incoming(context.WithValue(ctx, clientKey{}, l.c), r, func(ctx context.Context, params []byte) ([]byte, error) {
			if r.Kind == jsonrpc.KindNotification {
				l.hear(r, params)
				return nil, nil
			}
			return l.answer(ctx, nil, string(r.Method), params)
		})
		return append(dst, result...), err
	}
	switch {
	case r.Kind == jsonrpc.KindNotification:
		l.hear(r, r.Params)
		return dst, nil
	case string(r.Method) == mcp.MethodPing:
		return append(dst, "{}"...), nil
	}
	ctx := new(jsonrpc.Context)
	r.InitContext(ctx, jsonrpc.TraceOf(r.Params))
	return l.answer(ctx, dst, string(r.Method), r.Params)
}

func (l *link) hear(r *jsonrpc.Request, params []byte) {
	if fn := l.c.opts.OnNotification; fn != nil {
		fn(string(r.Method), json.RawMessage(params))
	}
}

// answer appends the result of what a legacy server asks.
func (l *link) answer(ctx context.Context, dst []byte, method string, params []byte) ([]byte, error) {
	if method == mcp.MethodPing {
		return append(dst, "{}"...), nil
	}
	accepts := l.accepts.Load()
	if accepts == nil {
		accepts = &era.Accepts{}
	}
	revision := mcp.LatestLegacyRevision
	if t := l.terms.Load(); t != nil {
		revision = t.Revision
	}
	start := len(dst)
	dst, err := l.c.serve(ctx, dst, &input{method: method, params: params, link: l}, accepts, revision)
	if err == nil && era.Of(revision).CoreTasks {
		dst = relate(dst, start, params)
	}
	if no, ok := errors.AsType[*refusal](err); ok {
		return dst, &jsonrpc.Error{Code: no.code, Message: no.reason}
	}
	if errors.Is(err, ErrRefused) {
		return dst, &jsonrpc.Error{Code: codeRefused, Message: "the user refused the request"}
	}
	return dst, err
}

// An input is something that a server asks for, as a request of its own or within a result.
type input struct {
	method string
	params []byte // text of an object; may be nil
	link   *link  // on which it came; nil if it came within a result
}

// A refusal says why an input is none that the server may ask for.
type refusal struct {
	code   jsonrpc.Code
	reason string
}

func (r *refusal) Error() string { return r.reason }

func undeclared(method, option string) error {
	return &refusal{jsonrpc.CodeMethodNotFound, fmt.Sprintf("the client did not declare that it takes %s (see client.Options.%s)", method, option)}
}

func invalidInput(format string, args ...any) error {
	return &refusal{jsonrpc.CodeInvalidParams, "invalid params: " + fmt.Sprintf(format, args...)}
}

// serve has a handler answer what the server asks for, and appends the bare result.
func (c *Client) serve(ctx context.Context, dst []byte, in *input, accepts *era.Accepts, r mcp.Revision) ([]byte, error) {
	ctx = context.WithValue(ctx, clientKey{}, c)
	start := len(dst)
	var err error
	switch in.method {
	case mcp.MethodElicit:
		dst, err = c.serveElicit(ctx, dst, in, accepts, r)
	case mcp.MethodCreateMessage:
		dst, err = c.serveSample(ctx, dst, in, accepts, r)
	case mcp.MethodRootsList:
		dst, err = c.serveRoots(ctx, dst, in, accepts, r)
	default:
		err = &refusal{jsonrpc.CodeMethodNotFound, fmt.Sprintf("method not found: %.100s", in.method)}
	}
	if err != nil {
		return dst, err
	}
	if err := jsonwire.Valid(dst[start:], 0); err != nil { // raw JSON that a handler gave goes out as it is
		return dst, fmt.Errorf("the handler for %s gave what is no JSON: %w", in.method, err)
	}
	return dst, nil
}

// handle runs a handler of the user's. The server is not blamed for the time that it takes.
func handle[T any](in *input, handler func() (T, error)) (T, error) {
	if in.link != nil {
		defer in.link.handling()()
	}
	return handler()
}

// relate marks a result as one that belongs to a task if its request does
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks).
func relate(dst []byte, start int, params []byte) []byte {
	task := jsonwire.Lookup(jsonwire.Lookup(params, "_meta"), mcp.MetaRelatedTask)
	if task == nil {
		return dst
	}
	rest, meta := splitMeta(dst[start:])
	if jsonwire.Lookup(meta, mcp.MetaRelatedTask) != nil {
		return dst
	}
	members := bytes.Clone(inside(meta))
	if len(members) > 0 {
		members = append(members, ',')
	}
	members = append(append(members, `"`+mcp.MetaRelatedTask+`":`...), task...)
	return append(dst[:start], joinMeta(bytes.Clone(rest), members)...)
}

func (c *Client) serveRoots(ctx context.Context, dst []byte, in *input, accepts *era.Accepts, r mcp.Revision) ([]byte, error) {
	if !accepts.Roots || c.opts.Roots == nil {
		return dst, undeclared(in.method, "Roots")
	}
	roots, err := handle(in, func() ([]mcp.Root, error) { return c.opts.Roots(ctx) })
	if err != nil {
		return dst, err
	}
	for _, root := range roots {
		if err := checkRoot(root.URI); err != nil {
			return dst, fmt.Errorf("client.Options.Roots: %w", err)
		}
	}
	return (&mcp.ListRootsResult{Roots: roots}).AppendRevision(dst, r), nil
}

// checkRoot returns an error unless uri is a file URI that leads nowhere but where it says.
func checkRoot(uri string) error {
	u, err := url.Parse(uri)
	switch {
	case err != nil:
		return err
	case u.Scheme != "file" || u.Path == "":
		return fmt.Errorf("root %q must begin with file:// and have a path", uri)
	case slices.Contains(strings.FieldsFunc(u.Path, func(r rune) bool { return r == '/' || r == '\\' }), ".."):
		return fmt.Errorf("root %q must not have .. in its path", uri)
	}
	return nil
}

func (c *Client) serveSample(ctx context.Context, dst []byte, in *input, accepts *era.Accepts, r mcp.Revision) ([]byte, error) {
	if c.opts.Sample == nil || !accepts.Sampling {
		return dst, undeclared(in.method, "Sample")
	}
	var p mcp.CreateMessageRequestParams
	if err := p.UnmarshalJSON(in.object()); err != nil {
		return dst, invalidInput("%v", err)
	}
	if !accepts.SamplingTools && (p.Tools != nil || p.ToolChoice != nil) {
		return dst, invalidInput("the client did not declare that it takes tools in %s (see client.Options.SampleTools)", in.method)
	}
	result, err := handle(in, func() (*mcp.CreateMessageResult, error) { return c.opts.Sample(ctx, &p) })
	if err == nil && result == nil {
		err = errors.New("client.Options.Sample returned nothing")
	}
	if err != nil {
		return dst, err
	}
	return result.AppendRevision(dst, r), nil
}

// object returns the params, {} if there are none.
func (in *input) object() []byte {
	if in.params == nil {
		return []byte("{}")
	}
	return in.params
}
