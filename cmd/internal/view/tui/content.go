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
	// frames is nil if exchanges are listed.
	frames *frameView
	// sorted is nil if the rows are in the order of time.
	sorted *sortView
}

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
	// parsed is the filter.
	parsed *filter.Filter
	// gen counts the queries, to recognize outdated results.
	gen int
	// busy means that the newest selection is not ready.
	busy bool
	// widened means that the rows were selected again because some were evicted.
	widened bool
}

// empty reports whether the query selects all rows.
func (q *query) empty() bool { return q.text == "" && !q.findingsOnly }

// filter returns the query as a filter.
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

// A selectedMsg has the selection for a query.
type selectedMsg struct {
	gen int
	sel selection
	src source
}

// setFilter changes the filter.
func (c *content) setFilter(text string) tea.Cmd { return c.setQuery(text, c.query.findingsOnly) }

// setQuery changes the query.
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
		return selectedMsg{gen, sel, rows}
	})
}

// gotSelection uses a selection, unless a newer one is requested.
func (c *content) gotSelection(msg selectedMsg) {
	if msg.gen != c.query.gen {
		msg.sel.Close()
		return
	}
	c.close()
	c.sel, c.src, c.query.busy = msg.sel, msg.src, false
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
	if c.frames != nil {
		c.frames.list.rows = w.Find
		return c.frames.list, 0
	}
	if c.sorted != nil {
		return &sortedList{c.sorted.list, &c.folds}, 0
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

// buildFrames rebuilds the list of frames if it is shown. It works in steps, to lock the model only
// briefly, and reads the rows, to need no further memory.
func (c *content) buildFrames(force bool) tea.Cmd {
	v := c.frames
	if v == nil || c.sel == nil || c.pause != nil && !force {
		return nil
	}
	if v.busy {
		v.stale = true
		return nil
	}
	v.busy, v.stale = true, false
	sel, src, pause := c.sel, c.src, min(10*v.took, 2*time.Second)
	return c.background.cmd(time.Minute, func(ctx context.Context) tea.Msg {
		// Rebuild a long list less often.
		wait.Sleep(ctx, pause)
		begun := time.Now()
		var all []frame
		from := anchor{}
		for more := true; more && ctx.Err() == nil; {
			src.Read(func(*trace.Model) { all, from, more = appendFrames(all, sel, from) })
		}
		return framesMsg{sortFrames(all), time.Since(begun)}
	})
}

// gotFrames replaces the list of frames.
func (c *content) gotFrames(msg framesMsg) tea.Cmd {
	v := c.frames
	if v == nil {
		return nil
	}
	v.busy, v.took, v.list.frames = false, msg.took, msg.list
	if v.stale {
		return c.buildFrames(false)
	}
	return nil
}
