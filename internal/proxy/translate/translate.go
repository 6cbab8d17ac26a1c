package translate

import (
	"container/heap"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/seal"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Side is one of a translator's two peers.
type Side uint8

// The sides.
const (
	Dropped    Side = iota // nothing is sent, for the reason that Rule says
	Downstream             // the client
	Upstream               // the server
)

// An Out is a message to send, or a call to give up. The Outs of one step are in the order in which they have to go.
type Out struct {
	To      Side
	Message []byte // JSON text on one line; nil if there is nothing to send, but something to end

	Stream uint64 // near: on which stream it belongs, 0 for none in particular
	Final  bool   // near: nothing more comes on that stream for the request it answers; of a batch, for the batch
	Status int    // near: the HTTP status that goes with an error; 0 is 200. It can only be sent if nothing has gone on the stream

	Call   int64  // far: the id of the request that Message is, or that Cancel gives up; 0 is a notification or an answer
	Cancel bool   // far: Call is given up, and no answer to it is wanted
	Method string // far: of the request or notification; "" is an answer to the server

	Rule   string   // what was done to the message, in a few words; "" if it only got another id
	Causes []uint64 // the marks of earlier messages that it is made of, besides the one that came in; see SetCause
}

// A Translator is what both directions have in common. Each method returns what has to be sent.
type Translator interface {
	// FromDownstream takes a message, or a batch, that came from the client on a stream. The translator may answer it itself.
	FromDownstream(now time.Time, message []byte, stream uint64) []Out
	// FromUpstream takes a message, or a batch, that came from the server, in answer to a call (see the package) or on its own account, 0.
	FromUpstream(now time.Time, message []byte, call int64) []Out
	// SetCause names the message that the next step is about, for Out.Causes of later ones; a driver that records both sides gives the number of its event. 0 is none.
	SetCause(event uint64)
	// StreamClosed says that nothing can be sent on a stream any more. In the modern era that cancels the request it came with.
	StreamClosed(now time.Time, stream uint64) []Out
	// CallFailed says that the transport could not bring a call to an answer, and with what error the client is to be told. A call that is over is ignored.
	CallFailed(now time.Time, call int64, e *jsonrpc.Error) []Out
	// UpstreamLost says that the server, or the session with it, is gone. Open calls fail with e, but those that are certain not to have been carried out,
	// which are sent again when it is back.
	UpstreamLost(now time.Time, e *jsonrpc.Error, unsent ...int64) []Out
	// UpstreamReady says that there is a server to send to again after UpstreamLost. It must be called only after that: a translator begins with one.
	UpstreamReady(now time.Time) []Out
	// NotificationsLost says that what the server sent of itself may have been lost, while the session goes on.
	NotificationsLost(now time.Time) []Out
	// Next returns when Tick has to be called; the zero time is never.
	Next() time.Time
	// Tick does what is due.
	Tick(now time.Time) []Out
	// Close ends what stands open, with e for requests of the client, and gives up all calls. The translator takes nothing any more.
	Close(now time.Time, e *jsonrpc.Error) []Out
	// Legacy returns the revision that the legacy side agreed on, which HTTP repeats in a header; RevisionNone before the handshake.
	Legacy() mcp.Revision
	// Modern returns the revision of the modern side.
	Modern() mcp.Revision
	// InFlight returns how many requests of the client are being served, and how many calls are held open for clients that have to answer first.
	InFlight() (requests, held int)
}

// Options are the options of both directions. nil is the zero value, which is ready to use.
type Options struct {
	Modern mcp.Revision // of the modern side; RevisionNone is the latest
	Legacy mcp.Revision // the newest of the legacy side; RevisionNone is the latest

	// Supported is what a modern client is told that can be spoken here; nil is Modern alone.
	Supported []mcp.Revision
	// Hints go with what a legacy server says and modern clients may keep; the zero value is that they keep it for no time.
	Hints era.CacheHints

	// Ring seals what a modern client keeps between the rounds of a call. nil is one of the translator's own.
	Ring *seal.Ring
	// IDs counts the ids of calls. Translators that share a connection to the server must share it, and go by [Route]. nil is one of the translator's own.
	IDs *atomic.Int64
	// IsolateClients says that requests of modern clients may be of several, who are not to see what is the others': a log message that may belong to one or another goes to
	// none. Only questions go to the one who is asked by turns, since the server waits.
	IsolateClients bool
	// NewID makes ids that nobody guesses. nil makes random ones.
	NewID func() string

	Limits Limits
}

// Limits bound what a translator keeps. Zero values are the defaults.
type Limits struct {
	Requests      int           // of the client, open at once, listening not counted: 1024
	Bytes         int           // of requests and results that are kept: 256 MiB
	AwaitingInput int           // calls held open for a client that has to answer first; beyond it the oldest is given up: 256
	InputRequests int           // questions of a server that are open at once: 1024
	InputRounds   int           // of asking the client in one request: 32
	Subscriptions int           // subscriptions/listen requests of a client that are open at once: 64
	Resources     int           // resources that are subscribed to: 1024
	Tasks         int           // that are remembered: 256
	ToolNames     int           // of tools whose way with tasks is remembered: 4096
	InputTimeout  time.Duration // how long a question may go unanswered: 10 minutes
	GatherDelay   time.Duration // how long a legacy server's first question waits for others to go with it: 10 ms
	PollInterval  time.Duration // how often a task is asked for that does not say: 1 s
	Depth         int           // levels of nesting in a message: 512
}

// orDefault returns o with everything filled in.
func (o *Options) orDefault() Options {
	var full Options
	if o != nil {
		full = *o
	}
	set(&full.Modern, mcp.LatestRevision)
	set(&full.Legacy, mcp.LatestLegacyRevision)
	set(&full.Ring, new(seal.Ring))
	set(&full.IDs, new(atomic.Int64))
	if full.Supported == nil {
		full.Supported = []mcp.Revision{full.Modern}
	}
	if full.NewID == nil {
		full.NewID = rand.Text
	}
	l := &full.Limits
	set(&l.Requests, 1024)
	set(&l.Bytes, 256<<20)
	set(&l.AwaitingInput, 256)
	set(&l.InputRequests, 1024)
	set(&l.InputRounds, 32)
	set(&l.Subscriptions, 64)
	set(&l.Resources, 1024)
	set(&l.Tasks, 256)
	set(&l.ToolNames, 4096)
	set(&l.InputTimeout, 10*time.Minute)
	set(&l.GatherDelay, 10*time.Millisecond)
	set(&l.PollInterval, time.Second)
	set(&l.Depth, 512)
	return full
}

// set gives an option its default.
func set[T comparable](option *T, value T) {
	var zero T
	if *option == zero {
		*option = value
	}
}

// A core is what both translators are made of: the step that is under way, what comes of it, and what is due later.
type core struct {
	opts         Options
	modern       *era.Features
	now          time.Time
	outs         []Out
	timers       timers
	cause        uint64 // of the message that the step is about
	reserved     int    // bytes of what is kept for open requests
	upstreamDown bool   // there is no server to send to
	closed       bool
}

// step does one thing and returns what came of it.
func (c *core) step(now time.Time, do func()) []Out {
	if c.closed {
		return nil
	}
	c.now = now
	do()
	outs := c.outs
	c.outs, c.cause = nil, 0
	return outs
}

// SetCause implements [Translator].
func (c *core) SetCause(event uint64) { c.cause = event }

// Next implements [Translator].
func (c *core) Next() time.Time {
	if c.closed || len(c.timers) == 0 {
		return time.Time{}
	}
	return c.timers[0].at
}

// Tick implements [Translator].
func (c *core) Tick(now time.Time) []Out {
	return c.step(now, func() { c.timers.run(now) })
}

// Modern implements [Translator].
func (c *core) Modern() mcp.Revision { return c.opts.Modern }

// after has something done once d has passed.
func (c *core) after(d time.Duration, do func()) *timer { return c.timers.add(c.now.Add(d), do) }

// emit sends.
func (c *core) emit(o Out) {
	if o.Message != nil {
		o.Message = jsonrpc.OneLine(o.Message)
	}
	o.Causes = slices.DeleteFunc(o.Causes, func(cause uint64) bool { return cause == 0 || cause == c.cause })
	if len(o.Causes) == 0 {
		o.Causes = nil
	}
	c.outs = append(c.outs, o)
}

// drop says why nothing comes of a message.
func (c *core) drop(rule string) { c.emit(Out{Rule: rule}) }

// sendUpstream sends the server a request, which is made of messages with these marks.
func (c *core) sendUpstream(id int64, method string, params []byte, rule string, causes ...uint64) {
	c.emit(Out{To: Upstream, Message: jsonrpc.AppendRequest(nil, jsonrpc.IntID(id), method, params), Call: id, Method: method, Rule: rule, Causes: causes})
}

// notifyUpstream sends the server a notification.
func (c *core) notifyUpstream(method string, params []byte, rule string) {
	c.emit(Out{To: Upstream, Message: jsonrpc.AppendNotification(nil, method, params), Method: method, Rule: rule})
}

// cancelUpstream gives up a call.
func (c *core) cancelUpstream(id int64, method, reason string) {
	name, params := era.Cancellation{}.Notice(jsonrpc.IntID(id), method, reason)
	o := Out{To: Upstream, Call: id, Cancel: true, Method: name, Rule: "cancelled"}
	if name != "" {
		o.Message = jsonrpc.AppendNotification(nil, name, params)
	}
	c.emit(o)
}

// reserve takes note of bytes that are kept, and reports false if that is too much.
func (c *core) reserve(n int) bool {
	if c.reserved+n > c.opts.Limits.Bytes {
		return false
	}
	c.reserved += n
	return true
}

// An answer is what became of a call: a result or an error.
type outcome struct {
	result []byte
	err    *jsonrpc.Error
	lost   bool   // the server did not say it: nobody knows what became of the call
	cause  uint64 // of the message, if it came in a step before
}

// outcomeOf takes the answer out of a response.
func outcomeOf(m *jsonrpc.Message) outcome {
	if m.Kind == jsonrpc.KindError {
		return outcome{err: m.Err()}
	}
	if !era.IsObject(m.Result) {
		return outcome{err: jsonrpc.Errorf(jsonrpc.CodeInternalError, "the server's result is no object")}
	}
	return outcome{result: m.Result}
}

// parseCallID reads an id that this side made.
func parseCallID(id jsonrpc.ID) (int64, bool) { return jsonwire.ParseInt(id) }

// idKey returns what is the same for ids that are the same.
func idKey(id jsonrpc.ID) string {
	if s, ok := id.Text(); ok {
		return "s" + s
	}
	return string(id)
}

// appendInt appends a member's name and a number.
func appendInt(dst []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(append(append(dst, '"'), name...), `":`...), n, 10)
}

