package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonedit"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/rpc"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A call is a request of a client that one upstream answers.
type call struct {
	target
	// era is that of the client.
	era bridge.Era
	// m is the request of the client, and frame the one with the server's own names.
	m     *jsonrpc.Message
	frame []byte
}

// A forwardFunc sends a request to a backend and appends the response.
type forwardFunc func(ctx context.Context, s *scope, frame []byte) ([]byte, error)

// resolve returns the upstream and the text of a request with the server's own names. ok is false
// if the gateway does not forward the method.
func (g *Gateway) resolve(ctx context.Context, clientEra bridge.Era, frame []byte, m *jsonrpc.Message) (c call, ok bool, err error) {
	c = call{era: clientEra, m: m, frame: frameOf(frame, m)}
	modern := clientEra == bridge.EraModern
	switch method := string(m.Method); method {
	case mcp.MethodToolsCall, mcp.MethodPromptsGet:
		kind := KindTool
		if method == mcp.MethodPromptsGet {
			kind = KindPrompt
		}
		name, ok := textParam(m, "name")
		if !ok {
			return c, true, missingParam("name")
		}
		if c.target, err = g.find(ctx, clientEra, kind, name); err != nil {
			return c, true, err
		}
		c.frame = ownArguments(replaceText(c.frame, to(c.own), "params", "name"), c.upstream.name)
	case mcp.MethodResourcesRead, mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe:
		if modern && method != mcp.MethodResourcesRead {
			return c, false, nil
		}
		uri, ok := textParam(m, "uri")
		if !ok {
			return c, true, missingParam("uri")
		}
		if c.target, err = g.findResource(ctx, clientEra, KindResource, uri); err != nil {
			return c, true, err
		}
		c.frame = replaceText(c.frame, to(c.own), "params", "uri")
	case mcp.MethodComplete:
		ref, _ := m.Param("ref")
		member, kind, err := reference(ref)
		if err != nil {
			return c, true, err
		}
		if kind == KindPrompt {
			c.target, err = g.find(ctx, clientEra, kind, era.LookupString(ref, member))
		} else {
			c.target, err = g.findResource(ctx, clientEra, kind, era.LookupString(ref, member))
		}
		if err != nil {
			return c, true, err
		}
		c.frame = replaceText(c.frame, to(c.own), "params", "ref", member)
	case mcp.MethodTasksGet, mcp.MethodTasksCancel, mcp.MethodTasksUpdate, mcp.MethodTasksResult:
		if modern && method == mcp.MethodTasksResult || !modern && method == mcp.MethodTasksUpdate {
			return c, false, nil
		}
		if modern && !declaresTasks(m) {
			return c, true, errTasksMissing
		}
		id, ok := textParam(m, "taskId")
		if !ok {
			return c, true, missingParam("taskId")
		}
		u, own := g.ownTask(ctx, id)
		if u == nil {
			return c, true, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "unknown task " + quote(id)}
		}
		c.target = target{upstream: u, kind: KindTool, own: own}
		c.frame = replaceText(c.frame, to(own), "params", "taskId")
	default:
		return c, false, nil
	}
	return c, true, nil
}

// reference returns the member of the ref of completion/complete that names the prompt or template.
// A ref with both names, or with members that differ only in case, is an error: the server could
// read another one than the view was asked about.
func reference(ref []byte) (member string, kind Kind, err error) {
	member, kind = "name", KindPrompt
	switch era.LookupString(ref, "type") {
	case "ref/prompt":
	case "ref/resource":
		member, kind = "uri", KindTemplate
	default:
		return "", 0, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "invalid params: ref.type must be ref/prompt or ref/resource"}
	}
	for members := jsonwire.ObjectMembers(ref); members.Next(); {
		key := members.KeyString()
		for _, name := range []string{"type", "name", "uri"} {
			if strings.EqualFold(key, name) && key != "type" && key != member {
				return "", 0, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "invalid params: a ref with this type must not have the member " + quote(key)}
			}
		}
	}
	if era.LookupString(ref, member) == "" {
		return "", 0, missingParam("ref." + member)
	}
	return member, kind, nil
}

