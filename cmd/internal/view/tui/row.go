package tui

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/mcp"
)

// A tableView has what is drawn of a table. It is copied from the hub after each message, so that
// drawing needs no lock.
type tableView struct {
	theme    *theme
	zone     *time.Location
	timeMode int
	width    int
	now      time.Time

	rows []rowView
	// cursor is an index in rows. -1 means no rows.
	cursor int
	// timeAbove is the time of the line above the first one.
	timeAbove time.Time
	// started is the start of the oldest capture.
	started time.Time
	items   int
	// all counts the rows that the timeline has had, regardless of the filter.
	all     int
	dropped uint64
	// whole means that the filter was applied to evicted rows too, and matches counts its matches.
	whole   bool
	matches uint64
	// sincePause counts the rows since the pause.
	sincePause      int
	multipleSources bool
	// singleBridge means that all rows are from one bridge.
	singleBridge bool
	// searchShare is the progress of the search in payloads, from 0 to 1.
	searchShare float64
	searching   bool
	session     trace.SessionInfo
	hasSession  bool
	// seq is the Seq of the cursor's row. Zero means none.
	seq uint64
	// root is the anchor of its root row.
	root anchor
	// at is the time of that row.
	at time.Time

	columns []column
	// choices are what the user has chosen about columns, by name.
	choices map[string]columnChoice
	scale   trace.TimeScale
}

// count counts captures and rows. The caller must hold the lock of the model.
func (v *tableView) count(w *trace.Model, sel selection) {
	v.all, v.dropped, v.whole = int(w.TotalRows()), w.EvictedRows(), sel.Whole()
	if v.whole {
		v.matches = sel.Matches()
		v.dropped = v.matches - uint64(sel.Len())
	}
	captures := w.Captures()
	v.multipleSources = len(captures) > 1
	for _, c := range captures {
		if c.HasSides() {
			v.multipleSources, v.singleBridge = true, len(captures) == 1
		}
		if v.started.IsZero() || c.Started.Before(v.started) {
			v.started = c.Started
		}
	}
}

// allText returns the number of rows that a filter is applied to.
func (v *tableView) allText() string {
	if v.dropped > 0 && !v.whole {
		return fmt.Sprintf("the newest %d of %d", v.all-int(v.dropped), v.all)
	}
	return strconv.Itoa(v.all)
}

// A rowView has all that is drawn of a row, copied while the model was locked. Its texts are safe.
type rowView struct {
	position position
	seq      uint64
	n        uint64
	// letters precede n: see [trace.Row.Number].
	letters string
	// serverIndex is Session.ServerIndex.
	serverIndex int
	session     uint64
	depth       int
	// foldMark is "▸" if the row has children, and "▾" if they are shown.
	foldMark string
	kind     trace.Kind
	glyph    string
	at       time.Time
	// since is the time since the beginning of the capture.
	since  time.Duration
	dir    capture.Dir
	server string
	// named means that server is the name of one of several servers behind a gateway.
	named  bool
	method string
	target string
	// note has the arguments or the reason for a failure.
	note          string
	id            string
	status        trace.Status
	code          string
	requestBytes  int64
	responseBytes int64
	wall          time.Duration
	hasDuration   bool
	// pending means that its time is still running.
	pending  bool
	findings int
	// hasError means that one of the findings is an error.
	hasError bool
	spans    []trace.Segment
	// text is the text of a row that is not a request.
	text string
	// mark is 1 or 2 for rows marked for comparison.
	mark  int
	frame bool
	// httpFrame means that the frame is an HTTP event.
	httpFrame bool
}

