package tui

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"mcpwire/capture"
	"mcpwire/internal/json/jsondiff"
	"mcpwire/internal/playback/resend"
	"mcpwire/internal/text/printable"
	"mcpwire/internal/trace"
)

// A resendRequest is a request to send again.
type resendRequest struct {
	origin  *resend.Origin
	message []byte
	capture string
	// response is the number of the event with the recorded response.
	response uint64
}

// An originMsg has what is needed to send a request again.
type originMsg struct {
	request *resendRequest
	edit    bool
	err     error
}

// resendTimeout limits the time for resending, including the start of the server.
const resendTimeout = 90 * time.Second

// startResend sends the cursor's request again, after editing if edit is set. It asks before it
// starts anything.
func (m *model) startResend(edit bool) tea.Cmd {
	if m.opts.Captures == "" {
		m.showFlash(true, "sending again is disabled here")
		return nil
	}
	var n, session, response uint64
	var id, why string
	m.src.Read(func(w *trace.Model) {
		r := m.findRow(w, m.view.seq)
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
		m.showFlash(true, "%s", why)
		return nil
	}
	path := m.capturePath(id)
	if path == "" {
		m.showFlash(true, "this capture has no file")
		return nil
	}
	return m.background.cmd(resendTimeout, func(ctx context.Context) tea.Msg {
		r, err := capture.Open(path, nil)
		if err != nil {
			return originMsg{err: err}
		}
		defer r.Close()
		o, message, err := resend.Find(ctx, r.Events(), session, n)
		return originMsg{&resendRequest{o, message, id, response}, edit, err}
	})
}

// capturePath returns the file of a capture, or "".
func (m *model) capturePath(id string) string {
	for _, s := range m.src.Sources() {
		if s.ID == id {
			return s.Path
		}
	}
	return ""
}

func (m *model) gotOrigin(msg originMsg) tea.Cmd {
	switch {
	case msg.err != nil:
		m.showFlash(true, "%v", msg.err)
	case msg.edit:
		return m.edit(msg.request)
	default:
		m.confirmResend(msg.request)
	}
	return nil
}

// confirmResend asks before it starts a program, or sends to a server, that a capture names.
func (m *model) confirmResend(s *resendRequest) {
	verb := "start"
	if s.origin.Transport != capture.TransportStdio {
		verb = "send to"
	}
	yes := func() tea.Cmd {
		m.showFlash(false, "sending …")
		return m.background.cmd(resendTimeout, func(ctx context.Context) tea.Msg { return m.runResend(ctx, s) })
	}
	target := safeLong(s.origin.Target())
	question := "Send it to a fresh copy: " + verb + " " + target + "?"
	if width(question) < m.width-8 {
		m.confirm(question, yes)
		return
	}
	// Show the whole command or URL.
	m.overlay = newOverlay("Send it to a fresh copy?", func() []line {
		return []line{{{m.theme.dim, "This would " + verb}}, nil, {{m.theme.text, target}}}
	})
	m.confirm("Do that?", yes)
	m.prompt.closesOverlay = true
}

// runResend sends the request and shows the response and its differences from the recorded one. It
// runs outside the event loop.
func (m *model) runResend(ctx context.Context, s *resendRequest) tea.Msg {
	res, err := resend.Run(ctx, s.origin, s.message, &resend.Options{Dir: m.opts.Captures, Tool: m.opts.Tool})
	var redacted *resend.RedactedError
	switch {
	case errors.As(err, &redacted):
		return doneMsg{text: err.Error() + " (E: fill in redacted values)", bad: true}
	case err != nil && (res == nil || res.Response == nil):
		return doneMsg{text: err.Error(), bad: true}
	}
	// Without the capture in the hub, the response is shown nevertheless.
	_ = m.src.Open(res.Path)
	c := m.diffResponse(ctx, s, res.Response)
	return doneMsg{show: func() *overlay { return newOverlay("Sent again", func() []line { return m.resendLines(res, c) }) }}
}

func (m *model) resendLines(res *resend.Result, c comparison) []line {
	t := m.theme
	if res.Response == nil {
		return []line{{{t.request, "→ "}, {t.text, "It was sent; no response is expected, or none arrived."}}, {{t.dim, fmt.Sprintf("event #%d of %s", res.N, safe(res.Path))}}}
	}
	out := []line{
		{{t.response, "← "}, {t.text, "response after " + trace.FormatDuration(res.Latency)}},
		{{t.dim, fmt.Sprintf("event #%d of %s", res.ResponseN, safe(res.Path))}},
		nil, {{t.head, "Differences from the recorded response"}},
	}
	out = append(out, m.changeLines(c)...)
	out = append(out, nil, line{{t.head, "Answer"}})
	return append(out, responseLines(res.Response)...)
}

// diffResponse compares a response with the recorded one.
func (m *model) diffResponse(ctx context.Context, s *resendRequest, answer []byte) comparison {
	if s.response == 0 {
		return comparison{note: "no recorded response"}
	}
	recorded, why := m.payload(ctx, s.capture, s.response)
	switch {
	case why != "":
		return comparison{note: "the recorded response: " + why}
	case answer == nil:
		return comparison{note: "no response now"}
	}
	return comparison{changes: jsondiff.Diff(recorded, answer, nil)}
}

// maxResponse limits the bytes shown of a response.
const maxResponse = 256 << 10

// responseLines formats a response.
func responseLines(data []byte) []line {
	if len(data) == 0 {
		return []line{{{faint, "there is none"}}}
	}
	var out []line
	text := editable(data[:min(len(data), maxResponse)])
	for l := range strings.Lines(text) {
		out = append(out, line{{"", printable.Line(strings.TrimSuffix(l, "\n"))}})
	}
	if len(data) > maxResponse {
		out = append(out, line{{faint, "… and " + trace.FormatSize(int64(len(data)-maxResponse)) + " more"}})
	}
	return out
}

// restart asks the tap of the cursor's capture to restart its server.
func (m *model) restart() tea.Cmd {
	if !m.view.hasSession {
		return nil
	}
	c := m.view.session
	for _, s := range m.src.Sources() {
		if s.ID != c.Capture || !s.CanRestart {
			continue
		}
		m.confirm("Restart the server of "+safe(c.Name)+"?", func() tea.Cmd {
			return m.background.cmd(10*time.Second, func(ctx context.Context) tea.Msg {
				if err := m.src.Restart(ctx, c.Capture); err != nil {
					return doneMsg{text: err.Error(), bad: true}
				}
				return doneMsg{text: "the server is being restarted"}
			})
		})
		return nil
	}
	m.showFlash(true, "no running tap of %s can restart it (only mcpwire tap on stdio can)", c.Name)
	return nil
}

// getenv returns a variable of the user's environment.
func (m *model) getenv(name string) string {
	if m.opts.Environ == nil {
		return os.Getenv(name)
	}
	for _, e := range m.opts.Environ {
		if len(e) > len(name) && e[:len(name)] == name && e[len(name)] == '=' {
			return e[len(name)+1:]
		}
	}
	return ""
}
