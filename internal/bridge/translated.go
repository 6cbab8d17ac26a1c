package bridge

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/translate"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A translated is the party where clients and the server are of different eras: package translate decides what is said to either. It is the user of its line, or one of several
// on a trunk.
type translated struct {
	b       *Bridge
	line    *line
	trunk   *trunk   // nil if the line is its own
	commons *commons // that modern clients share; nil if there is one client

	mu      sync.Mutex // serialises what the translator is told and what it says
	members map[*client]struct{}
	t       translate.Translator
	streams map[uint64]*call // of HTTP
	piped   map[string]*call // of a stream, by the key of the id
	last    uint64
	timer   *time.Timer
	asked   map[string]struct{} // keys of the ids of questions that the client has not answered
	lost    bool                // the translator was told so
	over    bool

	ids   *atomic.Int64        // of requests to the server, if clients share it
	pings map[int64]chan error // of the bridge's own, under way

	learning bool // calls may lack headers that the server asks for
	lessons  lessons
}

// newTranslated returns the party of a client of the era near, on a line that there is already, or one of its own if l is nil.
func (b *Bridge) newTranslated(cl *client, near Era, l *line) *translated {
	var p *translated
	if near == EraModern {
		var o *translate.Options
		if cl.many {
			o = b.crowd()
		}
		p = prepareTranslated(b, translate.NewModernToLegacy(o))
	} else {
		p = prepareTranslated(b, translate.NewLegacyToModern(nil))
		p.learning = b.opts.HTTP
	}
	p.members[cl] = struct{}{}
	p.on(l)
	return p
}

// prepareTranslated returns a party without a line.
func prepareTranslated(b *Bridge, t translate.Translator) *translated {
	p := &translated{b: b, t: t, members: map[*client]struct{}{}, streams: map[uint64]*call{}, piped: map[string]*call{}, asked: map[string]struct{}{}}
	p.timer = time.AfterFunc(time.Hour, p.tick)
	p.timer.Stop()
	return p
}

// on makes the party the user of a line, of its own if l is nil.
func (p *translated) on(l *line) {
	if l != nil {
		p.line = l
		l.hand(p, nil)
		return
	}
	p.line = p.b.prepareLine(p)
	p.b.wg.Go(p.line.run)
}

// do tells the translator something, and does what it says. of is the event that is the reason.
func (p *translated) do(lane lane, of uint64, say func(now time.Time) []translate.Out) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.t.Mark(of)
		p.actLocked(lane, of, say(time.Now()))
	}
}

func (p *translated) actLocked(lane lane, of uint64, outs []translate.Out) {
	sent, why := false, ""
	for i := range outs {
		o := &outs[i]
		sent = sent || len(o.Message) > 0
		if o.To == translate.Nowhere {
			why = o.Rule
		}
		p.sendLocked(o, made{lane: lane, of: of, more: o.Of, rule: cmp.Or(o.Rule, "id")})
	}
	if !sent && why != "" && of != 0 {
		lane.note("message " + strconv.FormatUint(of, 10) + ": " + why)
	}
	next := p.t.Next()
	if next.IsZero() {
		p.timer.Stop()
	} else {
		p.timer.Reset(max(time.Until(next), 0))
	}
}

func (p *translated) tick() {
	p.do(p.line.lane, 0, func(now time.Time) []translate.Out { return p.t.Tick(now) })
}

// sendLocked sends one message.
func (p *translated) sendLocked(o *translate.Out, from made) {
	if len(o.Message) == 0 {
		if o.To == translate.Near && o.Final {
			p.finishLocked(o, nil, from)
		}
		return
	}
	switch o.To {
	case translate.Far:
		p.toFarLocked(o, from)
	case translate.Near:
		p.toNearLocked(o, from)
	}
}