// newRow copies what is drawn of an entry.
func (t *table) newRow(s position, e entry) rowView {
	r := e.row
	if r == nil { // evicted since the frames were listed
		return rowView{
			position: s, n: e.frame.n, glyph: "·", at: e.frame.time(), text: "removed for newer rows",
			frame: true, httpFrame: true,
		}
	}
	x := rowView{
		position: s, seq: r.Seq, n: r.N, letters: letters(r), serverIndex: r.Session.ServerIndex(), session: r.Session.Number, depth: e.depth, kind: r.Kind, glyph: trace.Glyph(r), at: r.At, since: r.T, dir: r.Dir,
		server: safe(t.view.serverLabel(r)), named: r.Session.ServerName() != r.Capture.Name, method: safe(r.Method), target: safe(r.Target), id: safe(r.ID), status: r.Status, code: r.CodeText(),
		requestBytes: r.RequestBytes, responseBytes: r.ResponseBytes, mark: t.marked(r.Seq),
	}
	switch {
	case r.Kind == trace.Request || r.Kind == trace.HTTP:
		x.hasDuration = true
		x.wall, x.pending = r.Wall(), isPending(r)
		x.spans = r.AppendSegments(nil)
		x.note = requestNote(r)
		if r.Kind == trace.HTTP {
			x.text = safe(trace.Summary(r))
		}
	case r.Kind == trace.Notification:
		x.text = trace.Join(" ", safe(r.Target), safe(r.Excerpt))
	default:
		x.text = safe(trace.Summary(r))
	}
	if e.frame != nil {
		x.setFrame(r, e.frame)
		return x
	}
	switch {
	case e.run != nil:
		x.foldMark, x.text = "▸", runText(e.run)
	case e.runOpen:
		x.foldMark = "▾"
	}
	if len(r.Children) > 0 {
		x.foldMark = "▸"
		if t.folds.isOpen(r.Seq) {
			x.foldMark = "▾"
		} else if in := r.InsideMatch(t.query.parsed); in != nil {
			x.note = "inside: " + safe(trace.Join(" ", in.Method, trace.Summary(in)))
		}
	}
	x.countFindings(r)
	return x
}

// letters returns the letters before the number of a row.
func letters(r *trace.Row) string { return strings.TrimSuffix(r.Number(), number(r.N)) }

// serverLabel returns the name of the server and the side of a bridge, or only the side if there
// is one bridge. Behind a gateway, the name is that of the upstream server.
func (v *tableView) serverLabel(r *trace.Row) string {
	side, name := r.Session.Side, r.Session.ServerName()
	switch {
	case side == "":
		return name
	case v.singleBridge && name == r.Capture.Name:
		return trace.SideLabel(side)
	}
	return trace.SideLabel(side) + " " + name // side first: a long name is cut
}

// countFindings counts the findings of a row and the rows inside it.
func (rv *rowView) countFindings(r *trace.Row) {
	rv.findings = r.CountFindings()
	if rv.findings == 0 {
		return
	}
	for in := range r.All() {
		for _, l := range in.Findings {
			rv.hasError = rv.hasError || l.Severity == "error"
		}
	}
}

// isPending reports whether the time of a row is still running.
func isPending(r *trace.Row) bool {
	switch r.Status {
	case trace.Pending, trace.TaskCreated, trace.InputRequired:
		return true
	}
	return r.HTTP != nil && r.HTTP.Stream && !r.HTTP.Ended && r.Kind == trace.HTTP && !r.Done
}

func requestNote(r *trace.Row) string {
	switch {
	case r.Status == trace.ToolFailed && r.ResultInfo.Text != "":
		return safe(r.ResultInfo.Text)
	case r.Message != "":
		return safe(r.Message)
	case r.HTTP != nil && r.HTTP.EndReason != "" && r.Status == trace.HTTPFailed:
		return safe(r.HTTP.EndReason)
	case r.InputRounds != nil && r.InputRounds.Count > 1, r.Task != nil:
		_, after, _ := strings.Cut(trace.Summary(r), ": ")
		return safe(after)
	}
	return safe(r.Excerpt)
}

// elapsed returns the duration of a row, so far if it is pending.
func (rv *rowView) elapsed(now time.Time) time.Duration {
	if rv.pending {
		return max(rv.wall, now.Sub(rv.at))
	}
	return rv.wall
}

func (rv *rowView) latencyText(now time.Time) string {
	switch {
	case !rv.hasDuration || rv.frame:
		return ""
	case rv.pending:
		return timerText(rv.elapsed(now))
	case rv.wall == 0:
		return ""
	}
	return trace.FormatDuration(rv.wall)
}

