package tui

import (
	"time"

	"mcpwire/internal/wireview"
)

// A scale is the time that the waterfall shows: from the first visible row to the end of the last one.
type timeScale struct {
	from, to time.Time
}

// newTimeScale returns the scale for rows.
func newTimeScale(rows []rowView, now time.Time) timeScale {
	var s timeScale
	for i := range rows {
		x := &rows[i]
		if s.from.IsZero() || x.at.Before(s.from) {
			s.from = x.at
		}
		if end := x.at.Add(x.elapsed(now)); end.After(s.to) {
			s.to = end
		}
	}
	return s
}

// column returns the column of n in which a time is.
func (s timeScale) column(at time.Time, n int) int {
	whole := s.to.Sub(s.from)
	if whole <= 0 {
		return 0
	}
	c := int(float64(at.Sub(s.from)) / float64(whole) * float64(n))
	return min(max(c, 0), n-1)
}

func cellWaterfall(m *model, rv *rowView) line {
	for _, c := range m.view.columns {
		if c.head == "waterfall" {
			return m.view.scale.bar(m, rv, c.width)
		}
	}
	return nil
}

// bar draws a row in n columns: "█" the server works, "▒" it waits for the client, "─" a task or a stream goes on, "›" there is no end yet, "·" a moment.
func (s timeScale) bar(m *model, rv *rowView, n int) line {
	t := m.theme
	cells := make([]rune, n)
	for i := range cells {
		cells[i] = ' '
	}
	if rv.frame || !rv.hasDuration {
		cells[s.column(rv.at, n)] = '·'
		return line{{t.dim, string(cells)}}
	}
	end := rv.at.Add(rv.elapsed(m.view.now))
	first, last := s.column(rv.at, n), s.column(end, n)
	for i := first; i <= last; i++ {
		cells[i] = '█'
	}
	begun := rv.at.Add(-rv.since)
	for _, sp := range rv.spans {
		to := begun.Add(sp.To)
		if sp.Open && rv.pending {
			to = end
		}
		fill := map[trace.SegmentKind]rune{trace.SegmentServer: '█', trace.SegmentClient: '▒', trace.SegmentTask: '━', trace.SegmentStream: '─'}[sp.Kind]
		if fill == 0 {
			continue
		}
		for i := s.column(begun.Add(sp.From), n); i <= s.column(to, n) && i <= last; i++ {
			cells[i] = fill
		}
	}
	if rv.elapsed(m.view.now) < s.to.Sub(s.from)/time.Duration(4*n) && first == last {
		cells[first] = '▏'
	}
	if rv.pending || rv.status == trace.Unanswered { // no end was seen
		cells[last] = '›'
	}
	st := t.bar
	switch rv.glyph {
	case "✖":
		st = t.failure
	case "!":
		st = t.toolFail
	case "⇠":
		st = t.serverRequest
	}
	if rv.pending {
		st = t.pending
	}
	return paintBar(cells, st, t.waiting)
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
