package tui

import (
	"errors"

	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"

	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/internal/text/printable"
)

// A prompt is a component: a line of input, or a question to answer with y or n. It keeps the keys
// until it has an answer.
//
// A textinput edits the text. The prompt draws it, because textinput places the cursor by
// characters and not by columns.
type prompt struct {
	*shared
	label string
	input textinput.Model
	// isQuestion means that y accepts and any other key cancels.
	isQuestion bool
	// isFilter means that the text is a filter, which the filter bar shows.
	isFilter bool

	// changed is called when the text has changed. It may be nil.
	changed func(text string) tea.Cmd
	// accepted is called with the text when the prompt has closed.
	accepted func(text string) tea.Cmd
	// canceled is called in place of accepted.
	canceled func(text string) tea.Cmd
	// ended is accepted or canceled once a key has ended the prompt.
	ended func(text string) tea.Cmd
}

// maxPrompt limits the characters of a prompt.
const maxPrompt = 4096

func newPrompt(s *shared, label, text string) *prompt {
	p := &prompt{shared: s, label: label, input: textinput.New(), canceled: func(string) tea.Cmd { return nil }}
	p.input.CharLimit = maxPrompt
	p.input.KeyMap.Paste.SetEnabled(false) // it would run a program; the terminal pastes
	p.input.SetVirtualCursor(false)
	p.input.Focus()
	p.insert(text)
	return p
}

// newFilterPrompt returns a prompt for a filter. It cannot be accepted while the filter is invalid.
func newFilterPrompt(s *shared, text string) *prompt {
	p := newPrompt(s, "/", text)
	p.isFilter = true
	p.input.Validate = func(text string) error {
		_, err := filter.Parse(text)
		return err
	}
	p.input.Err = p.input.Validate(p.text())
	return p
}

// newSearchPrompt returns a prompt for a text to search. search returns where it has searched, or
// nil if there is no text.
func newSearchPrompt(s *shared, search func(text string) *pager) *prompt {
	p := newPrompt(s, "/", "")
	p.changed = func(text string) tea.Cmd {
		search(text)
		return nil
	}
	p.canceled = func(string) tea.Cmd { return p.changed("") }
	p.accepted = func(text string) tea.Cmd {
		if page := search(text); page != nil && text != "" && len(page.matches) == 0 {
			s.showFlash(true, "%s is not there", text)
		}
		return nil
	}
	return p
}

func (p *prompt) text() string { return p.input.Value() }

// Update edits the text, and sets ended if a key ends the prompt.
func (p *prompt) Update(msg tea.Msg) tea.Cmd {
	before := p.text()
	switch msg := msg.(type) {
	case tea.PasteMsg:
		if p.isQuestion {
			return nil
		}
		p.insert(msg.Content)
	case tea.KeyPressMsg:
		switch k := msg.String(); {
		case p.isQuestion && (k == "y" || k == "Y"):
			p.ended = p.accepted
		case p.isQuestion, k == "esc", k == "ctrl+c":
			p.ended = p.canceled
		case k == "enter":
			if p.input.Err == nil { // the footer shows it
				p.ended = p.accepted
			}
		case msg.Text != "":
			p.insert(msg.Text)
		default:
			p.input, _ = p.input.Update(msg)
		}
	}
	if p.changed == nil || p.text() == before {
		return nil
	}
	return p.changed(p.text())
}

// insert inserts the printable characters of s.
func (p *prompt) insert(s string) {
	text := []rune(p.text())
	before, after := string(text[:p.input.Position()]), string(text[p.input.Position():])
	kept := ""
	for _, r := range s {
		if !printable.Safe(r) {
			continue
		}
		// Too many combining marks are not printable.
		if now := before + kept + string(r) + after; r >= 0x80 && printable.Line(now) != now {
			continue
		}
		if kept += string(r); len(kept) > 4*maxPrompt {
			break
		}
	}
	p.input, _ = p.input.Update(tea.PasteMsg{Content: kept})
}

// invalid returns the error of a filter, or nil.
func (p *prompt) invalid() *filter.SyntaxError {
	wrong, _ := errors.AsType[*filter.SyntaxError](p.input.Err)
	return wrong
}

// window returns the visible part of the text, the index of its first character, and the column of
// the cursor in it.
func (p *prompt) window() (text string, from, column int) {
	columns := max(1, p.width-width(p.label)-3)
	all, at := []rune(p.text()), p.input.Position()
	for from < at && width(string(all[from:at])) >= columns {
		from++
	}
	text, _ = splitColumns(string(all[from:]), columns)
	return text, from, width(string(all[from:at]))
}

// cursor returns the terminal's cursor on line y, or nil for a question.
func (p *prompt) cursor(y int) *tea.Cursor {
	if p.isQuestion {
		return nil
	}
	_, _, at := p.window()
	return tea.NewCursor(min(p.width-1, 1+width(p.label)+1+at), y)
}

// View draws the prompt in the last line.
func (p *prompt) View() string { return p.line().draw(p.width) }

func (p *prompt) line() line {
	text, _, _ := p.window()
	return line{{p.theme.key.plus(bold), " " + p.label + " "}, {p.theme.text, text}}
}

// bar draws the prompt in the filter bar, with a syntax error marked. matches is the number of rows
// as a text.
func (p *prompt) bar(matches string) string {
	wrong := p.invalid()
	switch {
	case wrong == nil && p.text() == "":
		return append(p.line(), span{p.theme.dim, " tool:search  status:error  dur>500ms  words  -method:ping"}).draw(p.width)
	case wrong == nil:
		return append(p.line(), span{p.theme.dim, matches}).draw(p.width)
	}
	text, from, _ := p.window()
	before, after := splitAt(text, wrong.Column-1-from)
	at, after := splitAt(after, 1)
	if at == "" {
		at = " "
	}
	l := line{{"", " / "}, {"", before}, {underline, at}, {"", after}, {bold, "  ✖ column " + number(wrong.Column)}}
	return l.drawOver(p.theme.invalid, p.width)
}

// splitAt splits a text before the character n.
func splitAt(s string, n int) (before, after string) {
	r := []rune(s)
	n = min(max(0, n), len(r))
	return string(r[:n]), string(r[n:])
}