// timerText formats a running timer. The text changes at most ten times a second and keeps its
// width.
func timerText(d time.Duration) string {
	if d < time.Minute {
		return strconv.FormatFloat(d.Truncate(100*time.Millisecond).Seconds(), 'f', 1, 64) + " s"
	}
	if d < time.Hour {
		return d.Truncate(time.Second).String()
	}
	return strconv.Itoa(int(d.Hours())) + "h" + strings.TrimPrefix(strconv.Itoa(100+int(d.Minutes())%60), "1") + "m"
}

// statusText returns the long or the short text of the status.
func (rv *rowView) statusText(short bool) string {
	if rv.frame {
		return ""
	}
	long, brief := rv.status.Word(), string(rv.status)
	switch rv.status {
	case trace.Failed:
		long, brief = "error "+rv.code, rv.code
	case trace.ToolFailed:
		brief = "failed"
	case trace.InputRequired:
		brief = "input?"
	case trace.TaskCreated:
		long = "task runs"
	case trace.Canceled:
		brief = "cancel"
	case trace.Pending:
		long, brief = "pending", "…"
		if rv.kind == trace.HTTP {
			long, brief = "open", "open"
		}
	case trace.Unanswered:
		brief = "none"
	case trace.HTTPFailed:
		long, brief = "HTTP "+rv.code, rv.code
	}
	if short {
		return brief
	}
	return long
}

func (rv *rowView) style(t *theme) style {
	switch rv.glyph {
	case "✖":
		return t.failure
	case "!":
		return t.toolFail
	case "▲", "▒", "⊘":
		return t.finding
	case "⇠":
		return t.serverRequest
	case "?", "…":
		return t.pending
	case "→":
		return t.request
	case "←":
		return t.response
	case "~":
		return t.stderr
	case "+", "-":
		return t.dim
	}
	return t.notification
}

// A column is a column of the table. The last column without a width gets the remaining room.
type column struct {
	// name identifies the column and describes it. It is empty if the column is always shown.
	name, head string
	width      int
	// right aligns numbers.
	right bool
	cell  func(v *tableView, x *rowView) line
	// requestOnly means that other rows use the column for their text.
	requestOnly bool
	// dropOrder says which columns are left out first: those with higher values.
	dropOrder int
}

// A columnChoice is what the user has chosen about a column. The zero value means that
// nothing was chosen.
type columnChoice struct {
	shown, hidden bool
	// width is in columns of the screen. Zero means the usual width.
	width int
}

// The limits of chosen widths.
const (
	minColumn = 3
	maxColumn = 60
)

// chosenColumns returns all columns without the hidden ones, with the chosen widths.
func (v *tableView) chosenColumns(several bool) []column {
	return slices.DeleteFunc(v.allColumns(several || v.choices[serverColumn].shown), func(c column) bool { return v.choices[c.name].hidden })
}

// columnsFor returns the columns that fit into a width, with their widths. It leaves out columns
// until the text has room.
func (v *tableView) columnsFor(columns int, several bool) []column {
	all := v.chosenColumns(several)
	want := min(42, columns*2/5) // columns for the text
	if several {
		want = min(42, columns*3/8)
	}
	for {
		sum, worst := 0, -1
		for i, c := range all {
			if c.width > 0 {
				sum += c.width + 1
			}
			if c.dropOrder > 0 && (worst < 0 || c.dropOrder > all[worst].dropOrder) {
				worst = i
			}
		}
		if columns-sum >= want || worst < 0 {
			return fillColumns(all, columns-sum)
		}
		if all[worst].head == "waterfall" && all[worst].width > 8 {
			all[worst].width = max(8, all[worst].width-(want-(columns-sum)))
			continue
		}
		if c := &all[worst]; c.name == serverColumn && c.width > 1 { // its color and sign remain
			c.head, c.width, c.cell, c.dropOrder = "", 1, cellServerSign, 3
			continue
		}
		all = append(all[:worst:worst], all[worst+1:]...)
	}
}

// fillColumns gives the remaining room to the text, and some to the waterfall if there is plenty.
func fillColumns(all []column, room int) []column {
	for i := range all {
		if all[i].head == "waterfall" && room > 70 && all[i].dropOrder > 1 {
			more := min(24, (room-70)/2)
			all[i].width += more
			room -= more
		}
	}
	for i := range all {
		if all[i].width == 0 {
			all[i].width = max(1, room)
		}
	}
	return all
}

