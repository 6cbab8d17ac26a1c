package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A past is what a new server has to be told of the session that the one before it had. It is guarded by the mutex of its plain.
type past struct {
	initialize  []byte // the request, once it was answered
	result      []byte // of that
	initialized []byte
	level       []byte            // the last logging/setLevel
	subscribed  map[string][]byte // resources/subscribe, by URI
	by          map[string]map[*client]struct{}
	pending     map[*call][]byte // requests of these kinds that were not answered
}

// maxSubscribed bounds the subscriptions that are remembered; maxRemembered is how large a request of which a server is reminded may be, in bytes.
const (
	maxSubscribed = 1024
	maxRemembered = 64 << 10
)

// asks takes note of a request.
func (p *past) asks(c *call, frame []byte, m *jsonrpc.Message) {
	switch c.method {
	case mcp.MethodInitialize, mcp.MethodSetLevel:
	case mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe:
		uri, _ := m.Param("uri")
		c.about = text(uri)
	default:
		return
	}
	if len(frame) > maxRemembered || c.modern {
		return
	}
	if p.pending == nil {
		p.pending = map[*call][]byte{}
	}
	p.pending[c] = frame
}

// answered takes note of the answer to a request.
func (p *past) answered(c *call, m *jsonrpc.Message) {
	frame, ok := p.pending[c]
	delete(p.pending, c)
	if !ok || m.Kind != jsonrpc.KindResponse {
		return
	}
	switch c.method {
	case mcp.MethodInitialize:
		p.initialize, p.result = frame, slices.Clone(m.Result)
	case mcp.MethodSetLevel:
		p.level = frame
	case mcp.MethodResourcesSubscribe:
		if p.subscribed == nil {
			p.subscribed, p.by = map[string][]byte{}, map[string]map[*client]struct{}{}
		}
		if len(p.subscribed) < maxSubscribed || p.subscribed[c.about] != nil {
			p.subscribed[c.about] = frame
			if p.by[c.about] == nil {
				p.by[c.about] = map[*client]struct{}{}
			}
			p.by[c.about][c.client] = struct{}{}
		}
	case mcp.MethodResourcesUnsubscribe:
		delete(p.by[c.about], c.client)
		if len(p.by[c.about]) == 0 {
			delete(p.subscribed, c.about)
			delete(p.by, c.about)
		}
	}
}

// adopt takes over a handshake that was made before the plain had its line.
func (p *plain) adopt(o opening, m *jsonrpc.Message) {
	p.mu.Lock()
	p.past.initialize, p.past.result = o.frame, slices.Clone(m.Result)
	p.mu.Unlock()
}

// leave forgets a client, and returns what nobody is subscribed to any more.
func (p *past) leave(cl *client) (drop []string) {
	for uri, by := range p.by {
		if _, ok := by[cl]; !ok {
			continue
		}
		delete(by, cl)
		if len(by) == 0 {
			delete(p.by, uri)
			delete(p.subscribed, uri)
			drop = append(drop, uri)
		}
	}
	for c := range p.pending {
		if c.client == cl {
			delete(p.pending, c)
		}
	}
	return drop
}

// lost forgets what was not answered: it is not going to be.
func (p *past) lost() { clear(p.pending) }

// shaken reports whether there was a handshake.
func (p *past) shaken() bool { return p.result != nil }

// connected implements user: it tells a new server what the one before it knew.
func (p *plain) connected(ctx context.Context) error {
	p.mu.Lock()
	past := p.past
	replay := make([][]byte, 0, len(past.subscribed)+1)
	if past.level != nil {
		replay = append(replay, past.level)
	}
	for _, frame := range past.subscribed {
		replay = append(replay, frame)
	}
	var listens []*call
	for _, c := range p.calls {
		if c.again != nil && !p.line.waits(c.far) {
			c.swear, c.rests = c.acked, false
			listens = append(listens, c)
		}
	}
	p.mu.Unlock()
	for _, c := range listens {
		p.line.sendFirst(item{frame: c.again, id: c.far, from: made{lane: c.lane, of: c.event, rule: "sent again"}})
	}
	if !past.shaken() {
		return nil
	}
	answer, err := p.ask(ctx, func(id jsonrpc.ID) []byte { return withID(past.initialize, id) })
	if err == nil && answer.Kind == jsonrpc.KindError {
		err = answer.Err()
	}
	if err != nil {
		p.b.known.forget() // it may be another server now
		return fmt.Errorf("handshake: %w", err)
	}
	if before, now := versionIn(past.result), versionIn(answer.Result); before != now {
		return fmt.Errorf("%w: the server speaks revision %s now, and spoke %s before", errChanged, now, before)
	}
	if past.initialized != nil {
		p.tell(past.initialized)
	}
	for _, frame := range replay {
		p.remind(frame)
	}
	p.mu.Lock()
	p.past.result = slices.Clone(answer.Result)
	p.mu.Unlock()
	p.missed()
	return nil
}

// errChanged is why a server that was started again cannot take the place of the one before.
var errChanged = errors.New("the server has changed")

// remind sends the server a request again whose answer is of no interest.
func (p *plain) remind(frame []byte) {
	p.mu.Lock()
	id := p.ownID()
	p.expectLocked(id)
	p.mu.Unlock()
	p.line.sendFirst(item{frame: withID(frame, id), id: id})
}

// unsubscribe gives a subscription up that nobody wants any more.
func (p *plain) unsubscribe(uri string) {
	params := append(jsonwire.AppendQuote([]byte(`{"uri":`), uri), '}')
	p.remind(jsonrpc.AppendRequest(nil, jsonrpc.IntID(0), mcp.MethodResourcesUnsubscribe, params))
}

func versionIn(result []byte) string {
	return text(locate(result, "protocolVersion").of(result))
}

// lists are the capabilities whose lists change, and the notifications that say so.
var lists = [...][2]string{
	{"tools", mcp.NotificationToolsChanged}, {"prompts", mcp.NotificationPromptsChanged}, {"resources", mcp.NotificationResourcesChanged},
}

// missed implements user: clients are told that what they know of the server may be out of date.
func (p *plain) missed() {
	p.mu.Lock()
	result := p.past.result
	members := p.toldLocked()
	p.mu.Unlock()
	if result == nil {
		return
	}
	for _, list := range lists {
		if locate(result, "capabilities", list[0]).found() {
			for _, cl := range members {
				cl.send(nil, jsonrpc.AppendNotification(nil, list[1], nil), made{})
			}
		}
	}
}

// cancellation is a notification that cancels a request.
func cancellation(id jsonrpc.ID, why string) []byte {
	params := append([]byte(`{"requestId":`), id...)
	params = jsonwire.AppendQuote(append(params, `,"reason":`...), why)
	return jsonrpc.AppendNotification(nil, mcp.NotificationCancelled, append(params, '}'))
}
