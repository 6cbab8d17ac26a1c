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
	recorderKey struct{} // the lane of a connection to the server
	postKey     struct{} // the posting that a request is for
	requestKey  struct{} // the trip that it is
	exchangeKey struct{} // the exchange in which a client is served
)

// Recorder returns what records an event about the connection that [Options.Connect] is called for with ctx: that its process was started, and how it ended. It may be called by many
// goroutines at once, and does nothing if nothing is recorded.
func Recorder(ctx context.Context) func(*capture.Event) {
	rec := recorderFrom(ctx)
	return func(e *capture.Event) { rec.recordEvent(e) }
}

func recorderFrom(ctx context.Context) recorder {
	rec, _ := ctx.Value(recorderKey{}).(recorder)
	return rec
}

// transmit sends a message, and records it. What is sent over HTTP is recorded when its request is made.
func (u *upstream) transmit(f jsonrpc.Framer, it queuedMessage) error {
	courier, ok := f.(jsonrpc.MessageTransport)
	if !ok {
		u.rec.recordSent(toServer, it.frame, it.from)
		return f.WriteFrame(it.frame)
	}
	ctx := context.WithoutCancel(u.ctx) // its values are for what makes the request
	if it.noLogin {
		ctx = auth.WithoutLogin(ctx)
	}
	ctx = context.WithValue(context.WithValue(ctx, postKey{}, &postedMessage{queuedMessage: it}), recorderKey{}, u.rec)
	return courier.Post(ctx, it.frame)
}

// A posting is a message that is sent over HTTP. If the stream that is to bring its answer breaks off, it has more than one trip.
type postedMessage struct {
	queuedMessage
	lastRequest *upstreamRequest // nil before there is one. It is for whoever makes the requests, one after the other
}

// An origin is where a message of the server's came: in which lane, and in answer to which request, if it came by the response of one.
type origin struct {
	rec     recorder
	callID  jsonrpc.ID
	request *upstreamRequest // nil if it is not known
}

// answered says that what the response is for has come.
func (o origin) answered() {
	if o.request != nil {
		o.request.answered()
	}
}

// receive reads the next message. What is known of where an error came from is said, too.
func (u *upstream) receive(f jsonrpc.Framer) ([]byte, origin, error) {
	o := origin{rec: u.rec}
	r, ok := f.(streamable.Receiver)
	if !ok {
		frame, err := f.ReadFrame()
		return frame, o, err
	}
	frame, from, err := r.Receive()
	if from == nil {
		return frame, o, err
	}
	if t, ok := from.Value(requestKey{}).(*upstreamRequest); ok {
		o.request, o.rec = t, t.recorderOr(u.rec)
	}
	if p, ok := from.Value(postKey{}).(*postedMessage); ok {
		o.callID = p.id
	}
	return frame, o, err
}

// OuterTransport returns a round tripper that makes requests by next, and lets what comes in the responses be told apart, where next changes what it passes on to the one of [Transport]: it adds
// credentials, say.
func OuterTransport(next http.RoundTripper) http.RoundTripper { return outerTransport{next} }

type outerTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (o outerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if recorderFrom(r.Context()).recording == nil {
		return o.next.RoundTrip(r)
	}
	r = r.WithContext(context.WithValue(r.Context(), requestKey{}, new(upstreamRequest)))
	resp, err := o.next.RoundTrip(r)
	if resp != nil {
		resp.Request = r
	}
	return resp, err
}

// Transport returns a round tripper that makes requests by next and, if they are of a bridge that records, records what passes before it does: the head of the request, the message that
// it brings, the head of the response, and its end. It belongs below whatever adds credentials and repeats requests. It may be used by many goroutines at once, if next may.
func Transport(next http.RoundTripper) http.RoundTripper { return recordingTransport{next} }

type recordingTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (rt recordingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := recorderFrom(r.Context())
	if rec.recording == nil {
		return rt.next.RoundTrip(r)
	}
	rec.exchange = rec.recording.exchanges.Add(1)
	req, outer := r.Context().Value(requestKey{}).(*upstreamRequest)
	if !outer {
		req = new(upstreamRequest)
		r = r.WithContext(context.WithValue(r.Context(), requestKey{}, req))
	}
	posted, _ := r.Context().Value(postKey{}).(*postedMessage)
	req.start(rec, posted)
	rec.recordEvent(&capture.Event{Kind: capture.KindRequest, Dir: toServer, Request: httphead.ClientRequest(r)})
	if posted != nil && r.Method == http.MethodPost {
		rec.recordSent(toServer, posted.frame, posted.from)
	}
	resp, err := rt.next.RoundTrip(r)
	if err != nil {
		req.responseEnded(endReason(err), false)
		return nil, err
	}
	rec.recordEvent(&capture.Event{Kind: capture.KindResponse, Dir: toClient, Response: httphead.Response(resp)})
	resp.Body = &recordedBody{ReadCloser: resp.Body, request: req, hasAnswer: resp.StatusCode != http.StatusAccepted}
	if !outer {
		resp.Request = r
	}
	return resp, nil
}

