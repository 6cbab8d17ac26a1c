package web

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"mcpwire/internal/filter"
	"mcpwire/internal/sse"
	"mcpwire/internal/watch"
	"mcpwire/internal/wireview"
)

const streamPath = "/api/stream"

// How a stream goes.
const (
	maxChunk          = 500                    // rows of an event
	maxGone           = 5000                   // numbers of an event
	searchTick        = 250 * time.Millisecond // between two looks at how a search goes on
	cardsTick         = time.Second            // between two looks at the sessions
	keepAliveInterval = 15 * time.Second       // without a word, until there is a comment
	catchUpTime       = 50 * time.Millisecond  // after which a hub that says nothing has nothing
	maxFilter         = 4 << 10                // bytes
)

// A stream is what one page follows. It is pulled: a page that reads slowly is told later, and then only how things are by then; what waits for it is no more than
// a list of rows.
type stream struct {
	s    *Server
	w    http.ResponseWriter
	out  *http.ResponseController
	feed *watch.Feed
	view view

	version      uint64       // of what is in the queue
	total        uint64       // of the rows of the timeline, as the page was told
	sentVersion  uint64       // of what the page was told that it has
	queue        []*trace.Row // that are to be sent; they may be looked at only with the model locked
	gone         []uint64
	reset        bool // the page has to forget everything first
	sources      bool // to be sent
	caughtUp     bool // everything that was there at the beginning has been taken
	synced       bool // and sent
	cards        sentCards
	cardsDue     time.Time // zero: nothing has changed
	keepAliveAt  time.Time // when it is time for a sign of life
	busy         bool      // the page was told that a search goes on
	searchSentAt time.Time // when
	buf          []byte
	data         []byte
}

