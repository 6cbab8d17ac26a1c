package ui

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
type remake struct {
	pick     *pick
	captures map[string]*picked
	model    *wireview.Model
	payloads map[eventKey]*capture.Event
	held     int // bytes of payloads
	missed   int // events whose payloads were left out
	filter   string
}

type eventKey struct {
	capture string
	n       uint64
}

// errLeftOut is for payloads that were too much.
var errLeftOut = fmt.Errorf("%w: it was left out of this page", watch.ErrGone)

// Event implements [detail.Source].
func (m *remake) Event(ctx context.Context, captureID string, n uint64) (*capture.Event, error) {
	if e := m.payloads[eventKey{captureID, n}]; e != nil {
		return e, ctx.Err()
	}
	return nil, errLeftOut
}

// exportOf makes what an exported page shows.
func (s *Server) exportOf(ctx context.Context, p *pick, filter string) (*exported, error) {
	m := &remake{pick: p, filter: filter, captures: map[string]*picked{}, payloads: map[eventKey]*capture.Event{}, model: wireview.New(nil)}
	if err := m.read(ctx, s); err != nil {
		return nil, err
	}
	x := &exported{Rows: []json.RawMessage{}, Sources: s.exportedSources(p), Tools: tallies(m.model), Details: map[string]json.RawMessage{}}
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
	if m.missed > 0 {
		note = "payloads that are not in it, or only their beginning: " + strconv.Itoa(m.missed)
	}
	if p.left > 0 || left > 0 || note != "" {
		x.Left = &leftOut{p.left, left, note}
	}
	return x, nil
}

// exportedSources leaves out paths, which have names of users in them.
func (s *Server) exportedSources(p *pick) []source {
	list := []source{}
	for _, src := range sources(s.hub) {
		if slices.ContainsFunc(p.captures, func(c *picked) bool { return c.capture == src.ID }) {
			list = append(list, source{ID: src.ID, Name: src.Name, Transport: src.Transport, State: src.State})
		}
	}
	return list
}

// read fills the model.
func (m *remake) read(ctx context.Context, s *Server) error {
	var all []iter.Seq2[*capture.Event, error]
	var sources []*redacted
	heads := map[string]*capture.Head{}
	for _, c := range m.pick.captures {
		m.captures[c.capture] = c
		lines, err := s.redact(ctx, c)
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
		m.keep(e)
	}
	for _, lines := range sources {
		m.missed += lines.gone
		if err := m.judge(lines); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// keep keeps an event with the beginning of its payload.
func (m *remake) keep(e *capture.Event) {
	c := m.captures[e.Capture]
	if c == nil || e.N == 0 {
		return
	}
	short := *e
	if len(short.Data) > maxExportPayload {
		short.Data, short.Cut = short.Data[:maxExportPayload], true
		short.Len = max(short.Len, int64(len(e.Data)))
		m.missed++
	}
	if m.held += len(short.Data); m.held > maxExportHeld {
		m.missed++
		return
	}
	m.payloads[eventKey{e.Capture, e.N}] = short.Clone()
}

// judge takes the findings about a capture along. They quote the traffic, and so are redacted; so is the filter.
func (m *remake) judge(lines *redacted) error {
	texts := []string{m.filter}
	for _, l := range lines.of.lints {
		texts = append(texts, l.Message)
	}
	texts, err := lines.texts(texts)
	if err != nil {
		return err
	}
	m.filter = texts[0]
	for i, l := range lines.of.lints {
		l.Message = texts[i+1]
		m.model.Attach(lines.of.capture, l.Event, l)
	}
	return nil
}

// rows returns the rows that were picked, and those inside them.
func (m *remake) rows() (list []*wireview.Row) {
	for _, root := range m.model.Rows() {
		if c := m.captures[root.Capture.ID]; c == nil || !c.roots[root.N] {
			continue
		}
		list = slices.AppendSeq(list, root.All())
	}
	return list
}

// details works out the details of rows, of the newest first, and returns how many there was no room for.
func (m *remake) details(ctx context.Context, rows []*wireview.Row, into map[string]json.RawMessage) (left int, err error) {
	size := 0
	for i, r := range slices.Backward(rows) {
		d, err := detail.Of(ctx, m, detail.Snapshot(r), &detail.Options{MaxShown: maxExportPayload})
		if err != nil {
			return 0, errors.Join(err, context.Cause(ctx))
		}
		text, err := encode(rowDetail{d, appendRow(nil, r), d.Frames()})
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
