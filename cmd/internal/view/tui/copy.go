package tui

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/view/detail"
	"mcpwire/internal/text/printable"
)

// maxClipboard limits the bytes sent to a terminal's clipboard. Many terminals accept no more.
const maxClipboard = 100_000

// copyText copies text to the terminal's clipboard. Many terminals ignore that without an error,
// so callers also show text that is short enough to select by hand.
func (s *shared) copyText(what, text string) tea.Cmd {
	if len(text) > maxClipboard {
		s.showFlash(true, "%s is too large for a clipboard (%s); Ctrl+S saves it", what, trace.FormatSize(int64(len(text))))
		return nil
	}
	s.showFlash(false, "copied %s, %s, if the terminal allows it", what, trace.FormatSize(int64(len(text))))
	return tea.SetClipboard(text)
}

// A copier copies the cursor's row to the clipboard.
type copier struct {
	*shared
	table   *table
	pane    *pane
	dialogs *dialogs
	// reading means that a detail is being read.
	reading bool
}

// withDetail calls use with the detail of the cursor's row. It reads the detail unless the pane
// has it.
func (c *copier) withDetail(use func(d *detail.Detail) tea.Cmd) tea.Cmd {
	if c.pane.open && c.pane.detail != nil {
		return use(c.pane.detail)
	}
	var snapshot *detail.Snapshot
	c.src.Read(func(w *trace.Model) {
		if r := w.RowOf(c.table.view.seq); r != nil {
			snapshot = detail.TakeSnapshot(r)
		}
	})
	if snapshot == nil {
		c.showFlash(true, "nothing is selected")
		return nil
	}
	if c.reading {
		return nil
	}
	c.reading = true
	src := c.src
	return c.background.cmd(detailTimeout, func(ctx context.Context) tea.Msg {
		d, err := detail.Build(ctx, src, snapshot, nil)
		return doneMsg(func() tea.Cmd {
			c.reading = false
			if err != nil {
				c.showFlash(true, "reading this row timed out")
				return nil
			}
			return use(d)
		})
	})
}

// tabPayload returns the newest response in the Response tab, and the request otherwise.
func (c *copier) tabPayload(d *detail.Detail) *detail.Payload {
	if c.pane.title() == "Response" {
		return cmp.Or(d.Last, d.Response)
	}
	return d.Request
}

// payload copies the response in the Response tab. In the Request, Summary and Timing tabs, and
// without an open tab, it copies the message. In other tabs it copies the text.
func (c *copier) payload(d *detail.Detail) tea.Cmd {
	p, what := c.tabPayload(d), "the message"
	if d.Kind == trace.Request {
		what = "the request"
	}
	switch c.pane.title() {
	case "Response":
		what = "the response"
	case "Request", "Summary", "Timing", "":
	default:
		return c.text()
	}
	if p == nil {
		return c.text()
	}
	if p.OmittedBytes > 0 || p.Cut {
		c.showFlash(true, "%s is %s, and only its beginning is loaded; Ctrl+S saves all of it", what, trace.FormatSize(p.Len))
		return nil
	}
	// Pasted text must not have side effects.
	switch p.Form {
	case detail.JSON:
		return c.copyText(what, string(printable.JSON(p.Bytes)))
	case detail.Text:
		return c.copyText(what, printable.Text(string(p.Bytes)))
	}
	return c.text()
}

// text copies the text of the open tab as shown.
func (c *copier) text() tea.Cmd {
	page := c.pane.page()
	if page == nil {
		c.showFlash(true, "this row has nothing to copy; Enter opens it")
		return nil
	}
	var b strings.Builder
	for _, l := range page.lines {
		b.WriteString(strings.TrimRight(l.text(), " ") + "\n")
		if b.Len() > maxClipboard {
			break
		}
	}
	return c.copyText("this text", b.String())
}

// command copies the row as a command, and as curl in the HTTP tab.
func (c *copier) command(d *detail.Detail) tea.Cmd { return c.copyAs(d, c.pane.title() == "HTTP") }

// copyAs copies the row as a command and shows it, for terminals without clipboard access. Y
// switches to the other command.
func (c *copier) copyAs(d *detail.Detail, curl bool) tea.Cmd {
	make, what := detail.CallCommand, "a command"
	if curl {
		make, what = detail.CurlCommand, "curl"
	}
	cmd, err := make(d)
	if err != nil {
		c.showFlash(true, "%v", err)
		return nil
	}
	c.dialogs.open("As "+what, func(r *renderer) []line { return commandLines(r.theme, cmd) })
	c.dialogs.overlay.copy = cmd.Text
	if d.HTTP != nil || curl {
		c.dialogs.overlay.alternateName = map[bool]string{true: "mcpwire call", false: "curl"}[curl]
		c.dialogs.overlay.alternate = func() tea.Cmd { return c.copyAs(d, !curl) }
	}
	copied := c.copyText(what, cmd.Text)
	if copied != nil {
		c.flash = flash{} // the overlay says that it was copied
	}
	return copied
}

func commandLines(t *theme, c *detail.Command) []line {
	out := textLines(t.text, c.Text)
	if len(c.Variables) > 0 {
		out = append(out, nil, line{{t.finding, "▲ The capture does not have these secrets; set them first: " + safe(strings.Join(c.Variables, " "))}})
	}
	for _, n := range c.Notes {
		out = append(out, nil, line{{t.dim, safe(n)}})
	}
	return append(out, nil, line{{t.dim, fmt.Sprintf("It is on the clipboard if the terminal allows that (OSC 52). Otherwise select it here; most terminals need %s for that.", "Shift")}})
}