// serverColumn is the name of the column with the server.
const serverColumn = "server"

// allColumns returns all columns with their widths. A column that the user wants to see is left out
// last.
func (v *tableView) allColumns(several bool) []column {
	status := 12
	if v.isNarrow() {
		status = 6
	}
	list := []column{
		{name: "number", head: "#", width: 6, right: true, cell: cellNumber, dropOrder: 30},
		{name: "time", head: v.timeHead(), width: v.timeWidth(), right: true, cell: cellTime, dropOrder: 20},
		{name: "direction", head: "", width: 2, cell: cellDir, dropOrder: 80},
	}
	if several {
		list = append(list, column{name: serverColumn, head: "server", width: v.serverWidth(), cell: cellServer, dropOrder: 22})
	}
	list = append(list,
		column{head: "what", cell: cellWhat},
		column{name: "id", head: "id", width: 6, cell: cellID, requestOnly: true, dropOrder: 90},
		column{name: "status", head: "status", width: status, cell: cellStatus, requestOnly: true, dropOrder: 5},
		column{name: "request size", head: "req", width: 7, right: true, cell: cellRequest, requestOnly: true, dropOrder: 75},
		column{name: "response size", head: "res", width: 7, right: true, cell: cellResponse, requestOnly: true, dropOrder: 70},
		column{name: "latency", head: "latency", width: 8, right: true, cell: cellLatency, requestOnly: true, dropOrder: 4},
		column{name: "waterfall", head: "waterfall", width: 16, cell: cellWaterfall, dropOrder: 25},
		column{name: "findings", head: "▲", width: 4, cell: cellFindings, dropOrder: 10},
	)
	for i := range list {
		c := &list[i]
		choice := v.choices[c.name]
		if choice.shown {
			c.dropOrder = 1
		}
		if choice.width > 0 {
			c.width = choice.width
		}
	}
	return list
}

// isNarrow reports whether the table has little room.
func (v *tableView) isNarrow() bool {
	w := v.width
	return w < 70 || v.multipleSources && w < 100
}

func (v *tableView) serverWidth() int {
	switch chosen := v.choices[serverColumn].width; {
	case chosen > 0:
		return chosen
	case v.isNarrow():
		return 8
	case v.width < 180:
		return 10
	}
	return 16
}

// The modes of showing times.
const (
	clockTime = iota
	sinceStart
	sinceLast
	timeModes
)

func (v *tableView) timeHead() string {
	switch v.timeMode {
	case sinceStart:
		return "since"
	case sinceLast:
		return "delta"
	}
	return "time"
}

func (v *tableView) timeWidth() int {
	if chosen := v.choices["time"].width; chosen > 0 {
		return chosen
	}
	if v.timeMode == clockTime && v.width < 110 {
		return 8
	}
	if v.timeMode == clockTime {
		return 12
	}
	return 9
}

func cellTime(v *tableView, rv *rowView) line {
	text := ""
	switch v.timeMode {
	case sinceStart:
		text = signed(rv.at.Sub(v.started))
	case sinceLast:
		text = signed(rv.at.Sub(rv.previousTime(v)))
	default:
		layout := "15:04:05.000"
		if v.timeWidth() < 12 {
			layout = "15:04:05"
		}
		text = rv.at.In(v.zone).Format(layout)
	}
	return line{{v.theme.dim, text}}
}

// signed formats a duration in seconds with three decimals, or fewer if it is long.
func signed(d time.Duration) string {
	switch s := d.Seconds(); {
	case s >= 1e5 || s <= -1e4:
		return trace.FormatDuration(d.Round(time.Hour))
	case s >= 1e4 || s <= -1e3:
		return strconv.FormatFloat(s, 'f', 1, 64)
	default:
		return strconv.FormatFloat(s, 'f', 3, 64)
	}
}

