package trace

import (
	"fmt"
	"strings"

	"mcpwire/mcp"
)

// Summary says in plain words what a row is about, on one line: "called search: 3 contents, 1.2 kB, 43 ms". It may be printed: see [Escape].
func Summary(r *Row) string {
	if len(r.Links) > 0 {
		return joinNonEmpty("  ", rowSummary(r), linkText(r))
	}
	return rowSummary(r)
}

func rowSummary(r *Row) string {
	switch r.Kind {
	case Request:
		return requestSummary(r)
	case Notification, Progress, Log:
		return joinNonEmpty(" ", notificationVerb(r), joinNonEmpty(": ", Escape(r.Target), Escape(r.Excerpt)))
	case Response:
		return joinNonEmpty(" ", "answered", Escape(r.ID), "to no request that is known:", Escape(r.Excerpt))
	case Invalid:
		return joinNonEmpty(" ", "sent what is no message:", Escape(r.Excerpt))
	case Stdout:
		return joinNonEmpty(" ", "stray output:", Escape(r.Excerpt))
	case Stderr, Note:
		return Escape(r.Excerpt)
	case Start:
		return joinNonEmpty(" ", "started", Escape(r.Excerpt)+",", r.Target)
	case Exit:
		return joinNonEmpty(" ", "exited with", Escape(r.Excerpt))
	case EOF:
		if r.Dir == "c2s" {
			return "the client closed its end"
		}
		return "the server closed its end"
	case HTTP:
		return httpSummary(r)
	case SSE:
		return joinNonEmpty(" ", "event of the stream:", Escape(r.Excerpt))
	case Translate:
		return joinNonEmpty(" ", "translated:", Escape(r.Excerpt))
	}
	return Escape(r.Excerpt)
}

func joinNonEmpty(sep string, parts ...string) string {
	var list []string
	for _, p := range parts {
		if p != "" {
			list = append(list, p)
		}
	}
	return strings.Join(list, sep)
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
	return joinNonEmpty(", ", append([]string{text}, times...)...)
}

func taskSummary(t *Task) string {
	s := joinNonEmpty(" ", "task", Escape(t.ID), Escape(t.State))
	if t.Polls > 0 {
		s += fmt.Sprintf(" after %s", plural(t.Polls, "poll"))
	}
	if t.isFinal {
		s += " and " + FormatDuration(t.Wall)
	}
	return s
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprint(n, " ", what, "s")
}

// methodVerb is the verb for a method, or "".
func methodVerb(method string) string {
	switch method {
	case mcp.MethodInitialize:
		return "offered"
	case mcp.MethodPing:
		return "pinged"
	case mcp.MethodSetLevel:
		return "set the log level to"
	case mcp.MethodDiscover:
		return "asked who is there"
	case mcp.MethodSubscriptionsListen:
		return "listens for changes"
	case mcp.MethodToolsList:
		return "listed tools"
	case mcp.MethodToolsCall:
		return "called"
	case mcp.MethodResourcesList:
		return "listed resources"
	case mcp.MethodResourceTemplatesList:
		return "listed resource templates"
	case mcp.MethodResourcesRead:
		return "read"
	case mcp.MethodResourcesSubscribe:
		return "subscribed to"
	case mcp.MethodResourcesUnsubscribe:
		return "unsubscribed from"
	case mcp.MethodPromptsList:
		return "listed prompts"
	case mcp.MethodPromptsGet:
		return "got prompt"
	case mcp.MethodComplete:
		return "completed for"
	case mcp.MethodTasksGet:
		return "asked for task"
	case mcp.MethodTasksResult:
		return "asked for the result of task"
	case mcp.MethodTasksList:
		return "listed tasks"
	case mcp.MethodTasksCancel:
		return "cancelled task"
	case mcp.MethodTasksUpdate:
		return "updated task"
	case mcp.MethodElicit:
		return "asked the user"
	case mcp.MethodCreateMessage:
		return "asked the model"
	case mcp.MethodRootsList:
		return "asked for roots"
	}
	return ""
}

// requestText says what was asked for.
func requestText(r *Row) string {
	target := Escape(r.Target)
	says := methodVerb(r.Method)
	if says == "" {
		says = "sent " + Escape(r.Method)
	}
	if r.Role == Retry {
		target = joinNonEmpty(" ", target, "again")
	}
	return joinNonEmpty(" ", says, target)
}

// outcomeText says what came back.
func outcomeText(r *Row) string {
	size := FormatSize(r.ResponseBytes)
	switch r.Status {
	case Pending:
		if r.IsStream() {
			return joinNonEmpty(", ", "open", streamText(r))
		}
		return "no answer yet"
	case Unanswered:
		return joinNonEmpty(", ", "no answer", endText(r))
	case Canceled:
		return joinNonEmpty(", ", "cancelled", endText(r))
	case Failed:
		return joinNonEmpty(" ", "error", r.CodeText(), Escape(r.Message))
	case HTTPFailed:
		return joinNonEmpty(", ", joinNonEmpty(" ", "HTTP", r.CodeText()), endText(r))
	case ToolFailed:
		return joinNonEmpty(", ", joinNonEmpty(": ", "the tool failed", Escape(r.ResultInfo.Text)), size)
	case InputRequired:
		return joinNonEmpty(", ", "needs input", countText(&r.ResultInfo))
	case TaskCreated:
		return ""
	}
	return joinNonEmpty(", ", handshakeText(r), countText(&r.ResultInfo), size)
}

// streamText says how much came in the stream of a request.
func streamText(r *Row) string {
	if n := len(r.Children) + r.EvictedChildren; n > 0 {
		return plural(n, "message")
	}
	return ""
}

// endText says why the HTTP exchange of a request ended, if not in the normal way.
func endText(r *Row) string {
	if r.HTTP == nil {
		return ""
	}
	return Escape(r.HTTP.EndReason)
}

func handshakeText(r *Row) string {
	if r.Method == mcp.MethodInitialize && r.Session.Negotiated != "" {
		return joinNonEmpty(" ", "answered", Escape(r.Session.Negotiated), Escape(r.Session.Server.Name), Escape(r.Session.Server.Version))
	}
	return ""
}

// countText says how many things a result has.
func countText(f *ResultInfo) string {
	if f.ListName == "" {
		return ""
	}
	what := strings.TrimSuffix(f.ListName, "s")
	if what == "resourceTemplate" {
		what = "template"
	}
	s := plural(f.Count, what)
	if f.Structured {
		s += " with structure"
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
		out += ", " + plural(h.Events, "event")
	}
	if h.BodyBytes > 0 {
		out += ", " + FormatSize(h.BodyBytes)
	}
	if r.Done {
		out += ", " + FormatDuration(r.Latency)
	}
	return joinNonEmpty(": ", joinNonEmpty(" ", Escape(h.Method), Escape(h.URL)), out, Escape(h.EndReason), Escape(r.Excerpt))
}
