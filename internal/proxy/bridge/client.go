package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/base/sparse"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonedit"
	"mcpwire/internal/rpc"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// The flow of a message from the client to the server is:
//
//	streamClient.read, or client.roundTrip on HTTP       reads it, refuses invalid messages
//	client.request, message                              records it; makes a call of a request
//	client.dispatch                                      queues it until the forwarder is known
//	client.resolveForwarder, Bridge.forwarderFor         on the first message: detect the server's
//	                                                     era, choose passthrough or translator
//	passthrough.request, notification, response          replaces ids if the upstream is shared
//	 or translator.request, …: machine.FromDownstream    converts it; says what to send where
//	upstream.trySend, connection.write                   queues it, connects, sends it
//
// and from the server to the client:
//
//	connection.read, deliver, accept, upstream.dispatch  splits batches, refuses duplicate names
//	upstream.takeResponse                                takes the responses to the bridge itself;
//	                                                     repeats a call that lacked headers
//	upstream.route, router.codecOf                       chooses the codec by the request id, if
//	                                                     clients of both eras share the upstream
//	passthrough.received                                 restores ids; finds the client by id,
//	                                                     token, subscription, task or stream
//	 or translator.received: machine.FromUpstream        converts it; says what to send where
//	call.finish for the response, else client.send       records it, sends it by the request's
//	                                                     stream or the client's outbox

// A client is a connection, an HTTP session, or all requests of one principal that have no session.
// Its methods may be called by many goroutines at once.
type client struct {
	b   *Bridge
	rec recorder
	// out takes messages that belong to no request.
	out rpc.Sender
	// aggregate says that this is several clients, so that request ids may repeat.
	aggregate bool
	// principalID is the id of the principal, or "" without one.
	principalID string
	// callPrincipalID is the principal of calls without a principal in their context.
	callPrincipalID string
	// caller is charged for the client in limits; "" means that none is.
	caller string
	ctx    context.Context
	cancel context.CancelFunc
	// closeDone is closed when close returns.
	closeDone chan struct{}
	// outbox holds the messages for out. It is nil without Options.Shared.
	outbox *outbox

	mu        sync.Mutex
	forwarder forwarder
	calls     map[*call]struct{}
	// backlog holds the messages that came during detection.
	backlog []clientMessage
	// backlogBytes counts all bytes since detection began.
	backlogBytes int
	// detecting is set while resolveForwarder runs.
	detecting bool
	closed    bool
}

// A forwarder takes the messages of clients to the server. It owns the frames that it gets.
type forwarder interface {
	request(c *call, frame []byte, m *jsonrpc.Message)
	notification(cl *client, frame []byte, m *jsonrpc.Message, event uint64)
	response(cl *client, frame []byte, m *jsonrpc.Message, event uint64)
	// abandon gives up a call that nobody waits for.
	abandon(c *call)
	// removeClient ends everything that belongs to a client.
	removeClient(cl *client)
}

// A call is a pending request of a client.
type call struct {
	client *client
	id     jsonrpc.ID
	method string
	modern bool
	// out takes messages that precede the response; nil means the client's own.
	out rpc.Sender
	ctx context.Context
	rec recorder
	// origin is the request if a gateway recorded it.
	origin *Origin
	event  uint64
	// event is the request in the capture; seq orders all calls of the bridge.
	seq   uint64
	began time.Time
	reply func(response []byte)
	once  sync.Once
	// done says that the call was answered or abandoned.
	done atomic.Bool
	// principalID is the id of the principal that gets the input requests of the call.
	principalID string

	// rejected says why admission failed; nil if it did not. It is set before the response.
	rejected *relay.RejectedError

	// serverID is the id on the upstream.
	serverID jsonrpc.ID
	// clientToken is the client's progress token if the bridge replaced it.
	clientToken []byte
	// tokenKey is the key of the upstream's progress token, or "" without one.
	tokenKey string
	timer    atomic.Pointer[time.Timer]
	// cancelSend ends the wait for room in the queue; nil if nothing waits.
	cancelSend atomic.Pointer[context.CancelFunc]
	// timeout belongs to timer, and is set before it.
	timeout time.Duration
	// queued says that the upstream has the request. The lock of passthrough guards it.
	queued bool
	// taskFrame is the request, if the server may make a task of it and it is not large.
	taskFrame []byte
	// wantsTask says that the request asks a legacy server for a task. Only tasks/cancel may
	// cancel it.
	wantsTask bool
	// listenFrame is the request, if it is a subscription that survives a restart.
	listenFrame []byte
	// acked says that the server has acknowledged the subscription.
	acked bool
	// retries counts the failures since then.
	retries int
	// retryPending says that the subscription waits for its next attempt.
	retryPending bool
	// expectAck says that the server will acknowledge the subscription again.
	expectAck bool
	// subject is the id of the task of a tasks/result.
	subject string
	// logLevel is the lowest level of log messages that the call wants, or that a logging/setLevel
	// sets.
	logLevel mcp.LoggingLevel
	// stream is the number of the call in a translator.
	stream uint64
}

