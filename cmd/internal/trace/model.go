package trace

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/cmd/internal/trace/messages"
	"mcpwire/internal/base/defaults"
	"mcpwire/internal/rpc/traffic"
	"mcpwire/internal/text/clip"
)

// Defaults of [Options].
const (
	// DefaultMaxRows counts rows at all levels.
	DefaultMaxRows = 100_000
	// DefaultMaxChildren counts the rows inside one row.
	DefaultMaxChildren = 256
)

const (
	maxRoundTrips = 1 << 14 // HTTP round trips in progress
	maxInterned   = 4096    // interned names
	maxEvents     = 32      // event numbers in Row.Events
	maxName       = 256     // bytes of a name
	maxExcerpt    = 160     // bytes
	maxDepth      = 6       // nesting of rows
	maxUndecided  = 10_000  // rows that follow a row before Options.Keep decides about it
)

// Options configures a [Model]. A nil *Options means the defaults.
type Options struct {
	// MaxRows limits the rows at all levels. Zero means DefaultMaxRows. The oldest are evicted.
	MaxRows int
	// MaxChildren limits the rows inside one row. Zero means DefaultMaxChildren. The oldest are
	// evicted.
	MaxChildren int
	// Scan examines an event before it is added. frame is its parsed payload, or nil if it is not a
	// complete message. Row.Hits of the rows that the event belongs to collects the results. Scan
	// must not keep its arguments. Nil means no scan.
	Scan func(e *capture.Event, frame *traffic.Frame) filter.Hits
	// Load returns the payload of an event for [Row.Payloads]. If it is nil, Payloads yields
	// excerpts.
	Load func(captureID string, n uint64) ([]byte, error)
	// Keep decides about each row of the timeline once many newer rows follow it. If Keep returns
	// false, the row is evicted. Nil keeps all rows.
	Keep func(r *Row) bool
	// NestForwarded moves the row of a message that a tap forwarded into the row of the message
	// that it received. Its role is Forwarded then.
	NestForwarded bool
	// FirstSeq is added to Row.Seq, so that the rows of two models have different numbers.
	FirstSeq uint64
}

// An Op says what happened to a row.
type Op uint8

// The operations.
const (
	Added Op = iota
	Updated
	// Evicted means that the row was dropped and changes no more.
	Evicted
	// Moved means that a row of the timeline is inside another row now.
	Moved
	// Renamed means that the server of the row got another name. The event is not about the row.
	Renamed
)

// A Change is an effect of an event on a row.
type Change struct {
	Op  Op
	Row *Row
}

// A Model builds a timeline from events. See the package comment.
type Model struct {
	opts         Options
	messages     *messages.Source
	captures     map[string]*Capture
	captureOrder []*Capture
	// captureCount counts all captures, including those that captures no longer has.
	captureCount int
	// servers has the indexes of servers by name.
	servers map[string]int
	// rows is the timeline, oldest first.
	rows []*Row
	// first is the index in rows of the oldest row.
	first int
	// undecided is the index in rows of the first row that Options.Keep has not decided about.
	undecided int
	// lastPlace is the highest Place so far.
	lastPlace int64
	// count is the number of rows at all levels.
	count   int
	seq     uint64
	evicted uint64
	// past counts the properties of the evicted rows of the timeline.
	past           facetCounts
	roundTrips     map[roundTripKey]*roundTrip
	roundTripOrder []roundTripKey
	names          map[string]string
	stats          statTable
	changes        []Change
	hits           filter.Hits
}

// maxPending limits the requests that wait for their response.
const maxPending = 65536

// New returns an empty model. opts may be nil.
func New(opts *Options) *Model {
	m := &Model{
		captures: map[string]*Capture{}, roundTrips: map[roundTripKey]*roundTrip{}, names: map[string]string{}, servers: map[string]int{},
		stats: newStatTable(), past: newFacetCounts(),
	}
	if opts != nil {
		m.opts = *opts
	}
	m.seq = m.opts.FirstSeq
	defaults.IfNotPositive(&m.opts.MaxRows, DefaultMaxRows)
	defaults.IfNotPositive(&m.opts.MaxChildren, DefaultMaxChildren)
	m.messages = messages.New(min(m.opts.MaxRows, maxPending))
	return m
}

