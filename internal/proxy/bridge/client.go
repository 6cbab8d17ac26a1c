package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/capture"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// A client is one on the near side: a connection, a session of HTTP, or all requests of one principal that have no session. Its methods may be called by many
// goroutines at once.
type client struct {
	b           *Bridge
	rec         recorder
	out         jsonrpc.Sender // for what belongs to no request
	aggregate   bool           // ids of its requests are not unique, since it is several
	principalID string         // the id of the principal; "" is nobody in particular
	caller      string         // who is charged for it; "" is nobody
	ctx         context.Context
	cancel      context.CancelFunc
	closeDone   chan struct{} // closed when close has done its work
	evict       chan struct{} // closed when the client is cut off because it does not read
	evictOnce   sync.Once
	flushed     chan struct{} // closed when all was sent that waited in the client's outbox; nil if it has none

	mu           sync.Mutex
	forwarder    forwarder
	calls        map[*call]struct{}
	backlog      []func(forwarder) // what came while it was not known yet what the other side is
	backlogBytes int               // of all that came since it began to be found out
	detecting    bool              // it is being found out
	closed       bool
	lastUsed     time.Time // when the last request was made or answered
}

// A party is the rest of the bridge as a client sees it: what brings its messages to the server. Frames are the party's from the call on.
type forwarder interface {
	request(c *call, frame []byte, m *jsonrpc.Message)
	notification(cl *client, frame []byte, m *jsonrpc.Message, event uint64)
	response(cl *client, frame []byte, m *jsonrpc.Message, event uint64)
	// abandon says that nobody waits for the call any more.
	abandon(c *call)
	// removeClient ends what there is of a client.
	removeClient(cl *client)
}

// A call is a request of a client that has no answer yet.
type call struct {
	client *client
	id     jsonrpc.ID // as the client gave it
	method string
	modern bool
	out    jsonrpc.Sender // for what goes before the answer; nil is the client's news
	ctx    context.Context
	rec    recorder // that it came in
	event  uint64   // in the capture
	seq    uint64   // counts all calls up
	began  time.Time
	reply  func(response []byte)
	once   sync.Once
	done   atomic.Bool // it was answered, or is not wanted any more

	rejected *streamable.RejectedError // why it went no further; nil if it did. It is set before the answer

	serverID     jsonrpc.ID // the id that the server has it under
	clientToken  []byte     // the client's progress token, if it was replaced
	tokenKey     string     // key of the token that the server was given; "" is none
	timer        atomic.Pointer[time.Timer]
	cancelSend   atomic.Pointer[context.CancelFunc] // ends the wait for room to send it; nil if there is none
	timeout      time.Duration                      // of the timer; set before it
	queued       bool                               // the line has it; guarded by the plain's lock
	retryFrame   []byte                             // the request, if it may have to be made again with more headers
	taskFrame    []byte                             // the request, if the server may make a task of it; nil if it is large
	listenFrame  []byte                             // the request, if it goes on when the server is started again
	acked        bool                               // it is a subscription that the server has acknowledged
	retries      int                                // how often it broke off since
	retryPending bool                               // it waits to be made again
	expectAck    bool                               // the server is going to acknowledge it once more
	subject      string                             // of a subscription, the URI; of a question after a task, its id
	logLevel     mcp.LoggingLevel                   // from which it wants log messages, or has others want them
	stream       uint64                             // of a translator
}

// newClient returns a client that counts, or nil if there are too many. It must be closed.
func (b *Bridge) newClient(news jsonrpc.Sender, owner string, many bool) *client {
	cl, _ := b.newClientFor("", news, owner, many)
	return cl
}

// newClientFor is newClient for a caller, which may have only so many, and says why there is none.
func (b *Bridge) newClientFor(caller string, news jsonrpc.Sender, owner string, many bool) (*client, *streamable.RejectedError) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var err *streamable.RejectedError
	switch {
	case b.closed:
		err = newRejectedError(http.StatusServiceUnavailable, "the bridge is shutting down")
	case len(b.clients) >= b.opts.MaxSessions:
		err = newRejectedError(http.StatusServiceUnavailable, "there are too many clients")
	case !b.opts.Shared: // otherwise what they share counts
		err = b.reserveLocked(caller)
	}
	if err != nil {
		b.metrics.rejected.Add(1)
		return nil, err
	}
	c := &client{b: b, caller: caller, rec: b.recording.newRecorder(capture.Downstream), out: news, principalID: owner, aggregate: many, calls: map[*call]struct{}{}, lastUsed: time.Now(), closeDone: make(chan struct{}), evict: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(b.ctx)
	if b.opts.Shared && news != nil {
		c.out = c.withOutbox(news) // one that does not read must not hold up the others
	}
	b.clients[c] = struct{}{}
	b.metrics.sessions.Add(1)
	return c, nil
}

