package tui

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"mcpwire/cmd/internal/trace"
	"mcpwire/internal/base/wait"
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

// A sortView shows the rows of the timeline in another order.
type sortView struct {
	order sortOrder
	list  []sortedRow
	// busy means that a newer list is being built, and stale that it is already outdated.
	busy, stale bool
	// took is how long building the list took.
	took time.Duration
}

// A sortedRow is a row with its place. An evicted row stays until the list is built again.
type sortedRow struct {
	row *trace.Row
	key int64
}

// A sortedList is the list of a sortView.
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

// A sortedMsg has a list in the order of a view.
type sortedMsg struct {
	view *sortView
	list []sortedRow
	took time.Duration
}

// setSort shows the rows in an order, or in that of time if it is nil.
func (c *content) setSort(order *sortOrder) tea.Cmd {
	if c.sorted = nil; order == nil {
		return nil
	}
	c.frames = nil
	c.sorted = &sortView{order: *order}
	return c.buildSorted(true)
}

// buildSorted builds the list again if it is shown. It works in steps, to lock the model only
// briefly.
func (c *content) buildSorted(force bool) tea.Cmd {
	v := c.sorted
	if v == nil || c.sel == nil || c.pause != nil && !force {
		return nil
	}
	if v.busy {
		v.stale = true
		return nil
	}
	v.busy, v.stale = true, false
	sel, src, now, pause := c.sel, c.src, c.now(), min(10*v.took, 2*time.Second)
	return c.background.cmd(time.Minute, func(ctx context.Context) tea.Msg {
		wait.Sleep(ctx, pause) // build a long list less often
		begun := time.Now()
		var all []sortedRow
		var texts []string
		from := anchor{}
		for more := true; more && ctx.Err() == nil; {
			src.Read(func(*trace.Model) {
				x := &rowList{sel: sel, limit: -1, fold: &foldState{}}
				n := x.size()
				i := find(x, from)
				for end := min(n, i+rowsPerLock); i < end; i++ {
					r := sel.At(i)
					from = anchorOf(r).next()
					if v.order.text != nil {
						texts = append(texts, v.order.text(r))
						all = append(all, sortedRow{row: r})
					} else {
						all = append(all, sortedRow{r, -v.order.key(r, now)})
					}
				}
				more = i < n
			})
		}
		rank(all, texts)
		slices.SortFunc(all, func(a, b sortedRow) int {
			return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.row.Seq, b.row.Seq))
		})
		return sortedMsg{v, all, time.Since(begun)}
	})
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

// gotSorted replaces the list, unless the order has changed.
func (c *content) gotSorted(msg sortedMsg) tea.Cmd {
	v := c.sorted
	if v != msg.view {
		return nil
	}
	v.busy, v.took, v.list = false, msg.took, msg.list
	if v.stale {
		return c.buildSorted(false)
	}
	return nil
}

// openSort lists the orders.
func (m *model) openSort() {
	m.dialogs.chooser = newChooser(m.shared, "Sort by", func() []choice {
		t := m.table
		mark := func(is bool) span {
			if is {
				return span{m.theme.response, "✓ "}
			}
			return span{"", "  "}
		}
		list := []choice{{sign: mark(t.sorted == nil), label: "time", run: func() tea.Cmd {
			t.cursor, t.top = position{place: t.view.root}, position{}
			return t.setSort(nil)
		}}}
		for _, o := range sortOrders() {
			list = append(list, choice{sign: mark(t.sorted != nil && t.sorted.order.name == o.name), label: o.name, run: func() tea.Cmd {
				t.cursor, t.top, t.follow = listStart, listStart, false
				return t.setSort(&o)
			}})
		}
		return list
	})
}
