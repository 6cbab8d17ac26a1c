package bridge

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"mcpwire/capture"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A plain is the party where both sides are of the same era. It forwards the bytes as they are, and knows of each message what it must to replace the
// server. It is the user of its line, or one of several on a trunk. Its methods may be called by many goroutines at once.
type plain struct {
	b       *Bridge
	line    *line
	rename  bool          // ids are replaced, because several clients use them
	ids     *atomic.Int64 // that were given
	commons *commons      // that the clients share; nil if the line goes with them
	session *session      // that they are in, although each has shaken hands; nil if they have none, or each its own

	mu      sync.Mutex
	members map[*client]*member
	calls   map[string]*call // by the key of the id that the server knows
	tokens  map[string]*call // by the key of the progress token that the server knows
	asked   map[string]*ask  // questions of the server that were not answered
	own     map[string]chan *jsonrpc.Message
	past    past
	late    []lateCall // that were given up, the oldest first
	over    bool
}

// An ask is a request of the server's.
type ask struct {
	client *client
	id     jsonrpc.ID
	out    jsonrpc.Outlet
}

func (b *Bridge) newPlain(rename bool) *plain {
	p := newPlain(b, rename)
	p.line = b.prepareLine(p)
	b.wg.Go(p.line.run)
	return p
}

func newPlain(b *Bridge, rename bool) *plain {
	return &plain{
		b: b, rename: rename, ids: new(atomic.Int64),
		members: map[*client]*member{}, calls: map[string]*call{}, tokens: map[string]*call{}, asked: map[string]*ask{}, own: map[string]chan *jsonrpc.Message{},
	}
}

// plainOn returns a plain that is the user of a line that there is already, for a client. It calls first, which may be nil, before it gets what the server has sent of itself.
func (b *Bridge) plainOn(cl *client, l *line, rename bool, first func(*plain)) *plain {
	p := newPlain(b, rename)
	p.line = l
	p.join(cl)
	l.hand(p, func() {
		if first != nil {
			first(p)
		}
	})
	return p
}

// join makes the client one of those whose messages are brought to the server.
func (p *plain) join(cl *client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.members[cl] = new(member)
}

// request implements party.
func (p *plain) request(c *call, frame []byte, m *jsonrpc.Message) {
	if p.session != nil {
		p.inSession(c, frame, m)
		return
	}
	p.carry(c, frame, m)
}

// carry brings a request to the server.
func (p *plain) carry(c *call, frame []byte, m *jsonrpc.Message) {
	p.mu.Lock()
	c.far = c.id
	if p.rename {
		frame = p.renamedLocked(c, frame, m)
	} else if token, ok := tokenOf(m); ok {
		c.heard = idKey(token)
	}
	key := idKey(c.far)
	switch {
	case p.over:
		p.mu.Unlock()
		c.fail(jsonrpc.Errorf(jsonrpc.CodeInternalError, "the connection to the server is closed"))
		return
	case p.calls[key] != nil:
		p.mu.Unlock()
		c.fail(jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "the id is that of another request which is under way"))
		return
	}
	p.calls[key] = c
	if c.heard != "" {
		p.tokens[c.heard] = c
	}
	p.past.asks(c, frame, m)
	if c.modern {
		c.hears = hearsOf(m)
	}
	if p.b.opts.HTTP && c.modern && c.method == mcp.MethodToolsCall && len(frame) <= maxAgain {
		c.frame = frame
	}
	if c.modern && c.method == mcp.MethodToolsCall && len(frame) <= maxRemembered {
		c.sent = frame
	}
	if c.method == mcp.MethodSubscriptionsListen {
		c.again = frame
	}
	c.watch(func() { p.expire(c) })
	it := item{frame: frame, id: c.far, from: made{lane: c.lane, of: c.event, rule: p.rule()}}
	err := p.handLocked(c, it)
	p.mu.Unlock()
	if err == errFull {
		if err = p.squeeze(c, it); err == nil {
			p.mu.Lock()
			c.handed = true
			p.mu.Unlock()
		}
	}
	if (err != nil || c.done.Load()) && p.drop(c) {
		if err == nil { // it was given up meanwhile
			p.cancel(c, "the client is gone")
			return
		}
		c.fail(reason(err))
	}
}

// squeeze gives a request to the line as soon as there is room for it, unless the call has been answered by then.
func (p *plain) squeeze(c *call, it item) error {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	c.give.Store(&cancel)
	if c.done.Load() {
		cancel()
	}
	return p.line.send(ctx, it)
}

