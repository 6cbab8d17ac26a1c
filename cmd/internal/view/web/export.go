package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/cmd/internal/view/detail"
	"mcpwire/cmd/internal/view/watch"
)

// Limits of an exported page.
const (
	maxExportRows    = 5000     // of the timeline
	maxExportPayload = 64 << 10 // bytes of each payload
	maxExportBytes   = 48 << 20 // bytes of all payloads
	maxExportDetail  = 32 << 20 // bytes of all details, as JSON
)

// exportData is the data of an exported page.
type exportData struct {
	Hello    hello                      `json:"hello"`
	Exported int64                      `json:"exported"`
	Rows     []pageRow                  `json:"rows"`
	Sessions []trace.SessionInfo        `json:"sessions"`
	Sources  []watch.Source             `json:"sources"`
	Tools    toolStats                  `json:"tools"`
	Facets   trace.Facets               `json:"facets"`
	Pictures exportedPictures           `json:"pictures"`
	Details  map[string]json.RawMessage `json:"details"`
	Left     *omission                  `json:"left,omitempty"`
}

// omission counts what an exported page does not have.
type omission struct {
	Rows    int    `json:"rows,omitempty"`
	Details int    `json:"details,omitempty"`
	Note    string `json:"note,omitempty"`
}

// serveExport responds with a self-contained page.
func (s *Server) serveExport(w http.ResponseWriter, r *http.Request) error {
	f, err := parseFilter(r)
	if err != nil {
		return err
	}
	parts, err := s.export(r.Context(), f)
	if err != nil {
		return failure{http.StatusServiceUnavailable, err}
	}
	attach(w, "mcpwire-"+time.Now().UTC().Format("20060102-150405")+".html")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	for _, part := range parts {
		if _, err := w.Write(part); err != nil {
			break // the client has disconnected
		}
	}
	return nil
}