// declaresTasks reports if a modern client declares the tasks extension.
func declaresTasks(m *jsonrpc.Message) bool {
	meta, _ := m.Param("_meta")
	return era.Lookup(meta, mcp.MetaClientCapabilities, "extensions", mcp.ExtensionTasks) != nil
}

// errTasksMissing is the error of a request about a task from a client that does not declare the
// tasks extension.
var errTasksMissing = mcp.MissingRequiredClientCapability(mcp.ClientCapabilities{
	Extensions: map[string]json.RawMessage{mcp.ExtensionTasks: json.RawMessage("{}")},
})

func missingParam(name string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "invalid params: " + name + " must be a string"}
}

// isAudited reports if a method is a call for Options.Admit, Check and Audit.
func isAudited(method string) bool {
	switch method {
	case mcp.MethodToolsCall, mcp.MethodPromptsGet, mcp.MethodResourcesRead, mcp.MethodResourcesSubscribe, mcp.MethodComplete,
		mcp.MethodTasksGet, mcp.MethodTasksResult, mcp.MethodTasksList, mcp.MethodTasksCancel, mcp.MethodTasksUpdate:
		return true
	}
	return false
}

// forward answers a request that one upstream answers: it finds the upstream, asks the policy,
// sends the request with send, and appends the response to dst. send appends to dst, too. ok is
// false if the gateway does not forward the method.
func (g *Gateway) forward(ctx context.Context, clientEra bridge.Era, frame []byte, m *jsonrpc.Message, dst []byte, send forwardFunc) (_ []byte, ok bool, err error) {
	c, ok, err := g.resolve(ctx, clientEra, frame, m)
	if !ok {
		return dst, false, nil
	}
	dst, err = g.perform(ctx, &c, err, dst, send)
	return dst, true, err
}

// perform is forward for a call that resolve has returned, with its error or nil.
func (g *Gateway) perform(ctx context.Context, c *call, err error, dst []byte, send forwardFunc) ([]byte, error) {
	st := g.state.Load()
	n := len(dst)
	var record *CallRecord
	if isAudited(string(c.m.Method)) && (st.opts.Audit != nil || st.opts.Check != nil) {
		record = newRecord(ctx, c)
		record.RequestBytes = len(c.frame)
	}
	outcome := OutcomeDenied
	if err == nil {
		dst, outcome, err = g.forwardTo(ctx, st, c, record, dst, send)
	}
	if err != nil {
		dst = dst[:n]
	}
	if record != nil && st.opts.Audit != nil {
		record.finish(outcome, dst[n:], err)
		st.opts.Audit(record)
	}
	return dst, err
}

// forwardTo is forward for a call whose upstream is known.
func (g *Gateway) forwardTo(ctx context.Context, st *state, c *call, record *CallRecord, dst []byte, send forwardFunc) ([]byte, Outcome, error) {
	method := string(c.m.Method)
	if isAudited(method) {
		if st.opts.Admit != nil {
			release, err := st.opts.Admit(ctx, c.upstream.name)
			if err != nil {
				return dst, OutcomeRejected, err
			}
			if release != nil {
				defer release()
			}
		}
		if st.opts.Check != nil {
			if err := st.opts.Check(ctx, &record.CallInfo); err != nil {
				return dst, OutcomeDenied, err
			}
		}
	}
	login := c.upstream.conf.Load().Login
	if login != nil {
		var err error
		if c.frame, err = g.passLogin(ctx, c, login); err != nil {
			return dst, outcomeOfError(err), err
		}
		if c.login {
			return g.appendToolText(dst, c.era, c.m.ID, "You are logged in to "+c.upstream.name+". Its tools are listed now.", false), OutcomeOK, nil
		}
	}
	be, err := c.upstream.acquire(ctx)
	if err != nil {
		return dst, OutcomeRejected, err
	}
	defer be.release()
	c.upstream.begin()
	defer c.upstream.end()
	s := g.scope(ctx, be, c.era)
	s.bare = c.bare && method == mcp.MethodResourcesRead
	frame := c.frame
	if _, has := c.m.Param("requestState"); has && c.era == bridge.EraModern {
		if frame, err = s.openState(frame); err != nil {
			return dst, OutcomeDenied, err
		}
	}
	frame = s.ownRelated(frame, "params")
	n := len(dst)
	var response []byte
	if observe := st.opts.Observe; observe == nil {
		response, err = send(ctx, &s, frame)
	} else {
		response, err = observe.observeUpstream(ctx, &s, method, frame, n, send)
	}
	if login != nil {
		if required := g.afterLogin(ctx, c.upstream, frame, response[min(n, len(response)):], err); required != nil {
			return dst, outcomeOfError(required), required
		}
	}
	if err != nil {
		return dst, outcomeOfError(err), fmt.Errorf("%s: %w", c.upstream.name, err)
	}
	if own := response[n:]; len(own) > 0 {
		if seen := s.response(method, own); len(seen) != len(own) || &seen[0] != &own[0] {
			response = append(response[:n:n], seen...)
		}
	}
	return response, OutcomeOK, nil
}