// close ends the client and answers what it has under way. It does not wait for the server.
func (cl *client) close() {
	cl.mu.Lock()
	if cl.closed {
		cl.mu.Unlock()
		<-cl.closeDone
		return
	}
	defer close(cl.closeDone)
	cl.closed = true
	p := cl.forwarder
	cl.backlog = nil
	cl.mu.Unlock()
	cl.cancel()
	if p != nil {
		p.removeClient(cl)
	}
	cl.failAll(jsonrpc.Errorf(jsonrpc.CodeInternalError, "the session has ended"))
	cl.rec.recordEOF(capture.ToServer)
	cl.b.mu.Lock()
	delete(cl.b.clients, cl)
	if !cl.b.opts.Shared {
		cl.b.releaseLocked(cl.caller)
	}
	cl.b.mu.Unlock()
}

// failAll answers all that is open.
func (cl *client) failAll(e *jsonrpc.Error) {
	cl.mu.Lock()
	open := make([]*call, 0, len(cl.calls))
	for c := range cl.calls {
		open = append(open, c)
	}
	cl.mu.Unlock()
	for _, c := range open {
		c.fail(e)
	}
}

// inFlight returns how many requests are open, and since when nothing was done if there are none.
func (cl *client) inFlight() (open int, used time.Time) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return len(cl.calls), cl.lastUsed
}

// pendingCalls returns how many requests are open, without those that go on for as long as the client listens.
func (cl *client) pendingCalls() int {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	n := 0
	for c := range cl.calls {
		if c.method != mcp.MethodSubscriptionsListen {
			n++
		}
	}
	return n
}

// closeSubscriptions ends the client as soon as nothing else but subscriptions is under way.
func (cl *client) closeSubscriptions() {
	cl.mu.Lock()
	var listens []*call
	for c := range cl.calls {
		if c.method == mcp.MethodSubscriptionsListen {
			listens = append(listens, c)
		}
	}
	cl.mu.Unlock()
	for _, c := range listens {
		cl.abandon(c)
	}
}

// request takes a request; frame and what m holds are the client's from then on. answer is called once, by any goroutine, with the response, or nil if there is to be none.
func (cl *client) request(ctx context.Context, frame []byte, m *jsonrpc.Message, out jsonrpc.Sender, answer func([]byte)) *call {
	c := &call{client: cl, id: m.ID, method: string(m.Method), modern: isModern(m), out: out, ctx: ctx, reply: answer, began: time.Now(), seq: cl.b.callCount.Add(1)}
	cl.b.metrics.requests.Add(1)
	cl.mu.Lock()
	full := len(cl.calls) >= cl.b.opts.MaxCalls
	if !full && !cl.closed {
		cl.calls[c] = struct{}{}
	}
	cl.lastUsed = time.Now()
	cl.mu.Unlock()
	c.rec = cl.recorderIn(ctx)
	c.event = c.rec.recordMessage(capture.ToServer, frame)
	if box, ok := out.(*outbox); ok {
		box.rec = c.rec
	}
	if full {
		why := fmt.Sprintf("%d requests of this client are under way already", cl.b.opts.MaxCalls)
		c.reject(&streamable.RejectedError{Status: http.StatusTooManyRequests, Reason: why})
		return c
	}
	switch err := cl.dispatch(clientMessage{c, frame, m}, func(p forwarder) { p.request(c, frame, m) }); err {
	case nil:
	case errBacklog:
		c.reject(&streamable.RejectedError{Status: http.StatusServiceUnavailable, Reason: err.Error()})
	default:
		c.fail(jsonrpc.Errorf(jsonrpc.CodeInternalError, "%v", err))
	}
	return c
}

// reject answers a call that goes no further because too much is under way: over HTTP with a status, by which the client knows that it may repeat the request.
func (c *call) reject(e *streamable.RejectedError) {
	c.rejected = e
	c.fail(jsonrpc.Errorf(jsonrpc.CodeInternalError, "%s", e.Reason))
}

// notification takes a notification, as request does a request.
func (cl *client) notification(ctx context.Context, frame []byte, m *jsonrpc.Message) {
	event := cl.recorderIn(ctx).recordMessage(capture.ToServer, frame)
	cl.logDropped(cl.dispatch(clientMessage{nil, frame, m}, func(p forwarder) { p.notification(cl, frame, m, event) }))
}

// response takes the answer to a request of the server's, as request does a request.
func (cl *client) response(ctx context.Context, frame []byte, m *jsonrpc.Message) {
	event := cl.recorderIn(ctx).recordMessage(capture.ToServer, frame)
	cl.logDropped(cl.dispatch(clientMessage{nil, frame, m}, func(p forwarder) { p.response(cl, frame, m, event) }))
}

