package wireview

import (
	"cmp"
	"slices"
	"time"

	"mcpwire/mcp"
)

// A SpanKind says what passes in a [Span].
type SpanKind string

// The kinds.
const (
	SpanServer SpanKind = "server" // the server works
	SpanClient SpanKind = "client" // the server waits for the client: for a user, a model
	SpanTask   SpanKind = "task"   // the task that the request became goes on
	SpanStream SpanKind = "stream" // a stream is open
)

// A Span is a part of the time that a row takes: what a waterfall is drawn of.
type Span struct {
	Kind SpanKind
	From time.Duration // since the capture began
	To   time.Duration // not before From. If Open, when the last event of the session was
	Open bool          // it goes on
}

// Stream reports whether the row is one for as long as a stream is open: what the server sends by itself comes in there.
func (r *Row) Stream() bool {
	switch r.Kind {
	case Request:
		return r.Method == mcp.MethodSubscriptionsListen
	case HTTP:
		return r.HTTP != nil && (r.HTTP.Stream || r.HTTP.Method == "GET" && r.HTTP.Status == 0)
	}
	return false
}

// Spans appends the parts of the time that a row takes to dst, without gaps, in their order; none for what is a moment. Requests of the server that have made room inside the row
// count as work of the server.
func (r *Row) Spans(dst []Span) []Span {
	if r.Kind != Request && r.Kind != HTTP {
		return dst
	}
	return append(dst, r.spans(dst[len(dst):])...)
}

// spans appends them to dst, which is empty.
func (r *Row) spans(dst []Span) []Span {
	kind := SpanServer
	if r.Stream() {
		kind = SpanStream
	} else if r.Role == Asked {
		kind = SpanClient
	}
	dst = r.round(dst, kind)
	if r.Chain != nil {
		dst = r.chain(dst)
	}
	if t := r.Task; t != nil {
		last := dst[len(dst)-1].To
		s := Span{Kind: SpanTask, From: last, To: r.T + t.Wall}
		if s.Open = !t.ended && r.Status == TaskMade; s.Open {
			s.To = r.now()
		}
		if s.To = max(s.To, s.From); s.Open || s.To > s.From {
			dst = append(dst, s)
		}
	}
	return dst
}

// round appends the time of one request, in which the server may have asked the client.
func (r *Row) round(dst []Span, kind SpanKind) []Span {
	all := Span{Kind: kind, From: r.T, To: r.T + r.Latency, Open: !r.Done}
	switch {
	case all.Open:
		all.To = max(all.From, r.now())
	case r.Latency == 0:
		all.To = max(all.From, r.until)
	}
	if kind != SpanServer {
		return append(dst, all)
	}
	at := all.From
	for _, w := range r.waits() {
		w.From, w.To = max(w.From, at), min(w.To, all.To)
		if w.To <= w.From {
			continue
		}
		if w.From > at {
			dst = append(dst, Span{Kind: SpanServer, From: at, To: w.From})
		}
		if n := len(dst); n > 0 && dst[n-1].Kind == SpanClient && dst[n-1].To == w.From { // one question follows at once on another
			dst[n-1].To, dst[n-1].Open = w.To, w.Open && all.Open
		} else {
			dst = append(dst, Span{Kind: SpanClient, From: w.From, To: w.To, Open: w.Open && all.Open})
		}
		at = w.To
	}
	if at < all.To || len(dst) == 0 || all.Open && !dst[len(dst)-1].Open {
		dst = append(dst, Span{Kind: kind, From: at, To: all.To, Open: all.Open})
	}
	return dst
}

// waits returns when the server waited for answers of the client, in the order in which it asked.
func (r *Row) waits() (list []Span) {
	for _, c := range r.Children {
		if c.Kind != Request || c.Role != Asked {
			continue
		}
		w := Span{From: c.T, To: max(c.T+c.Latency, c.until), Open: !c.Done}
		if w.Open {
			w.To = max(w.From, r.now())
		}
		list = append(list, w)
	}
	slices.SortStableFunc(list, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	return list
}

// chain appends the further rounds, and the time between them.
func (r *Row) chain(dst []Span) []Span {
	for _, c := range r.Children {
		if c.Role != Retry {
			continue
		}
		if last := dst[len(dst)-1].To; c.T > last {
			dst = append(dst, Span{Kind: SpanClient, From: last, To: c.T})
		}
		before := len(dst)
		dst = c.round(dst, SpanServer)
		for i := before; i < len(dst); i++ { // rounds that overlap, which no honest client makes
			dst[i].From = max(dst[i].From, dst[before-1].To)
			dst[i].To = max(dst[i].To, dst[i].From)
		}
	}
	if r.Status == InputRequired && r.Chain.waiting != (chainKey{}) {
		last := dst[len(dst)-1].To
		dst = append(dst, Span{Kind: SpanClient, From: last, To: max(last, r.now()), Open: true})
	}
	return dst
}

// now is when the last event of the row's session was.
func (r *Row) now() time.Duration { return r.Session.now }
