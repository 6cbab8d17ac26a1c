package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/capture"
	"mcpwire/jsonrpc"
)

// A user is what a line belongs to: it takes what the server sends, and what becomes of the connection. Its methods are called by one goroutine at a time but for
// callFailed and missed, which come between received.
type user interface {
	// received takes a message; frame and m are the user's.
	received(frame []byte, m *jsonrpc.Message, from origin)
	// callFailed says that a request got no answer, while the connection goes on.
	callFailed(id jsonrpc.ID, err error)
	// missed says that messages which the server sent of itself may have been lost.
	missed()
	// connected is called for each connection after the first, before anything that waits is sent. An error ends the connection.
	connected(ctx context.Context) error
	// disconnected says why the connection ended, or could not be made, and which messages were not sent and may go by the next connection.
	disconnected(err error, unsent []item)
	// needed reports whether a connection is to be made again although nothing waits for it.
	needed() bool
}

// An item is a message that waits to be sent.
type item struct {
	frame []byte
	id    jsonrpc.ID // of a request; nil of others
	from  made       // for the capture
	quiet bool       // it is of the bridge's own curiosity: nobody is to log in because of it
	since time.Time  // when the line got it first
}

// A line is a connection to the server, which is made when there is something to send, and made again when it has ended. Its methods may be called by many
// goroutines at once.
type line struct {
	b    *Bridge
	lane lane

	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when all has ended
	wake   chan struct{} // has an element if run should look

	heard   atomic.Int64 // when the server has last sent something, in nanoseconds since the epoch
	passing sync.Mutex   // held while the user is given a message; it is locked before mu

	mu          sync.Mutex
	owner       user
	urgent      []item // sent before the others, and while they have to wait
	queue       []item
	bytes       int
	urgentBytes int
	held        bool          // only what is urgent is sent
	writing     bool          // a message has been taken that may not have been sent yet
	closing     bool          // nothing more is taken
	space       chan struct{} // closed when there is more room in the queue; nil if nobody waits for that
	expire      *time.Timer
	now         *connection // nil if there is none
	worked      bool        // it is, or the last one was, one that messages went by
	sent        map[string]item
	again       []item              // of sent, that the server has certainly not taken
	failures    int                 // in a row, of connections that have answered no request
	proved      bool                // some connection has answered something
	unproved    map[string]struct{} // keys of the requests whose answers end the row of failures; nil if there is none
	lastErr     error
	next        time.Time // when the next connection may be made
}

// prepareLine returns a line. Whoever has it makes it run.
func (b *Bridge) prepareLine(u user) *line { return b.prepareLineFor(b.ctx, u) }

// prepareLineFor is prepareLine with a context for what the line does, of b.ctx.
func (b *Bridge) prepareLineFor(ctx context.Context, u user) *line {
	l := &line{b: b, owner: u, lane: b.rec.lane(capture.Far), done: make(chan struct{}), wake: make(chan struct{}, 1), sent: map[string]item{}}
	l.ctx, l.cancel = context.WithCancel(ctx)
	return l
}

// hand gives the line to another user, which gets what a prober has kept for it. Before that it calls first, which may be nil.
func (l *line) hand(u user, first func()) {
	l.passing.Lock() // what comes now has to wait its turn
	defer l.passing.Unlock()
	l.mu.Lock()
	before := l.owner
	l.owner = u
	l.mu.Unlock()
	if first != nil {
		first()
	}
	if p, ok := before.(*prober); ok {
		for _, k := range p.kept {
			u.received(k.frame, k.m, k.from)
		}
		p.kept = nil
	}
}

func (l *line) user() user {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owner
}

// down says why nothing can be sent for a while; nil if it can, or is about to.
func (l *line) down() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.downLocked()
}

func (l *line) downLocked() error {
	if l.closing || l.ctx.Err() != nil {
		return errLineClosed
	}
	if wait := time.Until(l.next); l.lastErr != nil && l.now == nil && wait > l.b.opts.RestartWait {
		return &laterError{l.lastErr, wait.Round(time.Second)}
	}
	return nil
}

// broken reports whether there is no connection because the last one has ended, or could not be made, and none is being made again.
func (l *line) broken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now == nil && l.lastErr != nil && len(l.queue)+len(l.urgent) == 0
}

// errFull is why a message was not taken.
var errFull = errors.New("too much waits for the server to take it already")

// offer is send, but does not wait.
func (l *line) offer(it item) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.offerLocked(it)
}

func (l *line) offerLocked(it item) error {
	if err := l.downLocked(); err != nil {
		return err
	}
	if l.bytes > 0 && l.bytes+len(it.frame) > l.b.opts.MaxQueue {
		return errFull
	}
	it.since = time.Now()
	l.queue = append(l.queue, it)
	l.bytes += len(it.frame)
	poke(l.wake)
	return nil
}

// errLineClosed is why nothing can be sent any more.
var errLineClosed = fmt.Errorf("the connection to the server is closed: %w", jsonrpc.ErrClosed)

// send has a message sent; frame is the line's from now on. It waits while too much waits already. The error says that it will not be sent.
func (l *line) send(ctx context.Context, it item) error {
	for {
		l.mu.Lock()
		err := l.offerLocked(it)
		if err == errFull && l.space == nil {
			l.space = make(chan struct{})
		}
		space := l.space
		l.mu.Unlock()
		if err != errFull {
			return err
		}
		select {
		case <-space:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.ctx.Done():
		}
	}
}

