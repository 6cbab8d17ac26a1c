package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"unicode/utf8"

	"mcpwire/internal/base/defaults"
	"mcpwire/internal/base/seal"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/middleware"
)

// maxInputRequests limits the input requests of one run of a handler.
const maxInputRequests = 64

var (
	// ErrInputRequired is returned by input requests whose response is not there yet, in revisions
	// that cannot wait for it. The handler should return with any error. The server sends the input
	// requests to the client and drops the handler's result. When the client returns with the
	// responses, the handler runs again from its beginning.
	ErrInputRequired = errors.New("the client must respond first; the handler will run again")
	// errInputNotAllowed is returned by input requests in other methods
	// (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr).
	errInputNotAllowed = errors.New("input requests are only possible in tools/call, prompts/get and resources/read")

	errInvalidKey           = errors.New("it needs a key in valid UTF-8")
	errDuplicateKey         = errors.New("duplicate key: each input request of a call needs its own")
	errTooManyInputRequests = fmt.Errorf("more than %d input requests in one call", maxInputRequests)
)

// An InputError reports an unusable response to an input request: its value is invalid or, in
// legacy revisions, it is an error. A user who declines is not an error but a response.
type InputError struct {
	// Key is the key of the input request.
	Key string
	// Method is the method of the input request.
	Method string
	// Refused is set if the client responded with an error.
	Refused bool
	// Err is the client's *jsonrpc.Error if Refused is set. Unwrap does not return it: an error of
	// the client is not an error of this server.
	Err error
}

func (e *InputError) Error() string {
	if e.Refused {
		return fmt.Sprintf("%s %q: the client rejected it: %v", e.Method, e.Key, e.Err)
	}
	return fmt.Sprintf("%s %q: invalid response of the client: %v", e.Method, e.Key, e.Err)
}

// An inputRequest is one input request to the client.
type inputRequest struct {
	key    string
	method string
	// params has the form of the call's revision. Nil means none.
	params  []byte
	feature ClientFeature
	// id is the elicitationId, in revisions that have it.
	id string

	// decode checks a response and stores it where the handler reads it. It does not keep the text.
	decode func(answer []byte) error
}

func (ir *inputRequest) digest() digest {
	h := sha256.New()
	h.Write([]byte(ir.method))
	h.Write([]byte{0})
	h.Write(ir.params)
	return digest(h.Sum(nil)[:len(digest{})])
}

// invalid returns the error for an unusable response.
func (ir *inputRequest) invalid(err error) error {
	return &InputError{Key: ir.key, Method: ir.method, Err: err}
}

// An inputRequester sends input requests in the way of an era. Its methods may be called by
// multiple goroutines at once.
type inputRequester interface {
	// ask decodes the response to each request or fails. The caller has checked that the method may
	// ask, that the client has the features and that the keys are unique.
	ask(ctx context.Context, requests []*inputRequest) error
	// respond converts the handler's result, appended to head, into the response to the request. It
	// is called once, at the end.
	respond(d *inputState, r *rpc.Request, head, out []byte, err error) ([]byte, error)
}

// An inputState holds the input requests of one run of a handler and its results of Once.
type inputState struct {
	requester inputRequester
	// stamp identifies the request state that came with the request.
	stamp seal.Stamp

	mu sync.Mutex
	// ended is set when the handler has returned.
	ended bool
	sent  map[string]struct{}
	// onceResults holds the results of Once by key.
	onceResults map[string]*onceResult
}

func newInputState(requester inputRequester) *inputState {
	return &inputState{requester: requester, sent: make(map[string]struct{}), onceResults: make(map[string]*onceResult)}
}

// An inputManager lets the handlers of a server ask clients for input.
type inputManager struct {
	opts InputOptions
	used usedStates
	// forms maps the reflect.Type of a form to its *form, which is compiled once.
	forms sync.Map
}

// init sets the defaults of the options.
func (im *inputManager) init(opts InputOptions) {
	im.opts = opts
	defaults.IfNotPositive(&im.opts.StateTTL, defaultStateTTL)
	defaults.IfNotPositive(&im.opts.MaxStateBytes, defaultStateBytes)
	defaults.IfNotPositive(&im.opts.MaxRounds, defaultMaxRounds)
}

