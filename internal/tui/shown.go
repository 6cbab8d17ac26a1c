package tui

import (
	"strconv"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/wireview"
)

// A shownRow is a line of the table: all that is drawn of a row, copied while the model was locked. Its texts are safe.
type shownRow struct {
	spot   spot
	seq    uint64
	n      uint64
	cap    string
	sess   uint64
	depth  int
	fold   string // "▸" if there is something inside, "▾" if it can be seen
	kind   wireview.Kind
	glyph  string
	at     time.Time
	since  time.Duration // the beginning of the capture
	dir    capture.Dir
	server string
	method string
	target string
	note   string // what it says: the arguments, or why it failed
	id     string
	status wireview.Status
	code   string
	req    int64
	res    int64
	wall   time.Duration
	timed  bool // it takes time
	open   bool // and goes on
	lints  int
	grave  bool // one of them is an error
	spans  []wireview.Span
	text   string // what there is to say about a row that is no request
	mark   int    // 1 and 2 are the rows to be compared
	frame  bool
	part   part // of an exchange, if it is a frame
}

// show copies what is drawn of an entry.
func (m *model) show(s spot, e entry) shownRow {
	r := e.row
	x := shownRow{
		spot: s, seq: r.Seq, n: r.N, cap: r.Capture.ID, sess: r.Session.Number, depth: e.depth, kind: r.Kind, glyph: wireview.Glyph(r), at: r.At, since: r.T, dir: r.Dir,
		server: safe(m.serverOf(r)), method: safe(r.Method), target: safe(r.Target), id: safe(r.ID), status: r.Status, code: r.CodeText(),
		req: r.RequestBytes, res: r.ResponseBytes, mark: m.marked(r.Seq),
	}
	switch {
	case r.Kind == wireview.Request || r.Kind == wireview.HTTP:
		x.timed = true
		x.wall, x.open = r.Wall(), unfinished(r)
		x.spans = r.Spans(nil)
		x.note = requestNote(r)
		if r.Kind == wireview.HTTP {
			x.text = safe(wireview.Summary(r))
		}
	case r.Kind == wireview.Notification:
		x.text = join(safe(r.Target), safe(r.Excerpt))
	default:
		x.text = safe(wireview.Summary(r))
	}
	if e.frame != nil {
		x.frames(r, e.frame)
		return x
	}
	if len(r.Children) > 0 {
		x.fold = "▸"
		if m.folds.open(r.Seq) {
			x.fold = "▾"
		}
	}
	x.lint(r)
	return x
}

// serverOf is what the column of the server says: which one, and which side if a bridge has recorded it, or that alone if there is no other.
func (m *model) serverOf(r *wireview.Row) string {
	if m.sided && r.Session.Side != "" {
		return string(r.Session.Side)
	}
	if r.Session.Side != "" { // the end of a long name is cut off
		return string(r.Session.Side) + " " + r.Capture.Name
	}
	return r.Capture.Name
}

// lint counts the findings of a row, with those inside it.
func (x *shownRow) lint(r *wireview.Row) {
	x.lints = r.CountLints()
	if x.lints == 0 {
		return
	}
	for in := range r.All() {
		for _, l := range in.Lints {
			x.grave = x.grave || l.Severity == "error"
		}
	}
}

// unfinished reports whether time goes on passing for a row.
func unfinished(r *wireview.Row) bool {
	switch r.Status {
	case wireview.Pending, wireview.TaskMade, wireview.InputRequired:
		return true
	}
	return r.HTTP != nil && r.HTTP.Stream && !r.HTTP.Ended && r.Kind == wireview.HTTP && !r.Done
}

// requestNote is what is worth saying about a request besides its columns.
func requestNote(r *wireview.Row) string {
	switch {
	case r.Status == wireview.ToolFailed && r.Facts.Text != "":
		return safe(r.Facts.Text)
	case r.Message != "":
		return safe(r.Message)
	case r.HTTP != nil && r.HTTP.End != "" && r.Status == wireview.HTTPFailed:
		return safe(r.HTTP.End)
	case r.Chain != nil && r.Chain.Rounds > 1, r.Task != nil:
		_, after, _ := strings.Cut(wireview.Summary(r), ": ")
		return safe(after)
	}
	return safe(r.Excerpt)
}

// passed returns how long a row takes, so far if it goes on.
func (x *shownRow) passed(now time.Time) time.Duration {
	if x.open {
		return max(x.wall, now.Sub(x.at))
	}
	return x.wall
}

// latency is the text for how long a row took.
func (x *shownRow) latency(now time.Time) string {
	switch {
	case !x.timed || x.frame:
		return ""
	case x.open:
		return counting(x.passed(now))
	case x.wall == 0:
		return ""
	}
	return wireview.Duration(x.wall)
}

// counting is the text of a timer that counts: it changes ten times a second at most, and hardly in its width.
func counting(d time.Duration) string {
	if d < time.Minute {
		return strconv.FormatFloat(d.Truncate(100*time.Millisecond).Seconds(), 'f', 1, 64) + " s"
	}
	if d < time.Hour {
		return d.Truncate(time.Second).String()
	}
	return strconv.Itoa(int(d.Hours())) + "h" + strings.TrimPrefix(strconv.Itoa(100+int(d.Minutes())%60), "1") + "m"
}

// statusText is what the column of the status says, in two lengths.
func (x *shownRow) statusText(short bool) string {
	if x.frame {
		return ""
	}
	long, brief := string(x.status), string(x.status)
	switch x.status {
	case wireview.Failed:
		long, brief = "error "+x.code, x.code
	case wireview.ToolFailed:
		long, brief = "isError", "isErr"
	case wireview.InputRequired:
		long, brief = "needs input", "input?"
	case wireview.TaskMade:
		long = "task runs"
	case wireview.Cancelled:
		brief = "cancel"
	case wireview.Pending:
		long, brief = "pending", "…"
		if x.kind == wireview.HTTP {
			long, brief = "open", "open"
		}
	case wireview.Unanswered:
		long, brief = "no answer", "none"
	case wireview.HTTPFailed:
		long, brief = "HTTP "+x.code, x.code
	}
	if short {
		return brief
	}
	return long
}

// style returns the style of the sign of a row.
func (x *shownRow) style(t *theme) style {
	switch x.glyph {
	case "✖":
		return t.fail
	case "!":
		return t.toolFail
	case "▲", "▒", "⊘":
		return t.lint
	case "⇠":
		return t.asked
	case "?", "…":
		return t.pending
	case "→":
		return t.request
	case "←":
		return t.response
	case "~":
		return t.stray
	case "+", "-":
		return t.dim
	}
	return t.note
}
