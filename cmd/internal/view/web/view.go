package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/cmd/internal/view/detail"
	"mcpwire/cmd/internal/view/watch"
)

// views finds the rows of a hub, those of its timeline and those evicted from it.
type views struct {
	hub *watch.Hub
	// mu guards wholes.
	mu sync.Mutex
	// wholes are the selections of evicted rows in use, by filter.
	wholes map[string]*sharedSelection
}

// of returns a view of the rows that match a filter. Nil means all rows. The caller must close
// the view.
func (vs *views) of(f *filter.Filter) view {
	v := view{hub: vs.hub, filter: f, release: func() {}, tried: vs.evicted() > 0}
	if f != nil {
		v.selection, v.release, v.crowded = vs.selectWhole(f)
		v.hub = v.selection.Hub()
		v.reset()
	}
	return v
}

// maxWholes limits the selections of evicted rows. Each keeps as many rows as the hub does.
const maxWholes = 4

// A sharedSelection is a selection of evicted rows, for all requests with its filter.
type sharedSelection struct {
	*watch.Selection
	users int
}

// selectWhole returns a selection of all rows that match a filter. The caller must call release.
// crowded reports that evicted rows are not among them because of maxWholes.
func (vs *views) selectWhole(f *filter.Filter) (sel *watch.Selection, release func(), crowded bool) {
	key := f.String()
	vs.mu.Lock()
	defer vs.mu.Unlock()
	shared := vs.wholes[key]
	if shared == nil {
		if crowded = len(vs.wholes) >= maxWholes; crowded {
			sel = vs.hub.Select(f)
		} else {
			sel = vs.hub.SelectWhole(f)
		}
		if !sel.Whole() {
			return sel, sel.Close, crowded
		}
		shared = &sharedSelection{Selection: sel}
		vs.wholes[key] = shared
	}
	shared.users++
	return shared.Selection, func() {
		vs.mu.Lock()
		defer vs.mu.Unlock()
		if shared.users--; shared.users == 0 {
			delete(vs.wholes, key)
			shared.Close()
		}
	}, false
}

// hubOf returns the hub that has the row with a number.
func (vs *views) hubOf(seq uint64) *watch.Hub {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	for _, shared := range vs.wholes {
		if h := shared.Hub(); h.HasSeq(seq) {
			return h
		}
	}
	return vs.hub
}

// evicted returns the number of rows that the timeline no longer has.
func (vs *views) evicted() (n uint64) {
	vs.hub.Read(func(m *trace.Model) { n = m.EvictedRows() })
	return n
}

// pictured calls f with the rows that match the filter of a request, the number of evicted ones,
// and the model locked.
func (vs *views) pictured(r *http.Request, f func(m *trace.Model, rows []*trace.Row, evicted int)) error {
	parsed, err := parseFilter(r)
	if err != nil {
		return err
	}
	v := vs.of(parsed)
	defer v.close()
	if err := v.waitSearch(r.Context()); err != nil {
		return err
	}
	v.hub.Read(func(m *trace.Model) { f(m, v.rows(m), v.evicted(m)) })
	return nil
}

// A rowRef has the parts of a row that are used after the model is unlocked.
type rowRef struct {
	row     *detail.Snapshot
	page    pageRow
	capture string
	session uint64
	// n is the number of the row's first event.
	n         uint64
	responseN uint64
	// name is the name of the server.
	name string
}

// row returns a copy of a row.
func (vs *views) row(seq uint64) (p rowRef, err error) {
	err = fail(http.StatusNotFound, "row not found: it was removed for newer ones, or the capture was closed")
	vs.hubOf(seq).Read(func(m *trace.Model) {
		if r := m.RowOf(seq); r != nil {
			p, err = newRowRef(r), nil
		}
	})
	return p, err
}

// newRowRef copies the needed parts of a row. The caller must hold the lock of the model.
func newRowRef(r *trace.Row) rowRef {
	return rowRef{
		row: detail.TakeSnapshot(r), page: newPageRow(r), capture: r.Capture.ID, session: r.Session.Number, n: r.N, responseN: r.ResponseN, name: r.Capture.Name,
	}
}

// pathRow is like row for the row in the path of a request.
func (vs *views) pathRow(r *http.Request) (rowRef, error) {
	seq, err := strconv.ParseUint(r.PathValue("seq"), 10, 64)
	if err != nil {
		return rowRef{}, fail(http.StatusNotFound, "the row must be a number")
	}
	return vs.row(seq)
}

