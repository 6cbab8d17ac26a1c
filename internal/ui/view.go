package web

import (
	"cmp"
	"slices"

	"mcpwire/internal/filter"
	"mcpwire/internal/watch"
	"mcpwire/internal/wireview"
)

// A view tells which rows a page is to be sent: all, or those of the timeline for which a filter holds, with what is inside them.
type view struct {
	hub       *watch.Hub
	selection *watch.Selection      // nil is all
	sent      map[uint64]*trace.Row // rows of the timeline that the page has, if there is a selection
	fresh     map[*trace.Row]bool   // those of them that a batch has added
	forgotten map[uint64]bool       // rows that a page which goes on may have from before, and was told to forget; nil if it begins
}

// newView returns a view, of a page that begins, or of one that goes on. Close it in the end.
func newView(hub *watch.Hub, f *filter.Filter, goesOn bool) view {
	v := view{hub: hub}
	if f != nil {
		v.selection = hub.Select(f)
		v.reset()
		if goesOn {
			v.forgotten = map[uint64]bool{}
		}
	}
	return v
}

func (v *view) close() {
	if v.selection != nil {
		v.selection.Close()
	}
}

// reset makes the view begin anew.
func (v *view) reset() {
	v.sent, v.fresh, v.forgotten = map[uint64]*trace.Row{}, map[*trace.Row]bool{}, nil
}

// searching returns how much of a search in payloads is done.
func (v *view) searching() (share float64, busy bool) {
	if v.selection == nil {
		return 1, false
	}
	return v.selection.SearchProgress()
}

// changes appends the rows of a batch, which is about rows that a search has found as well, that are to be sent, in the order of their numbers, and the numbers of those that are to be forgotten. The model must be locked.
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

// changeRow is changes for one row.
func (v *view) changeRow(r *trace.Row, queue []*trace.Row, gone []uint64) ([]*trace.Row, []uint64) {
	root := r.Root()
	if r != root && v.sent[r.Seq] != nil { // it has become part of another
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
