package tui

import (
	"errors"
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"

	"mcpwire/internal/text/printable"
	"mcpwire/internal/trace/filter"
)

// The kinds of prompt.
const (
	filterPrompt = iota
	searchPrompt
	savePrompt
	confirmPrompt // y or n
)

// A prompt is a line of input.
type prompt struct {
	kind  int
	label string
	text  []rune
	pos   int
	// previous is the text that Esc restores.
	previous  string
	filterErr *filter.SyntaxError
	// gen counts changes.
	gen int
	// onYes is the action of a confirmPrompt.
	onYes func() tea.Cmd

	// closesOverlay tells that any answer closes the overlay.
	closesOverlay bool
}

// maxPrompt limits the characters of a prompt.
const maxPrompt = 4096

func newPrompt(kind int, label, text string) *prompt {
	p := &prompt{kind: kind, label: label, previous: text}
	p.insert(text)
	return p
}

// insert inserts the printable characters of s.
func (p *prompt) insert(s string) {
	for _, r := range s {
		if printable.Safe(r) && len(p.text) < maxPrompt {
			p.text = append(p.text[:p.pos], append([]rune{r}, p.text[p.pos:]...)...)
			p.pos++
			// Too many combining marks are not printable.
			if now := string(p.text); r >= 0x80 && printable.Line(now) != now {
				p.remove(p.pos - 1)
			}
		}
	}
}

// key edits the line. It returns false for other keys.
func (p *prompt) key(k tea.KeyPressMsg) bool {
	switch k.String() {
	case "left", "ctrl+b":
		p.pos = max(0, p.pos-1)
	case "right", "ctrl+f":
		p.pos = min(len(p.text), p.pos+1)
	case "home", "ctrl+a":
		p.pos = 0
	case "end", "ctrl+e":
		p.pos = len(p.text)
	case "backspace", "ctrl+h":
		p.remove(p.pos - 1)
	case "delete", "ctrl+d":
		p.remove(p.pos)
	case "ctrl+u":
		p.text, p.pos = p.text[p.pos:], 0
	case "ctrl+k":
		p.text = p.text[:p.pos]
	case "ctrl+w", "alt+backspace":
		for p.pos > 0 && p.text[p.pos-1] == ' ' {
			p.remove(p.pos - 1)
		}
		for p.pos > 0 && p.text[p.pos-1] != ' ' {
			p.remove(p.pos - 1)
		}
	default:
		if k.Text == "" {
			return false
		}
		p.insert(k.Text)
	}
	return true
}

func (p *prompt) remove(i int) {
	if i >= 0 && i < len(p.text) {
		p.text = append(p.text[:i], p.text[i+1:]...)
		p.pos = i
	}
}

func (p *prompt) String() string { return string(p.text) }

// window returns the visible part of the text and the column of the cursor in it.
func (p *prompt) window(columns int) (text string, column int) {
	from := 0
	for from < p.pos && width(string(p.text[from:p.pos])) >= columns {
		from++
	}
	text, _ = splitColumns(string(p.text[from:]), columns)
	return text, width(string(p.text[from:p.pos]))
}

// column returns the column of the cursor on a screen of the given width.
func (p *prompt) column(columns int) int {
	_, at := p.window(p.room(columns))
	return 1 + width(p.label) + 1 + at
}

func (p *prompt) room(columns int) int { return max(1, columns-width(p.label)-3) }

// line draws the prompt.
func (p *prompt) line(m *model) line {
	text, _ := p.window(p.room(m.width))
	return line{{m.theme.key.plus(bold), " " + p.label + " "}, {m.theme.text, text}}
}

// check sets filterErr for an invalid filter.
func (p *prompt) check() {
	p.filterErr = nil
	if p.kind != filterPrompt {
		return
	}
	if _, err := filter.Parse(p.String()); err != nil && !errors.As(err, &p.filterErr) {
		p.filterErr = &filter.SyntaxError{Column: 1, Message: err.Error()}
	}
}

// A filterDebounceMsg is sent when the user has stopped typing.
type filterDebounceMsg struct {
	prompt *prompt
	gen    int
}

// filterDebounce is the pause in typing after which the filter applies.
const filterDebounce = 250 * time.Millisecond

