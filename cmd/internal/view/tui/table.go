package tui

import (
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/view/watch"
	"mcpwire/internal/text/plural"
)

// A table is a component: it lists exchanges or frames, and has a cursor. It keeps only the visible
// lines, however many there are.
type table struct {
	content
	area   rect
	cursor position
	top    position
	follow bool
	// blurred means that another part has the focus.
	blurred  bool
	timeMode int
	// marks has the Seq of the rows to compare, in the order in which they were marked.
	marks []uint64
	// choices are what the user has chosen about columns, by name.
	choices map[string]columnChoice
	view    tableView
}

// An openMsg means that the cursor's row was clicked.
type openMsg struct{}

// refresh copies the visible lines. It calls use with the cursor's row, or nil without rows, while
// the model is locked.
func (t *table) refresh(use func(current *trace.Row)) {
	t.view = tableView{
		theme: t.theme, zone: t.zone, timeMode: t.timeMode, width: t.area.w, now: t.clock(),
		rows: t.view.rows[:0], cursor: -1, choices: t.choices,
	}
	if t.sel != nil {
		t.src.Read(func(w *trace.Model) {
			t.view.count(w, t.sel)
			use(t.copyVisible(w))
		})
	}
	t.view.columns = t.view.columnsFor(t.area.w-markWidth, t.view.multipleSources)
	t.view.scale = newTimeScale(t.view.rows, t.view.now)
}

// copyVisible copies the visible lines and returns the cursor's row. The caller must hold the lock
// of the model.
func (t *table) copyVisible(w *trace.Model) *trace.Row {
	v := &t.view
	v.searchShare, v.searching = t.sel.SearchProgress()
	l, hidden := t.list(w)
	v.items, v.sincePause = l.size(), hidden
	at, ok := walk(l, t.cursor)
	if !ok {
		return nil
	}
	if t.follow && t.pause == nil {
		at.end()
	}
	t.cursor = at.position()
	current := at.entry().row
	if current != nil {
		v.session, v.hasSession = current.Session.Card(), true
		v.seq, v.root, v.at = current.Seq, anchorOf(current.Root()), current.At
	}
	t.scrollToCursor(l, at)
	top, _ := walk(l, t.top)
	if up := top.copy(); up.prev() {
		v.timeAbove = up.time()
	}
	for range t.rowsArea().h {
		s := top.position()
		if s == t.cursor {
			v.cursor = len(v.rows)
		}
		v.rows = append(v.rows, t.newRow(s, top.entry()))
		if !top.next() {
			break
		}
	}
	return current
}

// scrollToCursor scrolls so that the cursor is visible and the table has no empty lines.
func (t *table) scrollToCursor(l list, cursor *walker) {
	height := t.pageHeight()
	top, _ := walk(l, t.top)
	switch {
	case !cursor.atOrAfter(top):
		top = cursor.copy()
	case !top.isWithin(cursor, height-1):
		top = cursor.copy()
		top.move(-(height - 1))
	}
	backfill(top, height)
	t.top = top.position()
}

// rowsArea returns the area without the column heads.
func (t *table) rowsArea() rect {
	a := t.area
	if a.h > 2 {
		a.y, a.h = a.y+1, a.h-1
	}
	return a
}

func (t *table) pageHeight() int { return max(1, t.rowsArea().h) }

// Update handles changes of the hub and the mouse.
func (t *table) Update(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case changedMsg:
		if q := &t.query; t.view.dropped > 0 && !t.view.whole && !q.empty() && !q.busy && !q.widened {
			q.widened = true
			return t.selectRows()
		}
		return t.build(false)
	case tea.MouseClickMsg:
		return t.click(msg.X, msg.Y-t.rowsArea().y)
	case tea.MouseWheelMsg:
		t.moveCursor(wheelStep(msg))
	}
	return nil
}

// press handles a key, and reports whether it uses it.
func (t *table) press(k string) (tea.Cmd, bool) {
	if t.moveKey(k) {
		return nil, true
	}
	return t.key(k)
}

