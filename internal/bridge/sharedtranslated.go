package bridge

import (
	"context"
	"maps"
	"sync/atomic"
	"time"

	"mcpwire/internal/translate"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// newSharedTranslator returns what modern clients share that are told alike before a legacy server: one translator, to which each of their requests is on a stream of its own,
// so that their ids may be the same. l is the line, nil for a new one.
func (b *Bridge) newSharedTranslator(s *sharedUpstream, up *upstream) *translator {
	o := b.sharedTranslateOptions()
	t := newUnboundTranslator(b, translate.NewModernToLegacy(o))
	t.shared, t.lastID, t.pings = s, o.IDs, map[int64]chan error{}
	t.bind(up)
	return t
}

// sharedTranslateOptions are the options of a translator that many clients use, who are strangers to each other.
func (b *Bridge) sharedTranslateOptions() *translate.Options {
	return &translate.Options{
		IsolateClients: true, IDs: new(atomic.Int64),
		Limits: translate.Limits{Requests: b.opts.MaxCalls, Subscriptions: b.opts.MaxSessions, AwaitingInput: max(b.opts.MaxSessions, 256), Tasks: max(b.opts.MaxSessions, 256)},
	}
}

// attach implements sharer.
func (t *translator) attach(cl *client, _ Era) forwarder {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clients[cl] = struct{}{}
	return t
}

// close implements sharer.
func (t *translator) close() {
	t.shutdown()
	t.upstream.close()
}

// isUp implements sharer.
func (t *translator) isUp() bool { return t.upstream.isUp() }

// ping implements sharer. The translator does not hear of it.
func (t *translator) ping(ctx context.Context) error {
	n, answer := t.lastID.Add(1), make(chan error, 1)
	t.mu.Lock()
	t.pings[n] = answer
	t.mu.Unlock()
	defer t.finishPing(n, nil)
	id := jsonrpc.IntID(n)
	t.upstream.sendUrgent(queuedMessage{frame: jsonrpc.AppendRequest(nil, id, mcp.MethodPing, nil), id: id, noLogin: true})
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// finishPing ends a ping, and reports whether it was one.
func (t *translator) finishPing(n int64, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	answer, ok := t.pings[n]
	if ok {
		delete(t.pings, n)
		answer <- err // it has room
	}
	return ok
}

// detach gives up what a client has under way that leaves the others.
func (t *translator) detach(cl *client) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.clients, cl)
	for n, c := range maps.Clone(t.callsByStream) {
		if c.client == cl && !t.closed {
			t.applyLocked(cl.rec, 0, t.machine.StreamClosed(time.Now(), n))
		}
	}
	maps.DeleteFunc(t.callsByStream, func(_ uint64, c *call) bool { return c.client == cl })
}
