package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/middleware"
	"mcpwire/schema"
)

// The flow of an incoming message is:
//
//	rpc.Conn.Run                   reads it; a response ends activeCall.wait, and a legacy
//	                               server's cancellation ends the ctx of its handler
//	connection.Prepare             on the reading goroutine, in the order of arrival:
//	  handleNotification           by method:
//	    progress, log message      callbackRegistry → callbackQueue → activeCall.wait
//	    cancellation               endStream, for a modern server's end of a subscription
//	    change, acknowledgment     caches and Subscriptions
//	connection.Handle              on its own goroutine unless Prepare returned Immediate;
//	                               with middleware, in runChain:
//	  callOnNotification           Options.OnNotification
//	  answerRequest                a legacy server's request: ping, or serve
//	inputServer.serve              the handler: elicit, sample, listRoots
//
// Modern servers send input requests within a result. Those come from
// activeCall.handleInputRequired or Task.answerInputRequests through inputServer.answer to serve.

// ErrRefused is the error that [InputOptions.Sample] returns when the user refuses. The Client
// answers a legacy server with the code -1, as the specification requires.
var ErrRefused = errors.New("rejected by the user")

const codeRefused jsonrpc.Code = -1

// AcceptForm returns the result of [InputOptions.Elicit] for a user who has filled in the form.
// content is a value whose JSON text is an object with the fields of the form, such as a struct or
// a map. Nil means none: the user has agreed to visit a web page, or the form is empty. For a user
// who has said no, return an [mcp.ElicitResult] with [mcp.ElicitActionDecline], which has no
// content.
func AcceptForm(content any) (*mcp.ElicitResult, error) {
	text, err := encodeParams(content)
	if err != nil {
		return nil, fmt.Errorf("content of a form: %w", err)
	}
	return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: text}, nil
}

// Prepare implements [rpc.Handler]. It handles notifications in the order of arrival, before
// later responses are delivered.
func (cn *connection) Prepare(r *rpc.Request) *rpc.CostEstimate {
	if r.Kind == jsonrpc.KindNotification {
		cn.handleNotification(&r.Message)
		if cn.c.opts.OnNotification == nil && cn.c.chain == nil {
			return rpc.Immediate
		}
		return nil
	}
	if string(r.Method) == mcp.MethodPing && cn.c.chain == nil {
		return rpc.Immediate
	}
	return nil
}