// Add adds the next event and returns the changes. The slice is valid until the next call. head is
// the head of the event's capture, as returned by [capture.Reader.Head]; it may be nil if the
// event with the head is added too. Add does not keep e.
func (m *Model) Add(head *capture.Head, e *capture.Event) []Change {
	m.changes, m.hits = m.changes[:0], 0
	if e.Head != nil {
		head = e.Head
	}
	c := m.capture(head, e.Capture)
	if e.Kind == capture.KindHead || e.Kind == capture.KindTail {
		return nil
	}
	s, added := c.session(e.Session)
	if added {
		s.First = e.At
	}
	s.Last, s.lastT = e.At, max(s.lastT, e.T)
	if s.Side == "" && e.Side != "" {
		s.Side, s.Capture.hasSides = e.Side, true
	}
	frame := m.messages.Add(e)
	if m.opts.Scan != nil {
		m.hits = m.opts.Scan(e, frame)
	}
	switch e.Kind {
	case capture.KindMessage:
		m.messageEvent(s, e, frame)
	case capture.KindRequest, capture.KindResponse, capture.KindBody, capture.KindSSE, capture.KindEnd:
		m.httpEvent(s, e)
	default:
		m.otherEvent(s, e)
	}
	m.dropUnwanted()
	m.evictRows()
	return m.changes
}

// capture returns the capture that an event belongs to, and adds it if it is new.
func (m *Model) capture(h *capture.Head, id string) *Capture {
	if h != nil && id == "" {
		id = h.ID
	}
	if c := m.captures[id]; c != nil {
		return c
	}
	if h == nil || h.ID != id {
		h = &capture.Head{ID: id}
	}
	c := newCapture(h, m)
	c.Index, c.ServerIndex = m.captureCount, m.serverIndex(c.Name)
	m.captureCount++
	if len(m.captureOrder) >= maxCaptures {
		delete(m.captures, m.captureOrder[0].ID)
		m.captureOrder = slices.Delete(m.captureOrder, 0, 1)
	}
	m.captures[id] = c
	m.captureOrder = append(m.captureOrder, c)
	return c
}

// serverIndex returns the index of a name, which is new or known. Above maxCaptures names, all new
// ones share one.
func (m *Model) serverIndex(name string) int {
	i, known := m.servers[name]
	if !known && len(m.servers) < maxCaptures {
		i = len(m.servers)
		m.servers[name] = i
	}
	return i
}

// HasSeveralCaptures reports whether the model has had events of more than one capture. The numbers
// of events are unique only together with [Capture.Letter] then.
func (m *Model) HasSeveralCaptures() bool { return m.captureCount > 1 }

// Finish declares that no more events come: pending requests become [Unanswered]. It returns the
// changes as [Model.Add] does.
func (m *Model) Finish() []Change {
	m.changes, m.hits = m.changes[:0], 0
	var open []*Row
	for _, r := range m.rows[m.first:] {
		for x := range r.All() {
			if !x.Done && (x.Kind == Request || x.Kind == HTTP) {
				open = append(open, x)
			}
		}
	}
	for _, r := range open {
		m.abandon(r)
	}
	return m.changes
}

// Rows returns the timeline, oldest first. The slice is valid until the next call that changes the
// model. The caller must not modify it.
func (m *Model) Rows() []*Row { return m.rows[m.first:] }

// TotalRows returns the number of rows that the timeline has had, including evicted ones.
func (m *Model) TotalRows() uint64 { return uint64(len(m.Rows())) + m.evicted }

// EvictedRows returns the number of rows evicted from the timeline.
func (m *Model) EvictedRows() uint64 { return m.evicted }

// Find returns the row that event n of a capture belongs to, or nil. An empty captureID means the
// only capture.
func (m *Model) Find(captureID string, n uint64) *Row {
	if c := m.captureByID(captureID); c != nil {
		return c.events.row(n)
	}
	return nil
}

// Settled reports whether no row of the timeline has, or can still get, an event with a number up
// to n. All rows with such events are evicted then.
func (m *Model) Settled(n uint64) bool {
	for _, r := range m.Rows() {
		if r.HasEventIn(0, n) {
			return false
		}
	}
	for _, rt := range m.roundTrips {
		if rt.row == nil && len(rt.events) > 0 && rt.events[0] <= n {
			return false
		}
	}
	return true
}

func (m *Model) captureByID(id string) *Capture {
	if id == "" && len(m.captureOrder) == 1 {
		return m.captureOrder[0]
	}
	return m.captures[id]
}

// Captures returns the captures, in the order of their first events.
func (m *Model) Captures() []*Capture { return slices.Clone(m.captureOrder) }

