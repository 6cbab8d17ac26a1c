package tui

import (
	"strings"
	"unicode"
)

// A pager is a text that can be scrolled and searched.
type pager struct {
	// lines have any width.
	lines []line
	// wraps tells to wrap long lines. Otherwise they are cut.
	wraps bool
	// madeFor is the width that lines were made for, if they depend on it.
	madeFor int

	top int
	// wrapped are the lines wrapped at columns.
	wrapped []line
	columns int
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

func newPager(lines []line) *pager { return &pager{lines: lines, wraps: true, columns: -1} }

// wrapTo wraps the lines at a number of columns, if they are not yet. The line at the top stays.
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

// scroll scrolls n lines.
func (p *pager) scroll(n, height int) {
	p.top = min(max(0, p.top+n), max(0, len(p.wrapped)-height))
}

// toggleWrap switches between wrapping and cutting long lines.
func (p *pager) toggleWrap() {
	p.wraps = !p.wraps
	p.columns = -1
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

// jumpToMatch moves to the next or previous match. It returns false if there are no matches.
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

// firstMatch moves to the first match at or below the top.
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

// lineAt returns the visible line i, with matches highlighted.
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
