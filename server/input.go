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

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/seal"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxInputRequests is how many questions one run of a handler may ask.
const maxInputRequests = 64

var (
	// ErrInputRequired is what asking the client fails with if the answer is not there yet and the revision has no way to wait for it. The handler should
	// return, with this error or another: the client is told what is asked, and when it comes back with the answers, the handler runs again from its
	// beginning. Whatever it returned is dropped.
	ErrInputRequired = errors.New("the client has to answer first; the handler will run again")
	// ErrCannotAsk is what asking the client fails with in requests of other methods than tools/call, prompts/get and resources/read
	// (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr).
	ErrCannotAsk = errors.New("the client can be asked in tools/call, prompts/get and resources/read only")

	errInvalidKey           = errors.New("it needs a key, of valid UTF-8")
	errDuplicateKey         = errors.New("there was a question with that key already: each one of a call needs its own")
	errTooManyInputRequests = fmt.Errorf("more than %d questions in one call", maxInputRequests)
)

// An InputError says that a client did not answer a question in a way that can be used: what it sent is not what was asked for, or, in legacy
// revisions, it answered with an error. That a user declines is no error, but an answer.
type InputError struct {
	Key     string
	Method  string // that the client was asked with
	Refused bool   // the client answered with an error
	Err     error  // if Refused, the client's *jsonrpc.Error. Not unwrapped: an error of the client is not one of this server
}

func (e *InputError) Error() string {
	if e.Refused {
		return fmt.Sprintf("%s %q: the client refused: %v", e.Method, e.Key, e.Err)
	}
	return fmt.Sprintf("%s %q: the client's answer cannot be used: %v", e.Method, e.Key, e.Err)
}

// A question is one thing that the client is asked.
type inputRequest struct {
	key     string
	method  string
	params  []byte // in the shape of the call's revision; nil is none
	feature ClientFeature
	id      string // elicitationId, where the revision has it

	// decode decodes and checks an answer, and leaves it where the handler looks for it. It keeps nothing of the text.
	decode func(answer []byte) error
}

// A digest tells questions apart.
type digest [16]byte

func (ir *inputRequest) digest() digest {
	h := sha256.New()
	h.Write([]byte(ir.method))
	h.Write([]byte{0})
	h.Write(ir.params)
	return digest(h.Sum(nil)[:len(digest{})])
}

// invalid is the error for an answer that cannot be used.
func (ir *inputRequest) invalid(err error) error {
	return &InputError{Key: ir.key, Method: ir.method, Err: err}
}

// An asker has questions answered in the way of an era. Its methods may be called by many goroutines at once.
type inputRequester interface {
	// ask hands each question its answer, or fails. The questions are legitimate: the client has the features, and no other question has their keys.
	ask(ctx context.Context, questions []*inputRequest) error
	// respond turns what the handler returned, which is appended to head, into the answer to the request. It is called once, last.
	respond(d *inputState, r *jsonrpc.Request, head, out []byte, err error) ([]byte, error)
}

// A dialogue is what one run of a handler asks the client, and what it must not do a second time.
type inputState struct {
	requester inputRequester
	stamp     seal.Stamp // of the state that the request came with

	mu          sync.Mutex
	ended       bool // the handler has returned
	asked       map[string]struct{}
	onceResults map[string]*onceResult // see Once
}

func newInputState(requester inputRequester) *inputState {
	return &inputState{requester: requester, asked: make(map[string]struct{}), onceResults: make(map[string]*onceResult)}
}

// inputState returns that of the call, which begins with its first question.
func (c *Call) inputState() *inputState {
	if d := c.input.Load(); d != nil {
		return d
	}
	c.input.CompareAndSwap(nil, newInputState(c.newRequester()))
	return c.input.Load()
}

func (c *Call) newRequester() inputRequester {
	switch {
	case !mayRequestInput(c.method):
		return noInput{}
	case c.ex.Modern:
		return &inputRound{call: c}
	}
	return &legacyRequester{call: c}
}

func mayRequestInput(method string) bool {
	switch method {
	case mcp.MethodToolsCall, mcp.MethodPromptsGet, mcp.MethodResourcesRead:
		return true
	}
	return false
}

