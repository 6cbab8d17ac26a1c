package tui

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
)

// A frame is an event in the list of events.
type frame struct {
	// at is the Unix time in nanoseconds.
	at      int64
	n       uint64
	capture string
	// answer means that the frame is the response of its row.
	answer bool
}

func (f *frame) time() time.Time { return time.Unix(0, f.at) }

// A frameList is a list of events. Their rows are looked up when they are drawn, to show the
// latest state.
type frameList struct {
	frames []frame
	// rows finds the row of an event. The model must be locked.
	rows func(capture string, n uint64) *trace.Row
}

func (l *frameList) size() int { return len(l.frames) }

func (l *frameList) anchorAt(i int) anchor {
	return anchor{at: l.frames[i].at, id: uint64(i)}
}

func (l *frameList) lines(i int, buf []entry) []entry {
	f := &l.frames[i]
	return append(buf[:0], entry{row: l.rows(f.capture, f.n), frame: f})
}

// framesOf returns the events of the rows of a selection, in chronological order.
func framesOf(ctx context.Context, src source, sel selection) (all []frame) {
	_ = forEachRow(ctx, src, sel, func(root *trace.Row) { // what was read before the timeout
		for r := range root.All() {
			all = appendRow(all, r)
		}
	})
	return sortFrames(all)
}

// appendRow appends the events of one row. Only the times of the first event and the response are
// known; other events get the time of the first.
func appendRow(all []frame, r *trace.Row) []frame {
	at := r.At.UnixNano()
	for _, n := range r.Events {
		f := frame{at: at, n: n, capture: r.Capture.ID}
		if n == r.ResponseN && n != r.N {
			f.at, f.answer = r.At.Add(r.Latency).UnixNano(), true
		}
		all = append(all, f)
	}
	return all
}

// sortFrames sorts events by time, but keeps the order of each capture.
func sortFrames(all []frame) []frame {
	slices.SortFunc(all, func(a, b frame) int {
		return cmp.Or(strings.Compare(a.capture, b.capture), cmp.Compare(a.n, b.n))
	})
	for i := 1; i < len(all); i++ {
		if all[i].capture == all[i-1].capture {
			all[i].at = max(all[i].at, all[i-1].at)
		}
	}
	slices.SortFunc(all, func(a, b frame) int {
		return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.capture, b.capture), cmp.Compare(a.n, b.n))
	})
	return all
}

// setFrame sets the fields for drawing an event.
func (rv *rowView) setFrame(r *trace.Row, f *frame) {
	rv.frame, rv.n, rv.at, rv.status, rv.hasDuration = true, f.n, f.time(), "", false
	switch h := r.HTTP; {
	case h != nil && f.n == h.RequestN:
		rv.setHTTPFrame("→", capture.ToServer, trace.Join(" ", safe(h.Method), safe(h.URL)))
	case h != nil && f.n == h.ResponseN:
		rv.setHTTPFrame("←", capture.ToClient, trace.Join(" ", "HTTP", number(h.Status), safe(h.ContentType)))
	case h != nil && f.n == h.EndN:
		rv.setHTTPFrame("·", "", trace.Join(" ", "end of the HTTP exchange", safe(h.EndReason)))
	case f.answer:
		rv.dir, rv.glyph = trace.Opposite(r.Dir), "←"
		if rv.dir == capture.ToServer {
			rv.glyph = "→"
		}
		rv.requestBytes, rv.responseBytes, rv.text = 0, r.ResponseBytes, outcome(r)
	case f.n == r.N:
		if rv.responseBytes = 0; r.Kind == trace.Request {
			rv.glyph, rv.text = "→", trace.Join(" ", rv.target, safe(r.Excerpt))
			if r.Dir == capture.ToClient {
				rv.glyph = "⇠"
			}
		}
	default:
		rv.setHTTPFrame("·", r.Dir, "another event of #"+number(r.N))
	}
}

func (rv *rowView) setHTTPFrame(glyph string, dir capture.Dir, text string) {
	rv.httpFrame, rv.glyph, rv.dir, rv.text, rv.requestBytes, rv.responseBytes = true, glyph, dir, text, 0, 0
}

func outcome(r *trace.Row) string {
	switch r.Status {
	case trace.Failed:
		return trace.Join(" ", "error", r.CodeText(), safe(r.Message))
	case trace.ToolFailed:
		return trace.Join(" ", "the tool failed:", safe(r.ResultInfo.Text))
	case trace.HTTPFailed:
		return trace.Join(" ", "HTTP", r.CodeText())
	}
	return trace.Join(" ", "result", safe(r.ResultInfo.ResultType), safe(r.ResultInfo.Text))
}
