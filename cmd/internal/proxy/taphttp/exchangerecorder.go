package taphttp

import (
	"bytes"
	"net/http"

	"mcpwire/capture"
	"mcpwire/cmd/internal/proxy/intercept"
	"mcpwire/internal/trace/httphead"
)

// An exchangeRecorder records the events of one exchange.
type exchangeRecorder struct {
	out *recorder
	// matcher is nil unless messages are held. The capture has two sides then, see [interceptor].
	matcher         *intercept.Matcher
	session, number uint64
	// isEndpoint reports a request to the MCP endpoint.
	isEndpoint bool
	budget     *budget
	// maxBody limits a body or event in one piece, in bytes.
	maxBody int

	// sent reports that the request was sent to the server. It is set only if messages are held.
	sent bool
	// ended reports that KindEnd was recorded.
	ended bool
	// buffers are released at the end.
	buffers []*boundedBuffer
}

// record records an event of this exchange.
func (r *exchangeRecorder) record(e *capture.Event) {
	if r.matcher != nil {
		r.sides(e)
		return
	}
	e.Session, e.Exchange = r.session, r.number
	r.out.record(e)
}

// note records a remark.
func (r *exchangeRecorder) note(dir capture.Dir, text string) {
	r.record(&capture.Event{Kind: capture.KindNote, Dir: dir, Data: []byte(text)})
}

// end records the end of the exchange once, with the reason if it is abnormal.
func (r *exchangeRecorder) end(why string) {
	if !r.ended {
		r.ended = true
		e := &capture.Event{Kind: capture.KindEnd}
		if why != "" {
			e.Data = []byte(why)
		}
		r.record(e)
	}
}

// sides records an event on the side where it comes from. Unless Side is set, it also records
// one that is forwarded on the other side.
func (r *exchangeRecorder) sides(e *capture.Event) {
	switch e.Kind {
	case capture.KindResponse, capture.KindBody, capture.KindMessage, capture.KindSSE:
		if len(e.Data) <= maxHeldBody {
			r.matcher.Add(r.placed(e, capture.Downstream))
		}
		n := r.received(e)
		if e.Dir == capture.ToServer && !r.sent {
			return // the request broke off
		}
		to := r.forwarded(e)
		if e.Kind == capture.KindMessage {
			r.link(n, to, "forwarded")
		}
	case capture.KindEnd:
		if r.sent {
			r.on(capture.Upstream, e)
		}
		fallthrough
	case capture.KindRequest:
		r.matcher.Add(r.placed(e, capture.Downstream))
		fallthrough
	default:
		r.on(capture.Downstream, e)
	}
}

// placed returns a copy of an event with its place on a side. Each side has its own numbers.
func (r *exchangeRecorder) placed(e *capture.Event, side capture.Side) *capture.Event {
	own := *e
	own.Side, own.Session, own.Exchange = side, 2*r.session, 2*r.number
	if side == capture.Downstream {
		own.Session--
		own.Exchange--
	}
	return &own
}

// on records an event on a side and returns its number.
func (r *exchangeRecorder) on(side capture.Side, e *capture.Event) uint64 {
	return r.out.record(r.placed(e, side))
}

// received records an event on the side of its sender.
func (r *exchangeRecorder) received(e *capture.Event) uint64 {
	if e.Dir == capture.ToServer {
		return r.on(capture.Downstream, e)
	}
	return r.on(capture.Upstream, e)
}

// forwarded records an event on the side where it goes.
func (r *exchangeRecorder) forwarded(e *capture.Event) uint64 {
	if e.Dir == capture.ToServer {
		return r.on(capture.Upstream, e)
	}
	return r.on(capture.Downstream, e)
}

// link records that event to was made of event from.
func (r *exchangeRecorder) link(from, to uint64, rule string) {
	if from != 0 && to != 0 {
		r.out.record(&capture.Event{Kind: capture.KindTranslate, Session: r.placed(&capture.Event{}, capture.Downstream).Session, Translation: &capture.Translation{Of: from, To: []uint64{to}, Rule: rule}})
	}
}

// requestSent records the head of the request to the server.
func (r *exchangeRecorder) requestSent(out *http.Request) {
	r.sent = true
	r.on(capture.Upstream, &capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Request: httphead.ClientRequest(out)})
}

var jsonrpcMember = []byte(`"jsonrpc"`)

// isMessage reports whether a body is, or should be, a message of the protocol. Other bodies belong
// to authorization or to other services of the same origin.
func (r *exchangeRecorder) isMessage(data []byte, h http.Header, expectMessage bool) bool {
	if r.isEndpoint && expectMessage && isJSON(mediaType(h)) {
		return true
	}
	text := bytes.TrimLeft(data, " \t\r\n")
	return len(text) > 0 && (text[0] == '{' || text[0] == '[') && bytes.Contains(text, jsonrpcMember)
}

// body records a complete body. An empty coding means that it is not compressed.
// expectMessage reports whether a body at the endpoint should be a message.
func (r *exchangeRecorder) body(dir capture.Dir, data []byte, h http.Header, coding string, expectMessage bool) {
	if len(data) == 0 {
		return
	}
	decoded := boundedBuffer{budget: r.budget, max: r.maxBody}
	defer decoded.release()
	e, err := r.bodyEvent(dir, data, h, coding, expectMessage, &decoded)
	r.record(e)
	if err != nil {
		r.noteUndecoded(dir, err)
	}
}

// bodyEvent returns the event of a complete body. decoded gets the data of a compressed one. The
// error says why that is not possible, and the event has the compressed bytes then.
func (r *exchangeRecorder) bodyEvent(dir capture.Dir, data []byte, h http.Header, coding string, expectMessage bool, decoded *boundedBuffer) (*capture.Event, error) {
	e := &capture.Event{Kind: capture.KindBody, Dir: dir, Data: data}
	if coding != "" {
		if err := decodeWhole(coding, data, decoded); err != nil {
			e.Encoding = coding
			return e, err
		}
		e.Data = decoded.buf
	}
	if r.isMessage(e.Data, h, expectMessage) {
		e.Kind = capture.KindMessage
	}
	return e, nil
}

func (r *exchangeRecorder) noteUndecoded(dir capture.Dir, err error) {
	r.note(dir, "the body could not be decoded: "+printable(err.Error()))
}

// part records a part of a body.
func (r *exchangeRecorder) part(dir capture.Dir, data []byte, part int, coding string) {
	if len(data) > 0 {
		r.record(&capture.Event{Kind: capture.KindBody, Dir: dir, Data: data, Part: part, Encoding: coding})
	}
}

func (r *exchangeRecorder) releaseBuffers() {
	for _, b := range r.buffers {
		b.release()
	}
}

// newBuffer returns a buffer for a body or an event.
func (r *exchangeRecorder) newBuffer() *boundedBuffer {
	b := &boundedBuffer{budget: r.budget, max: r.maxBody}
	r.buffers = append(r.buffers, b)
	return b
}
