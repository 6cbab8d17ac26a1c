package bridge

import (
	"context"
	"fmt"
	"strconv"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// roundTrip sends the server a request of the bridge's own and waits for the answer, which may be an error. An error of ask's says that there was none.
func (p *passthrough) roundTrip(ctx context.Context, text func(id jsonrpc.ID) []byte) (*jsonrpc.Message, error) {
	return p.roundTripMessage(ctx, queuedMessage{}, text)
}

// roundTripMessage is ask with what else there is to the request.
func (p *passthrough) roundTripMessage(ctx context.Context, it queuedMessage, text func(id jsonrpc.ID) []byte) (*jsonrpc.Message, error) {
	p.mu.Lock()
	id := p.ownID()
	answer := p.expectLocked(id)
	p.mu.Unlock()
	it.frame, it.id = withID(text(id), id), id
	p.upstream.sendUrgent(it)
	select {
	case m := <-answer:
		return m, nil
	case <-ctx.Done():
		p.mu.Lock()
		delete(p.ownCalls, idKey(id))
		p.mu.Unlock()
		return nil, fmt.Errorf("no answer in time: %w", context.Cause(ctx))
	}
}

// ping implements sharer: any answer is a sign of life.
func (p *passthrough) ping(ctx context.Context) error {
	_, modern := p.b.eras.get()
	m, err := p.roundTripMessage(ctx, queuedMessage{noLogin: true}, func(id jsonrpc.ID) []byte {
		if modern == supportYes {
			return discoverRequest()
		}
		return jsonrpc.AppendRequest(nil, id, mcp.MethodPing, nil)
	})
	if err == nil && m.Kind == jsonrpc.KindError && m.Err().Code == jsonrpc.CodeInternalError {
		err = m.Err() // of the bridge's, or as bad
	}
	return err
}

// expectLocked has the answer to a request of the bridge's own go to the channel that it returns.
func (p *passthrough) expectLocked(id jsonrpc.ID) chan *jsonrpc.Message {
	c := make(chan *jsonrpc.Message, 1)
	p.ownCalls[idKey(id)] = c
	return c
}

// ownID returns an id that no client uses.
func (p *passthrough) ownID() jsonrpc.ID {
	n := p.lastID.Add(1)
	if p.rewriteIDs {
		return jsonrpc.IntID(n)
	}
	return jsonrpc.StringID("mcpwire-" + p.b.instance + "-" + strconv.FormatInt(n, 10))
}
