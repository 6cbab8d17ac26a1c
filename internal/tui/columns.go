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
	head  string
	width int
	right bool // a number
	cell  func(m *model, x *shownRow) line
	after bool // it stands behind the text of rows that are no request
	solo  bool // only requests have it: other rows use its place for their text
	skip  int  // the higher, the sooner it is left out
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
			if c.skip > 0 && (worst < 0 || c.skip > all[worst].skip) {
				worst = i
			}
		}
		if columns-sum >= want || worst < 0 {
			return fit(all, columns-sum)
		}
		if all[worst].head == "waterfall" && all[worst].width > 8 {
			all[worst].width = max(8, all[worst].width-(want-(columns-sum)))
			continue
		}
		all = append(all[:worst:worst], all[worst+1:]...)
	}
}

// fit gives the room that is left to the text, and some of it to the waterfall if there is plenty.
func fit(all []column, room int) []column {
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
	if m.tight() {
		status = 6
	}
	list := []column{
		{head: "#", width: 6, right: true, cell: cellNumber, skip: 30},
		{head: m.timeHead(), width: m.timeWidth(), right: true, cell: cellTime, skip: 20},
		{head: "", width: 2, cell: cellDir, skip: 80},
	}
	if several {
		list = append(list, column{head: "server", width: m.serverWidth(), cell: cellServer, skip: 22})
	}
	return append(list,
		column{head: "what", cell: cellWhat},
		column{head: "id", width: 6, cell: cellID, solo: true, skip: 90},
		column{head: "status", width: status, cell: cellStatus, solo: true, skip: 5},
		column{head: "req", width: 7, right: true, cell: cellRequest, solo: true, skip: 75},
		column{head: "res", width: 7, right: true, cell: cellResponse, solo: true, skip: 70},
		column{head: "latency", width: 8, right: true, cell: cellLatency, solo: true, skip: 4},
		column{head: "waterfall", width: 16, cell: cellWaterfall, after: true, skip: 25},
		column{head: "▲", width: 4, cell: cellLint, after: true, skip: 10},
	)
}

// tight reports whether the table has little room.
func (m *model) tight() bool {
	w := m.view.area.table.w
	return w < 70 || m.view.several && w < 100
}

// serverWidth is how wide the names of servers are.
func (m *model) serverWidth() int {
	if m.tight() {
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

func cellTime(m *model, x *shownRow) line {
	text := ""
	switch m.timeMode {
	case sinceStart:
		text = signed(x.at.Sub(m.view.began))
	case sinceLast:
		text = signed(x.at.Sub(x.before(m)))
	default:
		layout := "15:04:05.000"
		if m.timeWidth() == 8 {
			layout = "15:04:05"
		}
		text = x.at.In(m.zone).Format(layout)
	}
	return line{{m.theme.dim, text}}
}

// signed returns a duration as seconds with three decimals, or less if it is long.
func signed(d time.Duration) string {
	switch s := d.Seconds(); {
	case s >= 1e5 || s <= -1e4:
		return wireview.Duration(d.Round(time.Hour))
	case s >= 1e4 || s <= -1e3:
		return strconv.FormatFloat(s, 'f', 1, 64)
	default:
		return strconv.FormatFloat(s, 'f', 3, 64)
	}
}

// before returns the time of the line above.
func (x *shownRow) before(m *model) time.Time {
	at := m.view.above
	for i := range m.view.rows {
		if m.view.rows[i].spot == x.spot {
			break
		}
		at = m.view.rows[i].at
	}
	if at.IsZero() {
		return x.at
	}
	return at
}

func cellNumber(m *model, x *shownRow) line {
	return line{{m.theme.dim, strconv.FormatUint(x.n, 10)}}
}

func cellDir(m *model, x *shownRow) line {
	switch x.dir {
	case capture.ToServer:
		return line{{m.theme.request, "→"}}
	case capture.ToClient:
		return line{{m.theme.response, "←"}}
	}
	return nil
}

func cellServer(m *model, x *shownRow) line {
	text := x.server
	if x.sess > 1 {
		number := "/" + strconv.FormatUint(x.sess, 10)
		text = cut(text, max(1, m.serverWidth()-len(number))) + number
	}
	return line{{m.theme.dim, text}}
}

// cellWhat is the sign, the method or the kind, and what it is about.
func cellWhat(m *model, x *shownRow) line {
	t := m.theme
	fold := " "
	if x.fold != "" {
		fold = x.fold
	}
	l := line{{t.dim, spaces(2*min(x.depth, 6)) + fold}, {x.style(t), x.glyph + " "}}
	switch {
	case x.kind == wireview.Request && !x.frame:
		name := t.text
		if x.glyph == "✖" || x.glyph == "!" {
			name = x.style(t)
		}
		method := x.method
		if m.tight() && x.target != "" {
			method = strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(method, "tools/"), "resources/"), "prompts/")
		}
		l = append(l, span{name, method})
		if x.target != "" {
			l = append(l, span{name.plus(bold), " " + x.target})
		}
		if x.note != "" {
			l = append(l, span{t.dim, "  " + x.note})
		}
		return l
	case x.kind == wireview.HTTP && !x.frame:
		return append(l, span{t.text, x.text})
	}
	name, st := "", t.dim
	switch x.kind {
	case wireview.Invalid, wireview.Stdout, wireview.Response:
		st = t.lint
	case wireview.Notification:
		name = x.method + " "
	case wireview.Stderr, wireview.Gap, wireview.Note, wireview.Body:
		name = string(x.kind) + " "
	}
	if x.frame && x.kind == wireview.Request && x.part == wholeMessage {
		name = x.method + " "
	}
	return append(l, span{x.style(t), name}, span{st, x.text})
}

func cellID(m *model, x *shownRow) line { return line{{m.theme.dim, x.id}} }

func cellStatus(m *model, x *shownRow) line {
	st := m.theme.dim
	if x.status != wireview.OK {
		st = x.style(m.theme)
	}
	return line{{st, x.statusText(m.tight())}}
}

func cellRequest(m *model, x *shownRow) line  { return sizeCell(m, x.req) }
func cellResponse(m *model, x *shownRow) line { return sizeCell(m, x.res) }

func sizeCell(m *model, n int64) line {
	if n == 0 {
		return nil
	}
	return line{{m.theme.dim, wireview.Size(n)}}
}

func cellLatency(m *model, x *shownRow) line {
	st := m.theme.text
	if x.open {
		st = m.theme.pending
	}
	return line{{st, x.latency(m.view.now)}}
}

func cellLint(m *model, x *shownRow) line {
	if x.lints == 0 {
		return nil
	}
	st := m.theme.lint
	if x.grave {
		st = m.theme.fail
	}
	return line{{st, "▲" + strconv.Itoa(x.lints)}}
}