// moveKey handles a key that moves in the table. It returns false for other keys.
func (t *table) moveKey(k string) bool {
	if n := scrollStep(k, t.pageHeight()); n != 0 {
		t.moveCursor(n)
		return true
	}
	switch k {
	case "g", "home":
		t.cursor, t.follow = listStart, false
	case "G", "end":
		t.atCursor(func(at *walker) {
			at.end()
			t.cursor = at.position()
		})
	case "n":
		t.nextFailure(true)
	case "N":
		t.nextFailure(false)
	case "space":
		t.unfold(!t.folds.isOpen(t.view.seq))
	case "right":
		t.unfold(true)
	case "left":
		t.unfold(false)
	case "*":
		t.folds = foldState{all: !t.folds.all}
	default:
		return false
	}
	return true
}

// key handles a key that changes what the table shows. The second result is false for other keys.
func (t *table) key(k string) (tea.Cmd, bool) {
	switch k {
	case "f":
		if t.follow = !t.follow; t.follow {
			t.leaveSort()
			t.pause = nil
		}
	case "p":
		if t.togglePause() {
			t.follow = false
		}
	case "x":
		return t.switchFrames(), true
	case "t":
		t.timeMode = (t.timeMode + 1) % timeModes
	case "l":
		return t.setQuery(t.query.text, !t.query.findingsOnly), true
	case "m":
		t.toggleMark()
	case "o":
		t.goToOtherSide()
	default:
		return nil, false
	}
	return nil, true
}

// atCursor calls f with a walker at the cursor while the model is locked, unless there are no rows.
func (t *table) atCursor(f func(at *walker)) {
	if t.sel == nil {
		return
	}
	t.src.Read(func(w *trace.Model) {
		l, _ := t.list(w)
		if at, ok := walk(l, t.cursor); ok {
			f(at)
		}
	})
}

// moveCursor moves the cursor n lines down, or up if n is negative.
func (t *table) moveCursor(n int) {
	t.atCursor(func(at *walker) {
		at.move(n)
		if n < 0 {
			t.follow = false
		}
		t.cursor = at.position()
	})
}

// maxScanRows limits the rows searched while the model is locked.
const maxScanRows = 20_000

// nextFailure moves to the next or previous row with a failure.
func (t *table) nextFailure(forward bool) {
	if t.sel == nil {
		return
	}
	found := false
	from := t.cursor
	for more := true; more && !found; {
		t.src.Read(func(w *trace.Model) {
			l, _ := t.list(w)
			if from, found, more = findFailure(l, from, forward); found {
				t.cursor, t.follow = from, false
			}
		})
	}
	if !found {
		t.showFlash(false, "no more rows with an error or a finding")
	}
}

// findFailure searches the next rows for a failure. It returns the position of the failure, or
// where to continue and whether there are more rows. The caller must hold the lock of the model.
func findFailure(l list, from position, forward bool) (at position, found, more bool) {
	x, ok := walk(l, from)
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
	return r.Status.IsFailure() || len(r.Findings) > 0 || r.Kind == trace.Invalid || r.Kind == trace.Stdout || r.Kind == trace.Gap
}

// unfold shows or hides the children of the cursor's row. If they are already hidden, it moves to
// the parent and folds that.
func (t *table) unfold(open bool) {
	if t.sel == nil || t.built.isFrames() {
		return
	}
	t.atCursor(func(at *walker) {
		e := at.entry()
		r := e.row
		if first := runStart(r); first != nil && (open || e.run == nil) {
			t.folds.set(first.Seq, open)
			if !open {
				t.cursor.row = first.Seq
			}
			return
		}
		if open {
			t.folds.set(r.Seq, len(r.Children) > 0)
			return
		}
		if (len(r.Children) == 0 || !t.folds.isOpen(r.Seq)) && r.Parent != nil {
			r = r.Parent
			t.cursor.row = r.Seq
			if r.Parent == nil {
				t.cursor.row = 0
			}
		}
		t.folds.set(r.Seq, false)
	})
	if !open {
		t.follow = false
	}
}

// switchFrames switches between exchanges and frames and keeps the position.
func (t *table) switchFrames() tea.Cmd {
	if t.built.isFrames() {
		t.cursor = position{t.view.root, t.view.seq}
		t.top = t.cursor
		t.built = nil
		return nil
	}
	t.cursor.place = anchor{at: t.view.at.UnixNano()}
	t.cursor.row, t.top = 0, t.cursor
	return t.show(nil)
}

