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
	rows   func(capture string, n uint64) *wireview.Row // with the model locked
}

func (l *frameList) size() int { return len(l.frames) }

func (l *frameList) placeOf(i int) place {
	return place{at: l.frames[i].at, id: uint64(i)}
}

func (l *frameList) lines(i int, buf []entry) []entry {
	f := &l.frames[i]
	return append(buf[:0], entry{row: l.rows(f.capture, f.n), frame: f})
}

type framesMsg struct {
	list []frame
	took time.Duration
}

// framesAtOnce is how many rows are looked at while the model is locked once.
const framesAtOnce = 2000

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
	return m.tasks.cmd(time.Minute, func(ctx context.Context) tea.Msg {
		select { // a long list is not made all the time
		case <-time.After(wait):
		case <-ctx.Done():
		}
		begun := time.Now()
		var all []frame
		from := place{}
		for more := true; more && ctx.Err() == nil; {
			src.Read(func(*wireview.Model) { all, from, more = appendFrames(all, sel, from) })
		}
		return framesMsg{order(all), time.Since(begun)}
	})
}

// appendFrames appends the events of the next rows, and returns where to go on, and whether there is more.
func appendFrames(all []frame, sel selection, from place) ([]frame, place, bool) {
	x := &exchanges{sel: sel, limit: -1, fold: &folding{}}
	n := x.size()
	i := find(x, from)
	for end := min(n, i+framesAtOnce); i < end; i++ {
		for r := range sel.At(i).All() {
			all = appendRow(all, r)
		}
		from = place{id: sel.At(i).Seq + 1}
	}
	return all, from, i < n
}

// appendRow appends the events of one row. When each was is known of the first one and of the response; others come right behind those before them.
func appendRow(all []frame, r *wireview.Row) []frame {
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

// order sorts events by their time, and never against the order of their capture.
func order(all []frame) []frame {
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
		m.cursor = spot{place{id: m.view.root}, m.view.seq}
		m.top = m.cursor
		m.frames = nil
		return nil
	}
	m.frames = &frameView{list: &frameList{}}
	m.cursor.place = place{at: m.view.at.UnixNano()}
	m.cursor.row, m.top = 0, m.cursor
	return m.buildFrames(true)
}

// A part says what a frame is of its exchange.
type part uint8

const (
	wholeMessage part = iota // a request, a response, or all that there is
	httpFact                 // something that HTTP says
)

// frames fills in what is drawn of an event.
func (x *shownRow) frames(r *wireview.Row, f *frame) {
	x.frame, x.n, x.at, x.status, x.timed = true, f.n, f.time(), "", false
	switch h := r.HTTP; {
	case h != nil && f.n == h.RequestN:
		x.http("→", capture.ToServer, join(safe(h.Method), safe(h.URL)))
	case h != nil && f.n == h.ResponseN:
		x.http("←", capture.ToClient, join("HTTP", number(h.Status), safe(h.ContentType)))
	case h != nil && f.n == h.EndN:
		x.http("·", "", join("end of the HTTP exchange", safe(h.End)))
	case f.answer:
		x.dir, x.glyph = opposite(r.Dir), "←"
		if x.dir == capture.ToServer {
			x.glyph = "→"
		}
		x.req, x.res, x.text = 0, r.ResponseBytes, outcome(r)
	case f.n == r.N:
		if x.res = 0; r.Kind == wireview.Request {
			x.glyph, x.text = "→", join(x.target, safe(r.Excerpt))
			if r.Dir == capture.ToClient {
				x.glyph = "⇠"
			}
		}
	default:
		x.http("·", r.Dir, "another event of #"+number(r.N))
	}
}

// http makes it the frame of a fact of HTTP.
func (x *shownRow) http(glyph string, dir capture.Dir, text string) {
	x.part, x.glyph, x.dir, x.text, x.req, x.res = httpFact, glyph, dir, text, 0, 0
}

func opposite(d capture.Dir) capture.Dir {
	if d == capture.ToServer {
		return capture.ToClient
	}
	return capture.ToServer
}

// outcome says what a response says.
func outcome(r *wireview.Row) string {
	switch r.Status {
	case wireview.Failed:
		return join("error", r.CodeText(), safe(r.Message))
	case wireview.ToolFailed:
		return join("the tool failed:", safe(r.Facts.Text))
	case wireview.HTTPFailed:
		return join("HTTP", r.CodeText())
	}
	return join("result", safe(r.Facts.Kind), safe(r.Facts.Text))
}
