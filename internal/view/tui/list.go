package tui

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"mcpwire/capture"
	"mcpwire/internal/trace"
	"mcpwire/internal/wait"
)

// A selection has the rows of the timeline that match a filter. It is a [watch.Selection].
type selection interface {
	Len() int
	At(i int) *trace.Row
	Has(r *trace.Row) bool
	SearchProgress() (share float64, busy bool)
	Close()
}

// An anchor is the position of an item in a list. It is stable while items come and go: rows of
// the timeline are ordered by Seq, frames by time.
type anchor struct {
	// at is in Unix nanoseconds. It is 0 for rows.
	at int64
	// id is the Seq of a row, or orders frames with the same time.
	id uint64
}

func (p anchor) before(q anchor) bool {
	if p.at != q.at {
		return p.at < q.at
	}
	return p.id < q.id
}

// A position is a line of a list: the item's anchor and the row in the item. A zero row means the
// first one.
type position struct {
	place anchor
	row   uint64
}

// An entry is a line of a list with its content. It is valid while the model is locked.
type entry struct {
	row   *trace.Row
	depth int
	// frame is set in a list of frames.
	frame *frame
}

// A list is the content of the table. The model must be locked during calls. An item has several
// lines if it is unfolded.
type list interface {
	size() int
	anchorAt(i int) anchor
	// lines returns the lines of item i in buf[:0]: at least one.
	lines(i int, buf []entry) []entry
}

// A rowList is the list of the rows of a selection, with the rows inside unfolded ones.
type rowList struct {
	sel  selection
	fold *foldState
	// limit is the number of rows shown. -1 means all.
	limit int
}

func (l *rowList) size() int {
	if n := l.sel.Len(); l.limit < 0 || n < l.limit {
		return n
	}
	return l.limit
}

func (l *rowList) anchorAt(i int) anchor { return anchor{id: l.sel.At(i).Seq} }

func (l *rowList) lines(i int, buf []entry) []entry {
	return l.unfold(l.sel.At(i), 0, buf[:0])
}

// maxLines limits the lines of an item. A row has at most 256 children by default, but they may
// have children too.
const maxLines = 4096

func (l *rowList) unfold(r *trace.Row, depth int, buf []entry) []entry {
	buf = append(buf, entry{row: r, depth: depth})
	if !l.fold.isOpen(r.Seq) {
		return buf
	}
	for _, c := range r.Children {
		if len(buf) >= maxLines {
			break
		}
		buf = l.unfold(c, depth+1, buf)
	}
	return buf
}

// A foldState tells which rows show their children.
type foldState struct {
	// all is the state of rows that are not in exceptions.
	all bool
	// exceptions has the Seq of the rows with the other state.
	exceptions map[uint64]bool
}

// maxFolds limits the number of exceptions.
const maxFolds = 10_000

func (f *foldState) isOpen(seq uint64) bool { return f.all != f.exceptions[seq] }

// set folds or unfolds a row.
func (f *foldState) set(seq uint64, open bool) {
	if open == f.all {
		delete(f.exceptions, seq)
		return
	}
	if f.exceptions == nil || len(f.exceptions) >= maxFolds {
		f.exceptions = map[uint64]bool{}
	}
	f.exceptions[seq] = true
}

// setAll folds or unfolds all rows.
func (f *foldState) setAll(open bool) { f.all, f.exceptions = open, nil }

// find returns the index of the first item at or after an anchor.
func find(l list, p anchor) int {
	return sort.Search(l.size(), func(i int) bool { return !l.anchorAt(i).before(p) })
}

// A walker moves through the lines of a list. It is valid while the model is locked.
type walker struct {
	l list
	// i is the index of the item.
	i int
	// sub is the line in the item.
	sub int
	buf []entry
}

// walk returns a walker at or near a position. It returns false if the list is empty.
func walk(l list, s position) (*walker, bool) {
	n := l.size()
	if n == 0 {
		return nil, false
	}
	w := &walker{l: l, i: find(l, s.place)}
	if w.i == n {
		w.i = n - 1
		w.load()
		w.sub = len(w.buf) - 1
		return w, true
	}
	w.load()
	if s.row != 0 && l.anchorAt(w.i) == s.place {
		for k, e := range w.buf {
			if e.row.Seq == s.row {
				w.sub = k
			}
		}
	}
	return w, true
}