// respond makes the answer to the request of what its handler returned, which is appended to head: a call with questions that are open is answered with
// them. It is the last thing that is done for a call that may ask.
func (c *Call) respond(r *jsonrpc.Request, head, out []byte, err error) ([]byte, error) {
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

// reserveKeys makes sure that the questions may be asked, and that nobody else does it.
func (is *inputState) reserveKeys(requests []*inputRequest) error {
	is.mu.Lock()
	defer is.mu.Unlock()
	if is.ended {
		return jsonrpc.ErrRequestEnded
	}
	for i, q := range requests {
		_, duplicate := is.asked[q.key]
		for _, before := range requests[:i] {
			duplicate = duplicate || before.key == q.key
		}
		if duplicate {
			return fmt.Errorf("%s %q: %w", q.method, q.key, errDuplicateKey)
		}
	}
	if len(is.asked)+len(requests) > maxInputRequests {
		return errTooManyInputRequests
	}
	for _, q := range requests {
		is.asked[q.key] = struct{}{}
	}
	return nil
}

// noInput is the asker of calls that may not ask.
type noInput struct{}

func (noInput) ask(context.Context, []*inputRequest) error { return ErrCannotAsk }

func (noInput) respond(_ *inputState, _ *jsonrpc.Request, _, out []byte, err error) ([]byte, error) {
	return out, err
}

// InputRequests are put to the client together: in one round, and at the same time where it is asked by requests. Make some with [Call.InputRequests]. They are
// for one goroutine; several may have their own.
type InputRequests struct {
	call *Call
	list []*inputRequest
	err  error
}

// InputRequests returns an empty set of questions. Add them, then call [InputRequests.Wait].
//
//	q := call.InputRequests()
//	roots := q.Roots("roots")
//	name := server.Form[Name](q, "name", "What is it to be called?")
//	if err := q.Wait(ctx); err != nil {
//		return "", err
//	}
//	use(roots.Value(), name.Value())
func (c *Call) InputRequests() *InputRequests { return &InputRequests{call: c} }

// A Reply is where the answer to one of [InputRequests] is, once Wait has returned nil.
type Reply[T any] struct{ value T }

// Value returns the answer. It is the zero value as long as there is none.
func (r *Reply[T]) Value() T { return r.value }

// add adds a question, or the reason why it cannot be asked.
func (rs *InputRequests) add(q *inputRequest, err error) {
	switch {
	case err != nil:
	case q.key == "" || !utf8.ValidString(q.key):
		err = errInvalidKey
	case q.params != nil: // JSON texts in it may be anything
		err = jsonwire.Valid(q.params, 0)
	}
	if err != nil {
		rs.err = errors.Join(rs.err, fmt.Errorf("%s %q: %w", q.method, q.key, err))
		return
	}
	rs.list = append(rs.list, q)
}

// Wait asks the client what was added, all at once, and returns when each question is answered.
//
// In modern revisions no handler waits: Wait fails with [ErrInputRequired], the handler returns, and when the client comes back with the answers it RUNS
// AGAIN FROM ITS BEGINNING. This time Wait returns nil at once. What is done before a question is done as often as the handler runs, so put side effects
// behind the last question or into [Once].
//
// None is asked if one of them cannot be: a key is missing or was used before, a question has a fault, there are more than 64 in one run of the handler, or
// the client lacks a feature, which is an [*UnsupportedError]. An answer that cannot be used is an [*InputError]. When ctx or the call ends first, the client is told that it need not
// answer any more. In legacy revisions the time that the client takes is part of [Options.HandlerTimeout]; if ctx has no deadline, Wait gives up after
// [Options.StateTTL].
func (rs *InputRequests) Wait(ctx context.Context) error {
	list, err := rs.list, rs.err
	rs.list, rs.err = nil, nil
	if err != nil || len(list) == 0 {
		return err
	}
	c := rs.call
	if !mayRequestInput(c.method) {
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
			return fmt.Errorf("ask the client: %w", err)
		}
	}
	d := c.inputState()
	if err := d.reserveKeys(list); err != nil {
		return err
	}
	return d.requester.ask(ctx, list)
}

