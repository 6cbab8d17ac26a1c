package replay

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/jsonwire"
	"mcpwire/internal/resend"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// clientClosed is why an exchange ended whose client did not wait for its end.
const clientClosed = "client closed"

// maxExchanges is how many HTTP exchanges under way are remembered.
const maxExchanges = 4096

// Read takes from captures what their clients have sent: a recording for each session, in the order in which they began. Modern requests over HTTP belong to no session, and are one
// recording together. opts may be nil.
func Read(ctx context.Context, events iter.Seq2[*capture.Event, error], opts *ReadOptions) ([]*Recording, error) {
	r := &reader{opts: opts.withDefaults(), left: map[string]*builder{}}
	for e, err := range events {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("replay: reading the recording: %w", err)
		}
		if err := r.add(e); err != nil {
			return nil, err
		}
	}
	r.finish()
	if len(r.all) == 0 {
		if r.opts.Session != nil {
			return nil, fmt.Errorf("replay: the capture has %w in session %d", ErrNoSession, *r.opts.Session)
		}
		return nil, fmt.Errorf("replay: the capture has %w", ErrNoSession)
	}
	return r.all, nil
}

// A reader reads captures.
type reader struct {
	opts  ReadOptions
	head  *capture.Head
	pairs *capture.Pairer
	began bool // a process was started
	bytes int64
	steps int

	groups    map[uint64]*builder  // of the capture that is read, by session
	left      map[string]*builder  // by the name of a group
	exchanges map[uint64]*exchange // of the capture that is read
	all       []*Recording
	builders  []*builder
}

// An exchange is one of HTTP.
type exchange struct {
	method, version string
	status          int
	calls           []*call
}

func (r *reader) add(e *capture.Event) error {
	if e.Kind == capture.KindHead || r.pairs == nil {
		r.next(e.Head)
	}
	if r.opts.Session != nil && e.Kind != capture.KindHead && e.Session != *r.opts.Session {
		return nil
	}
	switch e.Kind {
	case capture.KindStart:
		r.began = true
	case capture.KindRequest:
		r.request(e)
	case capture.KindResponse:
		if x := r.exchanges[e.Exchange]; x != nil && e.Response != nil {
			x.status = e.Response.Status
			if g := r.groups[e.Session]; g != nil && x.method == http.MethodGet && x.status == http.StatusOK {
				g.rec.listens = true
			}
		}
	case capture.KindEnd:
		if g := r.groups[e.Session]; g != nil && string(e.Data) == clientClosed {
			g.hungUp(e, r.exchanges[e.Exchange])
		}
		r.ended(e.Exchange)
	case capture.KindMessage, capture.KindBad:
		return r.message(e)
	}
	return nil
}

// next begins another capture.
func (r *reader) next(head *capture.Head) {
	if head == nil {
		head = new(capture.Head)
	}
	r.finish()
	r.head, r.began = head, false
	r.pairs = capture.NewPairer(nil)
	r.groups, r.left, r.exchanges = map[uint64]*builder{}, map[string]*builder{}, map[uint64]*exchange{}
	r.builders = nil
}

func (r *reader) request(e *capture.Event) {
	if e.Request == nil {
		return
	}
	if len(r.exchanges) >= maxExchanges {
		clear(r.exchanges)
	}
	x := &exchange{method: e.Request.Method}
	for _, h := range e.Request.Headers {
		if strings.EqualFold(h.Name, "Mcp-Protocol-Version") {
			x.version = strings.TrimSpace(h.Value)
		}
	}
	r.exchanges[e.Exchange] = x
}

// ended is told that an exchange is over: what has no answer by then was refused, if its status says so.
func (r *reader) ended(n uint64) {
	if x := r.exchanges[n]; x != nil {
		for _, c := range x.calls {
			if c.answer == nil {
				c.status = x.status
			}
		}
		delete(r.exchanges, n)
	}
}

