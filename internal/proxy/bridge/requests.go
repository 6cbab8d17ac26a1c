package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/base/sparse"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/net/neterror"
	"mcpwire/internal/proxy/translate"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// ownRequests gives the ids that the bridge chooses on an upstream, and holds the bridge's own
// pending requests. Its methods may be called by many goroutines at once.
type ownRequests struct {
	// last is the last number that was given.
	last atomic.Int64

	mu sync.Mutex
	// prefix begins ids, so that they differ from those of clients. It is empty if the bridge
	// chooses all ids of the upstream; then they are numbers.
	prefix  string
	pending map[string]chan ownAnswer
}

// An ownAnswer is the response to a request of the bridge, or the error without one.
type ownAnswer struct {
	m     *jsonrpc.Message
	frame []byte
	// event is the response in the capture.
	event uint64
	err   error
}

// newID returns an id that nothing else on the upstream has.
func (o *ownRequests) newID() jsonrpc.ID {
	n := o.last.Add(1)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.prefix == "" {
		return jsonrpc.IntID(n)
	}
	return jsonrpc.StringID(o.prefix + strconv.FormatInt(n, 10))
}

// chooseAllIDs says that no client chooses ids on the upstream.
func (o *ownRequests) chooseAllIDs() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.prefix = ""
}

// expect returns a channel for the response to a request.
func (o *ownRequests) expect(id jsonrpc.ID) <-chan ownAnswer {
	o.mu.Lock()
	defer o.mu.Unlock()
	answer := make(chan ownAnswer, 1)
	sparse.Set(&o.pending, id.Key(), answer)
	return answer
}

// forget ends the wait for a response.
func (o *ownRequests) forget(id jsonrpc.ID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.pending, id.Key())
}

// answer passes on the answer to a request. It reports if id was one.
func (o *ownRequests) answer(id jsonrpc.ID, a ownAnswer) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.pending) == 0 {
		return false
	}
	answer, ok := o.pending[id.Key()]
	if ok {
		delete(o.pending, id.Key())
		answer <- a // the channel has room
	}
	return ok
}

// answerAll passes on the answer to all requests.
func (o *ownRequests) answerAll(a ownAnswer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, answer := range o.pending {
		answer <- a
	}
	clear(o.pending)
}

// start sends the server a request of the bridge, before all queued messages.
func (u *upstream) start(it queuedMessage) (<-chan ownAnswer, error) {
	answer := u.own.expect(it.id)
	if err := u.sendUrgent(it); err != nil {
		u.own.forget(it.id)
		return nil, err
	}
	return answer, nil
}

// request sends the server a request of the bridge and waits for the answer. It repeats the request
// while awaitRestart says so.
func (u *upstream) request(ctx context.Context, it queuedMessage) ownAnswer {
	began := time.Now()
	for refusals := 1; ; refusals++ {
		a := u.requestOnce(ctx, it)
		if it.noLogin || !u.b.awaitRestart(ctx, a.err, began, refusals) {
			return a
		}
	}
}

// awaitRestart waits before a request of the bridge over HTTP is repeated, because it had the error
// that the server's machine refused the connection, as in a restart. It reports false if the
// request must not be repeated.
func (b *Bridge) awaitRestart(ctx context.Context, err error, began time.Time, refusals int) bool {
	if !b.opts.HTTP || !b.responded.Load() || !neterror.IsRefused(err) {
		return false
	}
	pause, ok := b.opts.restartPause(began, refusals)
	return ok && wait.Sleep(ctx, pause)
}

func (u *upstream) requestOnce(ctx context.Context, it queuedMessage) ownAnswer {
	answer, err := u.start(it)
	if err != nil {
		return ownAnswer{err: err}
	}
	select {
	case a := <-answer:
		return a
	case <-ctx.Done():
		u.own.forget(it.id)
		return ownAnswer{err: context.Cause(ctx)}
	}
}

// requestFrame is request for a frame that the bridge made for the detection of the era.
func (u *upstream) requestFrame(ctx context.Context, frame []byte) (*jsonrpc.Message, error) {
	a := u.request(ctx, queuedMessage{frame: frame, id: jsonwire.Lookup(frame, "id")})
	return a.m, a.err
}

