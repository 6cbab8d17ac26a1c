package detail

import (
	"mcpwire/internal/wireview"
)

const (
	maxSegments = 400
	maxMarks    = 300
)

// addTiming adds the waterfall.
func (b *builder) addTiming() {
	r := b.snapshot
	t := Timing{At: r.Record.At, WallMS: millis(r.Wall), ServerMS: millis(r.ServerTime), ClientMS: millis(r.ClientTime)}
	for i, s := range r.Segments {
		if i == maxSegments {
			break
		}
		t.Segments = append(t.Segments, Segment{Kind: s.Kind, Label: segmentLabel(s.Kind, r), FromMS: millis(s.From - r.T), ToMS: millis(s.To - r.T), Open: s.Open})
		t.Open = t.Open || s.Open
	}
	if r.Record.Role == trace.ServerRequest { // the time is the client's
		t.ServerMS, t.ClientMS = 0, t.WallMS
	} else if t.Open && r.ServerTime == 0 && r.Record.Kind == trace.Request && !isStream(r) {
		t.ServerMS = max(0, t.WallMS-t.ClientMS)
	}
	for _, c := range r.Children {
		if len(t.Marks) == maxMarks {
			break
		}
		t.Marks = append(t.Marks, Mark{MS: c.AtMS, N: c.N, Label: c.Summary})
	}
	b.detail.Timing = t
}

// isStream reports whether the row is one for as long as a stream is open.
func isStream(r *Snapshot) bool {
	return len(r.Segments) > 0 && r.Segments[0].Kind == trace.SegmentStream
}

func segmentLabel(k trace.SegmentKind, r *Snapshot) string {
	switch k {
	case trace.SegmentClient:
		if len(r.Rounds) > 0 {
			return "the client gets the input"
		}
		if r.Record.Role == trace.ServerRequest {
			return "the client works"
		}
		return "the server waits for the client"
	case trace.SegmentTask:
		return "the task goes on"
	case trace.SegmentStream:
		return "the stream is open"
	}
	return "the server works"
}