// previousTime returns the time of the line above.
func (rv *rowView) previousTime(v *tableView) time.Time {
	at := v.timeAbove
	for i := range v.rows {
		if v.rows[i].position == rv.position {
			break
		}
		at = v.rows[i].at
	}
	if at.IsZero() {
		return rv.at
	}
	return at
}

func cellNumber(v *tableView, rv *rowView) line {
	return line{{v.theme.dim, rv.letters + number(rv.n)}}
}

func cellDir(v *tableView, rv *rowView) line {
	switch rv.dir {
	case capture.ToServer:
		return line{{v.theme.request, "→"}}
	case capture.ToClient:
		return line{{v.theme.response, "←"}}
	}
	return nil
}

func cellServer(v *tableView, rv *rowView) line {
	text := rv.server
	if rv.session > 1 && !rv.named {
		number := "/" + strconv.FormatUint(rv.session, 10)
		text = cut(text, max(1, v.serverWidth()-len(number))) + number
	}
	return line{{v.theme.server(rv.serverIndex), text}}
}

// serverSigns tell servers apart without colors, as in the page.
var serverSigns = [...]string{"●", "■", "▲", "◆", "▼", "★", "✚"}

// cellServerSign shows the sign of the server, or of one bridge the first letter of the side.
func cellServerSign(v *tableView, rv *rowView) line {
	sign := serverSigns[rv.serverIndex%len(serverSigns)]
	if v.singleBridge && !strings.Contains(rv.server, " ") {
		sign = rv.server[:min(1, len(rv.server))]
	}
	return line{{v.theme.server(rv.serverIndex), sign}}
}

func (t *theme) server(index int) style {
	if n := len(t.servers); n > 0 {
		return t.servers[index%n]
	}
	return t.dim
}

// cellWhat shows the symbol, the method or kind, and the target.
func cellWhat(v *tableView, rv *rowView) line {
	t := v.theme
	fold := " "
	if rv.foldMark != "" {
		fold = rv.foldMark
	}
	l := line{{t.dim, spaces(2*min(rv.depth, 6)) + fold}, {rv.style(t), rv.glyph + " "}}
	switch {
	case rv.kind == trace.Request && !rv.frame:
		name := t.text
		if rv.glyph == "✖" || rv.glyph == "!" {
			name = rv.style(t)
		}
		method := rv.method
		if v.isNarrow() && rv.target != "" {
			method = strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(method, "tools/"), "resources/"), "prompts/")
		}
		switch {
		case rv.target == "":
			l = append(l, span{name, method})
		case namesTarget(rv.method):
			l = append(l, span{name.plus(bold), rv.target}, span{t.dim, " " + method})
		default:
			l = append(l, span{name, method}, span{t.dim, " " + rv.target})
		}
		if rv.note != "" {
			l = append(l, span{t.dim, "  " + rv.note})
		}
		return l
	case rv.kind == trace.HTTP && !rv.frame:
		return append(l, span{t.text, rv.text})
	}
	name, st := "", t.dim
	switch rv.kind {
	case trace.Invalid, trace.Stdout, trace.Response:
		st = t.finding
	case trace.Notification:
		name = rv.method + " "
	case trace.Stderr, trace.Gap, trace.Note, trace.Body:
		name = string(rv.kind) + " "
	}
	if rv.frame && rv.kind == trace.Request && !rv.httpFrame {
		name = rv.method + " "
	}
	return append(l, span{rv.style(t), name}, span{st, rv.text})
}

// namesTarget reports whether the target of a method, such as a tool, says more than the method.
func namesTarget(method string) bool {
	return method == mcp.MethodToolsCall || method == mcp.MethodPromptsGet || strings.HasPrefix(method, "resources/")
}

func cellID(v *tableView, rv *rowView) line { return line{{v.theme.dim, rv.id}} }

func cellStatus(v *tableView, rv *rowView) line {
	st := v.theme.dim
	if rv.status != trace.OK {
		st = rv.style(v.theme)
	}
	return line{{st, rv.statusText(v.isNarrow())}}
}

func cellRequest(v *tableView, rv *rowView) line { return sizeCell(v, rv.requestBytes) }

func cellResponse(v *tableView, rv *rowView) line { return sizeCell(v, rv.responseBytes) }

