package translate

import (
	"maps"
	"slices"
	"time"

	"mcpwire/internal/era"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A LegacyClient translates for one session of a legacy client with a modern server. Make one with [NewLegacyToModern].
type LegacyClient struct {
	core
	session *era.Session
	legacy  *era.Features // of the handshake; before, of the latest revision
	shaken  bool
	client  []byte // the capabilities as the client declared them
	who     [2][]byte
	level   mcp.LoggingLevel

	server serverHello
	reqs   map[string]*request // of the client, by id
	calls  map[int64]*call
	asks   map[int64]*ask // open questions to the client, by id
	askIDs int64
	queue  []queued // for the server to be back
	listen listening
	tasks  coreTasks
}

// serverHello is what a modern server has said of itself.
type serverHello struct {
	known bool
	caps  []byte // ServerCapabilities, as it declared them
}

// A request is one of the legacy client's.
type request struct {
	id     jsonrpc.ID
	key    string
	stream uint64
	method string
	params []byte // as the client sent them; nil if there are none
	batch  *batch
	size   int
	over   bool

	token    []byte // that the client wants to be told of progress with, or nil
	progress float64
	call     int64 // under way for it; 0 is none

	mark   uint64
	round  int
	asks   []*ask   // of this round
	marks  []uint64 // of the answers to the asks of the last round
	open   int      // of asks
	inputs []byte   // inputResponses for the next round
	state  []byte   // requestState for the next round, JSON text
	pages  []string
	pause  *timer

	task   taskWish
	hidden string // the task that it has become without the client knowing
}

// A call is a request to the server.
type call struct {
	id     int64
	method string
	req    *request // that it is made for; nil if none
	done   func(a answer)
	again  func() // sends it anew, if it was not carried out; nil for what is not to be sent again
}

// A queued request waits for the server to be back.
type queued struct {
	req *request
	do  func()
}

var _ Translator = (*LegacyClient)(nil)

// NewLegacyToModern returns the translator for one legacy session. nil options are the defaults.
func NewLegacyToModern(opts *Options) *LegacyClient {
	t := &LegacyClient{
		core:  core{opts: opts.orDefault()},
		reqs:  make(map[string]*request),
		calls: make(map[int64]*call),
		asks:  make(map[int64]*ask),
	}
	t.modern = era.Of(t.opts.Modern)
	t.restart()
	return t
}

// restart forgets the handshake.
func (t *LegacyClient) restart() {
	var spoken []mcp.Revision
	for _, r := range mcp.Revisions() {
		if r.Modern() {
			break
		}
		spoken = append(spoken, r)
		if r == t.opts.Legacy {
			break
		}
	}
	t.session = era.NewSession(era.Config{Revisions: spoken, Lenient: true, Custom: func([]byte) bool { return true }})
	t.legacy, t.shaken = era.Of(spoken[len(spoken)-1]), false
	t.client = nil
	t.who = t.introduce(nil)
}

// FromNear implements [Translator].
func (t *LegacyClient) FromNear(now time.Time, message []byte, stream uint64) []Out {
	return t.step(now, func() { t.fromNear(message, stream) })
}

// FromFar implements [Translator].
func (t *LegacyClient) FromFar(now time.Time, message []byte, call int64) []Out {
	return t.step(now, func() { t.fromFar(message, call) })
}

// NearGone implements [Translator].
func (t *LegacyClient) NearGone(now time.Time, stream uint64) []Out {
	return t.step(now, func() {
		for _, r := range t.reqs {
			if r.stream == stream {
				r.stream = 0
			}
			if r.batch != nil && r.batch.stream == stream {
				r.batch.stream = 0
			}
		}
	})
}

// FarEnded implements [Translator].
func (t *LegacyClient) FarEnded(now time.Time, id int64, e *jsonrpc.Error) []Out {
	return t.step(now, func() {
		if c := t.calls[id]; c != nil {
			delete(t.calls, id)
			t.listen.broken = true
			c.done(answer{err: e, lost: true})
			t.listen.broken = false
		}
	})
}

// FarLost implements [Translator].
func (t *LegacyClient) FarLost(now time.Time, e *jsonrpc.Error, unsent ...int64) []Out {
	return t.step(now, func() {
		waiting := t.queue
		t.later.stop(t.listen.begins)
		t.listen.begins = nil
		if t.down {
			t.queue = nil
			for _, q := range waiting {
				t.fail(q.req, e, "")
			}
			t.failListen(e)
		}
		t.down = true
		t.listen.broken = true
		for _, id := range slices.Sorted(maps.Keys(t.calls)) {
			c := t.calls[id]
			if c == nil {
				continue
			}
			delete(t.calls, id)
			if c.again != nil && slices.Contains(unsent, id) {
				t.queue = append(t.queue, queued{c.req, c.again})
				continue
			}
			c.done(answer{err: e, lost: true})
		}
		t.listen.broken = false
	})
}

// FarReady implements [Translator].
func (t *LegacyClient) FarReady(now time.Time) []Out {
	return t.step(now, func() {
		if !t.down {
			return
		}
		t.down = false
		t.flush()
		t.relisten()
	})
}

// FarMissed implements [Translator]. What a modern server sends of itself belongs to a request, which ends if some of it is lost.
func (t *LegacyClient) FarMissed(time.Time) []Out { return nil }

// Close implements [Translator].
func (t *LegacyClient) Close(now time.Time, e *jsonrpc.Error) []Out {
	outs := t.step(now, func() {
		for _, key := range slices.Sorted(maps.Keys(t.reqs)) {
			if r := t.reqs[key]; r != nil {
				t.abandon(r, "the session is over")
				t.fail(r, e, "")
			}
		}
		for _, id := range slices.Sorted(maps.Keys(t.tasks.talks)) {
			t.hush(id)
		}
		for _, id := range slices.Sorted(maps.Keys(t.calls)) {
			if c := t.calls[id]; c.method != mcp.MethodTasksCancel { // which was sent for the same reason
				t.cancelFar(id, c.method, "the session is over")
			}
		}
	})
	t.closed = true
	return outs
}

// Legacy implements [Translator].
func (t *LegacyClient) Legacy() mcp.Revision {
	if !t.shaken {
		return mcp.RevisionNone
	}
	return t.legacy.Revision
}

// Open implements [Translator].
func (t *LegacyClient) Open() (requests, held int) {
	for _, r := range t.reqs {
		if r.open > 0 {
			held++
		}
	}
	return len(t.reqs), held
}

// newCall makes a call to the server, for a request of the client or for none.
func (t *LegacyClient) newCall(method string, r *request, done func(a answer)) *call {
	c := &call{id: t.opts.IDs.Add(1), method: method, req: r, done: done}
	t.calls[c.id] = c
	if r != nil {
		r.call = c.id
	}
	return c
}
