package web

import (
	"bytes"
	"context"
	"errors"
	"hash/maphash"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/cmd/internal/view/watch"
	"mcpwire/internal/net/sse"
)

const streamPath = "/api/stream"

// Limits and intervals of a stream.
const (
	maxChunk          = 500                    // rows per event
	maxGone           = 5000                   // row numbers per event
	searchTick        = 250 * time.Millisecond // between progress events of a search
	cardsTick         = time.Second            // between session events
	keepAliveInterval = 15 * time.Second       // idle time before a keep-alive comment
	catchUpTime       = 50 * time.Millisecond  // idle time after which the stream is up to date
)

// A stream sends changes to one page. It pulls them: a slow page receives changes later, and then
// only the latest state. Only a list of rows waits for it.
type stream struct {
	s    *Server
	w    http.ResponseWriter
	out  *http.ResponseController
	feed *watch.Feed
	view view

	// version is the version of the model after the queue.
	version uint64
	// total is the last total sent.
	total total
	// sourcesVersion is the version of the sources last sent.
	sourcesVersion uint64
	// sentVersion is the last resume id sent.
	sentVersion uint64
	// queue are the rows to send. They may be read only with the model locked.
	queue []*trace.Row
	gone  []uint64
	// reset means that the page must drop everything first.
	reset bool
	// sources means that the sources must be sent.
	sources bool
	// older is the sent number of captures that are not read.
	older int
	// caughtUp means that everything that existed at the beginning is in the queue or sent.
	caughtUp bool
	// synced means that the event synced has been sent.
	synced bool
	cards  sentCards
	// facets are the facets last sent, as JSON.
	facets []byte
	// cardsDue is when to send changed sessions and facets. Zero means no change.
	cardsDue time.Time
	// keepAliveAt is when to send a keep-alive comment.
	keepAliveAt time.Time
	// busy means that the page believes a search to be running.
	busy bool
	// searchSentAt is when the last progress event was sent.
	searchSentAt time.Time
	buf          []byte
	rows         []pageRow
}

// serveStream responds with the event stream.
func (s *Server) serveStream(w http.ResponseWriter, r *http.Request) error {
	f, err := parseFilter(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	var ending sync.WaitGroup
	defer ending.Wait()
	defer cancel()
	ending.Go(func() {
		select {
		case <-s.closing:
			cancel()
		case <-ctx.Done():
		}
	})
	st := &stream{s: s, w: w, out: http.NewResponseController(w), sources: true, cards: newSentCards()}
	st.open(f, r)
	defer func() {
		st.feed.Close()
		st.view.close()
	}()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("X-Accel-Buffering", "no")
	_ = st.run(ctx, f) // it ends when the page disconnects
	return nil
}

// open opens the view and its feed. r is the request of a page that may resume, or nil.
func (st *stream) open(f *filter.Filter, r *http.Request) {
	st.view = st.s.views.of(f)
	after := uint64(0)
	if r != nil && (f == nil || !f.NeedsPayload()) { // earlier results of a search are unknown
		after = resumePoint(st.view.hub, r)
	}
	st.version, st.reset = after, after == 0
	if f != nil && after != 0 {
		st.view.forgotten = map[uint64]bool{}
	}
	st.feed = st.view.hub.Subscribe(after)
}

// widen replaces a view of rows that were partly evicted by one of all rows, if that is possible.
func (st *stream) widen(f *filter.Filter) {
	if f == nil || st.view.tried || st.s.views.evicted() == 0 {
		return
	}
	st.feed.Close()
	st.view.close()
	st.caughtUp, st.queue, st.gone = false, nil, nil
	st.open(f, nil)
}

// parseFilter parses the parameter filter of a request. Nil means all rows.
func parseFilter(r *http.Request) (*filter.Filter, error) {
	text := r.URL.Query().Get("filter")
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	f, err := filter.Parse(text)
	if err != nil {
		return nil, failure{http.StatusBadRequest, err}
	}
	return f, nil
}

// resumePoint returns the version of a hub after which a page resumes. Zero means from the
// beginning.
func resumePoint(of *watch.Hub, r *http.Request) uint64 {
	id := r.Header.Get("Last-Event-ID")
	if id == "" {
		id = r.URL.Query().Get("after")
	}
	hub, version, ok := strings.Cut(id, "-")
	if !ok || hub != of.ID() {
		return 0
	}
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// run sends events until the page disconnects or ctx ends.
func (st *stream) run(ctx context.Context, f *filter.Filter) error {
	st.cardsDue = time.Now()
	if err := st.sendHello(f); err != nil {
		return err
	}
	for fresh := true; ; fresh = false {
		st.widen(f)
		wait, cancel := context.WithDeadline(ctx, st.nextDeadline())
		err := st.feed.Next(wait, st.addBatch)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, context.DeadlineExceeded):
			st.caughtUp = true
		case err != nil:
			return err
		}
		if st.reset && !fresh { // the first hello has said so
			err = st.sendHello(f)
		} else {
			err = nil
		}
		st.reset = false
		if err := errors.Join(err, st.send(ctx)); err != nil {
			return err
		}
	}
}

