package tui

import (
	"slices"

	tea "charm.land/bubbletea/v2"
)

// key handles a key: it belongs to what is typed, to what lies on top, to the pane, or to the table.
func (m *model) key(k tea.KeyPressMsg) tea.Cmd {
	if m.flash.text != "" {
		m.flash = flash{}
	}
	if k.String() == "alt+esc" { // twice in quick succession
		k = tea.KeyPressMsg{Code: tea.KeyEscape}
	}
	switch {
	case m.editor != nil:
		return m.editorKey(k)
	case m.prompt != nil:
		return m.promptKey(k)
	case k.String() == "ctrl+c":
		return m.leave()
	case k.String() == "ctrl+z":
		return tea.Suspend
	case m.over != nil:
		return m.overKey(k.String())
	}
	if m.pane != nil && m.focus == onPane || m.tableHidden() {
		if cmd, ok := m.paneKey(k.String()); ok {
			return cmd
		}
	} else if m.tableKey(k.String()) {
		return nil
	}
	return m.command(k.String())
}

func (m *model) leave() tea.Cmd {
	m.quit = true
	return tea.Quit
}

// tableHidden reports whether the pane has all of the screen.
func (m *model) tableHidden() bool { return m.pane != nil && m.layout().table.h == 0 }

// overKey handles a key while an overlay is open.
func (m *model) overKey(k string) tea.Cmd {
	page, height := m.page()
	switch k {
	case "esc", "q", "enter":
		m.over = nil
	case "/":
		m.prompt = newPrompt(askSearch, "/", "")
	case "y":
		if m.over.copy != "" {
			return m.copyText("it", m.over.copy)
		}
	case "Y":
		if m.over.other != nil {
			return m.over.other()
		}
	default:
		m.scrollKey(page, height, k)
	}
	return nil
}

// scrollKey scrolls a text, and reports whether the key was one for that.
func (m *model) scrollKey(p *pager, height int, k string) bool {
	if p == nil {
		return false
	}
	switch k {
	case "j", "down":
		p.scroll(1, height)
	case "k", "up":
		p.scroll(-1, height)
	case "pgdown", "space", "ctrl+f":
		p.scroll(max(1, height-1), height)
	case "pgup", "shift+space", "ctrl+b":
		p.scroll(-max(1, height-1), height)
	case "ctrl+d":
		p.scroll(max(1, height/2), height)
	case "ctrl+u":
		p.scroll(-max(1, height/2), height)
	case "g", "home":
		p.scroll(-maxPager, height)
	case "G", "end":
		p.scroll(maxPager, height)
	case "n", "N":
		if !p.jump(k == "n", height) {
			m.say(false, "nothing to go to: / searches in this text")
		}
	case "W":
		p.refold()
	default:
		return false
	}
	return true
}

// paneKey handles a key of the pane, and reports whether it was one.
func (m *model) paneKey(k string) (tea.Cmd, bool) {
	p := m.pane
	page, height := m.page()
	switch k {
	case "esc", "q":
		m.closePane()
	case "tab", "shift+tab":
		if !m.tableHidden() {
			m.focus = onTable
		}
	case "/":
		m.prompt = newPrompt(askSearch, "/", "")
	case "left", "h", "right", "l":
		m.nextTab(k == "right" || k == "l")
	case "J", "K": // the next row without leaving the pane
		m.tableKey(map[string]string{"J": "down", "K": "up"}[k])
	case "b":
		p.hex = !p.hex
		m.say(false, "bytes as %s", map[bool]string{true: "hexadecimal digits", false: "text"}[p.hex])
		p.open = "Raw"
	case "z", "enter":
		m.zoom = !m.zoom
	default:
		return nil, m.scrollKey(page, height, k)
	}
	return nil, true
}

// nextTab opens the next tab, or the one before.
func (m *model) nextTab(forward bool) {
	p := m.pane
	for i := range p.tabs {
		if &p.tabs[i] != p.tab() {
			continue
		}
		if forward {
			i++
		} else {
			i += len(p.tabs) - 1
		}
		p.open = p.tabs[i%len(p.tabs)].title
		return
	}
}

