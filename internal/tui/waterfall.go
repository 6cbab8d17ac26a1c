package tui

import (
	"time"

	"mcpwire/internal/wireview"
)

// A scale is the time that the waterfall shows: from the first visible row to the end of the last one.
type scale struct {
	from, to time.Time
}

// scaleOf returns the scale for rows.
func scaleOf(rows []shownRow, now time.Time) scale {
	var s scale
	for i := range rows {
		x := &rows[i]
		if s.from.IsZero() || x.at.Before(s.from) {
			s.from = x.at
		}
		if end := x.at.Add(x.passed(now)); end.After(s.to) {
			s.to = end
		}
	}
	return s
}

// column returns the column of n in which a time is.
func (s scale) column(at time.Time, n int) int {
	whole := s.to.Sub(s.from)
	if whole <= 0 {
		return 0
	}
	c := int(float64(at.Sub(s.from)) / float64(whole) * float64(n))
	return min(max(c, 0), n-1)
}

func cellWaterfall(m *model, x *shownRow) line {
	for _, c := range m.view.columns {
		if c.head == "waterfall" {
			return m.view.scale.bar(m, x, c.width)
		}
	}
	return nil
}

// bar draws a row in n columns: "█" the server works, "▒" it waits for the client, "─" a task or a stream goes on, "›" there is no end yet, "·" a moment.
func (s scale) bar(m *model, x *shownRow, n int) line {
	t := m.theme
	cells := make([]rune, n)
	for i := range cells {
		cells[i] = ' '
	}
	if x.frame || !x.timed {
		cells[s.column(x.at, n)] = '·'
		return line{{t.dim, string(cells)}}
	}
	end := x.at.Add(x.passed(m.view.now))
	first, last := s.column(x.at, n), s.column(end, n)
	for i := first; i <= last; i++ {
		cells[i] = '█'
	}
	begun := x.at.Add(-x.since)
	for _, sp := range x.spans {
		to := begun.Add(sp.To)
		if sp.Open && x.open {
			to = end
		}
		fill := map[wireview.SpanKind]rune{wireview.SpanServer: '█', wireview.SpanClient: '▒', wireview.SpanTask: '━', wireview.SpanStream: '─'}[sp.Kind]
		if fill == 0 {
			continue
		}
		for i := s.column(begun.Add(sp.From), n); i <= s.column(to, n) && i <= last; i++ {
			cells[i] = fill
		}
	}
	if x.passed(m.view.now) < s.to.Sub(s.from)/time.Duration(4*n) && first == last {
		cells[first] = '▏'
	}
	if x.open || x.status == wireview.Unanswered { // no end was seen
		cells[last] = '›'
	}
	st := t.bar
	switch x.glyph {
	case "✖":
		st = t.fail
	case "!":
		st = t.toolFail
	case "⇠":
		st = t.asked
	}
	if x.open {
		st = t.pending
	}
	return paintBar(cells, st, t.wait)
}

// paintBar makes spans of the cells of a bar.
func paintBar(cells []rune, st, wait style) line {
	var l line
	for i := 0; i < len(cells); {
		j := i
		for j < len(cells) && (cells[j] == '▒') == (cells[i] == '▒') {
			j++
		}
		s := st
		if cells[i] == '▒' {
			s = wait
		}
		l = append(l, span{s, string(cells[i:j])})
		i = j
	}
	return l
}
