package export

import (
	"strings"
	"time"

	"mcpwire/capture"
)

// An exchange is one of HTTP, as far as it has come.
type exchange struct {
	key      exchangeKey
	name     string // of the server
	url      string // of the server, "" if the capture does not say it
	session  uint64
	n        uint64 // of the first event
	began    time.Time
	answered time.Time // when the head of the response came
	ended    time.Time
	last     time.Time

	request  *capture.Request
	response *capture.Response
	sent     body
	received body
	events   []streamEvent
	why      string // it ended
}

type exchangeKey struct {
	capture string
	number  uint64
}

// A body is that of an HTTP message, up to a limit.
type body struct {
	data     []byte
	wire     int64
	cut      bool
	encoding string
}

// A streamEvent is one of an event stream.
type streamEvent struct {
	at   time.Time
	sse  capture.SSE
	data string
}

// size is about what an exchange holds, in bytes.
func (x *exchange) size() int {
	const overhead = 200 // of an event
	return len(x.sent.data) + 2*len(x.received.data) + overhead*len(x.events)
}

func (b *body) add(e *capture.Event, data []byte, limit int) {
	n := e.Len
	if n == 0 {
		n = int64(len(e.Data))
	}
	b.wire += n
	if room := limit - len(b.data); len(data) > room {
		data, b.cut = data[:max(0, room)], true
	}
	b.data = append(b.data, data...)
	b.cut = b.cut || e.Cut
	if e.Encoding != "" {
		b.encoding = e.Encoding
	}
}

// exchanges yields the HTTP exchanges of a capture, each when it has ended, and in the end those that have not.
type exchanges struct {
	limit int // on bodies
	held  int // bytes of bodies and events
	open  map[exchangeKey]*exchange
	order []exchangeKey
	heads map[string]*capture.Head
	left  Left
	each  func(x *exchange) error
}

func newExchanges(limit int, each func(x *exchange) error) *exchanges {
	return &exchanges{limit: limit, open: map[exchangeKey]*exchange{}, heads: map[string]*capture.Head{}, each: each}
}

// run takes all events, and returns how many exchanges there were.
func (s *exchanges) run(events Events) (count int, err error) {
	each := s.each
	s.each = func(x *exchange) error {
		count++
		if x.sent.cut || x.received.cut {
			s.left.Cut++
		}
		return each(x)
	}
	for e, err := range events {
		if err != nil {
			return count, err
		}
		if err := s.add(e); err != nil {
			return count, err
		}
	}
	for len(s.order) > 0 {
		if err := s.finish(s.order[0]); err != nil {
			return count, err
		}
	}
	return count, nil
}

func (s *exchanges) add(e *capture.Event) error {
	if e.Head != nil {
		s.heads[e.Capture] = e.Head
		return nil
	}
	k := exchangeKey{e.Capture, e.Exchange}
	if e.Kind == capture.KindRequest {
		return s.begin(k, e)
	}
	x := s.open[k]
	if e.Exchange == 0 || x == nil {
		if e.Kind != capture.KindTail {
			s.left.Events++
		}
		return nil
	}
	x.last = e.At
	switch e.Kind {
	case capture.KindResponse:
		x.response, x.answered = e.Response, e.At
	case capture.KindMessage, capture.KindBad, capture.KindBody, capture.KindSSE:
		before := x.size()
		s.payload(x, e)
		s.held += x.size() - before
		for s.held > maxHeld && len(s.order) > 1 {
			if err := s.finish(s.order[0]); err != nil {
				return err
			}
		}
	case capture.KindEnd:
		x.ended, x.why = e.At, string(e.Data)
		return s.finish(k)
	default:
		s.left.Events++
	}
	return nil
}

func (s *exchanges) begin(k exchangeKey, e *capture.Event) error {
	if s.open[k] != nil {
		if err := s.finish(k); err != nil {
			return err
		}
	}
	for len(s.order) >= maxOpen {
		if err := s.finish(s.order[0]); err != nil {
			return err
		}
	}
	x := &exchange{key: k, session: e.Session, n: e.N, began: e.At, last: e.At, request: e.Request}
	if h := s.heads[k.capture]; h != nil {
		x.name = h.Name
		if e.Side != capture.Near { // where clients come to a bridge instead
			x.url = h.URL
		}
	}
	s.open[k] = x
	s.order = append(s.order, k)
	return nil
}

// payload takes a part of a body.
func (s *exchanges) payload(x *exchange, e *capture.Event) {
	if e.Dir == capture.ToServer {
		x.sent.add(e, e.Data, s.limit)
		return
	}
	event := e.SSE
	if event == nil && x.streams() {
		event = &capture.SSE{} // a bridge records the messages of a stream, and not what else is in its events
	}
	if event == nil {
		x.received.add(e, e.Data, s.limit)
		return
	}
	before := len(x.received.data)
	x.received.add(e, appendSSE(nil, event, e.Data), s.limit)
	if len(x.events) == maxStreamed {
		x.received.cut = true
	}
	if !x.received.cut && len(x.received.data) > before {
		x.events = append(x.events, streamEvent{e.At, *event, string(e.Data)})
	}
}

// streams reports whether the response is an event stream, by what its head says.
func (x *exchange) streams() bool {
	if x.response == nil {
		return false
	}
	for _, h := range x.response.Headers {
		if strings.EqualFold(h.Name, "Content-Type") {
			media, _, _ := strings.Cut(h.Value, ";")
			return strings.EqualFold(strings.TrimSpace(media), "text/event-stream")
		}
	}
	return false
}

func (s *exchanges) finish(k exchangeKey) error {
	for i, o := range s.order {
		if o == k {
			s.order = append(s.order[:i], s.order[i+1:]...)
			break
		}
	}
	x := s.open[k]
	delete(s.open, k)
	s.held -= x.size()
	return s.each(x)
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
