package bridge

import (
	"context"
	"fmt"
	"strconv"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// ask sends the server a request of the bridge's own and waits for the answer, which may be an error. An error of ask's says that there was none.
func (p *plain) ask(ctx context.Context, text func(id jsonrpc.ID) []byte) (*jsonrpc.Message, error) {
	return p.askAs(ctx, item{}, text)
}

// askAs is ask with what else there is to the request.
func (p *plain) askAs(ctx context.Context, it item, text func(id jsonrpc.ID) []byte) (*jsonrpc.Message, error) {
	p.mu.Lock()
	id := p.ownID()
	answer := p.expectLocked(id)
	p.mu.Unlock()
	it.frame, it.id = withID(text(id), id), id
	p.line.sendFirst(it)
	select {
	case m := <-answer:
		return m, nil
	case <-ctx.Done():
		p.mu.Lock()
		delete(p.own, idKey(id))
		p.mu.Unlock()
		return nil, fmt.Errorf("no answer in time: %w", context.Cause(ctx))
	}
}

// alive implements sharer: any answer is a sign of life.
func (p *plain) alive(ctx context.Context) error {
	_, modern := p.b.known.get()
	m, err := p.askAs(ctx, item{quiet: true}, func(id jsonrpc.ID) []byte {
		if modern == yes {
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
func (p *plain) expectLocked(id jsonrpc.ID) chan *jsonrpc.Message {
	c := make(chan *jsonrpc.Message, 1)
	p.own[idKey(id)] = c
	return c
}

// ownID returns an id that no client uses.
func (p *plain) ownID() jsonrpc.ID {
	n := p.ids.Add(1)
	if p.rename {
		return jsonrpc.IntID(n)
	}
	return jsonrpc.StringID("mcpwire-" + p.b.instance + "-" + strconv.FormatInt(n, 10))
}
