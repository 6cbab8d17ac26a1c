package detail

import (
	"fmt"
	"strconv"
	"strings"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/cause"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/plural"
	"mcpwire/internal/text/printable"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// title returns the method or kind of a row, and its target.
func title(r *Snapshot) string {
	what := r.Record.Method
	if what == "" {
		what = string(r.Record.Kind)
	}
	if r.Record.Target == "" {
		return printable.Line(what)
	}
	return printable.Line(what + " " + r.Record.Target)
}

// safeSession returns a copy with escaped texts.
func safeSession(c trace.SessionInfo) trace.SessionInfo {
	for _, s := range []*string{
		&c.Name, &c.Transport, &c.URL, &c.Tool, (*string)(&c.Redact), &c.Era, &c.Offered, &c.Negotiated, &c.Client.Name, &c.Client.Version, &c.Server.Name, &c.Server.Version, &c.Signal,
		&c.Cause, &c.Fix,
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

func (b *builder) sentences() []string {
	r := b.snapshot.Record
	client, server := b.peerName(b.detail.Session.Client, "the client"), b.peerName(b.detail.Session.Server, "the server")
	subject := client
	if r.Dir == string(capture.ToClient) {
		subject = server
	}
	first := r.Summary
	switch r.Kind {
	case trace.Request, trace.Response, trace.Invalid:
		first = subject + " " + r.Summary
	case trace.Notification, trace.Progress, trace.Log:
		first = subject + " said: " + r.Summary
	case trace.Stderr:
		first = server + " wrote to its standard error: " + r.Summary
	case trace.Stdout:
		first = server + " wrote to its standard output what is not a message: " + printable.Line(r.Excerpt)
	}
	list := []string{sentence(first)}
	add := func(format string, args ...any) { list = append(list, sentence(fmt.Sprintf(format, args...))) }
	b.addOutcome(add)
	if r.Kind == trace.Exit { // the first sentence has the cause
		b.addCause(add, "", b.detail.Session.Fix)
	}
	if h := b.snapshot.HTTP; h != nil && h.Status != 0 && r.Kind != trace.HTTP {
		how := "as one body"
		if h.Stream {
			how = "as a stream of " + plural.Of(h.Events, "event")
		}
		add("it was sent over HTTP, with status %d %s", h.Status, how)
	}
	if n := len(b.detail.Findings); n > 0 {
		add("%s, see Findings", plural.Of(n, "finding"))
	}
	if b.detail.Redacted > 0 {
		add("redacted because it may be secret: %s", plural.Of(b.detail.Redacted, "place"))
	}
	if n := len(b.detail.Missing); n > 0 {
		add("it can no longer be read completely: %s missing", plural.Of(n, "event"))
	}
	return list
}

func (b *builder) addOutcome(add func(format string, args ...any)) {
	r := b.snapshot
	switch r.Record.Status {
	case trace.Failed:
		if meaning := codeMeaning(jsonrpc.Code(r.Record.Code)); meaning != "" {
			add("error %d means: %s", r.Record.Code, meaning)
		}
	case trace.ToolFailed:
		add("the tool itself failed, without a protocol error: the model reads the text of the result")
	case trace.Unanswered:
		add("no response can arrive: the process, the connection or the capture has ended")
		b.addCause(add, b.detail.Session.Cause, b.detail.Session.Fix)
	case trace.HTTPFailed:
		if q, a := b.detail.requestHead, b.response; q != nil && a != nil && r.handshakeFailed {
			c := (&cause.Response{
				Status: a.Status, Host: trace.HeaderValue(q.Headers, "Host"), Header: func(name string) string { return trace.HeaderValue(a.Headers, name) }, Body: b.body,
			}).Find()
			b.addCause(add, c.What, c.Fix)
		}
	case trace.InputRequired:
		add("the server needs input first; the client has not sent it yet")
	case trace.TaskCreated:
		add("it became a task, which is still running")
	}
	if n := len(r.Rounds); n > 1 {
		add("it took %d rounds, because the server needed input: the client sent the request again with the input", n)
	}
	if r.ClientTime > 0 && r.Record.Role != trace.ServerRequest {
		add("for %s of the time the server waited for the client, a person or a model", trace.FormatDuration(r.ClientTime))
	}
}

// addCause adds why something failed, if that is known, and what to do.
func (b *builder) addCause(add func(format string, args ...any), what, fix string) {
	if what != "" {
		add("the cause: %s", printable.Line(what))
	}
	if fix != "" {
		add("the remedy: %s", printable.Line(fix))
	}
}

// codeMeaning describes an error code of JSON-RPC or the protocol. It returns "" for other codes.
func codeMeaning(c jsonrpc.Code) string {
	switch c {
	case mcp.CodeHeaderMismatch:
		return "an HTTP header differs from the message"
	case mcp.CodeMissingRequiredClientCapability:
		return "the client lacks a required capability"
	case mcp.CodeUnsupportedProtocolVersion:
		return "the server does not speak this revision of the protocol"
	case mcp.CodeResourceNotFound:
		return "the resource does not exist"
	case mcp.CodeURLElicitationRequired:
		return "the user must open a page first"
	}
	if s := c.String(); !strings.HasPrefix(s, "error ") {
		return s
	}
	return ""
}

func (b *builder) peerName(p trace.PeerInfo, unnamed string) string {
	if p.Name == "" {
		return unnamed
	}
	return strings.TrimSpace(p.Name + " " + p.Version)
}

// sentence capitalizes known first words, so that names stay unchanged, and adds a full stop.
func sentence(s string) string {
	if strings.HasPrefix(s, "the ") || strings.HasPrefix(s, "it ") || strings.HasPrefix(s, "there ") || strings.HasPrefix(s, "nothing ") || strings.HasPrefix(s, "for ") || strings.HasPrefix(s, "rules ") || strings.HasPrefix(s, "hidden ") {
		s = strings.ToUpper(s[:1]) + s[1:]
	}
	if strings.HasSuffix(s, ".") || strings.HasSuffix(s, "…") || strings.HasSuffix(s, "?") || strings.HasSuffix(s, "!") {
		return s
	}
	return s + "."
}

func (b *builder) facts() []Fact {
	r := b.snapshot.Record
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
	add("status", r.Status.Word(), b.snapshot.responseN)
	if r.Code != 0 {
		add("code", strconv.Itoa(r.Code), b.snapshot.responseN)
	}
	add("message", r.Message, b.snapshot.responseN)
	add("server", r.Server, 0)
	if r.Session != 0 {
		add("session", strconv.FormatUint(r.Session, 10), 0)
	}
	add("era", r.Era, 0)
	add("revision", r.Revision, 0)
	add("time", r.At.Format("2006-01-02 15:04:05.000000"), 0)
	if b.snapshot.Wall > 0 {
		add("took", trace.FormatDuration(b.snapshot.Wall), 0)
		if r.Kind == trace.Request && r.Role != trace.ServerRequest && !b.snapshot.isStream {
			add("server's time", trace.FormatDuration(b.snapshot.ServerTime), 0)
		}
		if b.snapshot.ClientTime > 0 {
			add("client's time", trace.FormatDuration(b.snapshot.ClientTime), 0)
		}
	}
	if r.RequestBytes > 0 {
		add("sent", trace.FormatSize(r.RequestBytes), r.N)
	}
	if r.ResponseBytes > 0 {
		add("response", trace.FormatSize(r.ResponseBytes), b.snapshot.responseN)
	}
	b.moreFacts(add)
	return list
}

func (b *builder) moreFacts(add func(name, value string, event uint64)) {
	r := b.snapshot
	if h := r.HTTP; h != nil {
		if h.Status != 0 {
			add("HTTP status", strconv.Itoa(h.Status), h.ResponseN)
		}
		add("content type", h.ContentType, h.ResponseN)
		add("HTTP ended", h.EndReason, h.EndN)
	}
	f := r.ResultInfo
	if f.ListName != "" {
		add(f.ListName, strconv.Itoa(f.Count), r.responseN)
	}
	if f.HasMore {
		add("next page", "yes", r.responseN)
	}
	add("result type", f.ResultType, r.responseN)
	if r.Record.Task != "" {
		add("task", strings.TrimSpace(r.Record.Task+" "+r.Record.TaskState), 0)
	}
	if s := b.startEvent; s != nil && s.Start != nil {
		add("folder", clip.String(s.Start.Dir, 1000), s.N)
		add("command", clip.String(strings.Join(s.Start.Command, " "), 4000), s.N)
		add("variables", clip.String(strings.Join(s.Start.Env, " "), 4000), s.N)
	}
}