func (r *reader) message(e *capture.Event) error {
	r.steps++
	r.bytes += int64(len(e.Data)) + 256
	if r.bytes > r.opts.MaxBytes || r.steps > r.opts.MaxSteps {
		return fmt.Errorf("replay: the recording has %w: %d messages, %d bytes", ErrTooMuch, r.steps, r.bytes)
	}
	parts := r.pairs.Add(e)
	if e.Dir == capture.ToServer {
		r.group(e).sent(e, parts, r.exchanges[e.Exchange])
	} else if g := r.groups[e.Session]; g != nil {
		g.came(e, parts)
	}
	return nil
}

// group returns what the message of a client's belongs to.
func (r *reader) group(e *capture.Event) *builder {
	if g := r.groups[e.Session]; g != nil {
		return g
	}
	version := versionIn(e.Data)
	if x := r.exchanges[e.Exchange]; x != nil && version == "" {
		if rev, ok := mcp.ParseRevision(x.version); ok && rev.Modern() {
			version = x.version
		}
	}
	name := strconv.FormatUint(e.Session, 10)
	web := e.Exchange > 0 || !r.began && r.head.Transport == string(resend.HTTP)
	if web && version != "" {
		name = "modern" // connections mean nothing
	}
	g := r.left[name]
	if g == nil {
		rec := &Recording{
			Capture: cmp.Or(r.head.ID, e.Capture), Session: e.Session, Name: r.head.Name, Redact: r.head.Redact, First: e.N,
			Transport: resend.Stdio, Modern: version != "", Revision: version, listens: !web,
		}
		if web {
			rec.Transport = resend.HTTP
		}
		g = &builder{rec: rec, calls: map[*capture.Call]*call{}, asks: map[*capture.Call]*ask{}}
		r.left[name] = g
		r.builders = append(r.builders, g)
	}
	r.groups[e.Session] = g
	return g
}

// finish makes recordings of what was read of a capture.
func (r *reader) finish() {
	for n := range r.exchanges {
		r.ended(n)
	}
	for _, g := range r.builders {
		g.finish()
		r.all = append(r.all, g.rec)
	}
	r.builders = nil
}

// A builder builds a recording.
type builder struct {
	rec     *Recording
	calls   map[*capture.Call]*call // that wait for their answer
	asks    map[*capture.Call]*ask
	tracker tracker
	after   []*call // answered since the last frame
	last    time.Duration
}

// sent adds what the client has sent.
func (g *builder) sent(e *capture.Event, parts []capture.Part, x *exchange) {
	f := &frame{n: e.N, t: e.T, since: g.last, after: g.after, cut: e.Cut, batch: jsonrpc.IsBatch(e.Data)}
	g.after, g.last = nil, e.T
	data := bytes.Clone(e.Data)
	if len(parts) == 0 {
		f.elements = []element{{raw: data}}
		g.rec.frames = append(g.rec.frames, f)
		return
	}
	raws := split(data)
	for _, p := range parts {
		if p.Index >= len(raws) {
			continue
		}
		el := newElement(raws[p.Index], e, p)
		if p.Kind == jsonrpc.KindResponse || p.Kind == jsonrpc.KindError {
			g.replied(f, el, p)
			continue
		}
		if p.Kind == jsonrpc.KindNotification && string(el.m.Method) == mcp.NotificationCancelled {
			f.told = g.toldOf(&el.m)
		}
		if p.Kind == jsonrpc.KindRequest {
			el.call = g.called(e, &el)
			if p.Call != nil {
				g.calls[p.Call] = el.call
			}
			if x != nil {
				x.calls = append(x.calls, el.call)
			}
		}
		f.elements = append(f.elements, el)
	}
	if len(f.elements) > 0 {
		g.rec.frames = append(g.rec.frames, f)
	}
}

// split returns the messages of a frame.
func split(data []byte) [][]byte {
	data = bytes.TrimSpace(data)
	if !jsonrpc.IsBatch(data) {
		return [][]byte{data}
	}
	var list [][]byte
	elements := jsonwire.ArrayElements(data)
	for elements.Next() && len(list) < jsonrpc.MaxBatch {
		list = append(list, elements.Value())
	}
	return list
}