// promptKey handles a key while a prompt is open.
func (m *model) promptKey(k tea.KeyPressMsg) tea.Cmd {
	p := m.prompt
	if p.kind == confirmPrompt {
		if m.prompt = nil; p.closesOverlay {
			m.overlay = nil
		}
		if s := k.String(); s == "y" || s == "Y" {
			return p.onYes()
		}
		m.showFlash(false, "nothing was done")
		return nil
	}
	switch k.String() {
	case "esc", "ctrl+c":
		m.prompt = nil
		return m.cancelPrompt(p)
	case "enter":
		return m.acceptPrompt(p)
	}
	if !p.key(k) {
		return nil
	}
	return m.promptChanged(p)
}

// promptChanged applies the input: at once for a search, after a pause for a filter.
func (m *model) promptChanged(p *prompt) tea.Cmd {
	p.gen++
	p.check()
	switch p.kind {
	case searchPrompt:
		m.search(p.String())
	case filterPrompt:
		gen := p.gen
		return tea.Tick(filterDebounce, func(time.Time) tea.Msg { return filterDebounceMsg{p, gen} })
	}
	return nil
}

func (m *model) applyFilter(msg filterDebounceMsg) tea.Cmd {
	if m.prompt != msg.prompt || msg.gen != msg.prompt.gen || msg.prompt.filterErr != nil {
		return nil
	}
	return m.setFilter(msg.prompt.String())
}

// setFilter applies a filter to the table.
func (m *model) setFilter(text string) tea.Cmd {
	if text == m.query.text {
		return nil
	}
	m.query.text = text
	return m.selectRows()
}

func (m *model) cancelPrompt(p *prompt) tea.Cmd {
	switch p.kind {
	case filterPrompt:
		return m.setFilter(p.previous)
	case searchPrompt:
		m.search("")
	}
	return nil
}

func (m *model) acceptPrompt(p *prompt) tea.Cmd {
	if p.filterErr != nil {
		return nil // the footer shows the error
	}
	m.prompt = nil
	switch p.kind {
	case filterPrompt:
		return m.setFilter(p.String())
	case searchPrompt:
		if page, height := m.activePager(); page != nil && p.String() != "" && len(page.matches) == 0 {
			m.showFlash(true, "%s is not there", p.String())
		} else if page != nil {
			page.firstMatch(height)
		}
	case savePrompt:
		return m.save(p.String())
	}
	return nil
}

// search searches the active text.
func (m *model) search(text string) {
	page, height := m.activePager()
	if page == nil {
		return
	}
	if m.overlay == nil {
		m.pane.search = text
	}
	page.find(text)
	page.firstMatch(height)
}

// activePager returns the text that has the focus and its height, or nil for the table.
func (m *model) activePager() (*pager, int) {
	switch {
	case m.overlay != nil:
		m.overlay.pager.wrapTo(max(1, m.width-2))
		return m.overlay.pager, m.overlayHeight()
	case m.pane != nil:
		return m.pane.currentPager(m), m.paneBody().h
	}
	return nil, 0
}

// confirm asks for y before it calls yes.
func (m *model) confirm(question string, yes func() tea.Cmd) {
	m.prompt = &prompt{kind: confirmPrompt, label: question + " y/n", onYes: yes}
}

// showFlash shows a message in the last line. An error that does not fit there is shown in an
// overlay.
func (m *model) showFlash(bad bool, format string, args ...any) {
	if text := safe(fmt.Sprintf(format, args...)); bad && width(text) > m.width-3 && m.overlay == nil && m.prompt == nil && m.editor == nil {
		m.overlay = newOverlay("Failed", func() []line { return []line{{{m.theme.failure, "✖ "}, {m.theme.text, text}}} })
		return
	}
	stays := 6 * time.Second
	if bad { // errors stay longer
		stays = 20 * time.Second
	}
	m.flash = flash{safe(fmt.Sprintf(format, args...)), bad, m.now().Add(stays)}
}

// paste inserts pasted text into the editor or the prompt.
func (m *model) paste(text string) tea.Cmd {
	switch {
	case m.editor != nil:
		return m.editor.update(tea.PasteMsg{Content: text})
	case m.prompt != nil && m.prompt.kind != confirmPrompt:
		m.prompt.insert(text)
		return m.promptChanged(m.prompt)
	}
	return nil
}