// askOne asks a single question.
func askOne[T any](ctx context.Context, c *Call, add func(*InputRequests) *Reply[T]) (T, error) {
	q := c.InputRequests()
	r := add(q)
	if err := q.Wait(ctx); err != nil {
		var zero T
		return zero, err
	}
	return r.Value(), nil
}

// A legacyRequester asks by requests to the client, and waits: the way of legacy revisions.
type legacyRequester struct{ call *Call }

func (*legacyRequester) respond(_ *inputState, _ *jsonrpc.Request, _, out []byte, err error) ([]byte, error) {
	return out, err
}

// ask sends all questions at once. When one fails, the others are cancelled. The answers are read by the goroutine of the handler, as that may call code of
// the user's, which may panic.
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

// request asks one question and returns the answer as it came.
func (lr *legacyRequester) request(ctx context.Context, q *inputRequest) ([]byte, error) {
	if q.id != "" {
		lr.call.session.rememberElicitation(q.id)
	}
	answer, err := lr.call.session.call(ctx, lr.call, q.method, q.params)
	if err == nil {
		return answer, nil
	}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return nil, &InputError{Key: q.key, Method: q.method, Refused: true, Err: e}
	}
	err = fmt.Errorf("ask the client %q: %w", q.key, err)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return nil, err
}

// joinContext returns a context that stems from the call, so that a request made with it is one of the call, and that ends with ctx too.
func (c *Call) joinContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if CallOf(ctx) == c {
		return context.WithCancel(ctx)
	}
	joined, cancel := context.WithCancelCause(c)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return joined, func() { stop(); cancel(nil) }
}

// A round is one run of a handler in a modern revision, whose questions go out in the answer to the request. The client sends the request again with
// the answers (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr), to whichever process: nothing waits for it here. It is
// the asker of such a call.
type inputRound struct {
	call *Call

	mu         sync.Mutex
	rounds     int                       // how often the client was asked in the rounds before
	answers    map[string]*inputResponse // by key
	pending    []*inputRequest
	handlerErr error // an answer that this request brought cannot be used: what the handler was told, and
	wireErr    error // what the client is told
}

// An answer is what the client said to the question with that digest. One that came without a state is to whatever is asked first under its key.
type inputResponse struct {
	digest  digest
	unbound bool // there is no digest
	text    json.RawMessage
}

// ask implements asker. An answer counts only for the question that it was given to: if a handler that runs again asks something else under the same
// key, what the user agreed to is not what would be done, so the client is asked again.
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
			rd.call.Logger().Warn("a question changed since it was answered, and is asked again", "key", clip(q.key))
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
	return invalidParams("params.inputResponses[%q]: %v", clip(key), err)
}