// Sessions returns the sessions of a capture, ordered by number.
func (c *Capture) Sessions() []*Session {
	list := make([]*Session, 0, len(c.sessions))
	for _, s := range c.sessions {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *Session) int {
		if a.Number < b.Number {
			return -1
		}
		return 1
	})
	return list
}

// newRow returns a row that begins with e.
func (m *Model) newRow(kind Kind, s *Session, e *capture.Event) *Row {
	m.seq++
	return &Row{Seq: m.seq, Kind: kind, Capture: s.Capture, Session: s, N: e.N, T: e.T, At: e.At, Dir: e.Dir}
}

// addRow adds r to the timeline, or inside parent if that is not nil.
func (m *Model) addRow(r, parent *Row) {
	if parent != nil && parent.evicted {
		parent = nil
	}
	for parent != nil && parent.depth() >= maxDepth {
		parent = parent.Parent
	}
	m.count++
	r.Session.Rows++
	m.addEvent(r, r.N)
	if parent != nil {
		r.Parent = parent
		parent.Children = append(parent.Children, r)
		m.addHits(r)
		m.changes = append(m.changes, Change{Added, r})
		if len(parent.Children) > m.opts.MaxChildren {
			m.unlink(parent.Children[0])
			parent.Children = slices.Delete(parent.Children, 0, 1)
			parent.EvictedChildren++
		}
		return
	}
	m.addHits(r)
	m.insert(r)
	m.changes = append(m.changes, Change{Added, r})
}

// maxLate is how late a row may come and still be inserted by its time. Later ones belong to a
// capture that was opened afterwards.
const maxLate = 10 * time.Second

// insert adds a row to the timeline by its time, because the events of several captures arrive in
// another order.
func (m *Model) insert(r *Row) {
	place, c := r.At.UnixNano(), r.Capture
	if place < m.lastPlace-int64(maxLate) {
		place = m.lastPlace
	}
	i, from := len(m.rows), max(m.first, m.undecided)
	if place = max(place, c.lastPlace); from > m.first { // not among the rows that are decided
		place = max(place, m.rows[from-1].Place)
	}
	r.Place, c.lastPlace, m.lastPlace = place, place, max(place, m.lastPlace)
	for i > from && m.rows[i-1].Place > place {
		i--
	}
	m.rows = slices.Insert(m.rows, i, r)
}

// RowOf returns the row with a number, also inside another row, or nil.
func (m *Model) RowOf(seq uint64) *Row {
	rows := m.Rows()
	// Rows are nearly in the order of their numbers, and those inside another come soon after it.
	i := sort.Search(len(rows), func(i int) bool { return rows[i].Seq > seq })
	for _, r := range slices.Backward(rows[:i]) {
		if f := r.find(seq); f != nil {
			return f
		}
	}
	for _, r := range rows[i:] {
		if f := r.find(seq); f != nil {
			return f
		}
	}
	return nil
}

// find returns the row with a number, which may be r or inside it, or nil.
func (r *Row) find(seq uint64) *Row {
	for x := range r.All() {
		if x.Seq == seq {
			return x
		}
	}
	return nil
}

// addEvent records that event n belongs to r.
func (m *Model) addEvent(r *Row, n uint64) {
	if n == 0 || r.evicted || len(r.Events) >= maxEvents || slices.Contains(r.Events, n) {
		return
	}
	if len(r.Events) == cap(r.Events) { // most rows have up to 2 events, or 5 over HTTP
		r.Events = append(make([]uint64, 0, len(r.Events)+2), r.Events...)
	}
	r.Events = append(r.Events, n)
	r.Capture.events.add(n, r)
}

// markUpdated records that the current event changed r.
func (m *Model) markUpdated(r *Row) {
	m.addHits(r)
	if !r.evicted {
		m.changes = append(m.changes, Change{Updated, r})
	}
}

// addHits adds the scan result of the current event to r and the rows that contain it.
func (m *Model) addHits(r *Row) {
	for ; m.hits != 0 && r != nil; r = r.Parent {
		r.Hits |= m.hits
	}
}

// evictRows evicts the oldest rows above the limit.
func (m *Model) evictRows() {
	for m.count > m.opts.MaxRows && m.first < len(m.rows)-1 {
		r := m.rows[m.first]
		m.rows[m.first] = nil
		m.first++
		m.evict(r)
	}
	if m.first > len(m.rows)/2 && m.first > 1024 {
		n := copy(m.rows, m.rows[m.first:])
		clear(m.rows[n:])
		m.rows, m.first, m.undecided = m.rows[:n], 0, max(0, m.undecided-m.first)
	}
}