// serveStream answers with the stream of events.
func (s *Server) serveStream(w http.ResponseWriter, r *http.Request) {
	f, err := parseFilter(r)
	if err != nil {
		writeErrorOf(w, http.StatusBadRequest, err)
		return
	}
	after := s.resumePoint(r)
	if f != nil && f.NeedsPayload() {
		after = 0 // what the search had found by then is not known any more
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
	st := &stream{s: s, w: w, out: http.NewResponseController(w), version: after, reset: after == 0, sources: true, cards: newSentCards()}
	st.view = newView(s.hub, f, after != 0)
	defer st.view.close()
	st.feed = s.hub.Subscribe(after)
	defer st.feed.Close()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("X-Accel-Buffering", "no")
	if err := st.run(ctx, f); err != nil {
		s.opts.Logger.DebugContext(ctx, "a stream has ended", "err", err)
	}
}

// parseFilter reads the parameter filter of a request; nil is all.
func parseFilter(r *http.Request) (*filter.Filter, error) {
	text := r.URL.Query().Get("filter")
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	if len(text) > maxFilter {
		return nil, &filter.SyntaxError{Column: 1, Message: "the filter is too long"}
	}
	return filter.Parse(text)
}

// resumePoint returns the version after which a page wants to go on; 0 is the beginning.
func (s *Server) resumePoint(r *http.Request) uint64 {
	id := r.Header.Get("Last-Event-ID")
	if id == "" {
		id = r.URL.Query().Get("after")
	}
	hub, version, ok := strings.Cut(id, "-")
	if !ok || hub != s.hub.ID() {
		return 0
	}
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// run sends events until the page is gone, or ctx ends.
func (st *stream) run(ctx context.Context, f *filter.Filter) error {
	st.cardsDue = time.Now()
	if err := st.sendHello(f); err != nil {
		return err
	}
	for fresh := true; ; fresh = false {
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
		if st.reset && !fresh { // the first hello has said so already
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

// nextDeadline is when to go on although nothing has changed.
func (st *stream) nextDeadline() time.Time {
	now, at := time.Now(), st.keepAliveAt
	if !st.caughtUp {
		return now.Add(catchUpTime)
	}
	if !st.cardsDue.IsZero() && st.cardsDue.Before(at) {
		at = st.cardsDue
	}
	if _, busy := st.view.searching(); busy || st.busy {
		if tick := now.Add(searchTick); tick.Before(at) {
			at = tick
		}
	}
	return at
}

// addBatch notes what has changed. The model is locked.
func (st *stream) addBatch(b *watch.Batch) {
	if b.Reset {
		st.reset, st.caughtUp, st.queue, st.gone = true, false, nil, nil
		st.view.reset()
	}
	if b.Version != 0 { // else more of it comes, and who goes on from here begins anew
		st.version, st.caughtUp = b.Version, true
	}
	st.sources = st.sources || b.Sources
	st.queue, st.gone = st.view.changes(b, st.queue, st.gone)
	if st.cardsDue.IsZero() {
		st.cardsDue = time.Now().Add(cardsTick)
	}
}

// sendHello begins, or begins anew.
func (st *stream) sendHello(f *filter.Filter) error {
	rows := 0
	st.s.hub.Read(func(m *trace.Model) { rows, st.total = len(m.Rows()), m.TotalRows() })
	o := jsonObject(append(st.data[:0], '{'))
	o.text("hub", st.s.hub.ID())
	o.name("reset")
	o = strconv.AppendBool(o, st.reset)
	o.name("now")
	o = strconv.AppendInt(o, time.Now().UnixMilli(), 10)
	o.number("version", int64(st.version))
	o.text("tool", st.s.opts.Tool)
	o.number("rows", int64(rows))
	o.number("total", int64(st.total))
	if f != nil {
		o.text("filter", f.String())
	}
	st.data = append(o, '}')
	if st.reset {
		st.cards, st.sources, st.cardsDue = newSentCards(), true, time.Now()
	}
	if err := st.event("hello", st.data); err != nil {
		return err
	}
	return st.flush()
}

// send sends what there is to send. The id from which a page can go on comes behind the rows.
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
		st.data = append(st.data[:0], '[')
		for i, q := range st.gone[:n] {
			if i > 0 {
				st.data = append(st.data, ',')
			}
			st.data = strconv.AppendUint(st.data, q, 10)
		}
		st.data = append(st.data, ']')
		if err := st.event("gone", st.data); err != nil {
			return err
		}
		st.gone = st.gone[n:]
	}
	st.gone = nil
	return nil
}

// sendRows sends the rows that wait. The model is locked for one event at a time: a row may change meanwhile, but then it comes again.
func (st *stream) sendRows(ctx context.Context) error {
	for len(st.queue) > 0 && ctx.Err() == nil {
		n := min(len(st.queue), maxChunk)
		st.data = append(st.data[:0], '[')
		st.s.hub.Read(func(*trace.Model) {
			for i, r := range st.queue[:n] {
				if i > 0 {
					st.data = append(st.data, ',')
				}
				st.data = appendRow(st.data, r)
			}
		})
		st.data = append(st.data, ']')
		st.queue = st.queue[n:]
		if err := st.event("rows", st.data); err != nil {
			return err
		}
		if err := st.flush(); err != nil {
			return err
		}
	}
	st.queue = nil
	return ctx.Err()
}

// writeResumeID says where a page can go on that has everything until here: a block with nothing but an id.
func (st *stream) writeResumeID() {
	if st.caughtUp && st.sentVersion != st.version {
		st.sentVersion = st.version
		st.buf = append(append(st.buf, "id: "...), st.s.hub.ID()...)
		st.buf = append(strconv.AppendUint(append(st.buf, '-'), st.version, 10), "\n\n"...)
	}
}

// sendOther sends what is not rows.
func (st *stream) sendOther() error {
	if st.sources {
		st.sources = false
		data, err := marshal(sources(st.s.hub))
		if err != nil {
			return err
		}
		if err := st.event("sources", data); err != nil {
			return err
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
		o := jsonObject(append(st.data[:0], `{"busy":`...))
		o = strconv.AppendBool(o, busy)
		o.name("share")
		st.data = append(strconv.AppendFloat(o, share, 'f', 3, 64), '}')
		if err := st.event("searching", st.data); err != nil {
			return err
		}
	}
	if st.caughtUp && !st.synced {
		st.synced = true
		st.data = append(strconv.AppendUint(append(st.data[:0], `{"version":`...), st.version, 10), '}')
		return st.event("synced", st.data)
	}
	return nil
}

// sendTotal tells how many rows were captured, which those of a filter do not.
func (st *stream) sendTotal() error {
	before := st.total
	st.s.hub.Read(func(m *trace.Model) { st.total = m.TotalRows() })
	if st.total == before {
		return nil
	}
	st.data = strconv.AppendUint(st.data[:0], st.total, 10)
	return st.event("total", st.data)
}

func (st *stream) sendCards() error {
	if err := st.sendTotal(); err != nil {
		return err
	}
	list, err := st.cards.changed(st.s.hub)
	if err != nil || len(list) == 0 {
		return err
	}
	st.data = append(append(append(st.data[:0], '['), bytes.Join(list, []byte{','})...), ']')
	return st.event("sessions", st.data)
}

// event appends an event to what waits for the next flush. data is JSON, on one line.
func (st *stream) event(name string, data []byte) (err error) {
	st.buf, err = sse.Append(st.buf, sse.Event{Name: name, Data: data})
	return err
}

// flush writes what waits.
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