// outcomeOfError returns the outcome of a call without a response.
func outcomeOfError(err error) Outcome {
	if _, ok := errors.AsType[*relay.RejectedError](err); ok {
		return OutcomeRejected
	}
	if _, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return OutcomeError
	}
	if _, ok := errors.AsType[*loginError](err); ok {
		return OutcomeLogin
	}
	return OutcomeCanceled
}

// newRecord returns the record of a call that begins now.
func newRecord(ctx context.Context, c *call) *CallRecord {
	m := c.m
	r := &CallRecord{Context: ctx, Start: time.Now()}
	r.Method, r.Kind, r.Name = string(m.Method), c.kind, c.own
	if c.upstream != nil {
		r.Upstream = c.upstream.name
	} else if name, ok := textParam(m, "name"); ok { // it names nothing
		r.Name = name
	} else if uri, ok := textParam(m, "uri"); ok {
		r.Name = uri
	} else if id, ok := textParam(m, "taskId"); ok {
		r.Name = id
	} else if ref, ok := m.Param("ref"); ok {
		if member, _, err := reference(ref); err == nil {
			r.Name = era.LookupString(ref, member)
		}
	}
	r.Arguments, _ = m.Param("arguments")
	r.Meta, _ = m.Param("_meta")
	return r
}

// finish completes the record.
func (r *CallRecord) finish(outcome Outcome, response []byte, err error) {
	r.Duration, r.Outcome, r.ResponseBytes = time.Since(r.Start), outcome, len(response)
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		r.Code = int(e.Code)
	} else if err != nil && outcome != OutcomeCanceled && outcome != OutcomeLogin {
		r.Code = int(jsonrpc.CodeInternalError)
	}
	if outcome != OutcomeOK {
		return
	}
	if code := jsonedit.Locate(response, "error", "code"); code.Found() {
		n, _ := jsonwire.ParseInt(code.Of(response))
		r.Outcome, r.Code = OutcomeError, int(n)
		return
	}
	result := jsonedit.Locate(response, "result").Of(response)
	switch {
	case string(jsonwire.Lookup(result, "isError")) == "true":
		r.Outcome = OutcomeToolError
	case string(jsonwire.Lookup(result, "resultType")) == `"input_required"`:
		r.Outcome = OutcomeInput
	}
}

// answerError appends the response for an error of the gateway's own, or returns the error if there
// is no response.
func answerError(ctx context.Context, dst []byte, id jsonrpc.ID, err error) ([]byte, error) {
	if _, ok := errors.AsType[*relay.RejectedError](err); ok {
		return dst, err
	}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return jsonrpc.AppendError(dst, id, e, false), nil
	}
	if ctx.Err() != nil || errors.Is(err, jsonrpc.ErrRequestEnded) {
		return dst, err
	}
	return jsonrpc.AppendError(dst, id, jsonrpc.Errorf(jsonrpc.CodeInternalError, "%v", err), false), nil
}

// A statelessPeer is the peer of modern requests.
type statelessPeer struct {
	g *Gateway

	// recorder records the client of a byte stream. It is nil over HTTP, or if nothing is recorded.
	recorder *bridge.ClientRecorder

	mu            sync.Mutex
	subscriptions map[*subscription]struct{}
	// recorders holds the recorders of HTTP clients by caller.
	recorders map[string]*bridge.ClientRecorder
}

// maxRecorders limits the recorders of HTTP clients. A client whose recorder was forgotten gets a
// new one.
const maxRecorders = 1024

