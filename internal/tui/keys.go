package tui

import (
	"slices"

	tea "charm.land/bubbletea/v2"
)

// handleKey handles a key: it belongs to what is typed, to what lies on top, to the pane, or to the table.
func (m *model) handleKey(k tea.KeyPressMsg) tea.Cmd {
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
		return m.quitProgram()
	case k.String() == "ctrl+z":
		return tea.Suspend
	case m.overlay != nil:
		return m.overlayKey(k.String())
	}
	if m.pane != nil && m.focus == onPane || m.tableHidden() {
		if cmd, ok := m.paneKey(k.String()); ok {
			return cmd
		}
	} else if m.tableKey(k.String()) {
		return nil
	}
	return m.globalKey(k.String())
}

func (m *model) quitProgram() tea.Cmd {
	m.quit = true
	return tea.Quit
}

// tableHidden reports whether the pane has all of the screen.
func (m *model) tableHidden() bool { return m.pane != nil && m.layout().table.h == 0 }

// overlayKey handles a key while an overlay is open.
func (m *model) overlayKey(k string) tea.Cmd {
	page, height := m.activePager()
	switch k {
	case "esc", "q", "enter":
		m.overlay = nil
	case "/":
		m.prompt = newPrompt(searchPrompt, "/", "")
	case "y":
		if m.overlay.copy != "" {
			return m.copyText("it", m.overlay.copy)
		}
	case "Y":
		if m.overlay.alternate != nil {
			return m.overlay.alternate()
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
		if !p.jumpToMatch(k == "n", height) {
			m.showFlash(false, "nothing to go to: / searches in this text")
		}
	case "W":
		p.toggleWrap()
	default:
		return false
	}
	return true
}

// paneKey handles a key of the pane, and reports whether it was one.
func (m *model) paneKey(k string) (tea.Cmd, bool) {
	p := m.pane
	page, height := m.activePager()
	switch k {
	case "esc", "q":
		m.closePane()
	case "tab", "shift+tab":
		if !m.tableHidden() {
			m.focus = onTable
		}
	case "/":
		m.prompt = newPrompt(searchPrompt, "/", "")
	case "left", "h", "right", "l":
		m.nextTab(k == "right" || k == "l")
	case "J", "K": // the next row without leaving the pane
		m.tableKey(map[string]string{"J": "down", "K": "up"}[k])
	case "b":
		p.hex = !p.hex
		m.showFlash(false, "bytes as %s", map[bool]string{true: "hexadecimal digits", false: "text"}[p.hex])
		p.openTab = "Raw"
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
		if &p.tabs[i] != p.currentTab() {
			continue
		}
		if forward {
			i++
		} else {
			i += len(p.tabs) - 1
		}
		p.openTab = p.tabs[i%len(p.tabs)].title
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
		m.cursor, m.follow = position{}, false
	case "G", "end":
		m.toEnd()
	case "n":
		m.nextFailure(true)
	case "N":
		m.nextFailure(false)
	case "space":
		m.unfold(!m.folds.isOpen(m.view.seq))
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

// globalKey handles the keys that do the same wherever they are pressed.
func (m *model) globalKey(k string) tea.Cmd {
	if len(k) == 1 && k[0] >= '1' && k[0] <= '9' {
		m.chooseTab(int(k[0] - '1'))
		return nil
	}
	switch k {
	case "q":
		return m.quitProgram()
	case "esc":
		return m.goBack()
	case "enter":
		if m.view.seq != 0 {
			m.openPane()
		}
	case "tab", "shift+tab":
		if m.pane != nil {
			m.focus = onPane
		}
	case "/":
		m.prompt = newPrompt(filterPrompt, "/", m.query.text)
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
		m.query.findingsOnly = !m.query.findingsOnly
		return m.selectRows()
	case "z":
		m.zoom = m.pane != nil && !m.zoom
	case "?":
		m.overlay = newOverlay("Keys", m.helpLines)
	case "c":
		m.openCard()
	case "s":
		m.overlay = m.toolsOverlay()
	default:
		return m.rowKey(k)
	}
	return nil
}

// rowKey handles the keys that do something with the row of the cursor.
func (m *model) rowKey(k string) tea.Cmd {
	switch k {
	case "m":
		m.toggleMark()
	case "o":
		return m.goToOtherSide()
	case "d":
		return m.diffMarked()
	case "y":
		return m.withDetail(m.copyPayload)
	case "Y":
		return m.withDetail(m.copyCommand)
	case "r":
		return m.startResend(false)
	case "E":
		return m.startResend(true)
	case "w":
		return m.restart()
	case "e":
		m.prompt = newPrompt(savePrompt, "save as", m.saveName())
	}
	return nil
}

// goBack goes back by one step: it closes the pane, ends a pause, takes the filter away.
func (m *model) goBack() tea.Cmd {
	switch {
	case m.pane != nil:
		m.closePane()
	case m.pause != nil:
		m.pause = nil
		return m.buildFrames(true)
	case m.query.text != "" || m.query.findingsOnly:
		m.query.text, m.query.findingsOnly = "", false
		return m.selectRows()
	default:
		m.showFlash(false, "q leaves")
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
			m.pane.openTab = names[i]
		}
	case m.pane.detail == nil:
		m.pane.wantTab = i + 1
	case slices.ContainsFunc(m.pane.tabs, func(t tab) bool { return t.title == names[i] }):
		m.pane.openTab = names[i]
	default:
		m.showFlash(false, "this row has no tab %d, %s", i+1, names[i])
	}
}

func (m *model) openCard() {
	if !m.view.hasSession {
		m.showFlash(false, "there is no session yet")
		return
	}
	m.overlay = m.cardOverlay()
}
