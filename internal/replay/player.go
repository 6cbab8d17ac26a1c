package replay

import (
	"context"
	"fmt"
	"time"

	"mcpwire/internal/resend"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxFailures is how many requests in a row may stay without an answer before nothing more is sent.
const maxFailures = 3

// A player plays a recording. It is for one goroutine.
type player struct {
	rec      *Recording
	origin   *resend.Origin
	conn     conn
	opts     *Options
	inbox    *inbox
	comparer *comparer

	calls          []liveCall        // by the index of the call
	serverRequests []liveRequest     // by the index of the ask
	pending        []*liveCall       // calls that wait for an answer
	tasks          map[string][]byte // ids of tasks, as JSON text, by the recorded one
	tracker        tracker
	unownedMethods []string        // methods of notifications that belong to no request
	oneWay         map[uint64]bool // exchanges of what is not answered: whether they are over
	syntheticID    string          // id of a handshake that was made up, while it waits
	polls          int             // tasks that were asked for once more
	failures       int             // requests in a row without an answer
	responses      int             // that have come
	versionNoted   bool            // of the server was told of
	fatal          error

	summary  Summary
	results  []*Result // by the index of the call, then of the ask; nil until they are known
	reported int       // of the items in order
	order    []int     // indexes of results
}

// A state says how far a call is.
type state uint8

const (
	unsent state = iota
	sent
	done
)

// A live is what became of a call.
type liveCall struct {
	call          *call
	state         state
	id            jsonrpc.ID
	message       []byte // that was sent
	at            time.Time
	lastActivity  time.Time // of life
	notifications notificationLog
	response      *element // the last one
	responseN     uint64
	latency       time.Duration
	pollAt        time.Time // when the task is asked for once more; zero if it is not
}

func newPlayer(rec *Recording, o *resend.Origin, c conn, opts *Options) *player {
	p := &player{
		rec: rec, origin: o, conn: c, opts: opts, inbox: newInbox(), comparer: newComparer(opts),
		calls: make([]liveCall, len(rec.calls)), serverRequests: make([]liveRequest, len(rec.serverRequests)), tasks: map[string][]byte{}, oneWay: map[uint64]bool{},
		results: make([]*Result, len(rec.calls)+len(rec.serverRequests)),
	}
	p.summary.Requests = rec.selectedCount(opts)
	for i := range p.calls {
		p.calls[i].call = rec.calls[i]
	}
	for i := range p.serverRequests {
		p.serverRequests[i].recorded = rec.serverRequests[i]
	}
	for i, j := 0, 0; i < len(rec.calls) || j < len(rec.serverRequests); {
		if j == len(rec.serverRequests) || i < len(rec.calls) && rec.calls[i].n <= rec.serverRequests[j].n {
			p.order = append(p.order, i)
			i++
		} else {
			p.order = append(p.order, len(rec.calls)+j)
			j++
		}
	}
	return p
}

// isSelected reports whether a request is to be sent.
func (r *Recording) isSelected(c *call, opts *Options) bool {
	return c.method == mcp.MethodInitialize || opts.Select(r.Capture, c.n)
}

// playFrame sends a frame when its time has come.
func (p *player) playFrame(ctx context.Context, f *frame) error {
	wait := p.await
	if f.aborted != nil {
		wait = p.awaitCanceled
	}
	if err := wait(ctx, f.after); err != nil {
		return err
	}
	if err := p.waitRecorded(ctx, f); err != nil {
		return err
	}
	if l := p.canceledCall(f); l != nil {
		if done, err := p.playCancellation(ctx, f, l); done {
			return err
		}
	}
	var raws [][]byte
	var calls []*liveCall
	for i := range f.elements {
		el := &f.elements[i]
		raw, err := p.prepare(f, el)
		if err != nil {
			return err
		}
		if raw == nil {
			continue
		}
		raws = append(raws, raw)
		if el.call != nil {
			l := &p.calls[el.call.index]
			l.id, l.message = el.m.ID, raw
			calls = append(calls, l)
		}
	}
	if len(raws) == 0 {
		return nil
	}
	for _, l := range calls {
		if err := p.waitFreeID(ctx, l); err != nil {
			return err
		}
	}
	return p.send(ctx, f, raws, calls)
}

// waitFreeID waits until no other request with the same id is under way.
func (p *player) waitFreeID(ctx context.Context, l *liveCall) error {
	if p.origin.Transport == resend.HTTP { // there they are told apart by their exchanges
		return nil
	}
	for _, other := range p.pending {
		if idKey(other.id) == idKey(l.id) {
			return p.awaitOne(ctx, other)
		}
	}
	return nil
}

func (p *player) send(ctx context.Context, f *frame, raws [][]byte, calls []*liveCall) error {
	message := raws[0]
	if f.batch {
		message = joinBatch(raws)
	}
	at := time.Now()
	s, err := p.deliver(ctx, message)
	if err != nil {
		return err
	}
	for _, l := range calls {
		l.state, l.at, l.lastActivity = sent, at, at
		l.notifications = notificationLog{exchange: s.Exchange, token: l.call.token, isSubscription: l.call.notifications.isSubscription, onAdd: func() { l.lastActivity = time.Now() }}
		p.tracker.add(&l.notifications)
		p.pending = append(p.pending, l)
	}
	if len(calls) > 0 || s.Exchange == 0 {
		return nil
	}
	if err := p.waitExchange(ctx, s.Exchange); err != nil { // what is sent next might be there before
		return err
	}
	if len(f.elements) == 1 && string(f.elements[0].m.Method) == mcp.NotificationInitialized {
		p.openStream(ctx)
	}
	return nil
}

// deliver sends a message, whatever it is.
func (p *player) deliver(ctx context.Context, message []byte) (resend.Sent, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.opts.Timeout, fmt.Errorf("replay: %w: the server did not take a message within %v", resend.ErrTimeout, p.opts.Timeout))
	defer cancel()
	return p.conn.Send(ctx, message)
}