func sizeCell(v *tableView, n int64) line {
	if n == 0 {
		return nil
	}
	return line{{v.theme.dim, trace.FormatSize(n)}}
}

func cellLatency(v *tableView, rv *rowView) line {
	st := v.theme.text
	if rv.pending {
		st = v.theme.pending
	}
	return line{{st, rv.latencyText(v.now)}}
}

func cellFindings(v *tableView, rv *rowView) line {
	if rv.findings == 0 {
		return nil
	}
	st := v.theme.finding
	if rv.hasError {
		st = v.theme.failure
	}
	return line{{st, "▲" + strconv.Itoa(rv.findings)}}
}

// newTimeScale returns the scale of the waterfall, from the first visible row to the end of the
// last one. A gap is wide enough for a mark. All of them get at most a third of the scale.
func newTimeScale(rows []rowView, now time.Time) trace.TimeScale {
	var busy []trace.Interval
	for i := range rows {
		busy = rows[i].appendBusy(busy, now)
	}
	return trace.NewTimeScale(busy, func(active time.Duration, idle []time.Duration) []float64 {
		gap := max(active/6, time.Microsecond)
		gap = max(min(gap, active/2/time.Duration(max(1, len(idle)))), 1)
		return slices.Repeat([]float64{float64(gap)}, len(idle))
	})
}

// appendBusy appends the times in which a row was worked on. A row that waits for something else,
// or has no end yet, counts only by its ends; a pending one also by its first seconds, and a long
// one by its first and last seconds.
func (rv *rowView) appendBusy(busy []trace.Interval, now time.Time) []trace.Interval {
	end := rv.at.Add(rv.elapsed(now))
	add := func(from, to time.Time) { busy = append(busy, trace.Interval{From: from, To: to}) }
	add(rv.at, rv.at)
	switch {
	case rv.pending:
		add(rv.at, rv.at.Add(min(trace.MaxIdle, end.Sub(rv.at))))
		fallthrough
	case rv.status == trace.Unanswered:
		add(end, end)
		return busy
	}
	begun, from := rv.at.Add(-rv.since), rv.at
	for _, sp := range rv.spans {
		if sp.Kind == trace.SegmentServer {
			continue
		}
		if at := begun.Add(sp.From); at.After(from) {
			add(from, at)
		}
		if to := begun.Add(sp.To); to.After(from) {
			from = to
		}
	}
	if from.After(end) {
		from = end
	}
	if end.Sub(from) > 3*trace.MaxIdle {
		add(from, from.Add(trace.MaxIdle))
		from = end.Add(-trace.MaxIdle)
	}
	add(from, end)
	return busy
}

func cellWaterfall(v *tableView, rv *rowView) line {
	for _, c := range v.columns {
		if c.head == "waterfall" {
			return v.waterfall(rv, c.width)
		}
	}
	return nil
}

// idleMark stands where idle time is left out.
const idleMark = '┊'

// segmentSigns are what bars consist of.
var segmentSigns = map[trace.SegmentKind]rune{trace.SegmentServer: '█', trace.SegmentClient: '▒', trace.SegmentTask: '━', trace.SegmentStream: '─'}

// waterfall draws a row in n columns: "█" the server works, "▒" it waits for the client, "─" a task
// or stream runs, "›" no end yet, "·" a moment.
func (v *tableView) waterfall(rv *rowView, n int) line {
	t, s := v.theme, &v.scale
	column := func(at time.Time) int { return min(int(s.Place(at)*float64(n)), n-1) }
	cells := slices.Repeat([]rune{' '}, n)
	for _, g := range s.Segments {
		if g.Idle {
			cells[int((g.Begin+g.End-1)/2/s.Length*float64(n))] = idleMark
		}
	}
	if rv.frame || !rv.hasDuration {
		cells[column(rv.at)] = '·'
		return line{{t.dim, string(cells)}}
	}
	end := rv.at.Add(rv.elapsed(v.now))
	first, last := column(rv.at), column(end)
	for i := first; i <= last; i++ {
		cells[i] = '█'
	}
	begun := rv.at.Add(-rv.since)
	for _, sp := range rv.spans {
		to := begun.Add(sp.To)
		if sp.Open && rv.pending {
			to = end
		}
		for i := column(begun.Add(sp.From)); i <= column(to) && i <= last; i++ {
			cells[i] = segmentSigns[sp.Kind]
		}
	}
	if s.Place(end)-s.Place(rv.at) < 1/float64(4*n) && s.Length > 1 && first == last {
		cells[first] = '▏'
	}
	if rv.pending || rv.status == trace.Unanswered { // no end was seen
		cells[last] = '›'
	}
	st := t.bar
	switch rv.glyph {
	case "✖":
		st = t.failure
	case "!":
		st = t.toolFail
	case "⇠":
		st = t.serverRequest
	}
	if rv.pending {
		st = t.pending
	}
	return paintBar(cells, st, t.waiting, t.dim)
}