// rejectedByClosed rejects the clients of a closed bridge.
var rejectedByClosed = newRejectedError(http.StatusServiceUnavailable, "the bridge is shutting down")

// newClientFor returns a client for a caller, which may have a separate limit. The caller of
// newClientFor must close the client. The error names the limit that is reached.
func (b *Bridge) newClientFor(caller string, out rpc.Sender, owner string, many bool) (*client, *relay.RejectedError) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var err *relay.RejectedError
	switch {
	case b.closed:
		err = rejectedByClosed
	case len(b.clients) >= b.opts.MaxSessions:
		err = newRejectedError(http.StatusServiceUnavailable, "too many clients")
	case !b.opts.Shared: // otherwise joinShared reserves
		err = b.servers.reserve(caller)
	}
	if err != nil {
		b.metrics.rejected.Add(1)
		return nil, b.opts.namedRejection(err)
	}
	c := &client{b: b, caller: caller, rec: b.newClientRecorder(), out: out, principalID: owner, aggregate: many, closeDone: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(b.ctx)
	if b.opts.Shared && out != nil {
		c.out = c.withOutbox(out) // a client that does not read must not delay others
	}
	b.clients[c] = struct{}{}
	b.metrics.sessions.Add(1)
	return c, nil
}

// newClientRecorder returns a recorder for a client. If there is a gateway, the recorder only links
// messages.
func (b *Bridge) newClientRecorder() recorder {
	if b.behindGateway() {
		return recorder{recording: b.recording, side: capture.Downstream}
	}
	return b.recording.newRecorder(capture.Downstream)
}

// close ends the client and fails its pending calls. It does not wait for the server.
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
	if cl.outbox != nil {
		cl.outbox.close()
	}
	if !cl.b.behindGateway() {
		cl.rec.recordEOF(capture.ToServer)
	}
	cl.b.mu.Lock()
	delete(cl.b.clients, cl)
	if !cl.b.opts.Shared {
		cl.b.servers.release(cl.caller)
	}
	cl.b.mu.Unlock()
}

// failAll fails all pending calls.
func (cl *client) failAll(e *jsonrpc.Error) {
	cl.mu.Lock()
	open := slices.Collect(maps.Keys(cl.calls))
	cl.mu.Unlock()
	for _, c := range open {
		c.fail(e)
	}
}

// pending returns the number of pending requests without subscriptions, and that of subscriptions.
func (cl *client) pending() (calls, subscriptions int) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	for c := range cl.calls {
		if c.method == mcp.MethodSubscriptionsListen {
			subscriptions++
		}
	}
	return len(cl.calls) - subscriptions, subscriptions
}

// closeSubscriptions abandons the subscriptions of the client.
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

// request takes a request. The client owns frame and m from then on. It calls answer once, from any
// goroutine, with the response, or with nil without one.
func (cl *client) request(ctx context.Context, frame []byte, m *jsonrpc.Message, out rpc.Sender, answer func([]byte)) *call {
	now := time.Now()
	c := &call{client: cl, id: m.ID, method: string(m.Method), principalID: cmp.Or(callPrincipalOf(ctx), cl.callPrincipalID), modern: isModern(m), out: out, ctx: ctx, reply: answer, began: now, seq: cl.b.callCount.Add(1)}
	cl.b.metrics.requests.Add(1)
	cl.mu.Lock()
	full := len(cl.calls) >= cl.b.opts.MaxCalls
	if !full && !cl.closed {
		sparse.Set(&cl.calls, c, struct{}{})
	}
	cl.mu.Unlock()
	c.rec, c.event, c.origin = cl.receive(ctx, frame)
	if box, ok := out.(*outbox); ok {
		box.rec = c.rec
	}
	if full {
		why := fmt.Sprintf("%d requests of this client are already in flight", cl.b.opts.MaxCalls)
		c.reject(&relay.RejectedError{Status: http.StatusTooManyRequests, Reason: why})
		return c
	}
	switch err := cl.dispatch(clientMessage{call: c, frame: frame, m: m}); err {
	case nil:
	case errBacklog:
		c.reject(&relay.RejectedError{Status: http.StatusServiceUnavailable, Reason: err.Error()})
	default:
		c.fail(jsonrpc.Errorf(jsonrpc.CodeInternalError, "%v", err))
	}
	return c
}