// Handle implements [rpc.Handler]. It answers the requests of a legacy server and calls
// OnNotification.
func (cn *connection) Handle(r *rpc.Request, dst []byte) ([]byte, error) {
	if cn.c.usesChain(r) {
		ctx := new(rpc.Context)
		r.InitContext(ctx, rpc.TraceOf(r.Params))
		m := middleware.Message{Notification: r.Kind == jsonrpc.KindNotification, Method: string(r.Method), ID: r.ID, Params: r.Params}
		result, err := cn.c.runChain(ctx, m, func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
			if r.Kind == jsonrpc.KindNotification {
				cn.callOnNotification(r, m.Params)
				return nil, nil
			}
			return cn.answerRequest(ctx, nil, string(r.Method), m.Params)
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
	ctx := new(rpc.Context)
	r.InitContext(ctx, rpc.TraceOf(r.Params))
	return cn.answerRequest(ctx, dst, string(r.Method), r.Params)
}

func (cn *connection) callOnNotification(r *rpc.Request, params []byte) {
	if fn := cn.c.opts.OnNotification; fn != nil {
		fn(string(r.Method), json.RawMessage(params))
	}
}

// answerRequest appends the result of a legacy server's request.
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
	dst, err := cn.c.inputs.serve(ctx, dst, &inputRequest{method: method, params: params, conn: cn}, accepts, revision)
	if err == nil && era.Of(revision).CoreTasks {
		dst = appendRelatedTask(dst, start, params)
	}
	if rejected, ok := errors.AsType[*inputRejectedError](err); ok {
		return dst, &jsonrpc.Error{Code: rejected.code, Message: rejected.reason}
	}
	if errors.Is(err, ErrRefused) {
		return dst, &jsonrpc.Error{Code: codeRefused, Message: "the user rejected the request"}
	}
	return dst, err
}

// An inputRequest is a request of a legacy server, or an input request within a result.
type inputRequest struct {
	method string
	// params is the text of an object. It may be nil.
	params []byte
	// conn is the connection of a legacy server's request. It is nil for an input request within a
	// result.
	conn *connection
}

// An inputRejectedError says why the server may not send an input request.
type inputRejectedError struct {
	code   jsonrpc.Code
	reason string
}

func (e *inputRejectedError) Error() string { return e.reason }

func undeclaredError(method, option string) error {
	return &inputRejectedError{jsonrpc.CodeMethodNotFound, fmt.Sprintf("the client did not declare support for %s (see client.Options.Input.%s)", method, option)}
}

func invalidInputError(format string, args ...any) error {
	return &inputRejectedError{jsonrpc.CodeInvalidParams, "invalid params: " + fmt.Sprintf(format, args...)}
}

// An inputServer runs the user's handlers of Options.Input.
type inputServer struct{ c *Client }

// serve runs the handler of an input request and appends its result without an envelope.
func (is *inputServer) serve(ctx context.Context, dst []byte, in *inputRequest, accepts *era.InputSupport, r mcp.Revision) ([]byte, error) {
	ctx = context.WithValue(ctx, clientKey{}, is.c)
	if in.params == nil {
		in.params = []byte("{}")
	}
	start := len(dst)
	var err error
	switch in.method {
	case mcp.MethodElicit:
		dst, err = is.elicit(ctx, dst, in, accepts, r)
	case mcp.MethodCreateMessage:
		dst, err = is.sample(ctx, dst, in, accepts, r)
	case mcp.MethodRootsList:
		dst, err = is.listRoots(ctx, dst, in, accepts, r)
	default:
		err = &inputRejectedError{jsonrpc.CodeMethodNotFound, fmt.Sprintf("method not found: %.100s", in.method)}
	}
	if err != nil {
		return dst, err
	}
	if err := jsonwire.Valid(dst[start:], 0); err != nil { // a handler's raw JSON is sent unchanged
		return dst, fmt.Errorf("the handler for %s returned invalid JSON: %w", in.method, err)
	}
	return dst, nil
}

// runHandler runs a user's handler. Its time extends the server's timeout.
func runHandler[T any](in *inputRequest, handler func() (T, error)) (T, error) {
	if in.conn != nil {
		defer in.conn.beginHandler()()
	}
	return handler()
}

// appendRelatedTask marks the result as related to a task if its request is
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

func (is *inputServer) listRoots(ctx context.Context, dst []byte, in *inputRequest, accepts *era.InputSupport, r mcp.Revision) ([]byte, error) {
	if !accepts.Roots || is.c.opts.Input.Roots == nil {
		return dst, undeclaredError(in.method, "Roots")
	}
	roots, err := runHandler(in, func() ([]mcp.Root, error) { return is.c.opts.Input.Roots(ctx) })
	if err != nil {
		return dst, err
	}
	for _, root := range roots {
		if err := checkRoot(root.URI); err != nil {
			return dst, fmt.Errorf("client.Options.Input.Roots: %w", err)
		}
	}
	return mcp.Append(dst, &mcp.ListRootsResult{Roots: roots}, r), nil
}

// checkRoot returns an error unless uri is a file URI without ".." in its path.
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

func (is *inputServer) sample(ctx context.Context, dst []byte, in *inputRequest, accepts *era.InputSupport, r mcp.Revision) ([]byte, error) {
	if is.c.opts.Input.Sample == nil || !accepts.Sampling {
		return dst, undeclaredError(in.method, "Sample")
	}
	var p mcp.CreateMessageRequestParams
	if err := p.UnmarshalJSON(in.params); err != nil {
		return dst, invalidInputError("%v", err)
	}
	if !accepts.SamplingTools && (p.Tools != nil || p.ToolChoice != nil) {
		return dst, invalidInputError("the client did not declare support for tools in %s (see client.Options.Input.SampleTools)", in.method)
	}
	result, err := runHandler(in, func() (*mcp.CreateMessageResult, error) { return is.c.opts.Input.Sample(ctx, &p) })
	if err == nil && result == nil {
		err = errors.New("client.Options.Input.Sample returned nothing")
	}
	if err != nil {
		return dst, err
	}
	return mcp.Append(dst, result, r), nil
}

func (is *inputServer) elicit(ctx context.Context, dst []byte, in *inputRequest, accepts *era.InputSupport, r mcp.Revision) ([]byte, error) {
	if is.c.opts.Input.Elicit == nil || !accepts.Form && !accepts.URL {
		return dst, undeclaredError(in.method, "Elicit")
	}
	var p mcp.ElicitRequestParams
	if err := p.UnmarshalJSON(in.params); err != nil {
		return dst, invalidInputError("%v", err)
	}
	form := p.Mode == "" || p.Mode == mcp.ElicitModeForm
	if form && !accepts.Form || !form && (p.Mode != mcp.ElicitModeURL || !accepts.URL) {
		return dst, invalidInputError("the client did not declare the mode %.20q of %s (see client.Options.Input.ElicitModes)", p.Mode, in.method)
	}
	if !form && !isWebPage(p.URL) {
		return dst, invalidInputError("url %.100q is not the URL of a web page: it must begin with https:// or http:// and name a host", p.URL)
	}
	result, err := runHandler(in, func() (*mcp.ElicitResult, error) { return is.c.opts.Input.Elicit(ctx, &p) })
	if ctx.Err() != nil {
		return dst, ctx.Err()
	}
	if err != nil || result == nil {
		is.c.log.Warn("elicitation failed, answered as canceled", "error", err)
		return append(dst, `{"action":"cancel"}`...), nil
	}
	trimmed := *result
	if result.Action != mcp.ElicitActionAccept || !form {
		trimmed.Content = nil // only an accepted form has content
	} else if err := is.checkContent(&p, result.Content); err != nil {
		return dst, fmt.Errorf("client.Options.Input.Elicit: %w", err)
	}
	return mcp.Append(dst, &trimmed, r), nil
}

// isWebPage reports whether a URL is safe to show to a user and to open in a browser.
func isWebPage(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != ""
}

// checkContent validates the content of a form. It accepts any content if the server's schema is
// unusable.
func (is *inputServer) checkContent(p *mcp.ElicitRequestParams, content json.RawMessage) error {
	if content == nil {
		content = json.RawMessage("{}")
	}
	if err := checkObject(content); err != nil {
		return fmt.Errorf("content: %w", err)
	}
	if p.RequestedSchema == nil {
		return nil
	}
	v, err := compileServerSchema(p.RequestedSchema, is.c.opts.SchemaEngine)
	if err != nil {
		is.c.log.Info("form content not validated: unusable schema", "error", err)
		return nil
	}
	err = v.Validate(content)
	if e, ok := errors.AsType[*schema.Error](err); ok {
		e.Root = "content"
	}
	if err != nil {
		return fmt.Errorf("the content does not match the form's schema: %w", err)
	}
	return nil
}

const (
	maxInputRequests    = 100 // in one result
	maxConcurrentInputs = 8   // handlers that run at once
)

// handleInputRequired reads an InputRequiredResult and gets the responses to its input requests
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr). It returns
// requestState to the server unchanged and unread.
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
				return ac.protocolError("inputRequests is not an object")
			}
			requests = v
		case members.KeyIs("requestState"):
			if v[0] != '"' {
				return ac.protocolError("requestState is not a string")
			}
			ac.requestState = v
		}
	}
	if len(objectBody(requests)) == 0 {
		if ac.requestState == nil {
			return ac.protocolError("input_required without inputRequests and requestState")
		}
		// The server is busy, or wants the request elsewhere.
		return ac.waitRetry(ctx, ac.c.opts.Retry.backoff(ac.req.inputRounds+1), nil)
	}
	ctx, cancel := ac.withDeadline(ctx)
	defer cancel()
	inputs, err := ac.c.inputs.answer(ctx, requests)
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

