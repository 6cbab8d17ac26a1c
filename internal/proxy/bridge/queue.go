package bridge

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"mcpwire/internal/base/sparse"
	"mcpwire/internal/base/wait"
	"mcpwire/jsonrpc"
)

// A queuedMessage is a message that waits to be sent.
type queuedMessage struct {
	frame []byte
	// id is the id of a request; nil for other messages.
	id   jsonrpc.ID
	from Provenance
	// by is the translator that made the message; nil if none did.
	by *translator
	// noLogin says that the message is a check by the bridge and must not cause a login.
	noLogin bool
	// queuedAt is the time when the message was first queued.
	queuedAt time.Time
	// refusals counts the connections for the message that the server's machine refused.
	refusals int
	// urgent says that a request sent with pushUrgent may have to be sent again, as urgently.
	urgent bool
	// repeatable says that the next server may run the request too, if the connection ends before
	// the response.
	repeatable bool
}

// A sendQueue holds the messages that wait to be sent to the server, and over HTTP the requests
// that were sent and may have to be sent again. Its methods may be called by many goroutines at
// once.
type sendQueue struct {
	// limit is Options.MaxQueue. It applies separately to urgent messages, to others and to large
	// requests that are kept, and not to the first message of the former two.
	limit int
	// keepSent says that sent requests are kept until their responses.
	keepSent bool
	// notify has an element if next may return a message.
	notify chan struct{}

	mu sync.Mutex
	// urgent is sent before waiting, also while paused.
	urgent       []queuedMessage
	waiting      []queuedMessage
	urgentBytes  int
	waitingBytes int
	// paused holds back messages that are not urgent.
	paused bool
	// writing says that a message was removed and may not be sent yet.
	writing bool
	// space is closed when the queue has more room; nil if nobody waits.
	space chan struct{}
	sent  map[string]queuedMessage
	// resend holds messages that the server certainly did not process.
	resend []queuedMessage
}

var (
	// errQueueFull is the error of a full queue.
	errQueueFull = errors.New("the queue to the server is full")
	// errUrgentFull is the error of a full queue of urgent messages. Nobody waits for room in it.
	errUrgentFull = errors.New("the server takes nothing, not even what is urgent, and too much waits for it already")
)

// push adds a message. If the queue is full, it returns errQueueFull, and a channel that is closed
// when there is more room.
func (q *sendQueue) push(it queuedMessage) (room <-chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waitingBytes > 0 && q.waitingBytes+len(it.frame) > q.limit {
		if q.space == nil {
			q.space = make(chan struct{})
		}
		return q.space, errQueueFull
	}
	it.queuedAt = time.Now()
	q.waiting = append(q.waiting, it)
	q.waitingBytes += len(it.frame)
	wait.Signal(q.notify)
	return nil, nil
}

// keepLocked keeps a request that is about to be sent, if it may have to be sent again.
func (q *sendQueue) keepLocked(it queuedMessage) {
	if (q.keepSent || it.repeatable) && it.id != nil && (len(it.frame) <= maxRetryBytes || q.largeBytesLocked()+len(it.frame) <= q.limit) {
		sparse.Set(&q.sent, it.id.Key(), it)
	}
}

// largeBytesLocked returns the bytes of the kept requests above maxRetryBytes.
func (q *sendQueue) largeBytesLocked() (sum int) {
	for _, it := range q.sent {
		sum += it.largeBytes()
	}
	for _, it := range q.resend {
		sum += it.largeBytes()
	}
	return sum
}

// pushUrgent adds a message before all others, or returns errUrgentFull.
func (q *sendQueue) pushUrgent(it queuedMessage) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.urgentBytes > 0 && q.urgentBytes+len(it.frame) > q.limit {
		return errUrgentFull
	}
	it.queuedAt = time.Now()
	if it.urgent {
		q.keepLocked(it)
	}
	q.urgent = append(q.urgent, it)
	q.urgentBytes += len(it.frame)
	wait.Signal(q.notify)
	return nil
}

// pushFront adds unsent messages again, before those that wait.
func (q *sendQueue) pushFront(items []queuedMessage) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, it := range items {
		q.waitingBytes += len(it.frame)
	}
	q.waiting = append(items, q.waiting...)
}

// next removes and returns the next message to send, and reports if it is urgent.
func (q *sendQueue) next() (it queuedMessage, urgent, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	urgent = len(q.urgent) > 0
	q.writing = urgent || len(q.waiting) > 0 && !q.paused
	switch {
	case !q.writing:
		return queuedMessage{}, false, false
	case urgent:
		it, q.urgent = q.urgent[0], q.urgent[1:]
		q.urgentBytes -= len(it.frame)
		return it, true, true
	}
	it, q.waiting = q.waiting[0], q.waiting[1:]
	q.waitingBytes -= len(it.frame)
	q.signalSpaceLocked()
	q.keepLocked(it)
	return it, false, true
}

// maxRetryBytes is the size up to which a request is kept for a retry. The larger ones of an
// upstream are kept up to Options.MaxQueue bytes in all.
const maxRetryBytes = 1 << 20

// largeBytes returns the size of a message above maxRetryBytes, and 0 for others.
func (it *queuedMessage) largeBytes() int {
	if len(it.frame) <= maxRetryBytes {
		return 0
	}
	return len(it.frame)
}

// signalSpaceLocked wakes the callers that wait for room.
func (q *sendQueue) signalSpaceLocked() {
	if q.space != nil {
		close(q.space)
		q.space = nil
	}
}

