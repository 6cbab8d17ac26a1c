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
		return c.streamDirect(ctx, r, onID)
	}
	return c.runChain(ctx, &Message{
		Direction: jsonrpc.Outgoing, Method: method, Params: params,
		deliver: func(ctx context.Context, m *Message) (json.RawMessage, error) {
			q := *r
			var meta []byte
			q.params, meta = splitMeta(m.Params)
			q.opts.meta = bytes.Clone(objectBody(meta))
			return c.streamDirect(ctx, &q, onID)
		},
	})
}

// streamDirect is stream without the middleware.
func (c *Client) streamDirect(ctx context.Context, r *request, onID func(id jsonrpc.ID)) (result []byte, err error) {
	ac := c.newActiveCall(r)
	defer ac.release()
	conn, err := ac.connection(ctx)
	if err != nil {
		return nil, err
	}
	neg := conn.negotiated.Load()
	p, err := conn.rpc.NewCall(r.method)
	if err != nil {
		c.dropConnection(conn)
		return nil, err
	}
	id, _ := jsonwire.ParseInt(p.ID())
	ended := conn.addStream(id)
	defer conn.removeStream(id)
	onID(p.ID())
	ac.buildParams(neg)
	if err := p.Send(ctx, ac.params); err != nil {
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
		if isConnectionLost(err) {
			c.dropConnection(conn)
		}
		return nil, err
	}
	neg.confirm()
	if _, err := ac.checkResult(neg, result); err != nil {
		return nil, err
	}
	return result, nil
}

// addStream registers a request for the server's cancellation.
func (cn *connection) addStream(id int64) <-chan struct{} {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if cn.streams == nil {
		cn.streams = make(map[int64]chan struct{})
	}
	ended := make(chan struct{})
	cn.streams[id] = ended
	return ended
}

func (cn *connection) removeStream(id int64) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	delete(cn.streams, id)
}

// endStream acts on the server's cancellation of a request of ours.
func (cn *connection) endStream(id []byte) {
	n, ok := jsonwire.ParseInt(id)
	if !ok {
		return
	}
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if ended := cn.streams[n]; ended != nil {
		close(ended)
		delete(cn.streams, n)
	}
}
