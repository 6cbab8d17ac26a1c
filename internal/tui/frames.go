package tui

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"mcpwire/capture"
	"mcpwire/internal/wireview"
)

// A frame is an event in the list of events.
type frame struct {
	at      int64 // Unix time in nanoseconds
	n       uint64
	capture string
	answer  bool // it is the response of its row
}

func (f *frame) time() time.Time { return time.Unix(0, f.at) }

// A frameView is the table as a list of events, in the order in which they came.
type frameView struct {
	list  *frameList
	busy  bool          // a newer list is on its way
	stale bool          // and there is something newer still
	took  time.Duration // to make the list
}

// frameList is a list of events. What became of a row since is looked up when it is drawn.
type frameList struct {
	frames []frame
	rows   func(capture string, n uint64) *trace.Row // with the model locked
}

func (l *frameList) size() int { return len(l.frames) }

func (l *frameList) anchorAt(i int) anchor {
	return anchor{at: l.frames[i].at, id: uint64(i)}
}

func (l *frameList) lines(i int, buf []entry) []entry {
	f := &l.frames[i]
	return append(buf[:0], entry{row: l.rows(f.capture, f.n), frame: f})
}

type framesMsg struct {
	list []frame
	took time.Duration
}

// rowsPerLock is how many rows are looked at while the model is locked once.
const rowsPerLock = 2000

// buildFrames has the list of events made anew, if it is shown. It is made in steps, so that the model is never locked for long, and from the rows, so that it needs no memory else.
func (m *model) buildFrames(force bool) tea.Cmd {
	v := m.frames
	if v == nil || m.sel == nil || m.pause != nil && !force {
		return nil
	}
	if v.busy {
		v.stale = true
		return nil
	}
	v.busy, v.stale = true, false
	sel, src, wait := m.sel, m.src, min(10*v.took, 2*time.Second)
	return m.background.cmd(time.Minute, func(ctx context.Context) tea.Msg {
		select { // a long list is not made all the time
		case <-time.After(wait):
		case <-ctx.Done():
		}
		begun := time.Now()
		var all []frame
		from := anchor{}
		for more := true; more && ctx.Err() == nil; {
			src.Read(func(*trace.Model) { all, from, more = appendFrames(all, sel, from) })
		}
		return framesMsg{sortFrames(all), time.Since(begun)}
	})
}

// appendFrames appends the events of the next rows, and returns where to go on, and whether there is more.
func appendFrames(all []frame, sel selection, from anchor) ([]frame, anchor, bool) {
	x := &rowList{sel: sel, limit: -1, fold: &foldState{}}
	n := x.size()
	i := find(x, from)
	for end := min(n, i+rowsPerLock); i < end; i++ {
		for r := range sel.At(i).All() {
			all = appendRow(all, r)
		}
		from = anchor{id: sel.At(i).Seq + 1}
	}
	return all, from, i < n
}

// appendRow appends the events of one row. When each was is known of the first one and of the response; others come right behind those before them.
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

// sortFrames sorts events by their time, and never against the order of their capture.
func sortFrames(all []frame) []frame {
	latest := map[string]int64{}
	byCapture := map[string][]frame{}
	for _, f := range all {
		byCapture[f.capture] = append(byCapture[f.capture], f)
	}
	for c, list := range byCapture {
		slices.SortFunc(list, func(a, b frame) int { return cmp.Compare(a.n, b.n) })
		for i := range list {
			list[i].at = max(list[i].at, latest[c])
			latest[c] = list[i].at
		}
	}
	out := all[:0]
	for _, list := range byCapture {
		out = append(out, list...)
	}
	slices.SortFunc(out, func(a, b frame) int {
		return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.capture, b.capture), cmp.Compare(a.n, b.n))
	})
	return out
}

// gotFrames takes a list into use.
func (m *model) gotFrames(msg framesMsg) tea.Cmd {
	v := m.frames
	if v == nil {
		return nil
	}
	v.busy, v.took, v.list.frames = false, msg.took, msg.list
	if v.stale {
		return m.buildFrames(false)
	}
	return nil
}

// switchFrames changes between exchanges and events, and stays where it is.
func (m *model) switchFrames() tea.Cmd {
	if m.frames != nil {
		m.cursor = position{anchor{id: m.view.root}, m.view.seq}
		m.top = m.cursor
		m.frames = nil
		return nil
	}
	m.frames = &frameView{list: &frameList{}}
	m.cursor.place = anchor{at: m.view.at.UnixNano()}
	m.cursor.row, m.top = 0, m.cursor
	return m.buildFrames(true)
}

// A part says what a frame is of its exchange.
type frameKind uint8

const (
	messageFrame frameKind = iota // a request, a response, or all that there is
	httpFrame                     // something that HTTP says
)

// setFrame fills in what is drawn of an event.
func (rv *rowView) setFrame(r *trace.Row, f *frame) {
	rv.frame, rv.n, rv.at, rv.status, rv.hasDuration = true, f.n, f.time(), "", false
	switch h := r.HTTP; {
	case h != nil && f.n == h.RequestN:
		rv.setHTTPFrame("→", capture.ToServer, joinNonEmpty(safe(h.Method), safe(h.URL)))
	case h != nil && f.n == h.ResponseN:
		rv.setHTTPFrame("←", capture.ToClient, joinNonEmpty("HTTP", number(h.Status), safe(h.ContentType)))
	case h != nil && f.n == h.EndN:
		rv.setHTTPFrame("·", "", joinNonEmpty("end of the HTTP exchange", safe(h.EndReason)))
	case f.answer:
		rv.dir, rv.glyph = opposite(r.Dir), "←"
		if rv.dir == capture.ToServer {
			rv.glyph = "→"
		}
		rv.requestBytes, rv.responseBytes, rv.text = 0, r.ResponseBytes, outcome(r)
	case f.n == r.N:
		if rv.responseBytes = 0; r.Kind == trace.Request {
			rv.glyph, rv.text = "→", joinNonEmpty(rv.target, safe(r.Excerpt))
			if r.Dir == capture.ToClient {
				rv.glyph = "⇠"
			}
		}
	default:
		rv.setHTTPFrame("·", r.Dir, "another event of #"+number(r.N))
	}
}

// setHTTPFrame makes it the frame of a fact of HTTP.
func (rv *rowView) setHTTPFrame(glyph string, dir capture.Dir, text string) {
	rv.frameKind, rv.glyph, rv.dir, rv.text, rv.requestBytes, rv.responseBytes = httpFrame, glyph, dir, text, 0, 0
}

func opposite(d capture.Dir) capture.Dir {
	if d == capture.ToServer {
		return capture.ToClient
	}
	return capture.ToServer
}

// outcome says what a response says.
func outcome(r *trace.Row) string {
	switch r.Status {
	case trace.Failed:
		return joinNonEmpty("error", r.CodeText(), safe(r.Message))
	case trace.ToolFailed:
		return joinNonEmpty("the tool failed:", safe(r.ResultInfo.Text))
	case trace.HTTPFailed:
		return joinNonEmpty("HTTP", r.CodeText())
	}
	return joinNonEmpty("result", safe(r.ResultInfo.ResultType), safe(r.ResultInfo.Text))
}