// handLocked gives a request to the line, unless too much waits there. It is done with the lock held, so that who says that the connection has ended knows which requests
// that is of no interest to, because they have not been sent.
func (p *plain) handLocked(c *call, it item) (err error) {
	if p.b.opts.HTTP && c.method == mcp.MethodInitialize { // what follows has no session before that was answered
		p.line.hold(true)
		p.line.sendFirst(it)
	} else {
		err = p.line.offer(it)
	}
	c.handed = err == nil
	return err
}

// forget takes a call out of those that are open, and reports whether it was.
func (p *plain) forget(c *call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.forgetLocked(c)
}

// drop is forget for a call whose answer nobody waits for any more.
func (p *plain) drop(c *call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.giveUpLocked(c)
}

func (p *plain) forgetLocked(c *call) bool {
	key := idKey(c.far)
	if p.calls[key] != c {
		return false
	}
	delete(p.calls, key)
	if p.b.opts.HTTP && c.method == mcp.MethodInitialize {
		defer p.line.hold(false)
	}
	if p.tokens[c.heard] == c {
		delete(p.tokens, c.heard)
	}
	return true
}

// expire gives a call up for which nothing was heard for too long.
func (p *plain) expire(c *call) {
	p.mu.Lock()
	waits := false
	for _, a := range p.asked {
		waits = waits || a.client == c.client
	}
	if waits && p.calls[idKey(c.far)] == c { // it may be the user whom it waits for
		c.more()
		p.mu.Unlock()
		return
	}
	open := p.giveUpLocked(c)
	p.mu.Unlock()
	if open {
		p.cancel(c, "timeout")
		c.late()
		p.line.suspect(c.began)
	}
}

// cancel tells the server that a call, which has been forgotten, is not wanted any more.
func (p *plain) cancel(c *call, why string) {
	if unsent := p.line.withdraw(c.far); unsent || c.method == mcp.MethodInitialize {
		return
	}
	p.tell(cancellation(c.far, why))
}

// tell sends the server a notification of the bridge's own.
func (p *plain) tell(frame []byte) {
	p.line.sendFirst(item{frame: frame})
}

// notification implements party.
func (p *plain) notification(cl *client, frame []byte, m *jsonrpc.Message, event uint64) {
	switch string(m.Method) {
	case mcp.NotificationCancelled:
		var ok bool
		if frame, ok = p.cancelled(cl, frame, m); !ok {
			return
		}
	case mcp.NotificationInitialized:
		if p.session != nil {
			p.confirm(cl)
			return
		}
		p.mu.Lock()
		p.past.initialized = slices.Clone(frame)
		p.mu.Unlock()
	}
	p.heard(cl)
	p.forward(cl, frame, event)
}

// forward sends the server what wants no answer.
func (p *plain) forward(cl *client, frame []byte, event uint64) {
	it := item{frame: frame, from: made{lane: cl.lane, of: event, rule: p.rule()}}
	err := p.line.offer(it)
	if err == errFull { // nobody else can end the wait for a server that takes nothing
		ctx, cancel := p.b.whileConnecting(cl.ended)
		err = p.line.send(ctx, it)
		cancel()
	}
	if err != nil {
		p.b.opts.Logger.Debug("a message was dropped", "error", err)
	}
}

// cancelled acts on a cancellation, and returns it as the server has to have it, unless there is nothing to be cancelled.
func (p *plain) cancelled(cl *client, frame []byte, m *jsonrpc.Message) ([]byte, bool) {
	id, ok := m.Param("requestId")
	if !ok {
		return frame, !p.rename
	}
	p.mu.Lock()
	c := p.openLocked(cl, id)
	if c == nil || c.method == mcp.MethodInitialize {
		p.mu.Unlock() // it is late; or over HTTP, where each message comes by itself, it has overtaken its request, and the server would not know what it means either
		return nil, false
	}
	p.giveUpLocked(c)
	p.mu.Unlock()
	if c.renamed() {
		frame = splice(frame, locate(frame, "params", "requestId"), c.far)
	}
	c.finish(nil, made{})
	return frame, !p.line.withdraw(c.far)
}

// response implements party.
func (p *plain) response(cl *client, frame []byte, m *jsonrpc.Message, event uint64) {
	p.mu.Lock()
	a := p.asked[idKey(m.ID)]
	if a == nil || a.client != cl {
		p.mu.Unlock()
		p.b.metrics.strays.Add(1)
		return
	}
	delete(p.asked, idKey(m.ID))
	p.mu.Unlock()
	p.forward(cl, frame, event)
}

// hangUp implements party.
func (p *plain) hangUp(c *call) {
	if p.drop(c) {
		p.cancel(c, "the client is gone")
	}
}