// reject answers a call that exceeds a limit. Over HTTP the status shows that the client may retry.
func (c *call) reject(e *relay.RejectedError) {
	c.rejected = c.client.b.opts.namedRejection(e)
	c.fail(jsonrpc.Errorf(jsonrpc.CodeInternalError, "%s", e.Reason))
}

// message takes a notification, or the response to a server's request. Ownership is as in request.
func (cl *client) message(ctx context.Context, frame []byte, m *jsonrpc.Message) {
	_, event, _ := cl.receive(ctx, frame)
	cl.logDropped(cl.dispatch(clientMessage{frame: frame, m: m, event: event}))
}

// logDropped logs a dropped message if err is not nil.
func (cl *client) logDropped(err error) {
	if err != nil {
		cl.b.opts.Logger.Debug("message dropped", "error", err)
	}
}

// recordInvalid records a frame that is not a valid message.
func (cl *client) recordInvalid(frame []byte) { cl.rec.recordMessage(capture.ToServer, frame) }

// abandon gives up a call because nobody waits for its response.
func (cl *client) abandon(c *call) {
	cl.mu.Lock()
	p := cl.forwarder
	_, open := cl.calls[c]
	cl.mu.Unlock()
	c.done.Store(true) // for a forwarder that does not have it yet, or is about to take it
	if p != nil && open {
		p.abandon(c)
	}
	c.finish(nil, Provenance{})
}

// Errors of dispatch.
var (
	errSessionEnded = errors.New("the session has ended")
	errBacklog      = errors.New("too many requests wait for the server to start; this one was not sent")
)

// A clientMessage is a message of a client. call is nil unless it is a request, and event is the
// message in the capture unless it is one.
type clientMessage struct {
	call  *call
	frame []byte
	m     *jsonrpc.Message
	event uint64
}

// forward gives the message of cl to p.
func (o clientMessage) forward(cl *client, p forwarder) {
	switch {
	case o.call != nil:
		p.request(o.call, o.frame, o.m)
	case o.m.Kind == jsonrpc.KindNotification:
		p.notification(cl, o.frame, o.m, o.event)
	default:
		p.response(cl, o.frame, o.m, o.event)
	}
}

// dispatch gives a message to the client's forwarder, now or as soon as that is known. If it
// returns errSessionEnded or errBacklog, it drops the message.
func (cl *client) dispatch(o clientMessage) error {
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
		o.forward(cl, p)
		return nil
	}
	if clientEra := cl.b.opts.ClientEra; !cl.detecting && clientEra != EraAuto && clientEra != EraOf(o.m) {
		cl.mu.Unlock()
		o.forward(cl, wrongEra(clientEra))
		return nil
	}
	if cl.b.opts.Shared && !cl.detecting && !identifiesClient(o.m) {
		cl.mu.Unlock()
		o.forward(cl, uninitialized)
		return nil
	}
	cl.backlog = append(cl.backlog, o)
	cl.backlogBytes += len(o.frame)
	if cl.detecting {
		cl.mu.Unlock()
		return nil
	}
	cl.detecting = true
	// Start the goroutine under the lock, so that Close, which calls close first, waits for it.
	cl.b.wg.Go(func() { cl.resolveForwarder(o) })
	cl.mu.Unlock()
	return nil
}

// resolveForwarder finds the forwarder of the client and gives it the backlog.
func (cl *client) resolveForwarder(o clientMessage) {
	p, done := cl.b.forwarderFor(cl, o)
	cl.mu.Lock()
	if cl.closed {
		cl.mu.Unlock()
		p.removeClient(cl)
		return
	}
	if r, ok := p.(refuser); ok && r.temporary {
		waiting := cl.backlog
		cl.detecting, cl.backlog, cl.backlogBytes = false, nil, 0
		cl.mu.Unlock()
		for _, o := range waiting {
			o.forward(cl, p)
		}
		return
	}
	cl.forwarder = p
	if done {
		cl.backlog = cl.backlog[1:]
	}
	for len(cl.backlog) > 0 && !cl.closed {
		o := cl.backlog[0]
		cl.backlog = cl.backlog[1:]
		cl.mu.Unlock()
		o.forward(cl, p)
		cl.mu.Lock()
	}
	cl.detecting, cl.backlog, cl.backlogBytes = false, nil, 0
	cl.mu.Unlock()
}

