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
	b       *Bridge
	lane    lane
	news    jsonrpc.Outlet // for what belongs to no request
	many    bool           // ids of its requests are not unique, since it is several
	owner   string         // the id of the principal; "" is nobody in particular
	caller  string         // who is charged for it; "" is nobody
	ended   context.Context
	end     context.CancelFunc
	gone    chan struct{} // closed when close has done its work
	cut     chan struct{} // closed when the client is cut off because it does not read
	cutOff  sync.Once
	flushed chan struct{} // closed when all was sent that waited in the client's outbox; nil if it has none

	mu           sync.Mutex
	party        party
	open         map[*call]struct{}
	backlog      []func(party) // what came while it was not known yet what the other side is
	backlogBytes int           // of all that came since it began to be found out
	asking       bool          // it is being found out
	closed       bool
	used         time.Time // when the last request was made or answered
}

// A party is the rest of the bridge as a client sees it: what brings its messages to the server. Frames are the party's from the call on.
type party interface {
	request(c *call, frame []byte, m *jsonrpc.Message)
	notification(cl *client, frame []byte, m *jsonrpc.Message, event uint64)
	response(cl *client, frame []byte, m *jsonrpc.Message, event uint64)
	// hangUp says that nobody waits for the call any more.
	hangUp(c *call)
	// leave ends what there is of a client.
	leave(cl *client)
}

// A call is a request of a client that has no answer yet.
type call struct {
	client *client
	id     jsonrpc.ID // as the client gave it
	method string
	modern bool
	out    jsonrpc.Outlet // for what goes before the answer; nil is the client's news
	ctx    context.Context
	lane   lane   // that it came in
	event  uint64 // in the capture
	number uint64 // counts all calls up
	began  time.Time
	answer func(response []byte)
	once   sync.Once
	done   atomic.Bool // it was answered, or is not wanted any more

	rejected *streamable.RejectedError // why it went no further; nil if it did. It is set before the answer

	far      jsonrpc.ID // the id that the server has it under
	token    []byte     // the client's progress token, if it was replaced
	heard    string     // key of the token that the server was given; "" is none
	timer    atomic.Pointer[time.Timer]
	give     atomic.Pointer[context.CancelFunc] // ends the wait for room to send it; nil if there is none
	patience time.Duration                      // of the timer; set before it
	handed   bool                               // the line has it; guarded by the plain's lock
	frame    []byte                             // the request, if it may have to be made again with more headers
	sent     []byte                             // the request, if the server may make a task of it; nil if it is large
	again    []byte                             // the request, if it goes on when the server is started again
	acked    bool                               // it is a subscription that the server has acknowledged
	broken   int                                // how often it broke off since
	rests    bool                               // it waits to be made again
	swear    bool                               // the server is going to acknowledge it once more
	about    string                             // of a subscription, the URI; of a question after a task, its id
	hears    mcp.LoggingLevel                   // from which it wants log messages, or has others want them
	stream   uint64                             // of a translator
}

// newClient returns a client that counts, or nil if there are too many. It must be closed.
func (b *Bridge) newClient(news jsonrpc.Outlet, owner string, many bool) *client {
	cl, _ := b.newClientOf("", news, owner, many)
	return cl
}

// newClientOf is newClient for a caller, which may have only so many, and says why there is none.
func (b *Bridge) newClientOf(caller string, news jsonrpc.Outlet, owner string, many bool) (*client, *streamable.RejectedError) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var err *streamable.RejectedError
	switch {
	case b.closed:
		err = rejected(http.StatusServiceUnavailable, "the bridge is shutting down")
	case len(b.clients) >= b.opts.MaxSessions:
		err = rejected(http.StatusServiceUnavailable, "there are too many clients")
	case !b.opts.Shared: // otherwise what they share counts
		err = b.reserveLocked(caller)
	}
	if err != nil {
		b.metrics.refused.Add(1)
		return nil, err
	}
	c := &client{b: b, caller: caller, lane: b.rec.lane(capture.Near), news: news, owner: owner, many: many, open: map[*call]struct{}{}, used: time.Now(), gone: make(chan struct{}), cut: make(chan struct{})}
	c.ended, c.end = context.WithCancel(b.ctx)
	if b.opts.Shared && news != nil {
		c.news = c.behind(news) // one that does not read must not hold up the others
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
		<-cl.gone
		return
	}
	defer close(cl.gone)
	cl.closed = true
	p := cl.party
	cl.backlog = nil
	cl.mu.Unlock()
	cl.end()
	if p != nil {
		p.leave(cl)
	}
	cl.failAll(jsonrpc.Errorf(jsonrpc.CodeInternalError, "the session has ended"))
	cl.lane.ended(capture.ToServer)
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
	open := make([]*call, 0, len(cl.open))
	for c := range cl.open {
		open = append(open, c)
	}
	cl.mu.Unlock()
	for _, c := range open {
		c.fail(e)
	}
}

