package trace

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/internal/text/clip"
)

// roundTripKey identifies an HTTP round trip.
type roundTripKey struct {
	capture *Capture
	number  uint64
}

const maxRoundTrips = 1 << 14 // HTTP round trips in progress

// roundTrips are the newest HTTP round trips in progress.
type roundTrips struct {
	byKey map[roundTripKey]*roundTrip
	order []roundTripKey
}

// of returns the HTTP round trip of an event, or nil.
func (t *roundTrips) of(s *Session, e *capture.Event) *roundTrip {
	if e.Exchange == 0 {
		return nil
	}
	return t.byKey[roundTripKey{s.Capture, e.Exchange}]
}

// begin adds the HTTP round trip of an event. It drops the oldest ones above maxRoundTrips.
func (t *roundTrips) begin(s *Session, e *capture.Event) *roundTrip {
	k := roundTripKey{s.Capture, e.Exchange}
	for len(t.byKey) >= maxRoundTrips && len(t.order) > 0 {
		delete(t.byKey, t.order[0])
		t.order = t.order[1:]
	}
	if t.order = append(t.order, k); len(t.order) > 2*maxRoundTrips {
		t.order = slices.DeleteFunc(t.order, func(k roundTripKey) bool { return t.byKey[k] == nil })
	}
	rt := &roundTrip{http: &HTTPInfo{Number: e.Exchange, RequestN: e.N}, startT: e.T}
	rt.events = append(rt.events, e.N)
	t.byKey[k] = rt
	return rt
}

// A roundTrip is an HTTP round trip that has not ended.
type roundTrip struct {
	http *HTTPInfo
	// row is the first row that the round trip carries. It is nil until there is one.
	row    *Row
	startT time.Duration
	// events are the numbers of the events before row was added.
	events []uint64
	hits   filter.Hits
}

// parent returns the row that can contain the events of the round trip, or nil. rt may be nil.
func (rt *roundTrip) parent() *Row {
	if rt == nil || rt.row == nil || rt.row.evicted {
		return nil
	}
	return rt.row
}

// attach sets r.HTTP if r is a client's request or the first row of the round trip. rt may be nil.
func (rt *roundTrip) attach(r *Row) {
	if rt == nil {
		return
	}
	if r.Kind == Request && r.Dir != capture.ToClient && r.HTTP == nil {
		r.HTTP = rt.http
	}
	if rt.row == nil && r.Dir != capture.ToClient {
		if r.HTTP == nil && r.Parent == nil {
			r.HTTP = rt.http
		}
		rt.setRow(r)
	}
}

// setRow makes r the row that the events of the round trip belong to.
func (rt *roundTrip) setRow(r *Row) {
	rt.row, r.roundTrip = r, rt
	for _, n := range rt.events {
		r.addEvent(n)
	}
	for p := r; p != nil; p = p.Parent {
		p.Hits |= rt.hits
	}
	rt.events = nil
}

// httpEvent handles an HTTP event.
func (m *Model) httpEvent(s *Session, e *capture.Event) {
	rt := m.roundTrips.of(s, e)
	if e.Kind == capture.KindRequest || rt == nil {
		rt = m.roundTrips.begin(s, e)
		rt.hits = m.timeline.hits
		if q := e.Request; q != nil {
			rt.http.Method, rt.http.URL = m.names.intern([]byte(q.Method)), clip.String(q.URL, maxExcerpt)
		}
		if e.Kind == capture.KindRequest {
			if rt.http.Method != "POST" {
				m.httpRow(s, e, rt)
			}
			return
		}
	}
	if rt.row == nil && (e.Kind != capture.KindEnd || rt.http.Method != "") {
		m.httpRow(s, e, rt)
	}
	r := rt.row
	if r == nil {
		return
	}
	if e.Kind != capture.KindSSE {
		r.addEvent(e.N)
	}
	switch e.Kind {
	case capture.KindResponse:
		m.httpResponse(rt, e)
	case capture.KindBody:
		rt.http.BodyBytes += WireLen(e)
		if r.Excerpt == "" && r.Kind == HTTP {
			r.Excerpt = excerpt(e.Data)
		}
	case capture.KindSSE:
		rt.http.addStreamEvent(e.N)
		if r.Kind == Request || r.Kind == HTTP {
			c := m.timeline.newRow(SSE, s, e)
			c.Excerpt, c.RequestBytes = sseText(e), WireLen(e)
			m.timeline.add(c, r)
		}
		return
	case capture.KindEnd:
		m.httpEnd(rt, e)
	}
	m.timeline.markUpdated(r)
}

