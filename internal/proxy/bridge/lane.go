package bridge

import (
	"context"
	"net/http"
	"sync"

	"mcpwire/capture"
	"mcpwire/internal/rpc"
)

// A Recording records the traffic of several bridges behind one front into one capture. The front
// records its clients' side, with a [Lane] for each client, and the bridges record their servers'
// side. A nil Recording records nothing. Its methods may be called by many goroutines at once.
type Recording struct{ r *recording }

// NewRecording returns a recording to out, or nil if out is nil. It does not close out.
func NewRecording(out *capture.Writer) *Recording {
	if out == nil {
		return nil
	}
	return &Recording{newRecording(out)}
}

// Handler wraps a handler of the front. It records the heads of requests and responses.
func (r *Recording) Handler(h http.Handler) http.Handler {
	if r == nil {
		return h
	}
	return r.r.handler(h)
}

// Lane returns a lane for a new client.
func (r *Recording) Lane() *Lane {
	if r == nil {
		return nil
	}
	return &Lane{r.r.newRecorder(capture.Downstream)}
}

// A Lane records the messages of one client of a front. A nil Lane records nothing. Its methods may
// be called by many goroutines at once.
type Lane struct{ rec recorder }

// Received records a message of the client that came with ctx.
func (l *Lane) Received(ctx context.Context, frame []byte) *Origin {
	if l == nil {
		return nil
	}
	o := &Origin{rec: l.rec.in(ctx)}
	o.event = o.rec.recordMessage(toServer, frame)
	return o
}

// Sent records a message that is about to be sent to the client and belongs to no request.
func (l *Lane) Sent(frame []byte, from Provenance) {
	if l != nil {
		l.rec.outbound().recordSent(toClient, frame, from.p)
	}
}

// End records that the client sends no more messages.
func (l *Lane) End() {
	if l != nil {
		l.rec.recordEOF(toServer)
	}
}

// An Origin is a recorded message of a client. A nil Origin is a message that was not recorded.
type Origin struct {
	rec   recorder
	event uint64

	mu sync.Mutex
	// answer is the provenance of the bridge's response.
	answer provenance
}

// Sent records a message that is about to be sent to the client on the stream of the request.
func (o *Origin) Sent(frame []byte, from Provenance) {
	if o != nil {
		o.rec.outbound().recordSent(toClient, frame, from.p)
	}
}

// Answered records the response that is about to be sent. rule names the reason if no bridge
// answered the request.
func (o *Origin) Answered(frame []byte, rule string) {
	if o == nil {
		return
	}
	o.mu.Lock()
	from := o.answer
	o.mu.Unlock()
	if from.event == 0 {
		from = provenance{rec: o.rec, event: o.event, rule: rule}
	}
	o.rec.outbound().recordSent(toClient, frame, from)
}

func (o *Origin) setAnswer(from provenance) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer = from
}

// A Provenance says from which messages another one was made.
type Provenance struct{ p provenance }

// A ProvenanceSender is an rpc.Sender that learns from which message of a server each message was
// made. A bridge with Options.Recording calls SendFrom in place of Send.
type ProvenanceSender interface {
	rpc.Sender
	SendFrom(message []byte, from Provenance) error
}

// originKey is the context key of the *Origin of a message.
type originKey struct{}

// WithOrigin returns a context for a message of a client that is forwarded to a bridge.
func WithOrigin(ctx context.Context, o *Origin) context.Context {
	if o == nil {
		return ctx
	}
	return context.WithValue(ctx, originKey{}, o)
}

func originOf(ctx context.Context) *Origin {
	o, _ := ctx.Value(originKey{}).(*Origin)
	return o
}

// receive records a message of the client that came with ctx, unless a front did. It returns the
// recorder and the event, and the origin, which is nil without a front.
func (cl *client) receive(ctx context.Context, frame []byte) (rec recorder, event uint64, o *Origin) {
	if !cl.b.hasFront() {
		rec = cl.recorderIn(ctx)
		return rec, rec.recordMessage(toServer, frame), nil
	}
	if o = originOf(ctx); o != nil {
		return o.rec, o.event, o
	}
	return cl.rec, 0, nil
}

// hasFront reports if the clients' side is recorded by the front.
func (b *Bridge) hasFront() bool { return b.opts.Recording != nil }

// sendFrom sends a message with its provenance, if the sender wants it.
func sendFrom(out rpc.Sender, frame []byte, from provenance) error {
	switch s := out.(type) {
	case *outbox:
		return s.put(frame, from)
	case evictingOutbox:
		return s.put(frame, from)
	case ProvenanceSender:
		return s.SendFrom(frame, Provenance{from})
	}
	return out.Send(frame)
}
