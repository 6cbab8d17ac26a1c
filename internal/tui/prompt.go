package tui

import (
	"errors"
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"

	"mcpwire/internal/filter"
	"mcpwire/internal/printable"
)

// The kinds of prompt.
const (
	askFilter = iota
	askSearch
	askSave
	askSure // y or n
)

// A prompt is a line that is being typed.
type prompt struct {
	kind  int
	label string
	text  []rune
	at    int
	was   string // what was there before, for Esc
	wrong *filter.SyntaxError
	gen   int            // counts changes
	yes   func() tea.Cmd // of askSure

	closes bool // the answer closes the overlay
}

// maxPrompt is how many characters can be typed.
const maxPrompt = 4096

func newPrompt(kind int, label, text string) *prompt {
	p := &prompt{kind: kind, label: label, was: text}
	p.insert(text)
	return p
}

// insert puts in what can be shown.
func (p *prompt) insert(s string) {
	for _, r := range s {
		if printable.Safe(r) && len(p.text) < maxPrompt {
			p.text = append(p.text[:p.at], append([]rune{r}, p.text[p.at:]...)...)
			p.at++
			if now := string(p.text); r >= 0x80 && printable.Line(now) != now { // too many marks on one character
				p.remove(p.at - 1)
			}
		}
	}
}

// key edits the line, and reports whether the key was one for that.
func (p *prompt) key(k tea.KeyPressMsg) bool {
	switch k.String() {
	case "left", "ctrl+b":
		p.at = max(0, p.at-1)
	case "right", "ctrl+f":
		p.at = min(len(p.text), p.at+1)
	case "home", "ctrl+a":
		p.at = 0
	case "end", "ctrl+e":
		p.at = len(p.text)
	case "backspace", "ctrl+h":
		p.remove(p.at - 1)
	case "delete", "ctrl+d":
		p.remove(p.at)
	case "ctrl+u":
		p.text, p.at = p.text[p.at:], 0
	case "ctrl+k":
		p.text = p.text[:p.at]
	case "ctrl+w", "alt+backspace":
		for p.at > 0 && p.text[p.at-1] == ' ' {
			p.remove(p.at - 1)
		}
		for p.at > 0 && p.text[p.at-1] != ' ' {
			p.remove(p.at - 1)
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
		p.at = i
	}
}

func (p *prompt) String() string { return string(p.text) }

// window returns what is visible of the text in so many columns, and the column of the cursor in it.
func (p *prompt) window(columns int) (text string, column int) {
	from := 0
	for from < p.at && width(string(p.text[from:p.at])) >= columns {
		from++
	}
	text, _ = take(string(p.text[from:]), columns)
	return text, width(string(p.text[from:p.at]))
}

// column is where the cursor is on a screen so wide.
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

// check finds what is wrong with a filter.
func (p *prompt) check() {
	p.wrong = nil
	if p.kind != askFilter {
		return
	}
	if _, err := filter.Parse(p.String()); err != nil && !errors.As(err, &p.wrong) {
		p.wrong = &filter.SyntaxError{Column: 1, Message: err.Error()}
	}
}

// filterPauseMsg comes when nothing was typed for a moment.
type filterPauseMsg struct {
	prompt *prompt
	gen    int
}

// filterPause is how long nothing is typed before the table shows what the filter lets through.
const filterPause = 250 * time.Millisecond

// promptKey handles a key while something is typed.
func (m *model) promptKey(k tea.KeyPressMsg) tea.Cmd {
	p := m.prompt
	if p.kind == askSure {
		if m.prompt = nil; p.closes {
			m.over = nil
		}
		if s := k.String(); s == "y" || s == "Y" {
			return p.yes()
		}
		m.say(false, "nothing was done")
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
	return m.typed(p)
}

// typed has what was typed take effect: at once for a search, after a pause for a filter.
func (m *model) typed(p *prompt) tea.Cmd {
	p.gen++
	p.check()
	switch p.kind {
	case askSearch:
		m.search(p.String())
	case askFilter:
		gen := p.gen
		return tea.Tick(filterPause, func(time.Time) tea.Msg { return filterPauseMsg{p, gen} })
	}
	return nil
}

func (m *model) filterPaused(msg filterPauseMsg) tea.Cmd {
	if m.prompt != msg.prompt || msg.gen != msg.prompt.gen || msg.prompt.wrong != nil {
		return nil
	}
	return m.setFilter(msg.prompt.String())
}

// setFilter has the table show what a filter lets through.
func (m *model) setFilter(text string) tea.Cmd {
	if text == m.choice.text {
		return nil
	}
	m.choice.text = text
	return m.choose()
}

func (m *model) cancelPrompt(p *prompt) tea.Cmd {
	switch p.kind {
	case askFilter:
		return m.setFilter(p.was)
	case askSearch:
		m.search("")
	}
	return nil
}

func (m *model) acceptPrompt(p *prompt) tea.Cmd {
	if p.wrong != nil {
		return nil // it says why
	}
	m.prompt = nil
	switch p.kind {
	case askFilter:
		return m.setFilter(p.String())
	case askSearch:
		if page, height := m.page(); page != nil && p.String() != "" && len(page.hits) == 0 {
			m.say(true, "%s is not there", p.String())
		} else if page != nil {
			page.first(height)
		}
	case askSave:
		return m.save(p.String())
	}
	return nil
}

// search looks for a text in what is read.
func (m *model) search(text string) {
	page, height := m.page()
	if page == nil {
		return
	}
	if m.over == nil {
		m.pane.search = text
	}
	page.find(text)
	page.first(height)
}

// page returns the text that is read, and its height; nil if it is the table.
func (m *model) page() (*pager, int) {
	switch {
	case m.over != nil:
		m.over.page.fit(max(1, m.width-2))
		return m.over.page, m.overHeight()
	case m.pane != nil:
		return m.pane.current(m), m.paneText().h
	}
	return nil, 0
}

// ask asks for y before it does something.
func (m *model) ask(question string, yes func() tea.Cmd) {
	m.prompt = &prompt{kind: askSure, label: question + " y/n", yes: yes}
}

// say shows a message in the last line; one that says what went wrong and does not fit there, on the whole screen.
func (m *model) say(bad bool, format string, args ...any) {
	if text := safe(fmt.Sprintf(format, args...)); bad && width(text) > m.width-3 && m.over == nil && m.prompt == nil && m.editor == nil {
		m.over = newOverlay("That did not work", func() []line { return []line{{{m.theme.fail, "✖ "}, {m.theme.text, text}}} })
		return
	}
	stays := 6 * time.Second
	if bad { // it is longer, and matters more
		stays = 20 * time.Second
	}
	m.flash = flash{safe(fmt.Sprintf(format, args...)), bad, m.now().Add(stays)}
}

// paste puts pasted text into what is typed.
func (m *model) paste(text string) tea.Cmd {
	switch {
	case m.editor != nil:
		return m.editor.update(tea.PasteMsg{Content: text})
	case m.prompt != nil && m.prompt.kind != askSure:
		m.prompt.insert(text)
		return m.typed(m.prompt)
	}
	return nil
}