func (w *walker) load() { w.buf = w.l.lines(w.i, w.buf) }

func (w *walker) entry() entry { return w.buf[w.sub] }

func (w *walker) position() position {
	s := position{place: w.l.anchorAt(w.i)}
	if w.sub > 0 {
		s.row = w.buf[w.sub].row.Seq
	}
	return s
}

// next moves a line down. It returns false at the end.
func (w *walker) next() bool {
	if w.sub+1 < len(w.buf) {
		w.sub++
		return true
	}
	if w.i+1 >= w.l.size() {
		return false
	}
	w.i, w.sub = w.i+1, 0
	w.load()
	return true
}

// prev moves a line up. It returns false at the beginning.
func (w *walker) prev() bool {
	if w.sub > 0 {
		w.sub--
		return true
	}
	if w.i == 0 {
		return false
	}
	w.i--
	w.load()
	w.sub = len(w.buf) - 1
	return true
}

// move moves n lines, down if n is positive, and stops at the ends. It returns the number of lines
// moved.
func (w *walker) move(n int) (moved int) {
	for ; n > 0 && w.next(); n-- {
		moved++
	}
	for ; n < 0 && w.prev(); n++ {
		moved++
	}
	return moved
}

func (w *walker) end() {
	w.i = w.l.size() - 1
	w.load()
	w.sub = len(w.buf) - 1
}

func (w *walker) copy() *walker {
	c := *w
	c.buf = append([]entry(nil), w.buf...)
	return &c
}

// A frame is an event in the list of events.
type frame struct {
	// at is the Unix time in nanoseconds.
	at      int64
	n       uint64
	capture string
	// answer tells that the frame is the response of its row.
	answer bool
}

func (f *frame) time() time.Time { return time.Unix(0, f.at) }

// A frameView shows the table as a list of events, in chronological order.
type frameView struct {
	list *frameList
	// busy tells that a newer list is being built.
	busy bool
	// stale tells that the list being built is already outdated.
	stale bool
	// took is how long building the list took.
	took time.Duration
}

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

type framesMsg struct {
	list []frame
	took time.Duration
}

// rowsPerLock limits the rows read while the model is locked.
const rowsPerLock = 2000

// buildFrames rebuilds the list of events if it is shown. It works in steps, to lock the model
// only briefly, and reads the rows, to need no further memory.
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
	sel, src, pause := m.sel, m.src, min(10*v.took, 2*time.Second)
	return m.background.cmd(time.Minute, func(ctx context.Context) tea.Msg {
		// Rebuild a long list less often.
		wait.Sleep(ctx, pause)
		begun := time.Now()
		var all []frame
		from := anchor{}
		for more := true; more && ctx.Err() == nil; {
			src.Read(func(*trace.Model) { all, from, more = appendFrames(all, sel, from) })
		}
		return framesMsg{sortFrames(all), time.Since(begun)}
	})
}

// appendFrames appends the events of the next rows. It returns where to continue and whether there
// are more.
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

// gotFrames replaces the list of events.
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

// switchFrames switches between exchanges and events and keeps the position.
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

// A frameKind tells which part of an exchange a frame is.
type frameKind uint8

const (
	messageFrame frameKind = iota // a message, or the only event of a row
	httpFrame                     // an HTTP event
)

// setFrame sets the fields for drawing an event.
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

// setHTTPFrame sets the fields for drawing an HTTP event.
func (rv *rowView) setHTTPFrame(glyph string, dir capture.Dir, text string) {
	rv.frameKind, rv.glyph, rv.dir, rv.text, rv.requestBytes, rv.responseBytes = httpFrame, glyph, dir, text, 0, 0
}

func opposite(d capture.Dir) capture.Dir {
	if d == capture.ToServer {
		return capture.ToClient
	}
	return capture.ToServer
}

// outcome describes a response.
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

// moveCursor moves the cursor n lines down, or up if n is negative.
func (m *model) moveCursor(n int) {
	if m.sel == nil {
		return
	}
	m.src.Read(func(w *trace.Model) {
		l := m.list(w)
		at, ok := walk(l, m.cursor)
		if !ok {
			return
		}
		at.move(n)
		if n < 0 {
			m.follow = false
		}
		m.cursor = at.position()
	})
}

