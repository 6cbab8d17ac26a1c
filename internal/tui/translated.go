package tui

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"mcpwire/internal/detail"
	"mcpwire/internal/wireview"
)

// twoColumns is how wide a text must be for two messages to stand side by side.
const twoColumns = 96

// translatedTab shows what a bridge made of messages: before and after side by side, or, where there is no room, each line above what became of it.
func translatedTab(m *model, d *detail.Detail) []line {
	t := m.theme
	var out []line
	for i := range d.Translations {
		x := &d.Translations[i]
		if i > 0 {
			out = append(out, nil)
		}
		out = append(out, m.translatedHead(x))
		switch {
		case x.Lines == nil:
			out = append(out, m.unaligned(d, x)...)
		case x.Changed == 0:
			out = append(out, line{{t.added, "  = the same, as it is"}})
			fallthrough
		default:
			out = append(out, m.aligned(x, m.paneBody().w)...)
		}
	}
	if len(d.Counterparts) > 0 {
		out = append(out, nil, line{{t.dim, "o goes to the other side, and back"}})
	}
	return out
}

// translatedHead says what became what.
func (m *model) translatedHead(x *detail.Translation) line {
	t := m.theme
	sign, st := "→", t.request
	if x.Dir == "s2c" {
		sign, st = "←", t.response
	}
	l := line{{st, sign + " "}}
	side := func(p *detail.TranslatedMessage) {
		if p == nil {
			l = append(l, span{t.dim, "nothing"})
			return
		}
		l = append(l, span{t.head, strings.TrimSpace(string(p.Side) + fmt.Sprintf(" #%d", p.N))}, span{t.dim, " " + trace.FormatSize(p.Len)})
	}
	side(x.Before)
	l = append(l, span{t.dim, " ⇄ "})
	side(x.After)
	return append(l, span{t.text, "  " + safe(x.Rule)})
}

// unaligned shows two messages that are not both JSON.
func (m *model) unaligned(d *detail.Detail, x *detail.Translation) []line {
	var out []line
	for i, p := range []*detail.TranslatedMessage{x.Before, x.After} {
		if p != nil {
			out = append(out, line{{m.theme.dim, []string{"before", "after"}[i]}})
			out = append(out, payloadLines(m, d, p.Payload)...)
		}
	}
	return out
}

// aligned shows pairs of lines, in one column or in two.
func (m *model) aligned(x *detail.Translation, columns int) []line {
	t := m.theme
	var out []line
	for _, p := range x.Lines {
		if p[0] == 0 && p[1] == 0 {
			out = append(out, line{{t.dim, fmt.Sprintf("  ⋯ %d lines that are the same", p[2])}})
			continue
		}
		before, after := m.sideLine(x.Before, p[0], p[2], "−", t.failure), m.sideLine(x.After, p[1], p[2], "+", t.added)
		switch {
		case columns >= twoColumns:
			out = append(out, sideBySide(t, before, after, (columns-3)/2)...)
		case p[2] == 0 && before != nil:
			out = append(out, before)
		default:
			for _, l := range []line{before, after} {
				if l != nil {
					out = append(out, l)
				}
			}
		}
	}
	if x.Before.OmittedBytes > 0 || x.After.OmittedBytes > 0 {
		out = append(out, line{{t.dim, "… and more that is not shown"}})
	}
	return out
}

// sideLine is a line of one of the two messages, with a sign if the other does not say the same; nil if there is none.
func (m *model) sideLine(p *detail.TranslatedMessage, n, differs int, sign string, st style) line {
	if n <= 0 || n > len(p.Lines) {
		return nil
	}
	if differs == 0 {
		return append(line{{"", "  "}}, m.textLine(p.Lines[n-1])...)
	}
	return append(line{{st, sign + " "}}, m.textLine(p.Lines[n-1])...)
}

// sideBySide puts two lines side by side, each wrapped for so many columns.
func sideBySide(t *theme, a, b line, columns int) []line {
	left, right := wrapSide(a, columns), wrapSide(b, columns)
	var out []line
	for i := range max(len(left), len(right)) {
		var l line
		if i < len(left) {
			l = append(l, left[i]...)
		}
		l = append(l, span{"", spaces(columns - l.width())}, span{t.dim, " │ "})
		if i < len(right) {
			l = append(l, right[i]...)
		}
		out = append(out, l)
	}
	return out
}

func wrapSide(l line, columns int) []line {
	if l == nil {
		return nil
	}
	return l.wrap(columns, min(l.indent()+2, columns/2))
}

// goToOtherSide goes to the row of a bridge's other side that this one was made of, or became.
func (m *model) goToOtherSide() tea.Cmd {
	if m.sel == nil || m.frames != nil {
		m.showFlash(false, "o goes to a bridge's other side from an exchange; x shows those")
		return nil
	}
	found, linked := false, false
	m.src.Read(func(w *trace.Model) {
		at, ok := walk(m.list(w), m.cursor)
		if !ok || at.entry().row == nil {
			return
		}
		others := at.entry().row.Counterparts()
		linked = len(others) > 0
		for _, o := range others {
			root := o.Root()
			to := position{place: anchor{id: root.Seq}}
			if !m.sel.Has(root) {
				continue
			}
			if o != root {
				for p := o.Parent; p != nil; p = p.Parent {
					m.folds.set(p.Seq, true)
				}
				to.row = o.Seq
			}
			m.cursor, m.follow, found = to, false, true
			return
		}
	})
	switch {
	case !linked:
		m.showFlash(false, "no bridge has made anything of this, or this of anything")
	case !found:
		m.showFlash(false, "the other side is not among what the filter shows")
	}
	return nil
}
