package bridge

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"

	"mcpwire/auth"
	"mcpwire/capture"
	"mcpwire/internal/httphead"
	"mcpwire/jsonrpc"
	"mcpwire/streamable"
)

// Keys of what contexts carry.
type (
	laneKey   struct{} // the lane of a connection to the server
	postedKey struct{} // the posting that a request is for
	tripKey   struct{} // the trip that it is
	servedKey struct{} // the exchange in which a client is served
)

// Recorder returns what records an event about the connection that [Options.Connect] is called for with ctx: that its process was started, and how it ended. It may be called by many
// goroutines at once, and does nothing if nothing is recorded.
func Recorder(ctx context.Context) func(*capture.Event) {
	l := laneOf(ctx)
	return func(e *capture.Event) { l.event(e) }
}

func laneOf(ctx context.Context) lane {
	l, _ := ctx.Value(laneKey{}).(lane)
	return l
}

// post sends a message, and records it. What is sent over HTTP is recorded when its request is made.
func (l *line) post(f jsonrpc.Framer, it item) error {
	courier, ok := f.(jsonrpc.Courier)
	if !ok {
		l.lane.emit(toServer, it.frame, it.from)
		return f.WriteFrame(it.frame)
	}
	ctx := context.WithoutCancel(l.ctx) // its values are for what makes the request
	if it.quiet {
		ctx = auth.WithoutLogin(ctx)
	}
	ctx = context.WithValue(context.WithValue(ctx, postedKey{}, &posting{item: it}), laneKey{}, l.lane)
	return courier.Post(ctx, it.frame)
}

// A posting is a message that is sent over HTTP. If the stream that is to bring its answer breaks off, it has more than one trip.
type posting struct {
	item
	last *trip // nil before there is one. It is for whoever makes the requests, one after the other
}

// An origin is where a message of the server's came: in which lane, and in answer to which request, if it came by the response of one.
type origin struct {
	lane lane
	call jsonrpc.ID
	trip *trip // nil if it is not known
}

// answered says that what the response is for has come.
func (o origin) answered() {
	if o.trip != nil {
		o.trip.answer()
	}
}

// receive reads the next message. What is known of where an error came from is said, too.
func (l *line) receive(f jsonrpc.Framer) ([]byte, origin, error) {
	o := origin{lane: l.lane}
	r, ok := f.(streamable.Receiver)
	if !ok {
		frame, err := f.ReadFrame()
		return frame, o, err
	}
	frame, from, err := r.Receive()
	if from == nil {
		return frame, o, err
	}
	if t, ok := from.Value(tripKey{}).(*trip); ok {
		o.trip, o.lane = t, t.onIts(l.lane)
	}
	if p, ok := from.Value(postedKey{}).(*posting); ok {
		o.call = p.id
	}
	return frame, o, err
}

// Beyond returns a round tripper that makes requests by next, and lets what comes in the responses be told apart, where next changes what it passes on to the one of [Transport]: it adds
// credentials, say.
func Beyond(next http.RoundTripper) http.RoundTripper { return outerTransport{next} }

type outerTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (o outerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if laneOf(r.Context()).rec == nil {
		return o.next.RoundTrip(r)
	}
	r = r.WithContext(context.WithValue(r.Context(), tripKey{}, new(trip)))
	resp, err := o.next.RoundTrip(r)
	if resp != nil {
		resp.Request = r
	}
	return resp, err
}

// Transport returns a round tripper that makes requests by next and, if they are of a bridge that records, records what passes before it does: the head of the request, the message that
// it brings, the head of the response, and its end. It belongs below whatever adds credentials and repeats requests. It may be used by many goroutines at once, if next may.
func Transport(next http.RoundTripper) http.RoundTripper { return recordedTransport{next} }

type recordedTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (o recordedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	l := laneOf(r.Context())
	if l.rec == nil {
		return o.next.RoundTrip(r)
	}
	l.exchange = l.rec.exchanges.Add(1)
	t, beyond := r.Context().Value(tripKey{}).(*trip)
	if !beyond {
		t = new(trip)
		r = r.WithContext(context.WithValue(r.Context(), tripKey{}, t))
	}
	p, _ := r.Context().Value(postedKey{}).(*posting)
	t.begin(l, p)
	l.event(&capture.Event{Kind: capture.KindRequest, Dir: toServer, Request: httphead.Sent(r)})
	if p != nil && r.Method == http.MethodPost {
		l.emit(toServer, p.frame, p.from)
	}
	resp, err := o.next.RoundTrip(r)
	if err != nil {
		t.over(endOf(err), false)
		return nil, err
	}
	l.event(&capture.Event{Kind: capture.KindResponse, Dir: toClient, Response: httphead.Response(resp)})
	resp.Body = &recordedBody{ReadCloser: resp.Body, trip: t, brings: resp.StatusCode != http.StatusAccepted}
	if !beyond {
		resp.Request = r
	}
	return resp, nil
}

// A trip is a request to the server over HTTP, with its repetitions. That it is over is recorded behind the answer that it brings, which is read before but looked at later.
type trip struct {
	mu     sync.Mutex
	lane   lane // with the exchange that there was last
	waits  bool // for the answer
	ending *capture.Event
	before *trip // which this one goes on with; nil if there is none, or its end was recorded
}

// begin says that a request is about to be made, for p, which may be nil.
func (t *trip) begin(l lane, p *posting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endLocked()
	t.lane, t.waits = l, p != nil && p.id != nil
	if p != nil && p.last != t {
		t.before, p.last = p.last, t
	}
}

// onIts returns the lane with the exchange of the trip, if it has one.
func (t *trip) onIts(l lane) lane {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lane.exchange != 0 {
		return t.lane
	}
	return l
}

// over takes note of the end of the response. whole tells that it ended as it should, with an answer that is still to be looked at.
func (t *trip) over(why string, whole bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ending = &capture.Event{Kind: capture.KindEnd}
	if why != "" {
		t.ending.Data = []byte(why)
	}
	if !whole || !t.waits || !t.lane.rec.hold(t) {
		t.endLocked()
	}
}

// answer records the end, if it waits, and before it those of the trips that this one goes on with.
func (t *trip) answer() {
	t.mu.Lock()
	before := t.before
	t.before = nil
	t.mu.Unlock()
	if before != nil {
		before.answer()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waits = false
	t.endLocked()
}

func (t *trip) endLocked() {
	if t.ending != nil {
		t.lane.event(t.ending)
		t.lane.rec.release(t)
		t.ending = nil
	}
}

// maxHeld is how many ends of exchanges wait for their answers.
const maxHeld = 1 << 14

// hold notes that the end of a trip has not been recorded yet. It reports false if there are too many of them.
func (r *recording) hold(t *trip) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.held) >= maxHeld {
		return false
	}
	r.held[t] = struct{}{}
	return true
}

func (r *recording) release(t *trip) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, t)
}

// settle records the ends that wait in a lane which has ended.
func (l lane) settle() {
	if l.rec == nil {
		return
	}
	l.rec.mu.Lock()
	held := slices.Collect(maps.Keys(l.rec.held))
	l.rec.mu.Unlock()
	for _, t := range held {
		if t.onIts(l).session == l.session {
			t.answer()
		}
	}
}

// endOf is why an exchange is over; "" is the normal end.
func endOf(err error) string {
	switch {
	case errors.Is(err, io.EOF):
		return ""
	case errors.Is(err, context.Canceled):
		return clientClosed
	}
	text := err.Error()
	return "the server: " + text[:min(len(text), 300)]
}

// clientClosed is why an exchange is over that whoever asked has given up.
const clientClosed = "client closed"

// A recordedBody records when a response has ended.
type recordedBody struct {
	io.ReadCloser
	trip   *trip
	brings bool // an answer
	once   sync.Once
}

// Read implements io.Reader.
func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.once.Do(func() { b.trip.over(endOf(err), b.brings && errors.Is(err, io.EOF)) })
	}
	return n, err
}

// Close implements io.Closer.
func (b *recordedBody) Close() error {
	b.once.Do(func() { b.trip.over(clientClosed, false) })
	return b.ReadCloser.Close()
}