// stateOf returns the input state of the call. The first use creates it.
func (im *inputManager) stateOf(c *Call) *inputState {
	if d := c.input.Load(); d != nil {
		return d
	}
	var rq inputRequester = &legacyRequester{c}
	if c.ex.Modern {
		rq = &inputRound{call: c}
	}
	c.input.CompareAndSwap(nil, newInputState(rq))
	return c.input.Load()
}

// resume loads the client's request state and responses. It runs before the handler.
func (im *inputManager) resume(c *Call, r *rpc.Request) error {
	var before seal.Stamp
	if c.input.Load() != nil { // middleware may handle the request more than once
		if d := c.input.Swap(nil); d != nil {
			before = d.stamp
		}
	}
	if !c.ex.Modern {
		return nil
	}
	state, hasState := r.Param("requestState")
	responses, hasResponses := r.Param("inputResponses")
	hasState = hasState && string(state) != "null"
	hasResponses = hasResponses && string(responses) != "null"
	switch {
	case hasState && state[0] != '"':
		return invalidParams("params.requestState must be a string")
	case hasResponses && responses[0] != '{':
		return invalidParams("params.inputResponses must be an object")
	case !hasState && !hasResponses:
		return nil
	}
	rd := &inputRound{call: c, answers: make(map[string]*inputResponse)}
	d := newInputState(rd)
	var pending map[string]pendingRequest
	var expires int64
	if hasState {
		m, stamp, err := im.open(c, r, jsonwire.Text(state), before)
		if err != nil {
			return err
		}
		rd.rounds, pending, expires, d.stamp = m.Rounds, m.Open, m.Expires, stamp
		for key, got := range m.Answers {
			rd.answers[key] = &inputResponse{digest: got.Digest, text: got.Text}
		}
		for key, value := range m.Once {
			d.onceResults[key] = savedOnce(value)
		}
	}
	answered := false
	if hasResponses {
		var err error
		if answered, err = rd.readResponses(responses, pending, !hasState); err != nil {
			return err
		}
	}
	if len(pending) > 0 && !answered { // the same input round once more
		rd.rounds--
		rd.expires = expires
	}
	c.input.Store(d)
	return nil
}

// respond converts the handler's result, appended to head, into the response to the request. If
// input requests are pending, they are the response. It is the last step of a call that may ask.
func (im *inputManager) respond(c *Call, r *rpc.Request, head, out []byte, err error) ([]byte, error) {
	if err != nil {
		out, err = im.convertURLRequired(c, head, out, err)
	}
	d := c.input.Load()
	if d == nil {
		return out, err
	}
	d.mu.Lock()
	d.ended = true
	d.mu.Unlock()
	return d.requester.respond(d, r, head, out, err)
}

// roundOf returns the inputRound of a call whose input requests go into the response to the
// request. It returns nil for other calls and for tasks.
func (im *inputManager) roundOf(c *Call) *inputRound {
	a := im.stateOf(c).requester
	if t, ok := a.(*taskRequester); ok && !t.run.isTask() {
		a = t.inner
	}
	r, _ := a.(*inputRound)
	return r
}

// reserveKeys checks that the requests may be sent and reserves their keys.
func (is *inputState) reserveKeys(requests []*inputRequest) error {
	is.mu.Lock()
	defer is.mu.Unlock()
	if is.ended {
		return jsonrpc.ErrRequestEnded
	}
	for i, q := range requests {
		_, duplicate := is.sent[q.key]
		for _, before := range requests[:i] {
			duplicate = duplicate || before.key == q.key
		}
		if duplicate {
			return fmt.Errorf("%s %q: %w", q.method, q.key, errDuplicateKey)
		}
	}
	if len(is.sent)+len(requests) > maxInputRequests {
		return errTooManyInputRequests
	}
	for _, q := range requests {
		is.sent[q.key] = struct{}{}
	}
	return nil
}

// InputRequests are input requests that are sent together: in one input round, or in parallel to
// legacy clients. Create a set with [Call.InputRequests]. A set must not be used by multiple
// goroutines at once; each may have its own.
type InputRequests struct {
	call *Call
	list []*inputRequest
	err  error
}

// InputRequests returns an empty set of input requests. Add requests, then call
// [InputRequests.Wait].
//
//	q := call.InputRequests()
//	roots := q.Roots("roots")
//	name := server.Form[Name](q, "name", "What is it to be called?")
//	if err := q.Wait(ctx); err != nil {
//		return "", err
//	}
//	use(roots.Value(), name.Value())
func (c *Call) InputRequests() *InputRequests { return &InputRequests{call: c} }

