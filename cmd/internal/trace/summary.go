package trace

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"mcpwire/capture"
	"mcpwire/internal/text/plural"
	"mcpwire/internal/text/printable"
	"mcpwire/mcp"
)

// Summary describes a row on one line: "called search: 3 contents, 1.2 kB, 43 ms". The text is
// escaped: see [Escape].
func Summary(r *Row) string {
	if len(r.Links) > 0 {
		return Join("  ", rowSummary(r), linkText(r))
	}
	return rowSummary(r)
}

func rowSummary(r *Row) string {
	switch r.Kind {
	case Request:
		return requestSummary(r)
	case Notification, Progress, Log:
		return Join(" ", notificationVerb(r), Join(": ", Escape(r.Target), Escape(r.Excerpt)))
	case Response:
		return Join(" ", "answered", Escape(r.ID), "to no known request:", Escape(r.Excerpt))
	case Invalid:
		return Join(" ", "sent what is not a message:", Escape(r.Excerpt))
	case Stdout:
		return Join(" ", "stray output:", Escape(r.Excerpt))
	case Stderr, Note:
		return Escape(r.Excerpt)
	case Start:
		return Join(" ", "started", Escape(r.Excerpt)+",", r.Target)
	case Exit:
		return Join(" ", "exited with", Escape(r.Excerpt))
	case EOF:
		if r.Dir == "c2s" {
			return "the client closed its end"
		}
		return "the server closed its end"
	case HTTP:
		return httpSummary(r)
	case SSE:
		return Join(" ", "stream event:", Escape(r.Excerpt))
	case Translate:
		return Join(" ", "translated:", Escape(r.Excerpt))
	}
	return Escape(r.Excerpt)
}

// Join joins the parts that are not empty.
func Join(sep string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), sep)
}

func requestSummary(r *Row) string {
	text := requestText(r)
	if out := outcomeText(r); out != "" {
		text += ": " + out
	}
	var times []string
	if c := r.InputRounds; c != nil && c.Count > 1 {
		times = append(times, fmt.Sprintf("%d rounds in %s (server %s, client %s)", c.Count, FormatDuration(c.Wall), FormatDuration(c.ServerTime), FormatDuration(c.ClientTime)))
	} else if r.Done && (r.ResponseN > 0 || r.Latency > 0) {
		t := FormatDuration(r.Latency)
		if r.ClientTime > 0 {
			t += fmt.Sprintf(" (server %s, client %s)", FormatDuration(r.ServerTime()), FormatDuration(r.ClientTime))
		}
		times = append(times, t)
	}
	if t := r.Task; t != nil {
		times = append(times, taskSummary(t))
	}
	return Join(", ", append([]string{text}, times...)...)
}

func taskSummary(t *Task) string {
	s := Join(" ", "task", Escape(t.ID), Escape(t.State))
	if t.Polls > 0 {
		s += fmt.Sprintf(" after %s", plural.Of(t.Polls, "poll"))
	}
	if t.isFinal {
		s += " and " + FormatDuration(t.Wall)
	}
	return s
}

// methodVerbs has the verbs of methods.
var methodVerbs = map[string]string{
	mcp.MethodInitialize:            "offered",
	mcp.MethodPing:                  "pinged",
	mcp.MethodSetLevel:              "set the log level to",
	mcp.MethodDiscover:              "discovered the server",
	mcp.MethodSubscriptionsListen:   "subscribed to changes",
	mcp.MethodToolsList:             "listed tools",
	mcp.MethodToolsCall:             "called",
	mcp.MethodResourcesList:         "listed resources",
	mcp.MethodResourceTemplatesList: "listed resource templates",
	mcp.MethodResourcesRead:         "read",
	mcp.MethodResourcesSubscribe:    "subscribed to",
	mcp.MethodResourcesUnsubscribe:  "unsubscribed from",
	mcp.MethodPromptsList:           "listed prompts",
	mcp.MethodPromptsGet:            "got prompt",
	mcp.MethodComplete:              "completed for",
	mcp.MethodTasksGet:              "polled task",
	mcp.MethodTasksResult:           "requested the result of task",
	mcp.MethodTasksList:             "listed tasks",
	mcp.MethodTasksCancel:           "cancelled task",
	mcp.MethodTasksUpdate:           "updated task",
	mcp.MethodElicit:                "requested input:",
	mcp.MethodCreateMessage:         "requested sampling",
	mcp.MethodRootsList:             "requested roots",
}

// requestText describes the request.
func requestText(r *Row) string {
	target := Escape(r.Target)
	verb := methodVerbs[r.Method]
	if verb == "" {
		verb = "sent " + Escape(r.Method)
	}
	if r.Role == Retry {
		target = Join(" ", target, "again")
	}
	return Join(" ", verb, target)
}

// outcomeText describes the outcome.
func outcomeText(r *Row) string {
	size := FormatSize(r.ResponseBytes)
	switch r.Status {
	case Pending:
		if r.IsStream() {
			return Join(", ", "open", streamText(r))
		}
		return "no response yet"
	case Unanswered:
		return Join(", ", "no response", endText(r))
	case Canceled:
		return Join(", ", "cancelled", endText(r))
	case Failed:
		return Join(" ", "error", r.CodeText(), Escape(r.Message))
	case HTTPFailed:
		return Join(", ", Join(" ", "HTTP", r.CodeText()), endText(r))
	case ToolFailed:
		return Join(", ", Join(": ", "the tool failed", Escape(r.ResultInfo.Text)), size)
	case InputRequired:
		return Join(", ", "needs input", countText(&r.ResultInfo))
	case TaskCreated:
		return ""
	}
	return Join(", ", handshakeText(r), countText(&r.ResultInfo), size)
}

