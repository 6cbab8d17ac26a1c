package show

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/sources"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/internal/text/plural"
)

// A lister prints rows, one line each, followed by their children, indented.
type lister struct {
	w     *bufio.Writer
	paint kit.Paint
	// width is the width in columns. Zero doesn't cut.
	width  int
	prefix string
	json   bool
	filter *filter.Filter
	// live prints a row as soon as it has a status or is a stream, instead of in order.
	live bool
	// server prints the server of each row.
	server bool
	// letters prints the letter of a row's capture before its number even while there is only one.
	letters bool
	began   time.Time
	// children prints all rows inside an exchange. Otherwise runs of progress are one line.
	children bool
	// window limits the rows that are printed, in addition to the filter.
	window sources.Window
	// seen and count are the numbers of rows seen and printed.
	seen, count int
	// gaps is the number of gaps seen.
	gaps int
	// recent holds the rows to print at the end, if window.last is set.
	recent []*trace.Row

	// queue holds the rows that are not printed yet, the oldest first.
	queue []*trace.Row
}

// The values of Row.Mark.
const (
	markTaken   = 1 // removed from the queue
	markPrinted = 2
)

// newLister returns a lister that prints to standard output.
func newLister(e *kit.Env, f *filter.Filter) *lister {
	s := kit.NewScreen(e.Stdout)
	return &lister{w: bufio.NewWriterSize(e.Stdout, 32<<10), paint: s.Paint, width: kit.TerminalWidth(e.Stdout), filter: f}
}

// run prints the rows of a timeline, in the order in which they began unless l.live is set.
func (l *lister) run(ctx context.Context, events iter.Seq2[*capture.Event, error], ended func() bool) error {
	m := trace.New(&trace.Options{MaxRows: sources.MaxWindow, Scan: trace.Scanner(ctx, l.filter)})
	var failed error
	for e, err := range events {
		if err != nil {
			failed = err
			break
		}
		if err := l.changes(m.Add(nil, e)); err != nil {
			return err
		}
		if l.live && l.w.Flush() != nil {
			return l.w.Flush()
		}
	}
	if failed == nil && ended() {
		_ = l.changes(m.Finish())
	}
	err := l.flush(nil)
	for _, r := range l.recent {
		if err == nil {
			err = l.emit(r)
		}
	}
	if ferr := l.w.Flush(); err == nil {
		err = ferr
	}
	return errors.Join(failed, err)
}

func (l *lister) changes(list []trace.Change) error {
	for _, c := range list {
		r := c.Row
		switch {
		case c.Op == trace.Added && r.Parent == nil:
			l.queue = append(l.queue, r)
		case c.Op == trace.Added && r.Root().Mark == markPrinted:
			if err := l.late(r); err != nil {
				return err
			}
		case c.Op == trace.Evicted:
			if err := l.flush(r); err != nil {
				return err
			}
		case l.live && r.Role != "" && r.Done && r.Mark == 0 && r.Root().Mark == markPrinted:
			if err := l.late(r); err != nil {
				return err
			}
		}
	}
	return l.settled()
}

// settled prints the rows at the head of the queue that are complete, or if l.live is set, all that
// have something to show.
func (l *lister) settled() error {
	if l.live {
		rest := l.queue[:0]
		for _, r := range l.queue {
			if !live(r) {
				rest = append(rest, r)
				continue
			}
			if err := l.print(r); err != nil {
				return err
			}
		}
		clear(l.queue[len(rest):])
		l.queue = rest
		return nil
	}
	for len(l.queue) > 0 && l.queue[0].Complete() {
		if err := l.print(l.pop()); err != nil {
			return err
		}
	}
	return nil
}

// live reports whether a row has something to show in live mode.
func live(r *trace.Row) bool {
	return r.Status != trace.Pending || r.HTTP != nil && r.HTTP.Stream && r.Kind == trace.HTTP || r.Method == "subscriptions/listen"
}

func (l *lister) pop() *trace.Row {
	r := l.queue[0]
	l.queue[0] = nil
	l.queue = l.queue[1:]
	return r
}

// flush prints the queue up to and including last. Nil prints all of it.
func (l *lister) flush(last *trace.Row) error {
	if last != nil && last.Mark != 0 {
		return nil
	}
	for len(l.queue) > 0 {
		r := l.pop()
		if err := l.print(r); err != nil || r == last {
			return err
		}
	}
	return nil
}

// noMatch says on standard error that no row was printed, if a filter is the reason.
func (l *lister) noMatch(e *kit.Env) {
	if l.count == 0 && (l.filter != nil || !l.window.Since.IsZero()) {
		fmt.Fprintf(e.Stderr, "0 of %s match\n", plural.Of(l.seen, "row"))
	}
}

// print prints a row and its children, if the filter and the window match.
func (l *lister) print(r *trace.Row) error {
	l.seen++
	if r.Kind == trace.Gap {
		l.gaps++
	}
	if r.Mark = markTaken; !l.filter.MatchScanned(r, r.Hits) || r.At.Before(l.window.Since) {
		return nil
	}
	if n := l.window.Last; n > 0 {
		if l.recent = append(l.recent, r); len(l.recent) > n {
			l.recent[0] = nil
			l.recent = l.recent[1:]
		}
		return nil
	}
	return l.emit(r)
}