// roomLocked tells those who wait that there is more room.
func (l *line) roomLocked() {
	if l.space != nil {
		close(l.space)
		l.space = nil
	}
}

// sendFirst is send for what must go before what waits. It never waits. A server that takes nothing while there is always more to tell it, cancellations or refusals, is not
// told more than there may wait at all: it hears of nothing anyway.
func (l *line) sendFirst(it item) {
	it.since = time.Now()
	l.mu.Lock()
	if n := len(it.frame); l.urgentBytes == 0 || l.urgentBytes+n <= l.b.opts.MaxQueue {
		l.urgent = append(l.urgent, it)
		l.urgentBytes += n
	}
	l.mu.Unlock()
	poke(l.wake)
}

// hold has what is not urgent wait, or lets it go.
func (l *line) hold(on bool) {
	l.mu.Lock()
	l.held = on
	l.mu.Unlock()
	poke(l.wake)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// close ends the connection, after what waits was sent, which may take a moment. It does not wait for that.
func (l *line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return
	}
	l.closing = true
	if l.now == nil || len(l.queue)+len(l.urgent) == 0 && !l.writing {
		l.cancel()
		return
	}
	l.expire = time.AfterFunc(farewell, l.cancel)
	poke(l.wake)
}

// finished reports whether the line is to end now, because it was closed and nothing waits.
func (l *line) finished() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		l.cancel()
	}
	return l.closing
}

// isUp reports whether there is a connection that takes messages.
func (l *line) isUp() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now != nil && !l.held && !l.closing
}

// requeue has messages that were not sent go by the next connection, before others.
func (l *line) requeue(items []item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, it := range items {
		l.bytes += len(it.frame)
	}
	l.queue = append(items, l.queue...)
}

// waits reports whether a request has not been sent yet.
func (l *line) waits(id jsonrpc.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, it := range l.queue {
		if it.id != nil && idKey(it.id) == idKey(id) {
			return true
		}
	}
	return false
}

// run makes connections as long as the line is open.
func (l *line) run() {
	defer close(l.done)
	for first := true; l.awaitWork(); first = false {
		if !l.pause() {
			break
		}
		err := l.live(first)
		if l.ctx.Err() != nil {
			break
		}
		l.over(err)
	}
	l.cancel()
	l.mu.Lock()
	if l.expire != nil {
		l.expire.Stop()
	}
	l.mu.Unlock()
	l.lane.ended(toServer)
	l.user().disconnected(errLineClosed, l.takeAll())
}

// awaitWork waits until there is something to send.
func (l *line) awaitWork() bool {
	for {
		l.mu.Lock()
		some, eager := len(l.queue)+len(l.urgent) > 0, l.failures < maxEager
		l.mu.Unlock()
		some = some || eager && l.user().needed()
		if some {
			return l.ctx.Err() == nil
		}
		select {
		case <-l.wake:
		case <-l.ctx.Done():
			return false
		}
	}
}

// maxEager is how many failures in a row there are until a connection is not made any more because of what the server should remember alone.
const maxEager = 8

// pause waits until the next connection may be made.
func (l *line) pause() bool {
	l.mu.Lock()
	d := time.Until(l.next)
	l.mu.Unlock()
	if d <= 0 {
		return l.ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// over takes note of the end of a connection.
func (l *line) over(err error) {
	o := &l.b.opts
	l.mu.Lock()
	l.failures++
	backoff := o.MinBackoff << min(l.failures-1, 16)
	backoff = jitter(min(backoff, o.MaxBackoff))
	shown := l.b.shown(err)
	l.next, l.lastErr = time.Now().Add(backoff), shown
	mayWait := l.worked || l.proved && !errors.Is(err, errChanged)
	l.unproved = map[string]struct{}{}
	l.mu.Unlock()
	o.Logger.Warn("the connection to the server has ended", "server", o.Name, "error", err)
	l.lane.note("the connection to the server has ended: " + err.Error())
	l.b.metrics.failures.Add(1)
	if !errors.Is(err, jsonrpc.ErrClosed) { // of a session that the server has forgotten, which it has said
		l.b.doubt(shown)
	}
	unsent := l.takeAll()
	if !mayWait {
		unsent = nil
	}
	l.user().disconnected(shown, slices.DeleteFunc(unsent, func(it item) bool { return l.next.Sub(it.since) > max(o.RestartWait, 0) }))
}

// provesLocked notes that an answer has come. If it is that of a request of a client's which this connection has got after others had failed, the server is well again: the next failure is the
// first of a row. A handshake is not enough, since a server may fail behind it each time.
func (l *line) provesLocked(id jsonrpc.ID) {
	l.proved = true
	if l.unproved == nil {
		return
	}
	if _, ok := l.unproved[idKey(id)]; ok {
		l.failures, l.unproved = 0, nil
	}
}

// takeAll returns what was not sent, and forgets it.
func (l *line) takeAll() []item {
	l.mu.Lock()
	defer l.mu.Unlock()
	unsent := append(l.again, l.queue...)
	l.again, l.queue, l.urgent, l.bytes, l.urgentBytes = nil, nil, nil, 0, 0
	clear(l.sent)
	l.roomLocked()
	return unsent
}
