package tui

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"mcpwire/capture"
	"mcpwire/cmd/internal/json/jsondiff"
	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/view/detail"
)

// A resendRequest is a request to send again.
type resendRequest struct {
	origin  *resend.Origin
	message []byte
	capture string
	// response is the number of the event with the recorded response.
	response uint64
}

// resendTimeout limits the time for resending, including the start of the server.
const resendTimeout = 90 * time.Second

// A resender sends a recorded request again: it finds the request, has it edited, asks, sends it
// and compares the responses.
type resender struct {
	*shared
	table   *table
	dialogs *dialogs
	// ended is called when another program has ended that edits a held message. Nil means none.
	ended func()
}

// find finds the cursor's request, to be sent again after editing if edit is set.
func (rs *resender) find(edit bool) tea.Cmd {
	if rs.opts.Captures == "" {
		rs.showFlash(true, "sending again is disabled here")
		return nil
	}
	var n, session, response uint64
	var id, why string
	rs.src.Read(func(w *trace.Model) {
		r := w.RowOf(rs.table.view.seq)
		switch {
		case r == nil:
			why = "nothing is selected"
		case r.Kind != trace.Request && r.Kind != trace.Notification && r.Kind != trace.Invalid || r.Dir != capture.ToServer:
			why = "only what the client sent can be sent again"
		default:
			n, session, response, id = r.N, r.Session.Number, r.ResponseN, r.Capture.ID
		}
	})
	if why != "" {
		rs.showFlash(true, "%s", why)
		return nil
	}
	path := capturePath(rs.src, id)
	if path == "" {
		rs.showFlash(true, "this capture has no file")
		return nil
	}
	return rs.background.cmd(resendTimeout, func(ctx context.Context) tea.Msg {
		o, message, err := resend.FindFile(ctx, path, id, session, n)
		if err == nil && o.Gateway {
			err = resend.ErrGateway
		}
		return doneMsg(func() tea.Cmd { return rs.gotOrigin(&resendRequest{o, message, id, response}, edit, err) })
	})
}

func capturePath(src source, id string) string {
	for _, s := range src.Sources() {
		if s.ID == id {
			return s.Path
		}
	}
	return ""
}

// gotOrigin opens an editor for the request, or asks whether to send it.
func (rs *resender) gotOrigin(q *resendRequest, edit bool, err error) tea.Cmd {
	switch {
	case err != nil:
		rs.showFlash(true, "%v", err)
	case edit:
		return rs.edit(q)
	default:
		rs.confirm(q)
	}
	return nil
}

// edit opens an editor for a message: $VISUAL, $EDITOR or the built-in one.
func (rs *resender) edit(q *resendRequest) tea.Cmd {
	if len(q.message) > maxEdit {
		rs.showFlash(true, "%s are too large to edit here", trace.FormatSize(int64(len(q.message))))
		return nil
	}
	return rs.editText(q.message, "to a fresh copy of "+safe(q.origin.Name), func(text []byte) tea.Cmd {
		rs.sendEdited(q, text)
		return nil
	})
}

// editText opens an editor for a message. done is called with the edited text.
func (rs *resender) editText(message []byte, about string, done func(text []byte) tea.Cmd) tea.Cmd {
	command := cmp.Or(rs.opts.getenv("VISUAL"), rs.opts.getenv("EDITOR"))
	if words := strings.Fields(command); len(words) > 0 {
		return onFile(words, "message.json", editable(message), func(text []byte, err error) tea.Msg {
			return doneMsg(func() tea.Cmd { return rs.gotEdited(text, err, done) })
		})
	}
	var cmd tea.Cmd
	rs.dialogs.editor, cmd = newEditor(rs.shared, message, about, done)
	return cmd
}

func (rs *resender) gotEdited(text []byte, err error, done func(text []byte) tea.Cmd) tea.Cmd {
	if rs.ended != nil {
		rs.ended()
		rs.ended = nil
	}
	if err != nil {
		rs.showFlash(true, "the editor: %v", err)
		return nil
	}
	return done(text)
}

func (rs *resender) sendEdited(q *resendRequest, text []byte) {
	again := *q
	again.message = []byte(strings.TrimSpace(string(text)))
	if len(again.message) == 0 {
		rs.showFlash(false, "nothing was sent")
		return
	}
	if !json.Valid(again.message) {
		rs.showFlash(true, "it is no longer JSON; nothing was sent (mcpwire send --raw sends anything)")
		return
	}
	again.origin.Redacted, again.origin.MoreRedacted = nil, 0 // the user has seen the placeholders
	rs.confirm(&again)
}

