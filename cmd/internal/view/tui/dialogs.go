package tui

import tea "charm.land/bubbletea/v2"

// dialogs are the components above the table and the pane, at most one of each kind. They get the
// keys first: the editor before the prompt, the prompt before the chooser, and that before the
// overlay.
type dialogs struct {
	*shared
	// editor, prompt, chooser and overlay are nil if closed.
	editor  *editor
	prompt  *prompt
	chooser *chooser
	overlay *overlay
}

// input reports whether keys are text, or answer a question.
func (d *dialogs) input() bool { return d.editor != nil || d.prompt != nil }

// Update passes a message to the topmost dialog, and closes it if the message ends it.
func (d *dialogs) Update(msg tea.Msg) tea.Cmd {
	k, isKey := msg.(tea.KeyPressMsg)
	switch {
	case d.editor != nil && isKey:
		return d.editorKey(k)
	case d.editor != nil:
		return d.editor.Update(msg)
	case d.prompt != nil:
		return d.updatePrompt(msg)
	case d.chooser != nil && isKey:
		return d.chooserKey(k)
	case d.overlay != nil && isKey:
		return d.overlayKey(k)
	}
	return nil
}

func (d *dialogs) editorKey(k tea.KeyPressMsg) tea.Cmd {
	e := d.editor
	switch k.String() {
	case "esc":
		d.editor = nil
		d.showFlash(false, "nothing was sent")
		return nil
	case "ctrl+s", "ctrl+enter":
		d.editor = nil
		return e.done([]byte(e.area.Value()))
	}
	return e.key(k)
}

func (d *dialogs) updatePrompt(msg tea.Msg) tea.Cmd {
	p := d.prompt
	cmd := p.Update(msg)
	if p.ended == nil {
		return cmd
	}
	d.prompt = nil
	return p.ended(p.text())
}

func (d *dialogs) chooserKey(k tea.KeyPressMsg) tea.Cmd {
	c := d.chooser
	x, closes := c.current(), k.String() == "enter"
	if closes && x != nil && x.run != nil {
		d.chooser = nil // the choice may open another
		return x.run()
	}
	cmd, done := c.Update(k)
	if done && d.chooser == c {
		d.chooser = nil
	}
	return cmd
}

func (d *dialogs) overlayKey(k tea.KeyPressMsg) tea.Cmd {
	switch k.String() {
	case "esc", "q", "enter":
		d.overlay = nil
	case "/":
		d.prompt = newSearchPrompt(d.shared, d.overlay.find)
	default:
		return d.overlay.key(k.String())
	}
	return nil
}

// confirm asks for y before it calls yes.
func (d *dialogs) confirm(question string, yes func() tea.Cmd) {
	d.prompt = &prompt{shared: d.shared, label: question + " y/n", isQuestion: true}
	d.prompt.accepted = func(string) tea.Cmd { return yes() }
	d.prompt.canceled = func(string) tea.Cmd {
		d.showFlash(false, "nothing was done")
		return nil
	}
}

// open shows a text in place of the last message.
func (d *dialogs) open(title string, render func(r *renderer) []line) {
	d.overlay, d.flash = newOverlay(d.shared, title, render), flash{}
}

// openTable is like open for a table, whose lines are cut to keep its columns.
func (d *dialogs) openTable(title string, render func(r *renderer) []line) {
	d.open(title, render)
	d.overlay.pager.cutsLines = true
	d.overlay.pager.wrap()
}

// showLongError moves an error that does not fit into the last line to an overlay.
func (d *dialogs) showLongError() {
	text := d.flash.text
	if !d.flash.bad || width(text) <= d.width-3 || d.overlay != nil || d.input() {
		return
	}
	d.open("Failed", func(r *renderer) []line { return []line{{{r.theme.failure, "✖ "}, {r.theme.text, text}}} })
}