// send sends the client a message that is not a response, by out if that is not nil. from is the
// origin of the message.
func (cl *client) send(out rpc.Sender, frame []byte, from Provenance) error {
	rec := cl.rec
	if box, ok := out.(*outbox); ok {
		rec = box.rec
	}
	if out == nil {
		out = cl.out
	}
	if out == nil {
		rec.note("message dropped: " + errNoStream.Error())
		return errNoStream
	}
	if cl.b.behindGateway() {
		return sendFrom(out, frame, from)
	}
	rec.outbound().recordSent(capture.ToClient, frame, from)
	return out.Send(frame)
}

// errNoStream is the error for a message that belongs to no request if the client has no place for
// it.
var errNoStream = errors.New("the client only accepts messages that belong to its requests")

// finish answers the call with a response, or with none if it is nil. from is the origin of the
// response. Only the first call has an effect.
func (c *call) finish(response []byte, from Provenance) {
	var m jsonrpc.Message
	isError := response != nil && jsonrpc.Parse(response, &m, 0) == nil && m.Kind == jsonrpc.KindError
	c.finishParsed(response, isError, from)
}

// finishParsed is finish for a response that is known to be an error, or not to be one.
func (c *call) finishParsed(response []byte, isError bool, from Provenance) {
	c.once.Do(func() {
		c.done.Store(true)
		if t := c.timer.Load(); t != nil {
			t.Stop()
		}
		if cancel := c.cancelSend.Load(); cancel != nil {
			(*cancel)()
		}
		if response != nil && !isError && strings.HasSuffix(c.method, "/list") {
			response = c.client.b.withoutMalformed(c.method, response, &from)
		}
		switch {
		case c.client.b.behindGateway():
			c.origin.setAnswer(from)
		case response != nil:
			c.rec.outbound().recordSent(capture.ToClient, response, from)
		}
		cl := c.client
		now := time.Now()
		cl.mu.Lock()
		if cl.aggregate { // there is one map for many clients
			delete(cl.calls, c)
		} else {
			sparse.Delete(&cl.calls, c)
		}
		cl.mu.Unlock()
		cl.b.metrics.recordAnswer(c, isError, now)
		c.reply(response)
	})
}

// maxLeftOut limits the malformed items that a bridge logs.
const maxLeftOut = 100

// withoutMalformed returns a response without the malformed items of its list, which clients may
// reject as a whole. It logs each of them once.
func (b *Bridge) withoutMalformed(method string, response []byte, from *Provenance) []byte {
	at := jsonedit.Locate(response, "result")
	if !at.Found() {
		return response
	}
	rest, left := era.WithoutMalformed(method, at.Of(response))
	if len(rest) == len(at.Of(response)) {
		return response
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, err := range left {
		if text := method + ": " + err.Error(); !b.leftOut[text] && len(b.leftOut) < maxLeftOut {
			b.leftOut[text] = true
			b.opts.Logger.Warn("a malformed item of a list is left out", "server", b.opts.Name, "method", method, "error", err)
		}
	}
	from.rule = "malformed items left out"
	return jsonedit.Splice(response, at, rest)
}

// rewritten reports if the id on the upstream differs from the client's.
func (c *call) rewritten() bool { return !c.serverID.Equal(c.id) }

// fail answers the call with an error.
func (c *call) fail(e *jsonrpc.Error) {
	c.finishParsed(jsonrpc.AppendError(nil, c.id, c.client.b.opts.named(e), false), true, c.bridgeProvenance())
}

// bridgeProvenance returns the provenance of a response that the bridge made.
func (c *call) bridgeProvenance() Provenance {
	return Provenance{rec: c.rec, event: c.event, rule: "answered by the bridge"}
}

// isModern reports if a message has the protocol version in its _meta.
func isModern(m *jsonrpc.Message) bool {
	meta, ok := m.Param("_meta")
	return ok && jsonedit.Locate(meta, mcp.MetaProtocolVersion).Found()
}

// An outbox buffers messages until its owner sends them, so that a slow client delays nobody else.
// Its methods may be called by many goroutines at once.
type outbox struct {
	// notify has an element if there are messages or the outbox was closed. It is nil in a
	// clientOutbox.
	notify chan struct{}
	// rec is the recorder of the request.
	rec recorder

	mu     sync.Mutex
	queue  []outgoing
	bytes  int
	closed bool
	// start starts a goroutine that sends the messages, and is called with the lock. Nil means that
	// the owner sends them.
	start func()
	// sending says that this goroutine has messages to send. running waits for its end.
	sending bool
	running sync.WaitGroup
}

// An outgoing is a message in an outbox. from is its provenance, for a gateway that records it.
type outgoing struct {
	frame []byte
	from  Provenance
}

// maxOutbox limits the bytes in an outbox. The first message may be larger.
const maxOutbox = 8 << 20

// errSlowClient is the error of a full outbox.
var errSlowClient = errors.New("the client does not read its messages")

// Send implements rpc.Sender. It never blocks.
func (o *outbox) Send(message []byte) error { return o.SendFrom(message, Provenance{}) }

// SendFrom implements ProvenanceSender.
func (o *outbox) SendFrom(message []byte, from Provenance) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return jsonrpc.ErrRequestEnded
	case o.bytes > 0 && o.bytes+len(message) > maxOutbox:
		return errSlowClient
	}
	o.queue = append(o.queue, outgoing{append(make([]byte, 0, len(message)), message...), from})
	o.bytes += len(message) + 1
	if o.start != nil && !o.sending {
		o.sending = true
		o.start()
	}
	wait.Signal(o.notify)
	return nil
}