// emit prints a row and its children.
func (l *lister) emit(r *trace.Row) error {
	r.Mark = markPrinted
	l.count++
	if l.json {
		return l.record(r)
	}
	return l.lines(r, 0)
}

func (l *lister) record(r *trace.Row) error {
	return kit.WriteJSON(l.w, trace.NewRecord(r))
}

func (l *lister) lines(r *trace.Row, depth int) error {
	if err := l.line(r, depth, ""); err != nil {
		return err
	}
	if r.EvictedChildren > 0 {
		if _, err := fmt.Fprintf(l.w, "%s%s%d earlier ones not shown\n", l.prefix, strings.Repeat(" ", 2*depth+24), r.EvictedChildren); err != nil {
			return err
		}
	}
	for i := 0; i < len(r.Children); i++ {
		c := r.Children[i]
		if n := progressRun(r.Children[i:]); n >= minRun && !l.children {
			if err := l.progress(r.Children[i:i+n], depth+1); err != nil {
				return err
			}
			i += n - 1
			continue
		}
		if c.Mark = markPrinted; c.Kind == trace.Request && !c.Done {
			c.Mark = 0 // it is printed when done
		}
		if err := l.lines(c, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// minRun is the number of consecutive progress notifications that become one line.
const minRun = 3

// progressRun returns the number of progress notifications at the beginning of rows.
func progressRun(rows []*trace.Row) int {
	n := 0
	for n < len(rows) && rows[n].Kind == trace.Progress && len(rows[n].Findings) == 0 {
		n++
	}
	return n
}

// progress prints a run of progress notifications as one line.
func (l *lister) progress(rows []*trace.Row, depth int) error {
	for _, r := range rows {
		r.Mark = markPrinted
	}
	first, last := rows[0], rows[len(rows)-1]
	from, _, _ := strings.Cut(first.Target, "/")
	every := last.At.Sub(first.At) / time.Duration(len(rows)-1)
	return l.text(last, depth, fmt.Sprintf("progress %s…%s, every %s", trace.Escape(from), trace.Escape(last.Target), trace.FormatDuration(every)))
}

// late prints a row whose parent was printed before.
func (l *lister) late(r *trace.Row) error {
	if l.live && r.Kind == trace.Request && !r.Done {
		return nil // printed when done
	}
	r.Mark = markPrinted
	if l.json {
		return l.record(r)
	}
	return l.line(r, 1, " (of #"+l.number(r.Root())+")")
}

// narrowWidth is the width below which a line omits the time and the columns.
const narrowWidth = 60

// number returns the number of a row's first event.
func (l *lister) number(r *trace.Row) string {
	if l.letters {
		return r.Capture.Letter() + strconv.FormatUint(r.N, 10)
	}
	return r.Number()
}

// line prints one row.
func (l *lister) line(r *trace.Row, depth int, after string) error {
	return l.text(r, depth, trace.Summary(r)+after)
}

// text prints one row with a summary.
func (l *lister) text(r *trace.Row, depth int, summary string) error {
	if l.began.IsZero() {
		l.began = r.Capture.Started
	}
	number := l.number(r)
	head := fmt.Sprintf("%6s %9.3f ", number, r.At.Sub(l.began).Seconds())
	narrow := l.width > 0 && l.width < narrowWidth
	if narrow {
		head = number + " "
	}
	name := r.Method
	if r.Kind != trace.Request && r.Kind != trace.HTTP {
		name = string(r.Kind)
	}
	name = trace.Escape(name)
	columns := 20
	server := trace.Truncate(trace.Escape(r.Session.ServerName()), 12)
	if r.Capture.HasUpstreams() && !l.server {
		name = server + strings.Repeat(" ", max(0, 8-trace.Width(server))) + " " + name
		columns = 28
	}
	if side := r.Session.Side; side != "" {
		name = fmt.Sprintf("%-4s ", trace.SideLabel(side)) + name
	}
	if l.server {
		name = server + " " + name
	}
	glyph := strings.Repeat("  ", depth) + trace.Glyph(r)
	if !narrow {
		name += strings.Repeat(" ", max(0, columns-2*depth-trace.Width(name)))
	}
	rest := " " + summary
	findings := ""
	if len(r.Findings) > 0 {
		findings = fmt.Sprintf(" ▲%d", len(r.Findings))
	}
	if l.width > 0 {
		left := max(2, l.width-len(head)-trace.Width(glyph)-1-trace.Width(findings))
		name = trace.Truncate(name, left)
		if left -= trace.Width(name); left > 0 {
			rest = trace.Truncate(rest, left)
		} else {
			rest = ""
		}
	}
	style := rowStyle(r)
	_, err := io.WriteString(l.w, l.prefix+l.paint.In(kit.Dim, head)+l.paint.In(style, glyph+" "+name)+l.paint.In(restStyle(r, style), rest)+l.paint.In(kit.Yellow, findings)+"\n")
	return err
}

// rowStyle returns the style of a row's sign and name.
func rowStyle(r *trace.Row) string {
	switch trace.Glyph(r) {
	case "✖":
		return kit.Red
	case "!", "▲", "▒", "⊘":
		return kit.Yellow
	case "⇠", "?":
		return kit.Cyan
	case "→":
		return kit.Green
	}
	return kit.Dim
}

func restStyle(r *trace.Row, style string) string {
	if r.Kind == trace.Request && style != kit.Red && style != kit.Yellow {
		return ""
	}
	return style
}