// roundTrip sends the server a request of the bridge with a new id, and returns the result. The
// error is that of the response, or says why there was none, as clients may see it.
func (u *upstream) roundTrip(ctx context.Context, text func(id jsonrpc.ID) []byte) (result []byte, err error) {
	m, err := u.roundTripMessage(ctx, queuedMessage{}, text)
	if err == nil && m.Kind == jsonrpc.KindError {
		err = m.Err()
	}
	if err != nil {
		return nil, err
	}
	return m.Result, nil
}

// roundTripMessage is roundTrip with the other fields of the queued message, and returns the
// response, which may be an error response.
func (u *upstream) roundTripMessage(ctx context.Context, it queuedMessage, text func(id jsonrpc.ID) []byte) (*jsonrpc.Message, error) {
	it.id = u.own.newID()
	it.frame = WithID(text(it.id), it.id)
	switch a := u.request(ctx, it); {
	case a.err == nil:
		return a.m, nil
	case a.err == errUrgentFull:
		return nil, a.err
	case ctx.Err() != nil:
		return nil, fmt.Errorf("no response in time: %w", context.Cause(ctx))
	default:
		return nil, u.b.opts.clientError(a.err)
	}
}

// replay sends the server a request and ignores the response.
func (u *upstream) replay(frame []byte) error {
	id := u.own.newID()
	_, err := u.start(queuedMessage{frame: WithID(frame, id), id: id})
	return err
}

// sendOwn sends the server a notification or a response of the bridge, before all queued messages.
func (u *upstream) sendOwn(frame []byte) error { return u.sendUrgent(queuedMessage{frame: frame}) }

// refuse answers a request of the server with an error.
func (u *upstream) refuse(id jsonrpc.ID, e *jsonrpc.Error) {
	u.sendOwn(jsonrpc.AppendError(nil, id, e, false))
}

// ping checks if the server answers. Any response counts, except an internal error.
func (u *upstream) ping(ctx context.Context) error {
	_, modern := u.b.eras.get()
	m, err := u.roundTripMessage(ctx, queuedMessage{noLogin: true}, func(id jsonrpc.ID) []byte {
		if modern == supportYes {
			return discoverRequest()
		}
		return jsonrpc.AppendRequest(nil, id, mcp.MethodPing, nil)
	})
	if err == nil && m.Kind == jsonrpc.KindError && m.Err().Code == jsonrpc.CodeInternalError {
		err = m.Err()
	}
	return err
}

// headerRetries holds the calls of tools that a modern server over HTTP has rejected because of
// missing headers. The transport only knows the headers of tools that it has seen in a list
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http). The
// upstream then lists the tools and sends the call again, once. The zero value is ready to use. Its
// methods may be called by many goroutines at once.
type headerRetries struct {
	mu    sync.Mutex
	calls map[string]*toolCall
}

// A toolCall is a call that was rejected once.
type toolCall struct {
	request queuedMessage
	// cancel ends the retry.
	cancel context.CancelFunc
}

// forget removes a call that was answered or given up.
func (h *headerRetries) forget(id jsonrpc.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.calls) > 0 {
		h.removeLocked(id.Key())
	}
}

func (h *headerRetries) removeLocked(key string) {
	if c := h.calls[key]; c != nil {
		c.cancel()
	}
	delete(h.calls, key)
}

// disconnected forgets all calls except those that were not sent.
func (h *headerRetries) disconnected(unsent []queuedMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := map[string]*toolCall{}
	for _, it := range unsent {
		if c := h.calls[it.id.Key()]; c != nil {
			kept[it.id.Key()] = c
			delete(h.calls, it.id.Key())
		}
	}
	for key := range h.calls {
		h.removeLocked(key)
	}
	h.calls = kept
}

// has reports if a call is pending.
func (h *headerRetries) has(c *toolCall) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls[c.request.id.Key()] == c
}