// leave implements party.
func (p *plain) leave(cl *client) {
	p.mu.Lock()
	delete(p.members, cl)
	empty := p.commons == nil && len(p.members) == 0
	var calls []*call
	for _, c := range p.calls {
		if c.client == cl {
			calls = append(calls, c)
			p.giveUpLocked(c)
		}
	}
	drop := p.past.leave(cl)
	var then []func()
	if p.session != nil {
		then = p.forsakeLocked(cl)
	}
	p.mu.Unlock()
	for _, c := range calls {
		p.cancel(c, "the client is gone")
	}
	if empty {
		p.line.close()
		return
	}
	for _, uri := range drop {
		p.unsubscribe(uri)
	}
	for _, do := range then {
		do()
	}
	if p.commons != nil {
		p.commons.left()
	}
}

// received implements user.
func (p *plain) received(frame []byte, m *jsonrpc.Message, from origin) {
	event := from.lane.record(capture.ToClient, frame)
	switch m.Kind {
	case jsonrpc.KindRequest:
		p.question(frame, m, from.call, event)
	case jsonrpc.KindNotification:
		p.news(frame, m, from.call, event)
	default:
		p.answered(frame, m, event)
	}
}

// answered hands a response to who waits for it.
func (p *plain) answered(frame []byte, m *jsonrpc.Message, event uint64) {
	key := idKey(m.ID)
	p.mu.Lock()
	if own := p.own[key]; own != nil {
		delete(p.own, key)
		p.mu.Unlock()
		own <- m // it has room
		return
	}
	c := p.calls[key]
	if c == nil {
		task, meta := p.answeredLateLocked(m)
		p.mu.Unlock()
		p.b.metrics.strays.Add(1)
		if task != "" {
			p.b.spawn(func() { p.cancelTask(task, meta) })
		}
		return
	}
	if p.mismatchedLocked(c, m) {
		p.mu.Unlock()
		p.b.wg.Go(func() { p.relearn(c, frame, event) })
		return
	}
	p.forgetLocked(c)
	p.past.answered(c, m)
	if p.session != nil {
		p.learnLocked(c, m)
	}
	p.mu.Unlock()
	if c.renamed() {
		frame = restored(frame, c)
	}
	c.finish(frame, p.made(event))
}

// callFailed implements user.
func (p *plain) callFailed(id jsonrpc.ID, err error) {
	e := reason(err)
	p.line.lane.note(e.Message)
	p.mu.Lock()
	c := p.calls[idKey(id)]
	own := p.own[idKey(id)]
	delete(p.own, idKey(id))
	if c != nil && p.listensAgainLocked(c, err) {
		c = nil
	} else if c != nil {
		p.forgetLocked(c)
	}
	p.mu.Unlock()
	switch {
	case own != nil:
		own <- failure(id, e)
	case c != nil:
		c.fail(e)
	}
}

// failure is a response that is an error.
func failure(id jsonrpc.ID, e *jsonrpc.Error) *jsonrpc.Message {
	m := new(jsonrpc.Message)
	if err := jsonrpc.Parse(jsonrpc.AppendError(nil, id, e, false), m, 0); err != nil {
		m.Kind = jsonrpc.KindError // the error object is missing then, which Err says
	}
	return m
}

// disconnected implements user.
func (p *plain) disconnected(err error, unsent []item) {
	closed := err == errLineClosed
	waits := map[string]bool{}
	if !closed {
		for _, it := range unsent {
			if it.id != nil {
				waits[idKey(it.id)] = true
			}
		}
		p.line.requeue(unsent)
	}
	p.mu.Lock()
	p.over = closed
	var fail []*call
	for key, c := range p.calls {
		if !waits[key] && (closed || c.again == nil && c.handed && !p.line.waits(c.far)) {
			fail = append(fail, c)
			p.forgetLocked(c)
		}
	}
	asked := slices.Collect(maps.Values(p.asked))
	own := p.own
	p.own = map[string]chan *jsonrpc.Message{}
	clear(p.asked)
	p.past.lost()
	p.mu.Unlock()
	e := reason(err)
	for _, c := range own {
		c <- failure(nil, e)
	}
	for _, c := range fail {
		c.fail(e)
	}
	for _, a := range asked {
		a.client.send(a.out, cancellation(a.id, "the server is gone"), made{})
	}
}

// needed implements user.
func (p *plain) needed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || len(p.members) == 0 {
		return false
	}
	if p.past.shaken() {
		return true
	}
	for _, c := range p.calls {
		if c.again != nil {
			return true
		}
	}
	return false
}