// A Reply holds the response to one of the [InputRequests] after Wait has returned nil.
type Reply[T any] struct{ value T }

// Value returns the response, or the zero value before there is one.
func (r *Reply[T]) Value() T { return r.value }

// add adds an input request, or records why it is invalid.
func (rs *InputRequests) add(q *inputRequest, err error) {
	switch {
	case err != nil:
	case q.key == "" || !utf8.ValidString(q.key):
		err = errInvalidKey
	case q.params != nil: // it may contain raw JSON from the caller
		err = jsonwire.Valid(q.params, 0)
	}
	if err != nil {
		rs.err = errors.Join(rs.err, fmt.Errorf("%s %q: %w", q.method, q.key, err))
		return
	}
	rs.list = append(rs.list, q)
}

// Wait sends all added input requests at once and returns when each has its response.
//
// In modern revisions no handler waits: Wait returns [ErrInputRequired] and the handler returns.
// When the client returns with the responses, the handler RUNS AGAIN FROM ITS BEGINNING and Wait
// returns nil at once. Code before an input request runs as often as the handler, so put side
// effects after the last one or into [Once].
//
// Wait sends no request if one of them is invalid: if a key is missing or was used before, if its
// content is invalid, if there are more than 64 in one run of the handler, or if the client lacks a
// feature (an [*UnsupportedError]). An unusable response is an [*InputError]. If ctx or the call
// ends first, the client's requests are canceled. In legacy revisions the waiting time counts
// toward [Limits.HandlerTimeout]; if ctx has no deadline, Wait gives up after
// [InputOptions.StateTTL].
func (rs *InputRequests) Wait(ctx context.Context) error {
	list, err := rs.list, rs.err
	rs.list, rs.err = nil, nil
	if err != nil || len(list) == 0 {
		return err
	}
	c := rs.call
	if !era.AllowsInput(c.method) {
		return errInputNotAllowed
	}
	features := make([]ClientFeature, 0, numClientFeatures)
	for _, q := range list {
		if !slices.Contains(features, q.feature) {
			features = append(features, q.feature)
		}
	}
	if err := c.Require(features...); err != nil {
		return err
	}
	for _, end := range []context.Context{ctx, c} {
		if err := end.Err(); err != nil {
			return fmt.Errorf("send an input request: %w", err)
		}
	}
	d := c.session.srv.inputs.stateOf(c)
	if err := d.reserveKeys(list); err != nil {
		return err
	}
	return d.requester.ask(ctx, list)
}

// requestInput sends a single input request.
func requestInput[T any](ctx context.Context, c *Call, add func(*InputRequests) *Reply[T]) (T, error) {
	q := c.InputRequests()
	r := add(q)
	if err := q.Wait(ctx); err != nil {
		var zero T
		return zero, err
	}
	return r.Value(), nil
}

// A legacyRequester sends requests to the client and waits for the responses.
type legacyRequester struct{ call *Call }

func (*legacyRequester) respond(_ *inputState, _ *rpc.Request, _, out []byte, err error) ([]byte, error) {
	return out, err
}

// ask sends all requests at once. When one fails, the others are canceled. The handler's goroutine
// decodes the responses because decoding may call the user's code, which may panic.
func (lr *legacyRequester) ask(ctx context.Context, requests []*inputRequest) error {
	ctx, cancel := joinContext(ctx, lr.call)
	defer cancel()
	answers := make([][]byte, len(requests))
	var once sync.Once
	var firstErr error
	request := func(i int) {
		var err error
		if answers[i], err = lr.request(ctx, requests[i]); err != nil {
			once.Do(func() { firstErr = err })
			cancel()
		}
	}
	var others sync.WaitGroup
	for i := 1; i < len(requests); i++ {
		others.Go(func() { request(i) })
	}
	request(0)
	others.Wait()
	if firstErr != nil {
		return firstErr
	}
	for i, q := range requests {
		if err := q.decode(answers[i]); err != nil {
			return q.invalid(err)
		}
	}
	return nil
}

// request sends one request and returns the raw response.
func (lr *legacyRequester) request(ctx context.Context, q *inputRequest) ([]byte, error) {
	s := lr.call.session
	if q.id != "" {
		s.elicitations.add(q.id)
	}
	answer, err := s.peer.call(ctx, lr.call, q.method, q.params)
	if err == nil {
		return answer, nil
	}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return nil, &InputError{Key: q.key, Method: q.method, Refused: true, Err: e}
	}
	err = fmt.Errorf("send the input request %q: %w", q.key, err)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return nil, err
}

