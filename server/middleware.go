package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Message is a request or a notification on its way through the middleware. Its slices are valid until the [HandlerFunc] it was given to returns.
type Message struct {
	Direction    jsonrpc.Direction
	Notification bool       // nothing answers it, and no result matters
	Method       string     // to change it has no effect
	ID           jsonrpc.ID // of an incoming request; nil for all else

	// Params is the text of the params object, with its _meta, or nil if there are none. A middleware may put others in its place, but must not
	// write into the slice. What _meta says of an incoming request has been read before: to change it there has no effect.
	Params json.RawMessage

	// Call is the request that the message is, or belongs to: what a handler asks and notifies belongs to its Call. An incoming notification has one
	// of its own. It is nil for what the server sends of its own accord, that a list has changed for example.
	Call *Call

	session *session
	deliver HandlerFunc // what the end of the chain does with it
}

// Principal returns on whose behalf the peer is connected, which is never nil. It is shared and must not be changed.
func (m *Message) Principal() *Principal {
	if m.Call != nil {
		return m.Call.Principal()
	}
	return m.session.identity.principal
}

// A HandlerFunc takes a message on and returns what became of it. result is the text of the whole result object in the form that the request's
// revision has, so that of a modern tools/call has resultType and _meta; for a notification it is nil. result is valid until the function that
// the caller is returns, and must not be written to.
//
// An error is what the requester gets, as the errors of handlers are; a tool that failed is no error here but a result with isError.
type HandlerFunc func(ctx context.Context, m *Message) (result json.RawMessage, err error)

// A Middleware returns a HandlerFunc that does something before, after or instead of next. Examples are an audit log, a cache, a check of permissions.
//
//   - It may call next with a context that has more values or ends earlier: handlers run in it, and [CallOf] finds the Call in it.
//   - It may change m.Params, or call next with a changed copy of m.
//   - It may return a result of its own, without calling next if it likes. What each result of the revision has and its own lacks (resultType,
//     the server's identity, and ttlMs and cacheScope in lists and the like) is added. The rest is up to it: nothing is left out for clients of
//     older revisions. A nil result is an empty object.
//   - It may call next more than once. Calls at the same time wait for each other.
//   - It may give up on next and return. The request is answered when next has returned too, for which the context that next was given should end; next
//     fails if it is called later than that.
//
// A panic in it fails the one request, or the one notification.
type Middleware func(next HandlerFunc) HandlerFunc

// Use adds middleware; the first that was added is the outermost. All messages in both directions go through it:
//
//   - requests, once they have been found to be in order: of a revision that is spoken here, with the metadata they need, for a method that
//     there is. What is no such request is refused before. The handshake is made when initialize is read; a middleware can change or refuse the
//     answer, but a client that goes on regardless has a session.
//   - notifications that the protocol has, or that somebody handles ([Server.OnNotification]). A cancellation is not among them: it ends the
//     context of its request at once.
//   - what handlers ask legacy clients. What they ask modern ones is part of the result, which says resultType input_required then.
//   - notifications that are sent: progress, log messages, changes.
//
// Answers to the client's ping, and others that take microseconds, are given by the goroutine that reads the connection; with middleware, which
// may block, they go the way that slower ones go. Without middleware none of this costs anything.
//
// Use panics when the server has begun to serve, or if a Middleware is nil.
func (s *Server) Use(middleware ...Middleware) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serving {
		panic("server: Use after Serve: middleware must be there before the first connection")
	}
	for _, m := range middleware {
		if m == nil {
			panic("server: Use: nil Middleware")
		}
	}
	s.middleware = append(s.middleware, middleware...)
}