// setPaused holds back the messages that are not urgent, or releases them.
func (q *sendQueue) setPaused(on bool) {
	q.mu.Lock()
	q.paused = on
	q.mu.Unlock()
	wait.Signal(q.notify)
}

// isPaused reports if messages are held back.
func (q *sendQueue) isPaused() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.paused
}

// isEmpty reports if no message waits. idle reports if none is being written either.
func (q *sendQueue) isEmpty() (empty, idle bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	empty = len(q.waiting)+len(q.urgent) == 0
	return empty, empty && !q.writing
}

// isQueued reports if a request waits.
func (q *sendQueue) isQueued(id jsonrpc.ID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.indexLocked(id.Key()) >= 0
}

func (q *sendQueue) indexLocked(key string) int {
	return slices.IndexFunc(q.waiting, func(it queuedMessage) bool { return it.id != nil && it.id.Key() == key })
}

// withdraw forgets a canceled request, and reports if it was not sent. Then the server must not get
// a cancellation.
func (q *sendQueue) withdraw(id jsonrpc.ID) bool {
	key := id.Key()
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.sent, key)
	if q.takeResendLocked(key) != nil {
		return true
	}
	i := q.indexLocked(key)
	if i < 0 {
		return false
	}
	q.waitingBytes -= len(q.waiting[i].frame)
	q.waiting = slices.Delete(q.waiting, i, i+1)
	q.signalSpaceLocked()
	return true
}

// takeBy removes and returns the messages of a translator that wait.
func (q *sendQueue) takeBy(t *translator) (taken []queuedMessage) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.DeleteFunc(q.waiting, func(it queuedMessage) bool {
		if it.by == t {
			taken = append(taken, it)
			q.waitingBytes -= len(it.frame)
		}
		return it.by == t
	})
	q.signalSpaceLocked()
	return taken
}

// answered forgets a request that has a response, and returns it. It returns none if the request
// was not kept.
func (q *sendQueue) answered(id jsonrpc.ID) (request queuedMessage) {
	key := id.Key()
	q.mu.Lock()
	defer q.mu.Unlock()
	request = q.sent[key]
	delete(q.sent, key)
	return request
}

// putBack keeps a message that was not sent for the next connection.
func (q *sendQueue) putBack(it queuedMessage) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it.id != nil {
		delete(q.sent, it.id.Key())
	}
	q.resend = append(q.resend, it)
}

// failed forgets a request that failed. If again is set, it keeps the request for the next
// connection, and reports if it could.
func (q *sendQueue) failed(id jsonrpc.ID, again bool) bool {
	key := id.Key()
	q.mu.Lock()
	defer q.mu.Unlock()
	it, known := q.sent[key]
	delete(q.sent, key)
	if known && again {
		q.resend = append(q.resend, it)
	}
	return known && again
}

// refused is failed for a request whose connection the server's machine refused, because the server
// restarts. It returns the pause before the request is to be repeated, and reports false, and keeps
// nothing, if that would be later than RestartWait.
func (q *sendQueue) refused(id jsonrpc.ID, o *Options) (pause time.Duration, ok bool) {
	key := id.Key()
	q.mu.Lock()
	defer q.mu.Unlock()
	it, known := q.sent[key]
	it.refusals++
	if pause, ok = o.restartPause(it.queuedAt, it.refusals); !known || !ok {
		return 0, false
	}
	delete(q.sent, key)
	q.resend = append(q.resend, it)
	return pause, true
}

// restartPause returns the pause after the last of some refused connections for a request. It
// reports false if the request would then wait longer than RestartWait.
func (o *Options) restartPause(since time.Time, refusals int) (pause time.Duration, ok bool) {
	pause = wait.Backoff(o.MinBackoff, min(o.MaxBackoff, time.Second), refusals, rand.Float64())
	return pause, time.Since(since)+pause <= max(o.RestartWait, 0)
}

// repeat queues a request that was refused, unless it was withdrawn or the connection ended.
func (q *sendQueue) repeat(id jsonrpc.ID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch it := q.takeResendLocked(id.Key()); {
	case it == nil:
		return
	case it.urgent:
		q.keepLocked(*it)
		q.urgent = append(q.urgent, *it)
		q.urgentBytes += len(it.frame)
	default:
		q.waiting = append(q.waiting, *it)
		q.waitingBytes += len(it.frame)
	}
	wait.Signal(q.notify)
}

// takeResendLocked removes a request from resend and returns it, or nil.
func (q *sendQueue) takeResendLocked(key string) *queuedMessage {
	i := slices.IndexFunc(q.resend, func(it queuedMessage) bool { return it.id != nil && it.id.Key() == key })
	if i < 0 {
		return nil
	}
	it := q.resend[i]
	q.resend = slices.Delete(q.resend, i, i+1)
	return &it
}

// takeUnsent empties the queue and returns what may be sent later: the messages to be sent again
// and those that wait. It drops urgent messages that were not sent yet.
func (q *sendQueue) takeUnsent() []queuedMessage {
	q.mu.Lock()
	defer q.mu.Unlock()
	unsent := append(q.resend, q.waiting...)
	for _, it := range q.sent {
		if it.repeatable {
			it.repeatable = false // once: perhaps the request ends the server
			unsent = append(unsent, it)
		}
	}
	q.resend, q.waiting, q.urgent, q.waitingBytes, q.urgentBytes = nil, nil, nil, 0, 0
	clear(q.sent)
	q.signalSpaceLocked()
	return unsent
}
