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

// A prompt is a line that is being typed.
type prompt struct {
	kind      int
	label     string
	text      []rune
	pos       int
	previous  string // what was there before, for Esc
	filterErr *filter.SyntaxError
	gen       int            // counts changes
	onYes     func() tea.Cmd // of confirmPrompt

	closesOverlay bool // the answer closes the overlay
}

// maxPrompt is how many characters can be typed.
const maxPrompt = 4096

func newPrompt(kind int, label, text string) *prompt {
	p := &prompt{kind: kind, label: label, previous: text}
	p.insert(text)
	return p
}

// insert puts in what can be shown.
func (p *prompt) insert(s string) {
	for _, r := range s {
		if printable.Safe(r) && len(p.text) < maxPrompt {
			p.text = append(p.text[:p.pos], append([]rune{r}, p.text[p.pos:]...)...)
			p.pos++
			if now := string(p.text); r >= 0x80 && printable.Line(now) != now { // too many marks on one character
				p.remove(p.pos - 1)
			}
		}
	}
}

// key edits the line, and reports whether the key was one for that.
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

// window returns what is visible of the text in so many columns, and the column of the cursor in it.
func (p *prompt) window(columns int) (text string, column int) {
	from := 0
	for from < p.pos && width(string(p.text[from:p.pos])) >= columns {
		from++
	}
	text, _ = splitColumns(string(p.text[from:]), columns)
	return text, width(string(p.text[from:p.pos]))
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
	p.filterErr = nil
	if p.kind != filterPrompt {
		return
	}
	if _, err := filter.Parse(p.String()); err != nil && !errors.As(err, &p.filterErr) {
		p.filterErr = &filter.SyntaxError{Column: 1, Message: err.Error()}
	}
}

// filterDebounceMsg comes when nothing was typed for a moment.
type filterDebounceMsg struct {
	prompt *prompt
	gen    int
}

// filterDebounce is how long nothing is typed before the table shows what the filter lets through.
const filterDebounce = 250 * time.Millisecond

// promptKey handles a key while something is typed.
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

// promptChanged has what was typed take effect: at once for a search, after a pause for a filter.
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

// setFilter has the table show what a filter lets through.
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
		return nil // it says why
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

// search looks for a text in what is read.
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

// activePager returns the text that is read, and its height; nil if it is the table.
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

// confirm asks for y before it does something.
func (m *model) confirm(question string, yes func() tea.Cmd) {
	m.prompt = &prompt{kind: confirmPrompt, label: question + " y/n", onYes: yes}
}

// showFlash shows a message in the last line; one that says what went wrong and does not fit there, on the whole screen.
func (m *model) showFlash(bad bool, format string, args ...any) {
	if text := safe(fmt.Sprintf(format, args...)); bad && width(text) > m.width-3 && m.overlay == nil && m.prompt == nil && m.editor == nil {
		m.overlay = newOverlay("That did not work", func() []line { return []line{{{m.theme.failure, "✖ "}, {m.theme.text, text}}} })
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
	case m.prompt != nil && m.prompt.kind != confirmPrompt:
		m.prompt.insert(text)
		return m.promptChanged(m.prompt)
	}
	return nil
}