// refused handles a response to a request, which has no id if it is unknown. It returns the call to
// send again if the response rejects its headers for the first time, with a context that ends when
// the call does. Otherwise it forgets the call and returns nil.
func (h *headerRetries) refused(ctx context.Context, m *jsonrpc.Message, request queuedMessage) (*toolCall, context.Context) {
	rejected := m.Kind == jsonrpc.KindError && m.Err().Code == mcp.CodeHeaderMismatch && isModernToolCall(request.frame)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !rejected && len(h.calls) == 0 {
		return nil, nil
	}
	key := m.ID.Key()
	if !rejected || h.calls[key] != nil {
		h.removeLocked(key)
		return nil, nil
	}
	c := &toolCall{request: request}
	ctx, c.cancel = context.WithCancel(ctx)
	sparse.Set(&h.calls, key, c)
	return c, ctx
}

// isModernToolCall reports if a request, which may be nil, is a tools/call of the modern era.
func isModernToolCall(frame []byte) bool {
	return jsonwire.Text(jsonwire.Lookup(frame, "method")) == mcp.MethodToolsCall && jsonwire.Lookup(frame, "params", "_meta", mcp.MetaProtocolVersion) != nil
}

// retryWithHeaders lists tools until the transport has seen the tool of a call, and sends the call
// again. Otherwise it passes on the response m to the first attempt.
func (u *upstream) retryWithHeaders(ctx context.Context, c *toolCall, frame []byte, m *jsonrpc.Message, event uint64) {
	if u.findTool(ctx, c.request.frame) && u.retries.has(c) {
		u.rec.note("repeating a call, because the server requires headers from its list of tools")
		again := c.request
		again.from.rule = "sent again"
		if u.send(ctx, again) == nil {
			return
		}
	}
	if !u.retries.has(c) {
		return // given up
	}
	u.retries.forget(m.ID)
	u.deliverMu.Lock()
	defer u.deliverMu.Unlock()
	u.route(frame, m, m.ID, event)
}

// maxToolPages limits the pages of tools/list that the bridge reads to find a tool.
const maxToolPages = 64

// findTool lists the server's tools until it finds the tool of a call. It reports if it did.
func (u *upstream) findTool(ctx context.Context, call []byte) bool {
	ctx, cancel := u.b.withTimeout(ctx, u.b.opts.ConnectTimeout)
	defer cancel()
	meta, name := jsonwire.Lookup(call, "params", "_meta"), jsonwire.Text(jsonwire.Lookup(call, "params", "name"))
	if meta == nil {
		return false
	}
	params := slices.Concat([]byte(`{"_meta":`), meta, []byte{'}'})
	for range maxToolPages {
		result, err := u.roundTrip(ctx, func(id jsonrpc.ID) []byte { return jsonrpc.AppendRequest(nil, id, mcp.MethodToolsList, params) })
		if err != nil {
			return false
		}
		if hasTool(result, name) {
			return true
		}
		next := jsonwire.Lookup(result, "nextCursor")
		if next == nil {
			return false
		}
		params = slices.Concat([]byte(`{"_meta":`), meta, []byte(`,"cursor":`), next, []byte{'}'})
	}
	return false
}

// hasTool reports if a page of tools/list has a tool of that name.
func hasTool(result []byte, name string) bool {
	for tools := jsonwire.ArrayElements(jsonwire.Lookup(result, "tools")); tools.Next(); {
		if jsonwire.Text(jsonwire.Lookup(tools.Value(), "name")) == name {
			return true
		}
	}
	return false
}

// Limits for abandoned calls: their number, and the time for their responses and cancellations.
const (
	maxAbandoned     = 256
	abandonedTimeout = 5 * time.Second
)

// abandonedCalls holds calls that were given up. The server may still make tasks of them, which
// only the bridge learns of. The zero value is ready to use. Its methods may be called by many
// goroutines at once.
type abandonedCalls struct {
	mu sync.Mutex
	// list is sorted by time, oldest first.
	list []abandonedCall
}

// An abandonedCall is a call that was given up.
type abandonedCall struct {
	// key is the key of the upstream's id.
	key string
	// meta is the _meta of a modern call, which declares support for tasks.
	meta     []byte
	deadline time.Time
}

// add adds a call. meta is nil for a legacy call.
func (a *abandonedCalls) add(id jsonrpc.ID, meta []byte) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = slices.DeleteFunc(a.list, func(c abandonedCall) bool { return now.After(c.deadline) })
	if len(a.list) < maxAbandoned {
		a.list = append(a.list, abandonedCall{id.Key(), meta, now.Add(abandonedTimeout)})
	}
}