// An inputRound is one run of a handler in a modern revision. The input requests are the result of
// the request. The client sends the request again with the responses, possibly to another process,
// so nothing waits here. It is the inputRequester of such a call.
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr)
type inputRound struct {
	call *Call

	mu sync.Mutex
	// rounds counts the earlier input rounds.
	rounds int
	// expires is the expiry of the request state if the client came back without a response: it has
	// its time for the same input round. It is in milliseconds since 1970, and otherwise zero.
	expires int64
	// answers holds the responses by key.
	answers map[string]*inputResponse
	pending []*inputRequest
	// handlerErr is set if a response in this request is unusable. The handler gets it.
	handlerErr error
	// wireErr is what the client gets instead of handlerErr.
	wireErr error
}

// An inputResponse is the client's response to the input request with the digest. An unbound one
// came without a request state and belongs to the first request under its key.
type inputResponse struct {
	digest digest
	// unbound is set if digest is unset.
	unbound bool
	text    json.RawMessage
}

// ask implements inputRequester. A response counts only for the request that it was given to. If
// the handler asks something else under the same key, the client is asked again, because the user
// agreed to something else.
func (rd *inputRound) ask(_ context.Context, requests []*inputRequest) error {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	if rd.handlerErr != nil {
		return rd.handlerErr
	}
	missing := false
	for _, q := range requests {
		got := rd.answers[q.key]
		if got != nil && !got.unbound && got.digest != q.digest() {
			rd.call.Logger().Warn("an input request changed since its response, and is sent again", "key", clip.String(q.key, 100))
			delete(rd.answers, q.key)
			got = nil
		}
		if got == nil {
			rd.pending = append(rd.pending, q)
			missing = true
			continue
		}
		if err := q.decode(got.text); err != nil {
			rd.handlerErr, rd.wireErr = q.invalid(err), invalidResponse(q.key, err)
			return rd.handlerErr
		}
		got.digest, got.unbound = q.digest(), false
	}
	if missing {
		return ErrInputRequired
	}
	return nil
}

func invalidResponse(key string, err error) error {
	return invalidParams("params.inputResponses[%q]: %v", clip.String(key, 100), err)
}

// readResponses stores the responses to pending requests and ignores others. It reports whether
// there was one. Without a request state it doesn't know the pending requests. Then the client
// starts over, and its responses count for the requests with their keys.
func (rd *inputRound) readResponses(responses []byte, pending map[string]pendingRequest, unbound bool) (answered bool, err error) {
	seen := make(map[string]struct{})
	members := jsonwire.ObjectMembers(responses)
	for members.Next() {
		key := members.KeyString()
		if _, twice := seen[key]; twice {
			return false, invalidParams("params.inputResponses[%q] appears twice", clip.String(key, 100))
		}
		seen[key] = struct{}{}
		sent, expected := pending[key]
		if !expected && !unbound {
			continue
		}
		if expected {
			if err := checkResponse(sent.Feature, members.Value()); err != nil {
				return false, invalidResponse(key, err)
			}
		}
		answered = true
		rd.answers[key] = &inputResponse{digest: sent.Digest, unbound: unbound, text: bytes.Clone(members.Value())}
	}
	return answered, nil
}

// checkResponse checks a response as far as possible before the handler runs.
func checkResponse(f ClientFeature, text []byte) error {
	switch f {
	case FormElicitation, URLElicitation:
		_, err := readElicitResult(text)
		return err
	case Sampling, SamplingTools:
		return new(mcp.CreateMessageResult).UnmarshalJSON(text)
	case Roots:
		return new(mcp.ListRootsResult).UnmarshalJSON(text)
	}
	return nil
}

