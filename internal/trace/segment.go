package trace

import (
	"cmp"
	"slices"
	"time"

	"mcpwire/mcp"
)

// A SegmentKind says what passes in a [Segment].
type SegmentKind string

// The kinds.
const (
	SegmentServer SegmentKind = "server" // the server works
	SegmentClient SegmentKind = "client" // the server waits for the client: for a user, a model
	SegmentTask   SegmentKind = "task"   // the task that the request became goes on
	SegmentStream SegmentKind = "stream" // a stream is open
)

// A Segment is a part of the time that a row takes: what a waterfall is drawn of.
type Segment struct {
	Kind SegmentKind
	From time.Duration // since the capture began
	To   time.Duration // not before From. If Open, when the last event of the session was
	Open bool          // it goes on
}

// IsStream reports whether the row is one for as long as a stream is open: what the server sends by itself comes in there.
func (r *Row) IsStream() bool {
	switch r.Kind {
	case Request:
		return r.Method == mcp.MethodSubscriptionsListen
	case HTTP:
		return r.HTTP != nil && (r.HTTP.Stream || r.HTTP.Method == "GET" && r.HTTP.Status == 0)
	}
	return false
}

// AppendSegments appends the parts of the time that a row takes to dst, without gaps, in their order; none for what is a moment. Requests of the server that have made room inside the row
// count as work of the server.
func (r *Row) AppendSegments(dst []Segment) []Segment {
	if r.Kind != Request && r.Kind != HTTP {
		return dst
	}
	return append(dst, r.appendSegments(dst[len(dst):])...)
}

// appendSegments appends them to dst, which is empty.
func (r *Row) appendSegments(dst []Segment) []Segment {
	kind := SegmentServer
	if r.IsStream() {
		kind = SegmentStream
	} else if r.Role == ServerRequest {
		kind = SegmentClient
	}
	dst = r.appendRound(dst, kind)
	if r.InputRounds != nil {
		dst = r.appendInputRounds(dst)
	}
	if t := r.Task; t != nil {
		last := dst[len(dst)-1].To
		s := Segment{Kind: SegmentTask, From: last, To: r.T + t.Wall}
		if s.Open = !t.isFinal && r.Status == TaskCreated; s.Open {
			s.To = r.lastT()
		}
		if s.To = max(s.To, s.From); s.Open || s.To > s.From {
			dst = append(dst, s)
		}
	}
	return dst
}

// appendRound appends the time of one request, in which the server may have asked the client.
func (r *Row) appendRound(dst []Segment, kind SegmentKind) []Segment {
	all := Segment{Kind: kind, From: r.T, To: r.T + r.Latency, Open: !r.Done}
	switch {
	case all.Open:
		all.To = max(all.From, r.lastT())
	case r.Latency == 0:
		all.To = max(all.From, r.abandonedAt)
	}
	if kind != SegmentServer {
		return append(dst, all)
	}
	at := all.From
	for _, w := range r.clientWaits() {
		w.From, w.To = max(w.From, at), min(w.To, all.To)
		if w.To <= w.From {
			continue
		}
		if w.From > at {
			dst = append(dst, Segment{Kind: SegmentServer, From: at, To: w.From})
		}
		if n := len(dst); n > 0 && dst[n-1].Kind == SegmentClient && dst[n-1].To == w.From { // one question follows at once on another
			dst[n-1].To, dst[n-1].Open = w.To, w.Open && all.Open
		} else {
			dst = append(dst, Segment{Kind: SegmentClient, From: w.From, To: w.To, Open: w.Open && all.Open})
		}
		at = w.To
	}
	if at < all.To || len(dst) == 0 || all.Open && !dst[len(dst)-1].Open {
		dst = append(dst, Segment{Kind: kind, From: at, To: all.To, Open: all.Open})
	}
	return dst
}

// clientWaits returns when the server waited for answers of the client, in the order in which it asked.
func (r *Row) clientWaits() (list []Segment) {
	for _, c := range r.Children {
		if c.Kind != Request || c.Role != ServerRequest {
			continue
		}
		w := Segment{From: c.T, To: max(c.T+c.Latency, c.abandonedAt), Open: !c.Done}
		if w.Open {
			w.To = max(w.From, r.lastT())
		}
		list = append(list, w)
	}
	slices.SortStableFunc(list, func(a, b Segment) int { return cmp.Compare(a.From, b.From) })
	return list
}

// appendInputRounds appends the further rounds, and the time between them.
func (r *Row) appendInputRounds(dst []Segment) []Segment {
	for _, c := range r.Children {
		if c.Role != Retry {
			continue
		}
		if last := dst[len(dst)-1].To; c.T > last {
			dst = append(dst, Segment{Kind: SegmentClient, From: last, To: c.T})
		}
		before := len(dst)
		dst = c.appendRound(dst, SegmentServer)
		for i := before; i < len(dst); i++ { // rounds that overlap, which no honest client makes
			dst[i].From = max(dst[i].From, dst[before-1].To)
			dst[i].To = max(dst[i].To, dst[i].From)
		}
	}
	if r.Status == InputRequired && r.InputRounds.awaiting != (roundKey{}) {
		last := dst[len(dst)-1].To
		dst = append(dst, Segment{Kind: SegmentClient, From: last, To: max(last, r.lastT()), Open: true})
	}
	return dst
}

// lastT is when the last event of the row's session was.
func (r *Row) lastT() time.Duration { return r.Session.lastT }
