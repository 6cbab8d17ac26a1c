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
	exchangeCost = 1024
	stepCost     = 256
)

// maxParams is how much of the params of a request is kept for messages, in bytes.
const maxParams = 2048

// A reading makes a Recording of events. See step for what belongs to what.
type reader struct {
	rec            *Recording
	limit          int
	heldBytes      int
	pairer         *capture.Pairer
	texts          map[string]string
	maskTexts      map[*exchange]string // masks
	sessions       map[sessionKey]*sessionReader
	order          []*exchange
	pendingCalls   map[*capture.Call]*pending
	serverRequests map[*capture.Call]*ownedStep
	httpExchanges  map[httpExchangeKey]*exchange // HTTP exchanges with a request that is not answered
	inStream       int                           // answers that came in event streams
}

// A sessionKey names what a client and a server say to each other in order.
type sessionKey struct {
	capture string
	session uint64
}

type httpExchangeKey struct {
	capture string
	number  uint64
}

// A lane is one session, or connection, while it is read.
type sessionReader struct {
	session     *session
	pending     []*exchange // requests of the client that are under way, the oldest first
	tokens      map[string]*exchange
	initialized bool      // the handshake is complete
	last        *exchange // the client's last request: what comes by itself follows it
}

// A pending entry has no answer yet.
type pending struct {
	exchange *exchange
	session  *sessionReader
	early    bool // it came before the handshake was complete
}

// An owned step is a question of the server, with the entry that it is part of.
type ownedStep struct {
	exchange *exchange
	later    bool
	index    int
}

func (o *ownedStep) step() *step {
	if o.later {
		return &o.exchange.trailing[o.index]
	}
	return &o.exchange.steps[o.index]
}

func newReader(limit int) *reader {
	return &reader{
		rec: &Recording{methods: map[methodKey]*method{}}, limit: limit, pairer: capture.NewPairer(nil), texts: map[string]string{}, maskTexts: map[*exchange]string{},
		sessions: map[sessionKey]*sessionReader{}, pendingCalls: map[*capture.Call]*pending{}, serverRequests: map[*capture.Call]*ownedStep{}, httpExchanges: map[httpExchangeKey]*exchange{},
	}
}

func (rd *reader) sessionFor(e *capture.Event) *sessionReader {
	key := sessionKey{e.Capture, e.Session}
	l := rd.sessions[key]
	if l == nil {
		rd.heldBytes += exchangeCost
		s := &session{capture: e.Capture, number: e.Session}
		l = &sessionReader{session: s, tokens: map[string]*exchange{}}
		rd.sessions[key] = l
		rd.rec.sessions = append(rd.rec.sessions, s)
	}
	return l
}

// add takes the next event.
func (rd *reader) add(e *capture.Event) {
	switch e.Kind {
	case capture.KindHead:
		if rd.rec.Name == "" && e.Head != nil {
			rd.rec.Name = e.Head.Name
		}
	case capture.KindGap:
		if e.Gap != nil {
			rd.rec.Notes.Missing += max(e.Gap.Lost, 1)
		}
	case capture.KindInvalid:
		if e.Dir == capture.ToClient {
			rd.rec.Notes.Stray++
		}
	case capture.KindResponse:
		if x := rd.httpExchanges[httpExchangeKey{e.Capture, e.Exchange}]; x != nil && e.Response != nil && e.Response.Status >= 400 {
			x.status = e.Response.Status
		}
	case capture.KindEnd:
		delete(rd.httpExchanges, httpExchangeKey{e.Capture, e.Exchange})
	case capture.KindMessage:
		if e.Cut {
			rd.rec.Notes.Truncated++
			return
		}
		rd.message(e)
	}
}

// message takes an event with a message, or a batch of them.
func (rd *reader) message(e *capture.Event) {
	l := rd.sessionFor(e)
	if e.Exchange != 0 {
		l.session.http = true
	}
	if e.Dir == capture.ToClient {
		rd.rec.Notes.Redacted += len(e.Redacted) + e.RedactedMore
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
		in := &incoming{reader: rd, session: l, event: e, p: p, m: &m, text: texts[p.Index]}
		if e.Dir == capture.ToServer {
			in.fromClient()
		} else {
			in.fromServer()
		}
	}
}

// frame returns the frame of a message, and counts what it takes.
func (rd *reader) frame(text []byte) frame {
	f := frameOf(text)
	f.head, f.tail = rd.intern(f.head), rd.intern(f.tail)
	return f
}

func (rd *reader) intern(s string) string {
	if known, ok := rd.texts[s]; ok {
		return known
	}
	rd.heldBytes += len(s) + 64
	rd.texts[s] = s
	return s
}

// finish returns what was read.
func (rd *reader) finish() *Recording {
	t := rd.rec
	answered := 0
	for _, e := range rd.order {
		t.put(e, rd.maskTexts[e])
		if e.hasResponse || e.status != 0 {
			t.Notes.Requests++
		} else if e.method != mcp.MethodSubscriptionsListen {
			t.Notes.Unanswered++
		}
		if e.hasResponse {
			answered++
		}
	}
	for _, s := range t.sessions {
		if s.initialize != nil && s.revision != mcp.RevisionNone && !slices.Contains(t.legacy, s.revision) {
			t.legacy = append(t.legacy, s.revision)
		}
	}
	slices.SortFunc(t.modern, func(a, b mcp.Revision) int { return cmp.Compare(a.String(), b.String()) })
	slices.SortFunc(t.legacy, func(a, b mcp.Revision) int { return cmp.Compare(a.String(), b.String()) })
	t.streams = answered > 0 && rd.inStream*2 > answered
	for _, m := range t.methods {
		m.dropUnanswered()
	}
	return t
}

// dropUnanswered takes requests without an answer out of the lists in which others have one: whoever asked again was answered in the end.
func (m *method) dropUnanswered() {
	for _, lists := range []map[lookupKey][]*exchange{m.byParams, m.byTarget} {
		for key, list := range lists {
			if slices.ContainsFunc(list, func(e *exchange) bool { return e.hasResponse }) {
				lists[key] = slices.DeleteFunc(list, func(e *exchange) bool { return !e.hasResponse })
			}
		}
	}
}

// delaySince returns how long after the event before in the same entry an event came.
func (x *exchange) delaySince(t time.Duration) time.Duration {
	gap := max(t-x.lastAt, 0)
	x.lastAt = max(t, x.lastAt)
	return gap
}

// isSubscription reports whether the request goes on for as long as the client listens.
func (x *exchange) isSubscription() bool { return x.method == mcp.MethodSubscriptionsListen }

// noteRevision notes that a request of a modern revision was answered.
func (rd *reader) noteRevision(r mcp.Revision, l *sessionReader) {
	l.session.modern = true
	if r != mcp.RevisionNone && r.Modern() && !slices.Contains(rd.rec.modern, r) {
		rd.rec.modern = append(rd.rec.modern, r)
	}
}

// clientOf returns the name of the client that sent initialize.
func clientOf(params []byte) string {
	if !era.IsObject(params) {
		return ""
	}
	return era.LookupString(params, "clientInfo", "name")
}
