package client

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"mcpwire/internal/base/sparse"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// handleNotification handles a notification on the reading goroutine, in the order of arrival, and
// before later responses are delivered.
func (cn *connection) handleNotification(n *jsonrpc.Message) {
	c := cn.c
	if len(n.Params) > 0 && n.Params[0] != '{' {
		c.log.Warn("notification dropped: its params are not an object", "method", clip.String(n.Method, 100))
		return
	}
	switch string(n.Method) {
	case mcp.NotificationProgress:
		if text, ok := n.Param("progressToken"); ok {
			if token, ok := jsonwire.ParseInt(text); ok {
				c.callbacks.enqueueProgress(token, n.Params)
			}
		}
	case mcp.NotificationMessage:
		if text, ok := n.Param("level"); ok && len(text) > 2 {
			level, _ := mcp.ParseLoggingLevel(string(text[1 : len(text)-1]))
			c.callbacks.enqueueLog(level, n.Params)
		}
	case mcp.NotificationCancelled:
		if id, ok := n.Param("requestId"); ok {
			cn.endStream(id)
		}
	case mcp.NotificationAcknowledged:
		c.subs.acknowledged(n.Params)
	default:
		// Before the first negotiation ends, the client keeps nothing that a change makes stale.
		if kind, ok := changeKinds[string(n.Method)]; ok && c.conns.negotiated.Load() != nil {
			c.subs.handleChange(kind, n.Params)
		}
	}
}

// A callbackRegistry holds the callback queues of calls and tasks in flight.
type callbackRegistry struct {
	log *slog.Logger
	// tokens numbers progress tokens.
	tokens atomic.Int64

	mu      sync.Mutex
	byToken map[int64]*callbackQueue
	logs    map[*callbackQueue]struct{}
}

// add registers a queue for its progress token and for log messages, as far as it has callbacks.
func (cr *callbackRegistry) add(q *callbackQueue) {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	if q.progress != nil {
		sparse.Set(&cr.byToken, q.token, q)
	}
	if q.log != nil {
		sparse.Set(&cr.logs, q, struct{}{})
	}
}

// remove unregisters a queue, which may be nil or not registered.
func (cr *callbackRegistry) remove(q *callbackQueue) {
	if q == nil {
		return
	}
	cr.mu.Lock()
	defer cr.mu.Unlock()
	delete(cr.byToken, q.token)
	delete(cr.logs, q)
}

func (cr *callbackRegistry) enqueueProgress(token int64, params []byte) {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	if q := cr.byToken[token]; q != nil {
		q.enqueue(pendingNotification{false, slices.Clone(params)})
	}
}

func (cr *callbackRegistry) enqueueLog(level mcp.LoggingLevel, params []byte) {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	var shared []byte // one copy for all queues
	for q := range cr.logs {
		if level < q.level {
			continue
		}
		if shared == nil {
			shared = slices.Clone(params)
		}
		q.enqueue(pendingNotification{true, shared})
	}
}

// Limits of the notifications that wait for the callbacks of one call.
const (
	maxPendingNotifications     = 256
	maxPendingNotificationBytes = 4 << 20 // one notification may exceed it
)

// A callbackQueue holds the notifications of one call until the goroutine that waits for the
// response takes them.
type callbackQueue struct {
	registry *callbackRegistry
	// token is the progress token.
	token int64
	level mcp.LoggingLevel
	// progress and log are the callbacks. Either may be nil.
	progress func(*mcp.ProgressNotificationParams)
	log      func(*mcp.LoggingMessageNotificationParams)

	// deliverMu is held while callbacks run: several goroutines may wait for one task.
	deliverMu sync.Mutex

	mu      sync.Mutex
	pending []pendingNotification
	bytes   int
	// wake has a token when pending may not be empty.
	wake chan struct{}
}

type pendingNotification struct {
	// log is set for a log message, not for progress.
	log    bool
	params []byte
}

// newQueue returns the queue for the callbacks in o, or nil without callbacks.
func (cr *callbackRegistry) newQueue(o *callOptions) *callbackQueue {
	if o.progress == nil && o.log == nil {
		return nil
	}
	return &callbackQueue{registry: cr, level: o.logLevel, progress: o.progress, log: o.log, wake: make(chan struct{}, 1)}
}

// register starts the notifications, under a new token.
func (q *callbackQueue) register() {
	q.token = q.registry.tokens.Add(1)
	q.registry.add(q)
}

// enqueue adds a notification. It drops the oldest beyond the limits, because only the newest
// progress counts.
func (q *callbackQueue) enqueue(n pendingNotification) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending = append(q.pending, n)
	q.bytes += len(n.params)
	for len(q.pending) > maxPendingNotifications || q.bytes > maxPendingNotificationBytes && len(q.pending) > 1 {
		q.bytes -= len(q.pending[0].params)
		q.pending = slices.Delete(q.pending, 0, 1)
	}
	wait.Signal(q.wake)
}

// dequeueAll removes and returns all notifications.
func (q *callbackQueue) dequeueAll() []pendingNotification {
	q.mu.Lock()
	defer q.mu.Unlock()
	pending := q.pending
	q.pending, q.bytes = nil, 0
	return pending
}

// ready returns a channel that receives when there may be notifications, or nil for a nil queue.
func (q *callbackQueue) ready() <-chan struct{} {
	if q == nil {
		return nil
	}
	return q.wake
}

// deliver runs the callbacks for all pending notifications. It reports whether any was progress.
func (q *callbackQueue) deliver() (progress bool) {
	if q == nil || !q.deliverMu.TryLock() {
		return false // another goroutine delivers
	}
	defer q.endDelivery()
	for _, n := range q.dequeueAll() {
		progress = progress || !n.log
		if err := q.invoke(n); err != nil {
			q.registry.log.Warn("dropped a malformed notification", "log", n.log, "error", err)
		}
	}
	return progress
}

// endDelivery ends deliver. It wakes the next deliver if notifications came too late for this one.
func (q *callbackQueue) endDelivery() {
	q.deliverMu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.pending) > 0 {
		wait.Signal(q.wake)
	}
}

func (q *callbackQueue) invoke(n pendingNotification) error {
	if n.log {
		var p mcp.LoggingMessageNotificationParams
		if err := p.UnmarshalJSON(n.params); err != nil {
			return err
		}
		q.log(&p)
		return nil
	}
	var p mcp.ProgressNotificationParams
	if err := p.UnmarshalJSON(n.params); err != nil {
		return err
	}
	q.progress(&p)
	return nil
}