func newElement(raw []byte, e *capture.Event, p capture.Part) element {
	el := element{raw: raw, more: e.RedactedMore}
	_ = jsonrpc.Parse(raw, &el.m, 0) // the pairer has parsed it
	prefix := "/msg"
	if p.Batch {
		prefix += "/" + strconv.Itoa(p.Index)
	}
	for _, pointer := range e.Redacted {
		if rest, ok := strings.CutPrefix(pointer, prefix); ok && (rest == "" || rest[0] == '/') {
			el.hidden = append(el.hidden, rest)
		} else if pointer == "/raw" || pointer == "/b64" {
			el.hidden = append(el.hidden, "")
		}
	}
	return el
}

// called adds a request.
func (g *builder) called(e *capture.Event, el *element) *call {
	m := &el.m
	c := &call{index: len(g.rec.calls), n: e.N, t: e.T, id: idKey(m.ID), method: string(m.Method), exchange: e.Exchange, target: targetOf(m)}
	meta, _ := m.Param("_meta")
	c.token = string(jsonwire.Lookup(meta, mcp.MetaProgressToken))
	c.seen = trace{exchange: e.Exchange, token: c.token, standing: c.method == mcp.MethodSubscriptionsListen}
	g.tracker.add(&c.seen)
	g.rec.calls = append(g.rec.calls, c)
	return c
}

// targetOf is what a request is about.
func targetOf(m *jsonrpc.Message) string {
	for _, name := range []string{"name", "uri", "taskId"} {
		if v, _ := m.Param(name); len(v) > 0 && v[0] == '"' {
			return jsonwire.Text(v)
		}
	}
	return ""
}

// replied adds an answer of the client's, which is a step of its own.
func (g *builder) replied(f *frame, el element, p capture.Part) {
	a := g.asks[p.Call]
	if p.Call == nil || a == nil {
		return // to nothing that is known
	}
	delete(g.asks, p.Call)
	a.reply, a.replyT = &el, f.t
	g.rec.frames = append(g.rec.frames, &frame{n: f.n, t: f.t, since: max(f.since, a.t), after: f.after, elements: []element{el}, reply: a})
	f.after = nil
}

// came adds what the server has sent.
func (g *builder) came(e *capture.Event, parts []capture.Part) {
	if len(parts) == 0 {
		return
	}
	raws := split(bytes.Clone(e.Data))
	for _, p := range parts {
		if p.Index >= len(raws) {
			continue
		}
		switch el := newElement(raws[p.Index], e, p); p.Kind {
		case jsonrpc.KindRequest:
			g.asked(e, el, p)
		case jsonrpc.KindNotification:
			if !g.tracker.note(&el.m, e.Exchange) {
				g.rec.kinds = addKind(g.rec.kinds, string(el.m.Method))
			}
		case jsonrpc.KindResponse, jsonrpc.KindError:
			if c := g.calls[p.Call]; p.Call != nil && c != nil {
				delete(g.calls, p.Call)
				g.tracker.remove(&c.seen)
				c.answer, c.answerT, c.answerAt = &el, e.T, e.At
				g.after = append(g.after, c)
				g.last = e.T
			}
		}
	}
}

func (g *builder) asked(e *capture.Event, el element, p capture.Part) {
	if string(el.m.Method) == mcp.MethodPing {
		return
	}
	a := &ask{index: len(g.rec.asks), n: e.N, t: e.T, at: e.At, method: string(el.m.Method), raw: el}
	for _, c := range g.calls {
		if !c.seen.standing {
			a.during = append(a.during, c)
		}
	}
	slices.SortFunc(a.during, func(x, y *call) int { return cmp.Compare(x.index, y.index) })
	g.rec.asks = append(g.rec.asks, a)
	if p.Call != nil {
		g.asks[p.Call] = a
	}
}

// versionIn returns the revision that a modern message says it is of; "" of another.
func versionIn(data []byte) string {
	if !bytes.Contains(data, []byte(mcp.MetaProtocolVersion)) && !bytes.Contains(data, []byte(`\u`)) {
		return ""
	}
	if jsonwire.Valid(data, 0) != nil {
		return ""
	}
	for _, raw := range split(data) {
		if s := jsonwire.Text(jsonwire.Lookup(raw, "params", "_meta", mcp.MetaProtocolVersion)); s != "" {
			return s
		}
	}
	return ""
}