func (p *translated) toFarLocked(o *translate.Out, from made) {
	it := item{frame: o.Message, from: from}
	switch {
	case o.Call != 0 && !o.Cancel:
		it.id = jsonrpc.IntID(o.Call)
		if p.learning {
			p.lessons.began(o.Call, o.Message)
		}
		if p.trunk != nil {
			p.trunk.own(o.Call, p, o.Message)
		}
	case o.Call != 0 && p.trunk != nil:
		p.trunk.disown(o.Call)
	case o.Call != 0:
		delete(p.lessons.calls, o.Call)
	}
	if o.Cancel && p.line.withdraw(jsonrpc.IntID(o.Call)) {
		return // what gives it up goes before all that waits, so before the request too
	}
	if o.Cancel || p.lost {
		p.line.sendFirst(it) // p.lost: what goes before all that waits, once there is a server again
		return
	}
	if err := p.line.offer(it); err != nil && it.id != nil {
		p.actLocked(from.lane, from.of, p.t.FarEnded(time.Now(), o.Call, reason(err)))
	}
}

func (p *translated) toNearLocked(o *translate.Out, from made) {
	if o.Final {
		p.finishLocked(o, o.Message, from)
		return
	}
	c := p.streams[o.Stream]
	p.heardLocked(c, o.Message)
	if c != nil {
		p.tellLocked(c.client, c.out, o.Message, from)
		return
	}
	if p.commons != nil && o.Stream != 0 { // whoever it was for is gone
		return
	}
	for cl := range p.members {
		p.tellLocked(cl, nil, o.Message, from)
	}
}

// tellLocked sends a client what is no answer.
func (p *translated) tellLocked(cl *client, out jsonrpc.Outlet, message []byte, from made) {
	if err := cl.send(out, message, from); err != nil {
		p.b.opts.Logger.Debug("a message was dropped", "error", err)
	}
}

// finishLocked answers a call.
func (p *translated) finishLocked(o *translate.Out, message []byte, from made) {
	if o.Stream != 0 {
		c := p.streams[o.Stream]
		delete(p.streams, o.Stream)
		if c != nil {
			c.finish(message, from)
			return
		}
	}
	var m jsonrpc.Message
	if jsonrpc.Parse(message, &m, 0) == nil && len(m.ID) > 0 {
		if c := p.piped[idKey(m.ID)]; c != nil {
			delete(p.piped, idKey(m.ID))
			c.finish(message, from)
			return
		}
	}
	if message == nil || p.commons != nil {
		return
	}
	for cl := range p.members {
		cl.send(nil, message, from)
	}
}

// request implements party.
func (p *translated) request(c *call, frame []byte, _ *jsonrpc.Message) {
	if err := p.line.down(); err != nil {
		c.fail(reason(err))
		return
	}
	p.mu.Lock()
	if p.over || c.done.Load() {
		p.mu.Unlock()
		c.fail(jsonrpc.Errorf(jsonrpc.CodeInternalError, "the session has ended"))
		return
	}
	if c.out != nil || p.commons != nil {
		p.last++
		c.stream = p.last
		p.streams[c.stream] = c
	} else {
		if p.piped[idKey(c.id)] != nil {
			p.mu.Unlock()
			c.fail(jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "the id is that of another request which is under way"))
			return
		}
		p.piped[idKey(c.id)] = c
	}
	p.t.Mark(c.event)
	p.actLocked(c.lane, c.event, p.t.FromNear(time.Now(), frame, c.stream))
	if !c.done.Load() {
		c.watch(func() { p.expire(c) })
	}
	p.mu.Unlock()
	poke(p.line.wake) // the translator may wait for a server
}

// notification implements party.
func (p *translated) notification(cl *client, frame []byte, m *jsonrpc.Message, event uint64) {
	var c *call
	id, cancels := m.Param("requestId")
	cancels = cancels && string(m.Method) == mcp.NotificationCancelled
	p.mu.Lock()
	if cancels {
		c = p.cancelledLocked(cl, id)
	}
	if !p.over {
		var stream uint64
		if c != nil && p.commons != nil {
			stream = c.stream
		}
		p.actLocked(cl.lane, event, p.t.FromNear(time.Now(), frame, stream))
	}
	if c != nil { // afterwards: what is done about a message may need to know of its request
		delete(p.streams, c.stream)
	}
	p.mu.Unlock()
	if c != nil && c.method != mcp.MethodInitialize {
		c.finish(nil, made{})
	}
}

