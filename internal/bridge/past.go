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
type resumeState struct {
	initialize       []byte // the request, once it was answered
	initializeResult []byte // of that
	initialized      []byte
	setLevel         []byte            // the last logging/setLevel
	subscriptions    map[string][]byte // resources/subscribe, by URI
	subscribers      map[string]map[*client]struct{}
	pending          map[*call][]byte // requests of these kinds that were not answered
}

// maxSubscriptions bounds the subscriptions that are remembered; maxReplayBytes is how large a request of which a server is reminded may be, in bytes.
const (
	maxSubscriptions = 1024
	maxReplayBytes   = 64 << 10
)

// requestSent takes note of a request.
func (r *resumeState) requestSent(c *call, frame []byte, m *jsonrpc.Message) {
	switch c.method {
	case mcp.MethodInitialize, mcp.MethodSetLevel:
	case mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe:
		uri, _ := m.Param("uri")
		c.subject = stringOf(uri)
	default:
		return
	}
	if len(frame) > maxReplayBytes || c.modern {
		return
	}
	if r.pending == nil {
		r.pending = map[*call][]byte{}
	}
	r.pending[c] = frame
}

// responseReceived takes note of the answer to a request.
func (r *resumeState) responseReceived(c *call, m *jsonrpc.Message) {
	frame, ok := r.pending[c]
	delete(r.pending, c)
	if !ok || m.Kind != jsonrpc.KindResponse {
		return
	}
	switch c.method {
	case mcp.MethodInitialize:
		r.initialize, r.initializeResult = frame, slices.Clone(m.Result)
	case mcp.MethodSetLevel:
		r.setLevel = frame
	case mcp.MethodResourcesSubscribe:
		if r.subscriptions == nil {
			r.subscriptions, r.subscribers = map[string][]byte{}, map[string]map[*client]struct{}{}
		}
		if len(r.subscriptions) < maxSubscriptions || r.subscriptions[c.subject] != nil {
			r.subscriptions[c.subject] = frame
			if r.subscribers[c.subject] == nil {
				r.subscribers[c.subject] = map[*client]struct{}{}
			}
			r.subscribers[c.subject][c.client] = struct{}{}
		}
	case mcp.MethodResourcesUnsubscribe:
		delete(r.subscribers[c.subject], c.client)
		if len(r.subscribers[c.subject]) == 0 {
			delete(r.subscriptions, c.subject)
			delete(r.subscribers, c.subject)
		}
	}
}

// adoptHandshake takes over a handshake that was made before the plain had its line.
func (p *passthrough) adoptHandshake(o clientMessage, m *jsonrpc.Message) {
	p.mu.Lock()
	p.resume.initialize, p.resume.initializeResult = o.frame, slices.Clone(m.Result)
	p.mu.Unlock()
}

// removeClient forgets a client, and returns what nobody is subscribed to any more.
func (r *resumeState) removeClient(cl *client) (drop []string) {
	for uri, by := range r.subscribers {
		if _, ok := by[cl]; !ok {
			continue
		}
		delete(by, cl)
		if len(by) == 0 {
			delete(r.subscribers, uri)
			delete(r.subscriptions, uri)
			drop = append(drop, uri)
		}
	}
	for c := range r.pending {
		if c.client == cl {
			delete(r.pending, c)
		}
	}
	return drop
}

// disconnected forgets what was not answered: it is not going to be.
func (r *resumeState) disconnected() { clear(r.pending) }

// hasHandshake reports whether there was a handshake.
func (r *resumeState) hasHandshake() bool { return r.initializeResult != nil }

// reconnected implements user: it tells a new server what the one before it knew.
func (p *passthrough) reconnected(ctx context.Context) error {
	p.mu.Lock()
	resume := p.resume
	frames := make([][]byte, 0, len(resume.subscriptions)+1)
	if resume.setLevel != nil {
		frames = append(frames, resume.setLevel)
	}
	for _, frame := range resume.subscriptions {
		frames = append(frames, frame)
	}
	var subscriptions []*call
	for _, c := range p.calls {
		if c.listenFrame != nil && !p.upstream.isQueued(c.serverID) {
			c.expectAck, c.retryPending = c.acked, false
			subscriptions = append(subscriptions, c)
		}
	}
	p.mu.Unlock()
	for _, c := range subscriptions {
		p.upstream.sendUrgent(queuedMessage{frame: c.listenFrame, id: c.serverID, from: provenance{rec: c.rec, event: c.event, rule: "sent again"}})
	}
	if !resume.hasHandshake() {
		return nil
	}
	answer, err := p.roundTrip(ctx, func(id jsonrpc.ID) []byte { return withID(resume.initialize, id) })
	if err == nil && answer.Kind == jsonrpc.KindError {
		err = answer.Err()
	}
	if err != nil {
		p.b.eras.reset() // it may be another server now
		return fmt.Errorf("handshake: %w", err)
	}
	if before, now := versionIn(resume.initializeResult), versionIn(answer.Result); before != now {
		return fmt.Errorf("%w: the server speaks revision %s now, and spoke %s before", errServerChanged, now, before)
	}
	if resume.initialized != nil {
		p.sendOwn(resume.initialized)
	}
	for _, frame := range frames {
		p.replay(frame)
	}
	p.mu.Lock()
	p.resume.initializeResult = slices.Clone(answer.Result)
	p.mu.Unlock()
	p.messagesLost()
	return nil
}

// errServerChanged is why a server that was started again cannot take the place of the one before.
var errServerChanged = errors.New("the server has changed")

// replay sends the server a request again whose answer is of no interest.
func (p *passthrough) replay(frame []byte) {
	p.mu.Lock()
	id := p.ownID()
	p.expectLocked(id)
	p.mu.Unlock()
	p.upstream.sendUrgent(queuedMessage{frame: withID(frame, id), id: id})
}

// unsubscribe gives a subscription up that nobody wants any more.
func (p *passthrough) unsubscribe(uri string) {
	params := append(jsonwire.AppendQuote([]byte(`{"uri":`), uri), '}')
	p.replay(jsonrpc.AppendRequest(nil, jsonrpc.IntID(0), mcp.MethodResourcesUnsubscribe, params))
}

func versionIn(result []byte) string {
	return stringOf(locate(result, "protocolVersion").slice(result))
}

// listChanges are the capabilities whose lists change, and the notifications that say so.
var listChanges = [...][2]string{
	{"tools", mcp.NotificationToolsChanged}, {"prompts", mcp.NotificationPromptsChanged}, {"resources", mcp.NotificationResourcesChanged},
}

// messagesLost implements user: clients are told that what they know of the server may be out of date.
func (p *passthrough) messagesLost() {
	p.mu.Lock()
	result := p.resume.initializeResult
	clients := p.initializedClientsLocked()
	p.mu.Unlock()
	if result == nil {
		return
	}
	for _, list := range listChanges {
		if locate(result, "capabilities", list[0]).found() {
			for _, cl := range clients {
				cl.send(nil, jsonrpc.AppendNotification(nil, list[1], nil), provenance{})
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
