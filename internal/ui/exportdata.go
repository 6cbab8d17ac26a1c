package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"mcpwire/capture"
	"mcpwire/internal/detail"
	"mcpwire/internal/watch"
	"mcpwire/internal/wireview"
)

// A remake is a second model, of redacted events alone.
type exportModel struct {
	selection    *selection
	captures     map[string]*captureSelection
	model        *trace.Model
	payloads     map[eventKey]*capture.Event
	payloadBytes int // bytes of payloads
	omitted      int // events whose payloads were left out
	filter       string
}

type eventKey struct {
	capture string
	n       uint64
}

// errOmitted is for payloads that were too much.
var errOmitted = fmt.Errorf("%w: it was left out of this page", watch.ErrGone)

// Event implements [detail.Source].
func (m *exportModel) Event(ctx context.Context, captureID string, n uint64) (*capture.Event, error) {
	if e := m.payloads[eventKey{captureID, n}]; e != nil {
		return e, ctx.Err()
	}
	return nil, errOmitted
}

// exportDataOf makes what an exported page shows.
func (s *Server) exportDataOf(ctx context.Context, p *selection, filter string) (*exportData, error) {
	m := &exportModel{selection: p, filter: filter, captures: map[string]*captureSelection{}, payloads: map[eventKey]*capture.Event{}, model: trace.New(nil)}
	if err := m.read(ctx, s); err != nil {
		return nil, err
	}
	x := &exportData{Rows: []json.RawMessage{}, Sources: s.exportedSources(p), Tools: newToolStats(m.model), Details: map[string]json.RawMessage{}}
	for _, c := range cards(m.model) {
		if m.captures[c.Capture] != nil {
			x.Sessions = append(x.Sessions, c)
		}
	}
	rows := m.rows()
	for _, r := range rows {
		x.Rows = append(x.Rows, appendRow(nil, r))
	}
	left, err := m.details(ctx, rows, x.Details)
	if err != nil {
		return nil, err
	}
	x.Hello.Filter = m.filter
	note := ""
	if m.omitted > 0 {
		note = "payloads that are not in it, or only their beginning: " + strconv.Itoa(m.omitted)
	}
	if p.omitted > 0 || left > 0 || note != "" {
		x.Left = &omission{p.omitted, left, note}
	}
	return x, nil
}

// exportedSources leaves out paths, which have names of users in them.
func (s *Server) exportedSources(p *selection) []source {
	list := []source{}
	for _, src := range sources(s.hub) {
		if slices.ContainsFunc(p.captures, func(c *captureSelection) bool { return c.capture == src.ID }) {
			list = append(list, source{ID: src.ID, Name: src.Name, Transport: src.Transport, State: src.State})
		}
	}
	return list
}

// read fills the model.
func (m *exportModel) read(ctx context.Context, s *Server) error {
	var all []iter.Seq2[*capture.Event, error]
	var sources []*redactedReader
	heads := map[string]*capture.Head{}
	for _, c := range m.selection.captures {
		m.captures[c.capture] = c
		lines, err := s.openRedacted(ctx, c)
		if err != nil {
			return err
		}
		defer lines.Close()
		sources = append(sources, lines)
		all = append(all, capture.NewReader(lines, nil).Events())
	}
	for e, err := range capture.Merge(all...) {
		if err != nil {
			return fmt.Errorf("ui: exporting: %w", err)
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

// addFindings takes the findings about a capture along. They quote the traffic, and so are redacted; so is the filter.
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

// rows returns the rows that were picked, and those inside them.
func (m *exportModel) rows() (list []*trace.Row) {
	for _, root := range m.model.Rows() {
		if c := m.captures[root.Capture.ID]; c == nil || !c.roots[root.N] {
			continue
		}
		list = slices.AppendSeq(list, root.All())
	}
	return list
}

// details works out the details of rows, of the newest first, and returns how many there was no room for.
func (m *exportModel) details(ctx context.Context, rows []*trace.Row, into map[string]json.RawMessage) (left int, err error) {
	size := 0
	for i, r := range slices.Backward(rows) {
		d, err := detail.Build(ctx, m, detail.TakeSnapshot(r), &detail.Options{MaxShown: maxExportPayload})
		if err != nil {
			return 0, errors.Join(err, context.Cause(ctx))
		}
		text, err := marshal(rowDetail{d, appendRow(nil, r), d.Events()})
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