// rewriteParam returns a notification or a request with the params that change makes of its own, all else as it is.
func rewriteParams(frame []byte, change func(params []byte) []byte) []byte {
	return era.Rewrite(nil, frame, func(m *jsonwire.Members) []byte {
		if m.KeyIs("params") {
			return change(m.Value())
		}
		return m.Value()
	}, nil)
}

// withoutMembers leaves members out of an object, and returns nil instead of an empty one.
func withoutMembers(obj []byte, names ...string) []byte {
	obj = era.Rewrite(nil, obj, func(m *jsonwire.Members) []byte {
		for _, name := range names {
			if m.KeyIs(name) {
				return nil
			}
		}
		return m.Value()
	}, nil)
	if string(obj) == "{}" {
		return nil
	}
	return obj
}

// internalError makes an error of the translator's own, or of the server's when the server is at fault.
func internalError(format string, args ...any) *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.CodeInternalError, format, args...)
}

// clip shortens what a peer said, for a message.
func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "…"
	}
	return s
}

var errOverloaded = internalError("the bridge has too many requests open: try again later")

// A timer is something to do later. The driver's clock makes it happen.
type timer struct {
	at    time.Time
	do    func()
	index int // in the heap; -1 when it is over
}

// timers are what there is to do later, the next of it first.
type timers []*timer

