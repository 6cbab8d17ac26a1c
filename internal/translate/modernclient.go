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

// A ModernClient translates the requests of modern clients for one session with a legacy server. Make one with [NewModernToLegacy].
//
// The session is one client's: what it declares in the handshake is what the first request declares. The driver must not let two principals share one, and
// should give clients that declare something else one of their own; see [ClientKey].
type ModernClient struct {
	core
	session *era.Session
	nonce   string // tells its request states from those of others
	phase   phase
	propose mcp.Revision  // in the handshake
	again   *timer        // for it to be tried again
	waiting []pendingWork // for the handshake
	client  era.Client    // as the handshake declared it
	info    []byte        // clientInfo in the handshake
	server  legacyHello
	level   mcp.LoggingLevel // that the server was told

	reqs    map[nearKey]*exchange
	errands map[int64]*errand  // calls to the server, by id
	tokens  map[int64]*errand  // by the progress token that the server was given
	held    map[uint64]*errand // that wait for a client to answer
	number  uint64             // the last errand's
	asks    map[string]*question
	orphans []*question // that no request could take along
	listens []*exchange
	uris    map[string]*subscribed
	tasks   map[string]*farTask
	taskIDs []string // of tasks, the oldest first
	tools   toolbox
	hidden  map[string]*errand // calls that had to become tasks without the client knowing, by task
}

// A phase is how far the handshake is.
type phase uint8

const (
	idle phase = iota
	shaking
	ready
)

// A nearKey is what tells requests apart: over HTTP, ids need only be unique to a client.
type nearKey struct {
	stream uint64
	id     string
}

// pendingWork waits for the handshake.
type pendingWork struct {
	x  *exchange
	do func()
}

// legacyHello is what a legacy server has said of itself.
type legacyHello struct {
	features     *era.Features
	caps         []byte // as it declared them
	info         []byte // Implementation
	instructions string
}

// An exchange is a request of a modern client, until it is answered.
type exchange struct {
	id     jsonrpc.ID
	key    nearKey
	method string
	client era.Client
	level  mcp.LoggingLevel
	token  []byte
	errand *errand
	over   bool
	listen *listener
	mark   uint64
	size   int
}

var _ Translator = (*ModernClient)(nil)

