package export

import (
	"strings"
	"time"

	"mcpwire/capture"
)

// An exchange is one of HTTP, as far as it has come.
type roundTrip struct {
	key      roundTripKey
	server   string // of the server
	url      string // of the server, "" if the capture does not say it
	session  uint64
	n        uint64 // of the first event
	began    time.Time
	answered time.Time // when the head of the response came
	ended    time.Time
	last     time.Time

	request   *capture.Request
	response  *capture.Response
	sent      body
	received  body
	events    []streamEvent
	endReason string // it ended
}

type roundTripKey struct {
	capture string
	number  uint64
}

// A body is that of an HTTP message, up to a limit.
type body struct {
	data      []byte
	wireBytes int64
	cut       bool
	encoding  string
}

// A streamEvent is one of an event stream.
type streamEvent struct {
	at   time.Time
	sse  capture.SSE
	data string
}

// size is about what an exchange holds, in bytes.
func (rt *roundTrip) size() int {
	const overhead = 200 // of an event
	return len(rt.sent.data) + 2*len(rt.received.data) + overhead*len(rt.events)
}

func (b *body) add(e *capture.Event, data []byte, limit int) {
	n := e.Len
	if n == 0 {
		n = int64(len(e.Data))
	}
	b.wireBytes += n
	if room := limit - len(b.data); len(data) > room {
		data, b.cut = data[:max(0, room)], true
	}
	b.data = append(b.data, data...)
	b.cut = b.cut || e.Cut
	if e.Encoding != "" {
		b.encoding = e.Encoding
	}
}

// collector yields the HTTP exchanges of a capture, each when it has ended, and in the end those that have not.
type collector struct {
	limit         int // on bodies
	bufferedBytes int // bytes of bodies and events
	open          map[roundTripKey]*roundTrip
	order         []roundTripKey
	heads         map[string]*capture.Head
	omitted       Omitted
	each          func(x *roundTrip) error
}

func newCollector(limit int, each func(x *roundTrip) error) *collector {
	return &collector{limit: limit, open: map[roundTripKey]*roundTrip{}, heads: map[string]*capture.Head{}, each: each}
}

// run takes all events, and returns how many exchanges there were.
func (co *collector) run(events Events) (count int, err error) {
	each := co.each
	co.each = func(x *roundTrip) error {
		count++
		if x.sent.cut || x.received.cut {
			co.omitted.Cut++
		}
		return each(x)
	}
	for e, err := range events {
		if err != nil {
			return count, err
		}
		if err := co.add(e); err != nil {
			return count, err
		}
	}
	for len(co.order) > 0 {
		if err := co.finish(co.order[0]); err != nil {
			return count, err
		}
	}
	return count, nil
}

func (co *collector) add(e *capture.Event) error {
	if e.Head != nil {
		co.heads[e.Capture] = e.Head
		return nil
	}
	k := roundTripKey{e.Capture, e.Exchange}
	if e.Kind == capture.KindRequest {
		return co.begin(k, e)
	}
	rt := co.open[k]
	if e.Exchange == 0 || rt == nil {
		if e.Kind != capture.KindTail {
			co.omitted.Events++
		}
		return nil
	}
	rt.last = e.At
	switch e.Kind {
	case capture.KindResponse:
		rt.response, rt.answered = e.Response, e.At
	case capture.KindMessage, capture.KindInvalid, capture.KindBody, capture.KindSSE:
		before := rt.size()
		co.payload(rt, e)
		co.bufferedBytes += rt.size() - before
		for co.bufferedBytes > maxBufferedBytes && len(co.order) > 1 {
			if err := co.finish(co.order[0]); err != nil {
				return err
			}
		}
	case capture.KindEnd:
		rt.ended, rt.endReason = e.At, string(e.Data)
		return co.finish(k)
	default:
		co.omitted.Events++
	}
	return nil
}

func (co *collector) begin(k roundTripKey, e *capture.Event) error {
	if co.open[k] != nil {
		if err := co.finish(k); err != nil {
			return err
		}
	}
	for len(co.order) >= maxOpenRoundTrips {
		if err := co.finish(co.order[0]); err != nil {
			return err
		}
	}
	rt := &roundTrip{key: k, session: e.Session, n: e.N, began: e.At, last: e.At, request: e.Request}
	if h := co.heads[k.capture]; h != nil {
		rt.server = h.Name
		if e.Side != capture.Downstream { // where clients come to a bridge instead
			rt.url = h.URL
		}
	}
	co.open[k] = rt
	co.order = append(co.order, k)
	return nil
}

// payload takes a part of a body.
func (co *collector) payload(rt *roundTrip, e *capture.Event) {
	if e.Dir == capture.ToServer {
		rt.sent.add(e, e.Data, co.limit)
		return
	}
	event := e.SSE
	if event == nil && rt.isEventStream() {
		event = &capture.SSE{} // a bridge records the messages of a stream, and not what else is in its events
	}
	if event == nil {
		rt.received.add(e, e.Data, co.limit)
		return
	}
	before := len(rt.received.data)
	rt.received.add(e, appendSSE(nil, event, e.Data), co.limit)
	if len(rt.events) == maxStreamEvents {
		rt.received.cut = true
	}
	if !rt.received.cut && len(rt.received.data) > before {
		rt.events = append(rt.events, streamEvent{e.At, *event, string(e.Data)})
	}
}

// isEventStream reports whether the response is an event stream, by what its head says.
func (rt *roundTrip) isEventStream() bool {
	if rt.response == nil {
		return false
	}
	for _, h := range rt.response.Headers {
		if strings.EqualFold(h.Name, "Content-Type") {
			media, _, _ := strings.Cut(h.Value, ";")
			return strings.EqualFold(strings.TrimSpace(media), "text/event-stream")
		}
	}
	return false
}

func (co *collector) finish(k roundTripKey) error {
	for i, o := range co.order {
		if o == k {
			co.order = append(co.order[:i], co.order[i+1:]...)
			break
		}
	}
	rt := co.open[k]
	delete(co.open, k)
	co.bufferedBytes -= rt.size()
	return co.each(rt)
}

// appendSSE appends an event of an event stream as it can have been on the wire: which line ends and spaces there were, captures do not say.
func appendSSE(b []byte, s *capture.SSE, data []byte) []byte {
	if s == nil {
		s = &capture.SSE{}
	}
	line := func(name, value string) {
		b = append(append(append(append(b, name...), ": "...), value...), '\n')
	}
	lines := func(name, text string) {
		for {
			one, rest, more := cutLine(text)
			line(name, one)
			if !more {
				return
			}
			text = rest
		}
	}
	if s.HasComment {
		lines("", s.Comment)
	}
	if s.Event != "" {
		line("event", s.Event)
	}
	if s.HasID {
		line("id", s.ID)
	}
	if s.HasRetry {
		line("retry", millisText(s.Retry))
	}
	if s.HasData || len(data) > 0 {
		lines("data", string(data))
	}
	return append(b, '\n')
}
