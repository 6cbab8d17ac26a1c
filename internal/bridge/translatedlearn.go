package bridge

import (
	"context"
	"strconv"
	"time"

	"mcpwire/internal/translate"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// headerRetries are what a translated party needs to make calls again whose headers the transport could not know, as a plain one does. The zero value is ready to use; the party's
// lock guards it.
type headerRetries struct {
	calls    map[int64][]byte // calls of tools without an answer, by id; nil is one that was made again
	ownCalls map[string]chan *jsonrpc.Message
	lastID   int64
}

// add takes note of a request to a modern server.
func (h *headerRetries) add(n int64, frame []byte) {
	if len(frame) > maxRetryBytes || stringOf(locate(frame, "method").slice(frame)) != mcp.MethodToolsCall {
		return
	}
	if h.calls == nil {
		h.calls = map[int64][]byte{}
	}
	h.calls[n] = frame
}

// refused returns the call that an answer refuses for its headers, if it may be made again; it may not after that.
func (h *headerRetries) refused(n int64, m *jsonrpc.Message) []byte {
	call, open := h.calls[n]
	if call == nil || m.Kind != jsonrpc.KindError || m.Err().Code != mcp.CodeHeaderMismatch {
		delete(h.calls, n)
		return nil
	}
	if open {
		h.calls[n] = nil
	}
	return call
}

// handleOwnResponse reports whether a message is an answer to the bridge itself, or a refusal after which a call is made again; then it is dealt with.
func (t *translator) handleOwnResponse(frame []byte, m *jsonrpc.Message, event uint64) bool {
	if len(m.Method) > 0 {
		return false
	}
	if t.finishOwn(m.ID, m) {
		return true
	}
	n, ok := intOf(m.ID)
	if !ok {
		return false
	}
	t.mu.Lock()
	call := t.retries.refused(n, m)
	t.mu.Unlock()
	if call == nil {
		return false
	}
	t.b.wg.Go(func() { t.retryWithHeaders(n, call, frame, event) })
	return true
}

// retryWithHeaders has the transport see the tool that a call is about, and makes the call again. refused is the answer that it had.
func (t *translator) retryWithHeaders(n int64, call, refused []byte, event uint64) {
	found := findTool(t.upstream.ctx, t.b, call, t.roundTrip)
	t.mu.Lock()
	_, open := t.retries.calls[n]
	t.mu.Unlock()
	if !open {
		return // it was given up, or the connection has ended
	}
	if found {
		t.upstream.rec.note("a call is made again, since the server asks for headers that its list of tools tells of")
		if t.upstream.send(t.upstream.ctx, queuedMessage{frame: call, id: jsonrpc.IntID(n), from: provenance{rec: t.upstream.rec, event: event, rule: "sent again"}}) == nil {
			return
		}
	}
	t.step(t.upstream.rec, event, func(now time.Time) []translate.Out { return t.machine.FromUpstream(now, refused, n) })
}

// roundTrip is an asker.
func (t *translator) roundTrip(ctx context.Context, frame func(id jsonrpc.ID) []byte) (*jsonrpc.Message, error) {
	answer := make(chan *jsonrpc.Message, 1)
	t.mu.Lock()
	l := &t.retries
	l.lastID++
	id := jsonrpc.StringID("mcpwire-" + t.b.instance + "-" + strconv.FormatInt(l.lastID, 10))
	if l.ownCalls == nil {
		l.ownCalls = map[string]chan *jsonrpc.Message{}
	}
	l.ownCalls[idKey(id)] = answer
	t.mu.Unlock()
	defer t.finishOwn(id, nil)
	t.upstream.sendUrgent(queuedMessage{frame: frame(id), id: id})
	select {
	case m := <-answer:
		return m, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// finishOwn ends a request of ask's, and reports whether it was one.
func (t *translator) finishOwn(id jsonrpc.ID, m *jsonrpc.Message) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	answer, ok := t.retries.ownCalls[idKey(id)]
	if ok {
		delete(t.retries.ownCalls, idKey(id))
		answer <- m // it has room
	}
	return ok
}

// failOwn ends all requests of ask's, and what would be made again, because the connection has ended.
func (t *translator) failOwn(e *jsonrpc.Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, answer := range t.retries.ownCalls {
		answer <- errorMessage(nil, e)
	}
	t.retries.ownCalls, t.retries.calls = nil, nil
}