// logDropped logs why a message was dropped that is not answered, if it was.
func (cl *client) logDropped(err error) {
	if err != nil {
		cl.b.opts.Logger.Debug("a message was dropped", "error", err)
	}
}

// recordInvalid records what is no message.
func (cl *client) recordInvalid(frame []byte) { cl.rec.recordMessage(capture.ToServer, frame) }

// abandon gives a call up because nobody waits for its answer any more.
func (cl *client) abandon(c *call) {
	cl.mu.Lock()
	p := cl.forwarder
	_, open := cl.calls[c]
	cl.mu.Unlock()
	c.done.Store(true) // for a party that has not got it yet, or is just about to take it
	if p != nil && open {
		p.abandon(c)
	}
	c.finish(nil, provenance{})
}

// Why a message of a client is not taken.
var (
	errSessionEnded = errors.New("the session has ended")
	errBacklog      = errors.New("too many requests wait for the server to start; this one was not sent")
)

// An opening is the first message of a client. call is nil if it is no request.
type clientMessage struct {
	call  *call
	frame []byte
	m     *jsonrpc.Message
}

// dispatch has f called with what the client talks to, now or as soon as that is known. The error is errSessionEnded or errBacklog; f is not called then.
func (cl *client) dispatch(o clientMessage, f func(forwarder)) error {
	cl.mu.Lock()
	switch {
	case cl.closed:
		cl.mu.Unlock()
		return errSessionEnded
	case len(cl.backlog) >= cl.b.opts.MaxBacklog, cl.backlogBytes > 0 && cl.backlogBytes+len(o.frame) > cl.b.opts.MaxQueue:
		cl.mu.Unlock()
		return errBacklog
	case cl.forwarder != nil && !cl.detecting:
		p := cl.forwarder
		cl.mu.Unlock()
		f(p)
		return nil
	}
	if clientEra := cl.b.opts.ClientEra; !cl.detecting && clientEra != EraAuto && clientEra != eraOf(o.m) {
		cl.mu.Unlock()
		f(wrongEra{clientEra})
		return nil
	}
	if cl.b.opts.Shared && !cl.detecting && !identifiesClient(o.m) {
		cl.mu.Unlock()
		f(uninitialized{})
		return nil
	}
	cl.backlog = append(cl.backlog, f)
	cl.backlogBytes += len(o.frame)
	if cl.detecting {
		cl.mu.Unlock()
		return nil
	}
	cl.detecting = true
	cl.b.wg.Go(func() { cl.resolveForwarder(o) }) // before close can have the lock, behind which Close waits
	cl.mu.Unlock()
	return nil
}

// resolveForwarder finds out what the client is to talk to, and hands on what came meanwhile.
func (cl *client) resolveForwarder(o clientMessage) {
	p, done := cl.b.forwarderFor(cl, o)
	cl.mu.Lock()
	if cl.closed {
		cl.mu.Unlock()
		p.removeClient(cl)
		return
	}
	switch p.(type) {
	case unresponsive, unreachable:
		waiting := cl.backlog
		cl.detecting, cl.backlog, cl.backlogBytes = false, nil, 0
		cl.mu.Unlock()
		for _, f := range waiting {
			f(p)
		}
		return
	}
	cl.forwarder = p
	if done {
		cl.backlog = cl.backlog[1:]
	}
	for len(cl.backlog) > 0 && !cl.closed {
		f := cl.backlog[0]
		cl.backlog = cl.backlog[1:]
		cl.mu.Unlock()
		f(p)
		cl.mu.Lock()
	}
	cl.detecting, cl.backlog, cl.backlogBytes = false, nil, 0
	cl.mu.Unlock()
}

// send sends the client a message that is no response, where out says. from is what it was made of.
func (cl *client) send(out jsonrpc.Sender, frame []byte, from provenance) error {
	rec := cl.rec
	if box, ok := out.(*outbox); ok {
		rec = box.rec
	}
	if out == nil {
		out = cl.out
	}
	if out == nil {
		rec.note("a message was dropped: " + errNoStream.Error())
		return errNoStream
	}
	rec.outbound().recordSent(capture.ToClient, frame, from)
	return out.Send(frame)
}

// errNoStream is why a message was dropped that belongs to no request, where there is no place for such.
var errNoStream = errors.New("the client takes nothing that belongs to none of its requests")