// NewModernToLegacy returns the translator for one session with a legacy server. nil options are the defaults.
func NewModernToLegacy(opts *Options) *ModernClient {
	t := &ModernClient{
		core:    core{opts: opts.orDefault()},
		reqs:    make(map[nearKey]*exchange),
		errands: make(map[int64]*errand),
		tokens:  make(map[int64]*errand),
		held:    make(map[uint64]*errand),
		asks:    make(map[string]*question),
		uris:    make(map[string]*subscribed),
		tasks:   make(map[string]*farTask),
		tools:   toolbox{support: make(map[string][]byte)},
		hidden:  make(map[string]*errand),
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

// FromNear implements [Translator].
func (t *ModernClient) FromNear(now time.Time, message []byte, stream uint64) []Out {
	return t.step(now, func() { t.fromNear(message, stream) })
}

// FromFar implements [Translator].
func (t *ModernClient) FromFar(now time.Time, message []byte, call int64) []Out {
	return t.step(now, func() { t.fromFar(message, call) })
}

// NearGone implements [Translator].
func (t *ModernClient) NearGone(now time.Time, stream uint64) []Out {
	return t.step(now, func() {
		for key := range t.reqs { // requests on a stream of their own: there is one
			if x := t.reqs[key]; x != nil && key.stream == stream && stream != 0 {
				t.cancel(x, "the client is gone")
			}
		}
	})
}

// FarEnded implements [Translator].
func (t *ModernClient) FarEnded(now time.Time, id int64, e *jsonrpc.Error) []Out {
	return t.step(now, func() {
		if r := t.errands[id]; r != nil {
			delete(t.errands, id)
			r.done(answer{err: e, lost: true})
		}
	})
}

// FarLost implements [Translator].
func (t *ModernClient) FarLost(now time.Time, e *jsonrpc.Error, unsent ...int64) []Out {
	return t.step(now, func() {
		if t.down || t.phase == shaking {
			t.failWaiting(e)
		}
		t.down, t.phase, t.level = true, idle, mcp.LevelNone
		t.forgetAsks()
		for _, id := range slices.Sorted(maps.Keys(t.errands)) {
			r := t.errands[id]
			if r == nil {
				continue
			}
			delete(t.errands, id)
			if r.near != nil && slices.Contains(unsent, id) {
				t.later.stop(r.gather)
				r.id, r.fresh = 0, nil // the server that asked is gone
				t.waiting = append(t.waiting, pendingWork{r.near, func() { t.begin(r) }})
				continue
			}
			r.done(answer{err: e, lost: true})
		}
		clear(t.tasks)
		t.taskIDs, t.tools.whole = nil, false
		for _, u := range t.uris {
			u.lost()
			t.syncResource(u)
		}
	})
}

// FarReady implements [Translator].
func (t *ModernClient) FarReady(now time.Time) []Out {
	return t.step(now, func() {
		if !t.down {
			return
		}
		t.down = false
		if len(t.waiting) > 0 || len(t.listens) > 0 {
			t.shake()
		}
	})
}

// FarMissed implements [Translator].
func (t *ModernClient) FarMissed(now time.Time) []Out {
	return t.step(now, func() {
		if t.phase == ready && !t.down {
			t.tellAll(t.heard(), "something may have been missed")
		}
	})
}

// Close implements [Translator].
func (t *ModernClient) Close(now time.Time, e *jsonrpc.Error) []Out {
	outs := t.step(now, func() {
		for _, x := range slices.Clone(t.listens) {
			if x.listen.acked {
				t.endListen(x)
			}
		}
		t.listens = nil
		for _, key := range sortedKeys(t.reqs) {
			if x := t.reqs[key]; x != nil {
				if x.errand != nil {
					t.giveUp(x.errand, "the session is over")
				}
				t.fail(x, e, "")
			}
		}
		for _, n := range slices.Sorted(maps.Keys(t.held)) {
			t.giveUp(t.held[n], "the session is over")
		}
		for _, id := range slices.Sorted(maps.Keys(t.errands)) {
			if r := t.errands[id]; r.farMethod != mcp.MethodTasksCancel { // which was sent for the same reason
				t.cancelFar(id, r.farMethod, "the session is over")
			}
		}
	})
	t.closed = true
	return outs
}

// Legacy implements [Translator].
func (t *ModernClient) Legacy() mcp.Revision {
	if t.phase != ready {
		return mcp.RevisionNone
	}
	return t.server.features.Revision
}

// Open implements [Translator].
func (t *ModernClient) Open() (requests, held int) { return len(t.reqs), len(t.held) }

// sortedKeys returns the keys in an order that does not change.
func sortedKeys(m map[nearKey]*exchange) []nearKey {
	return slices.SortedFunc(maps.Keys(m), func(a, b nearKey) int {
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
func (t *ModernClient) whenReady(x *exchange, do func()) {
	if t.phase == ready && !t.down {
		do()
		return
	}
	if len(t.waiting) > 2*len(t.reqs)+8 { // most were cancelled
		t.waiting = slices.DeleteFunc(t.waiting, func(w pendingWork) bool { return w.x.over })
	}
	t.waiting = append(t.waiting, pendingWork{x, do})
	if t.phase == idle && !t.down {
		if t.info == nil {
			t.client = x.client
		}
		t.shake()
	}
}

// failWaiting fails what waits for the handshake.
func (t *ModernClient) failWaiting(e *jsonrpc.Error) {
	waiting := t.waiting
	t.waiting = nil
	for _, w := range waiting {
		t.fail(w.x, e, "initialize")
	}
}

// shake begins the handshake with the server.
func (t *ModernClient) shake() {
	t.phase = shaking
	if t.propose == mcp.RevisionNone {
		t.propose = t.opts.Legacy
	}
	f := era.Of(t.propose)
	if t.info == nil {
		t.info = []byte(`{"name":"unnamed","version":"0"}`)
		if t.client.Info.Name != "" {
			t.info = era.NewIdentity(t.client.Info).AppendInfo(nil, f)
		}
	}
	params := jsonwire.AppendQuote([]byte(`{"protocolVersion":`), f.Revision.String())
	params = era.ConvertClientCapabilities(append(params, `,"capabilities":`...), t.client.Capabilities, f, false)
	params = append(append(append(params, `,"clientInfo":`...), t.info...), '}')
	t.callServer(mcp.MethodInitialize, params, "_meta → initialize", t.shaken)
}

// shaken ends the handshake, and does what waited for it.
func (t *ModernClient) shaken(a answer) {
	if t.phase != shaking {
		return
	}
	t.phase = idle
	hello, e := (*era.Hello)(nil), a.err
	legacy := mcp.RevisionNone
	if e == nil {
		var err error
		if hello, err = era.ReadInitialize(a.result); err != nil {
			e = internal("the server's answer to initialize is none: %s", clip(err.Error()))
		} else if _, legacy = era.Common(mcp.Revisions(), hello.Versions); legacy == mcp.RevisionNone {
			e = internal("the server speaks revision %s, which the bridge does not", clip(hello.Versions[0]))
		}
	} else if _, other := era.Common(mcp.Revisions(), era.Supported(e)); other != mcp.RevisionNone && t.propose == t.opts.Legacy && other != t.propose {
		t.propose = other // the server should have answered with it
		t.shake()
		return
	} else {
		e = era.ConvertError(e, mcp.MethodInitialize, t.modern)
	}
	if e != nil {
		t.info, t.propose = nil, mcp.RevisionNone
		t.failWaiting(e)
		if len(t.listens) > 0 { // they want to hear of a server that comes back
			t.later.stop(t.again)
			t.again = t.after(longBackOff, func() {
				if t.phase == idle && !t.down && len(t.listens) > 0 {
					t.shake()
				}
			})
		}
		return
	}
	info := era.Lookup(a.result, "serverInfo")
	if !era.IsObject(info) {
		info = nil
	}
	f := era.Of(legacy)
	caps := slices.Clone(era.ImpliedCapabilities(hello.Capabilities, f))
	if !f.CoreTasks { // the revision has none, whatever the server says
		caps = without(caps, "tasks")
	}
	t.server = legacyHello{f, caps, slices.Clone(info), hello.Instructions}
	t.phase = ready
	t.notifyFar(mcp.NotificationInitialized, nil, "initialize")
	heard := t.heard()
	waiting := t.waiting
	t.waiting = nil
	for _, w := range waiting {
		if !w.x.over {
			w.do()
		}
	}
	t.listenAgain(heard)
}

// discover says what the server has said in the handshake.
func (t *ModernClient) discover(x *exchange) {
	result := mcp.AppendRevisions([]byte(`{"supportedVersions":`), t.opts.Supported)
	result = era.ConvertServerCapabilities(append(result, `,"capabilities":`...), t.server.caps, t.modern)
	if t.server.instructions != "" {
		result = jsonwire.AppendQuote(append(result, `,"instructions":`...), t.server.instructions)
	}
	t.answer(x, append(result, '}'), "initialize → server/discover")
}
