package wireview

import (
	"fmt"
	"strings"

	"mcpwire/mcp"
)

// Summary says in plain words what a row is about, on one line: "called search: 3 contents, 1.2 kB, 43 ms". It may be printed: see [Escape].
func Summary(r *Row) string {
	if len(r.Links) > 0 {
		return join("  ", ownSummary(r), linkText(r))
	}
	return ownSummary(r)
}

func ownSummary(r *Row) string {
	switch r.Kind {
	case Request:
		return requestSummary(r)
	case Notification, Progress, Log:
		return join(" ", noteVerb(r), join(": ", Escape(r.Target), Escape(r.Excerpt)))
	case Response:
		return join(" ", "answered", Escape(r.ID), "to no request that is known:", Escape(r.Excerpt))
	case Invalid:
		return join(" ", "sent what is no message:", Escape(r.Excerpt))
	case Stdout:
		return join(" ", "stray output:", Escape(r.Excerpt))
	case Stderr, Note:
		return Escape(r.Excerpt)
	case Start:
		return join(" ", "started", Escape(r.Excerpt)+",", r.Target)
	case Exit:
		return join(" ", "exited with", Escape(r.Excerpt))
	case EOF:
		if r.Dir == "c2s" {
			return "the client closed its end"
		}
		return "the server closed its end"
	case HTTP:
		return httpSummary(r)
	case SSE:
		return join(" ", "event of the stream:", Escape(r.Excerpt))
	case Xlate:
		return join(" ", "translated:", Escape(r.Excerpt))
	}
	return Escape(r.Excerpt)
}

func join(sep string, parts ...string) string {
	var list []string
	for _, p := range parts {
		if p != "" {
			list = append(list, p)
		}
	}
	return strings.Join(list, sep)
}

func requestSummary(r *Row) string {
	text := verb(r)
	if out := outcome(r); out != "" {
		text += ": " + out
	}
	var times []string
	if c := r.Chain; c != nil && c.Rounds > 1 {
		times = append(times, fmt.Sprintf("%d rounds in %s (server %s, client %s)", c.Rounds, Duration(c.Wall), Duration(c.Server), Duration(c.Human)))
	} else if r.Done && (r.ResponseN > 0 || r.Latency > 0) {
		t := Duration(r.Latency)
		if r.Human > 0 {
			t += fmt.Sprintf(" (server %s, client %s)", Duration(r.Server()), Duration(r.Human))
		}
		times = append(times, t)
	}
	if t := r.Task; t != nil {
		times = append(times, taskSummary(t))
	}
	return join(", ", append([]string{text}, times...)...)
}

func taskSummary(t *Task) string {
	s := join(" ", "task", Escape(t.ID), Escape(t.State))
	if t.Polls > 0 {
		s += fmt.Sprintf(" after %s", plural(t.Polls, "poll"))
	}
	if t.ended {
		s += " and " + Duration(t.Wall)
	}
	return s
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprint(n, " ", what, "s")
}

// said is the verb for a method, or "".
func said(method string) string {
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

// verb says what was asked for.
func verb(r *Row) string {
	target := Escape(r.Target)
	says := said(r.Method)
	if says == "" {
		says = "sent " + Escape(r.Method)
	}
	if r.Role == Retry {
		target = join(" ", target, "again")
	}
	return join(" ", says, target)
}

// outcome says what came back.
func outcome(r *Row) string {
	size := Size(r.ResponseBytes)
	switch r.Status {
	case Pending:
		if r.Stream() {
			return join(", ", "open", streamed(r))
		}
		return "no answer yet"
	case Unanswered:
		return join(", ", "no answer", ending(r))
	case Cancelled:
		return join(", ", "cancelled", ending(r))
	case Failed:
		return join(" ", "error", r.CodeText(), Escape(r.Message))
	case HTTPFailed:
		return join(", ", join(" ", "HTTP", r.CodeText()), ending(r))
	case ToolFailed:
		return join(", ", join(": ", "the tool failed", Escape(r.Facts.Text)), size)
	case InputRequired:
		return join(", ", "needs input", counted(&r.Facts))
	case TaskMade:
		return ""
	}
	return join(", ", answered(r), counted(&r.Facts), size)
}

// streamed says how much came in the stream of a request.
func streamed(r *Row) string {
	if n := len(r.Children) + r.Gone; n > 0 {
		return plural(n, "message")
	}
	return ""
}

// ending says why the HTTP exchange of a request ended, if not in the normal way.
func ending(r *Row) string {
	if r.HTTP == nil {
		return ""
	}
	return Escape(r.HTTP.End)
}

func answered(r *Row) string {
	if r.Method == mcp.MethodInitialize && r.Session.Answered != "" {
		return join(" ", "answered", Escape(r.Session.Answered), Escape(r.Session.Server.Name), Escape(r.Session.Server.Version))
	}
	return ""
}

// counted says how many things a result has.
func counted(f *Facts) string {
	if f.What == "" {
		return ""
	}
	what := strings.TrimSuffix(f.What, "s")
	if what == "resourceTemplate" {
		what = "template"
	}
	s := plural(f.Count, what)
	if f.Structured {
		s += " with structure"
	}
	if f.More {
		s += " and more"
	}
	return s
}

func noteVerb(r *Row) string {
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
		out += ", " + Size(h.BodyBytes)
	}
	if r.Done {
		out += ", " + Duration(r.Latency)
	}
	return join(": ", join(" ", Escape(h.Method), Escape(h.URL)), out, Escape(h.End), Escape(r.Excerpt))
}