// Export writes the self-contained page (see the package comment) with the rows that match the
// filter. A nil filter matches all. The hub must be running. The error is that of ctx or of w.
func (s *Server) Export(ctx context.Context, w io.Writer, f *filter.Filter) error {
	parts, err := s.export(ctx, f)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// export builds the page. All of it comes from events that were redacted again, even if the
// capture was redacted before.
func (s *Server) export(ctx context.Context, f *filter.Filter) (parts [3][]byte, err error) {
	p, err := s.views.selectRows(ctx, f, s.maxExport)
	if err != nil {
		return parts, err
	}
	text := ""
	if f != nil {
		text = f.String()
	}
	x, err := exportDataOf(ctx, s.hub, p, text)
	if err != nil {
		return parts, err
	}
	now := time.Now().UnixMilli()
	x.Exported = now
	x.Hello.Hub, x.Hello.Reset, x.Hello.Now, x.Hello.Tool, x.Hello.Rows = "exported", true, now, s.opts.Tool, len(x.Rows)
	data, err := marshal(x)
	if err != nil {
		return parts, err
	}
	return exportedPage(data), nil
}

// An exportModel is a second model, of redacted events only.
type exportModel struct {
	selection *selection
	captures  map[string]*watch.Part
	model     *trace.Model
	payloads  map[eventKey]*capture.Event
	// payloadBytes is the size of the payloads.
	payloadBytes int
	// omitted counts the events whose payloads were left out.
	omitted int
	filter  string
}

type eventKey struct {
	capture string
	n       uint64
}

// errOmitted is the error for a payload that was left out.
var errOmitted = fmt.Errorf("%w: it was omitted from this page", watch.ErrGone)

// Event implements [detail.Source].
func (m *exportModel) Event(ctx context.Context, captureID string, n uint64) (*capture.Event, error) {
	if e := m.payloads[eventKey{captureID, n}]; e != nil {
		return e, ctx.Err()
	}
	return nil, errOmitted
}

// exportDataOf returns the data of an exported page.
func exportDataOf(ctx context.Context, hub *watch.Hub, p *selection, filter string) (*exportData, error) {
	m := &exportModel{selection: p, filter: filter, captures: map[string]*watch.Part{}, payloads: map[eventKey]*capture.Event{}, model: trace.New(nil)}
	if err := m.read(ctx, hub); err != nil {
		return nil, err
	}
	x := &exportData{Rows: []pageRow{}, Sources: exportedSources(hub, p), Tools: newToolStats(m.model), Facets: m.model.Facets(), Details: map[string]json.RawMessage{}}
	for _, c := range cards(m.model) {
		if m.captures[c.Capture] != nil {
			x.Sessions = append(x.Sessions, c)
		}
	}
	roots := m.roots()
	x.Pictures = newExportedPictures(m.model, roots)
	var rows []*trace.Row
	for _, r := range roots {
		rows = slices.AppendSeq(rows, r.All())
	}
	for _, r := range rows {
		x.Rows = append(x.Rows, newPageRow(r))
	}
	left, err := m.details(ctx, rows, x.Details)
	if err != nil {
		return nil, err
	}
	x.Hello.Filter = m.filter
	note := ""
	if m.omitted > 0 {
		note = "omitted or truncated payloads: " + strconv.Itoa(m.omitted)
	}
	if p.omitted > 0 || left > 0 || note != "" {
		x.Left = &omission{p.omitted, left, note}
	}
	return x, nil
}

// exportedSources returns the sources without paths, which contain user names.
func exportedSources(hub *watch.Hub, p *selection) []watch.Source {
	list := []watch.Source{}
	for _, src := range hub.Sources() {
		if slices.ContainsFunc(p.captures, func(c *watch.Part) bool { return c.Capture == src.ID }) {
			list = append(list, watch.Source{ID: src.ID, Name: src.Name, Transport: src.Transport, State: src.State})
		}
	}
	return list
}

// read fills the model.
func (m *exportModel) read(ctx context.Context, hub *watch.Hub) error {
	var all []iter.Seq2[*capture.Event, error]
	var sources []*watch.RedactedReader
	heads := map[string]*capture.Head{}
	for _, c := range m.selection.captures {
		m.captures[c.Capture] = c
		lines, err := c.Open(ctx, hub)
		if err != nil {
			return err
		}
		defer lines.Close()
		sources = append(sources, lines)
		all = append(all, capture.NewReader(lines, nil).Events())
	}
	for e, err := range capture.Merge(all...) {
		if err != nil {
			return fmt.Errorf("web: export: %w", err)
		}
		if e.Kind == capture.KindHead {
			heads[e.Capture] = e.Clone().Head
		}
		m.model.Add(heads[e.Capture], e)
		m.addPayload(e)
	}
	for i, lines := range sources {
		m.omitted += lines.Missing()
		if err := m.addFindings(m.selection.captures[i], lines); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// addPayload keeps an event with the beginning of its payload.
func (m *exportModel) addPayload(e *capture.Event) {
	c := m.captures[e.Capture]
	if c == nil || e.N == 0 {
		return
	}
	short := *e
	if len(short.Data) > maxExportPayload {
		short.Data, short.Cut = short.Data[:maxExportPayload], true
		short.Len = max(short.Len, int64(len(e.Data)))
		m.omitted++
	}
	if m.payloadBytes += len(short.Data); m.payloadBytes > maxExportBytes {
		m.omitted++
		return
	}
	m.payloads[eventKey{e.Capture, e.N}] = short.Clone()
}

// addFindings adds the findings of a capture. Findings and the filter quote the traffic, so it
// redacts them.
func (m *exportModel) addFindings(c *watch.Part, lines *watch.RedactedReader) error {
	texts := []string{m.filter}
	for _, l := range c.Findings {
		texts = append(texts, l.Message)
	}
	texts, err := lines.Texts(texts)
	if err != nil {
		return err
	}
	m.filter = texts[0]
	for i, l := range c.Findings {
		l.Message = texts[i+1]
		m.model.AddFinding(c.Capture, l.Event, l)
	}
	return nil
}

// roots returns the selected rows of the timeline.
func (m *exportModel) roots() (list []*trace.Row) {
	for _, root := range m.model.Rows() {
		if c := m.captures[root.Capture.ID]; c != nil && c.Roots[root.N] {
			list = append(list, root)
		}
	}
	return list
}

// details builds the details of rows, newest first, and returns how many did not fit.
func (m *exportModel) details(ctx context.Context, rows []*trace.Row, into map[string]json.RawMessage) (left int, err error) {
	size := 0
	for i, r := range slices.Backward(rows) {
		d, err := detail.Build(ctx, m, detail.TakeSnapshot(r), &detail.Options{MaxShown: maxExportPayload})
		if err != nil {
			return 0, errors.Join(err, context.Cause(ctx))
		}
		text, err := marshal(rowDetail{d, newPageRow(r)})
		if err != nil {
			return 0, err
		}
		if size += len(text); size > maxExportDetail {
			return i + 1, nil
		}
		into[strconv.FormatUint(r.Seq, 10)] = text
	}
	return 0, nil
}

// A selection is what a filter shows.
type selection struct {
	captures []*watch.Part
	// omitted counts the rows above the limit, and evicted those of them that are not in memory.
	omitted, evicted int
}

// selectRows returns what a filter shows, without the oldest rows above limit. A limit of 0 means
// no limit; a nil filter then selects whole captures.
func (vs *views) selectRows(ctx context.Context, f *filter.Filter, limit int) (*selection, error) {
	v := vs.of(f)
	defer v.close()
	if err := v.waitSearch(ctx); err != nil {
		return nil, err
	}
	by := map[string]*watch.Part{}
	out := &selection{}
	for _, src := range vs.hub.Sources() {
		if src.ID == "" || by[src.ID] != nil {
			continue
		}
		p := watch.NewPart(src.ID, src.Path)
		p.Live = src.State == watch.Live || src.State == watch.Growing
		p.All = f == nil && limit == 0 && src.Path != ""
		by[src.ID] = p
		out.captures = append(out.captures, p)
	}
	v.hub.Read(func(m *trace.Model) {
		rows := v.rows(m)
		out.evicted = v.evicted(m)
		out.omitted = out.evicted
		if limit > 0 && len(rows) > limit {
			out.omitted += len(rows) - limit
			rows = rows[len(rows)-limit:]
		}
		for _, r := range rows {
			if p := by[r.Capture.ID]; p != nil {
				p.Add(r)
			}
		}
		for _, r := range m.Rows() {
			if p := by[r.Capture.ID]; p != nil {
				p.AddContext(r)
			}
		}
	})
	out.captures = slices.DeleteFunc(out.captures, func(p *watch.Part) bool { return !p.All && len(p.Roots) == 0 })
	return out, nil
}

// serveSave responds with the lines of the captures that a filter shows.
func (s *Server) serveSave(w http.ResponseWriter, r *http.Request) error {
	f, err := parseFilter(r)
	if err != nil {
		return err
	}
	p, err := s.views.selectRows(r.Context(), f, 0)
	if err != nil {
		return failure{http.StatusServiceUnavailable, err}
	}
	switch {
	case len(p.captures) == 0:
		return fail(http.StatusNotFound, "nothing to save")
	case f != nil && p.evicted > 0:
		return fail(http.StatusUnprocessableEntity, "the filter matches more rows than fit into memory: narrow it, or save without a filter")
	}
	name := "mcpwire"
	if len(p.captures) == 1 {
		if h := s.hub.Head(p.captures[0].Capture); h != nil {
			name = h.Name
		}
	}
	attach(w, fileName(name, "saved"+capture.Suffix))
	for _, c := range p.captures {
		if err := saveCapture(r.Context(), w, s.hub, c); err != nil {
			panic(http.ErrAbortHandler) // tells the browser that the file is incomplete
		}
	}
	return nil
}

func saveCapture(ctx context.Context, w io.Writer, hub *watch.Hub, c *watch.Part) error {
	lines, err := c.Open(ctx, hub)
	if err != nil {
		return err
	}
	defer lines.Close()
	_, err = io.Copy(w, lines)
	return err
}