// leaveSort shows the rows in the order of time, for what moves to a row.
func (t *table) leaveSort() {
	if t.built.isSorted() {
		t.built = nil
		t.cursor, t.top = position{place: t.view.root}, position{}
	}
}

// goToOtherSide moves to the linked row on a bridge's other side.
func (t *table) goToOtherSide() {
	t.leaveSort()
	if t.sel == nil || t.built.isFrames() {
		t.showFlash(false, "o goes to a bridge's other side from an exchange; x shows those")
		return
	}
	found, linked := false, false
	t.atCursor(func(at *walker) {
		if at.entry().row == nil {
			return
		}
		others := at.entry().row.Counterparts()
		linked = len(others) > 0
		for _, o := range others {
			root := o.Root()
			to := position{place: anchorOf(root)}
			if !t.sel.Has(root) {
				continue
			}
			if o != root {
				for p := o.Parent; p != nil; p = p.Parent {
					t.folds.set(p.Seq, true)
				}
				to.row = o.Seq
			}
			t.cursor, t.follow, found = to, false, true
			return
		}
	})
	switch {
	case !linked:
		t.showFlash(false, "no bridge has translated this")
	case !found:
		t.showFlash(false, "the other side is not among what the filter shows")
	}
}

// marked returns 1 or 2 for a row marked for comparison, and 0 for others.
func (t *table) marked(seq uint64) int { return slices.Index(t.marks, seq) + 1 }

// toggleMark marks or unmarks the cursor's row. At most two rows are marked.
func (t *table) toggleMark() {
	seq := t.view.seq
	switch at := t.marked(seq); {
	case seq == 0:
		return
	case at > 0:
		t.marks = slices.Delete(t.marks, at-1, at)
		return
	case len(t.marks) == 2:
		t.marks = t.marks[1:]
	}
	t.marks = append(t.marks, seq)
	if len(t.marks) == 1 {
		t.showFlash(false, "marked; mark or select another row, and d compares the two")
		return
	}
	t.showFlash(false, "two are marked; d compares them")
}

// click moves the cursor to visible line i, or unfolds it by its triangle. A click on the cursor's
// row opens it.
func (t *table) click(x, i int) tea.Cmd {
	if i < 0 || i >= len(t.view.rows) {
		return nil
	}
	row := &t.view.rows[i]
	again := i == t.view.cursor
	t.cursor, t.follow = row.position, false
	t.view.seq = row.seq
	switch {
	case row.foldMark != "" && x == t.area.x+t.view.whatColumn()+2*min(row.depth, 6):
		t.unfold(row.foldMark == "▸")
	case again:
		return func() tea.Msg { return openMsg{} }
	}
	return nil
}

// View draws the column heads and the visible lines.
func (t *table) View() string {
	a := t.rowsArea()
	var lines []string
	if a.y > t.area.y {
		lines = append(lines, t.view.heads().draw(a.w))
	}
	selected := t.theme.selected
	if t.blurred {
		selected = t.theme.selectedBlurred
	}
	for i := range a.h {
		switch {
		case i >= len(t.view.rows):
			lines = append(lines, t.emptyLine(i).draw(a.w))
		case i != t.view.cursor:
			lines = append(lines, t.view.rowLine(i).draw(a.w))
		default:
			l := t.view.rowLine(i)
			if t.theme.selectedOverrides {
				l = l.plain()
			}
			lines = append(lines, l.drawOver(selected, a.w))
		}
	}
	return strings.Join(lines, "\n")
}

