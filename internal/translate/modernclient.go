package translate

import (
	"maps"
	"slices"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A ModernToLegacy translates the requests of modern clients for one session with a legacy server. Make one with [NewModernToLegacy].
//
// The session is one client's: what it declares in the handshake is what the first request declares. The driver must not let two principals share one, and
// should give clients that declare something else one of their own; see [ClientKey].
type ModernToLegacy struct {
	core
	session        *era.Session
	nonce          string // tells its request states from those of others
	phase          phase
	proposed       mcp.Revision  // in the handshake
	handshakeRetry *timer        // for it to be tried again
	waiting        []pendingWork // for the handshake
	client         era.Client    // as the handshake declared it
	clientInfo     []byte        // clientInfo in the handshake
	server         legacyServer
	logLevel       mcp.LoggingLevel // that the server was told

	requests       map[requestKey]*modernRequest
	calls          map[int64]*upstreamCall  // calls to the server, by id
	byToken        map[int64]*upstreamCall  // by the progress token that the server was given
	awaitingInput  map[uint64]*upstreamCall // that wait for a client to answer
	lastNumber     uint64                   // the last errand's
	serverRequests map[string]*serverRequest
	unclaimed      []*serverRequest // that no request could take along
	subscriptions  []*modernRequest
	resources      map[string]*resourceSubscription
	tasks          map[string]*upstreamTask
	taskIDs        []string // of tasks, the oldest first
	tools          toolSupport
	hiddenTasks    map[string]*upstreamCall // calls that had to become tasks without the client knowing, by task
}

// A phase is how far the handshake is.
type phase uint8

const (
	uninitialized phase = iota
	handshaking
	ready
)

// A requestKey is what tells requests apart: over HTTP, ids need only be unique to a client.
type requestKey struct {
	stream uint64
	id     string
}

// pendingWork waits for the handshake.
type pendingWork struct {
	req *modernRequest
	do  func()
}

// legacyServer is what a legacy server has said of itself.
type legacyServer struct {
	features     *era.Features
	caps         []byte // as it declared them
	info         []byte // Implementation
	instructions string
}

// An exchange is a request of a modern client, until it is answered.
type modernRequest struct {
	id            jsonrpc.ID
	key           requestKey
	method        string
	client        era.Client
	logLevel      mcp.LoggingLevel
	progressToken []byte
	call          *upstreamCall
	finished      bool
	subscription  *downstreamSubscription
	cause         uint64
	size          int
}

var _ Translator = (*ModernToLegacy)(nil)

// NewModernToLegacy returns the translator for one session with a legacy server. nil options are the defaults.
func NewModernToLegacy(opts *Options) *ModernToLegacy {
	t := &ModernToLegacy{
		core:           core{opts: opts.orDefault()},
		requests:       make(map[requestKey]*modernRequest),
		calls:          make(map[int64]*upstreamCall),
		byToken:        make(map[int64]*upstreamCall),
		awaitingInput:  make(map[uint64]*upstreamCall),
		serverRequests: make(map[string]*serverRequest),
		resources:      make(map[string]*resourceSubscription),
		tasks:          make(map[string]*upstreamTask),
		tools:          toolSupport{byName: make(map[string][]byte)},
		hiddenTasks:    make(map[string]*upstreamCall),
	}
	t.modern = era.Of(t.opts.Modern)
	t.nonce = t.opts.NewID()
	t.session = era.NewSession(era.Config{Revisions: []mcp.Revision{t.opts.Modern}, Custom: unknownMethod})
	return t
}

// unknownMethod reports whether no revision has the method: it may mean something to the server.
func unknownMethod(method []byte) bool {
	for _, r := range mcp.Revisions() {
		if era.Of(r).HasMethod(method) {
			return false
		}
	}
	return true
}

// FromDownstream implements [Translator].
func (t *ModernToLegacy) FromDownstream(now time.Time, message []byte, stream uint64) []Out {
	return t.step(now, func() { t.fromDownstream(message, stream) })
}

// FromUpstream implements [Translator].
func (t *ModernToLegacy) FromUpstream(now time.Time, message []byte, call int64) []Out {
	return t.step(now, func() { t.fromUpstream(message, call) })
}

// StreamClosed implements [Translator].
func (t *ModernToLegacy) StreamClosed(now time.Time, stream uint64) []Out {
	return t.step(now, func() {
		for key := range t.requests { // requests on a stream of their own: there is one
			if r := t.requests[key]; r != nil && key.stream == stream && stream != 0 {
				t.cancel(r, "the client is gone")
			}
		}
	})
}

// CallFailed implements [Translator].
func (t *ModernToLegacy) CallFailed(now time.Time, id int64, e *jsonrpc.Error) []Out {
	return t.step(now, func() {
		if c := t.calls[id]; c != nil {
			delete(t.calls, id)
			c.done(outcome{err: e, lost: true})
		}
	})
}

// UpstreamLost implements [Translator].
func (t *ModernToLegacy) UpstreamLost(now time.Time, e *jsonrpc.Error, unsent ...int64) []Out {
	return t.step(now, func() {
		if t.upstreamDown || t.phase == handshaking {
			t.failWaiting(e)
		}
		t.upstreamDown, t.phase, t.logLevel = true, uninitialized, mcp.LevelNone
		t.removeAllPending()
		for _, id := range slices.Sorted(maps.Keys(t.calls)) {
			c := t.calls[id]
			if c == nil {
				continue
			}
			delete(t.calls, id)
			if c.req != nil && slices.Contains(unsent, id) {
				t.timers.stop(c.gatherTimer)
				c.id, c.unsentInputs = 0, nil // the server that asked is gone
				t.waiting = append(t.waiting, pendingWork{c.req, func() { t.startCall(c) }})
				continue
			}
			c.done(outcome{err: e, lost: true})
		}
		clear(t.tasks)
		t.taskIDs, t.tools.complete = nil, false
		for _, u := range t.resources {
			u.reset()
			t.syncResource(u)
		}
	})
}

// UpstreamReady implements [Translator].
func (t *ModernToLegacy) UpstreamReady(now time.Time) []Out {
	return t.step(now, func() {
		if !t.upstreamDown {
			return
		}
		t.upstreamDown = false
		if len(t.waiting) > 0 || len(t.subscriptions) > 0 {
			t.handshake()
		}
	})
}

// NotificationsLost implements [Translator].
func (t *ModernToLegacy) NotificationsLost(now time.Time) []Out {
	return t.step(now, func() {
		if t.phase == ready && !t.upstreamDown {
			t.announceAll(t.acknowledged(), "something may have been missed")
		}
	})
}

// Close implements [Translator].
func (t *ModernToLegacy) Close(now time.Time, e *jsonrpc.Error) []Out {
	outs := t.step(now, func() {
		for _, r := range slices.Clone(t.subscriptions) {
			if r.subscription.acknowledged {
				t.endSubscription(r)
			}
		}
		t.subscriptions = nil
		for _, key := range sortedKeys(t.requests) {
			if r := t.requests[key]; r != nil {
				if r.call != nil {
					t.cancelCall(r.call, "the session is over")
				}
				t.fail(r, e, "")
			}
		}
		for _, n := range slices.Sorted(maps.Keys(t.awaitingInput)) {
			t.cancelCall(t.awaitingInput[n], "the session is over")
		}
		for _, id := range slices.Sorted(maps.Keys(t.calls)) {
			if c := t.calls[id]; c.upstreamMethod != mcp.MethodTasksCancel { // which was sent for the same reason
				t.cancelUpstream(id, c.upstreamMethod, "the session is over")
			}
		}
	})
	t.closed = true
	return outs
}

// Legacy implements [Translator].
func (t *ModernToLegacy) Legacy() mcp.Revision {
	if t.phase != ready {
		return mcp.RevisionNone
	}
	return t.server.features.Revision
}

// InFlight implements [Translator].
func (t *ModernToLegacy) InFlight() (requests, awaitingInput int) {
	return len(t.requests), len(t.awaitingInput)
}

// sortedKeys returns the keys in an order that does not change.
func sortedKeys(m map[requestKey]*modernRequest) []requestKey {
	return slices.SortedFunc(maps.Keys(m), func(a, b requestKey) int {
		if a.stream != b.stream {
			return int(min(a.stream, 1<<30)) - int(min(b.stream, 1<<30))
		}
		if a.id < b.id {
			return -1
		}
		return 1
	})
}

// whenReady does something for a request once the server has shaken hands.
func (t *ModernToLegacy) whenReady(r *modernRequest, do func()) {
	if t.phase == ready && !t.upstreamDown {
		do()
		return
	}
	if len(t.waiting) > 2*len(t.requests)+8 { // most were cancelled
		t.waiting = slices.DeleteFunc(t.waiting, func(w pendingWork) bool { return w.req.finished })
	}
	t.waiting = append(t.waiting, pendingWork{r, do})
	if t.phase == uninitialized && !t.upstreamDown {
		if t.clientInfo == nil {
			t.client = r.client
		}
		t.handshake()
	}
}

// failWaiting fails what waits for the handshake.
func (t *ModernToLegacy) failWaiting(e *jsonrpc.Error) {
	waiting := t.waiting
	t.waiting = nil
	for _, w := range waiting {
		t.fail(w.req, e, "initialize")
	}
}

// handshake begins the handshake with the server.
func (t *ModernToLegacy) handshake() {
	t.phase = handshaking
	if t.proposed == mcp.RevisionNone {
		t.proposed = t.opts.Legacy
	}
	f := era.Of(t.proposed)
	if t.clientInfo == nil {
		t.clientInfo = []byte(`{"name":"unnamed","version":"0"}`)
		if t.client.Info.Name != "" {
			t.clientInfo = era.NewIdentity(t.client.Info).AppendInfo(nil, f)
		}
	}
	params := jsonwire.AppendQuote([]byte(`{"protocolVersion":`), f.Revision.String())
	params = era.ConvertClientCapabilities(append(params, `,"capabilities":`...), t.client.Capabilities, f, false)
	params = append(append(append(params, `,"clientInfo":`...), t.clientInfo...), '}')
	t.callUpstream(mcp.MethodInitialize, params, "_meta → initialize", t.onInitialized)
}

// onInitialized ends the handshake, and does what waited for it.
func (t *ModernToLegacy) onInitialized(o outcome) {
	if t.phase != handshaking {
		return
	}
	t.phase = uninitialized
	profile, e := (*era.ServerProfile)(nil), o.err
	legacy := mcp.RevisionNone
	if e == nil {
		var err error
		if profile, err = era.ReadInitialize(o.result); err != nil {
			e = internalError("the server's answer to initialize is none: %s", clip(err.Error()))
		} else if _, legacy = era.Common(mcp.Revisions(), profile.Versions); legacy == mcp.RevisionNone {
			e = internalError("the server speaks revision %s, which the bridge does not", clip(profile.Versions[0]))
		}
	} else if _, other := era.Common(mcp.Revisions(), era.SupportedVersions(e)); other != mcp.RevisionNone && t.proposed == t.opts.Legacy && other != t.proposed {
		t.proposed = other // the server should have answered with it
		t.handshake()
		return
	} else {
		e = era.ConvertError(e, mcp.MethodInitialize, t.modern)
	}
	if e != nil {
		t.clientInfo, t.proposed = nil, mcp.RevisionNone
		t.failWaiting(e)
		if len(t.subscriptions) > 0 { // they want to hear of a server that comes back
			t.timers.stop(t.handshakeRetry)
			t.handshakeRetry = t.after(maxBackoff, func() {
				if t.phase == uninitialized && !t.upstreamDown && len(t.subscriptions) > 0 {
					t.handshake()
				}
			})
		}
		return
	}
	info := era.Lookup(o.result, "serverInfo")
	if !era.IsObject(info) {
		info = nil
	}
	f := era.Of(legacy)
	caps := slices.Clone(era.ImpliedCapabilities(profile.Capabilities, f))
	if !f.CoreTasks { // the revision has none, whatever the server says
		caps = withoutMembers(caps, "tasks")
	}
	t.server = legacyServer{f, caps, slices.Clone(info), profile.Instructions}
	t.phase = ready
	t.notifyUpstream(mcp.NotificationInitialized, nil, "initialize")
	acknowledged := t.acknowledged()
	waiting := t.waiting
	t.waiting = nil
	for _, w := range waiting {
		if !w.req.finished {
			w.do()
		}
	}
	t.resumeSubscriptions(acknowledged)
}

// discover says what the server has said in the handshake.
func (t *ModernToLegacy) discover(r *modernRequest) {
	result := mcp.AppendRevisions([]byte(`{"supportedVersions":`), t.opts.Supported)
	result = era.ConvertServerCapabilities(append(result, `,"capabilities":`...), t.server.caps, t.modern)
	if t.server.instructions != "" {
		result = jsonwire.AppendQuote(append(result, `,"instructions":`...), t.server.instructions)
	}
	t.respond(r, append(result, '}'), "initialize → server/discover")
}
