package tui

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"mcpwire/cmd/internal/trace"
)

// A sortOrder is an order of the rows of the timeline other than that of time.
type sortOrder struct {
	name string
	// key returns what rows are ordered by: the highest first.
	key func(r *trace.Row, now time.Time) int64
	// text returns a text to order by, in place of key. It may be nil.
	text func(r *trace.Row) string
}

func sortOrders() []sortOrder {
	return []sortOrder{
		{name: "latency, the longest first", key: func(r *trace.Row, now time.Time) int64 {
			if isPending(r) {
				return int64(max(r.Wall(), now.Sub(r.At)))
			}
			return int64(r.Wall())
		}},
		{name: "response size, the largest first", key: func(r *trace.Row, _ time.Time) int64 { return r.ResponseBytes }},
		{name: "request size, the largest first", key: func(r *trace.Row, _ time.Time) int64 { return r.RequestBytes }},
		{name: "findings, the most first", key: func(r *trace.Row, _ time.Time) int64 { return int64(r.CountFindings()) }},
		{name: "failures first", key: func(r *trace.Row, _ time.Time) int64 {
			if hasFailure(r) {
				return 1
			}
			return 0
		}},
		{name: "name of the tool, prompt or resource", text: func(r *trace.Row) string {
			return strings.ToLower(cmp.Or(r.Target, r.Method, string(r.Kind)))
		}},
		{name: "server", text: func(r *trace.Row) string { return strings.ToLower(r.Session.Label()) }},
	}
}

// A sortedRow is a row with its place. An evicted row stays until the list is built again.
type sortedRow struct {
	row *trace.Row
	key int64
}

// A sortedList is the list of sorted rows.
type sortedList struct {
	rows []sortedRow
	fold *foldState
}

func (l *sortedList) size() int { return len(l.rows) }

func (l *sortedList) anchorAt(i int) anchor {
	return anchor{at: l.rows[i].key, id: l.rows[i].row.Seq}
}

func (l *sortedList) lines(i int, buf []entry) []entry {
	return (&rowList{fold: l.fold}).unfold(l.rows[i].row, 0, buf[:0])
}

// rows returns the rows of a selection in the order.
func (o *sortOrder) rows(ctx context.Context, src source, sel selection, now time.Time) (all []sortedRow) {
	var texts []string
	_ = forEachRow(ctx, src, sel, func(r *trace.Row) { // what was read before the timeout
		x := sortedRow{row: r}
		if o.text != nil {
			texts = append(texts, o.text(r))
		} else {
			x.key = -o.key(r, now)
		}
		all = append(all, x)
	})
	rank(all, texts)
	slices.SortFunc(all, func(a, b sortedRow) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.row.Seq, b.row.Seq))
	})
	return all
}

// rank sets the keys of rows to the ranks of their texts.
func rank(all []sortedRow, texts []string) {
	if texts == nil {
		return
	}
	names := slices.Compact(slices.Sorted(slices.Values(texts)))
	for i := range all {
		at, _ := slices.BinarySearch(names, texts[i])
		all[i].key = int64(at)
	}
}

func (m *model) openSort() {
	m.dialogs.chooser = newChooser(m.shared, "Sort by", func() []choice {
		t := m.table
		list := []choice{{sign: m.theme.tick(!t.built.isSorted()), label: "time", run: func() tea.Cmd {
			t.leaveSort()
			return nil
		}}}
		for _, o := range sortOrders() {
			list = append(list, choice{sign: m.theme.tick(t.built.isSorted() && t.built.order.name == o.name), label: o.name, run: func() tea.Cmd {
				t.cursor, t.top, t.follow = listStart, listStart, false
				return t.show(&o)
			}})
		}
		return list
	})
}
