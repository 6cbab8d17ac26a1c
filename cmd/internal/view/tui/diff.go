package tui

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"mcpwire/cmd/internal/json/jsondiff"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/view/detail"
)

// A diffSide is one of two rows that are compared.
type diffSide struct {
	seq, n, response uint64
	capture, name    string
	status           string
	wall             time.Duration
}

// diffMarked compares the two marked rows, or the marked row with the cursor's row.
func (m *model) diffMarked() tea.Cmd {
	pair := slices.Clone(m.table.marks)
	if len(pair) == 1 && pair[0] != m.table.view.seq && m.table.view.seq != 0 {
		pair = append(pair, m.table.view.seq)
	}
	if len(pair) != 2 {
		m.showFlash(false, "m marks a row; mark two, then d compares them")
		return nil
	}
	var sides []diffSide
	m.src.Read(func(w *trace.Model) {
		for _, seq := range pair {
			if r := w.RowOf(seq); r != nil {
				sides = append(sides, diffSide{r.Seq, r.N, r.ResponseN, r.Capture.ID, trace.Join(" ", safe(r.Method), safe(r.Target)), trace.Join(" ", string(r.Status), r.CodeText()), r.Wall()})
			}
		}
	})
	if len(sides) != 2 {
		m.showFlash(true, "one of the two was removed for newer rows")
		m.table.marks = nil
		return nil
	}
	a, b, src := sides[0], sides[1], m.src
	return m.background.cmd(detailTimeout, func(ctx context.Context) tea.Msg {
		req := compareEvents(ctx, src, "request", a.capture, a.n, b.capture, b.n)
		res := compareEvents(ctx, src, "response", a.capture, a.response, b.capture, b.response)
		return doneMsg(func() tea.Cmd {
			m.dialogs.open(fmt.Sprintf("#%d and #%d", a.n, b.n), func(r *renderer) []line { return diffLines(r.theme, a, b, req, res) })
			return nil
		})
	})
}

// A comparison has the differences of two payloads.
type comparison struct {
	changes []jsondiff.Change
	// note says why there are no changes.
	note string
}

// compareEvents compares two events. It runs outside the event loop.
func compareEvents(ctx context.Context, src source, kind, captureA string, a uint64, captureB string, b uint64) comparison {
	if a == 0 && b == 0 {
		return comparison{note: "neither has one"}
	}
	changes, notes := detail.Compare(ctx, src, kind, captureA, a, captureB, b)
	return comparison{changes, strings.Join(notes, "; ")}
}

func diffLines(t *theme, a, b diffSide, req, res comparison) []line {
	var out []line
	for i, s := range []diffSide{a, b} {
		out = append(out, line{{t.mark, number(i + 1)}, {t.dim, fmt.Sprintf("  #%d  ", s.n)}, {t.text, s.name}, {t.dim, "  " + s.status + "  " + trace.FormatDuration(s.wall)}})
	}
	out = append(out, nil, line{{t.head, "Request"}})
	out = append(out, changeLines(t, req)...)
	out = append(out, nil, line{{t.head, "Response"}})
	return append(out, changeLines(t, res)...)
}

// changeLines shows changes as lines with - and +.
func changeLines(t *theme, c comparison) []line {
	if c.note != "" {
		return []line{{{t.dim, "  " + safe(c.note)}}}
	}
	if len(c.changes) == 0 {
		return []line{{{t.added, "  = no difference"}}}
	}
	var out []line
	for _, x := range c.changes {
		if x.Op == jsondiff.More {
			out = append(out, line{{t.dim, "  … and more"}})
			continue
		}
		out = append(out, line{{t.dim, "  " + cmp.Or(safe(x.Pointer), "all of it")}})
		if x.Old != "" {
			out = append(out, line{{t.failure, "  - " + safe(x.Old)}})
		}
		if x.New != "" {
			out = append(out, line{{t.added, "  + " + safe(x.New)}})
		}
	}
	return out
}