// finish answers the call with a response, which was made of what from says, or with none. Only the first call counts.
func (c *call) finish(response []byte, from provenance) {
	c.once.Do(func() {
		c.done.Store(true)
		if t := c.timer.Load(); t != nil {
			t.Stop()
		}
		if give := c.cancelSend.Load(); give != nil {
			(*give)()
		}
		if response != nil {
			c.rec.outbound().recordSent(capture.ToClient, response, from)
		}
		cl := c.client
		cl.mu.Lock()
		delete(cl.calls, c)
		cl.lastUsed = time.Now()
		cl.mu.Unlock()
		cl.b.metrics.recordAnswer(c, response)
		c.reply(response)
	})
}

// rewritten reports whether the server has the call under another id than the client.
func (c *call) rewritten() bool { return !c.serverID.Equal(c.id) }

// fail answers the call with an error.
func (c *call) fail(e *jsonrpc.Error) {
	c.finish(jsonrpc.AppendError(nil, c.id, e, false), c.bridgeProvenance())
}

// bridgeProvenance says that an answer is the bridge's own.
func (c *call) bridgeProvenance() provenance {
	return provenance{rec: c.rec, event: c.event, rule: "answered by the bridge"}
}

// isModern reports whether a message says of itself which revision it is of.
func isModern(m *jsonrpc.Message) bool {
	meta, ok := m.Param("_meta")
	return ok && locate(meta, mcp.MetaProtocolVersion).found()
}

// An outbox keeps messages until whoever owns it sends them, so that a client that does not read holds up nobody else. Its methods may be called by many goroutines at
// once.
type outbox struct {
	notify chan struct{} // has an element if there is something, or nothing more will come
	rec    recorder      // of the request that it belongs to

	mu     sync.Mutex
	queue  [][]byte
	bytes  int
	closed bool
}

// maxOutbox is how much may wait in an outbox, in bytes, besides the first message.
const maxOutbox = 8 << 20

// errSlowClient is why a message is not kept.
var errSlowClient = errors.New("the client does not read what it is sent")

func newOutbox() *outbox { return &outbox{notify: make(chan struct{}, 1)} }

// Send implements jsonrpc.Sender. It never waits.
func (o *outbox) Send(message []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return jsonrpc.ErrRequestEnded
	case o.bytes > 0 && o.bytes+len(message) > maxOutbox:
		return errSlowClient
	}
	o.queue = append(o.queue, append(make([]byte, 0, len(message)), message...))
	o.bytes += len(message) + 1
	signal(o.notify)
	return nil
}

// take returns what waits. close makes it the last.
func (o *outbox) take(last bool) [][]byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	queue := o.queue
	o.queue, o.bytes = nil, 0
	o.closed = o.closed || last
	return queue
}

// flush sends what waits to out. What cannot be sent is the client's to deal with.
func (cl *client) flush(o *outbox, out jsonrpc.Sender, last bool) {
	for _, message := range o.take(last) {
		if err := out.Send(message); err != nil {
			cl.undelivered(message, err)
		}
	}
}

// undelivered deals with a message that the request it belongs to could not bring: a question goes where there is no request, or is answered for the client.
func (cl *client) undelivered(message []byte, err error) {
	var m jsonrpc.Message
	if jsonrpc.Parse(message, &m, 0) != nil || m.Kind != jsonrpc.KindRequest {
		return
	}
	if cl.out != nil && cl.out.Send(message) == nil {
		return
	}
	frame := jsonrpc.AppendError(nil, m.ID, jsonrpc.Errorf(jsonrpc.CodeInternalError, "the client could not be asked: %v", err), false)
	refusal := new(jsonrpc.Message)
	if jsonrpc.Parse(frame, refusal, 0) == nil {
		cl.response(context.Background(), frame, refusal)
	}
}

// withOutbox returns an outlet that never waits, with a goroutine that sends to out until the client has ended. If it is full, the client is: it ends.
func (cl *client) withOutbox(out jsonrpc.Sender) jsonrpc.Sender {
	o := newOutbox()
	cl.flushed = make(chan struct{})
	cl.b.wg.Go(func() {
		defer close(cl.flushed)
		for {
			select {
			case <-o.notify:
				cl.flush(o, out, false)
			case <-cl.closeDone:
				cl.flush(o, out, true)
				return
			case <-cl.evict:
				o.take(true)
				return
			}
		}
	})
	return evictingOutbox{o, cl}
}

// evictingOutbox ends the client when its outbox is full.
type evictingOutbox struct {
	*outbox
	cl *client
}

// Send implements jsonrpc.Sender.
func (o evictingOutbox) Send(message []byte) error {
	err := o.outbox.Send(message)
	if errors.Is(err, errSlowClient) {
		o.cl.b.opts.Logger.Warn("a client is cut off, because it does not read")
		o.cl.evictOnce.Do(func() { close(o.cl.evict) })
		o.cl.cancel()
	}
	return err
}