// start makes the chain of the middleware before the first connection is served.
func (s *Server) start() {
	s.mu.Lock()
	s.serving = true
	s.mu.Unlock()
	s.bus.start()
	s.startOnce.Do(func() {
		if len(s.middleware) == 0 {
			return
		}
		chain := HandlerFunc(deliver)
		for i := len(s.middleware) - 1; i >= 0; i-- {
			chain = s.middleware[i](chain)
		}
		s.chain = chain
		s.costs.methods = make(map[string]*jsonrpc.CostEstimate, len(methodNames))
		for name := range methodNames {
			p := new(jsonrpc.CostEstimate)
			p.Seed(0) // the method itself is quick; if the middleware is not, that will show
			s.costs.methods[name] = p
		}
	})
}

var errForeignMessage = errors.New("a middleware passed on a Message that it made itself; it must pass on the one it was given, or a copy")

// deliver is the end of the chain.
func deliver(ctx context.Context, m *Message) (json.RawMessage, error) {
	if m.deliver == nil {
		return nil, errForeignMessage
	}
	return m.deliver(ctx, m)
}

// A root is the context that the chain of an incoming message starts with: the message's own, in which its Call can be found. It does not have what
// a middleware adds, unlike the Call, which stands for the context that the handler runs in.
type chainContext struct {
	*jsonrpc.Context
	call *Call
}

func (cc chainContext) Value(key any) any {
	if key == (callKey{}) {
		return cc.call
	}
	return cc.Context.Value(key)
}

// setContext makes ctx, which stems from the call's root, what the call stands for.
func (c *Call) setContext(ctx context.Context) {
	if r, ok := ctx.(chainContext); ok && r.call == c {
		c.derived.Store(nil)
		return
	}
	c.derived.Store(&derivedContext{ctx})
}

// An inbound is an incoming request or notification in the chain.
type inbound struct {
	session *session
	call    *Call
	request *jsonrpc.Request
	dst     []byte // of a request's answer; the first result is appended to it

	sem      chan struct{} // full while somebody is at the end of the chain, and has these; a Mutex would hold up the clock of a testing/synctest bubble
	returned bool          // the chain has returned
	out      []byte        // dst with the first result; nil as long as there is none
	result   json.RawMessage
	dstUsed  bool
}

// run sends the message through the chain. Once it returns nothing uses the request's memory any more: a middleware that did not wait for next is waited
// for.
func (in *inbound) run(m *Message) (json.RawMessage, error) {
	in.sem = make(chan struct{}, 1)
	defer func() {
		in.sem <- struct{}{}
		in.returned = true
		<-in.sem
	}()
	c := in.call
	m.Method, m.ID, m.Params, m.Call, m.session = c.method, in.request.ID, in.request.Params, c, in.session
	return in.session.srv.chain(chainContext{&c.Context, c}, m)
}

var errNextAfterReturn = errors.New("a middleware called next after it had returned")

// runChain answers a request by way of the chain.
func (s *session) runChain(c *Call, r *jsonrpc.Request, dst []byte) ([]byte, error) {
	c.name = s.targetName(r)
	in := &inbound{session: s, call: c, request: r, dst: dst}
	result, err := in.run(&Message{deliver: in.handle})
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
		h := s.srv.cacheHints()
		if c.method == mcp.MethodResourcesRead {
			h = s.srv.readHints()
		}
		hints = &h
	}
	// result may be a part of what stands behind dst already
	return append(dst, s.srv.results.Complete(nil, c.ex.Features, hints, result)...), nil
}

