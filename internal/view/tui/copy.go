package tui

import (
	"context"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"mcpwire/internal/text/printable"
	"mcpwire/internal/trace"
	"mcpwire/internal/view/detail"
)

// maxClipboard limits the bytes sent to a terminal's clipboard. Many terminals accept no more.
const maxClipboard = 100_000

// copyText copies text to the terminal's clipboard. Many terminals ignore that without an error,
// so callers also show text that is short enough to select by hand.
func (m *model) copyText(what, text string) tea.Cmd {
	if len(text) > maxClipboard {
		m.showFlash(true, "%s is too large for a clipboard (%s); e saves it", what, trace.FormatSize(int64(len(text))))
		return nil
	}
	m.showFlash(false, "copied %s, %s, if the terminal allows it", what, trace.FormatSize(int64(len(text))))
	return tea.SetClipboard(text)
}

// A copyDetailMsg has the detail of a row that is not open, and the function that uses it.
type copyDetailMsg struct {
	detail *detail.Detail
	err    error
	use    func(d *detail.Detail) tea.Cmd
}

// withDetail calls use with the detail of the cursor's row. It reads the detail unless the pane
// has it.
func (m *model) withDetail(use func(d *detail.Detail) tea.Cmd) tea.Cmd {
	if m.pane != nil && m.pane.detail != nil {
		return use(m.pane.detail)
	}
	var snapshot *detail.Snapshot
	m.src.Read(func(w *trace.Model) {
		if r := m.findRow(w, m.view.seq); r != nil {
			snapshot = detail.TakeSnapshot(r)
		}
	})
	if snapshot == nil {
		m.showFlash(true, "nothing is selected")
		return nil
	}
	if m.readingCopy {
		return nil
	}
	m.readingCopy = true
	src := m.src
	return m.background.cmd(detailTimeout, func(ctx context.Context) tea.Msg {
		d, err := detail.Build(ctx, src, snapshot, nil)
		return copyDetailMsg{d, err, use}
	})
}

// useDetail uses a detail that was read.
func (m *model) useDetail(msg copyDetailMsg) tea.Cmd {
	m.readingCopy = false
	if msg.err != nil {
		m.showFlash(true, "reading this row timed out")
		return nil
	}
	return msg.use(msg.detail)
}

// tabTitle returns the title of the open tab, or "".
func (m *model) tabTitle() string {
	if m.pane == nil || m.pane.currentTab() == nil {
		return ""
	}
	return m.pane.currentTab().title
}

// copyPayload copies the response in the Response tab. In the Request, Summary and Timing tabs, and
// without an open tab, it copies the message. In other tabs it copies the text.
func (m *model) copyPayload(d *detail.Detail) tea.Cmd {
	p, what := d.Request, "the message"
	if d.Kind == trace.Request {
		what = "the request"
	}
	switch m.tabTitle() {
	case "Response":
		if p, what = d.Response, "the response"; d.Last != nil {
			p = d.Last
		}
	case "Request", "Summary", "Timing", "":
	default:
		return m.copyPage()
	}
	if p == nil {
		return m.copyPage()
	}
	if p.OmittedBytes > 0 || p.Cut {
		m.showFlash(true, "%s is %s, and only its beginning is loaded; e saves all of it", what, trace.FormatSize(p.Len))
		return nil
	}
	// Pasted text must not have side effects.
	switch p.Form {
	case detail.JSON:
		return m.copyText(what, string(printable.JSON(p.Bytes)))
	case detail.Text:
		return m.copyText(what, printable.Text(string(p.Bytes)))
	}
	return m.copyPage()
}

// copyPage copies the text of the open tab as shown.
func (m *model) copyPage() tea.Cmd {
	page, _ := m.activePager()
	if page == nil {
		m.showFlash(true, "this row has nothing to copy; Enter opens it")
		return nil
	}
	var b strings.Builder
	for _, l := range page.lines {
		b.WriteString(strings.TrimRight(l.text(), " ") + "\n")
		if b.Len() > maxClipboard {
			break
		}
	}
	return m.copyText("this text", b.String())
}

// copyCommand copies the row as a command and shows it, for terminals without clipboard access. It
// uses curl in the HTTP tab; Y switches to the other command.
func (m *model) copyCommand(d *detail.Detail) tea.Cmd { return m.copyAs(d, m.tabTitle() == "HTTP") }

func (m *model) copyAs(d *detail.Detail, curl bool) tea.Cmd {
	make, what := detail.CallCommand, "a command"
	if curl {
		make, what = detail.CurlCommand, "curl"
	}
	c, err := make(d)
	if err != nil {
		m.showFlash(true, "%v", err)
		return nil
	}
	m.overlay = newOverlay("As "+what, func() []line { return m.commandLines(c) })
	m.overlay.copy = c.Text
	if d.HTTP == nil && !curl {
		return m.copyShown(what, c.Text)
	}
	m.overlay.alternateName = map[bool]string{true: "mcpwire call", false: "curl"}[curl]
	m.overlay.alternate = func() tea.Cmd { return m.copyAs(d, !curl) }
	return m.copyShown(what, c.Text)
}

// copyShown is like copyText for text that is on the screen. It shows no message.
func (m *model) copyShown(what, text string) tea.Cmd {
	cmd := m.copyText(what, text)
	if cmd != nil {
		m.flash = flash{}
	}
	return cmd
}

func (m *model) commandLines(c *detail.Command) []line {
	t := m.theme
	var out []line
	for l := range strings.Lines(c.Text) {
		out = append(out, line{{t.text, printable.Line(strings.TrimSuffix(l, "\n"))}})
	}
	if len(c.Variables) > 0 {
		out = append(out, nil, line{{t.finding, "▲ The capture does not have these secrets; set them first: " + safe(strings.Join(c.Variables, " "))}})
	}
	for _, n := range c.Notes {
		out = append(out, nil, line{{t.dim, safe(n)}})
	}
	return append(out, nil, line{{t.dim, fmt.Sprintf("It is on the clipboard if the terminal allows that (OSC 52). Otherwise select it here; most terminals need %s for that.", "Shift")}})
}
