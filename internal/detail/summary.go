package detail

import (
	"fmt"
	"strconv"
	"strings"

	"mcpwire/capture"
	"mcpwire/internal/printable"
	"mcpwire/internal/wireview"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// title is the method or kind of a row, and what it is about.
func title(r *Row) string {
	what := r.Record.Method
	if what == "" {
		what = string(r.Record.Kind)
	}
	if r.Record.Target == "" {
		return printable.Line(what)
	}
	return printable.Line(what + " " + r.Record.Target)
}

func glyph(r *Row) string {
	return wireview.Glyph(&wireview.Row{Kind: r.Record.Kind, Status: r.Record.Status, Dir: capture.Dir(r.Record.Dir)})
}

// safeCard is a card whose texts may be shown.
func safeCard(c wireview.Card) wireview.Card {
	for _, s := range []*string{
		&c.Name, &c.Transport, &c.URL, &c.Tool, &c.Redact, &c.Era, &c.Offered, &c.Answered, &c.Client.Name, &c.Client.Version, &c.Server.Name, &c.Server.Version, &c.Signal,
	} {
		*s = printable.Line(*s)
	}
	for _, list := range []*[]string{&c.Supported, &c.Client.Capabilities, &c.Server.Capabilities, &c.Command} {
		safe := make([]string, 0, len(*list))
		for _, s := range *list {
			safe = append(safe, printable.Line(s))
		}
		if *list != nil {
			*list = safe
		}
	}
	return c
}

// summary says in words what happened.
func (w *work) summary() {
	w.d.Summary = Summary{Words: w.words(), Facts: w.facts()}
}

func (w *work) words() []string {
	r := w.row.Record
	client, server := w.who(w.d.Session.Client, "the client"), w.who(w.d.Session.Server, "the server")
	subject := client
	if r.Dir == string(capture.ToClient) {
		subject = server
	}
	first := r.Summary
	switch r.Kind {
	case wireview.Request, wireview.Response, wireview.Invalid:
		first = subject + " " + r.Summary
	case wireview.Notification, wireview.Progress, wireview.Log:
		first = subject + " said: " + r.Summary
	case wireview.Stderr:
		first = server + " wrote to its standard error: " + r.Summary
	case wireview.Stdout:
		first = server + " wrote to its standard output what is no message: " + printable.Line(r.Excerpt)
	}
	words := []string{sentence(first)}
	add := func(format string, args ...any) { words = append(words, sentence(fmt.Sprintf(format, args...))) }
	w.outcomeWords(add)
	if h := w.row.HTTP; h != nil && h.Status != 0 && r.Kind != wireview.HTTP {
		how := "as one body"
		if h.Stream {
			how = "as a stream of " + plural(h.Events, "event")
		}
		add("it went over HTTP, which answered %d %s", h.Status, how)
	}
	if n := len(w.d.Lint); n > 0 {
		add("rules were broken: %s, see Lint", plural(n, "finding"))
	}
	if w.d.Redacted > 0 {
		add("hidden because it may be secret: %s", plural(w.d.Redacted, "place"))
	}
	if n := len(w.d.Missing); n > 0 {
		add("it cannot be read any more in full: %s missing", plural(n, "event"))
	}
	return words
}

// outcomeWords explains what became of a request.
func (w *work) outcomeWords(add func(format string, args ...any)) {
	r := w.row
	switch r.Record.Status {
	case wireview.Pending:
		if !stream(r) && r.Record.Kind == wireview.Request {
			if r.Wall > 0 {
				add("there is no answer yet; it has waited %s", wireview.Duration(r.Wall))
			} else {
				add("there is no answer yet")
			}
		}
	case wireview.Failed:
		if meaning := codeMeaning(jsonrpc.Code(r.Record.Code)); meaning != "" {
			add("the error %d stands for: %s", r.Record.Code, meaning)
		}
	case wireview.ToolFailed:
		add("the tool itself failed: the protocol went well, and the model gets to read what the result says")
	case wireview.Unanswered:
		add("nothing can come any more: the process, the connection or the capture has ended")
	case wireview.InputRequired:
		add("the server needs input first; the client has not come back with it yet")
	case wireview.TaskMade:
		add("it became a task, which goes on")
	}
	if n := len(r.Rounds); n > 1 {
		add("it took %d rounds, because the server needed input: the client sent the request again with it", n)
	}
	if r.Human > 0 && r.Record.Role != wireview.Asked {
		add("for %s of the time it was the client's turn, a person's or a model's", wireview.Duration(r.Human))
	}
}

// codeMeaning says what a code that JSON-RPC or the protocol defines stands for, or "".
func codeMeaning(c jsonrpc.Code) string {
	switch c {
	case mcp.CodeHeaderMismatch:
		return "a header of HTTP does not say what the message says"
	case mcp.CodeMissingRequiredClientCapability:
		return "the client lacks a capability that this takes"
	case mcp.CodeUnsupportedProtocolVersion:
		return "the server does not speak this revision of the protocol"
	case mcp.CodeResourceNotFound:
		return "there is no such resource"
	case mcp.CodeURLElicitationRequired:
		return "the user has to visit a page first"
	}
	if s := c.String(); !strings.HasPrefix(s, "error ") {
		return s
	}
	return ""
}

// plural counts things.
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

func (w *work) who(p wireview.Peer, unnamed string) string {
	if p.Name == "" {
		return unnamed
	}
	return strings.TrimSpace(p.Name + " " + p.Version)
}

// sentence begins with a capital, unless that would change a name, and ends with a full stop.
func sentence(s string) string {
	if strings.HasPrefix(s, "the ") || strings.HasPrefix(s, "it ") || strings.HasPrefix(s, "there ") || strings.HasPrefix(s, "nothing ") || strings.HasPrefix(s, "for ") || strings.HasPrefix(s, "rules ") || strings.HasPrefix(s, "hidden ") {
		s = strings.ToUpper(s[:1]) + s[1:]
	}
	if strings.HasSuffix(s, ".") || strings.HasSuffix(s, "…") || strings.HasSuffix(s, "?") || strings.HasSuffix(s, "!") {
		return s
	}
	return s + "."
}

// facts are what is known, name by name.
func (w *work) facts() []Fact {
	r := w.row.Record
	list := []Fact{}
	add := func(name, value string, event uint64) {
		if value != "" {
			list = append(list, Fact{name, printable.Line(value), event})
		}
	}
	dir := map[string]string{string(capture.ToServer): "→ to the server", string(capture.ToClient): "← to the client"}[r.Dir]
	add("kind", string(r.Kind), 0)
	add("direction", dir, 0)
	add("method", r.Method, r.N)
	add("about", r.Target, 0)
	add("id", r.ID, 0)
	add("status", string(r.Status), w.row.response)
	if r.Code != 0 {
		add("code", strconv.Itoa(r.Code), w.row.response)
	}
	add("message", r.Message, w.row.response)
	add("server", r.Server, 0)
	if r.Session != 0 {
		add("session", strconv.FormatUint(r.Session, 10), 0)
	}
	add("era", r.Era, 0)
	add("revision", r.Revision, 0)
	add("time", r.At.Format("2006-01-02 15:04:05.000000"), 0)
	if w.row.Wall > 0 {
		add("took", wireview.Duration(w.row.Wall), 0)
		if r.Kind == wireview.Request && r.Role != wireview.Asked && !stream(w.row) {
			add("server's time", wireview.Duration(w.row.Server), 0)
		}
		if w.row.Human > 0 {
			add("client's time", wireview.Duration(w.row.Human), 0)
		}
	}
	if r.ReqBytes > 0 {
		add("sent", wireview.Size(r.ReqBytes), r.N)
	}
	if r.ResBytes > 0 {
		add("answered with", wireview.Size(r.ResBytes), w.row.response)
	}
	w.moreFacts(add)
	return list
}

func (w *work) moreFacts(add func(name, value string, event uint64)) {
	r := w.row
	if h := r.HTTP; h != nil {
		if h.Status != 0 {
			add("HTTP status", strconv.Itoa(h.Status), h.ResponseN)
		}
		add("content type", h.ContentType, h.ResponseN)
		add("HTTP ended", h.End, h.EndN)
	}
	f := r.Facts
	if f.What != "" {
		add(f.What, strconv.Itoa(f.Count), r.response)
	}
	if f.More {
		add("next page", "yes", r.response)
	}
	add("result type", f.Kind, r.response)
	if r.Record.Task != "" {
		add("task", strings.TrimSpace(r.Record.Task+" "+r.Record.TaskState), 0)
	}
	if s := w.startE; s != nil && s.Start != nil {
		add("folder", clip(s.Start.Dir, 1000), s.N)
		add("command", clip(strings.Join(s.Start.Command, " "), 4000), s.N)
		add("variables", clip(strings.Join(s.Start.Env, " "), 4000), s.N)
	}
}

// clip returns the beginning of a text; what is cut through is shown as bytes that are no UTF-8.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + " …"
}