// streamText returns how many messages came in the stream of a request, or "".
func streamText(r *Row) string {
	if n := len(r.Children) + r.EvictedChildren; n > 0 {
		return plural.Of(n, "message")
	}
	return ""
}

// endText returns why the HTTP round trip of a request ended, if it did not end normally.
func endText(r *Row) string {
	if r.HTTP == nil {
		return ""
	}
	return Escape(r.HTTP.EndReason)
}

func handshakeText(r *Row) string {
	if r.Method == mcp.MethodInitialize && r.Session.Negotiated != "" {
		return Join(" ", "answered", Escape(r.Session.Negotiated), Escape(r.Session.Server.Name), Escape(r.Session.Server.Version))
	}
	return ""
}

// countText returns how many items a result has.
func countText(f *ResultInfo) string {
	if f.ListName == "" {
		return ""
	}
	what := strings.TrimSuffix(f.ListName, "s")
	if what == "resourceTemplate" {
		what = "template"
	}
	s := plural.Of(f.Count, what)
	if f.Structured {
		s += " with structured content"
	}
	if f.HasMore {
		s += " and more"
	}
	return s
}

func notificationVerb(r *Row) string {
	switch r.Kind {
	case Progress:
		return "progress"
	case Log:
		return "log"
	}
	return Escape(strings.TrimPrefix(r.Method, "notifications/"))
}

func httpSummary(r *Row) string {
	h := r.HTTP
	if h == nil {
		return Escape(r.Excerpt)
	}
	out := "no response yet"
	switch {
	case h.Status != 0:
		out = fmt.Sprint("HTTP ", h.Status)
	case r.Done:
		out = "no response"
	}
	if h.Stream {
		out += ", stream"
	}
	if h.Events > 0 {
		out += ", " + plural.Of(h.Events, "event")
	}
	if h.BodyBytes > 0 {
		out += ", " + FormatSize(h.BodyBytes)
	}
	if r.Done {
		out += ", " + FormatDuration(r.Latency)
	}
	return Join(": ", Join(" ", Escape(h.Method), Escape(h.URL)), out, Escape(h.EndReason), Escape(r.Excerpt))
}

// Glyph returns the symbol of a row, one column wide. It carries the status without color.
func Glyph(r *Row) string {
	switch r.Kind {
	case Request, HTTP:
		switch r.Status {
		case Failed, HTTPFailed, Unanswered:
			return "✖"
		case ToolFailed:
			return "!"
		case Canceled:
			return "⊘"
		case InputRequired:
			return "?"
		case Pending, TaskCreated:
			return "…"
		}
		if r.Dir == capture.ToClient {
			return "⇠"
		}
		return "→"
	case Stderr:
		return "~"
	case Stdout, Invalid, Response:
		return "▲"
	case Start:
		return "+"
	case Exit, EOF:
		return "-"
	case Gap:
		return "▒"
	}
	return "•"
}

// FormatSize formats a number of bytes for people: "512 B", "1.2 kB".
func FormatSize(n int64) string {
	if n < 1000 && n > -1000 {
		return strconv.FormatInt(n, 10) + " B"
	}
	v := float64(n)
	for _, unit := range [...]string{"kB", "MB", "GB"} {
		if v /= 1000; v < 999.5 || unit == "GB" {
			return digits(v) + " " + unit
		}
	}
	return ""
}

// FormatCount formats a number for people: "12,345".
func FormatCount(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// FormatDuration formats a duration for people: "840 µs", "43 ms", "1.2 s", "2m03s".
func FormatDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + FormatDuration(-max(d, -1<<62))
	case d < time.Microsecond:
		return strconv.FormatInt(int64(d), 10) + " ns"
	case d < 999500*time.Nanosecond:
		return digits(float64(d)/1e3) + " µs"
	case d < 999500*time.Microsecond:
		return digits(float64(d)/1e6) + " ms"
	case d < time.Minute:
		return digits(d.Seconds()) + " s"
	}
	return d.Round(time.Second).String()
}

// digits formats a number, with one decimal below 10.
func digits(v float64) string {
	if v < 9.95 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// Escape returns text of a peer in a form that is safe to print on one line. Terminal control
// characters, line breaks, characters that change the writing direction, other invisible
// characters and invalid UTF-8 become Go escape sequences such as \x1b or \u202e. ASCII spaces and
// the ideographic space stay.
func Escape(s string) string { return printable.Line(s) }

// Width returns the number of terminal columns of an escaped text. It is exact for common scripts
// and approximate for others.
func Width(s string) (n int) {
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

func runeWidth(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me), r == '\ufe0e', r == '\ufe0f':
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3, r >= 0xf900 && r <= 0xfaff, r >= 0xfe30 && r <= 0xfe6f,
		r >= 0xff00 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6, r >= 0x1f300 && r <= 0x1faff, r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}

// Truncate cuts an escaped text to at most width columns, and marks a cut with "…". A width below
// 1 means no limit.
func Truncate(s string, width int) string {
	if width < 1 || len(s) <= width || Width(s) <= width {
		return s
	}
	n := 0
	for i, r := range s {
		if n += runeWidth(r); n > width-1 {
			return s[:i] + "…"
		}
	}
	return s
}