// tableKey moves in the table, and reports whether the key was one for that.
func (m *model) tableKey(k string) bool {
	height := max(1, m.view.area.table.h)
	switch k {
	case "j", "down":
		m.moveCursor(1)
	case "k", "up":
		m.moveCursor(-1)
	case "pgdown", "ctrl+f":
		m.moveCursor(max(1, height-1))
	case "pgup", "ctrl+b":
		m.moveCursor(-max(1, height-1))
	case "ctrl+d":
		m.moveCursor(max(1, height/2))
	case "ctrl+u":
		m.moveCursor(-max(1, height/2))
	case "g", "home":
		m.cursor, m.follow = spot{}, false
	case "G", "end":
		m.toEnd()
	case "n":
		m.nextProblem(true)
	case "N":
		m.nextProblem(false)
	case "space":
		m.unfold(!m.folds.open(m.view.seq))
	case "right":
		m.unfold(true)
	case "left":
		m.unfold(false)
	case "*":
		m.folds.setAll(!m.folds.all)
	default:
		return false
	}
	return true
}

// command handles the keys that do the same wherever they are pressed.
func (m *model) command(k string) tea.Cmd {
	if len(k) == 1 && k[0] >= '1' && k[0] <= '9' {
		m.chooseTab(int(k[0] - '1'))
		return nil
	}
	switch k {
	case "q":
		return m.leave()
	case "esc":
		return m.escape()
	case "enter":
		if m.view.seq != 0 {
			m.openPane()
		}
	case "tab", "shift+tab":
		if m.pane != nil {
			m.focus = onPane
		}
	case "/":
		m.prompt = newPrompt(askFilter, "/", m.choice.text)
		m.prompt.check()
	case "f":
		m.setFollow(!m.follow)
	case "p":
		m.setPause()
	case "x":
		return m.switchFrames()
	case "t":
		m.timeMode = (m.timeMode + 1) % timeModes
	case "l":
		m.choice.lints = !m.choice.lints
		return m.choose()
	case "z":
		m.zoom = m.pane != nil && !m.zoom
	case "?":
		m.over = newOverlay("Keys", m.helpLines)
	case "c":
		m.openCard()
	case "s":
		m.over = m.toolsOverlay()
	default:
		return m.act(k)
	}
	return nil
}

// act handles the keys that do something with the row of the cursor.
func (m *model) act(k string) tea.Cmd {
	switch k {
	case "m":
		m.toggleMark()
	case "o":
		return m.toOther()
	case "d":
		return m.diffMarked()
	case "y":
		return m.withDetail(m.copyPayload)
	case "Y":
		return m.withDetail(m.copyCommand)
	case "r":
		return m.resend(false)
	case "E":
		return m.resend(true)
	case "w":
		return m.restart()
	case "e":
		m.prompt = newPrompt(askSave, "save as", m.saveName())
	}
	return nil
}

// escape goes back by one step: it closes the pane, ends a pause, takes the filter away.
func (m *model) escape() tea.Cmd {
	switch {
	case m.pane != nil:
		m.closePane()
	case m.pause != nil:
		m.pause = nil
		return m.buildFrames(true)
	case m.choice.text != "" || m.choice.lints:
		m.choice.text, m.choice.lints = "", false
		return m.choose()
	default:
		m.say(false, "q leaves")
	}
	return nil
}

// chooseTab opens a tab, and the pane if that is closed.
func (m *model) chooseTab(i int) {
	names := tabNames()
	switch {
	case m.pane == nil:
		if m.view.seq != 0 {
			m.openPane()
			m.focus = onTable
			m.pane.open = names[i]
		}
	case m.pane.detail == nil:
		m.pane.wish = i + 1
	case slices.ContainsFunc(m.pane.tabs, func(t tab) bool { return t.title == names[i] }):
		m.pane.open = names[i]
	default:
		m.say(false, "this row has no tab %d, %s", i+1, names[i])
	}
}

func (m *model) openCard() {
	if !m.view.known {
		m.say(false, "there is no session yet")
		return
	}
	m.over = m.cardOverlay()
}
