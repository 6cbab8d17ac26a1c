package bridge

import (
	"context"
	"strconv"
	"time"

	"mcpwire/internal/translate"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// lessons are what a translated party needs to make calls again whose headers the carrier could not know, as a plain one does. The zero value is ready to use; the party's
// lock guards it.
type lessons struct {
	calls map[int64][]byte // calls of tools without an answer, by id; nil is one that was made again
	own   map[string]chan *jsonrpc.Message
	last  int64
}

// began takes note of a request to a modern server.
func (l *lessons) began(n int64, frame []byte) {
	if len(frame) > maxAgain || text(locate(frame, "method").of(frame)) != mcp.MethodToolsCall {
		return
	}
	if l.calls == nil {
		l.calls = map[int64][]byte{}
	}
	l.calls[n] = frame
}

// mismatched returns the call that an answer refuses for its headers, if it may be made again; it may not after that.
func (l *lessons) mismatched(n int64, m *jsonrpc.Message) []byte {
	call, open := l.calls[n]
	if call == nil || m.Kind != jsonrpc.KindError || m.Err().Code != mcp.CodeHeaderMismatch {
		delete(l.calls, n)
		return nil
	}
	if open {
		l.calls[n] = nil
	}
	return call
}

// learns reports whether a message is an answer to the bridge itself, or a refusal after which a call is made again; then it is dealt with.
func (p *translated) learns(frame []byte, m *jsonrpc.Message, event uint64) bool {
	if len(m.Method) > 0 {
		return false
	}
	if p.toldOwn(m.ID, m) {
		return true
	}
	n, ok := intOf(m.ID)
	if !ok {
		return false
	}
	p.mu.Lock()
	call := p.lessons.mismatched(n, m)
	p.mu.Unlock()
	if call == nil {
		return false
	}
	p.b.wg.Go(func() { p.relearn(n, call, frame, event) })
	return true
}

// relearn has the carrier see the tool that a call is about, and makes the call again. refused is the answer that it had.
func (p *translated) relearn(n int64, call, refused []byte, event uint64) {
	there := listed(p.line.ctx, p.b, call, p.ask)
	p.mu.Lock()
	_, open := p.lessons.calls[n]
	p.mu.Unlock()
	if !open {
		return // it was given up, or the connection has ended
	}
	if there {
		p.line.lane.note("a call is made again, since the server asks for headers that its list of tools tells of")
		if p.line.send(p.line.ctx, item{frame: call, id: jsonrpc.IntID(n), from: made{lane: p.line.lane, of: event, rule: "sent again"}}) == nil {
			return
		}
	}
	p.do(p.line.lane, event, func(now time.Time) []translate.Out { return p.t.FromFar(now, refused, n) })
}

// ask is an asker.
func (p *translated) ask(ctx context.Context, frame func(id jsonrpc.ID) []byte) (*jsonrpc.Message, error) {
	answer := make(chan *jsonrpc.Message, 1)
	p.mu.Lock()
	l := &p.lessons
	l.last++
	id := jsonrpc.StringID("mcpwire-" + p.b.instance + "-" + strconv.FormatInt(l.last, 10))
	if l.own == nil {
		l.own = map[string]chan *jsonrpc.Message{}
	}
	l.own[idKey(id)] = answer
	p.mu.Unlock()
	defer p.toldOwn(id, nil)
	p.line.sendFirst(item{frame: frame(id), id: id})
	select {
	case m := <-answer:
		return m, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// toldOwn ends a request of ask's, and reports whether it was one.
func (p *translated) toldOwn(id jsonrpc.ID, m *jsonrpc.Message) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer, ok := p.lessons.own[idKey(id)]
	if ok {
		delete(p.lessons.own, idKey(id))
		answer <- m // it has room
	}
	return ok
}

// forgetAll ends all requests of ask's, and what would be made again, because the connection has ended.
func (p *translated) forgetAll(e *jsonrpc.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, answer := range p.lessons.own {
		answer <- failure(nil, e)
	}
	p.lessons.own, p.lessons.calls = nil, nil
}
