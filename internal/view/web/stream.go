package web

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"mcpwire/internal/net/sse"
	"mcpwire/internal/trace"
	"mcpwire/internal/trace/filter"
	"mcpwire/internal/view/watch"
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

// maxCards is how many sessions are told of, the newest ones.
const maxCards = 500

// cards returns what there is to know about the newest sessions, the oldest of them first. The model must be locked.
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

// A sentCards knows, as hashes, what a page was told of sessions.
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

// changed returns the sessions of which the page has not been told, or not as they are now, as JSON.
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

func (s *Server) serveSessions(w http.ResponseWriter, r *http.Request) {
	var list []trace.SessionInfo
	s.hub.Read(func(m *trace.Model) { list = cards(m) })
	writeJSON(w, list)
}

// A filterError says what is wrong with a filter, and where.
type filterError struct {
	Message string `json:"message"`
	At      int    `json:"at"` // in characters, from 1
}

// serveFilter says whether a filter is understood. That it is not is an answer and no error: people are typing.
func (s *Server) serveFilter(w http.ResponseWriter, r *http.Request) {
	text := r.URL.Query().Get("text")
	if len(text) > maxFilter {
		writeJSON(w, map[string]filterError{"error": {"the filter is too long", 1}})
		return
	}
	f, err := filter.Parse(text)
	var syntax *filter.SyntaxError
	switch {
	case errors.As(err, &syntax):
		writeJSON(w, map[string]filterError{"error": {syntax.Message, syntax.Column}})
	case err != nil:
		writeErrorOf(w, http.StatusInternalServerError, err)
	default:
		writeJSON(w, struct {
			OK   bool   `json:"ok"`
			Text string `json:"text,omitempty"`
		}{true, f.String()})
	}
}