// confirm asks before it starts a program, or sends to a server, that a capture names.
func (rs *resender) confirm(q *resendRequest) {
	verb := "start"
	if q.origin.Transport != capture.TransportStdio {
		verb = "send to"
	}
	yes := func() tea.Cmd {
		rs.showFlash(false, "sending …")
		src, opts := rs.src, rs.opts
		return rs.background.cmd(resendTimeout, func(ctx context.Context) tea.Msg {
			res, c, err := q.run(ctx, src, &opts)
			if _, redacted := errors.AsType[*resend.RedactedError](err); redacted {
				err = fmt.Errorf("%w (E: fill in redacted values)", err)
			}
			if err != nil {
				return rs.result(err, "")
			}
			return doneMsg(func() tea.Cmd {
				rs.dialogs.open("Sent again", func(r *renderer) []line { return resentLines(r.theme, res, c) })
				return nil
			})
		})
	}
	target := safeLong(q.origin.Target())
	question := "Send it to a fresh copy: " + verb + " " + target + "?"
	if width(question) < rs.width-8 {
		rs.dialogs.confirm(question, yes)
		return
	}
	// Show the whole command or URL.
	rs.dialogs.open("Send it to a fresh copy?", func(r *renderer) []line {
		return []line{{{r.theme.dim, "This would " + verb}}, nil, {{r.theme.text, target}}}
	})
	rs.dialogs.confirm("Do that?", func() tea.Cmd {
		rs.dialogs.overlay = nil
		return yes()
	})
	no := rs.dialogs.prompt.canceled
	rs.dialogs.prompt.canceled = func(text string) tea.Cmd {
		rs.dialogs.overlay = nil
		return no(text)
	}
}

// run sends the request and compares the response with the recorded one. It runs outside the event
// loop.
func (q *resendRequest) run(ctx context.Context, src source, opts *Options) (*resend.Result, comparison, error) {
	res, err := resend.Run(ctx, q.origin, q.message, &resend.Options{Dir: opts.Captures, Tool: opts.Tool})
	if _, redacted := errors.AsType[*resend.RedactedError](err); err != nil && (redacted || res == nil || res.Response == nil) {
		return nil, comparison{}, err
	}
	// Without the capture in the hub, the response is shown nevertheless.
	_ = src.Open(res.Path)
	return res, q.compare(ctx, src, res.Response), nil
}

func (q *resendRequest) compare(ctx context.Context, src source, response []byte) comparison {
	if q.response == 0 {
		return comparison{note: "no recorded response"}
	}
	recorded, why := detail.ReadPayload(ctx, src, q.capture, q.response)
	switch {
	case why != "":
		return comparison{note: "the recorded response" + why}
	case response == nil:
		return comparison{note: "no response now"}
	}
	return comparison{changes: jsondiff.Diff(recorded, response, nil)}
}

// resentLines shows the response to a request that was sent again.
func resentLines(t *theme, res *resend.Result, c comparison) []line {
	if res.Response == nil {
		return []line{{{t.request, "→ "}, {t.text, "It was sent; no response is expected, or none arrived."}}, {{t.dim, fmt.Sprintf("event #%d of %s", res.N, safe(res.Path))}}}
	}
	out := []line{
		{{t.response, "← "}, {t.text, "response after " + trace.FormatDuration(res.Latency)}},
		{{t.dim, fmt.Sprintf("event #%d of %s", res.ResponseN, safe(res.Path))}},
		nil, {{t.head, "Differences from the recorded response"}},
	}
	out = append(out, changeLines(t, c)...)
	out = append(out, nil, line{{t.head, "Answer"}})
	return append(out, responseLines(res.Response)...)
}

// maxResponse limits the bytes shown of a response.
const maxResponse = 256 << 10

func responseLines(data []byte) []line {
	if len(data) == 0 {
		return []line{{{faint, "there is none"}}}
	}
	out := textLines("", editable(data[:min(len(data), maxResponse)]))
	if len(data) > maxResponse {
		out = append(out, line{{faint, "… and " + trace.FormatSize(int64(len(data)-maxResponse)) + " more"}})
	}
	return out
}

// restart asks the tap of the cursor's capture to restart its server.
func (rs *resender) restart() {
	if !rs.table.view.hasSession {
		return
	}
	c := rs.table.view.session
	for _, s := range rs.src.Sources() {
		if s.ID != c.Capture || !s.CanRestart {
			continue
		}
		rs.dialogs.confirm("Restart the server of "+safe(c.Name)+"?", func() tea.Cmd {
			return rs.background.cmd(10*time.Second, func(ctx context.Context) tea.Msg {
				return rs.result(rs.src.Restart(ctx, c.Capture), "the server is being restarted")
			})
		})
		return
	}
	rs.showFlash(true, "no running tap of %s can restart it (only mcpwire tap on stdio can)", c.Name)
}

// getenv returns a variable of the user's environment.
func (o *Options) getenv(name string) string {
	if o.Environ == nil {
		return os.Getenv(name)
	}
	for _, e := range o.Environ {
		if value, ok := strings.CutPrefix(e, name+"="); ok && value != "" {
			return value
		}
	}
	return ""
}