// nextDeadline returns when to continue without changes.
func (st *stream) nextDeadline() time.Time {
	now, at := time.Now(), st.keepAliveAt
	if !st.caughtUp {
		return now.Add(catchUpTime)
	}
	if !st.cardsDue.IsZero() && st.cardsDue.Before(at) {
		at = st.cardsDue
	}
	if _, busy := st.view.searching(); busy || st.busy || st.view.hub != st.s.hub {
		if tick := now.Add(searchTick); tick.Before(at) {
			at = tick
		}
	}
	return at
}

// addBatch queues the changes of a batch. The caller must hold the lock of the model.
func (st *stream) addBatch(b *watch.Batch) {
	if b.Reset {
		st.reset, st.caughtUp, st.synced, st.queue, st.gone = true, false, false, nil, nil
		st.view.reset()
	}
	if b.Version != 0 { // zero in the middle of a reset: the page cannot resume there
		st.version, st.caughtUp = b.Version, true
	}
	st.queue, st.gone = st.view.changes(b, st.queue, st.gone)
	if st.cardsDue.IsZero() {
		st.cardsDue = time.Now().Add(cardsTick)
	}
}

// hello is the first event of a stream.
type hello struct {
	Hub     string `json:"hub"`
	Reset   bool   `json:"reset"`
	Now     int64  `json:"now"`
	Version uint64 `json:"version,omitempty"`
	Tool    string `json:"tool,omitempty"`
	Rows    int    `json:"rows,omitempty"`
	Total   *total `json:"total,omitempty"`
	Filter  string `json:"filter,omitempty"`
}

// sendHello sends the event hello.
func (st *stream) sendHello(f *filter.Filter) error {
	rows := 0
	st.s.hub.Read(func(m *trace.Model) { rows = len(m.Rows()) })
	st.total = st.newTotal()
	h := hello{Hub: st.view.hub.ID(), Reset: st.reset, Now: time.Now().UnixMilli(), Version: st.version, Tool: st.s.opts.Tool, Rows: rows, Total: &st.total}
	if f != nil {
		h.Filter = f.String()
	}
	if st.reset {
		st.cards, st.facets, st.sources, st.cardsDue = newSentCards(), nil, true, time.Now()
	}
	if err := st.eventJSON("hello", h); err != nil {
		return err
	}
	return st.flush()
}

// send sends everything that is queued. The resume id follows the rows.
func (st *stream) send(ctx context.Context) error {
	if err := st.sendGone(); err != nil {
		return err
	}
	if err := st.sendRows(ctx); err != nil {
		return err
	}
	st.writeResumeID()
	if err := st.sendOther(); err != nil {
		return err
	}
	if st.keepAliveAt.IsZero() || time.Now().After(st.keepAliveAt) {
		st.buf = append(st.buf, ":\n\n"...)
	}
	return st.flush()
}