// Len implements [heap.Interface].
func (t timers) Len() int { return len(t) }

// Less implements [heap.Interface].
func (t timers) Less(i, j int) bool { return t[i].at.Before(t[j].at) }

// Swap implements [heap.Interface].
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}

// Push implements [heap.Interface].
func (t *timers) Push(x any) {
	x.(*timer).index = len(*t)
	*t = append(*t, x.(*timer))
}

// Pop implements [heap.Interface].
func (t *timers) Pop() any {
	old := *t
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	last.index = -1
	return last
}

// add has something done at a time.
func (t *timers) add(at time.Time, do func()) *timer {
	x := &timer{at: at, do: do}
	heap.Push(t, x)
	return x
}

// stop calls a timer off. It may be nil, or over.
func (t *timers) stop(x *timer) {
	if x != nil && x.index >= 0 {
		heap.Remove(t, x.index)
	}
}

// run does what is due.
func (t *timers) run(now time.Time) {
	for len(*t) > 0 && !(*t)[0].at.After(now) {
		heap.Pop(t).(*timer).do()
	}
}

// Route returns the id of the call that a message from a modern server belongs to, by what it says itself: of the answer, of the request whose progress
// it is, or of the subscription. ok is false if it says nothing: a log message, for example. It is for connections that translators share.
func Route(message []byte) (call int64, ok bool) {
	var m jsonrpc.Message
	if jsonrpc.IsBatch(message) || jsonrpc.Parse(message, &m, 0) != nil {
		return 0, false
	}
	switch m.Kind {
	case jsonrpc.KindResponse, jsonrpc.KindError:
		return parseCallID(m.ID)
	case jsonrpc.KindNotification:
		if id, _, cancels := (era.Cancellation{}).Target(&m); cancels {
			return parseCallID(id)
		}
		if string(m.Method) == mcp.NotificationProgress {
			token, _ := m.Param("progressToken")
			return jsonwire.ParseInt(token)
		}
		return jsonwire.ParseInt(era.Lookup(m.Params, "_meta", mcp.MetaSubscriptionID))
	}
	return 0, false
}