// emptyLine returns line i of the text in an empty table.
func (t *table) emptyLine(i int) line {
	if len(t.view.rows) > 0 {
		return nil
	}
	st, v := t.theme, &t.view
	var text []line
	switch {
	case t.sel == nil || t.query.busy:
		text = []line{{{st.dim, "Reading …"}}}
	case t.built.isSorted() && t.built.busy:
		text = []line{{{st.dim, "Sorting …"}}}
	case t.built.isFrames() && t.built.busy:
		text = []line{{{st.dim, "Sorting the frames …"}}}
	case v.all > 0:
		text = []line{{{st.text, "None of " + v.allText() + " rows match."}}, {{st.dim, "/ changes the filter, Esc clears it."}}}
		if v.searching {
			text = []line{{{st.pending, fmt.Sprintf("… Searching, %d %% so far.", int(v.searchShare*100))}}}
		}
	default:
		text = t.emptyHelp()
	}
	if i--; i >= 0 && i < len(text) {
		return append(line{{"", "   "}}, text[i]...)
	}
	return nil
}

// emptyHelp explains how to get traffic.
func (t *table) emptyHelp() []line {
	st := t.theme
	var out []line
	for _, s := range t.sources {
		if s.Err != "" {
			out = append(out, line{{st.failure, "✖ " + safe(s.Path+s.Name) + ": " + safe(s.Err)}})
		}
	}
	goes := slices.ContainsFunc(t.sources, func(s watch.Source) bool { return s.Err == "" && (s.State == watch.Live || s.State == watch.Growing) })
	switch {
	case goes:
		return append(out, line{{st.text, "No traffic yet."}}, line{{st.dim, "Traffic appears here at once."}})
	case len(t.sources) > len(out):
		return append(out, line{{st.text, "The recording is empty."}}, line{{st.dim, "It is no longer being written."}})
	}
	if out = append(out, line{{st.text, "No taps are running."}}); t.height > 12 {
		out = append(out, line{{st.dim, "Traffic of taps appears here at once. To start one:"}}, nil)
	}
	for _, x := range [][2]string{{"for a server", "mcpwire tap -- CMD…"}, {"on HTTP", "mcpwire tap --listen ADDR URL"}, {"in a host", "mcpwire wrap NAME"}} {
		out = append(out, line{{st.dim, pad(x[0], 14)}, {st.key, x[1]}})
	}
	return out
}

func (t *table) matchText() string {
	// Rows since a pause count too.
	n := t.view.items + t.view.sincePause
	switch {
	case t.query.busy:
		return "   filtering …"
	case t.view.searching:
		return fmt.Sprintf("   %d so far, searched %d %%", n, int(t.view.searchShare*100))
	}
	if t.view.whole {
		return fmt.Sprintf("   %d of %d", t.view.matches, t.view.all)
	}
	return fmt.Sprintf("   %d of %s", n, t.view.allText())
}

// stateLine returns whether the table is paused or follows.
func (t *table) stateLine() line {
	var l line
	switch {
	case t.pause != nil:
		text := " ‖ paused"
		if t.view.sincePause > 0 {
			text += fmt.Sprintf(", %d new", t.view.sincePause)
		}
		l = line{{t.theme.finding.plus(bold), text}}
	case t.follow:
		l = line{{t.theme.response, " ▼ follow"}}
	}
	if t.built.isFrames() {
		l = append(l, span{t.theme.serverRequest, " ≡ frames"})
	}
	if t.built.isSorted() {
		name, _, _ := strings.Cut(t.built.order.name, ",")
		l = append(l, span{t.theme.serverRequest, " ↓ by " + name})
	}
	return append(l, span{"", " "})
}

// countText returns the number of rows or frames. A row is an exchange, a line of standard error,
// or another event.
func (t *table) countText() string {
	if t.view.cursor < 0 {
		return ""
	}
	text := fmt.Sprintf("%d", t.view.items)
	what := " row"
	if t.built.isFrames() {
		what = " frame"
	}
	if t.view.items != 1 {
		what += "s"
	}
	if t.width < 60 {
		what = ""
	}
	if t.view.dropped > 0 && t.width >= 100 {
		what += fmt.Sprintf(", without %d older ones", t.view.dropped)
	}
	if t.older > 0 && t.width >= 100 {
		what += ", L: " + plural.Of(t.older, "older capture")
	}
	return text + what
}

// running reports whether something on the screen changes with time.
func (t *table) running() bool {
	running := t.view.searching || t.query.busy
	for i := range t.view.rows {
		running = running || t.view.rows[i].pending
	}
	return running
}
