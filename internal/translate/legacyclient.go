package translate

import (
	"maps"
	"slices"
	"time"

	"mcpwire/internal/era"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A LegacyToModern translates for one session of a legacy client with a modern server. Make one with [NewLegacyToModern].
type LegacyToModern struct {
	core
	session    *era.Session
	legacy     *era.Features // of the handshake; before, of the latest revision
	negotiated bool
	clientCaps []byte // the capabilities as the client declared them
	clientMeta [2][]byte
	logLevel   mcp.LoggingLevel

	server        modernServer
	requests      map[string]*legacyRequest // of the client, by id
	calls         map[int64]*call
	inputRequests map[int64]*inputRequest // open questions to the client, by id
	lastInputID   int64
	queue         []queuedRequest // for the server to be back
	subscription  upstreamSubscription
	tasks         legacyTasks
}

// modernServer is what a modern server has said of itself.
type modernServer struct {
	known bool
	caps  []byte // ServerCapabilities, as it declared them
}

// A request is one of the legacy client's.
type legacyRequest struct {
	id       jsonrpc.ID
	key      string
	stream   uint64
	method   string
	params   []byte // as the client sent them; nil if there are none
	batch    *batch
	size     int
	finished bool

	progressToken []byte // that the client wants to be told of progress with, or nil
	progress      float64
	callID        int64 // under way for it; 0 is none

	cause          uint64
	inputRound     int
	inputRequests  []*inputRequest // of this round
	causes         []uint64        // of the answers to the asks of the last round
	pendingInputs  int             // of asks
	inputResponses []byte          // inputResponses for the next round
	requestState   []byte          // requestState for the next round, JSON text
	elicitationIDs []string
	retryTimer     *timer

	taskMode     taskMode
	hiddenTaskID string // the task that it has become without the client knowing
}

// A call is a request to the server.
type call struct {
	id     int64
	method string
	req    *legacyRequest // that it is made for; nil if none
	done   func(a outcome)
	resend func() // sends it anew, if it was not carried out; nil for what is not to be sent again
}

// A queued request waits for the server to be back.
type queuedRequest struct {
	req *legacyRequest
	do  func()
}

var _ Translator = (*LegacyToModern)(nil)

// NewLegacyToModern returns the translator for one legacy session. nil options are the defaults.
func NewLegacyToModern(opts *Options) *LegacyToModern {
	t := &LegacyToModern{
		core:          core{opts: opts.orDefault()},
		requests:      make(map[string]*legacyRequest),
		calls:         make(map[int64]*call),
		inputRequests: make(map[int64]*inputRequest),
	}
	t.modern = era.Of(t.opts.Modern)
	t.resetHandshake()
	return t
}

// resetHandshake forgets the handshake.
func (t *LegacyToModern) resetHandshake() {
	var supported []mcp.Revision
	for _, r := range mcp.Revisions() {
		if r.Modern() {
			break
		}
		supported = append(supported, r)
		if r == t.opts.Legacy {
			break
		}
	}
	t.session = era.NewSession(era.Config{Revisions: supported, Lenient: true, Custom: func([]byte) bool { return true }})
	t.legacy, t.negotiated = era.Of(supported[len(supported)-1]), false
	t.clientCaps = nil
	t.clientMeta = t.buildClientMeta(nil)
}

// FromDownstream implements [Translator].
func (t *LegacyToModern) FromDownstream(now time.Time, message []byte, stream uint64) []Out {
	return t.step(now, func() { t.fromDownstream(message, stream) })
}

// FromUpstream implements [Translator].
func (t *LegacyToModern) FromUpstream(now time.Time, message []byte, call int64) []Out {
	return t.step(now, func() { t.fromUpstream(message, call) })
}

// StreamClosed implements [Translator].
func (t *LegacyToModern) StreamClosed(now time.Time, stream uint64) []Out {
	return t.step(now, func() {
		for _, r := range t.requests {
			if r.stream == stream {
				r.stream = 0
			}
			if r.batch != nil && r.batch.stream == stream {
				r.batch.stream = 0
			}
		}
	})
}

// CallFailed implements [Translator].
func (t *LegacyToModern) CallFailed(now time.Time, id int64, e *jsonrpc.Error) []Out {
	return t.step(now, func() {
		if c := t.calls[id]; c != nil {
			delete(t.calls, id)
			t.subscription.transportFailed = true
			c.done(outcome{err: e, lost: true})
			t.subscription.transportFailed = false
		}
	})
}

// UpstreamLost implements [Translator].
func (t *LegacyToModern) UpstreamLost(now time.Time, e *jsonrpc.Error, unsent ...int64) []Out {
	return t.step(now, func() {
		waiting := t.queue
		t.timers.stop(t.subscription.startTimer)
		t.subscription.startTimer = nil
		if t.upstreamDown {
			t.queue = nil
			for _, q := range waiting {
				t.fail(q.req, e, "")
			}
			t.failSubscribes(e)
		}
		t.upstreamDown = true
		t.subscription.transportFailed = true
		for _, id := range slices.Sorted(maps.Keys(t.calls)) {
			c := t.calls[id]
			if c == nil {
				continue
			}
			delete(t.calls, id)
			if c.resend != nil && slices.Contains(unsent, id) {
				t.queue = append(t.queue, queuedRequest{c.req, c.resend})
				continue
			}
			c.done(outcome{err: e, lost: true})
		}
		t.subscription.transportFailed = false
	})
}

// UpstreamReady implements [Translator].
func (t *LegacyToModern) UpstreamReady(now time.Time) []Out {
	return t.step(now, func() {
		if !t.upstreamDown {
			return
		}
		t.upstreamDown = false
		t.runQueue()
		t.resubscribe()
	})
}

// NotificationsLost implements [Translator]. What a modern server sends of itself belongs to a request, which ends if some of it is lost.
func (t *LegacyToModern) NotificationsLost(time.Time) []Out { return nil }

// Close implements [Translator].
func (t *LegacyToModern) Close(now time.Time, e *jsonrpc.Error) []Out {
	outs := t.step(now, func() {
		for _, key := range slices.Sorted(maps.Keys(t.requests)) {
			if r := t.requests[key]; r != nil {
				t.abandon(r, "the session is over")
				t.fail(r, e, "")
			}
		}
		for _, id := range slices.Sorted(maps.Keys(t.tasks.inputs)) {
			t.cancelTaskInput(id)
		}
		for _, id := range slices.Sorted(maps.Keys(t.calls)) {
			if c := t.calls[id]; c.method != mcp.MethodTasksCancel { // which was sent for the same reason
				t.cancelUpstream(id, c.method, "the session is over")
			}
		}
	})
	t.closed = true
	return outs
}

// Legacy implements [Translator].
func (t *LegacyToModern) Legacy() mcp.Revision {
	if !t.negotiated {
		return mcp.RevisionNone
	}
	return t.legacy.Revision
}

// InFlight implements [Translator].
func (t *LegacyToModern) InFlight() (requests, awaitingInput int) {
	for _, r := range t.requests {
		if r.pendingInputs > 0 {
			awaitingInput++
		}
	}
	return len(t.requests), awaitingInput
}

// newCall makes a call to the server, for a request of the client or for none.
func (t *LegacyToModern) newCall(method string, r *legacyRequest, done func(o outcome)) *call {
	c := &call{id: t.opts.IDs.Add(1), method: method, req: r, done: done}
	t.calls[c.id] = c
	if r != nil {
		r.callID = c.id
	}
	return c
}
