package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/middleware"
)

// Use adds middleware. The first one added is the outermost. [CallOf] returns the request that a
// message is, or that the handler which sends it answers; it returns nil for messages that the
// server sends on its own. All messages in both directions pass through the middleware:
//
//   - requests that have passed the general checks of revision, metadata and method. Others are
//     rejected before. The handshake is made when initialize is read: middleware can change or
//     reject the response, but a client that continues anyway has a session.
//   - notifications of the protocol, and others with a handler ([Server.OnNotification]), but not
//     cancellations, which end the context of their request at once.
//   - requests of handlers to legacy clients. Input requests to modern clients are part of the
//     result, with resultType input_required.
//   - notifications that the server sends: progress, log messages, changes.
//
// If middleware returns its own result for a request, the server adds members that each result of
// the revision has (resultType, the server's identity, and ttlMs and cacheScope in cacheable
// results) if they are missing. It doesn't adapt the result to older revisions. A nil result is an
// empty object. A panic fails only the request or notification.
//
// Without middleware, the goroutine that reads the connection answers ping and other quick requests
// directly. With middleware, which may block, they are scheduled like handlers.
//
// Use panics if the server already serves or if a function is nil.
func (s *Server) Use(list ...middleware.Func) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serving {
		panic("server: Use after Serve: add middleware before the first connection")
	}
	for _, m := range list {
		if m == nil {
			panic("server: Use: nil middleware")
		}
	}
	s.middleware = append(s.middleware, list...)
}

// start builds the middleware chain and starts the bus before the first connection.
func (s *Server) start() {
	s.mu.Lock()
	s.serving = true
	s.mu.Unlock()
	s.bus.start()
	s.startOnce.Do(func() {
		if len(s.toolWrappers) > 0 {
			s.wrappedTool = s.invokeTool
		}
		for _, wrap := range slices.Backward(s.toolWrappers) {
			s.wrappedTool = wrap(s.wrappedTool)
		}
		if len(s.middleware) == 0 {
			return
		}
		s.chain = middleware.NewChain(s.middleware...)
		s.costs.methods = make(map[string]*rpc.CostEstimate, len(methodNames))
		for name := range methodNames {
			p := new(rpc.CostEstimate)
			p.Seed(0) // assume a quick method until measured otherwise
			s.costs.methods[name] = p
		}
	})
}

// An inbound is an incoming request or notification in the chain.
type inbound struct {
	session *session
	call    *Call
	request *rpc.Request
	// dst is the buffer of the response. The first result is appended to it.
	dst []byte

	// The end of the chain, which does not run concurrently, uses the fields below.

	// out is dst with the first result. It is nil before that.
	out     []byte
	result  json.RawMessage
	dstUsed bool
}

// run passes the message through the chain to end.
func (in *inbound) run(end middleware.Handler) (json.RawMessage, error) {
	c, r := in.call, in.request
	return in.session.srv.chain.Run(chainContext{&c.request, c}, middleware.Message{
		Notification: r.Kind == jsonrpc.KindNotification, Method: c.method, ID: r.ID, Revision: c.Revision(), Params: r.Params,
	}, end)
}

// answer answers a request through the chain.
func (in *inbound) answer() ([]byte, error) {
	c, dst := in.call, in.dst
	c.name = targetName(in.request)
	result, err := in.run(in.handle)
	switch {
	case err != nil:
		return dst, err
	case result == nil:
		result = json.RawMessage("{}")
	case in.out != nil && sameSlice(result, in.result):
		return in.out, nil
	case sameSlice(result, in.result):
		return append(dst, result...), nil
	}
	if err := checkObject(result); err != nil {
		return dst, fmt.Errorf("result of a middleware: %w", err)
	}
	var hints *era.CacheHints
	if cacheable(c.method) {
		h := in.session.srv.cacheHints()
		if c.method == mcp.MethodResourcesRead {
			h = in.session.srv.readHints()
		}
		hints = &h
	}
	// result may alias the memory after dst
	return append(dst, c.results().complete(nil, hints, result)...), nil
}

