package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"mcpwire/internal/base/seal"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/internal/rpc/relay"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
)

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
// after [InputOptions.StateTTL]. If Replace fails, the keys do not change.
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

// A digest identifies the content of an input request.
type digest [16]byte

// MarshalText implements [encoding.TextMarshaler].
func (d digest) MarshalText() ([]byte, error) {
	return base64.RawURLEncoding.AppendEncode(nil, d[:]), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *digest) UnmarshalText(text []byte) error {
	b, err := base64.RawURLEncoding.DecodeString(string(text))
	if err == nil && len(b) != len(d) {
		err = fmt.Errorf("digest: got %d bytes, want %d", len(b), len(d))
	}
	copy(d[:], b)
	return err
}

// seal returns the state that the client keeps for the call. Its StateTTL starts now unless it has
// an expiry.
func (im *inputManager) seal(c *Call, r *rpc.Request, m *requestState) ([]byte, error) {
	if m.Expires == 0 {
		m.Expires = time.Now().Add(im.opts.StateTTL).UnixMilli()
	}
	var plaintext bytes.Buffer
	enc := json.NewEncoder(&plaintext)
	enc.SetEscapeHTML(false) // keeps the text of responses
	if err := enc.Encode(m); err != nil {
		return nil, fmt.Errorf("request state: %w", err)
	}
	if n := seal.Len(plaintext.Len()); n > im.opts.MaxStateBytes {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInternalError, "%s has a request state of %d bytes, more than the %d of Options.Input.MaxStateBytes",
			clip.String(c.name, 100), n, im.opts.MaxStateBytes)
	}
	text, _, err := c.session.srv.opts.StateKeys.ring.Seal(nil, statePurpose, plaintext.Bytes(), stateBinding(c, r))
	if err != nil {
		return nil, fmt.Errorf("request state: %w", err)
	}
	return text, nil
}

// open opens a sealed state and counts its use, unless it is the one that this request was admitted
// with before. All failures return the same error, so that it tells a forger nothing.
func (im *inputManager) open(c *Call, r *rpc.Request, text string, before seal.Stamp) (*requestState, seal.Stamp, error) {
	plaintext, stamp, err := c.session.srv.opts.StateKeys.ring.Open(text, im.opts.MaxStateBytes, statePurpose, stateBinding(c, r))
	m := new(requestState)
	if err == nil {
		err = json.Unmarshal(plaintext, m)
	}
	now := time.Now().UnixMilli()
	if err != nil || now >= m.Expires {
		return nil, stamp, errState
	}
	if im.opts.SingleUseState && stamp != before {
		if err := im.use(c, stamp, now, m.Expires); err != nil {
			return nil, stamp, err
		}
	}
	return m, stamp, nil
}

// use records that a state is used. Times are in milliseconds since 1970.
func (im *inputManager) use(c *Call, stamp seal.Stamp, now, expires int64) error {
	caller := c.identity().callerID(c.session)
	if im.opts.UsedStates == nil {
		return im.used.use(caller, stamp, now, expires)
	}
	ctx, cancel := context.WithTimeout(c, storeTimeout)
	defer cancel()
	first, err := im.opts.UsedStates.Once(ctx, caller, hex.EncodeToString(stamp[:]), time.Duration(expires-now)*time.Millisecond)
	if err != nil {
		c.session.log.Error("use of a request state not recorded", "error", err)
		return unavailable("it cannot be checked now whether params.requestState was used before: try again")
	}
	if !first {
		return errState
	}
	return nil
}

// unavailable returns the error of a request that was not carried out because a store failed.
func unavailable(reason string) error {
	return errors.Join(jsonrpc.Errorf(jsonrpc.CodeInternalError, "%s", reason),
		&relay.RejectedError{Status: relay.StatusUnavailable, RetryAfter: time.Second, Reason: reason})
}

var errState = invalidParams("params.requestState is not valid for this request, or has expired: start over without requestState and inputResponses")

// stateBinding returns what a state is bound to: the server, the caller, the method, its target and
// its parameters.
func stateBinding(c *Call, r *rpc.Request) []byte {
	var binding []byte
	for _, text := range []string{c.session.srv.name, c.identity().principal, c.method, c.name} {
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
		old := u.queue[0]
		delete(u.seen, old.stamp)
		if u.byCaller[old.caller]--; u.byCaller[old.caller] == 0 {
			delete(u.byCaller, old.caller)
		}
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
// [InputOptions.MaxStateBytes]). The client can neither read nor change it. It passes through
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
	text, err := c.session.srv.inputs.stateOf(c).once(ctx, key, func() (json.RawMessage, error) {
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

// savedOnce returns the result of an earlier run.
func savedOnce(value json.RawMessage) *onceResult {
	r := &onceResult{done: make(chan struct{}), value: value}
	close(r.done)
	return r
}

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