// A view selects the rows for a page: all, or the rows of the timeline that match a filter and the
// rows inside them.
type view struct {
	// hub has the rows.
	hub    *watch.Hub
	filter *filter.Filter
	// selection is nil for all rows.
	selection *watch.Selection
	// release is called when the selection is no longer needed.
	release func()
	// tried means that the selection has evicted rows too if that is possible.
	tried bool
	// crowded means that it has not, because too many others do.
	crowded bool
	// sent are the rows of the timeline that the page has. It is used only with a selection.
	sent map[uint64]*trace.Row
	// fresh are the rows of sent that the current batch has added.
	fresh map[*trace.Row]bool
	// forgotten are the rows that a resuming page may have had and had to drop. It is nil if
	// the page does not resume.
	forgotten map[uint64]bool
}

// reset drops everything that the page has.
func (v *view) reset() {
	v.sent, v.fresh, v.forgotten = map[uint64]*trace.Row{}, map[*trace.Row]bool{}, nil
}

// searching returns the progress of a search in payloads.
func (v *view) searching() (share float64, busy bool) {
	if v.selection == nil {
		return 1, false
	}
	return v.selection.SearchProgress()
}

// changes appends the changed rows of a batch to queue, ordered by number, and the rows to drop to
// gone. The caller must hold the lock of the model.
func (v *view) changes(b *watch.Batch, queue []*trace.Row, gone []uint64) ([]*trace.Row, []uint64) {
	gone = append(gone, b.Evicted...)
	if v.selection == nil {
		queue = append(queue, b.Changed...)
	} else {
		for _, q := range b.Evicted {
			delete(v.sent, q)
			delete(v.forgotten, q)
		}
		clear(v.fresh)
		for _, r := range b.Changed {
			queue, gone = v.changeRow(r, queue, gone)
		}
	}
	bySeq := func(a, b *trace.Row) int { return cmp.Compare(a.Seq, b.Seq) }
	if !slices.IsSortedFunc(queue, bySeq) {
		slices.SortFunc(queue, bySeq)
	}
	return queue, gone
}

// changeRow appends the change of one row, like changes.
func (v *view) changeRow(r *trace.Row, queue []*trace.Row, gone []uint64) ([]*trace.Row, []uint64) {
	root := r.Root()
	if r != root && v.sent[r.Seq] != nil { // it was moved into another row
		delete(v.sent, r.Seq)
		gone = append(gone, r.Seq)
	}
	switch known := v.sent[root.Seq] != nil; {
	case !v.selection.Has(root):
		if known || v.forgotten != nil && !v.forgotten[root.Seq] {
			gone = v.hide(root, gone)
		}
	case !known:
		v.fresh[root] = true
		queue = v.show(root, queue)
	case !v.fresh[root]:
		queue = append(queue, r)
	}
	return queue, gone
}

func (v *view) show(root *trace.Row, queue []*trace.Row) []*trace.Row {
	v.sent[root.Seq] = root
	for r := range root.All() {
		queue = append(queue, r)
	}
	return queue
}

func (v *view) hide(root *trace.Row, gone []uint64) []uint64 {
	delete(v.sent, root.Seq)
	if v.forgotten != nil {
		v.forgotten[root.Seq] = true
	}
	for r := range root.All() {
		gone = append(gone, r.Seq)
	}
	return gone
}

func (v *view) close() { v.release() }

// searchTimeout limits how long a download waits for a search.
const searchTimeout = 5 * time.Minute

// errSearchTimeout is the cause when a search exceeds searchTimeout.
var errSearchTimeout = errors.New("the filter is still searching")

// waitSearch waits until a search is done.
func (v *view) waitSearch(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, searchTimeout, errSearchTimeout)
	defer cancel()
	t := time.NewTicker(searchTick)
	defer t.Stop()
	for {
		if _, busy := v.searching(); !busy {
			return nil
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return failure{http.StatusServiceUnavailable, fmt.Errorf("web: %w", context.Cause(ctx))}
		}
	}
}

// evicted returns the number of rows of the view that were evicted. The caller must hold the lock
// of the model.
func (v *view) evicted(m *trace.Model) int {
	switch {
	case v.selection == nil:
		return int(m.EvictedRows())
	case v.selection.Whole():
		return int(v.selection.Matches()) - v.selection.Len()
	}
	return 0
}

// rows returns the rows of the timeline in the view. The caller must hold the lock of the model.
func (v *view) rows(m *trace.Model) []*trace.Row {
	if v.selection == nil {
		return m.Rows()
	}
	list := make([]*trace.Row, v.selection.Len())
	for i := range list {
		list[i] = v.selection.At(i)
	}
	return list
}
