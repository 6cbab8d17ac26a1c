package detail

import (
	"mcpwire/internal/wireview"
)

const (
	maxSegments = 400
	maxMarks    = 300
)

// timing adds the waterfall.
func (w *work) timing() {
	r := w.row
	t := Timing{At: r.Record.At, WallMS: ms(r.Wall), ServerMS: ms(r.Server), ClientMS: ms(r.Human)}
	for i, s := range r.Spans {
		if i == maxSegments {
			break
		}
		t.Segments = append(t.Segments, Segment{Kind: s.Kind, Label: label(s.Kind, r), FromMS: ms(s.From - r.T), ToMS: ms(s.To - r.T), Open: s.Open})
		t.Open = t.Open || s.Open
	}
	if r.Record.Role == wireview.Asked { // the time is the client's
		t.ServerMS, t.ClientMS = 0, t.WallMS
	} else if t.Open && r.Server == 0 && r.Record.Kind == wireview.Request && !stream(r) {
		t.ServerMS = max(0, t.WallMS-t.ClientMS)
	}
	for _, c := range r.Inside {
		if len(t.Marks) == maxMarks {
			break
		}
		t.Marks = append(t.Marks, Mark{MS: c.AtMS, N: c.N, Label: c.Summary})
	}
	w.d.Timing = t
}

// stream reports whether the row is one for as long as a stream is open.
func stream(r *Row) bool { return len(r.Spans) > 0 && r.Spans[0].Kind == wireview.SpanStream }

func label(k wireview.SpanKind, r *Row) string {
	switch k {
	case wireview.SpanClient:
		if len(r.Rounds) > 0 {
			return "the client gets the input"
		}
		if r.Record.Role == wireview.Asked {
			return "the client works"
		}
		return "the server waits for the client"
	case wireview.SpanTask:
		return "the task goes on"
	case wireview.SpanStream:
		return "the stream is open"
	}
	return "the server works"
}