// taskOf removes the call that m answers. It returns the id of the task that the server made of the
// call, or "", and the _meta to use for it, which is nil for a legacy call.
func (a *abandonedCalls) taskOf(m *jsonrpc.Message) (task string, meta []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := m.ID.Key()
	i := slices.IndexFunc(a.list, func(c abandonedCall) bool { return c.key == key })
	if i < 0 {
		return "", nil
	}
	c := a.list[i]
	a.list = slices.Delete(a.list, i, i+1)
	switch {
	case m.Kind != jsonrpc.KindResponse || time.Now().After(c.deadline):
	case c.meta == nil:
		return era.LookupString(m.Result, "task", "taskId"), nil
	case era.ResultType(m.Result) == mcp.ResultTypeTask:
		return era.LookupString(m.Result, "taskId"), c.meta
	}
	return "", nil
}

// dropUnmatched drops a response that no client waits for. It cancels the task that the server made
// of an abandoned call.
func (u *upstream) dropUnmatched(m *jsonrpc.Message) {
	u.b.metrics.unmatchedResponses.Add(1)
	level := slog.LevelInfo // it may be late
	if len(m.ID) == 0 || m.ID.IsNull() {
		level = slog.LevelWarn
	}
	attrs := []any{"server", u.b.opts.Name, "id", clip.String(m.ID, 100)}
	if err := m.Err(); err != nil {
		attrs = append(attrs, "error", err)
	}
	u.b.opts.Logger.Log(u.ctx, level, "response of the server matches no request in flight", attrs...)
	if task, meta := u.abandoned.taskOf(m); task != "" {
		u.b.spawn(func() { u.cancelTask(task, meta) })
	}
}

// cancelTask cancels a task that no client knows.
func (u *upstream) cancelTask(id string, meta []byte) {
	ctx, cancel := context.WithTimeout(u.b.ctx, abandonedTimeout)
	defer cancel()
	params := jsonwire.AppendQuote([]byte(`{"taskId":`), id)
	if meta != nil {
		params = append(append(params, `,"_meta":`...), meta...)
	}
	params = append(params, '}')
	u.rec.note("cancelling a task: its call was cancelled before the response")
	if _, err := u.roundTrip(ctx, func(id jsonrpc.ID) []byte { return jsonrpc.AppendRequest(nil, id, mcp.MethodTasksCancel, params) }); err != nil {
		u.b.opts.Logger.Info("task not cancelled", "task", id, "error", err)
	}
}

// A router knows the codecs of an upstream, and chooses one for each message of the server. Clients
// of both eras may share an upstream to a modern server. The server keeps no state between
// requests, so the router chooses by request id. The zero value has no codec: the bridge is still
// detecting the era of the server. The methods may be called by many goroutines at once.
type router struct {
	mu sync.Mutex
	// only gets all messages. It is nil if clients of both eras share the upstream.
	only codec
	// muxed says that clients of both eras share the upstream.
	muxed bool
	// passthrough serves all modern clients; nil before the first.
	passthrough *passthrough
	// translators serve one legacy client each.
	translators map[*translator]struct{}
	// routes holds the pending requests of translators.
	routes map[int64]route
	// closed says that the upstream is closed.
	closed bool
}

// A route is a pending request of a translator.
type route struct {
	to *translator
	// logLevel is the lowest level of log messages that the request wants; LevelNone means none.
	logLevel mcp.LoggingLevel
	// subscription says that the request is a subscription. Messages without its id do not belong
	// to it.
	subscription bool
}

// setOnly makes c the codec for all messages.
func (r *router) setOnly(c codec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.only = c
}

// mux says that clients of both eras share the upstream.
func (r *router) mux() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.muxed, r.translators, r.routes = true, map[*translator]struct{}{}, map[int64]route{}
}

// soleCodec returns the codec of all messages, or nil if clients of both eras share the upstream.
func (r *router) soleCodec() codec {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.only
}

// hasCodec reports if the era of the server is known.
func (r *router) hasCodec() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.only != nil || r.muxed
}

// addTranslator adds the codec of a legacy client. It reports if the upstream is closed.
func (r *router) addTranslator(t *translator) (closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.translators[t] = struct{}{}
	return r.closed
}

