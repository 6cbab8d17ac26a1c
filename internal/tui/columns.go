package tui

import (
	"strconv"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/wireview"
)

// A column is one of the table's. The last one that has no width of its own gets what the others leave.
type column struct {
	head        string
	width       int
	right       bool // a number
	cell        func(m *model, x *rowView) line
	after       bool // it stands behind the text of rows that are no request
	requestOnly bool // only requests have it: other rows use its place for their text
	dropOrder   int  // the higher, the sooner it is left out
}

// columnsFor returns the columns for a table so wide, and the widths that they have: those that are needed least are left out until the text has room.
func (m *model) columnsFor(columns int, several bool) []column {
	all := m.allColumns(several)
	want := min(42, columns*2/5) // for the text
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
		all = append(all[:worst:worst], all[worst+1:]...)
	}
}

// fillColumns gives the room that is left to the text, and some of it to the waterfall if there is plenty.
func fillColumns(all []column, room int) []column {
	for i := range all {
		if all[i].head == "waterfall" && room > 70 {
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

func (m *model) allColumns(several bool) []column {
	status := 12
	if m.isNarrow() {
		status = 6
	}
	list := []column{
		{head: "#", width: 6, right: true, cell: cellNumber, dropOrder: 30},
		{head: m.timeHead(), width: m.timeWidth(), right: true, cell: cellTime, dropOrder: 20},
		{head: "", width: 2, cell: cellDir, dropOrder: 80},
	}
	if several {
		list = append(list, column{head: "server", width: m.serverWidth(), cell: cellServer, dropOrder: 22})
	}
	return append(list,
		column{head: "what", cell: cellWhat},
		column{head: "id", width: 6, cell: cellID, requestOnly: true, dropOrder: 90},
		column{head: "status", width: status, cell: cellStatus, requestOnly: true, dropOrder: 5},
		column{head: "req", width: 7, right: true, cell: cellRequest, requestOnly: true, dropOrder: 75},
		column{head: "res", width: 7, right: true, cell: cellResponse, requestOnly: true, dropOrder: 70},
		column{head: "latency", width: 8, right: true, cell: cellLatency, requestOnly: true, dropOrder: 4},
		column{head: "waterfall", width: 16, cell: cellWaterfall, after: true, dropOrder: 25},
		column{head: "▲", width: 4, cell: cellFindings, after: true, dropOrder: 10},
	)
}

// isNarrow reports whether the table has little room.
func (m *model) isNarrow() bool {
	w := m.view.area.table.w
	return w < 70 || m.view.multipleSources && w < 100
}

// serverWidth is how wide the names of servers are.
func (m *model) serverWidth() int {
	if m.isNarrow() {
		return 8
	}
	return 10
}

// The modes in which times are shown.
const (
	clockTime = iota
	sinceStart
	sinceLast
	timeModes
)

func (m *model) timeHead() string {
	switch m.timeMode {
	case sinceStart:
		return "since"
	case sinceLast:
		return "delta"
	}
	return "time"
}

func (m *model) timeWidth() int {
	if m.timeMode == clockTime && m.view.area.table.w < 110 {
		return 8
	}
	if m.timeMode == clockTime {
		return 12
	}
	return 9
}

func cellTime(m *model, rv *rowView) line {
	text := ""
	switch m.timeMode {
	case sinceStart:
		text = signed(rv.at.Sub(m.view.started))
	case sinceLast:
		text = signed(rv.at.Sub(rv.previousTime(m)))
	default:
		layout := "15:04:05.000"
		if m.timeWidth() == 8 {
			layout = "15:04:05"
		}
		text = rv.at.In(m.zone).Format(layout)
	}
	return line{{m.theme.dim, text}}
}

// signed returns a duration as seconds with three decimals, or less if it is long.
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
func (rv *rowView) previousTime(m *model) time.Time {
	at := m.view.timeAbove
	for i := range m.view.rows {
		if m.view.rows[i].position == rv.position {
			break
		}
		at = m.view.rows[i].at
	}
	if at.IsZero() {
		return rv.at
	}
	return at
}

func cellNumber(m *model, rv *rowView) line {
	return line{{m.theme.dim, strconv.FormatUint(rv.n, 10)}}
}

func cellDir(m *model, rv *rowView) line {
	switch rv.dir {
	case capture.ToServer:
		return line{{m.theme.request, "→"}}
	case capture.ToClient:
		return line{{m.theme.response, "←"}}
	}
	return nil
}

func cellServer(m *model, rv *rowView) line {
	text := rv.server
	if rv.session > 1 {
		number := "/" + strconv.FormatUint(rv.session, 10)
		text = cut(text, max(1, m.serverWidth()-len(number))) + number
	}
	return line{{m.theme.dim, text}}
}

// cellWhat is the sign, the method or the kind, and what it is about.
func cellWhat(m *model, rv *rowView) line {
	t := m.theme
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
		if m.isNarrow() && rv.target != "" {
			method = strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(method, "tools/"), "resources/"), "prompts/")
		}
		l = append(l, span{name, method})
		if rv.target != "" {
			l = append(l, span{name.plus(bold), " " + rv.target})
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
	if rv.frame && rv.kind == trace.Request && rv.frameKind == messageFrame {
		name = rv.method + " "
	}
	return append(l, span{rv.style(t), name}, span{st, rv.text})
}

func cellID(m *model, rv *rowView) line { return line{{m.theme.dim, rv.id}} }

func cellStatus(m *model, rv *rowView) line {
	st := m.theme.dim
	if rv.status != trace.OK {
		st = rv.style(m.theme)
	}
	return line{{st, rv.statusText(m.isNarrow())}}
}

func cellRequest(m *model, rv *rowView) line  { return sizeCell(m, rv.requestBytes) }
func cellResponse(m *model, rv *rowView) line { return sizeCell(m, rv.responseBytes) }

func sizeCell(m *model, n int64) line {
	if n == 0 {
		return nil
	}
	return line{{m.theme.dim, trace.FormatSize(n)}}
}

func cellLatency(m *model, rv *rowView) line {
	st := m.theme.text
	if rv.pending {
		st = m.theme.pending
	}
	return line{{st, rv.latencyText(m.view.now)}}
}

func cellFindings(m *model, rv *rowView) line {
	if rv.findings == 0 {
		return nil
	}
	st := m.theme.finding
	if rv.hasError {
		st = m.theme.failure
	}
	return line{{st, "▲" + strconv.Itoa(rv.findings)}}
}
