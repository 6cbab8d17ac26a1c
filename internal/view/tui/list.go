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
)

// A selection is the rows of the timeline that a filter lets through: a [watch.Selection].
type selection interface {
	Len() int
	At(i int) *trace.Row
	Has(r *trace.Row) bool
	SearchProgress() (share float64, busy bool)
	Close()
}

// A place is where a line stands in a list, whatever comes and goes around it: the rows of the timeline by their Seq, frames by their time.
type anchor struct {
	at int64  // in nanoseconds; 0 for rows
	id uint64 // Seq of the row of the timeline, or what tells frames of one time apart
}

func (p anchor) before(q anchor) bool {
	if p.at != q.at {
		return p.at < q.at
	}
	return p.id < q.id
}

// A spot is a line of a list: a place, and the row inside of what stands there. A zero row is the first one.
type position struct {
	place anchor
	row   uint64
}

// An entry is a line of a list with what it shows. It is good while the model is locked.
type entry struct {
	row   *trace.Row
	depth int
	frame *frame // in a list of frames
}

// A list is what the table shows. Its methods are called with the model locked. Items have one line, or more if they are unfolded.
type list interface {
	size() int
	anchorAt(i int) anchor
	lines(i int, buf []entry) []entry // appended to buf[:0]; at least one
}

// rowList is the list of the rows of a selection, with those inside the ones that are unfolded.
type rowList struct {
	sel   selection
	fold  *foldState
	limit int // how many of them are shown; -1 is all
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

// maxLines is how many lines one item can have. A row has 256 inside at most, but those may have some, too.
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

// A folding says which rows show what is inside them.
type foldState struct {
	all        bool            // those that are not in other do
	exceptions map[uint64]bool // Seq of rows that do not do as all
}

// maxFolds is how many rows are remembered that are not folded as all are.
const maxFolds = 10_000

func (f *foldState) isOpen(seq uint64) bool { return f.all != f.exceptions[seq] }

// set folds a row or unfolds it.
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

// setAll folds or unfolds all.
func (f *foldState) setAll(open bool) { f.all, f.exceptions = open, nil }

// find returns the index of the first item at a place or behind it.
func find(l list, p anchor) int {
	return sort.Search(l.size(), func(i int) bool { return !l.anchorAt(i).before(p) })
}

// A walker goes through the lines of a list, one after the other. It is good while the model is locked.
type walker struct {
	l   list
	i   int // the item
	sub int // the line in it
	buf []entry
}

// walk returns a walker at a spot, or at what is nearest to it, and whether there is anything at all.
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

// next goes a line down, and reports whether there is one.
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

// prev goes a line up, and reports whether there is one.
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

// move goes so many lines, down if n is above 0, and stops at the ends. It returns how many it went.
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

// moveCursor goes so many lines down, or up.
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

// toEnd goes to the last line.
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

// setFollow keeps the cursor on the newest line, or lets it be.
func (m *model) setFollow(on bool) {
	if m.follow = on; on {
		m.pause = nil
	}
}

// setPause stops the table, or lets it go on.
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

// maxScanRows is how many rows are looked at for the next problem while the model is locked.
const maxScanRows = 20_000

// nextFailure goes to the next row in which something went wrong, or the one before.
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
		m.showFlash(false, "no further row with an error or a finding")
	}
}

// findFailure looks for a row in which something went wrong among the next ones. It returns where that is, or where to go on, and whether there is more. The model is locked.
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

// unfold shows what is inside the row of the cursor, or hides it. Inside a row, it hides what is beside it, too.
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

// marked returns which of the rows to be compared a row is: 1, 2, or 0 for none.
func (m *model) marked(seq uint64) int {
	for i, s := range m.marks {
		if s == seq {
			return i + 1
		}
	}
	return 0
}

// toggleMark marks the row of the cursor, or takes its mark away. Two rows are marked at most.
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
		m.showFlash(false, "marked; mark another one, or go there, and d compares the two")
		return
	}
	m.showFlash(false, "two are marked; d compares them")
}