// busy returns how many requests are open, and since when nothing was done if there are none.
func (cl *client) busy() (open int, used time.Time) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return len(cl.open), cl.used
}

// waiting returns how many requests are open, without those that go on for as long as the client listens.
func (cl *client) waiting() int {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	n := 0
	for c := range cl.open {
		if c.method != mcp.MethodSubscriptionsListen {
			n++
		}
	}
	return n
}

// endListening ends the client as soon as nothing else but subscriptions is under way.
func (cl *client) endListening() {
	cl.mu.Lock()
	var listens []*call
	for c := range cl.open {
		if c.method == mcp.MethodSubscriptionsListen {
			listens = append(listens, c)
		}
	}
	cl.mu.Unlock()
	for _, c := range listens {
		cl.hangUp(c)
	}
}

// request takes a request; frame and what m holds are the client's from then on. answer is called once, by any goroutine, with the response, or nil if there is to be none.
func (cl *client) request(ctx context.Context, frame []byte, m *jsonrpc.Message, out jsonrpc.Outlet, answer func([]byte)) *call {
	c := &call{client: cl, id: m.ID, method: string(m.Method), modern: isModern(m), out: out, ctx: ctx, answer: answer, began: time.Now(), number: cl.b.calls.Add(1)}
	cl.b.metrics.requests.Add(1)
	cl.mu.Lock()
	full := len(cl.open) >= cl.b.opts.MaxCalls
	if !full && !cl.closed {
		cl.open[c] = struct{}{}
	}
	cl.used = time.Now()
	cl.mu.Unlock()
	c.lane = cl.laneIn(ctx)
	c.event = c.lane.record(capture.ToServer, frame)
	if box, ok := out.(*outbox); ok {
		box.lane = c.lane
	}
	if full {
		why := fmt.Sprintf("%d requests of this client are under way already", cl.b.opts.MaxCalls)
		c.reject(&streamable.RejectedError{Status: http.StatusTooManyRequests, Reason: why})
		return c
	}
	switch err := cl.do(opening{c, frame, m}, func(p party) { p.request(c, frame, m) }); err {
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
	event := cl.laneIn(ctx).record(capture.ToServer, frame)
	cl.drops(cl.do(opening{nil, frame, m}, func(p party) { p.notification(cl, frame, m, event) }))
}

// response takes the answer to a request of the server's, as request does a request.
func (cl *client) response(ctx context.Context, frame []byte, m *jsonrpc.Message) {
	event := cl.laneIn(ctx).record(capture.ToServer, frame)
	cl.drops(cl.do(opening{nil, frame, m}, func(p party) { p.response(cl, frame, m, event) }))
}

// drops logs why a message was dropped that is not answered, if it was.
func (cl *client) drops(err error) {
	if err != nil {
		cl.b.opts.Logger.Debug("a message was dropped", "error", err)
	}
}

// invalid records what is no message.
func (cl *client) invalid(frame []byte) { cl.lane.record(capture.ToServer, frame) }

// hangUp gives a call up because nobody waits for its answer any more.
func (cl *client) hangUp(c *call) {
	cl.mu.Lock()
	p := cl.party
	_, open := cl.open[c]
	cl.mu.Unlock()
	c.done.Store(true) // for a party that has not got it yet, or is just about to take it
	if p != nil && open {
		p.hangUp(c)
	}
	c.finish(nil, made{})
}

// Why a message of a client is not taken.
var (
	errEnded   = errors.New("the session has ended")
	errBacklog = errors.New("too many requests wait for the server to start; this one was not sent")
)

// An opening is the first message of a client. call is nil if it is no request.
type opening struct {
	call  *call
	frame []byte
	m     *jsonrpc.Message
}

// do has f called with what the client talks to, now or as soon as that is known. The error is errEnded or errBacklog; f is not called then.
func (cl *client) do(o opening, f func(party)) error {
	cl.mu.Lock()
	switch {
	case cl.closed:
		cl.mu.Unlock()
		return errEnded
	case len(cl.backlog) >= cl.b.opts.MaxBacklog, cl.backlogBytes > 0 && cl.backlogBytes+len(o.frame) > cl.b.opts.MaxQueue:
		cl.mu.Unlock()
		return errBacklog
	case cl.party != nil && !cl.asking:
		p := cl.party
		cl.mu.Unlock()
		f(p)
		return nil
	}
	if near := cl.b.opts.Near; !cl.asking && near != EraAuto && near != eraOf(o.m) {
		cl.mu.Unlock()
		f(foreign{near})
		return nil
	}
	if cl.b.opts.Shared && !cl.asking && !begins(o.m) {
		cl.mu.Unlock()
		f(unintroduced{})
		return nil
	}
	cl.backlog = append(cl.backlog, f)
	cl.backlogBytes += len(o.frame)
	if cl.asking {
		cl.mu.Unlock()
		return nil
	}
	cl.asking = true
	cl.b.wg.Go(func() { cl.settle(o) }) // before close can have the lock, behind which Close waits
	cl.mu.Unlock()
	return nil
}

// settle finds out what the client is to talk to, and hands on what came meanwhile.
func (cl *client) settle(o opening) {
	p, done := cl.b.partyFor(cl, o)
	cl.mu.Lock()
	if cl.closed {
		cl.mu.Unlock()
		p.leave(cl)
		return
	}
	switch p.(type) {
	case mute, unreachable:
		waiting := cl.backlog
		cl.asking, cl.backlog, cl.backlogBytes = false, nil, 0
		cl.mu.Unlock()
		for _, f := range waiting {
			f(p)
		}
		return
	}
	cl.party = p
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
	cl.asking, cl.backlog, cl.backlogBytes = false, nil, 0
	cl.mu.Unlock()
}

// send sends the client a message that is no response, where out says. from is what it was made of.
func (cl *client) send(out jsonrpc.Outlet, frame []byte, from made) error {
	lane := cl.lane
	if box, ok := out.(*outbox); ok {
		lane = box.lane
	}
	if out == nil {
		out = cl.news
	}
	if out == nil {
		lane.note("a message was dropped: " + errNowhere.Error())
		return errNowhere
	}
	lane.toward().emit(capture.ToClient, frame, from)
	return out.Send(frame)
}

// errNowhere is why a message was dropped that belongs to no request, where there is no place for such.
var errNowhere = errors.New("the client takes nothing that belongs to none of its requests")

// finish answers the call with a response, which was made of what from says, or with none. Only the first call counts.
func (c *call) finish(response []byte, from made) {
	c.once.Do(func() {
		c.done.Store(true)
		if t := c.timer.Load(); t != nil {
			t.Stop()
		}
		if give := c.give.Load(); give != nil {
			(*give)()
		}
		if response != nil {
			c.lane.toward().emit(capture.ToClient, response, from)
		}
		cl := c.client
		cl.mu.Lock()
		delete(cl.open, c)
		cl.used = time.Now()
		cl.mu.Unlock()
		cl.b.metrics.answered(c, response)
		c.answer(response)
	})
}

// renamed reports whether the server has the call under another id than the client.
func (c *call) renamed() bool { return !c.far.Equal(c.id) }

// fail answers the call with an error.
func (c *call) fail(e *jsonrpc.Error) {
	c.finish(jsonrpc.AppendError(nil, c.id, e, false), c.bridged())
}

// bridged says that an answer is the bridge's own.
func (c *call) bridged() made { return made{lane: c.lane, of: c.event, rule: "answered by the bridge"} }

// isModern reports whether a message says of itself which revision it is of.
func isModern(m *jsonrpc.Message) bool {
	meta, ok := m.Param("_meta")
	return ok && locate(meta, mcp.MetaProtocolVersion).found()
}
