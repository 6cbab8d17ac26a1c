package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"mcpwire/internal/defaults"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/internal/seal"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxInputRequests limits the input requests of one run of a handler.
const maxInputRequests = 64

var (
	// ErrInputRequired is returned by input requests whose response is not there yet, in revisions
	// that cannot wait for it. The handler should return with any error. The server sends the input
	// requests to the client and drops the handler's result. When the client returns with the
	// responses, the handler runs again from its beginning.
	ErrInputRequired = errors.New("the client must respond first; the handler will run again")
	// ErrCannotAsk is returned by input requests in methods other than tools/call, prompts/get and
	// resources/read
	// (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr).
	ErrCannotAsk = errors.New("input requests are only possible in tools/call, prompts/get and resources/read")

	errInvalidKey           = errors.New("it needs a key in valid UTF-8")
	errDuplicateKey         = errors.New("duplicate key: each input request of a call needs its own")
	errTooManyInputRequests = fmt.Errorf("more than %d input requests in one call", maxInputRequests)
)

// An InputError reports an unusable response to an input request: its value is invalid or, in
// legacy revisions, it is an error. A user who declines is not an error but a response.
type InputError struct {
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

// A digest identifies the content of an input request.
type digest [16]byte

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
	// ask decodes the response to each request or fails. The caller has checked that the client has
	// the features and that the keys are unique.
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

// inputState returns the input state of the call. The first use creates it.
func (c *Call) inputState() *inputState {
	if d := c.input.Load(); d != nil {
		return d
	}
	c.input.CompareAndSwap(nil, newInputState(c.newRequester()))
	return c.input.Load()
}

func (c *Call) newRequester() inputRequester {
	switch {
	case !era.AllowsInput(c.method):
		return noInput{}
	case c.ex.Modern:
		return &inputRound{call: c}
	}
	return &legacyRequester{call: c}
}

// respond converts the handler's result, appended to head, into the response to the request. If
// input requests are pending, they are the response. It is the last step of a call that may ask.
func (c *Call) respond(r *rpc.Request, head, out []byte, err error) ([]byte, error) {
	if err != nil {
		out, err = c.convertURLRequired(head, out, err)
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

// noInput is the inputRequester of methods that may not ask.
type noInput struct{}

func (noInput) ask(context.Context, []*inputRequest) error { return ErrCannotAsk }

func (noInput) respond(_ *inputState, _ *rpc.Request, _, out []byte, err error) ([]byte, error) {
	return out, err
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
// [InputOptions.Input.StateTTL].
func (rs *InputRequests) Wait(ctx context.Context) error {
	list, err := rs.list, rs.err
	rs.list, rs.err = nil, nil
	if err != nil || len(list) == 0 {
		return err
	}
	c := rs.call
	if !era.AllowsInput(c.method) {
		return ErrCannotAsk
	}
	features := make([]ClientFeature, 0, numClientFeatures)
	var seen [numClientFeatures]bool
	for _, q := range list {
		if !seen[q.feature] {
			seen[q.feature] = true
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
	d := c.inputState()
	if err := d.reserveKeys(list); err != nil {
		return err
	}
	return d.requester.ask(ctx, list)
}

// askOne sends a single input request.
func askOne[T any](ctx context.Context, c *Call, add func(*InputRequests) *Reply[T]) (T, error) {
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
	ctx, cancel := lr.call.joinContext(ctx)
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
	if q.id != "" {
		lr.call.session.elicitations.add(q.id)
	}
	answer, err := lr.call.session.peer.call(ctx, lr.call, q.method, q.params)
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

// joinContext returns a context that derives from the call, so that requests belong to it, and that
// also ends with ctx.
func (c *Call) joinContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if CallOf(ctx) == c {
		return context.WithCancel(ctx)
	}
	joined, cancel := context.WithCancelCause(c)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return joined, func() { stop(); cancel(nil) }
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

// resumeInput loads the client's request state and responses. It runs before the handler.
func (c *Call) resumeInput(r *rpc.Request) error {
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
		m, stamp, err := c.openState(r, unquote(state), before)
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
	rd.mu.Lock()
	defer rd.mu.Unlock()
	switch opts := &rd.call.session.srv.opts; {
	case rd.handlerErr != nil:
		return head, rd.wireErr
	case len(rd.pending) == 0:
		return out, err
	case rd.rounds >= opts.Input.MaxRounds:
		return head, jsonrpc.Errorf(jsonrpc.CodeInternalError, "%s still has input requests after %d rounds; the limit is Options.Input.MaxRounds",
			clip.String(rd.call.name, 100), rd.rounds)
	}
	state, err := rd.call.sealState(r, rd.requestState(d))
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
	dst = append(append(append(dst, `},"requestState":"`...), state...), '"')
	return rd.call.session.srv.results.EndAs(dst, rd.call.ex.Features, mcp.ResultTypeInputRequired), nil
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

// StateKeys are the secrets that seal the data that clients keep: request states, list cursors, and
// over HTTP the ids of legacy sessions. Anyone with a secret can forge responses to input requests,
// and sessions. Servers of the same name that share the keys continue each other's calls, lists and
// sessions. StateKeys may be used by multiple goroutines at once.
type StateKeys struct{ ring seal.Ring }

// NewStateKeys returns keys made of secrets of at least 32 random bytes. The first secret seals;
// all of them open.
func NewStateKeys(secrets ...[]byte) (*StateKeys, error) {
	k := new(StateKeys)
	if err := k.Replace(secrets...); err != nil {
		return nil, err
	}
	return k, nil
}

// Replace replaces the secrets. To rotate without interruption, add the new secret after the
// current ones in all processes, then move it to the front in all processes, and remove the old one
// after [InputOptions.Input.StateTTL]. If Replace fails, the keys do not change.
func (k *StateKeys) Replace(secrets ...[]byte) error {
	if err := k.ring.Replace(secrets...); err != nil {
		return fmt.Errorf("state keys: %w", err)
	}
	return nil
}

const (
	defaultStateTTL        = 10 * time.Minute
	defaultStateBytes      = 256 << 10
	defaultMaxRounds       = 8
	maxUsedStates          = 1 << 16
	maxUsedStatesPerCaller = maxUsedStates / 16
	statePurpose           = "request state 1" // increment for each format of requestState
)

// setStateDefaults fills in the zero options.
func (o *Options) setStateDefaults() {
	if o.StateKeys == nil {
		o.StateKeys = new(StateKeys)
	}
	defaults.IfNotPositive(&o.Input.StateTTL, defaultStateTTL)
	defaults.IfNotPositive(&o.Input.MaxStateBytes, defaultStateBytes)
	defaults.IfNotPositive(&o.Input.MaxRounds, defaultMaxRounds)
}

// A requestState is what a call remembers between input rounds. The client keeps it, sealed.
type requestState struct {
	// Expires is in milliseconds since 1970.
	Expires int64
	Rounds  int
	Answers map[string]savedResponse
	// Open holds the requests of the last round.
	Open map[string]pendingRequest
	Once map[string]json.RawMessage
}

type savedResponse struct {
	Digest digest
	Text   json.RawMessage
}

type pendingRequest struct {
	Digest  digest
	Feature ClientFeature
}

// MarshalText implements [encoding.TextMarshaler].
func (d digest) MarshalText() ([]byte, error) {
	return base64.RawURLEncoding.AppendEncode(nil, d[:]), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *digest) UnmarshalText(text []byte) error {
	b, err := base64.RawURLEncoding.DecodeString(string(text))
	if err == nil && len(b) != len(d) {
		err = fmt.Errorf("a digest of %d bytes", len(b))
	}
	copy(d[:], b)
	return err
}

// appendJSON appends the state in the form of json.Unmarshal. Unlike json.Marshal it keeps the text
// of responses.
func (rs *requestState) appendJSON(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"Expires":`...), rs.Expires, 10)
	dst = strconv.AppendInt(append(dst, `,"Rounds":`...), int64(rs.Rounds), 10)
	dst = appendMap(append(dst, `,"Answers":`...), rs.Answers, func(dst []byte, a savedResponse) []byte {
		dst = append(a.Digest.appendMember(append(dst, '{')), `,"Text":`...)
		return append(jsonwire.AppendCompact(dst, a.Text), '}')
	})
	dst = appendMap(append(dst, `,"Open":`...), rs.Open, func(dst []byte, q pendingRequest) []byte {
		dst = append(q.Digest.appendMember(append(dst, '{')), `,"Feature":`...)
		return append(strconv.AppendUint(dst, uint64(q.Feature), 10), '}')
	})
	dst = appendMap(append(dst, `,"Once":`...), rs.Once, func(dst []byte, v json.RawMessage) []byte {
		return jsonwire.AppendCompact(dst, v)
	})
	return append(dst, '}')
}

func (d digest) appendMember(dst []byte) []byte {
	return append(base64.RawURLEncoding.AppendEncode(append(dst, `"Digest":"`...), d[:]), '"')
}

func appendMap[T any](dst []byte, m map[string]T, appendValue func([]byte, T) []byte) []byte {
	dst = append(dst, '{')
	for i, key := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendValue(append(jsonwire.AppendQuote(dst, key), ':'), m[key])
	}
	return append(dst, '}')
}

// sealState returns the sealed state. Its StateTTL starts now unless it has an expiry.
func (c *Call) sealState(r *rpc.Request, m *requestState) ([]byte, error) {
	s := c.session.srv
	if m.Expires == 0 {
		m.Expires = time.Now().Add(s.opts.Input.StateTTL).UnixMilli()
	}
	plaintext := m.appendJSON(nil)
	if n := seal.Len(len(plaintext)); n > s.opts.Input.MaxStateBytes {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInternalError, "%s has a request state of %d bytes, more than the %d of Options.Input.MaxStateBytes",
			clip.String(c.name, 100), n, s.opts.Input.MaxStateBytes)
	}
	text, _, err := s.opts.StateKeys.ring.Seal(nil, statePurpose, plaintext, c.stateBinding(r))
	if err != nil {
		return nil, fmt.Errorf("request state: %w", err)
	}
	return text, nil
}

// openState opens a sealed state and counts its use, unless it is the one that this request was
// admitted with before. All failures return the same error, so that it tells a forger nothing.
func (c *Call) openState(r *rpc.Request, text string, before seal.Stamp) (*requestState, seal.Stamp, error) {
	s := c.session.srv
	plaintext, stamp, err := s.opts.StateKeys.ring.Open(text, s.opts.Input.MaxStateBytes, statePurpose, c.stateBinding(r))
	m := new(requestState)
	if err == nil {
		err = json.Unmarshal(plaintext, m)
	}
	now := time.Now().UnixMilli()
	if err != nil || now >= m.Expires {
		return nil, stamp, errState
	}
	if s.opts.Input.SingleUseState && stamp != before {
		if err := s.used.use(c.callerID(), stamp, now, m.Expires); err != nil {
			return nil, stamp, err
		}
	}
	return m, stamp, nil
}

var errState = invalidParams("params.requestState is not valid for this request, or has expired: start over without requestState and inputResponses")

// stateBinding returns what a state is bound to: the server, the caller, the method, its target and
// its parameters.
func (c *Call) stateBinding(r *rpc.Request) []byte {
	var binding []byte
	for _, text := range []string{c.session.srv.name, c.Principal().ID, c.method, c.name} {
		binding = append(binary.AppendUvarint(binding, uint64(len(text))), text...)
	}
	return append(binding, digestParams(r.Params)...)
}

// digestParams hashes all parameters except those that change between rounds. The order of members
// and white space do not matter.
func digestParams(params []byte) []byte {
	byKey := make(map[string][]byte)
	members := jsonwire.ObjectMembers(params)
	for members.Next() {
		switch key := members.KeyString(); key {
		case "_meta", "inputResponses", "requestState":
		default:
			byKey[key] = members.Value()
		}
	}
	h := sha256.New()
	var buf []byte
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		buf = jsonwire.AppendCompact(append(jsonwire.AppendQuote(buf[:0], key), ':'), byKey[key])
		h.Write(append(buf, ','))
	}
	return h.Sum(nil)
}

// usedStates remembers the used states until they expire. It limits the states of each caller.
type usedStates struct {
	mu   sync.Mutex
	seen map[seal.Stamp]struct{}
	// byCaller counts the states of each caller.
	byCaller map[string]int
	// queue is in order of use, which is roughly the order of expiry.
	queue []usedState
}

type usedState struct {
	stamp   seal.Stamp
	caller  string
	expires int64
}

var (
	errTooManyStates       = jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many calls with a request state (limit %d in Options.Input.StateTTL): try again later", maxUsedStates)
	errTooManyCallerStates = &jsonrpc.Error{
		Code:    CodeTooManyRequests,
		Message: fmt.Sprintf("too many requests with a request state: one caller may make %d while a state is valid, try again later", maxUsedStatesPerCaller),
		Data:    []byte(`{"limit":"states"}`),
	}
)

// use records a state. It fails if the state was used before or the caller has used too many. Times
// are in milliseconds since 1970.
func (u *usedStates) use(caller string, s seal.Stamp, now, expires int64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.queue) > 0 && u.queue[0].expires <= now {
		u.removeLocked(u.queue[0])
		u.queue[0] = usedState{}
		u.queue = u.queue[1:]
	}
	if _, used := u.seen[s]; used {
		return errState
	}
	switch {
	case u.byCaller[caller] >= maxUsedStatesPerCaller:
		return errTooManyCallerStates
	case len(u.queue) >= maxUsedStates:
		return errTooManyStates
	}
	if u.seen == nil {
		u.seen, u.byCaller = make(map[seal.Stamp]struct{}), make(map[string]int)
	}
	u.seen[s] = struct{}{}
	u.byCaller[caller]++
	u.queue = append(u.queue, usedState{s, caller, expires})
	return nil
}

func (u *usedStates) removeLocked(s usedState) {
	delete(u.seen, s.stamp)
	if u.byCaller[s.caller]--; u.byCaller[s.caller] == 0 {
		delete(u.byCaller, s.caller)
	}
}

// A onceResult is the result of a function that runs once in a call.
type onceResult struct {
	done  chan struct{}
	value json.RawMessage
	err   error
}

var errOncePanicked = errors.New("the function panicked")

// Once runs fn unless an earlier run of the handler for the same call has done so; then it returns
// the earlier result. Use it for code that must not run again after an input request: side effects,
// random numbers, the time. Calls with the same key, also from multiple goroutines, run fn once.
//
//	order, err := server.Once(ctx, "order", func(ctx context.Context) (Order, error) {
//		return shop.Place(ctx, in.Item)
//	})
//
// The result must fit into the request state that the client keeps (see
// [InputOptions.Input.MaxStateBytes]). The client can neither read nor change it. It passes through
// encoding/json, also in the first run. Errors are not remembered: the next run calls fn again. A
// result is lost if fn finishes after the handler has returned.
//
// If a client repeats a call or a round, fn runs again: see [InputOptions.SingleUseState], or give
// fn an idempotency key from the client. The same is true for a [Middleware] that calls next again.
// fn must not call Once with the same key, which would deadlock. If ctx does not derive from a
// call, Once just runs fn.
func Once[T any](ctx context.Context, key string, fn func(context.Context) (T, error)) (T, error) {
	var v T
	c := CallOf(ctx)
	switch {
	case c == nil:
		return fn(ctx)
	case !utf8.ValidString(key):
		return v, fmt.Errorf("once %q: %w", key, errInvalidKey)
	}
	text, err := c.inputState().once(ctx, key, func() (json.RawMessage, error) {
		v, err := fn(ctx)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(v)
		if err == nil {
			err = jsonwire.Valid(text, 0) // see Call.Log
		}
		if err == nil {
			err = json.Unmarshal(text, new(T))
		}
		if err != nil {
			return nil, fmt.Errorf("once %q: the function ran, but its result cannot be stored: %w", key, err)
		}
		return text, nil
	})
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return v, fmt.Errorf("once %q: the stored result is not a %T: %w", key, v, err)
	}
	return v, nil
}

// once returns the result of fn, or a remembered one.
func (is *inputState) once(ctx context.Context, key string, fn func() (json.RawMessage, error)) (json.RawMessage, error) {
	is.mu.Lock()
	m := is.onceResults[key]
	switch {
	case m == nil && is.ended:
		is.mu.Unlock()
		return nil, fmt.Errorf("once %q: %w", key, jsonrpc.ErrRequestEnded)
	case m == nil:
		m = &onceResult{done: make(chan struct{}), err: errOncePanicked}
		is.onceResults[key] = m
		is.mu.Unlock()
		is.runOnce(key, m, fn)
		return m.value, m.err
	}
	is.mu.Unlock()
	select {
	case <-m.done:
		return m.value, m.err
	case <-ctx.Done():
		return nil, fmt.Errorf("once %q: %w", key, ctx.Err())
	}
}

// runOnce runs fn and removes the result if it is an error.
func (is *inputState) runOnce(key string, m *onceResult, fn func() (json.RawMessage, error)) {
	defer func() {
		is.mu.Lock()
		defer is.mu.Unlock()
		if m.err != nil {
			delete(is.onceResults, key)
		}
		close(m.done)
	}()
	m.value, m.err = fn()
}

var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// savedOnce returns the result of an earlier run.
func savedOnce(value json.RawMessage) *onceResult { return &onceResult{done: closedChan, value: value} }

// onceValues returns the finished results.
func (is *inputState) onceValues() map[string]json.RawMessage {
	is.mu.Lock()
	defer is.mu.Unlock()
	all := make(map[string]json.RawMessage)
	for key, m := range is.onceResults {
		select {
		case <-m.done:
			all[key] = m.value
		default:
		}
	}
	return all
}