// resumeInput takes up what the client brings of earlier rounds. It comes before anything of the handler runs.
func (c *Call) resumeInput(r *jsonrpc.Request) error {
	var before seal.Stamp
	if c.input.Load() != nil { // a middleware has the request handled more than once
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
	if hasState {
		m, stamp, err := c.openState(r, unquote(state), before)
		if err != nil {
			return err
		}
		rd.rounds, pending, d.stamp = m.Rounds, m.Open, stamp
		for key, got := range m.Answers {
			rd.answers[key] = &inputResponse{digest: got.Digest, text: got.Text}
		}
		for key, value := range m.Once {
			d.onceResults[key] = savedOnce(value)
		}
	}
	if hasResponses {
		if err := rd.readResponses(responses, pending, !hasState); err != nil {
			return err
		}
	}
	c.input.Store(d)
	return nil
}

// readResponses takes the answers to the questions that are open and no other. Without a state nobody knows which are: a client that dropped it starts
// over, and its answers count for the questions with these keys.
func (rd *inputRound) readResponses(responses []byte, pending map[string]pendingRequest, unbound bool) error {
	seen := make(map[string]struct{})
	members := jsonwire.ObjectMembers(responses)
	for members.Next() {
		key := members.KeyString()
		if _, twice := seen[key]; twice {
			return invalidParams("params.inputResponses[%q] stands there twice", clip(key))
		}
		seen[key] = struct{}{}
		asked, expected := pending[key]
		if !expected && !unbound {
			continue
		}
		if expected {
			if err := checkResponse(asked.Feature, members.Value()); err != nil {
				return invalidResponse(key, err)
			}
		}
		rd.answers[key] = &inputResponse{digest: asked.Digest, unbound: unbound, text: bytes.Clone(members.Value())}
	}
	return nil
}

// checkResponse looks at an answer as far as it can be judged before the handler runs.
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

// respond implements asker: as long as there are open questions the answer is these, whatever the handler made of it.
func (rd *inputRound) respond(d *inputState, r *jsonrpc.Request, head, out []byte, err error) ([]byte, error) {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	switch opts := &rd.call.session.srv.opts; {
	case rd.handlerErr != nil:
		return head, rd.wireErr
	case len(rd.pending) == 0:
		return out, err
	case rd.rounds >= opts.MaxRounds:
		return head, jsonrpc.Errorf(jsonrpc.CodeInternalError, "%s still has questions after it was answered %d times; the limit is Options.MaxRounds",
			clip(rd.call.name), rd.rounds)
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

// requestState returns what the next round has to know.
func (rd *inputRound) requestState(d *inputState) *requestState {
	m := &requestState{
		Rounds:  rd.rounds + 1,
		Answers: make(map[string]savedResponse),
		Open:    make(map[string]pendingRequest),
		Once:    d.onceValues(),
	}
	for key, got := range rd.answers {
		if !got.unbound { // else it was not asked for
			m.Answers[key] = savedResponse{got.digest, got.text}
		}
	}
	for _, q := range rd.pending {
		m.Open[q.key] = pendingRequest{q.digest(), q.feature}
	}
	return m
}

// StateKeys are the secrets with which a server seals what it gives clients to keep: between the
// rounds of a call, and the cursors of lists. Whoever has one of them can make a call believe that
// it was answered. Servers of the same name that share them, in any number of processes, take up
// each other's calls and lists. They may be replaced at any time, by any goroutine.
type StateKeys struct{ ring seal.Ring }

// NewStateKeys returns keys made of secrets of 32 random bytes or more. The first one seals, all of them open.
func NewStateKeys(secrets ...[]byte) (*StateKeys, error) {
	k := new(StateKeys)
	if err := k.Replace(secrets...); err != nil {
		return nil, err
	}
	return k, nil
}

// Replace takes other secrets. To rotate without an interruption: put the new one behind the current ones in all processes; then to the front in all
// processes; and take the old one out when [Options.StateTTL] has passed. If it fails, the keys stay as they were.
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
	statePurpose           = "request state 1" // a number for each format of memory
)

// setStateDefaults fills in what the options leave open.
func (o *Options) setStateDefaults() {
	if o.StateKeys == nil {
		o.StateKeys = new(StateKeys)
	}
	if o.StateTTL <= 0 {
		o.StateTTL = defaultStateTTL
	}
	if o.MaxStateBytes <= 0 {
		o.MaxStateBytes = defaultStateBytes
	}
	if o.MaxRounds <= 0 {
		o.MaxRounds = defaultMaxRounds
	}
}

// A memory is what a call has to know of the rounds before. The client keeps it, sealed.
type requestState struct {
	Expires int64 // in milliseconds since 1970
	Rounds  int
	Answers map[string]savedResponse
	Open    map[string]pendingRequest // that the client was asked in the last round
	Once    map[string]json.RawMessage
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

// appendJSON appends the memory as json.Unmarshal reads it. Answers keep their text, which json.Marshal would change.
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

// sealState returns the text of the memory. The clock of its expiry starts now.
func (c *Call) sealState(r *jsonrpc.Request, m *requestState) ([]byte, error) {
	s := c.session.srv
	m.Expires = time.Now().Add(s.opts.StateTTL).UnixMilli()
	plaintext := m.appendJSON(nil)
	if n := seal.Len(len(plaintext)); n > s.opts.MaxStateBytes {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInternalError, "%s has too much to remember: a request state of %d bytes, more than the %d of Options.MaxStateBytes",
			clip(c.name), n, s.opts.MaxStateBytes)
	}
	text, _, err := s.opts.StateKeys.ring.Seal(nil, statePurpose, plaintext, c.stateBinding(r))
	if err != nil {
		return nil, fmt.Errorf("request state: %w", err)
	}
	return text, nil
}

// openState is the reverse of sealState, but that it counts as a use, unless the state is the one that this request was let in with before. There is one
// error for all that can be wrong with the text, so that it tells nothing to one who made it.
func (c *Call) openState(r *jsonrpc.Request, text string, before seal.Stamp) (*requestState, seal.Stamp, error) {
	s := c.session.srv
	plaintext, stamp, err := s.opts.StateKeys.ring.Open(text, s.opts.MaxStateBytes, statePurpose, c.stateBinding(r))
	m := new(requestState)
	if err == nil {
		err = json.Unmarshal(plaintext, m)
	}
	now := time.Now().UnixMilli()
	if err != nil || now >= m.Expires {
		return nil, stamp, errState
	}
	if s.opts.SingleUseState && stamp != before {
		if err := s.used.use(c.callerID(), stamp, now, m.Expires); err != nil {
			return nil, stamp, err
		}
	}
	return m, stamp, nil
}

var errState = invalidParams("params.requestState is not valid for this request, or not any more: start over without requestState and inputResponses")

// stateBinding returns what a state is good for: this server, caller, method and thing, with these parameters.
func (c *Call) stateBinding(r *jsonrpc.Request) []byte {
	var binding []byte
	for _, text := range []string{c.session.srv.name, c.Principal().ID, c.method, c.name} {
		binding = append(binary.AppendUvarint(binding, uint64(len(text))), text...)
	}
	return append(binding, digestParams(r.Params)...)
}

// digestParams digests all parameters but those that differ between the rounds. A client that writes them in another order, or with other white space
// between them, says the same.
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

// usedStates remembers which states were used, for as long as they could be used again. No caller
// can take all its places.
type usedStates struct {
	mu       sync.Mutex
	seen     map[seal.Stamp]struct{}
	byCaller map[string]int // how many each caller has used
	queue    []usedState    // in the order of their use, which is about that of their ends
}

type usedState struct {
	stamp   seal.Stamp
	caller  string
	expires int64
}

var (
	errTooManyStates       = jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many calls with a request state (limit %d in Options.StateTTL): try again later", maxUsedStates)
	errTooManyCallerStates = &jsonrpc.Error{
		Code:    CodeTooManyRequests,
		Message: fmt.Sprintf("too many requests with a request state: one caller may make %d in the time that a state lasts, try again later", maxUsedStatesPerCaller),
		Data:    []byte(`{"limit":"states"}`),
	}
)

// use fails if the state was used before, or the caller has used too many. The times are in
// milliseconds since 1970.
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

// A memo is the result of a function that is run once in a call, or will be.
type onceResult struct {
	done  chan struct{}
	value json.RawMessage
	err   error
}

var errOncePanicked = errors.New("the function panicked")

// Once runs fn, unless an earlier run of the handler has done it for the same call: then it returns what fn returned then. It is for what must not be
// done again when the handler is run again after a question to the client: a side effect, or something that has to stay the same, such as a random
// number or the time. Several calls of Once with the same key, in one or many goroutines, run fn once.
//
//	order, err := server.Once(ctx, "order", func(ctx context.Context) (Order, error) { return shop.Place(ctx, in.Item) })
//
// The result is remembered in the state that the client keeps, where it can be neither read nor changed, and must fit there (see
// [Options.MaxStateBytes]). It is what encoding/json makes of it, in the first run too. An error is not remembered: the next run tries again. What
// fn has not finished when the handler returns is not remembered either.
//
// A client that repeats a call, or a round of one, has it done again: see [Options.SingleUseState], or give what fn calls an idempotency key that
// comes from the client. So has a [Middleware] that calls next again. fn must not call Once with the same key, which would wait for itself. If ctx does
// not stem from a call, fn just runs.
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
			return nil, fmt.Errorf("once %q: it was done, but its result cannot be remembered: %w", key, err)
		}
		return text, nil
	})
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return v, fmt.Errorf("once %q: what was remembered is not a %T: %w", key, v, err)
	}
	return v, nil
}

// once runs fn unless it is known what it returns.
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

// runOnce runs fn, and forgets it again if it fails.
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

// savedOnce returns the memo of an earlier run.
func savedOnce(value json.RawMessage) *onceResult { return &onceResult{done: closedChan, value: value} }

// onceValues returns the results there are.
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