// dropUnwanted evicts the rows that Options.Keep rejects. It decides about many rows at a time,
// because it moves the rows behind them.
func (m *Model) dropUnwanted() {
	window := min(maxUndecided, m.opts.MaxRows/4)
	from, end := max(m.undecided, m.first), len(m.rows)-window
	if m.opts.Keep == nil || end-from < window {
		return
	}
	kept := from
	for _, r := range m.rows[from:end] {
		if m.opts.Keep(r) {
			m.rows[kept] = r
			kept++
		} else {
			m.evict(r)
		}
	}
	n := kept + copy(m.rows[kept:], m.rows[end:])
	clear(m.rows[n:])
	m.rows, m.undecided = m.rows[:n], kept
}

// evict evicts a row that is no longer in the timeline.
func (m *Model) evict(r *Row) {
	m.past.add(r)
	m.unlink(r)
	m.evicted++
	m.changes = append(m.changes, Change{Evicted, r})
}

// unlink removes all references to a row and the rows inside it.
func (m *Model) unlink(r *Row) {
	for _, c := range r.Children {
		m.unlink(c)
	}
	m.count--
	r.evicted = true
	c, s := r.Capture, r.Session
	for _, n := range r.Events {
		c.events.remove(n, r)
	}
	m.removePending(r)
	if k := (tokenKey{r.Dir, r.token}); s.tokens[k] == r {
		delete(s.tokens, k)
	}
	if r.Task != nil && s.task(r.Task.ID) == r {
		delete(c.tasks, taskKey{s.Side, r.Task.ID})
	}
	if r.InputRounds != nil {
		c.removeAwaiting(r)
	}
	if rt := m.roundTrips[roundTripKey{c, r.roundTrip}]; rt != nil && rt.row == r {
		rt.row = nil
	}
}

// removePending records that a request no longer waits for its response.
func (m *Model) removePending(r *Row) {
	if r.call == nil {
		return
	}
	r.call.Owner = nil
	k := requestKey{r.Dir, idText(r.call.ID)}
	if r.Session.pending[k] == r {
		delete(r.Session.pending, k)
	}
	delete(r.Session.inFlight, r)
	r.call = nil
}

// intern returns b as a string. Equal names share memory.
func (m *Model) intern(b []byte) string {
	b = b[:min(len(b), maxName)]
	if s, ok := m.names[string(b)]; ok {
		return s
	}
	if len(m.names) >= maxInterned {
		clear(m.names)
	}
	s := string(b)
	m.names[s] = s
	return s
}

// FinishCapture declares that no more events of a capture come: its pending requests become
// [Unanswered]. It returns the changes as [Model.Add] does. Later events of the capture are still
// accepted.
func (m *Model) FinishCapture(captureID string) []Change {
	m.changes, m.hits = m.changes[:0], 0
	c := m.captureByID(captureID)
	if c == nil {
		return nil
	}
	for _, r := range m.unfinishedRows(c) {
		m.abandon(r)
	}
	return m.changes
}

// unfinishedRows returns the pending rows of a capture, oldest first. The rows of a capture that
// has just ended are usually the newest, so it searches from the end and stops when it has seen
// all of them.
func (m *Model) unfinishedRows(c *Capture) (open []*Row) {
	var left uint64
	for _, s := range c.sessions {
		left += s.Rows
	}
	rows := m.Rows()
	for i := len(rows) - 1; i >= 0 && left > 0; i-- {
		if rows[i].Capture != c {
			continue
		}
		from := len(open)
		for r := range rows[i].All() {
			left -= min(left, 1)
			if !r.Done && (r.Kind == Request || r.Kind == HTTP) {
				open = append(open, r)
			}
		}
		slices.Reverse(open[from:]) // reversed again below
		left -= min(left, uint64(rows[i].EvictedChildren))
	}
	slices.Reverse(open)
	return open
}

// Evicted reports whether the row was evicted, by itself or with its parent. It changes no more.
func (r *Row) Evicted() bool { return r.evicted }

const maxCommand = 16 // arguments kept

