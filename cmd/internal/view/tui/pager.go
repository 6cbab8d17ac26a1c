package tui

import (
	"strings"
	"unicode"

	tea "charm.land/bubbletea/v2"
)

// A pager is a component: a text that can be scrolled and searched.
type pager struct {
	*shared
	// render returns the lines of the text. They have any width.
	render func(r *renderer) []line
	// renderedBy is the renderer that lines are from.
	renderedBy renderer
	lines      []line
	// cutsLines means to cut long lines. Otherwise they are wrapped.
	cutsLines bool

	width, height int
	top           int
	// wrapped are the lines wrapped at the renderer's columns.
	wrapped []line
	// origin has the index in lines for each wrapped line.
	origin []int

	search string
	// matches are the indexes in wrapped of lines that match search.
	matches []int
	// match is an index in matches.
	match int
}

// maxPager limits the wrapped lines of a pager.
const maxPager = 50_000

func newPager(s *shared, render func(r *renderer) []line) *pager {
	return &pager{shared: s, render: render}
}

// fit sets the size, and renders and wraps the text if the width or the renderer has changed. The
// line at the top stays if there are enough lines below it.
func (p *pager) fit(r renderer, width, height int) {
	p.width, p.height = width, height
	if r.columns = max(1, width-2); r != p.renderedBy {
		p.renderedBy, p.lines = r, p.render(&r)
		p.wrap()
	}
	p.scroll(0)
}

func (p *pager) wrap() {
	anchor := 0
	if p.top < len(p.origin) {
		anchor = p.origin[p.top]
	}
	p.wrapped, p.origin = nil, nil
	for i, l := range p.lines {
		parts := []line{l}
		if !p.cutsLines {
			parts = l.wrap(p.renderedBy.columns, l.indent()+2)
		}
		if i == anchor {
			p.top = len(p.wrapped)
		}
		for _, x := range parts {
			p.wrapped, p.origin = append(p.wrapped, x), append(p.origin, i)
		}
		if len(p.wrapped) > maxPager {
			p.wrapped, p.origin = append(p.wrapped, line{{faint, "… and more"}}), append(p.origin, i)
			break
		}
	}
	p.find(p.search)
}

// wheelLines is the number of lines of a wheel step.
const wheelLines = 3

func wheelStep(msg tea.MouseWheelMsg) int {
	switch msg.Button {
	case tea.MouseWheelUp:
		return -wheelLines
	case tea.MouseWheelDown:
		return wheelLines
	}
	return 0
}

// scrollStep returns how many lines a key moves down on a page of some height, or 0 if it is
// another key.
func scrollStep(k string, height int) int {
	switch k {
	case "j", "down":
		return 1
	case "k", "up":
		return -1
	case "pgdown", "ctrl+f":
		return max(1, height-1)
	case "pgup", "ctrl+b":
		return -max(1, height-1)
	case "ctrl+d":
		return max(1, height/2)
	case "ctrl+u":
		return -max(1, height/2)
	}
	return 0
}

// key handles a key, and reports whether it uses it.
func (p *pager) key(k string) bool {
	if n := scrollStep(k, p.height); n != 0 {
		p.scroll(n)
		return true
	}
	switch k {
	case "space":
		p.scroll(max(1, p.height-1))
	case "shift+space":
		p.scroll(-max(1, p.height-1))
	case "g", "home":
		p.scroll(-maxPager)
	case "G", "end":
		p.scroll(maxPager)
	case "n":
		p.jumpToMatch(1)
	case "N":
		p.jumpToMatch(-1)
	case "W":
		p.cutsLines = !p.cutsLines
		p.wrap()
	default:
		return false
	}
	return true
}

// View draws the visible lines, with a margin of one column at both sides.
func (p *pager) View() string {
	lines := make([]string, p.height)
	for i := range lines {
		lines[i] = append(line{{"", " "}}, p.lineAt(i)...).draw(p.width)
	}
	return strings.Join(lines, "\n")
}

// indent returns the number of leading spaces.
func (l line) indent() (n int) {
	for _, s := range l {
		rest := strings.TrimLeft(s.text, " ")
		if n += len(s.text) - len(rest); rest != "" {
			break
		}
	}
	return n
}

func (p *pager) scroll(n int) {
	p.top = min(max(0, p.top+n), max(0, len(p.wrapped)-p.height))
}

// find searches for a text. Case matters only if the text has capitals.
func (p *pager) find(text string) {
	p.search, p.matches, p.match = text, nil, 0
	if text == "" {
		return
	}
	fold := strings.IndexFunc(text, unicode.IsUpper) < 0
	for i, l := range p.wrapped {
		s := l.text()
		if fold {
			s = strings.ToLower(s)
		}
		if strings.Contains(s, text) {
			p.matches = append(p.matches, i)
		}
	}
}

// jumpToMatch moves n matches forward, or back if n is negative.
func (p *pager) jumpToMatch(n int) {
	if len(p.matches) == 0 {
		p.showFlash(false, "no matches: / searches in this text")
		return
	}
	p.match = (p.match + n + len(p.matches)) % len(p.matches)
	p.showMatch()
}

// firstMatch moves to the first match at or below the top.
func (p *pager) firstMatch() {
	for i, h := range p.matches {
		if p.match = i; h >= p.top {
			break
		}
	}
	p.showMatch()
}

func (p *pager) showMatch() {
	if p.match >= len(p.matches) {
		return
	}
	if h := p.matches[p.match]; h < p.top || h >= p.top+p.height {
		p.top = h - p.height/3
	}
	p.scroll(0)
}

// lineAt returns the visible line i, with matches highlighted.
func (p *pager) lineAt(i int) line {
	if i += p.top; i >= len(p.wrapped) {
		return nil
	}
	l := p.wrapped[i]
	if p.search == "" {
		return l
	}
	return l.highlight(p.search, p.theme.match)
}

// highlight applies a style to all occurrences of a text in a line.
func (l line) highlight(text string, match style) line {
	whole := l.text()
	folded := whole
	if strings.IndexFunc(text, unicode.IsUpper) < 0 {
		if folded = strings.ToLower(whole); len(folded) != len(whole) {
			return l // offsets would differ
		}
	}
	var out line
	at := 0 // offset of the span in whole
	for _, s := range l {
		for begin := 0; begin < len(s.text); {
			from, to := nextMatch(folded, text, at+begin)
			from, to = max(from-at, begin), min(to-at, len(s.text))
			if from >= len(s.text) {
				out = append(out, span{s.style, s.text[begin:]})
				break
			}
			if from > begin {
				out = append(out, span{s.style, s.text[begin:from]})
			}
			out = append(out, span{s.style.plus(match), s.text[from:to]})
			begin = to
		}
		at += len(s.text)
	}
	return out
}

// nextMatch returns the first match that ends after offset at. Without a match, from and to are
// beyond the end of s.
func nextMatch(s, text string, at int) (from, to int) {
	begin := max(0, at-len(text)+1)
	for {
		i := strings.Index(s[begin:], text)
		if i < 0 {
			return len(s) + 1, len(s) + 1
		}
		if begin+i+len(text) > at {
			return begin + i, begin + i + len(text)
		}
		begin += i + 1
	}
}