// recorderOf returns the recorder for a request, or nil.
func (p *statelessPeer) recorderOf(ctx context.Context) *bridge.ClientRecorder {
	if p.recorder != nil || p.g.recording == nil {
		return p.recorder
	}
	caller := relay.CallerOf(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.recorders[caller]
	if l == nil {
		if len(p.recorders) >= maxRecorders {
			clear(p.recorders)
		}
		l = p.g.recording.ClientRecorder()
		p.recorders[caller] = l
	}
	return l
}

// Request implements relay.Peer.
func (p *statelessPeer) Request(ctx context.Context, frame []byte, m *jsonrpc.Message, out rpc.Sender, dst []byte) ([]byte, error) {
	line := frameOf(frame, m)
	o := p.recorderOf(ctx).Received(ctx, line)
	ctx = bridge.WithOrigin(ctx, o)
	var response []byte
	var err error
	if observe := p.g.state.Load().opts.Observe; observe == nil {
		response, err = p.request(ctx, o, line, m, out, dst)
	} else {
		response, err = observe.observeClient(ctx, mcp.LatestRevision, m, dst, func(ctx context.Context) ([]byte, error) {
			return p.request(ctx, o, line, m, out, dst)
		})
	}
	recordAnswer(o, m, response[len(dst):], err)
	return response, err
}

func (p *statelessPeer) request(ctx context.Context, o *bridge.Origin, frame []byte, m *jsonrpc.Message, out rpc.Sender, dst []byte) ([]byte, error) {
	g := p.g
	method := string(m.Method)
	if meta, ok := m.Param("_meta"); ok && bytes.Contains(meta, []byte(extensionApps)) {
		ctx = withApps(ctx, era.Lookup(meta, mcp.MetaClientCapabilities))
	}
	if kind, ok := kindOfList(method); ok {
		response, err := g.answerList(ctx, bridge.EraModern, kind, m, dst)
		if err != nil {
			return answerError(ctx, response, m.ID, err)
		}
		return response, nil
	}
	switch method {
	case mcp.MethodDiscover:
		return g.answerDiscover(ctx, m, dst), nil
	case mcp.MethodSubscriptionsListen:
		return p.listen(ctx, o, frame, m, out, dst)
	}
	response, ok, err := g.forward(ctx, bridge.EraModern, frame, m, dst, func(ctx context.Context, s *scope, frame []byte) ([]byte, error) {
		var box rpc.Sender
		if out != nil {
			box = scopeSender{s, out, o}
		}
		return s.be.stateless.Request(s.be.callerContext(ctx), frame, m, box, dst)
	})
	if !ok {
		err = jsonrpc.MethodNotFound(method)
	}
	if e, ok := errors.AsType[*loginError](err); ok {
		return g.answerLogin(dst, bridge.EraModern, showsPages(m), m, e)
	}
	if err != nil {
		return answerError(ctx, dst, m.ID, err)
	}
	return response, nil
}

// Notification implements relay.Peer. Over HTTP, modern clients send none that matters: they cancel
// by closing the stream of a request.
func (p *statelessPeer) Notification(context.Context, []byte, *jsonrpc.Message) {}

// Response implements relay.Peer. Modern clients send no responses.
func (p *statelessPeer) Response(context.Context, []byte, *jsonrpc.Message) {}

// Close implements relay.Peer. It ends the subscriptions.
func (p *statelessPeer) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for sub := range p.subscriptions {
		sub.end()
	}
}

// add adds a subscription, until remove.
func (p *statelessPeer) add(sub *subscription) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.subscriptions[sub] = struct{}{}
}

func (p *statelessPeer) remove(sub *subscription) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.subscriptions, sub)
}

// A scopeSender sends messages of a server to a client.
type scopeSender struct {
	s      *scope
	out    rpc.Sender
	origin *bridge.Origin
}

// Send implements rpc.Sender.
func (s scopeSender) Send(message []byte) error { return s.SendFrom(message, bridge.Provenance{}) }

// SendFrom implements bridge.ProvenanceSender.
func (s scopeSender) SendFrom(message []byte, from bridge.Provenance) error {
	m := new(jsonrpc.Message)
	if err := jsonrpc.Parse(message, m, 0); err != nil {
		return err
	}
	frame := s.s.message(message, m)
	s.origin.Sent(frame, from)
	return s.out.Send(frame)
}