// otherEvent handles an event that is neither a message nor about HTTP.
func (m *Model) otherEvent(s *Session, e *capture.Event) {
	kinds := map[capture.Kind]Kind{
		capture.KindStart: Start, capture.KindExit: Exit, capture.KindEOF: EOF, capture.KindStderr: Stderr,
		capture.KindInvalid: Invalid, capture.KindNote: Note, capture.KindGap: Gap, capture.KindTranslate: Translate,
	}
	kind, ok := kinds[e.Kind]
	if !ok {
		return // kind of a later format version
	}
	if kind == Translate && e.Translation != nil && m.linkTranslation(s.Capture, e) {
		return
	}
	rt := m.roundTrip(s, e.Exchange)
	if kind == Invalid && e.Dir == capture.ToClient && e.Exchange == 0 {
		kind = Stdout
	}
	r := m.newRow(kind, s, e)
	r.Excerpt, r.RequestBytes = excerpt(e.Data), wireLen(e)
	parent := rt.parent()
	switch kind {
	case Start:
		m.processStart(s, r, e.Start)
	case Stderr, Stdout:
		s.process.add(e, kind == Stdout)
	case EOF:
		s.process.closed = s.process.closed || e.Dir == capture.ToServer
	case Exit:
		m.processExit(s, r, e.Exit)
	case Gap:
		r.Excerpt = gapText(e.Gap)
	case Translate:
		if e.Translation == nil {
			return
		}
		r.Excerpt = clip.String(e.Translation.Rule, maxExcerpt)
		parent = s.Capture.events.row(e.Translation.Of)
	}
	m.addRow(r, parent)
	m.attachHTTP(rt, r)
	if kind == Exit {
		m.abandonPending(s)
	}
}

func (m *Model) processStart(s *Session, r *Row, st *capture.Start) {
	if st == nil {
		return
	}
	s.PID, s.Command, s.StartN = st.PID, nil, r.N
	for _, a := range st.Command[:min(len(st.Command), maxCommand)] {
		s.Command = append(s.Command, clip.String(a, maxName))
	}
	s.Exited, s.ExitCode, s.Signal, s.Cause, s.Fix = false, 0, "", "", ""
	s.process = processLog{}
	for _, v := range st.Env[:min(len(st.Env), maxLogEnv)] {
		name, _, _ := strings.Cut(v, "=")
		s.process.env = append(s.process.env, clip.String(name, maxName))
	}
	s.Capture.newestProcess = s
	r.Excerpt = clip.String(strings.Join(s.Command, " "), maxExcerpt)
	r.Target = fmt.Sprint("pid ", st.PID)
}

func (m *Model) processExit(s *Session, r *Row, exit *capture.Exit) {
	if exit == nil {
		return
	}
	s.Exited, s.ExitCode, s.Signal = true, exit.Code, clip.String(exit.Signal, maxName)
	r.Code = exit.Code
	r.Excerpt = fmt.Sprint("code ", exit.Code)
	if exit.Signal != "" {
		r.Excerpt = "signal " + s.Signal
	}
	if s.explainExit(r.T, exit); s.Cause != "" {
		r.Excerpt = clip.String(r.Excerpt+": "+s.Cause, maxExcerpt)
	}
}

// abandonPending ends the pending requests of a session whose process has exited.
func (m *Model) abandonPending(s *Session) {
	var open []*Row
	for _, r := range s.pending {
		open = append(open, r)
	}
	slices.SortFunc(open, func(a, b *Row) int {
		if a.Seq < b.Seq {
			return -1
		}
		return 1
	})
	hits := m.hits
	m.hits = 0
	for _, r := range open {
		call := r.call
		m.abandon(r)
		if call == nil {
			continue
		}
		// A tap may still answer in place of the exited server; see reopen.
		r.call, call.Owner = call, r
	}
	m.hits = hits
}

func gapText(g *capture.Gap) string {
	if g == nil {
		return ""
	}
	n := "some events"
	switch {
	case g.Lost == 1:
		n = "1 event"
	case g.Lost > 1:
		n = fmt.Sprint(g.Lost, " events")
	}
	why := map[capture.GapReason]string{
		capture.GapQueue: "recorded faster than written", capture.GapWrite: "writing failed", capture.GapLimit: "the line is too long",
		capture.GapUnwatched: "not recorded",
		capture.GapMalformed: "the line is not an event", capture.GapTruncated: "the capture ends unexpectedly here",
	}[g.Why]
	if why == "" {
		why = clip.String(string(g.Why), maxName)
	}
	return fmt.Sprintf("%s missing, %s: %s", n, FormatSize(g.Bytes), why)
}
