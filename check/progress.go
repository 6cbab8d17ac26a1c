package check

import (
	"strconv"

	"mcpwire/capture"
	"mcpwire/mcp"
)

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
