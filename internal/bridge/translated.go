package bridge

import (
	"cmp"
	"context"
	"strconv"
	"sync"
	"time"

	"mcpwire/internal/translate"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A translated is the party where the client and the server are of different eras: package translate decides what is said to either. It is the user of its line.
type translated struct {
	b    *Bridge
	cl   *client
	line *line

	mu      sync.Mutex // serialises what the translator is told and what it says
	t       translate.Translator
	streams map[uint64]*call // of HTTP
	piped   map[string]*call // of a stream, by the key of the id
	last    uint64
	timer   *time.Timer
	asked   map[string]struct{} // keys of the ids of questions that the client has not answered
	lost    bool                // the translator was told so
	over    bool
}

// newTranslated returns the party of a client of the era near, on a line that there is already, or one of its own if l is nil.
func (b *Bridge) newTranslated(cl *client, near Era, l *line) *translated {
	p := &translated{b: b, cl: cl, streams: map[uint64]*call{}, piped: map[string]*call{}, asked: map[string]struct{}{}, line: l}
	if near == EraModern {
		p.t = translate.NewModernToLegacy(nil)
	} else {
		p.t = translate.NewLegacyToModern(nil)
	}
	p.timer = time.AfterFunc(time.Hour, p.tick)
	p.timer.Stop()
	if l == nil {
		p.line = b.prepareLine(p)
		b.wg.Go(p.line.run)
	} else {
		l.hand(p, nil)
	}
	return p
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
		lane.note("message " + strconv.FormatUint(of, 10) + " goes no further: " + why)
	}
	next := p.t.Next()
	if next.IsZero() {
		p.timer.Stop()
	} else {
		p.timer.Reset(max(time.Until(next), 0))
	}
}

func (p *translated) tick() {
	p.do(p.cl.lane, 0, func(now time.Time) []translate.Out { return p.t.Tick(now) })
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
	if o.Call != 0 && !o.Cancel {
		it.id = jsonrpc.IntID(o.Call)
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
	var out jsonrpc.Outlet
	c := p.streams[o.Stream]
	if c != nil {
		out = c.out
	}
	p.heardLocked(c, o.Message)
	if err := p.cl.send(out, o.Message, from); err != nil {
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
	if message != nil {
		p.cl.send(nil, message, from)
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
	if c.out != nil {
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
	p.do(cl.lane, event, func(now time.Time) []translate.Out { return p.t.FromNear(now, frame, 0) })
	if string(m.Method) != mcp.NotificationCancelled {
		return
	}
	if id, ok := m.Param("requestId"); ok {
		p.cancelled(id)
	}
}

// cancelled answers nothing to a request of the client that it has cancelled.
func (p *translated) cancelled(id jsonrpc.ID) {
	p.mu.Lock()
	c := p.piped[idKey(id)]
	delete(p.piped, idKey(id))
	for n, other := range p.streams {
		if c == nil && !other.modern && idKey(other.id) == idKey(id) {
			c = other
			delete(p.streams, n)
		}
	}
	p.mu.Unlock()
	if c != nil && c.method != mcp.MethodInitialize {
		c.finish(nil, made{})
	}
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
	p.actLocked(p.cl.lane, 0, p.t.NearGone(time.Now(), c.stream))
	delete(p.streams, c.stream)
}

// leave implements party.
func (p *translated) leave(*client) {
	p.mu.Lock()
	if p.over {
		p.mu.Unlock()
		return
	}
	p.actLocked(p.cl.lane, 0, p.t.Close(time.Now(), jsonrpc.Errorf(jsonrpc.CodeInternalError, "the session has ended")))
	p.over = true
	p.timer.Stop()
	p.mu.Unlock()
	p.line.close()
}

// received implements user.
func (p *translated) received(frame []byte, _ *jsonrpc.Message, from origin) {
	call, _ := intOf(from.call)
	event := from.lane.record(toClient, frame)
	p.do(p.line.lane, event, func(now time.Time) []translate.Out { return p.t.FromFar(now, frame, call) })
}

// callFailed implements user.
func (p *translated) callFailed(id jsonrpc.ID, err error) {
	n, ok := intOf(id)
	if !ok {
		return
	}
	e := reason(err)
	p.line.lane.note(e.Message)
	p.do(p.line.lane, 0, func(now time.Time) []translate.Out { return p.t.FarEnded(now, n, e) })
}

func intOf(id jsonrpc.ID) (int64, bool) {
	n, err := strconv.ParseInt(string(id), 10, 64)
	return n, err == nil
}

// missed implements user. A translator that is told of the loss asks again for what it should know.
func (p *translated) missed() {}

// connected implements user.
func (p *translated) connected(context.Context) error {
	p.b.metrics.restarts.Add(1)
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
	var calls []int64
	if err != errLineClosed && p.line.served() {
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
