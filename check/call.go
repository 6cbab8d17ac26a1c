package check

import (
	"bytes"
	"cmp"
	"container/list"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/base/sparse"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A call is a request of either side, until the rules have seen its response.
type call struct {
	// n is the number of the request's event.
	n        uint64
	t        time.Duration
	dir      capture.Dir
	id       jsonrpc.ID
	method   string
	rev      mcp.Revision
	modern   bool
	exchange *exchange
	// params are nil, and paramsLost is set, if they were too large to keep. redacted lists the
	// redacted places of the request, as pointers into the message.
	params     []byte
	paramsLost bool
	redacted   []string
	// canceled is the number of the event that canceled the call, or 0.
	canceled  uint64
	canceledT time.Duration
	// client is the JSON text of the capabilities that the client declared in the call's metadata
	// or in the handshake, or nil if unknown.
	client []byte
	// tool is the definition of the called tool, or nil if unknown. listed is toolList.changes at
	// the time of the call.
	tool   *tool
	listed int
	state  states

	session *session
	// sameID is the next older pending call with the same id.
	sameID *call
	// element is the place in Checker.calls, or nil if the call is not pending.
	element *list.Element
}

const maxCallParams = 64 << 10 // bytes

// param returns a parameter of the call, or nil if it is absent or was not kept.
func (c *call) param(path ...string) []byte { return jsonwire.Lookup(c.params, path...) }

// newCall returns a call for the request in v.
func newCall(v *view) *call {
	c := &call{
		n: v.e.N, t: v.e.T, dir: v.e.Dir, id: v.msg.id.Clone(), method: clip.Prefix(v.msg.method, maxPairedID),
		rev: v.rev, modern: v.modern, exchange: v.exchange, session: v.session,
	}
	if len(v.msg.params) <= maxCallParams && v.checker.paramBytes+len(v.msg.params) <= v.checker.limits.MaxParamBytes {
		c.params = bytes.Clone(v.msg.params)
	} else {
		c.paramsLost = true
	}
	c.redacted, c.listed = v.redactedPlaces(), v.session.tools.changes
	switch {
	case c.dir == capture.ToServer && c.modern:
		c.client = c.param("_meta", mcp.MetaClientCapabilities)
	default:
		c.client = v.session.clientCaps
	}
	if c.method == mcp.MethodToolsCall && c.dir == capture.ToServer {
		c.tool = v.session.tools.byName[jsonwire.Text(jsonwire.Lookup(v.msg.params, "name"))]
	}
	return c
}

// An openKey identifies the pending calls of a session with one id.
type openKey struct {
	// dir is the direction of the request.
	dir capture.Dir
	id  string
}

// maxSameID limits the pending calls with the same id, which the protocol forbids.
const maxSameID = 64

// addCall adds a pending call.
func (ck *Checker) addCall(c *call) {
	if ck.calls.Len() >= ck.limits.MaxPending {
		ck.evictCalls()
	}
	key := openKey{c.dir, idKey(c.id)}
	same, last := 1, c
	for last.sameID = c.session.calls[key]; last.sameID != nil; last = last.sameID {
		same++
	}
	c.session.calls[key] = c
	c.element = ck.calls.PushBack(c)
	ck.paramBytes += len(c.params)
	if same > maxSameID {
		ck.removeCall(last)
	}
}

// removeCall removes a pending call.
func (ck *Checker) removeCall(c *call) {
	if c.element == nil {
		return
	}
	ck.calls.Remove(c.element)
	ck.paramBytes -= len(c.params)
	key := openKey{c.dir, idKey(c.id)}
	if newest := c.session.calls[key]; newest != c {
		for newest.sameID != c {
			newest = newest.sameID
		}
		newest.sameID = c.sameID
	} else if c.sameID != nil {
		c.session.calls[key] = c.sameID
	} else {
		delete(c.session.calls, key)
	}
	c.element, c.sameID = nil, nil
}

// evictCalls evicts the older half of the calls, which are unlikely to get a response. Neither
// these calls nor late responses to them cause findings.
func (ck *Checker) evictCalls() {
	ck.callsEvicted = true
	for range (ck.calls.Len() + 1) / 2 {
		ck.removeCall(ck.calls.Front().Value.(*call))
	}
}

// pendingCall returns the newest pending call with a direction and an id, or nil.
func (s *session) pendingCall(dir capture.Dir, id []byte) *call {
	return s.calls[openKey{dir, string(jsonrpc.ID(id).Canonical())}]
}

// callFor returns the call that the response in v answers, or nil. It pairs as capture.Pairs does,
// but malformed messages too, and in the sessions of the Checker, which may be finer than those of
// the recorder.
func (s *session) callFor(v *view) *call {
	newest := s.pendingCall(opposite(v.e.Dir), v.msg.id)
	if newest == nil || newest.sameID == nil {
		return newest
	}
	var found *call
	for c := newest; c != nil; c = c.sameID {
		if c.exchange == nil && v.e.Exchange == 0 || c.exchange != nil && c.exchange.number == v.e.Exchange {
			found = c // the oldest is found last
		}
	}
	return found
}

// allCalls yields the pending calls of a session. They may be removed meanwhile.
func (s *session) allCalls() iter.Seq[*call] {
	return func(yield func(*call) bool) {
		for _, c := range s.calls {
			for c != nil {
				next := c.sameID
				if !yield(c) {
					return
				}
				c = next
			}
		}
	}
}

// sortedCalls returns the pending calls of a session in the order of their requests, and only the
// newest of those with the same id.
func sortedCalls(s *session) []*call {
	return slices.SortedFunc(maps.Values(s.calls), func(a, b *call) int { return cmp.Compare(a.n, b.n) })
}

// A progress is the state of one progress token.
type progress struct {
	// call is the request with the token.
	call *call
	// n is the number of the event with the latest progress, or 0.
	n uint64
	// value is the JSON text of the latest progress.
	value []byte
	// done is the number of the event that answered the call, or 0.
	done uint64
	// task reports that the response was a task of 2025-11-25, which extends the token's life.
	task bool
}

// progressTokens holds the progress tokens of a session, by the direction of their requests.
type progressTokens struct {
	live map[tokenKey]*progress
	// full reports that tokens were dropped.
	full bool
	// done lists the tokens of answered calls, oldest first.
	done []tokenKey
}

type tokenKey struct {
	dir   capture.Dir
	token string
}

const maxTokens = 4096

// rememberToken stores the progress token of a request.
func rememberToken(v *view) {
	token := v.meta(mcp.MetaProgressToken)
	if token == nil || len(token) > maxPairedID || v.redacted("/params/_meta/"+mcp.MetaProgressToken) {
		return
	}
	t := stateOf[progressTokens](&v.session.state)
	key := tokenKey{v.e.Dir, idKey(token)}
	if len(t.live) >= maxTokens && t.live[key] == nil {
		t.full = true
		return
	}
	sparse.Set(&t.live, key, &progress{call: v.call})
}

// progressOf returns the state of a progress notification's token, or nil.
func progressOf(v *view) *progress {
	t := stateOf[progressTokens](&v.session.state)
	return t.live[tokenKey{opposite(v.e.Dir), idKey(v.param("progressToken"))}]
}

func opposite(d capture.Dir) capture.Dir {
	if d == capture.ToServer {
		return capture.ToClient
	}
	return capture.ToServer
}

// rememberProgress stores the value of a progress notification.
func rememberProgress(v *view) {
	if p := progressOf(v); p != nil && isNumber(v.param("progress")) && len(v.param("progress")) < 64 {
		p.n, p.value = v.e.N, append(p.value[:0], v.param("progress")...)
	}
}

// forgetToken marks the token of an answered call as done.
func forgetToken(v *view, c *call) {
	s, n := v.session, v.e.N
	token := c.param("_meta", mcp.MetaProgressToken)
	if token == nil {
		return
	}
	t := stateOf[progressTokens](&s.state)
	key := tokenKey{c.dir, idKey(token)}
	p := t.live[key]
	if p == nil || p.call != c {
		return
	}
	p.done, p.task = n, !c.modern && isObject(v.result("task"))
	if t.done = append(t.done, key); len(t.done) > maxRecent {
		if old := t.live[t.done[0]]; old != nil && old.done != 0 {
			delete(t.live, t.done[0])
		}
		t.done = t.done[1:]
	}
}

// notIncreasing reports whether a number is certainly not greater than the previous one.
func notIncreasing(before, now []byte) bool {
	a, err1 := strconv.ParseFloat(string(before), 64)
	b, err2 := strconv.ParseFloat(string(now), 64)
	if err1 != nil || err2 != nil {
		return false
	}
	return b < a || b == a && string(before) == string(now)
}
