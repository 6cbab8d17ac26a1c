package tui

import (
	"strings"
	"unicode"
)

// A pager is a text that can be scrolled and searched.
type pager struct {
	lines   []line // of any width
	wraps   bool   // long lines are wrapped, else cut
	madeFor int    // the width that the lines were made for, if they depend on it

	top     int
	wrapped []line // wrapped for columns
	columns int
	origin  []int // the number in lines of each of shown

	search  string
	matches []int // numbers in shown
	match   int   // in hits
}

// maxPager is how many lines a pager has at most, wrapped.
const maxPager = 50_000

func newPager(lines []line) *pager { return &pager{lines: lines, wraps: true, columns: -1} }

// wrapTo wraps the lines for so many columns, if they are not yet. The line at the top stays.
func (p *pager) wrapTo(columns int) {
	if columns == p.columns {
		return
	}
	anchor := 0
	if p.top < len(p.origin) {
		anchor = p.origin[p.top]
	}
	p.columns, p.wrapped, p.origin = columns, nil, nil
	for i, l := range p.lines {
		parts := []line{l}
		if p.wraps {
			parts = l.wrap(columns, l.indent()+2)
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

// indent returns how many spaces a line begins with.
func (l line) indent() (n int) {
	for _, s := range l {
		rest := strings.TrimLeft(s.text, " ")
		if n += len(s.text) - len(rest); rest != "" {
			break
		}
	}
	return n
}

// scroll moves by lines.
func (p *pager) scroll(n, height int) {
	p.top = min(max(0, p.top+n), max(0, len(p.wrapped)-height))
}

// toggleWrap wraps long lines, or cuts them.
func (p *pager) toggleWrap() {
	p.wraps = !p.wraps
	p.columns = -1
}

// find looks for a text. Case counts only if the text has capitals.
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

// jumpToMatch goes to the next hit, or the one before, and reports whether there is one.
func (p *pager) jumpToMatch(forward bool, height int) bool {
	if len(p.matches) == 0 {
		return false
	}
	if forward {
		p.match = (p.match + 1) % len(p.matches)
	} else {
		p.match = (p.match + len(p.matches) - 1) % len(p.matches)
	}
	p.showMatch(height)
	return true
}

// firstMatch goes to the first hit at the top of what is seen, or below.
func (p *pager) firstMatch(height int) {
	for i, h := range p.matches {
		if p.match = i; h >= p.top {
			break
		}
	}
	p.showMatch(height)
}

func (p *pager) showMatch(height int) {
	if p.match >= len(p.matches) {
		return
	}
	if h := p.matches[p.match]; h < p.top || h >= p.top+height {
		p.top = h - height/3
	}
	p.scroll(0, height)
}

// lineAt returns the line to be drawn at a height, with what was searched for marked.
func (p *pager) lineAt(i int, match style) line {
	if i += p.top; i >= len(p.wrapped) {
		return nil
	}
	l := p.wrapped[i]
	if p.search == "" {
		return l
	}
	return l.highlight(p.search, match)
}

// highlight gives a style to what a text has in common with a line.
func (l line) highlight(text string, match style) line {
	whole := l.text()
	folded := whole
	if strings.IndexFunc(text, unicode.IsUpper) < 0 {
		if folded = strings.ToLower(whole); len(folded) != len(whole) {
			return l // its parts cannot be found again
		}
	}
	var out line
	at := 0 // in whole, of the span
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

// nextMatch returns where the first match ends behind at, and where that begins; both are the length of s if there is none.
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
