package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
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
	Sources  []source                   `json:"sources"`
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
	captures  map[string]*captureSelection
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
	m := &exportModel{selection: p, filter: filter, captures: map[string]*captureSelection{}, payloads: map[eventKey]*capture.Event{}, model: trace.New(nil)}
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
func exportedSources(hub *watch.Hub, p *selection) []source {
	list := []source{}
	for _, src := range sources(hub) {
		if slices.ContainsFunc(p.captures, func(c *captureSelection) bool { return c.capture == src.ID }) {
			list = append(list, source{ID: src.ID, Name: src.Name, Transport: src.Transport, State: src.State})
		}
	}
	return list
}

// read fills the model.
func (m *exportModel) read(ctx context.Context, hub *watch.Hub) error {
	var all []iter.Seq2[*capture.Event, error]
	var sources []*redactedReader
	heads := map[string]*capture.Head{}
	for _, c := range m.selection.captures {
		m.captures[c.capture] = c
		lines, err := openRedacted(ctx, hub, c)
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
	for _, lines := range sources {
		m.omitted += lines.missing
		if err := m.addFindings(lines); err != nil {
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
func (m *exportModel) addFindings(lines *redactedReader) error {
	texts := []string{m.filter}
	for _, l := range lines.selection.findings {
		texts = append(texts, l.Message)
	}
	texts, err := lines.texts(texts)
	if err != nil {
		return err
	}
	m.filter = texts[0]
	for i, l := range lines.selection.findings {
		l.Message = texts[i+1]
		m.model.AddFinding(lines.selection.capture, l.Event, l)
	}
	return nil
}

// roots returns the selected rows of the timeline.
func (m *exportModel) roots() (list []*trace.Row) {
	for _, root := range m.model.Rows() {
		if c := m.captures[root.Capture.ID]; c != nil && c.roots[root.N] {
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
		text, err := marshal(rowDetail{d, newPageRow(r), d.Events()})
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

// A captureSelection is the selected part of a capture.
type captureSelection struct {
	capture string
	// path is empty if the capture has no file.
	path string
	// live means that the capture is still being written.
	live bool
	// all selects every event of the file.
	all bool
	// events are the selected events. The value false marks an event that others need as context,
	// such as the handshake.
	events map[uint64]bool
	// roots are the first events of selected rows of the timeline. Zero is a gap that the reader
	// added.
	roots    map[uint64]bool
	findings []trace.Finding
}

func newCaptureSelection(capture, path string) *captureSelection {
	return &captureSelection{capture: capture, path: path, events: map[uint64]bool{}, roots: map[uint64]bool{}}
}

// wants reports whether an event is selected.
func (cs *captureSelection) wants(n uint64) bool {
	if cs.all {
		return true
	}
	_, ok := cs.events[n]
	return ok
}

// A selection is what a filter shows.
type selection struct {
	captures []*captureSelection
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
	by := map[string]*captureSelection{}
	out := &selection{}
	for _, src := range vs.hub.Sources() {
		if src.ID == "" || by[src.ID] != nil {
			continue
		}
		p := newCaptureSelection(src.ID, src.Path)
		p.live = src.State == watch.Live || src.State == watch.Growing
		p.all = f == nil && limit == 0 && src.Path != ""
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

// add adds a row of the timeline and the rows inside it.
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

// addContext adds a row as context if it describes the session.
func (cs *captureSelection) addContext(root *trace.Row) {
	if !root.DescribesSession() {
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

// A redactedReader reads the selected part of a capture as lines in which every secret is
// redacted, even if the capture is not. It also reads the rest of the capture, to learn secrets
// that occur there. It is not safe for concurrent use. The caller must close it.
type redactedReader struct {
	ctx context.Context
	// file is nil if the capture has no file.
	file      *capture.Reader
	next      func() (*capture.Event, error, bool)
	stop      func()
	selection *captureSelection
	enc       *capture.Encoder
	buf       bytes.Buffer
	// missing counts the events that could not be read again.
	missing int
}

// openRedacted opens the selected part of a capture.
func openRedacted(ctx context.Context, hub *watch.Hub, of *captureSelection) (*redactedReader, error) {
	c := &redactedReader{ctx: ctx, selection: of}
	c.enc = capture.NewEncoder(&c.buf, nil)
	events := hubEvents(ctx, hub, of, &c.missing)
	if of.path != "" {
		r, err := capture.Open(of.path, nil)
		if err != nil {
			return nil, fmt.Errorf("web: %w", err)
		}
		c.file, events = r, r.Events()
	}
	c.next, c.stop = iter.Pull2(events)
	return c, nil
}

// hubEvents yields the selected events of a capture without a file that the hub still has, and
// counts the others in gone.
func hubEvents(ctx context.Context, hub *watch.Hub, of *captureSelection, gone *int) iter.Seq2[*capture.Event, error] {
	return func(yield func(*capture.Event, error) bool) {
		if h := hub.Head(of.capture); h != nil && !yield(&capture.Event{Kind: capture.KindHead, Head: h, Capture: of.capture, At: h.At}, nil) {
			return
		}
		for _, n := range slices.Sorted(maps.Keys(of.events)) {
			e, err := hub.Event(ctx, of.capture, n)
			if errors.Is(err, watch.ErrGone) {
				*gone++
				continue
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Close closes the file.
func (rr *redactedReader) Close() error {
	rr.stop()
	if rr.file == nil {
		return nil
	}
	return rr.file.Close()
}

// Read implements [io.Reader].
func (rr *redactedReader) Read(p []byte) (int, error) {
	for rr.buf.Len() == 0 {
		if err := rr.ctx.Err(); err != nil {
			return 0, err
		}
		e, err, ok := rr.next()
		if !ok {
			return 0, io.EOF
		}
		if err != nil {
			return 0, err
		}
		if err := rr.encodeEvent(e); err != nil {
			return 0, err
		}
	}
	return rr.buf.Read(p)
}

// encodeEvent writes an event to the buffer if it is selected.
func (rr *redactedReader) encodeEvent(e *capture.Event) error {
	if e.Capture != rr.selection.capture { // a file may have several captures
		return nil
	}
	if h := e.Head; e.Kind == capture.KindHead && h != nil && h.Redact == redactOff {
		head, copied := *h, *e
		head.Redact = "default"
		copied.Head = &head
		e = &copied
	}
	if err := errors.Join(rr.enc.Encode(e), rr.enc.Flush()); err != nil {
		return err
	}
	if !rr.wants(e) {
		rr.buf.Reset()
	}
	return nil
}

const redactOff = "off"

func (rr *redactedReader) wants(e *capture.Event) bool {
	switch {
	case e.Kind == capture.KindHead:
		return true
	case e.Kind == capture.KindTail:
		return rr.selection.all // otherwise its numbers would be wrong
	case e.Kind == capture.KindGap && e.Gap != nil && e.Gap.Why == capture.GapTruncated && rr.selection.live:
		return false // it is being written
	}
	return rr.selection.wants(e.N)
}

// texts returns texts with the secrets of the capture redacted. It must be called after reading
// everything, when all secrets are known.
func (rr *redactedReader) texts(list []string) ([]string, error) {
	rr.buf.Reset()
	for i, t := range list {
		if err := rr.enc.Encode(&capture.Event{Kind: capture.KindNote, N: uint64(i + 1), Data: []byte(t)}); err != nil {
			return nil, err
		}
	}
	if err := rr.enc.Flush(); err != nil {
		return nil, err
	}
	var out []string
	for e, err := range capture.NewReader(&rr.buf, nil).Events() {
		if err != nil {
			return nil, err
		}
		out = append(out, string(e.Data))
	}
	if len(out) != len(list) {
		return nil, errors.New("web: texts cannot be redacted")
	}
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
		if h := s.hub.Head(p.captures[0].capture); h != nil {
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

func saveCapture(ctx context.Context, w io.Writer, hub *watch.Hub, c *captureSelection) error {
	lines, err := openRedacted(ctx, hub, c)
	if err != nil {
		return err
	}
	defer lines.Close()
	_, err = io.Copy(w, lines)
	return err
}