// cancelledLocked returns the request that a client has cancelled, which is to have no answer. A modern client on HTTP hangs up instead.
func (p *translated) cancelledLocked(cl *client, id jsonrpc.ID) *call {
	if c := p.piped[idKey(id)]; c != nil {
		delete(p.piped, idKey(id))
		return c
	}
	for _, c := range p.streams {
		if c.client == cl && (!c.modern || c.out == nil) && idKey(c.id) == idKey(id) {
			return c
		}
	}
	return nil
}

// response implements party.
func (p *translated) response(cl *client, frame []byte, m *jsonrpc.Message, event uint64) {
	p.mu.Lock()
	delete(p.asked, idKey(m.ID))
	p.mu.Unlock()
	p.do(cl.lane, event, func(now time.Time) []translate.Out { return p.t.FromNear(now, frame, 0) })
}

// hangUp implements party.
func (p *translated) hangUp(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.stream == 0 || p.over {
		return
	}
	p.actLocked(c.client.lane, 0, p.t.NearGone(time.Now(), c.stream))
	delete(p.streams, c.stream)
}

// leave implements party.
func (p *translated) leave(cl *client) {
	if p.commons != nil {
		p.forsake(cl)
		p.commons.left()
		return
	}
	if !p.finish() {
		return
	}
	if p.trunk != nil {
		p.trunk.leave(p)
	} else {
		p.line.close()
	}
}

// finish ends what the translator has under way, and reports false if that was done before.
func (p *translated) finish() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return false
	}
	p.actLocked(p.line.lane, 0, p.t.Close(time.Now(), jsonrpc.Errorf(jsonrpc.CodeInternalError, "the session has ended")))
	p.over = true
	p.timer.Stop()
	return true
}

// received implements user.
func (p *translated) received(frame []byte, m *jsonrpc.Message, from origin) {
	call, _ := intOf(from.call)
	event := from.lane.record(toClient, frame)
	if n, ok := intOf(m.ID); ok && len(m.Method) == 0 && p.pinged(n, nil) {
		return
	}
	if p.learning && p.learns(frame, m, event) {
		return
	}
	p.do(p.line.lane, event, func(now time.Time) []translate.Out { return p.t.FromFar(now, frame, call) })
}

// callFailed implements user.
func (p *translated) callFailed(id jsonrpc.ID, err error) {
	e := reason(err)
	n, ok := intOf(id)
	if !ok {
		p.toldOwn(id, failure(id, e))
		return
	}
	if p.pinged(n, e) {
		return
	}
	p.line.lane.note(e.Message)
	p.do(p.line.lane, 0, func(now time.Time) []translate.Out { return p.t.FarEnded(now, n, e) })
}

func intOf(id jsonrpc.ID) (int64, bool) {
	n, err := strconv.ParseInt(string(id), 10, 64)
	return n, err == nil
}

// missed implements user.
func (p *translated) missed() {
	p.do(p.line.lane, 0, func(now time.Time) []translate.Out { return p.t.FarMissed(now) })
}

// connected implements user.
func (p *translated) connected(context.Context) error {
	p.do(p.line.lane, 0, func(now time.Time) []translate.Out {
		if !p.lost {
			return nil
		}
		return p.t.FarReady(now) // whose messages go before those that wait, since lost still holds
	})
	p.mu.Lock()
	p.lost = false
	p.mu.Unlock()
	return nil
}

// disconnected implements user.
func (p *translated) disconnected(err error, unsent []item) {
	p.mu.Lock()
	pings := slices.Collect(maps.Keys(p.pings))
	p.mu.Unlock()
	for _, n := range pings {
		p.pinged(n, err)
	}
	p.forgetAll(reason(err))
	var calls []int64
	if err != errLineClosed {
		for _, it := range unsent {
			if n, ok := intOf(it.id); ok {
				calls = append(calls, n)
			}
		}
	}
	p.do(p.line.lane, 0, func(now time.Time) []translate.Out {
		p.lost = true
		return p.t.FarLost(now, reason(err), calls...)
	})
}

// needed implements user.
func (p *translated) needed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	open, _ := p.t.Open()
	return !p.over && p.lost && (open > 0 || p.t.Legacy() != mcp.RevisionNone)
}