// ClientKey returns what tells apart modern clients that cannot share one legacy session, because a session declares once what each modern request
// declares anew: a digest of the capabilities and the name in the request's metadata. "" is for what has none.
func ClientKey(message []byte) string {
	var m jsonrpc.Message
	if jsonrpc.IsBatch(message) || jsonrpc.Parse(message, &m, 0) != nil {
		return ""
	}
	caps := era.Lookup(m.Params, "_meta", mcp.MetaClientCapabilities)
	if caps == nil {
		return ""
	}
	text := jsonwire.AppendCompact(nil, caps)
	if info := era.Lookup(m.Params, "_meta", mcp.MetaClientInfo); info != nil {
		text = jsonwire.AppendCompact(append(text, ' '), info)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// isProtocolNotification reports whether a notification is one of the protocol's, in any revision. Those that a translator has no other use for are not for that peer to
// say, and the other one could be deceived by them; those that are not the protocol's pass.
func isProtocolNotification(method string) bool {
	switch method {
	case mcp.NotificationInitialized, mcp.NotificationCancelled, mcp.NotificationProgress, mcp.NotificationMessage, mcp.NotificationToolsChanged,
		mcp.NotificationResourcesChanged, mcp.NotificationPromptsChanged, mcp.NotificationResourceUpdated, mcp.NotificationRootsChanged,
		mcp.NotificationAcknowledged, mcp.NotificationElicitationComplete, mcp.NotificationTaskStatus, mcp.NotificationTasks:
		return true
	}
	return false
}

// matchesSubscription reports whether a resource is one of those subscribed to, or a part of one.
func matchesSubscription(subscribed iter.Seq[string], uri string) bool {
	for prefix := range subscribed {
		rest, ok := strings.CutPrefix(uri, prefix)
		if ok && (rest == "" || strings.HasSuffix(prefix, "/") || strings.ContainsRune("/?#", rune(rest[0]))) {
			return true
		}
	}
	return false
}