// waitExchange waits until the exchange of a message without an answer is over.
func (p *player) waitExchange(ctx context.Context, exchange uint64) error {
	p.oneWay[exchange] = false
	defer delete(p.oneWay, exchange)
	_, err := p.waitUntil(ctx, time.Now().Add(p.opts.Timeout), func() bool { return p.oneWay[exchange] })
	return err
}

// openStream opens the standing stream, if the client had what comes by one.
func (p *player) openStream(ctx context.Context) {
	if p.origin.StandingStream && !p.origin.Modern {
		p.conn.OpenStream(ctx)
	}
}

// handshake begins a legacy session of which the recording does not have the beginning.
func (p *player) handshake(ctx context.Context) error {
	id := jsonrpc.StringID("mcpwire-replay")
	tool := "mcpwire"
	if r := p.opts.Resend; r != nil && r.Tool != "" {
		tool = r.Tool
	}
	hello := resend.SyntheticInitialize(p.rec.Revision, tool, id, true)
	p.syntheticID = idKey(id)
	if _, err := p.deliver(ctx, hello); err != nil {
		return err
	}
	ok, err := p.waitUntil(ctx, time.Now().Add(p.opts.Timeout), func() bool { return p.syntheticID == "" })
	if err != nil {
		return err
	}
	if !ok {
		return p.timeoutError("the handshake")
	}
	s, err := p.deliver(ctx, jsonrpc.AppendNotification(nil, mcp.NotificationInitialized, nil))
	if err != nil {
		return err
	}
	if s.Exchange > 0 {
		if err := p.waitExchange(ctx, s.Exchange); err != nil {
			return err
		}
	}
	p.openStream(ctx)
	return nil
}

func (p *player) timeoutError(what string) error {
	return fmt.Errorf("replay: %w: %s took longer than %v", resend.ErrTimeout, what, p.opts.Timeout)
}

// joinBatch makes a batch.
func joinBatch(raws [][]byte) []byte {
	out := []byte{'['}
	for i, raw := range raws {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, raw...)
	}
	return append(out, ']')
}
