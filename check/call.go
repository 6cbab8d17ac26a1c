package check

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
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
	params []byte
	lost   bool
	hidden []string
	// cancelled is the number of the event that cancelled the call, 0 if none did.
	cancelled  uint64
	cancelledT time.Duration
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
func (c *call) param(path ...string) []byte { return at(c.params, path...) }

// newCall makes a call of the request that v is about.
func newCall(v *view) *call {
	c := &call{
		n: v.e.N, t: v.e.T, dir: v.e.Dir, id: v.msg.id.Clone(), method: clipBytes(v.msg.method, maxPairedID),
		rev: v.rev, modern: v.modern, exchange: v.x, batch: v.msg.batch,
	}
	if len(v.msg.params) <= maxCallParams && v.k.held+len(v.msg.params) <= v.k.limits.MaxHeld {
		c.params = bytes.Clone(v.msg.params)
		v.k.held += len(c.params)
	} else {
		c.lost = true
	}
	c.hidden, c.listed = v.hiddenPlaces(), v.sess.tools.changes
	switch {
	case c.dir == capture.ToServer && c.modern:
		c.client = at(c.params, "_meta", mcp.MetaClientCapabilities)
	default:
		c.client = v.sess.clientCaps
	}
	if c.method == mcp.MethodToolsCall && c.dir == capture.ToServer {
		c.tool = v.sess.tools.byName[text(member(v.msg.params, "name"))]
	}
	return c
}

// An openKey finds the calls of a session that wait.
type openKey struct {
	dir capture.Dir // of the request
	id  string
}

// open puts a call among those that wait.
func (k *Checker) open(s *session, c *call) {
	if len(k.calls) >= k.limits.MaxPending {
		k.sweep()
	}
	k.calls[c.pair] = c
	s.open[openKey{c.dir, canonical(c.id)}] = c
	c.pair.Method = "" // kept in the call
}

// shut takes a call out of those that wait.
func (k *Checker) shut(s *session, c *call) {
	if _, ok := k.calls[c.pair]; !ok {
		return
	}
	delete(k.calls, c.pair)
	k.held -= len(c.params)
	key := openKey{c.dir, canonical(c.id)}
	if s.open[key] == c {
		delete(s.open, key)
	}
}

// sortedCalls returns the calls of a session that wait, in the order in which they were made.
func sortedCalls(s *session) []*call {
	return slices.SortedFunc(maps.Values(s.open), func(a, b *call) int { return cmp.Compare(a.n, b.n) })
}

// sweep forgets the calls that the pairer has given up, and the older half of the others: what was asked that long ago and not answered never will be. What it forgets
// is not a finding, and a response to it neither.
func (k *Checker) sweep() {
	k.lossy = true
	pending := make(map[*capture.Call]bool, len(k.calls))
	skip := len(k.calls) / 2
	for p := range k.pairer.Pending() {
		if skip--; skip < 0 {
			pending[p] = true
		}
	}
	for p, c := range k.calls {
		if !pending[p] {
			delete(k.calls, p)
			k.held -= len(c.params)
		}
	}
	for _, s := range k.sessions {
		for key, c := range s.open {
			if _, ok := k.calls[c.pair]; !ok {
				delete(s.open, key)
			}
		}
	}
}
