package trace

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

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
	maxEvents  = 32  // event numbers in Row.Events
	maxName    = 256 // bytes of a name
	maxExcerpt = 160 // bytes
	maxDepth   = 6   // nesting of rows
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
	// Evicted means that the row of the timeline was dropped and changes no more.
	Evicted
	// ChildEvicted is Evicted for a row inside another.
	ChildEvicted
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
	opts       Options
	messages   *messages.Source
	captures   captureTable
	timeline   timeline
	roundTrips roundTrips
	names      nameTable
	stats      statTable
}

// maxPending limits the requests that wait for their response.
const maxPending = 65536

// New returns an empty model. opts may be nil.
func New(opts *Options) *Model {
	m := &Model{
		captures: captureTable{byID: map[string]*Capture{}, servers: map[string]int{}}, timeline: timeline{past: newFacetCounts()},
		roundTrips: roundTrips{byKey: map[roundTripKey]*roundTrip{}}, names: nameTable{}, stats: newStatTable(),
	}
	if opts != nil {
		m.opts = *opts
	}
	m.timeline.opts, m.timeline.seq = &m.opts, m.opts.FirstSeq
	defaults.IfNotPositive(&m.opts.MaxRows, DefaultMaxRows)
	defaults.IfNotPositive(&m.opts.MaxChildren, DefaultMaxChildren)
	m.messages = messages.New(min(m.opts.MaxRows, maxPending))
	return m
}

// Add adds the next event and returns the changes. The slice is valid until the next call. head is
// the head of the event's capture, as returned by [capture.Reader.Head]; it may be nil if the
// event with the head is added too. Add does not keep e.
func (m *Model) Add(head *capture.Head, e *capture.Event) []Change {
	m.timeline.begin()
	if e.Head != nil {
		head = e.Head
	}
	c := m.captures.of(head, e.Capture, m)
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
		m.timeline.hits = m.opts.Scan(e, frame)
	}
	switch e.Kind {
	case capture.KindMessage:
		m.messageEvent(s, e, frame)
	case capture.KindRequest, capture.KindResponse, capture.KindBody, capture.KindSSE, capture.KindEnd:
		m.httpEvent(s, e)
	default:
		m.otherEvent(s, e)
	}
	m.timeline.dropUnwanted()
	m.timeline.evictOldest()
	return m.timeline.changes
}

// HasSeveralCaptures reports whether the model has had events of more than one capture. The numbers
// of events are unique only together with [Capture.Letter] then.
func (m *Model) HasSeveralCaptures() bool { return m.captures.count > 1 }

// Finish declares that no more events come: pending requests become [Unanswered]. It returns the
// changes as [Model.Add] does.
func (m *Model) Finish() []Change {
	m.timeline.begin()
	for _, r := range m.unfinishedRows(nil) {
		m.abandon(r)
	}
	return m.timeline.changes
}

// Rows returns the timeline, oldest first. The slice is valid until the next call that changes the
// model. The caller must not modify it.
func (m *Model) Rows() []*Row { return m.timeline.live() }

// TotalRows returns the number of rows that the timeline has had, including evicted ones.
func (m *Model) TotalRows() uint64 { return uint64(len(m.Rows())) + m.timeline.evicted }

// EvictedRows returns the number of rows evicted from the timeline.
func (m *Model) EvictedRows() uint64 { return m.timeline.evicted }

// Find returns the row that event n of a capture belongs to, or nil. An empty captureID means the
// only capture.
func (m *Model) Find(captureID string, n uint64) *Row {
	if c := m.captures.find(captureID); c != nil {
		return c.events.row(n)
	}
	return nil
}

// RowOf returns the row with a number, also inside another row, or nil.
func (m *Model) RowOf(seq uint64) *Row { return m.timeline.find(seq) }

// Settled reports whether no row of the timeline has, or can still get, an event with a number up
// to n. All rows with such events are evicted then.
func (m *Model) Settled(n uint64) bool {
	for _, r := range m.Rows() {
		if r.HasEventIn(0, n) {
			return false
		}
	}
	for _, rt := range m.roundTrips.byKey {
		if rt.row == nil && len(rt.events) > 0 && rt.events[0] <= n {
			return false
		}
	}
	return true
}

// Captures returns the captures, in the order of their first events.
func (m *Model) Captures() []*Capture { return slices.Clone(m.captures.order) }

// Sessions returns the sessions of a capture, ordered by number.
func (c *Capture) Sessions() []*Session {
	return slices.SortedFunc(maps.Values(c.sessions), func(a, b *Session) int { return cmp.Compare(a.Number, b.Number) })
}

// FinishCapture declares that no more events of a capture come: its pending requests become
// [Unanswered]. It returns the changes as [Model.Add] does. Later events of the capture are still
// accepted.
func (m *Model) FinishCapture(captureID string) []Change {
	m.timeline.begin()
	c := m.captures.find(captureID)
	if c == nil {
		return nil
	}
	for _, r := range m.unfinishedRows(c) {
		m.abandon(r)
	}
	return m.timeline.changes
}

// unfinishedRows returns the pending rows of a capture, oldest first. Nil means all captures. The
// rows of a capture that has just ended are usually the newest, so it searches from the end and
// stops when it has seen all of them.
func (m *Model) unfinishedRows(c *Capture) (open []*Row) {
	left := uint64(math.MaxUint64)
	if c != nil {
		left = 0
		for _, s := range c.sessions {
			left += s.Rows
		}
	}
	rows := m.Rows()
	for i := len(rows) - 1; i >= 0 && left > 0; i-- {
		if c != nil && rows[i].Capture != c {
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
	rt := m.roundTrips.of(s, e)
	if kind == Invalid && e.Dir == capture.ToClient && e.Exchange == 0 {
		kind = Stdout
	}
	r := m.timeline.newRow(kind, s, e)
	r.Excerpt, r.RequestBytes = excerpt(e.Data), WireLen(e)
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
	m.timeline.add(r, parent)
	rt.attach(r)
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
	hits := m.timeline.hits
	m.timeline.hits = 0
	for _, r := range slices.SortedFunc(maps.Values(s.pending), func(a, b *Row) int { return cmp.Compare(a.Seq, b.Seq) }) {
		call := r.call
		m.abandon(r)
		if call == nil {
			continue
		}
		// A tap may still answer in place of the exited server; see reopen.
		r.call, call.Owner = call, r
	}
	m.timeline.hits = hits
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