// handle is the end of the chain for a request.
func (in *inbound) handle(ctx context.Context, m *Message) (json.RawMessage, error) {
	in.sem <- struct{}{}
	defer func() { <-in.sem }()
	if in.returned {
		return nil, errNextAfterReturn
	}
	r, err := in.requestWith(m)
	if err != nil {
		return nil, err
	}
	if run := in.call.run.Load(); run != nil && run.isTask() {
		return nil, errNextAfterTask
	}
	in.call.setContext(ctx)
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

var errNextAfterTask = errors.New("a middleware called next again for a call that has become a task, whose handler runs")

// notify is the end of the chain for a notification.
func (in *inbound) notify(ctx context.Context, m *Message) (json.RawMessage, error) {
	in.sem <- struct{}{}
	defer func() { <-in.sem }()
	if in.returned {
		return nil, errNextAfterReturn
	}
	r, err := in.requestWith(m)
	if err != nil {
		return nil, err
	}
	in.call.setContext(ctx)
	in.session.callNotificationHandler(in.call, r)
	return nil, nil
}

// requestWith returns the request as m has it.
func (in *inbound) requestWith(m *Message) (*jsonrpc.Request, error) {
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

// sameSlice reports whether a and b are the same piece of memory.
func sameSlice(a, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 && (a == nil) == (b == nil) || len(a) > 0 && &a[0] == &b[0])
}

// checkObject returns an error unless text is that of an object whose _meta, if it has one, is an object.
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

// targetName names what a request is about: a tool or a prompt only if it is registered, so that whoever counts calls by name has not too many names; a resource
// by whatever URI is asked for, since a template may stand for it.
func (s *session) targetName(r *jsonrpc.Request) string {
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

// cacheable reports whether results of the method say how long they may be kept.
func cacheable(method string) bool {
	switch method {
	case mcp.MethodDiscover, mcp.MethodToolsList, mcp.MethodPromptsList, mcp.MethodResourcesList, mcp.MethodResourceTemplatesList,
		mcp.MethodResourcesRead:
		return true
	}
	return false
}

// Notify sends a notification that belongs to the call, and is on the wire before its answer. It fails with [jsonrpc.ErrRequestEnded] once the call has
// ended. params is the text of an object, or nil.
func (c *Call) Notify(method string, params []byte) error {
	s := c.session
	if s.srv.chain == nil {
		return c.Context.Notify(method, params)
	}
	return s.outboundNotification(c, c, method, params, func(_ context.Context, m *Message) (json.RawMessage, error) {
		return nil, c.Context.Notify(method, m.Params)
	})
}

// notify sends a notification that belongs to no request.
func (s *session) notify(method string, params []byte) {
	s.logDropped(method, s.sendNotification(s.context(), nil, method, params))
}

// sendNotification sends a notification that no answer waits for. c is the Call that it belongs to, or nil. It waits for a peer that does not read, so that what
// there is to tell meanwhile is told once.
func (s *session) sendNotification(ctx context.Context, c *Call, method string, params []byte) error {
	if s.srv.chain == nil {
		return s.conn.Notify(context.WithoutCancel(ctx), method, params)
	}
	return s.outboundNotification(ctx, c, method, params, func(ctx context.Context, m *Message) (json.RawMessage, error) {
		return nil, s.conn.Notify(context.WithoutCancel(ctx), method, m.Params)
	})
}

// call asks the client on the connection, which has to be a legacy one. c is the Call whose handler asks.
func (s *session) call(ctx context.Context, c *Call, method string, params []byte) ([]byte, error) {
	if s.srv.chain == nil {
		return s.conn.Call(ctx, method, params)
	}
	var reply json.RawMessage
	result, err := s.outbound(ctx, &Message{Method: method, Params: params, Call: c, deliver: func(ctx context.Context, m *Message) (json.RawMessage, error) {
		var err error
		reply, err = s.conn.Call(ctx, method, m.Params)
		return reply, err
	}})
	if err != nil || sameSlice(result, reply) {
		return result, err
	}
	if err := checkObject(result); err != nil {
		return nil, fmt.Errorf("%s: result of a middleware: %w", method, err)
	}
	return result, nil
}

func (s *session) outboundNotification(ctx context.Context, c *Call, method string, params []byte, send HandlerFunc) error {
	_, err := s.outbound(ctx, &Message{Method: method, Notification: true, Params: params, Call: c, deliver: send})
	return err
}

// outbound sends a message by way of the chain. A panic there becomes an error, since the goroutine may be one that belongs to no request.
func (s *session) outbound(ctx context.Context, m *Message) (result json.RawMessage, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &jsonrpc.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	m.Direction, m.session = jsonrpc.Outgoing, s
	return s.srv.chain(ctx, m)
}