func (st *stream) sendGone() error {
	for len(st.gone) > 0 {
		n := min(len(st.gone), maxGone)
		if err := st.eventJSON("gone", st.gone[:n]); err != nil {
			return err
		}
		st.gone = st.gone[n:]
	}
	st.gone = nil
	return nil
}

// sendRows sends the queued rows. It locks the model for one event at a time; a row that changes
// meanwhile is queued again.
func (st *stream) sendRows(ctx context.Context) error {
	for len(st.queue) > 0 && ctx.Err() == nil {
		n := min(len(st.queue), maxChunk)
		st.rows = st.rows[:0]
		st.view.hub.Read(func(*trace.Model) {
			for _, r := range st.queue[:n] {
				row := newPageRow(r)
				if in := r.InsideMatch(st.view.filter); in != nil {
					row.In = in.Seq
				}
				st.rows = append(st.rows, row)
			}
		})
		st.queue = st.queue[n:]
		if err := st.eventJSON("rows", st.rows); err != nil {
			return err
		}
		if err := st.flush(); err != nil {
			return err
		}
	}
	st.queue = nil
	return ctx.Err()
}

// writeResumeID writes a block with only an id, from which a page that has received everything so
// far can resume.
func (st *stream) writeResumeID() {
	if st.caughtUp && st.sentVersion != st.version {
		st.sentVersion = st.version
		st.buf = append(append(st.buf, "id: "...), st.view.hub.ID()...)
		st.buf = append(strconv.AppendUint(append(st.buf, '-'), st.version, 10), "\n\n"...)
	}
}

// sendOther sends the events that are not about rows.
func (st *stream) sendOther() error {
	if v := st.s.hub.SourcesVersion(); st.sources || v != st.sourcesVersion {
		st.sources, st.sourcesVersion = false, v
		if st.cardsDue.IsZero() {
			st.cardsDue = time.Now().Add(cardsTick)
		}
		if err := st.eventJSON("sources", sources(st.s.hub)); err != nil {
			return err
		}
		if n := len(st.s.hub.Older()); n > 0 || st.older > 0 {
			st.older = n
			if err := st.eventJSON("older", n); err != nil {
				return err
			}
		}
	}
	if !st.cardsDue.IsZero() && !time.Now().Before(st.cardsDue) {
		st.cardsDue = time.Time{}
		if err := st.sendCards(); err != nil {
			return err
		}
	}
	if share, busy := st.view.searching(); busy != st.busy || busy && time.Since(st.searchSentAt) >= searchTick {
		st.busy, st.searchSentAt = busy, time.Now()
		if err := st.sendTotal(); err != nil {
			return err
		}
		progress := struct {
			Busy  bool    `json:"busy"`
			Share float64 `json:"share"`
		}{busy, math.Round(share*1000) / 1000}
		if err := st.eventJSON("searching", progress); err != nil {
			return err
		}
	}
	if st.caughtUp && !st.synced {
		st.synced = true
		return st.eventJSON("synced", map[string]uint64{"version": st.version})
	}
	return nil
}

// A total says of how many rows the page has how many.
type total struct {
	// Rows is the number of rows that the timeline has had, regardless of the filter.
	Rows uint64 `json:"rows"`
	// Evicted is how many of them are no longer in memory.
	Evicted uint64 `json:"evicted,omitempty"`
	// Whole means that the filter has been, or is being, applied to all of them. Matches is the
	// number that it matches.
	Whole   bool   `json:"whole,omitempty"`
	Matches uint64 `json:"matches,omitempty"`
	// Read is the number of rows that it was applied to so far.
	Read uint64 `json:"read,omitempty"`
	// Running is the number of searches of all rows that keep this filter from being another one.
	Running int `json:"running,omitempty"`
}

func (st *stream) newTotal() (t total) {
	st.s.hub.Read(func(m *trace.Model) { t.Rows, t.Evicted = m.TotalRows(), m.EvictedRows() })
	if st.view.hub != st.s.hub {
		st.view.hub.Read(func(m *trace.Model) { t.Whole, t.Matches, t.Read = true, st.view.selection.Matches(), m.TotalRows() })
	} else if st.view.crowded {
		t.Running = maxWholes
	}
	return t
}

