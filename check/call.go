package check

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"mcpwire/capture"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A call is a request of either side, as long as it waits for its response and while the rules look at that.
type call struct {
	n        uint64 // of the event it was in
	t        time.Duration
	dir      capture.Dir
	id       jsonrpc.ID
	method   string
	rev      mcp.Revision
	modern   bool
	exchange *exchange
	batch    bool
	// params are kept if they are not too large; else they are nil, and lost is set. hidden are the redacted places in them, as pointers into the message.
	params     []byte
	paramsLost bool
	redacted   []string
	// canceled is the number of the event that cancelled the call, 0 if none did.
	canceled  uint64
	canceledT time.Duration
	// client are the capabilities that the client declared when it was made, as JSON text: in the call's own metadata, or in the handshake. nil is unknown.
	client []byte
	// tool is the definition of the tool that is called, nil if it is not known. listed is how often the list of tools had changed then.
	tool   *tool
	listed int
	state  states

	pair *capture.Call
}

const maxCallParams = 64 << 10 // bytes

// param returns a parameter of the call, nil if it is absent or was not kept.
func (c *call) param(path ...string) []byte { return valueAt(c.params, path...) }

// newCall makes a call of the request that v is about.
func newCall(v *view) *call {
	c := &call{
		n: v.e.N, t: v.e.T, dir: v.e.Dir, id: v.msg.id.Clone(), method: clipBytes(v.msg.method, maxPairedID),
		rev: v.rev, modern: v.modern, exchange: v.exchange, batch: v.msg.batch,
	}
	if len(v.msg.params) <= maxCallParams && v.checker.paramBytes+len(v.msg.params) <= v.checker.limits.MaxParamBytes {
		c.params = bytes.Clone(v.msg.params)
		v.checker.paramBytes += len(c.params)
	} else {
		c.paramsLost = true
	}
	c.redacted, c.listed = v.redactedPlaces(), v.session.tools.changes
	switch {
	case c.dir == capture.ToServer && c.modern:
		c.client = valueAt(c.params, "_meta", mcp.MetaClientCapabilities)
	default:
		c.client = v.session.clientCaps
	}
	if c.method == mcp.MethodToolsCall && c.dir == capture.ToServer {
		c.tool = v.session.tools.byName[stringValue(member(v.msg.params, "name"))]
	}
	return c
}

// An openKey finds the calls of a session that wait.
type openKey struct {
	dir capture.Dir // of the request
	id  string
}

// addCall puts a call among those that wait.
func (ck *Checker) addCall(s *session, c *call) {
	if len(ck.calls) >= ck.limits.MaxPending {
		ck.evictCalls()
	}
	ck.calls[c.pair] = c
	s.calls[openKey{c.dir, idKey(c.id)}] = c
	c.pair.Method = "" // kept in the call
}

// removeCall takes a call out of those that wait.
func (ck *Checker) removeCall(s *session, c *call) {
	if _, ok := ck.calls[c.pair]; !ok {
		return
	}
	delete(ck.calls, c.pair)
	ck.paramBytes -= len(c.params)
	key := openKey{c.dir, idKey(c.id)}
	if s.calls[key] == c {
		delete(s.calls, key)
	}
}

// sortedCalls returns the calls of a session that wait, in the order in which they were made.
func sortedCalls(s *session) []*call {
	return slices.SortedFunc(maps.Values(s.calls), func(a, b *call) int { return cmp.Compare(a.n, b.n) })
}

// evictCalls forgets the calls that the pairer has given up, and the older half of the others: what was asked that long ago and not answered never will be. What it forgets
// is not a finding, and a response to it neither.
func (ck *Checker) evictCalls() {
	ck.callsEvicted = true
	pending := make(map[*capture.Call]bool, len(ck.calls))
	skip := len(ck.calls) / 2
	for p := range ck.pairer.Pending() {
		if skip--; skip < 0 {
			pending[p] = true
		}
	}
	for p, c := range ck.calls {
		if !pending[p] {
			delete(ck.calls, p)
			ck.paramBytes -= len(c.params)
		}
	}
	for _, s := range ck.sessions {
		for key, c := range s.calls {
			if _, ok := ck.calls[c.pair]; !ok {
				delete(s.calls, key)
			}
		}
	}
}

// A progress is what was told under a token.
type progress struct {
	call   *call // that brought the token
	rev    mcp.Revision
	modern bool
	n      uint64 // of the event that told it last, 0 before
	value  []byte // JSON text of the number that was told last
	done   uint64 // number of the event that answered the call, 0 before
	task   bool   // the answer was a task of 2025-11-25, until whose end the token lives
}

// progressTokens are the progress tokens of a session, by the side that gave them.
type progressTokens struct {
	live map[tokenKey]*progress
	full bool       // there were more than are remembered
	done []tokenKey // those of calls that were answered, the oldest first
}

type tokenKey struct {
	dir   capture.Dir
	token string
}

const maxTokens = 4096

// rememberToken keeps the token that a request brings.
func rememberToken(v *view) {
	token := v.meta(mcp.MetaProgressToken)
	if token == nil || len(token) > maxPairedID || v.redacted("/params/_meta/"+mcp.MetaProgressToken) {
		return
	}
	t := stateOf[progressTokens](&v.session.state)
	if t.live == nil {
		t.live = map[tokenKey]*progress{}
	}
	key := tokenKey{v.e.Dir, idKey(token)}
	if len(t.live) >= maxTokens && t.live[key] == nil {
		t.full = true
		return
	}
	t.live[key] = &progress{call: v.call, rev: v.rev, modern: v.modern}
}

// progressOf returns what is known of the token of a progress notification.
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

// rememberProgress keeps how far a notification says that things are.
func rememberProgress(v *view) {
	if p := progressOf(v); p != nil && isNumber(v.param("progress")) && len(v.param("progress")) < 64 {
		p.n, p.value = v.e.N, append(p.value[:0], v.param("progress")...)
	}
}

// forgetToken is for a call that was answered.
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

// notIncreasing reports whether a number is certainly not greater than the one before.
func notIncreasing(before, now []byte) bool {
	a, err1 := strconv.ParseFloat(string(before), 64)
	b, err2 := strconv.ParseFloat(string(now), 64)
	if err1 != nil || err2 != nil {
		return false
	}
	return b < a || b == a && string(before) == string(now)
}