// httpRow adds a row for an HTTP round trip without a message from the client.
func (m *Model) httpRow(s *Session, e *capture.Event, rt *roundTrip) {
	r := m.timeline.newRow(HTTP, s, e)
	r.Method, r.Target, r.HTTP, r.Status = rt.http.Method, rt.http.URL, rt.http, Pending
	r.T = rt.startT
	r.At = e.At.Add(r.T - e.T)
	if r.Dir = capture.ToServer; len(rt.events) > 0 {
		r.N = rt.events[0]
	}
	if r.Method == "GET" {
		r.Excerpt = ""
	}
	m.timeline.add(r, nil)
	rt.setRow(r)
}

func (m *Model) httpResponse(rt *roundTrip, e *capture.Event) {
	h := rt.http
	h.ResponseN = e.N
	if e.Response == nil {
		return
	}
	h.Status = e.Response.Status
	media := HeaderValue(e.Response.Headers, "Content-Type")
	h.ContentType, h.Stream = clip.String(media, maxName), IsEventStream(media)
	if r := rt.row; r.Kind == HTTP && h.Status >= 400 {
		r.Status, r.Code = HTTPFailed, h.Status
	}
}

func (m *Model) httpEnd(rt *roundTrip, e *capture.Event) {
	h, r := rt.http, rt.row
	h.EndN, h.EndReason, h.Ended = e.N, excerpt(e.Data), true
	delete(m.roundTrips.byKey, roundTripKey{r.Capture, h.Number})
	if r.roundTrip == rt {
		r.roundTrip = nil
	}
	switch {
	case r.Kind == HTTP:
		r.Done, r.Latency = true, max(0, e.T-r.T)
		if r.Status == Pending {
			r.Status = OK
		}
	case r.Kind != Request || r.Done || r.HTTP != h:
	// In the modern era, a request ends with its HTTP round trip.
	case h.Status >= 400, h.Status == 0, r.Revision != "":
		// A client cancels by closing the stream.
		if h.Status < 400 && r.Revision != "" && strings.Contains(strings.ToLower(h.EndReason), "client") {
			m.applyCancellation(r, e.T)
			r.Session.removePending(r)
			return
		}
		r.Latency = max(0, e.T-r.T)
		m.abandon(r)
	}
}

// HeaderValue returns the first value of a header field, or "".
func HeaderValue(list []capture.Header, name string) string {
	for _, h := range list {
		if strings.EqualFold(h.Name, name) {
			return h.Value
		}
	}
	return ""
}

// IsEventStream reports whether a Content-Type is that of an event stream.
func IsEventStream(media string) bool {
	kind, _, _ := strings.Cut(media, ";")
	return strings.EqualFold(strings.TrimSpace(kind), "text/event-stream")
}

// sseText describes a stream event without a message.
func sseText(e *capture.Event) string {
	var parts []string
	if s := e.SSE; s != nil {
		if s.HasComment {
			parts = append(parts, ": "+s.Comment)
		}
		if s.Event != "" {
			parts = append(parts, "event "+s.Event)
		}
		if s.HasID {
			parts = append(parts, "id "+s.ID)
		}
		if s.HasRetry {
			parts = append(parts, "retry "+strconv.FormatInt(s.Retry.Milliseconds(), 10)+" ms")
		}
	}
	if len(e.Data) > 0 {
		parts = append(parts, excerpt(e.Data))
	}
	return clip.String(strings.Join(parts, ", "), maxExcerpt)
}