// sendTotal sends the total if it has changed.
func (st *stream) sendTotal() error {
	now := st.newTotal()
	if now == st.total {
		return nil
	}
	st.total = now
	return st.eventJSON("total", now)
}

// sendFacets sends the facets if they have changed.
func (st *stream) sendFacets() error {
	var f trace.Facets
	st.s.hub.Read(func(m *trace.Model) { f = m.Facets() })
	data, err := marshal(f)
	if err != nil || bytes.Equal(data, st.facets) {
		return err
	}
	st.facets = data
	return st.event("facets", data)
}

func (st *stream) sendCards() error {
	if err := st.sendTotal(); err != nil {
		return err
	}
	if err := st.sendFacets(); err != nil {
		return err
	}
	list, err := st.cards.changed(st.s.hub)
	if err != nil || len(list) == 0 {
		return err
	}
	return st.event("sessions", slices.Concat([]byte{'['}, bytes.Join(list, []byte{','}), []byte{']'}))
}

// event appends an event to the buffer. data is JSON on one line.
func (st *stream) event(name string, data []byte) (err error) {
	st.buf, err = sse.Append(st.buf, sse.Event{Name: name, Data: data})
	return err
}

// eventJSON appends an event with v as JSON.
func (st *stream) eventJSON(name string, v any) error {
	data, err := marshal(v)
	if err != nil {
		return err
	}
	return st.event(name, data)
}

// flush writes the buffer.
func (st *stream) flush() error {
	if len(st.buf) == 0 {
		return nil
	}
	_, err := st.w.Write(st.buf)
	st.buf = st.buf[:0]
	if err != nil {
		return err
	}
	st.keepAliveAt = time.Now().Add(keepAliveInterval)
	return st.out.Flush()
}

// maxCards limits the sessions sent to a page, newest first.
const maxCards = 500

// cards returns the newest sessions, oldest first. The caller must hold the lock of the model.
func cards(m *trace.Model) []trace.SessionInfo {
	list := []trace.SessionInfo{}
	for _, c := range slices.Backward(m.Captures()) {
		for _, s := range slices.Backward(c.Sessions()) {
			if len(list) == maxCards {
				break
			}
			list = append(list, s.Card())
		}
	}
	slices.Reverse(list)
	return list
}

// A sentCards has hashes of the sessions that a page has received.
type sentCards struct {
	seed maphash.Seed
	sent map[cardKey]uint64
}

type cardKey struct {
	capture string
	session uint64
}

func newSentCards() sentCards {
	return sentCards{maphash.MakeSeed(), map[cardKey]uint64{}}
}

// changed returns the new and changed sessions as JSON.
func (c *sentCards) changed(hub *watch.Hub) ([][]byte, error) {
	var list []trace.SessionInfo
	hub.Read(func(model *trace.Model) { list = cards(model) })
	var out [][]byte
	now := map[cardKey]uint64{}
	for i := range list {
		text, err := marshal(&list[i])
		if err != nil {
			return nil, err
		}
		k := cardKey{list[i].Capture, list[i].Session}
		now[k] = maphash.Bytes(c.seed, text)
		if was, ok := c.sent[k]; !ok || was != now[k] {
			out = append(out, text)
		}
	}
	c.sent = now
	return out, nil
}

// serveFilter checks a filter. A syntax error has status 200, because people are typing.
func (s *Server) serveFilter(w http.ResponseWriter, r *http.Request) error {
	f, err := filter.Parse(r.URL.Query().Get("text"))
	var syntax *filter.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return writeJSON(w, map[string]*filter.SyntaxError{"error": syntax})
	case err != nil:
		return err
	}
	return writeJSON(w, struct {
		OK   bool   `json:"ok"`
		Text string `json:"text,omitempty"`
	}{true, f.String()})
}
