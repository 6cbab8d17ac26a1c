package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
)

// stream sends a request that goes on for as long as the server likes, without a timeout and without retries. onID is called before the request is
// sent. The result is nil when the server ended it with a cancellation instead of an answer.
func (c *Client) stream(ctx context.Context, method string, params []byte, onID func(id jsonrpc.ID)) (result []byte, err error) {
	r := &request{method: method, params: params, opts: callOptions{timeout: -1, maxTimeout: -1}}
	if c.chain == nil {
		return c.follow(ctx, r, onID)
	}
	return c.through(ctx, &Message{
		Direction: jsonrpc.Outgoing, Method: method, Params: params,
		deliver: func(ctx context.Context, m *Message) (json.RawMessage, error) {
			q := *r
			var meta []byte
			q.params, meta = splitMeta(m.Params)
			q.opts.meta = bytes.Clone(inside(meta))
			return c.follow(ctx, &q, onID)
		},
	})
}

// follow is stream without the middleware.
func (c *Client) follow(ctx context.Context, r *request, onID func(id jsonrpc.ID)) (result []byte, err error) {
	x := c.begin(r)
	defer x.end()
	l, err := x.link(ctx)
	if err != nil {
		return nil, err
	}
	t := l.terms.Load()
	p, err := l.conn.NewCall(r.method)
	if err != nil {
		c.lost(l)
		return nil, err
	}
	id, _ := jsonwire.ParseInt(p.ID())
	ended := l.addStream(id)
	defer l.removeStream(id)
	onID(p.ID())
	x.compose(t)
	if err := p.Send(ctx, x.params); err != nil {
		return nil, err
	}
	select {
	case <-p.Done():
	case <-ended:
		if p.Abandon() {
			return nil, nil
		}
		<-p.Done()
	case <-ctx.Done():
		if p.Cancel(ctx.Err().Error()) {
			return nil, fmt.Errorf("call %s: %w", r.method, context.Cause(ctx))
		}
		<-p.Done()
	}
	if result, err = p.Result(); err != nil {
		if isLost(err) {
			c.lost(l)
		}
		return nil, err
	}
	t.confirm()
	if _, err := x.check(t, result); err != nil {
		return nil, err
	}
	return result, nil
}

// addStream registers a request for the server's cancellation.
func (l *link) addStream(id int64) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.streams == nil {
		l.streams = make(map[int64]chan struct{})
	}
	ended := make(chan struct{})
	l.streams[id] = ended
	return ended
}

func (l *link) removeStream(id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.streams, id)
}

// endStream acts on the server's cancellation of a request of ours.
func (l *link) endStream(id []byte) {
	n, ok := jsonwire.ParseInt(id)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if ended := l.streams[n]; ended != nil {
		close(ended)
		delete(l.streams, n)
	}
}
