package bridge

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"mcpwire/capture"
	"mcpwire/internal/httphead"
	"mcpwire/jsonrpc"
	"mcpwire/streamable"
)

// Keys of what contexts carry.
type (
	laneKey   struct{} // the lane of a connection to the server, with the exchange once there is one
	postedKey struct{} // the item that a request brings
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
	ctx := context.WithValue(context.WithValue(context.Background(), postedKey{}, &it), laneKey{}, l.lane)
	return courier.Post(ctx, it.frame)
}

// An origin is where a message of the server's came: in which lane, and in answer to which request, if it came by the response of one.
type origin struct {
	lane lane
	call jsonrpc.ID
}

// receive reads the next message.
func (l *line) receive(f jsonrpc.Framer) ([]byte, origin, error) {
	r, ok := f.(streamable.Receiver)
	if !ok {
		frame, err := f.ReadFrame()
		return frame, origin{lane: l.lane}, err
	}
	frame, from, err := r.Receive()
	o := origin{lane: l.lane}
	if err != nil {
		return frame, o, err
	}
	if lane := laneOf(from); lane.exchange != 0 {
		o.lane = lane
	}
	if it, ok := from.Value(postedKey{}).(*item); ok {
		o.call = it.id
	}
	return frame, o, nil
}

// Transport returns a round tripper that makes requests by next and, if they are of a bridge that records, records what passes before it does: the head of the request, the message that
// it brings, the head of the response, and its end. It belongs below whatever adds credentials and repeats requests. It may be used by many goroutines at once, if next may.
func Transport(next http.RoundTripper) http.RoundTripper { return recordedTransport{next} }

type recordedTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t recordedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	l := laneOf(r.Context())
	if l.rec == nil {
		return t.next.RoundTrip(r)
	}
	l.exchange = l.rec.exchanges.Add(1)
	l.event(&capture.Event{Kind: capture.KindRequest, Dir: toServer, Request: httphead.Sent(r)})
	if it, ok := r.Context().Value(postedKey{}).(*item); ok && r.Method == http.MethodPost {
		l.emit(toServer, it.frame, it.from)
	}
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		l.over(err)
		return nil, err
	}
	l.event(&capture.Event{Kind: capture.KindResponse, Dir: toClient, Response: httphead.Response(resp)})
	resp.Body = &recordedBody{ReadCloser: resp.Body, lane: l}
	resp.Request = r.WithContext(context.WithValue(r.Context(), laneKey{}, l))
	return resp, nil
}

// over records the end of an exchange with the server. err is nil or io.EOF if that is the normal one.
func (l lane) over(err error) {
	e := &capture.Event{Kind: capture.KindEnd}
	switch {
	case err == nil, errors.Is(err, io.EOF):
	case errors.Is(err, context.Canceled), errors.Is(err, http.ErrBodyReadAfterClose):
		e.Data = []byte(clientClosed)
	default:
		e.Data = []byte("no response: " + clip([]byte(err.Error())))
	}
	l.event(e)
}

// clientClosed is why an exchange is over that whoever asked has given up.
const clientClosed = "client closed"

// A recordedBody records when a response has ended.
type recordedBody struct {
	io.ReadCloser
	lane lane
	once sync.Once
}

// Read implements io.Reader.
func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.once.Do(func() { b.lane.over(err) })
	}
	return n, err
}

// Close implements io.Closer.
func (b *recordedBody) Close() error {
	b.once.Do(func() { b.lane.over(http.ErrBodyReadAfterClose) })
	return b.ReadCloser.Close()
}