// respond implements inputRequester. Pending input requests replace the handler's result.
func (rd *inputRound) respond(d *inputState, r *rpc.Request, head, out []byte, err error) ([]byte, error) {
	im := &rd.call.session.srv.inputs
	rd.mu.Lock()
	defer rd.mu.Unlock()
	switch {
	case rd.handlerErr != nil:
		return head, rd.wireErr
	case len(rd.pending) == 0:
		return out, err
	case rd.rounds >= im.opts.MaxRounds:
		return head, jsonrpc.Errorf(jsonrpc.CodeInternalError, "%s still has input requests after %d rounds; the limit is Options.Input.MaxRounds",
			clip.String(rd.call.name, 100), rd.rounds)
	}
	state, err := im.seal(rd.call, r, rd.requestState(d))
	if err != nil {
		return head, err
	}
	dst := append(head, `{"inputRequests":{`...)
	for i, q := range rd.pending {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonwire.AppendQuote(dst, q.key)
		dst = append(jsonwire.AppendQuote(append(dst, `:{"method":`...), q.method), `,"params":`...)
		if q.params == nil {
			dst = append(dst, `{}}`...)
		} else {
			dst = append(append(dst, q.params...), '}')
		}
	}
	dst = append(append(append(dst, `},"requestState":"`...), state...), `"}`...)
	return rd.call.results().endAs(dst, mcp.ResultTypeInputRequired), nil
}

// requestState returns the state for the next round.
func (rd *inputRound) requestState(d *inputState) *requestState {
	m := &requestState{
		Expires: rd.expires,
		Rounds:  rd.rounds + 1,
		Answers: make(map[string]savedResponse),
		Open:    make(map[string]pendingRequest),
		Once:    d.onceValues(),
	}
	for key, got := range rd.answers {
		if !got.unbound { // else no request matched it
			m.Answers[key] = savedResponse{got.digest, got.text}
		}
	}
	for _, q := range rd.pending {
		m.Open[q.key] = pendingRequest{q.digest(), q.feature}
	}
	return m
}

// A peer is the client of a session. Requests and notifications to it pass through the middleware.
type peer struct {
	conn *rpc.Conn
	// chain runs all middleware. It is nil without middleware.
	chain *middleware.Chain
	// values supplies the values of contexts that belong to no request. See sessionContext.
	values context.Context
	log    *slog.Logger
}

// notify sends a notification that belongs to no request.
func (p *peer) notify(method string, params []byte) {
	p.logDropped(method, p.sendNotification(p.context(), nil, method, params))
}

// sendNotification sends a notification that no response waits for. c is its Call or nil. It blocks
// while the peer does not read, so that later changes are merged.
func (p *peer) sendNotification(ctx context.Context, c *Call, method string, params []byte) error {
	if p.chain == nil {
		return p.conn.Notify(context.WithoutCancel(ctx), method, params)
	}
	return p.outboundNotification(ctx, c, method, params, func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
		return nil, p.conn.Notify(context.WithoutCancel(ctx), method, m.Params)
	})
}

// call sends a request to a legacy client. c is the Call of the handler that asks.
func (p *peer) call(ctx context.Context, c *Call, method string, params []byte) ([]byte, error) {
	if p.chain == nil {
		return p.conn.Call(ctx, method, params)
	}
	var reply json.RawMessage
	m := middleware.Message{Method: method, Params: params}
	result, err := p.outbound(ctx, c, m, func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
		var err error
		reply, err = p.conn.Call(ctx, method, m.Params)
		return reply, err
	})
	if err != nil || sameSlice(result, reply) {
		return result, err
	}
	if err := checkObject(result); err != nil {
		return nil, fmt.Errorf("%s: result of a middleware: %w", method, err)
	}
	return result, nil
}

// outboundNotification sends a notification through the chain.
func (p *peer) outboundNotification(ctx context.Context, c *Call, method string, params []byte, send middleware.Handler) error {
	_, err := p.outbound(ctx, c, middleware.Message{Method: method, Notification: true, Params: params}, send)
	return err
}

// outbound sends a message through the chain. c is the Call that it belongs to or nil. outbound
// converts a panic to an error, since the goroutine may belong to no request.
func (p *peer) outbound(ctx context.Context, c *Call, m middleware.Message, send middleware.Handler) (json.RawMessage, error) {
	m.Direction = jsonrpc.Outgoing
	if c != nil {
		m.Revision = c.Revision()
	}
	if CallOf(ctx) != c {
		ctx = context.WithValue(ctx, callKey{}, c)
	}
	return catchPanic(func() (json.RawMessage, error) { return p.chain.Run(ctx, m, send) })
}

// logDropped logs that a notification was not sent, unless err is nil.
func (p *peer) logDropped(method string, err error) {
	if err != nil {
		p.log.Debug("notification not sent", "method", method, "error", err)
	}
}

// context returns the context of messages that belong to no request.
func (p *peer) context() context.Context {
	return &sessionContext{context.WithoutCancel(p.values), p.conn}
}