// handle is the end of the chain for a request.
func (in *inbound) handle(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
	r, err := in.requestWith(m)
	if err != nil {
		return nil, err
	}
	if run := in.call.run.Load(); run != nil && run.isTask() {
		return nil, errNextAfterTask
	}
	in.call.leaveChain(ctx)
	var dst []byte
	first := !in.dstUsed
	if first {
		in.dstUsed, dst = true, in.dst
	}
	start := len(dst)
	dst, err = in.session.handle(in.call, r, dst)
	in.out, in.result = nil, nil
	if err != nil {
		return nil, err
	}
	if first {
		in.out = dst
	}
	in.result = dst[start:len(dst):len(dst)]
	return in.result, nil
}

var errNextAfterTask = errors.New("a middleware called next again for a call that is already running as a task")

// notify is the end of the chain for a notification.
func (in *inbound) notify(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
	r, err := in.requestWith(m)
	if err != nil {
		return nil, err
	}
	in.call.leaveChain(ctx)
	in.session.srv.custom.handleNotification(in.call, r)
	return nil, nil
}

// requestWith returns the request with the params of m.
func (in *inbound) requestWith(m *middleware.Message) (*rpc.Request, error) {
	if sameSlice(m.Params, in.request.Params) {
		return in.request, nil
	}
	r, err := in.request.WithParams(m.Params)
	if err != nil {
		return nil, fmt.Errorf("%s: params of a middleware: %w", in.call.method, err)
	}
	if len(r.Params) > 0 && r.Params[0] != '{' {
		return nil, fmt.Errorf("%s: params of a middleware: they must be an object", in.call.method)
	}
	if r.Kind == jsonrpc.KindRequest {
		in.session.route(r)
	}
	return r, nil
}

// sameSlice reports whether a and b are the same slice of memory.
func sameSlice(a, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 && (a == nil) == (b == nil) || len(a) > 0 && &a[0] == &b[0])
}

// checkMeta returns an error unless meta is nil or the JSON text of an object. Any key is valid,
// because a handler may forward the metadata of others.
func checkMeta(meta []byte) error {
	if meta == nil {
		return nil
	}
	if err := jsonwire.Valid(meta, 0); err != nil {
		return fmt.Errorf("_meta: %w", err)
	}
	if bytes.TrimLeft(meta, " \t\r\n")[0] != '{' {
		return errors.New("_meta must be a JSON object")
	}
	return nil
}

// checkObject returns an error unless text is an object whose _meta, if present, is an object.
func checkObject(text []byte) error {
	if err := jsonwire.Valid(text, 0); err != nil {
		return err
	}
	if text = jsonwire.AppendCompact(nil, text); text[0] != '{' {
		return errNoObject
	}
	members := jsonwire.ObjectMembers(text)
	for members.Next() {
		if members.KeyIs("_meta") && members.Value()[0] != '{' {
			return errMetaNoObject
		}
	}
	return nil
}

var (
	errNoObject     = errors.New("it must be a JSON object")
	errMetaNoObject = errors.New("its _meta must be a JSON object")
)

// targetName returns the name of a request's target. An unregistered tool or prompt has none, so
// that metrics by name stay bounded. A resource is named by the requested URI, since a template may
// match it.
func targetName(r *rpc.Request) string {
	switch v := r.Route.(type) {
	case item:
		return v.base().key
	case nil:
		if string(r.Method) == mcp.MethodResourcesRead {
			uri, _ := stringParam(r, "uri")
			return uri
		}
	}
	return ""
}

// cacheable reports whether results of the method carry cache hints.
func cacheable(method string) bool {
	switch method {
	case mcp.MethodDiscover, mcp.MethodToolsList, mcp.MethodPromptsList, mcp.MethodResourcesList, mcp.MethodResourceTemplatesList,
		mcp.MethodResourcesRead:
		return true
	}
	return false
}

// Notify sends a notification that belongs to the call, before its response. It returns
// [jsonrpc.ErrRequestEnded] after the call has ended. params is the text of an object or nil.
func (c *Call) Notify(method string, params []byte) error {
	p := &c.session.peer
	if p.chain == nil {
		return c.request.Notify(method, params)
	}
	return p.outboundNotification(c, c, method, params, func(_ context.Context, m *middleware.Message) (json.RawMessage, error) {
		return nil, c.request.Notify(method, m.Params)
	})
}