// take removes and returns the messages. If last is set, it closes the outbox.
func (o *outbox) take(last bool) []outgoing {
	o.mu.Lock()
	defer o.mu.Unlock()
	queue := o.queue
	o.queue, o.bytes = nil, 0
	o.closed = o.closed || last
	return queue
}

// close makes the outbox take no more messages.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
}

// endSending reports if the goroutine must end, because there are no messages.
func (o *outbox) endSending() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) > 0 {
		return false
	}
	o.sending = false
	return true
}

// flush sends the messages to out. It gives messages that fail to undelivered.
func (cl *client) flush(o *outbox, out rpc.Sender, last bool) {
	for _, m := range o.take(last) {
		if err := sendFrom(out, m.frame, m.from); err != nil {
			cl.undelivered(m.frame, err)
		}
	}
}

// undelivered handles a message that could not be sent by its request's stream. An input request
// goes to the client's own stream; if that fails too, the bridge answers it with an error.
func (cl *client) undelivered(message []byte, err error) {
	var m jsonrpc.Message
	if jsonrpc.Parse(message, &m, 0) != nil || m.Kind != jsonrpc.KindRequest {
		return
	}
	if cl.out != nil && cl.out.Send(message) == nil {
		return
	}
	refusal := errorMessage(m.ID, jsonrpc.Errorf(jsonrpc.CodeInternalError, "could not send the request to the client: %v", err))
	cl.message(context.Background(), encodeMessage(refusal), refusal)
}

// withOutbox returns a sender that never blocks.
func (cl *client) withOutbox(out rpc.Sender) rpc.Sender {
	o := clientOutbox{new(outbox), cl, out}
	// It starts before Bridge.Close waits for it, because that closes the outbox first.
	o.start = func() {
		o.running.Add(1)
		cl.b.wg.Go(o.sendAll)
	}
	cl.outbox = o.outbox
	return o
}

// A clientOutbox is the outbox of a client. A goroutine sends its messages to out, and ends when
// there are no more, because most clients have none for long. A full outbox ends the client.
type clientOutbox struct {
	*outbox
	cl  *client
	out rpc.Sender
}

// Send implements rpc.Sender.
func (o clientOutbox) Send(message []byte) error { return o.SendFrom(message, Provenance{}) }

// SendFrom implements ProvenanceSender.
func (o clientOutbox) SendFrom(message []byte, from Provenance) error {
	err := o.outbox.SendFrom(message, from)
	if errors.Is(err, errSlowClient) {
		o.take(true)
		o.cl.b.opts.Logger.Warn("disconnecting a client that does not read")
		o.cl.cancel()
	}
	return err
}

// sendAll sends messages until there are no more.
func (o clientOutbox) sendAll() {
	defer o.running.Done()
	for {
		o.cl.flush(o.outbox, o.out, false)
		if o.endSending() {
			return
		}
	}
}
