package tui

import (
	"strconv"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/wireview"
)

// A rowView is a line of the table: all that is drawn of a row, copied while the model was locked. Its texts are safe.
type rowView struct {
	position      position
	seq           uint64
	n             uint64
	captureID     string
	session       uint64
	depth         int
	foldMark      string // "▸" if there is something inside, "▾" if it can be seen
	kind          trace.Kind
	glyph         string
	at            time.Time
	since         time.Duration // the beginning of the capture
	dir           capture.Dir
	server        string
	method        string
	target        string
	note          string // what it says: the arguments, or why it failed
	id            string
	status        trace.Status
	code          string
	requestBytes  int64
	responseBytes int64
	wall          time.Duration
	hasDuration   bool // it takes time
	pending       bool // and goes on
	findings      int
	hasError      bool // one of them is an error
	spans         []trace.Segment
	text          string // what there is to say about a row that is no request
	mark          int    // 1 and 2 are the rows to be compared
	frame         bool
	frameKind     frameKind // of an exchange, if it is a frame
}

// newRow copies what is drawn of an entry.
func (m *model) newRow(s position, e entry) rowView {
	r := e.row
	x := rowView{
		position: s, seq: r.Seq, n: r.N, captureID: r.Capture.ID, session: r.Session.Number, depth: e.depth, kind: r.Kind, glyph: trace.Glyph(r), at: r.At, since: r.T, dir: r.Dir,
		server: safe(m.serverLabel(r)), method: safe(r.Method), target: safe(r.Target), id: safe(r.ID), status: r.Status, code: r.CodeText(),
		requestBytes: r.RequestBytes, responseBytes: r.ResponseBytes, mark: m.marked(r.Seq),
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
		x.text = joinNonEmpty(safe(r.Target), safe(r.Excerpt))
	default:
		x.text = safe(trace.Summary(r))
	}
	if e.frame != nil {
		x.setFrame(r, e.frame)
		return x
	}
	if len(r.Children) > 0 {
		x.foldMark = "▸"
		if m.folds.isOpen(r.Seq) {
			x.foldMark = "▾"
		}
	}
	x.countFindings(r)
	return x
}

// serverLabel is what the column of the server says: which one, and which side if a bridge has recorded it, or that alone if there is no other.
func (m *model) serverLabel(r *trace.Row) string {
	if m.singleBridge && r.Session.Side != "" {
		return string(r.Session.Side)
	}
	if r.Session.Side != "" { // the end of a long name is cut off
		return string(r.Session.Side) + " " + r.Capture.Name
	}
	return r.Capture.Name
}

// countFindings counts the findings of a row, with those inside it.
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

// isPending reports whether time goes on passing for a row.
func isPending(r *trace.Row) bool {
	switch r.Status {
	case trace.Pending, trace.TaskCreated, trace.InputRequired:
		return true
	}
	return r.HTTP != nil && r.HTTP.Stream && !r.HTTP.Ended && r.Kind == trace.HTTP && !r.Done
}

// requestNote is what is worth saying about a request besides its columns.
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

// elapsed returns how long a row takes, so far if it goes on.
func (rv *rowView) elapsed(now time.Time) time.Duration {
	if rv.pending {
		return max(rv.wall, now.Sub(rv.at))
	}
	return rv.wall
}

// latencyText is the text for how long a row took.
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

// timerText is the text of a timer that counts: it changes ten times a second at most, and hardly in its width.
func timerText(d time.Duration) string {
	if d < time.Minute {
		return strconv.FormatFloat(d.Truncate(100*time.Millisecond).Seconds(), 'f', 1, 64) + " s"
	}
	if d < time.Hour {
		return d.Truncate(time.Second).String()
	}
	return strconv.Itoa(int(d.Hours())) + "h" + strings.TrimPrefix(strconv.Itoa(100+int(d.Minutes())%60), "1") + "m"
}

// statusText is what the column of the status says, in two lengths.
func (rv *rowView) statusText(short bool) string {
	if rv.frame {
		return ""
	}
	long, brief := string(rv.status), string(rv.status)
	switch rv.status {
	case trace.Failed:
		long, brief = "error "+rv.code, rv.code
	case trace.ToolFailed:
		long, brief = "isError", "isErr"
	case trace.InputRequired:
		long, brief = "needs input", "input?"
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
		long, brief = "no answer", "none"
	case trace.HTTPFailed:
		long, brief = "HTTP "+rv.code, rv.code
	}
	if short {
		return brief
	}
	return long
}

// style returns the style of the sign of a row.
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
