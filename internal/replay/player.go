package replay

import (
	"context"
	"fmt"
	"time"

	"mcpwire/internal/resend"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxBad is how many requests in a row may stay without an answer before nothing more is sent.
const maxBad = 3

// A player plays a recording. It is for one goroutine.
type player struct {
	rec  *Recording
	o    *resend.Origin
	conn conn
	opts *Options
	in   *inbox
	cmp  *comparer

	calls   []live            // by the index of the call
	asks    []liveAsk         // by the index of the ask
	open    []*live           // calls that wait for an answer
	tasks   map[string][]byte // ids of tasks, as JSON text, by the recorded one
	tracker tracker
	kinds   []string        // methods of notifications that belong to no request
	tells   map[uint64]bool // exchanges of what is not answered: whether they are over
	made    string          // id of a handshake that was made up, while it waits
	polls   int             // tasks that were asked for once more
	bad     int             // requests in a row without an answer
	answers int             // that have come
	version bool            // of the server was told of
	fatal   error

	sum     Summary
	results []*Result // by the index of the call, then of the ask; nil until they are known
	told    int       // of the items in order
	order   []int     // indexes of results
}

// A state says how far a call is.
type state uint8

const (
	unsent state = iota
	sent
	done
)

// A live is what became of a call.
type live struct {
	call    *call
	state   state
	id      jsonrpc.ID
	message []byte // that was sent
	at      time.Time
	sign    time.Time // of life
	seen    trace
	answer  *element // the last one
	answerN uint64
	took    time.Duration
	again   time.Time // when the task is asked for once more; zero if it is not
}

func newPlayer(rec *Recording, o *resend.Origin, c conn, opts *Options) *player {
	p := &player{
		rec: rec, o: o, conn: c, opts: opts, in: newInbox(), cmp: newComparer(opts),
		calls: make([]live, len(rec.calls)), asks: make([]liveAsk, len(rec.asks)), tasks: map[string][]byte{}, tells: map[uint64]bool{},
		results: make([]*Result, len(rec.calls)+len(rec.asks)),
	}
	p.sum.Requests = rec.chosen(opts)
	for i := range p.calls {
		p.calls[i].call = rec.calls[i]
	}
	for i := range p.asks {
		p.asks[i].ask = rec.asks[i]
	}
	for i, j := 0, 0; i < len(rec.calls) || j < len(rec.asks); {
		if j == len(rec.asks) || i < len(rec.calls) && rec.calls[i].n <= rec.asks[j].n {
			p.order = append(p.order, i)
			i++
		} else {
			p.order = append(p.order, len(rec.calls)+j)
			j++
		}
	}
	return p
}

// plays reports whether a request is to be sent.
func (r *Recording) plays(c *call, opts *Options) bool {
	return c.method == mcp.MethodInitialize || opts.Choose(r.Capture, c.n)
}

// play sends a frame when its time has come.
func (p *player) play(ctx context.Context, f *frame) error {
	wait := p.await
	if f.hungUp != nil {
		wait = p.awaitSome
	}
	if err := wait(ctx, f.after); err != nil {
		return err
	}
	if err := p.pace(ctx, f); err != nil {
		return err
	}
	if l := p.given(f); l != nil {
		if done, err := p.giveUp(ctx, f, l); done {
			return err
		}
	}
	var raws [][]byte
	var calls []*live
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
		if err := p.freeID(ctx, l); err != nil {
			return err
		}
	}
	return p.send(ctx, f, raws, calls)
}

// freeID waits until no other request with the same id is under way.
func (p *player) freeID(ctx context.Context, l *live) error {
	if p.o.Transport == resend.HTTP { // there they are told apart by their exchanges
		return nil
	}
	for _, other := range p.open {
		if idKey(other.id) == idKey(l.id) {
			return p.awaitOne(ctx, other)
		}
	}
	return nil
}

func (p *player) send(ctx context.Context, f *frame, raws [][]byte, calls []*live) error {
	message := raws[0]
	if f.batch {
		message = join(raws)
	}
	at := time.Now()
	s, err := p.deliver(ctx, message)
	if err != nil {
		return err
	}
	for _, l := range calls {
		l.state, l.at, l.sign = sent, at, at
		l.seen = trace{exchange: s.Exchange, token: l.call.token, standing: l.call.seen.standing, touched: func() { l.sign = time.Now() }}
		p.tracker.add(&l.seen)
		p.open = append(p.open, l)
	}
	if len(calls) > 0 || s.Exchange == 0 {
		return nil
	}
	if err := p.over(ctx, s.Exchange); err != nil { // what is sent next might be there before
		return err
	}
	if len(f.elements) == 1 && string(f.elements[0].m.Method) == mcp.NotificationInitialized {
		p.listen(ctx)
	}
	return nil
}

// deliver sends a message, whatever it is.
func (p *player) deliver(ctx context.Context, message []byte) (resend.Sent, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.opts.Timeout, fmt.Errorf("replay: %w: the server did not take a message within %v", resend.ErrTimeout, p.opts.Timeout))
	defer cancel()
	return p.conn.Send(ctx, message)
}

// over waits until the exchange of a message without an answer is over.
func (p *player) over(ctx context.Context, exchange uint64) error {
	p.tells[exchange] = false
	defer delete(p.tells, exchange)
	_, err := p.until(ctx, time.Now().Add(p.opts.Timeout), func() bool { return p.tells[exchange] })
	return err
}

// listen opens the standing stream, if the client had what comes by one.
func (p *player) listen(ctx context.Context) {
	if p.o.Listens && !p.o.Modern {
		p.conn.Listen(ctx)
	}
}

// greet begins a legacy session of which the recording does not have the beginning.
func (p *player) greet(ctx context.Context) error {
	id := jsonrpc.StringID("mcpwire-replay")
	tool := "mcpwire"
	if r := p.opts.Resend; r != nil && r.Tool != "" {
		tool = r.Tool
	}
	hello := resend.MadeInitialize(p.rec.Revision, tool, id, true)
	p.made = idKey(id)
	if _, err := p.deliver(ctx, hello); err != nil {
		return err
	}
	ok, err := p.until(ctx, time.Now().Add(p.opts.Timeout), func() bool { return p.made == "" })
	if err != nil {
		return err
	}
	if !ok {
		return p.late("the handshake")
	}
	s, err := p.deliver(ctx, jsonrpc.AppendNotification(nil, mcp.NotificationInitialized, nil))
	if err != nil {
		return err
	}
	if s.Exchange > 0 {
		if err := p.over(ctx, s.Exchange); err != nil {
			return err
		}
	}
	p.listen(ctx)
	return nil
}

func (p *player) late(what string) error {
	return fmt.Errorf("replay: %w: %s took longer than %v", resend.ErrTimeout, what, p.opts.Timeout)
}

// join makes a batch.
func join(raws [][]byte) []byte {
	out := []byte{'['}
	for i, raw := range raws {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, raw...)
	}
	return append(out, ']')
}
