package trace

import (
	"cmp"
	"slices"
	"time"

	"mcpwire/mcp"
)

// A SegmentKind says who spends the time of a [Segment].
type SegmentKind string

// The segment kinds.
const (
	SegmentServer SegmentKind = "server" // the server works
	SegmentClient SegmentKind = "client" // the server waits for the client
	SegmentTask   SegmentKind = "task"   // the task runs
	SegmentStream SegmentKind = "stream" // a stream is open
)

// A Segment is a part of the time that a row takes. Waterfalls are drawn from segments.
type Segment struct {
	Kind SegmentKind
	// From is the start, since the capture began.
	From time.Duration
	// To is the end. It is not before From. If Open is set, it is the session's last event.
	To time.Duration
	// Open reports whether the segment has not ended.
	Open bool
}

// IsStream reports whether the row lasts as long as an open stream on which the server sends.
func (r *Row) IsStream() bool {
	switch r.Kind {
	case Request:
		return r.Method == mcp.MethodSubscriptionsListen
	case HTTP:
		return r.HTTP != nil && (r.HTTP.Stream || r.HTTP.Method == "GET" && r.HTTP.Status == 0)
	}
	return false
}

// AppendSegments appends the segments of the row to dst, in order and without gaps. A row without
// a duration has no segments. The time of evicted server requests counts as server time.
func (r *Row) AppendSegments(dst []Segment) []Segment {
	if r.Kind != Request && r.Kind != HTTP {
		return dst
	}
	return append(dst, r.appendSegments(dst[len(dst):])...)
}

// appendSegments appends the segments to dst, which must be empty.
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

// appendRound appends the time of one request, including requests of the server during it.
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
		// The next input request follows at once.
		if n := len(dst); n > 0 && dst[n-1].Kind == SegmentClient && dst[n-1].To == w.From {
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

// clientWaits returns when the server waited for the client, in the order of the requests.
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

// appendInputRounds appends the further rounds and the time between them.
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
		// A faulty client can send overlapping rounds.
		for i := before; i < len(dst); i++ {
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

// lastT returns the time of the last event of the row's session.
func (r *Row) lastT() time.Duration { return r.Session.lastT }
