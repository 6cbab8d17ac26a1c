package server

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"mcpwire/internal/jsonwire"
	"mcpwire/internal/seal"
	"mcpwire/jsonrpc"
)

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
