package wireview

import (
	"slices"
	"strconv"
	"strings"

	"mcpwire/capture"
	"mcpwire/internal/filter"
)

// xkey is an HTTP exchange.
type xkey struct {
	capture  *Capture
	exchange uint64
}

// An xchg is an HTTP exchange that goes on.
type xchg struct {
	http    *HTTPFacts
	row     *Row // the first that it carries; nil as long as there is none
	session *Session
	events  []uint64 // that came before the row
	hits    filter.Hits
}

// parent is the row that what comes in the exchange may stand in. x may be nil.
func (x *xchg) parent() *Row {
	if x == nil || x.row == nil || x.row.dropped {
		return nil
	}
	return x.row
}

// exchange returns the HTTP exchange of a number, or nil if there is none.
func (m *Model) exchange(s *Session, number uint64) *xchg {
	if number == 0 {
		return nil
	}
	return m.xs[xkey{s.Capture, number}]
}

// begin makes an HTTP exchange.
func (m *Model) begin(s *Session, e *capture.Event) *xchg {
	k := xkey{s.Capture, e.Exchange}
	for len(m.xs) >= maxExchanges && len(m.xorder) > 0 {
		delete(m.xs, m.xorder[0])
		m.xorder = m.xorder[1:]
	}
	if m.xorder = append(m.xorder, k); len(m.xorder) > 2*maxExchanges {
		m.xorder = slices.DeleteFunc(m.xorder, func(k xkey) bool { return m.xs[k] == nil })
	}
	x := &xchg{http: &HTTPFacts{Exchange: e.Exchange, RequestN: e.N, began: e.T}, session: s}
	if q := e.Request; q != nil {
		x.http.Method, x.http.URL = m.name([]byte(q.Method)), clip(q.URL, maxExcerpt)
	}
	x.events, x.hits = append(x.events, e.N), m.hits
	m.xs[k] = x
	return x
}

// attach gives a row the facts of the HTTP exchange that it came in, if it is the first in it.
func (m *Model) attach(x *xchg, r *Row) {
	if x == nil {
		return
	}
	if r.Kind == Request && r.Dir != capture.ToClient && r.HTTP == nil {
		r.HTTP = x.http
	}
	if x.row == nil && r.Dir != capture.ToClient {
		if r.HTTP == nil && r.Parent == nil {
			r.HTTP = x.http
		}
		m.attachTo(x, r)
	}
}

// attachTo makes a row the one that the events of an exchange belong to.
func (m *Model) attachTo(x *xchg, r *Row) {
	x.row, r.xkey = r, xkey{r.Capture, x.http.Exchange}
	for _, n := range x.events {
		m.event(r, n)
	}
	for p := r; p != nil; p = p.Parent {
		p.Hits |= x.hits
	}
	x.events = nil
}

// http takes an event about HTTP.
func (m *Model) http(s *Session, e *capture.Event) {
	x := m.exchange(s, e.Exchange)
	if e.Kind == capture.KindRequest || x == nil {
		x = m.begin(s, e)
		if e.Kind == capture.KindRequest {
			if x.http.Method != "POST" {
				m.httpRow(s, e, x)
			}
			return
		}
	}
	if x.row == nil && (e.Kind != capture.KindEnd || x.http.Method != "") {
		m.httpRow(s, e, x)
	}
	r := x.row
	if r == nil {
		return
	}
	if e.Kind != capture.KindSSE {
		m.event(r, e.N)
	}
	switch e.Kind {
	case capture.KindResponse:
		m.httpResponse(x, e)
	case capture.KindBody:
		x.http.BodyBytes += wireLen(e)
		if r.Excerpt == "" && r.Kind == HTTP {
			r.Excerpt = excerpt(e.Data)
		}
	case capture.KindSSE:
		x.http.streamed(e.N)
		if r.Kind == Request || r.Kind == HTTP {
			c := m.newRow(SSE, s, e)
			c.Excerpt, c.RequestBytes = sseText(e), wireLen(e)
			m.put(c, r)
		}
		return
	case capture.KindEnd:
		m.httpEnd(x, e)
	}
	m.changed(r)
}

// httpRow adds a row for an exchange without a message from the client.
func (m *Model) httpRow(s *Session, e *capture.Event, x *xchg) {
	r := m.newRow(HTTP, s, e)
	r.Method, r.Target, r.HTTP, r.Status = x.http.Method, x.http.URL, x.http, Pending
	r.T = x.http.began
	r.At = e.At.Add(r.T - e.T)
	if r.Dir = capture.ToServer; len(x.events) > 0 {
		r.N = x.events[0]
	}
	if r.Method == "GET" {
		r.Excerpt = ""
	}
	m.put(r, nil)
	m.attachTo(x, r)
}

func (m *Model) httpResponse(x *xchg, e *capture.Event) {
	h := x.http
	h.ResponseN = e.N
	if e.Response == nil {
		return
	}
	h.Status = e.Response.Status
	for _, f := range e.Response.Headers {
		if strings.EqualFold(f.Name, "Content-Type") {
			h.ContentType = clip(f.Value, maxName)
			kind, _, _ := strings.Cut(f.Value, ";")
			h.Stream = strings.EqualFold(strings.TrimSpace(kind), "text/event-stream")
		}
	}
	if r := x.row; r.Kind == HTTP && h.Status >= 400 {
		r.Status, r.Code = HTTPFailed, h.Status
	}
}

func (m *Model) httpEnd(x *xchg, e *capture.Event) {
	h, r := x.http, x.row
	h.EndN, h.End, h.Ended = e.N, excerpt(e.Data), true
	delete(m.xs, xkey{r.Capture, h.Exchange})
	switch {
	case r.Kind == HTTP:
		r.Done, r.Latency = true, max(0, e.T-r.T)
		if r.Status == Pending {
			r.Status = OK
		}
	case r.Kind != Request || r.Done || r.HTTP != h:
	case h.Status >= 400, h.Status == 0, r.Revision != "": // in the modern era, a request ends with its exchange
		if h.Status < 400 && r.Revision != "" && strings.Contains(strings.ToLower(h.End), "client") { // and a client cancels by going away
			m.cancel(r, e.T)
			m.closed(r)
			return
		}
		r.Latency = max(0, e.T-r.T)
		m.abandon(r)
	}
}

// sseText describes an event of a stream that has no message.
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
	return clip(strings.Join(parts, ", "), maxExcerpt)
}
