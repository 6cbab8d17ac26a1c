package mock

import (
	"cmp"
	"slices"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// What an entry and a step take of memory besides their texts, about.
const (
	entryCost = 1024
	stepCost  = 256
)

// maxParams is how much of the params of a request is kept for messages, in bytes.
const maxParams = 2048

// A reading makes a Tape of events. See step for what belongs to what.
type reading struct {
	t        *Tape
	limit    int
	held     int
	pairer   *capture.Pairer
	texts    map[string]string
	spelt    map[*entry]string // masks
	lanes    map[laneKey]*lane
	order    []*entry
	waiting  map[*capture.Call]*pending
	asks     map[*capture.Call]*owned
	exchange map[exchangeKey]*entry // HTTP exchanges with a request that is not answered
	inStream int                    // answers that came in event streams
}

// A laneKey names what a client and a server say to each other in order.
type laneKey struct {
	capture string
	session uint64
}

type exchangeKey struct {
	capture  string
	exchange uint64
}

// A lane is one session, or connection, while it is read.
type lane struct {
	session *session
	open    []*entry // requests of the client that are under way, the oldest first
	tokens  map[string]*entry
	ready   bool   // the handshake is complete
	last    *entry // the client's last request: what comes by itself follows it
}

// A pending entry has no answer yet.
type pending struct {
	entry *entry
	lane  *lane
	early bool // it came before the handshake was complete
}

// An owned step is a question of the server, with the entry that it is part of.
type owned struct {
	entry *entry
	later bool
	index int
}

func (o *owned) step() *step {
	if o.later {
		return &o.entry.later[o.index]
	}
	return &o.entry.steps[o.index]
}

func newReading(limit int) *reading {
	return &reading{
		t: &Tape{methods: map[methodKey]*method{}}, limit: limit, pairer: capture.NewPairer(nil), texts: map[string]string{}, spelt: map[*entry]string{},
		lanes: map[laneKey]*lane{}, waiting: map[*capture.Call]*pending{}, asks: map[*capture.Call]*owned{}, exchange: map[exchangeKey]*entry{},
	}
}

func (rd *reading) lane(e *capture.Event) *lane {
	key := laneKey{e.Capture, e.Session}
	l := rd.lanes[key]
	if l == nil {
		rd.held += entryCost
		s := &session{capture: e.Capture, number: e.Session}
		l = &lane{session: s, tokens: map[string]*entry{}}
		rd.lanes[key] = l
		rd.t.sessions = append(rd.t.sessions, s)
	}
	return l
}

// add takes the next event.
func (rd *reading) add(e *capture.Event) {
	switch e.Kind {
	case capture.KindHead:
		if rd.t.Name == "" && e.Head != nil {
			rd.t.Name = e.Head.Name
		}
	case capture.KindGap:
		if e.Gap != nil {
			rd.t.Notes.Lost += max(e.Gap.Lost, 1)
		}
	case capture.KindBad:
		if e.Dir == capture.ToClient {
			rd.t.Notes.Stray++
		}
	case capture.KindResponse:
		if x := rd.exchange[exchangeKey{e.Capture, e.Exchange}]; x != nil && e.Response != nil && e.Response.Status >= 400 {
			x.status = e.Response.Status
		}
	case capture.KindEnd:
		delete(rd.exchange, exchangeKey{e.Capture, e.Exchange})
	case capture.KindMessage:
		if e.Cut {
			rd.t.Notes.Cut++
			return
		}
		rd.message(e)
	}
}

// message takes an event with a message, or a batch of them.
func (rd *reading) message(e *capture.Event) {
	l := rd.lane(e)
	if e.Exchange != 0 {
		l.session.http = true
	}
	if e.Dir == capture.ToClient {
		rd.t.Notes.Hidden += len(e.Redacted) + e.RedactedMore
	}
	texts := [][]byte{e.Data}
	parts := rd.pairer.Add(e)
	if len(parts) > 0 && parts[0].Batch {
		texts = texts[:0]
		for a := jsonwire.ArrayElements(e.Data); a.Next(); {
			texts = append(texts, a.Value())
		}
	}
	for i := range parts {
		p := &parts[i]
		var m jsonrpc.Message
		if p.Index < 0 || p.Index >= len(texts) || jsonrpc.Parse(texts[p.Index], &m, 0) != nil {
			continue
		}
		in := &incoming{rd: rd, l: l, e: e, p: p, m: &m, text: texts[p.Index]}
		if e.Dir == capture.ToServer {
			in.fromClient()
		} else {
			in.fromServer()
		}
	}
}

// frame returns the frame of a message, and counts what it takes.
func (rd *reading) frame(text []byte) frame {
	f := frameOf(text)
	f.head, f.tail = rd.intern(f.head), rd.intern(f.tail)
	return f
}

func (rd *reading) intern(s string) string {
	if known, ok := rd.texts[s]; ok {
		return known
	}
	rd.held += len(s) + 64
	rd.texts[s] = s
	return s
}

// tape returns what was read.
func (rd *reading) tape() *Tape {
	t := rd.t
	answered := 0
	for _, e := range rd.order {
		t.put(e, rd.spelt[e])
		if e.done || e.status != 0 {
			t.Notes.Requests++
		} else if e.method != mcp.MethodSubscriptionsListen {
			t.Notes.Unanswered++
		}
		if e.done {
			answered++
		}
	}
	for _, s := range t.sessions {
		if s.hello != nil && s.revision != mcp.RevisionNone && !slices.Contains(t.legacy, s.revision) {
			t.legacy = append(t.legacy, s.revision)
		}
	}
	slices.SortFunc(t.modern, func(a, b mcp.Revision) int { return cmp.Compare(a.String(), b.String()) })
	slices.SortFunc(t.legacy, func(a, b mcp.Revision) int { return cmp.Compare(a.String(), b.String()) })
	t.streams = answered > 0 && rd.inStream*2 > answered
	for _, m := range t.methods {
		m.tidy()
	}
	return t
}

// tidy takes requests without an answer out of the lists in which others have one: whoever asked again was answered in the end.
func (m *method) tidy() {
	for _, lists := range []map[lookupKey][]*entry{m.byParams, m.byTarget} {
		for key, list := range lists {
			if slices.ContainsFunc(list, func(e *entry) bool { return e.done }) {
				lists[key] = slices.DeleteFunc(list, func(e *entry) bool { return !e.done })
			}
		}
	}
}

// gapSince returns how long after the event before in the same entry an event came.
func (e *entry) gapSince(t time.Duration) time.Duration {
	gap := max(t-e.last, 0)
	e.last = max(t, e.last)
	return gap
}

// isListen reports whether the request goes on for as long as the client listens.
func (e *entry) isListen() bool { return e.method == mcp.MethodSubscriptionsListen }

// spoken notes that a request of a modern revision was answered.
func (rd *reading) spoken(r mcp.Revision, l *lane) {
	l.session.modern = true
	if r != mcp.RevisionNone && r.Modern() && !slices.Contains(rd.t.modern, r) {
		rd.t.modern = append(rd.t.modern, r)
	}
}

// clientOf returns the name of the client that sent initialize.
func clientOf(params []byte) string {
	if !era.IsObject(params) {
		return ""
	}
	return era.LookupString(params, "clientInfo", "name")
}