// A trip is a request to the server over HTTP, with its repetitions. That it is over is recorded behind the answer that it brings, which is read before but looked at later.
type upstreamRequest struct {
	mu           sync.Mutex
	rec          recorder // with the exchange that there was last
	awaitsAnswer bool     // for the answer
	pendingEnd   *capture.Event
	previous     *upstreamRequest // which this one goes on with; nil if there is none, or its end was recorded
}

// start says that a request is about to be made, for p, which may be nil.
func (ur *upstreamRequest) start(rec recorder, p *postedMessage) {
	ur.mu.Lock()
	defer ur.mu.Unlock()
	ur.recordEndLocked()
	ur.rec, ur.awaitsAnswer = rec, p != nil && p.id != nil
	if p != nil && p.lastRequest != ur {
		ur.previous, p.lastRequest = p.lastRequest, ur
	}
}

// recorderOr returns the lane with the exchange of the trip, if it has one.
func (ur *upstreamRequest) recorderOr(rec recorder) recorder {
	ur.mu.Lock()
	defer ur.mu.Unlock()
	if ur.rec.exchange != 0 {
		return ur.rec
	}
	return rec
}

// responseEnded takes note of the end of the response. whole tells that it ended as it should, with an answer that is still to be looked at.
func (ur *upstreamRequest) responseEnded(why string, whole bool) {
	ur.mu.Lock()
	defer ur.mu.Unlock()
	ur.pendingEnd = &capture.Event{Kind: capture.KindEnd}
	if why != "" {
		ur.pendingEnd.Data = []byte(why)
	}
	if !whole || !ur.awaitsAnswer || !ur.rec.recording.addPendingEnd(ur) {
		ur.recordEndLocked()
	}
}

// answered records the end, if it waits, and before it those of the trips that this one goes on with.
func (ur *upstreamRequest) answered() {
	ur.mu.Lock()
	previous := ur.previous
	ur.previous = nil
	ur.mu.Unlock()
	if previous != nil {
		previous.answered()
	}
	ur.mu.Lock()
	defer ur.mu.Unlock()
	ur.awaitsAnswer = false
	ur.recordEndLocked()
}

func (ur *upstreamRequest) recordEndLocked() {
	if ur.pendingEnd != nil {
		ur.rec.recordEvent(ur.pendingEnd)
		ur.rec.recording.removePendingEnd(ur)
		ur.pendingEnd = nil
	}
}

// maxPendingEnds is how many ends of exchanges wait for their answers.
const maxPendingEnds = 1 << 14

// addPendingEnd notes that the end of a trip has not been recorded yet. It reports false if there are too many of them.
func (r *recording) addPendingEnd(t *upstreamRequest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pendingEnds) >= maxPendingEnds {
		return false
	}
	r.pendingEnds[t] = struct{}{}
	return true
}

func (r *recording) removePendingEnd(t *upstreamRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pendingEnds, t)
}

// flushEnds records the ends that wait in a lane which has ended.
func (r recorder) flushEnds() {
	if r.recording == nil {
		return
	}
	r.recording.mu.Lock()
	pending := slices.Collect(maps.Keys(r.recording.pendingEnds))
	r.recording.mu.Unlock()
	for _, t := range pending {
		if t.recorderOr(r).session == r.session {
			t.answered()
		}
	}
}

// endReason is why an exchange is over; "" is the normal end.
func endReason(err error) string {
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
	request   *upstreamRequest
	hasAnswer bool // an answer
	once      sync.Once
}

// Read implements io.Reader.
func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.once.Do(func() { b.request.responseEnded(endReason(err), b.hasAnswer && errors.Is(err, io.EOF)) })
	}
	return n, err
}

// Close implements io.Closer.
func (b *recordedBody) Close() error {
	b.once.Do(func() { b.request.responseEnded(clientClosed, false) })
	return b.ReadCloser.Close()
}