// removeTranslator removes the codec of a legacy client.
func (r *router) removeTranslator(t *translator) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.translators, t)
	maps.DeleteFunc(r.routes, func(_ int64, to route) bool { return to.to == t })
}

// modernClients returns the codec of the modern clients. It calls first to make it.
func (r *router) modernClients(first func() *passthrough) *passthrough {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.passthrough == nil {
		r.passthrough = first()
		r.passthrough.closed = r.closed
	}
	return r.passthrough
}

// track records a request of a translator before it is sent.
func (r *router) track(id int64, t *translator, frame []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.muxed {
		level, _ := mcp.ParseLoggingLevel(jsonwire.Text(jsonwire.Lookup(frame, "params", "_meta", mcp.MetaLogLevel)))
		r.routes[id] = route{t, level, jsonwire.Text(jsonwire.Lookup(frame, "method")) == mcp.MethodSubscriptionsListen}
	}
}

// untrack forgets a request that was given up.
func (r *router) untrack(id int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.routes, id)
}

func (r *router) codecs() []codec {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.codecsLocked()
}

func (r *router) codecsLocked() []codec {
	if r.only != nil {
		return []codec{r.only}
	}
	var all []codec
	if r.passthrough != nil {
		all = append(all, r.passthrough)
	}
	for t := range r.translators {
		all = append(all, t)
	}
	return all
}

// codecOf returns the codec for a message that came on the stream of a request, or nil. on is nil
// if the request is unknown. It also reports if the message names a request.
func (r *router) codecOf(m *jsonrpc.Message, on jsonrpc.ID) (c codec, addressed bool) {
	r.mu.Lock()
	if r.only != nil || !r.muxed {
		defer r.mu.Unlock()
		return r.only, true
	}
	id, routed := translate.Route(m)
	if !routed {
		id, routed = intOf(on)
	}
	to, legacy := r.routes[id]
	if ended := len(m.Method) == 0 || string(m.Method) == mcp.NotificationCancelled; legacy && ended {
		delete(r.routes, id)
	}
	p := r.passthrough
	r.mu.Unlock()
	switch {
	case legacy:
		return to.to, true
	case !routed && m.Kind == jsonrpc.KindNotification:
		return r.codecOfUnaddressed(m), false
	case p != nil:
		return p, true
	}
	return nil, true
}

// codecOfUnaddressed returns the codec for a notification that names no request, if only one client
// can be its recipient, and nil otherwise.
func (r *router) codecOfUnaddressed(m *jsonrpc.Message) codec {
	level, isLog := logLevelOf(m)
	found := map[*translator]struct{}{}
	r.mu.Lock()
	for _, to := range r.routes {
		if !to.subscription && (!isLog || to.logLevel != mcp.LevelNone && level >= to.logLevel) {
			found[to.to] = struct{}{}
		}
	}
	p := r.passthrough
	r.mu.Unlock()
	modern := 0
	if p != nil {
		modern = len(p.candidateCalls(m))
	}
	switch {
	case modern == 1 && len(found) == 0:
		return p
	case modern == 0 && len(found) == 1:
		for t := range found {
			return t
		}
	}
	return nil
}

// codecOfFailed returns the codec of a request that failed, and forgets the request. It returns nil
// if there is none.
func (r *router) codecOfFailed(id jsonrpc.ID) codec {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.muxed {
		return r.only
	}
	n, _ := intOf(id)
	to, legacy := r.routes[n]
	delete(r.routes, n)
	switch {
	case legacy:
		return to.to
	case r.passthrough != nil:
		return r.passthrough
	}
	return nil
}

// disconnected forgets the pending requests. It returns a function that informs each codec of now
// why the connection ended, and which of its requests were not sent.
func (r *router) disconnected(err error, unsent []queuedMessage) (inform func()) {
	unsentBy := map[codec][]queuedMessage{}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = r.closed || err == errUpstreamClosed
	codecs := r.codecsLocked()
	others := r.only
	if others == nil && r.passthrough != nil {
		others = r.passthrough
	}
	for _, it := range unsent {
		to := others
		if it.by != nil {
			to = it.by
		}
		unsentBy[to] = append(unsentBy[to], it)
	}
	clear(r.routes)
	return func() {
		for _, c := range codecs {
			c.disconnected(err, unsentBy[c])
		}
	}
}
