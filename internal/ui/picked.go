package web

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"mcpwire/internal/filter"
	"mcpwire/internal/watch"
	"mcpwire/internal/wireview"
	"mcpwire/mcp"
)

// A picked is what a filter shows of one capture.
type captureSelection struct {
	capture  string
	path     string          // "" if it is in no file
	live     bool            // it is still being written
	all      bool            // every event of the file
	events   map[uint64]bool // false: an event that is there for the others to be understood, such as the handshake
	roots    map[uint64]bool // events that the rows of the timeline begin with; 0 is that of a gap which the reader has made up
	findings []trace.Finding
}

func newCaptureSelection(capture, path string) *captureSelection {
	return &captureSelection{capture: capture, path: path, events: map[uint64]bool{}, roots: map[uint64]bool{}}
}

// wants reports whether an event belongs to it.
func (cs *captureSelection) wants(n uint64) bool {
	if cs.all {
		return true
	}
	_, ok := cs.events[n]
	return ok
}

// A pick is what a filter shows.
type selection struct {
	captures []*captureSelection
	omitted  int // rows that are not in it, being too many
}

// searchTimeout is how long a search in payloads may take that a file waits for.
const searchTimeout = time.Minute

// errSearchTimeout is for a search that takes longer.
var errSearchTimeout = errors.New("the filter is still looking into payloads")

// selectRows returns what a filter shows, but for the oldest rows if there are more than limit (0 is no limit). A nil filter takes captures as a whole, if there is no limit.
func (s *Server) selectRows(ctx context.Context, f *filter.Filter, limit int) (*selection, error) {
	v := newView(s.hub, f, false)
	defer v.close()
	if err := v.waitSearch(ctx); err != nil {
		return nil, err
	}
	by := map[string]*captureSelection{}
	out := &selection{}
	for _, src := range s.hub.Sources() {
		if src.ID == "" || by[src.ID] != nil {
			continue
		}
		p := newCaptureSelection(src.ID, src.Path)
		p.live = src.State == watch.Live || src.State == watch.Growing
		p.all = f == nil && limit == 0 && src.Path != ""
		by[src.ID] = p
		out.captures = append(out.captures, p)
	}
	s.hub.Read(func(m *trace.Model) {
		rows := v.rows(m)
		if limit > 0 && len(rows) > limit {
			out.omitted = len(rows) - limit
			rows = rows[out.omitted:]
		}
		for _, r := range rows {
			if p := by[r.Capture.ID]; p != nil {
				p.add(r)
			}
		}
		for _, r := range m.Rows() {
			if p := by[r.Capture.ID]; p != nil {
				p.addContext(r)
			}
		}
	})
	out.captures = slices.DeleteFunc(out.captures, func(p *captureSelection) bool { return !p.all && len(p.roots) == 0 })
	return out, nil
}

// waitSearch waits until a search is over.
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
			return fmt.Errorf("ui: %w", context.Cause(ctx))
		}
	}
}

// rows returns the rows of the timeline that the view shows. The model must be locked.
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

// add takes a row of the timeline with all that is inside it.
func (cs *captureSelection) add(root *trace.Row) {
	cs.roots[root.N] = true
	if root.N == 0 {
		cs.events[0] = true
	}
	for r := range root.All() {
		for n := range eventsOf(r) {
			cs.events[n] = true
		}
		cs.findings = append(cs.findings, r.Findings...)
	}
}

// addContext takes a row if others are understood by it.
func (cs *captureSelection) addContext(root *trace.Row) {
	if !describesSession(root) {
		return
	}
	for r := range root.All() {
		for n := range eventsOf(r) {
			if _, ok := cs.events[n]; !ok {
				cs.events[n] = false
			}
		}
	}
}

// eventsOf yields the numbers of a row's events.
func eventsOf(r *trace.Row) func(yield func(uint64) bool) {
	return func(yield func(uint64) bool) {
		list := append([]uint64{r.N, r.ResponseN}, r.Events...)
		for _, l := range r.Links {
			list = append(list, l.N)
		}
		if h := r.HTTP; h != nil {
			list = append(list, h.RequestN, h.ResponseN, h.EndN)
		}
		for _, n := range list {
			if n != 0 && !yield(n) {
				return
			}
		}
	}
}

// describesSession reports whether a row says what kind of session it is.
func describesSession(r *trace.Row) bool {
	switch r.Kind {
	case trace.Start:
		return true
	case trace.Request, trace.Notification:
		return r.Method == mcp.MethodInitialize || r.Method == mcp.NotificationInitialized || r.Method == mcp.MethodDiscover
	}
	return false
}