// toEnd moves the cursor to the last line.
func (m *model) toEnd() {
	if m.sel == nil {
		return
	}
	m.src.Read(func(w *trace.Model) {
		if at, ok := walk(m.list(w), m.cursor); ok {
			at.end()
			m.cursor = at.position()
		}
	})
}

// setFollow turns on or off that the cursor follows the newest line.
func (m *model) setFollow(on bool) {
	if m.follow = on; on {
		m.pause = nil
	}
}

// setPause pauses or resumes the table.
func (m *model) setPause() {
	if m.pause != nil {
		m.pause = nil
		return
	}
	p := &pauseState{at: m.now(), last: anchor{id: 1<<63 - 1}}
	m.src.Read(func(w *trace.Model) {
		if m.sel == nil {
			return
		}
		p.last = anchor{}
		if n := m.sel.Len(); n > 0 {
			p.last.id = m.sel.At(n - 1).Seq
		}
	})
	m.pause, m.follow = p, false
}

// maxScanRows limits the rows searched while the model is locked.
const maxScanRows = 20_000

// nextFailure moves to the next or previous row with a failure.
func (m *model) nextFailure(forward bool) {
	if m.sel == nil {
		return
	}
	found := false
	from := m.cursor
	for more := true; more && !found; {
		m.src.Read(func(w *trace.Model) {
			if from, found, more = m.findFailure(w, from, forward); found {
				m.cursor, m.follow = from, false
			}
		})
	}
	if !found {
		m.showFlash(false, "no more rows with an error or a finding")
	}
}

// findFailure searches the next rows for a failure. It returns the position of the failure, or
// where to continue and whether there are more rows. The caller must hold the lock of the model.
func (m *model) findFailure(w *trace.Model, from position, forward bool) (at position, found, more bool) {
	x, ok := walk(m.list(w), from)
	if !ok {
		return from, false, false
	}
	step := x.next
	if !forward {
		step = x.prev
	}
	for range maxScanRows {
		if !step() {
			return from, false, false
		}
		if r := x.entry().row; r != nil && hasFailure(r) {
			return x.position(), true, true
		}
	}
	return x.position(), false, true
}

// hasFailure reports whether something went wrong.
func hasFailure(r *trace.Row) bool {
	switch r.Status {
	case trace.Failed, trace.ToolFailed, trace.HTTPFailed, trace.Unanswered:
		return true
	}
	return len(r.Findings) > 0 || r.Kind == trace.Invalid || r.Kind == trace.Stdout || r.Kind == trace.Gap
}

// unfold shows or hides the children of the cursor's row. If they are already hidden, it moves to
// the parent and folds that.
func (m *model) unfold(open bool) {
	if m.sel == nil || m.frames != nil {
		return
	}
	m.src.Read(func(w *trace.Model) {
		at, ok := walk(m.list(w), m.cursor)
		if !ok {
			return
		}
		r := at.entry().row
		if open {
			m.folds.set(r.Seq, len(r.Children) > 0)
			return
		}
		if (len(r.Children) == 0 || !m.folds.isOpen(r.Seq)) && r.Parent != nil {
			r = r.Parent
			m.cursor.row = r.Seq
			if r.Parent == nil {
				m.cursor.row = 0
			}
		}
		m.folds.set(r.Seq, false)
	})
	if !open {
		m.follow = false
	}
}

// marked returns 1 or 2 for a row marked for comparison, and 0 for others.
func (m *model) marked(seq uint64) int {
	for i, s := range m.marks {
		if s == seq {
			return i + 1
		}
	}
	return 0
}

// toggleMark marks or unmarks the cursor's row. At most two rows are marked.
func (m *model) toggleMark() {
	seq := m.view.seq
	switch at := m.marked(seq); {
	case seq == 0:
		return
	case at > 0:
		m.marks = append(m.marks[:at-1:at-1], m.marks[at:]...)
		return
	case len(m.marks) == 2:
		m.marks = m.marks[1:]
	}
	m.marks = append(m.marks[:len(m.marks):len(m.marks)], seq)
	if len(m.marks) == 1 {
		m.showFlash(false, "marked; mark or select another row, and d compares the two")
		return
	}
	m.showFlash(false, "two are marked; d compares them")
}
