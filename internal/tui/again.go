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
	"mcpwire/internal/jsondiff"
	"mcpwire/internal/printable"
	"mcpwire/internal/resend"
	"mcpwire/internal/wireview"
)

// A second is a request that is to be sent again.
type second struct {
	origin   *resend.Origin
	message  []byte
	capture  string
	response uint64 // the event with the recorded answer
}

// foundMsg comes when it is known what it takes to send a request again.
type foundMsg struct {
	second *second
	edit   bool
	err    error
}

// againTime is how long a request may take that is sent again, with all that belongs to it.
const againTime = 90 * time.Second

// resend sends the request of the cursor again, after it was edited if that is wanted. It asks before anything is started.
func (m *model) resend(edit bool) tea.Cmd {
	if m.opts.Captures == "" {
		m.say(true, "sending again is turned off here")
		return nil
	}
	var n, session, response uint64
	var id, why string
	m.src.Read(func(w *wireview.Model) {
		r := m.row(w, m.view.seq)
		switch {
		case r == nil:
			why = "nothing is selected"
		case r.Kind != wireview.Request && r.Kind != wireview.Notification && r.Kind != wireview.Invalid || r.Dir != capture.ToServer:
			why = "only what the client sent can be sent again"
		default:
			n, session, response, id = r.N, r.Session.Number, r.ResponseN, r.Capture.ID
		}
	})
	if why != "" {
		m.say(true, "%s", why)
		return nil
	}
	path := m.pathOf(id)
	if path == "" {
		m.say(true, "this capture is in no file")
		return nil
	}
	return m.tasks.cmd(againTime, func(ctx context.Context) tea.Msg {
		r, err := capture.Open(path, nil)
		if err != nil {
			return foundMsg{err: err}
		}
		defer r.Close()
		o, message, err := resend.Find(ctx, r.Events(), session, n)
		return foundMsg{&second{o, message, id, response}, edit, err}
	})
}

// pathOf returns the file of a capture.
func (m *model) pathOf(id string) string {
	for _, s := range m.src.Sources() {
		if s.ID == id {
			return s.Path
		}
	}
	return ""
}

func (m *model) found(msg foundMsg) tea.Cmd {
	switch {
	case msg.err != nil:
		m.say(true, "%v", msg.err)
	case msg.edit:
		return m.edit(msg.second)
	default:
		m.askAgain(msg.second)
	}
	return nil
}

// askAgain asks before a program is started, or something sent to a server, that a capture names.
func (m *model) askAgain(s *second) {
	verb := "start"
	if s.origin.Transport != resend.Stdio {
		verb = "send to"
	}
	yes := func() tea.Cmd {
		m.say(false, "sending …")
		return m.tasks.cmd(againTime, func(ctx context.Context) tea.Msg { return m.sendAgain(ctx, s) })
	}
	target := safeLong(s.origin.Target())
	question := "Send it to a fresh copy: " + verb + " " + target + "?"
	if width(question) < m.width-8 {
		m.ask(question, yes)
		return
	}
	m.over = newOverlay("Send it to a fresh copy?", func() []line { // what would be run is shown in full
		return []line{{{m.theme.dim, "This would " + verb}}, nil, {{m.theme.text, target}}}
	})
	m.ask("Do that?", yes)
	m.prompt.closes = true
}

// sendAgain sends, and shows the answer, and how it differs from the recorded one. It is called beside the event loop.
func (m *model) sendAgain(ctx context.Context, s *second) tea.Msg {
	res, err := resend.Run(ctx, s.origin, s.message, &resend.Options{Dir: m.opts.Captures, Tool: m.opts.Tool})
	var redacted *resend.RedactedError
	switch {
	case errors.As(err, &redacted):
		return doneMsg{text: err.Error() + " (E: put in what was hidden)", bad: true}
	case err != nil && (res == nil || res.Response == nil):
		return doneMsg{text: err.Error(), bad: true}
	}
	_ = m.src.Open(res.Path) // it is watched already if its folder is; if it cannot be, the answer is shown all the same
	c := m.changed(ctx, s, res.Response)
	return doneMsg{show: func() *overlay { return newOverlay("Sent again", func() []line { return m.againLines(res, c) }) }}
}

func (m *model) againLines(res *resend.Result, c comparison) []line {
	t := m.theme
	if res.Response == nil {
		return []line{{{t.request, "→ "}, {t.text, "It was sent; no answer is due, or none came."}}, {{t.dim, fmt.Sprintf("event #%d of %s", res.N, safe(res.Path))}}}
	}
	out := []line{
		{{t.response, "← "}, {t.text, "answered in " + wireview.Duration(res.Latency)}},
		{{t.dim, fmt.Sprintf("event #%d of %s", res.ResponseN, safe(res.Path))}},
		nil, {{t.head, "Different from the recorded answer"}},
	}
	out = append(out, m.changeLines(c)...)
	out = append(out, nil, line{{t.head, "Answer"}})
	return append(out, answerLines(res.Response)...)
}

// changed compares the recorded answer with another one.
func (m *model) changed(ctx context.Context, s *second, answer []byte) comparison {
	if s.response == 0 {
		return comparison{note: "there is no recorded answer"}
	}
	recorded, why := m.payload(ctx, s.capture, s.response)
	switch {
	case why != "":
		return comparison{note: "the recorded answer: " + why}
	case answer == nil:
		return comparison{note: "there is no answer now"}
	}
	return comparison{changes: jsondiff.Diff(recorded, answer, nil)}
}

// maxAnswer is how many bytes of an answer are shown.
const maxAnswer = 256 << 10

// answerLines lays an answer out.
func answerLines(data []byte) []line {
	if len(data) == 0 {
		return []line{{{faint, "there is none"}}}
	}
	var out []line
	text := editable(data[:min(len(data), maxAnswer)])
	for l := range strings.Lines(text) {
		out = append(out, line{{"", printable.Line(strings.TrimSuffix(l, "\n"))}})
	}
	if len(data) > maxAnswer {
		out = append(out, line{{faint, "… and " + wireview.Size(int64(len(data)-maxAnswer)) + " more"}})
	}
	return out
}

// restart asks the tap of the capture of the cursor to start its server again.
func (m *model) restart() tea.Cmd {
	if !m.view.known {
		return nil
	}
	c := m.view.session
	for _, s := range m.src.Sources() {
		if s.ID != c.Capture || !s.CanRestart {
			continue
		}
		m.ask("Restart the server of "+safe(c.Name)+"?", func() tea.Cmd {
			return m.tasks.cmd(10*time.Second, func(ctx context.Context) tea.Msg {
				if err := m.src.Restart(ctx, c.Capture); err != nil {
					return doneMsg{text: err.Error(), bad: true}
				}
				return doneMsg{text: "the server is being restarted"}
			})
		})
		return nil
	}
	m.say(true, "no running tap of %s that can restart it (mcpwire tap on stdio can)", c.Name)
	return nil
}

// environ returns a variable of the user's environment.
func (m *model) environ(name string) string {
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