func paintBar(cells []rune, st, wait, idle style) line {
	of := func(c rune) style {
		switch c {
		case '▒':
			return wait
		case idleMark:
			return idle
		}
		return st
	}
	var l line
	for i := 0; i < len(cells); {
		j := i
		for j < len(cells) && of(cells[j]) == of(cells[i]) {
			j++
		}
		l = append(l, span{of(cells[i]), string(cells[i:j])})
		i = j
	}
	return l
}

func (v *tableView) heads() line {
	l := line{{"", spaces(markWidth)}}
	for _, c := range v.columns {
		text := pad(c.head, c.width)
		if c.right {
			text = padLeft(c.head, c.width)
		}
		if c.head == "what" {
			text = pad("   what", c.width)
		}
		l = append(l, span{v.theme.head, text}, span{"", " "})
	}
	return l[:len(l)-1]
}

func (v *tableView) rowLine(i int) line {
	rv := &v.rows[i]
	l := line{v.rowMark(rv, i == v.cursor)}
	request := rv.kind == trace.Request && !rv.frame
	for i := 0; i < len(v.columns); i++ {
		c := v.columns[i]
		columns := c.width
		if c.head == "what" && !request {
			// The text uses the place of cells that only requests have.
			for i+1 < len(v.columns) && v.columns[i+1].requestOnly {
				i++
				columns += v.columns[i].width + 1
			}
			columns = v.reserveLatency(rv, columns)
		}
		l = append(l, cell(c.cell(v, rv), columns, c.right)...)
		l = append(l, span{"", " "})
		if c.head == "what" && columns < c.width+v.requestOnlyWidth() && !request && rv.hasDuration {
			l = append(l, cell(cellLatency(v, rv), 8, true)...)
			l = append(l, span{"", " "})
		}
	}
	return l[:len(l)-1]
}

// whatColumn returns the column at which the text of a row begins.
func (v *tableView) whatColumn() int {
	x := markWidth
	for _, c := range v.columns {
		if c.head == "what" {
			break
		}
		x += c.width + 1
	}
	return x
}

// requestOnlyWidth returns the width of the cells that only requests have.
func (v *tableView) requestOnlyWidth() (n int) {
	for _, c := range v.columns {
		if c.requestOnly {
			n += c.width + 1
		}
	}
	return n
}

// reserveLatency reserves room for the timer of a row that is not a request.
func (v *tableView) reserveLatency(rv *rowView, columns int) int {
	if rv.hasDuration && !rv.frame && v.requestOnlyWidth() >= 9 {
		return columns - 9
	}
	return columns
}

// cell cuts or fills a cell.
func cell(l line, columns int, right bool) line {
	n := l.width()
	switch {
	case n > columns:
		return l.cut(columns)
	case right:
		return append(line{{"", spaces(columns - n)}}, l...)
	}
	return append(l[:len(l):len(l)], span{"", spaces(columns - n)})
}

// markWidth is the width of the cursor and the mark.
const markWidth = 3

// rowMark returns the first cell: the cursor and the number of a marked row.
func (v *tableView) rowMark(rv *rowView, selected bool) span {
	text := " "
	if selected {
		text = "❯"
	}
	if rv.mark > 0 {
		return span{v.theme.mark, text + strconv.Itoa(rv.mark) + " "}
	}
	return span{v.theme.mark, text + "  "}
}
