package tui

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	tea "charm.land/bubbletea/v2"

	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/view/detail"
	"mcpwire/internal/proc/batchfile"
	"mcpwire/internal/text/printable"
)

// onFile runs a program of the user, with arguments, on a text in a file that only the user can
// read. after is called with the error, or the text as the program has left it.
func onFile(command []string, name, text string, after func(text []byte, err error) tea.Msg) tea.Cmd {
	failed := func(err error) tea.Cmd {
		return func() tea.Msg { return after(nil, err) }
	}
	dir, err := os.MkdirTemp("", "mcpwire-edit-")
	if err != nil {
		return failed(err)
	}
	path := filepath.Join(dir, name)
	c := exec.Command(command[0], append(command[1:len(command):len(command)], path)...)
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), batchfile.Prepare(c)); err != nil {
		os.RemoveAll(dir)
		return failed(err)
	}
	return tea.ExecProcess(c, func(err error) tea.Msg {
		defer os.RemoveAll(dir)
		if err != nil {
			return after(nil, err)
		}
		return after(os.ReadFile(path))
	})
}

// shown returns the payload of the open tab. It is nil, after a message, if there is none or it is
// not loaded completely.
func (c *copier) shown(d *detail.Detail) *detail.Payload {
	p := cmp.Or(c.tabPayload(d), d.Response)
	switch {
	case p == nil:
		c.showFlash(true, "this row has no message")
		return nil
	case p.OmittedBytes > omittedInBlobs(p) || p.Cut:
		c.showFlash(true, "the message is %s, and only its beginning is loaded; Ctrl+S saves all of it", trace.FormatSize(p.Len))
		return nil
	}
	return p
}

// omittedInBlobs returns the omitted bytes of Base64, which Payload.Bytes has.
func omittedInBlobs(p *detail.Payload) (n int64) {
	if int64(len(p.Bytes)) < p.Len {
		return 0
	}
	return p.OmittedBytes
}

// page shows the message in $PAGER, or in an overlay without one.
func (c *copier) page(d *detail.Detail) tea.Cmd {
	p := c.shown(d)
	if p == nil {
		return nil
	}
	text := messageText(p)
	if words := strings.Fields(c.opts.getenv("PAGER")); len(words) > 0 {
		return onFile(words, messageName(p), text, c.ended("the pager"))
	}
	c.dialogs.open("Message", func(*renderer) []line { return textLines("", text) })
	return nil
}

// edit opens the message in $EDITOR. Changes go nowhere: E edits and sends.
func (c *copier) edit(d *detail.Detail) tea.Cmd {
	words := strings.Fields(cmp.Or(c.opts.getenv("VISUAL"), c.opts.getenv("EDITOR")))
	if len(words) == 0 {
		c.showFlash(true, "EDITOR is not set; v shows the message, E edits and sends it")
		return nil
	}
	p := c.shown(d)
	if p == nil {
		return nil
	}
	return onFile(words, messageName(p), messageText(p), c.ended("the editor"))
}

// ended returns the message for the end of a program.
func (c *copier) ended(what string) func([]byte, error) tea.Msg {
	return func(_ []byte, err error) tea.Msg {
		if err != nil {
			err = fmt.Errorf("%s: %w", what, err)
		}
		return c.result(err, "")
	}
}

// messageText returns a payload as text, with all invisible characters escaped.
func messageText(p *detail.Payload) string {
	if p.Form == detail.JSON {
		return editable(p.Bytes) + "\n"
	}
	return printable.Text(string(p.Bytes))
}

func messageName(p *detail.Payload) string {
	if p.Form == detail.JSON {
		return "message.json"
	}
	return "message.txt"
}