// An InputError is the error of a call that failed because a handler of [Options] did not give the
// input that the server required.
type InputError struct {
	// Method is the method of the input request, such as sampling/createMessage.
	Method string
	// Err is the error of the handler or of the check of its result.
	Err error
}

func (e *InputError) Error() string {
	return fmt.Sprintf("no response to the server's %s: %v", e.Method, e.Err)
}

// Unwrap returns Err, except for a *jsonrpc.Error, which would look like the server's response.
func (e *InputError) Unwrap() error {
	if IsServerError(e.Err) {
		return nil
	}
	return e.Err
}

// answer runs the handlers of input requests. requests is the text of an InputRequests
// object, responses that of the matching InputResponses object. The error is an *InputError, or an
// *inputRejectedError for an invalid request.
func (is *inputServer) answer(ctx context.Context, requests []byte) (responses []byte, err error) {
	keys, inputs, err := parseInputRequests(requests)
	if err != nil {
		return nil, err
	}
	neg := is.c.conns.negotiated.Load()
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
			if results[i], err = is.runHandler(ctx, &inputs[i], neg); err != nil {
				cancel(err) // only the first one counts
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

// runHandler runs a handler and turns a panic into an error.
func (is *inputServer) runHandler(ctx context.Context, in *inputRequest, neg *negotiated) (result []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			is.c.log.Error("handler panicked", "method", in.method, "panic", v, "stack", string(debug.Stack()))
			err = &InputError{in.method, &jsonrpc.PanicError{Value: v, Stack: debug.Stack()}}
		}
	}()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	result, err = is.serve(ctx, nil, in, &neg.accepts, neg.Revision)
	if _, rejected := errors.AsType[*inputRejectedError](err); err != nil && !rejected {
		err = &InputError{in.method, err}
	}
	return result, err
}

// parseInputRequests splits an InputRequests object. The keys keep their JSON escapes.
func parseInputRequests(requests []byte) (keys [][]byte, inputs []inputRequest, err error) {
	members := jsonwire.ObjectMembers(requests)
	for members.Next() {
		if len(keys) == maxInputRequests {
			return nil, nil, &inputRejectedError{jsonrpc.CodeInvalidParams, fmt.Sprintf("more than %d input requests at once", maxInputRequests)}
		}
		in, ok := parseInputRequest(members.Value())
		if !ok {
			return nil, nil, &inputRejectedError{jsonrpc.CodeInvalidParams, fmt.Sprintf("input request %.40q is not an object with a method and params", members.RawKey())}
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
