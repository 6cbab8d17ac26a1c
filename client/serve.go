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
func (cn *connection) Prepare(r *jsonrpc.Request) *jsonrpc.CostEstimate {
	if r.Kind == jsonrpc.KindNotification {
		cn.handleNotification(&r.Message)
		if cn.c.opts.OnNotification == nil && cn.c.chain == nil {
			return jsonrpc.Immediate
		}
		return nil
	}
	if string(r.Method) == mcp.MethodPing && cn.c.chain == nil {
		return jsonrpc.Immediate
	}
	return nil
}

// Handle implements [jsonrpc.Handler]: it answers a legacy server's requests.
func (cn *connection) Handle(r *jsonrpc.Request, dst []byte) ([]byte, error) {
	if cn.c.usesChain(r) {
		ctx := new(jsonrpc.Context)
		r.InitContext(ctx, jsonrpc.TraceOf(r.Params))
		result, err := cn.c.runIncomingChain(context.WithValue(ctx, clientKey{}, cn.c), r, func(ctx context.Context, params []byte) ([]byte, error) {
			if r.Kind == jsonrpc.KindNotification {
				cn.callOnNotification(r, params)
				return nil, nil
			}
			return cn.answerRequest(ctx, nil, string(r.Method), params)
		})
		return append(dst, result...), err
	}
	switch {
	case r.Kind == jsonrpc.KindNotification:
		cn.callOnNotification(r, r.Params)
		return dst, nil
	case string(r.Method) == mcp.MethodPing:
		return append(dst, "{}"...), nil
	}
	ctx := new(jsonrpc.Context)
	r.InitContext(ctx, jsonrpc.TraceOf(r.Params))
	return cn.answerRequest(ctx, dst, string(r.Method), r.Params)
}

func (cn *connection) callOnNotification(r *jsonrpc.Request, params []byte) {
	if fn := cn.c.opts.OnNotification; fn != nil {
		fn(string(r.Method), json.RawMessage(params))
	}
}

// answerRequest appends the result of what a legacy server asks.
func (cn *connection) answerRequest(ctx context.Context, dst []byte, method string, params []byte) ([]byte, error) {
	if method == mcp.MethodPing {
		return append(dst, "{}"...), nil
	}
	accepts := cn.accepts.Load()
	if accepts == nil {
		accepts = &era.InputSupport{}
	}
	revision := mcp.LatestLegacyRevision
	if neg := cn.negotiated.Load(); neg != nil {
		revision = neg.Revision
	}
	start := len(dst)
	dst, err := cn.c.serveInput(ctx, dst, &inputRequest{method: method, params: params, conn: cn}, accepts, revision)
	if err == nil && era.Of(revision).CoreTasks {
		dst = appendRelatedTask(dst, start, params)
	}
	if rejected, ok := errors.AsType[*inputRejectedError](err); ok {
		return dst, &jsonrpc.Error{Code: rejected.code, Message: rejected.reason}
	}
	if errors.Is(err, ErrRefused) {
		return dst, &jsonrpc.Error{Code: codeRefused, Message: "the user refused the request"}
	}
	return dst, err
}

// An input is something that a server asks for, as a request of its own or within a result.
type inputRequest struct {
	method string
	params []byte      // text of an object; may be nil
	conn   *connection // on which it came; nil if it came within a result
}

// A refusal says why an input is none that the server may ask for.
type inputRejectedError struct {
	code   jsonrpc.Code
	reason string
}

func (e *inputRejectedError) Error() string { return e.reason }

func undeclaredError(method, option string) error {
	return &inputRejectedError{jsonrpc.CodeMethodNotFound, fmt.Sprintf("the client did not declare that it takes %s (see client.Options.%s)", method, option)}
}

func invalidInputError(format string, args ...any) error {
	return &inputRejectedError{jsonrpc.CodeInvalidParams, "invalid params: " + fmt.Sprintf(format, args...)}
}

// serveInput has a handler answer what the server asks for, and appends the bare result.
func (c *Client) serveInput(ctx context.Context, dst []byte, in *inputRequest, accepts *era.InputSupport, r mcp.Revision) ([]byte, error) {
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
		err = &inputRejectedError{jsonrpc.CodeMethodNotFound, fmt.Sprintf("method not found: %.100s", in.method)}
	}
	if err != nil {
		return dst, err
	}
	if err := jsonwire.Valid(dst[start:], 0); err != nil { // raw JSON that a handler gave goes out as it is
		return dst, fmt.Errorf("the handler for %s gave what is no JSON: %w", in.method, err)
	}
	return dst, nil
}

// runHandler runs a handler of the user's. The server is not blamed for the time that it takes.
func runHandler[T any](in *inputRequest, handler func() (T, error)) (T, error) {
	if in.conn != nil {
		defer in.conn.beginHandler()()
	}
	return handler()
}

// appendRelatedTask marks a result as one that belongs to a task if its request does
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks).
func appendRelatedTask(dst []byte, start int, params []byte) []byte {
	task := jsonwire.Lookup(jsonwire.Lookup(params, "_meta"), mcp.MetaRelatedTask)
	if task == nil {
		return dst
	}
	rest, meta := splitMeta(dst[start:])
	if jsonwire.Lookup(meta, mcp.MetaRelatedTask) != nil {
		return dst
	}
	members := bytes.Clone(objectBody(meta))
	if len(members) > 0 {
		members = append(members, ',')
	}
	members = append(append(members, `"`+mcp.MetaRelatedTask+`":`...), task...)
	return append(dst[:start], joinMeta(bytes.Clone(rest), members)...)
}

func (c *Client) serveRoots(ctx context.Context, dst []byte, in *inputRequest, accepts *era.InputSupport, r mcp.Revision) ([]byte, error) {
	if !accepts.Roots || c.opts.Roots == nil {
		return dst, undeclaredError(in.method, "Roots")
	}
	roots, err := runHandler(in, func() ([]mcp.Root, error) { return c.opts.Roots(ctx) })
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

func (c *Client) serveSample(ctx context.Context, dst []byte, in *inputRequest, accepts *era.InputSupport, r mcp.Revision) ([]byte, error) {
	if c.opts.Sample == nil || !accepts.Sampling {
		return dst, undeclaredError(in.method, "Sample")
	}
	var p mcp.CreateMessageRequestParams
	if err := p.UnmarshalJSON(in.paramsObject()); err != nil {
		return dst, invalidInputError("%v", err)
	}
	if !accepts.SamplingTools && (p.Tools != nil || p.ToolChoice != nil) {
		return dst, invalidInputError("the client did not declare that it takes tools in %s (see client.Options.SampleTools)", in.method)
	}
	result, err := runHandler(in, func() (*mcp.CreateMessageResult, error) { return c.opts.Sample(ctx, &p) })
	if err == nil && result == nil {
		err = errors.New("client.Options.Sample returned nothing")
	}
	if err != nil {
		return dst, err
	}
	return result.AppendRevision(dst, r), nil
}

// paramsObject returns the params, {} if there are none.
func (in *inputRequest) paramsObject() []byte {
	if in.params == nil {
		return []byte("{}")
	}
	return in.params
}
