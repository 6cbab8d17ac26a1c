package tui

import (
	"context"
	"math"
	"time"

	tea "charm.land/bubbletea/v2"

	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/internal/base/wait"
)

// A content decides what the table lists: the rows of the selection for its query, up to a pause,
// or their frames.
type content struct {
	*shared
	// sel is nil until the first selection is ready.
	sel   selection
	query query
	folds foldState
	// pause is nil unless paused.
	pause *pauseState
	// built is nil if exchanges are listed in the order of time.
	built *builtView
}

// A builtView shows the frames, or the rows in another order than that of time. Its list is built
// in the background.
type builtView struct {
	// order is nil for frames.
	order  *sortOrder
	frames []frame
	rows   []sortedRow
	// busy means that a newer list is being built, and stale that it is already outdated.
	busy, stale bool
	// took is how long building the list took.
	took time.Duration
}

func (v *builtView) isFrames() bool { return v != nil && v.order == nil }

func (v *builtView) isSorted() bool { return v != nil && v.order != nil }

// A selection has the rows of the timeline that match a filter. It is a [watch.Selection].
type selection interface {
	Len() int
	At(i int) *trace.Row
	Has(r *trace.Row) bool
	// Whole reports whether it has evicted rows too.
	Whole() bool
	// Matches also counts rows that it evicted itself.
	Matches() uint64
	SearchProgress() (share float64, busy bool)
	Close()
}

// A query describes what the table should show.
type query struct {
	// text is the filter as entered.
	text string
	// findingsOnly restricts the table to rows with findings.
	findingsOnly bool
	parsed       *filter.Filter
	// gen counts the queries, to recognize outdated results.
	gen int
	// busy means that the newest selection is not ready.
	busy bool
	// widened means that the rows were selected again because some were evicted.
	widened bool
}

func (q *query) empty() bool { return q.text == "" && !q.findingsOnly }

func (q *query) filter() (*filter.Filter, error) {
	text := q.text
	if q.findingsOnly {
		text = "finding:*"
		if q.text != "" {
			text += " (" + q.text + ")"
		}
	}
	if text == "" {
		return nil, nil
	}
	return filter.Parse(text)
}

// A pauseState is the state of a paused table.
type pauseState struct {
	// last is the last item shown.
	last anchor
	// at is the time at which timers stopped.
	at time.Time
}

func (c *content) setFilter(text string) tea.Cmd { return c.setQuery(text, c.query.findingsOnly) }

func (c *content) setQuery(text string, findingsOnly bool) tea.Cmd {
	if text == c.query.text && findingsOnly == c.query.findingsOnly {
		return nil
	}
	c.query.text, c.query.findingsOnly, c.query.widened = text, findingsOnly, false
	return c.selectRows()
}

// selectRows starts the selection for the query.
func (c *content) selectRows() tea.Cmd {
	f, err := c.query.filter()
	if err != nil {
		c.showFlash(true, "%v", err)
		return nil
	}
	c.query.parsed = f
	c.query.gen++
	c.query.busy = true
	gen, src := c.query.gen, c.src
	return c.background.cmd(time.Minute, func(context.Context) tea.Msg {
		sel, rows := src.selectRows(f)
		return doneMsg(func() tea.Cmd {
			if gen != c.query.gen { // a newer one is requested
				sel.Close()
				return nil
			}
			c.close()
			c.sel, c.src, c.query.busy = sel, rows, false
			c.readSources()
			return c.build(true)
		})
	})
}

// close releases the selection.
func (c *content) close() {
	if c.sel != nil {
		c.sel.Close()
	}
}

// list returns the lines of the table, and the number of rows that a pause hides. The caller must
// hold the lock of the model.
func (c *content) list(w *trace.Model) (l list, hidden int) {
	switch {
	case c.built.isFrames():
		return &frameList{c.built.frames, w.Find}, 0
	case c.built.isSorted():
		return &sortedList{c.built.rows, &c.folds}, 0
	}
	x := &rowList{sel: c.sel, fold: &c.folds, limit: -1}
	if c.pause != nil {
		x.limit = find(x, c.pause.last.next())
		hidden = c.sel.Len() - x.limit
	}
	return x, hidden
}

// togglePause pauses or resumes the table. It reports whether it is paused.
func (c *content) togglePause() bool {
	if c.pause != nil {
		c.pause = nil
		return false
	}
	c.pause = &pauseState{at: c.now(), last: anchor{at: math.MaxInt64}}
	if c.sel == nil {
		return true
	}
	c.src.Read(func(*trace.Model) {
		c.pause.last = anchor{}
		if n := c.sel.Len(); n > 0 {
			c.pause.last = anchorOf(c.sel.At(n - 1))
		}
	})
	return true
}

// clock returns the time of the timers.
func (c *content) clock() time.Time {
	if c.pause != nil {
		return c.pause.at
	}
	return c.now()
}

// show shows frames if order is nil, or the rows in that order.
func (c *content) show(order *sortOrder) tea.Cmd {
	c.built = &builtView{order: order}
	return c.build(true)
}

// build builds the list of frames or sorted rows again if it is shown. It keeps only what it needs
// of the rows, to need no further memory.
func (c *content) build(force bool) tea.Cmd {
	v := c.built
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
		var frames []frame
		var rows []sortedRow
		if v.order == nil {
			frames = framesOf(ctx, src, sel)
		} else {
			rows = v.order.rows(ctx, src, sel, now)
		}
		took := time.Since(begun)
		return doneMsg(func() tea.Cmd {
			v.busy, v.took, v.frames, v.rows = false, took, frames, rows
			if c.built != v || !v.stale {
				return nil
			}
			return c.build(false)
		})
	})
}

// rowsPerLock limits the rows read while the model is locked.
const rowsPerLock = 2000

// forEachRow calls f for the rows of a selection. It locks the model for a few rows at a time. It
// runs outside the event loop and returns the error of ctx.
func forEachRow(ctx context.Context, src source, sel selection, f func(r *trace.Row)) error {
	from := anchor{}
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return err
		}
		src.Read(func(*trace.Model) {
			x := &rowList{sel: sel, limit: -1}
			i := find(x, from)
			for end := min(x.size(), i+rowsPerLock); i < end; i++ {
				r := sel.At(i)
				f(r)
				from = anchorOf(r).next()
			}
			more = i < x.size()
		})
	}
	return nil
}
