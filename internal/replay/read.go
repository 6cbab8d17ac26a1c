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
	r := &reader{opts: opts.withDefaults(), byName: map[string]*builder{}}
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
	opts    ReadOptions
	head    *capture.Head
	pairer  *capture.Pairer
	started bool // a process was started
	bytes   int64
	steps   int

	bySession     map[uint64]*builder      // of the capture that is read, by session
	byName        map[string]*builder      // by the name of a group
	httpExchanges map[uint64]*httpExchange // of the capture that is read
	all           []*Recording
	builders      []*builder
}

// An exchange is one of HTTP.
type httpExchange struct {
	method, version string
	status          int
	calls           []*call
}

func (r *reader) add(e *capture.Event) error {
	if e.Kind == capture.KindHead || r.pairer == nil {
		r.next(e.Head)
	}
	if r.opts.Session != nil && e.Kind != capture.KindHead && e.Session != *r.opts.Session {
		return nil
	}
	switch e.Kind {
	case capture.KindStart:
		r.started = true
	case capture.KindRequest:
		r.request(e)
	case capture.KindResponse:
		if x := r.httpExchanges[e.Exchange]; x != nil && e.Response != nil {
			x.status = e.Response.Status
			if g := r.bySession[e.Session]; g != nil && x.method == http.MethodGet && x.status == http.StatusOK {
				g.rec.standingStream = true
			}
		}
	case capture.KindEnd:
		if g := r.bySession[e.Session]; g != nil && string(e.Data) == clientClosed {
			g.exchangeAborted(e, r.httpExchanges[e.Exchange])
		}
		r.exchangeEnded(e.Exchange)
	case capture.KindMessage, capture.KindInvalid:
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
	r.head, r.started = head, false
	r.pairer = capture.NewPairer(nil)
	r.bySession, r.byName, r.httpExchanges = map[uint64]*builder{}, map[string]*builder{}, map[uint64]*httpExchange{}
	r.builders = nil
}

func (r *reader) request(e *capture.Event) {
	if e.Request == nil {
		return
	}
	if len(r.httpExchanges) >= maxExchanges {
		clear(r.httpExchanges)
	}
	x := &httpExchange{method: e.Request.Method}
	for _, h := range e.Request.Headers {
		if strings.EqualFold(h.Name, "Mcp-Protocol-Version") {
			x.version = strings.TrimSpace(h.Value)
		}
	}
	r.httpExchanges[e.Exchange] = x
}

// exchangeEnded is told that an exchange is over: what has no answer by then was refused, if its status says so.
func (r *reader) exchangeEnded(n uint64) {
	if x := r.httpExchanges[n]; x != nil {
		for _, c := range x.calls {
			if c.response == nil {
				c.status = x.status
			}
		}
		delete(r.httpExchanges, n)
	}
}

func (r *reader) message(e *capture.Event) error {
	r.steps++
	r.bytes += int64(len(e.Data)) + 256
	if r.bytes > r.opts.MaxBytes || r.steps > r.opts.MaxSteps {
		return fmt.Errorf("replay: the recording has %w: %d messages, %d bytes", ErrTooLarge, r.steps, r.bytes)
	}
	parts := r.pairer.Add(e)
	if e.Dir == capture.ToServer {
		r.builderFor(e).addClientFrame(e, parts, r.httpExchanges[e.Exchange])
	} else if g := r.bySession[e.Session]; g != nil {
		g.addServerFrame(e, parts)
	}
	return nil
}

// builderFor returns what the message of a client's belongs to.
func (r *reader) builderFor(e *capture.Event) *builder {
	if g := r.bySession[e.Session]; g != nil {
		return g
	}
	version := revisionOf(e.Data)
	if x := r.httpExchanges[e.Exchange]; x != nil && version == "" {
		if rev, ok := mcp.ParseRevision(x.version); ok && rev.Modern() {
			version = x.version
		}
	}
	name := strconv.FormatUint(e.Session, 10)
	web := e.Exchange > 0 || !r.started && r.head.Transport == string(resend.HTTP)
	if web && version != "" {
		name = "modern" // connections mean nothing
	}
	g := r.byName[name]
	if g == nil {
		rec := &Recording{
			Capture: cmp.Or(r.head.ID, e.Capture), Session: e.Session, Name: r.head.Name, Redact: r.head.Redact, First: e.N,
			Transport: resend.Stdio, Modern: version != "", Revision: version, standingStream: !web,
		}
		if web {
			rec.Transport = resend.HTTP
		}
		g = &builder{rec: rec, calls: map[*capture.Call]*call{}, serverRequests: map[*capture.Call]*serverRequest{}}
		r.byName[name] = g
		r.builders = append(r.builders, g)
	}
	r.bySession[e.Session] = g
	return g
}

// finish makes recordings of what was read of a capture.
func (r *reader) finish() {
	for n := range r.httpExchanges {
		r.exchangeEnded(n)
	}
	for _, g := range r.builders {
		g.finish()
		r.all = append(r.all, g.rec)
	}
	r.builders = nil
}

// A builder builds a recording.
type builder struct {
	rec            *Recording
	calls          map[*capture.Call]*call // that wait for their answer
	serverRequests map[*capture.Call]*serverRequest
	tracker        tracker
	after          []*call // answered since the last frame
	last           time.Duration
}

// addClientFrame adds what the client has sent.
func (b *builder) addClientFrame(e *capture.Event, parts []capture.Message, x *httpExchange) {
	f := &frame{n: e.N, t: e.T, since: b.last, after: b.after, cut: e.Cut, batch: jsonrpc.IsBatch(e.Data)}
	b.after, b.last = nil, e.T
	data := bytes.Clone(e.Data)
	if len(parts) == 0 {
		f.elements = []element{{raw: data}}
		b.rec.frames = append(b.rec.frames, f)
		return
	}
	raws := splitBatch(data)
	for _, p := range parts {
		if p.Index >= len(raws) {
			continue
		}
		el := newElement(raws[p.Index], e, p)
		if p.Kind == jsonrpc.KindResponse || p.Kind == jsonrpc.KindError {
			b.addReply(f, el, p)
			continue
		}
		if p.Kind == jsonrpc.KindNotification && string(el.m.Method) == mcp.NotificationCancelled {
			f.notified = b.notificationCount(&el.m)
		}
		if p.Kind == jsonrpc.KindRequest {
			el.call = b.addCall(e, &el)
			if p.Call != nil {
				b.calls[p.Call] = el.call
			}
			if x != nil {
				x.calls = append(x.calls, el.call)
			}
		}
		f.elements = append(f.elements, el)
	}
	if len(f.elements) > 0 {
		b.rec.frames = append(b.rec.frames, f)
	}
}

// splitBatch returns the messages of a frame.
func splitBatch(data []byte) [][]byte {
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

func newElement(raw []byte, e *capture.Event, p capture.Message) element {
	el := element{raw: raw, moreRedacted: e.RedactedMore}
	_ = jsonrpc.Parse(raw, &el.m, 0) // the pairer has parsed it
	prefix := "/msg"
	if p.Batch {
		prefix += "/" + strconv.Itoa(p.Index)
	}
	for _, pointer := range e.Redacted {
		if rest, ok := strings.CutPrefix(pointer, prefix); ok && (rest == "" || rest[0] == '/') {
			el.redacted = append(el.redacted, rest)
		} else if pointer == "/raw" || pointer == "/b64" {
			el.redacted = append(el.redacted, "")
		}
	}
	return el
}

// addCall adds a request.
func (b *builder) addCall(e *capture.Event, el *element) *call {
	m := &el.m
	c := &call{index: len(b.rec.calls), n: e.N, t: e.T, id: idKey(m.ID), method: string(m.Method), exchange: e.Exchange, target: targetOf(m)}
	meta, _ := m.Param("_meta")
	c.token = string(jsonwire.Lookup(meta, mcp.MetaProgressToken))
	c.notifications = notificationLog{exchange: e.Exchange, token: c.token, isSubscription: c.method == mcp.MethodSubscriptionsListen}
	b.tracker.add(&c.notifications)
	b.rec.calls = append(b.rec.calls, c)
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

// addReply adds an answer of the client's, which is a step of its own.
func (b *builder) addReply(f *frame, el element, p capture.Message) {
	a := b.serverRequests[p.Call]
	if p.Call == nil || a == nil {
		return // to nothing that is known
	}
	delete(b.serverRequests, p.Call)
	a.reply, a.replyT = &el, f.t
	b.rec.frames = append(b.rec.frames, &frame{n: f.n, t: f.t, since: max(f.since, a.t), after: f.after, elements: []element{el}, reply: a})
	f.after = nil
}

// addServerFrame adds what the server has sent.
func (b *builder) addServerFrame(e *capture.Event, parts []capture.Message) {
	if len(parts) == 0 {
		return
	}
	raws := splitBatch(bytes.Clone(e.Data))
	for _, p := range parts {
		if p.Index >= len(raws) {
			continue
		}
		switch el := newElement(raws[p.Index], e, p); p.Kind {
		case jsonrpc.KindRequest:
			b.addServerRequest(e, el, p)
		case jsonrpc.KindNotification:
			if !b.tracker.route(&el.m, e.Exchange) {
				b.rec.unownedMethods = addKind(b.rec.unownedMethods, string(el.m.Method))
			}
		case jsonrpc.KindResponse, jsonrpc.KindError:
			if c := b.calls[p.Call]; p.Call != nil && c != nil {
				delete(b.calls, p.Call)
				b.tracker.remove(&c.notifications)
				c.response, c.responseT, c.responseAt = &el, e.T, e.At
				b.after = append(b.after, c)
				b.last = e.T
			}
		}
	}
}

func (b *builder) addServerRequest(e *capture.Event, el element, p capture.Message) {
	if string(el.m.Method) == mcp.MethodPing {
		return
	}
	a := &serverRequest{index: len(b.rec.serverRequests), n: e.N, t: e.T, at: e.At, method: string(el.m.Method), request: el}
	for _, c := range b.calls {
		if !c.notifications.isSubscription {
			a.pendingCalls = append(a.pendingCalls, c)
		}
	}
	slices.SortFunc(a.pendingCalls, func(x, y *call) int { return cmp.Compare(x.index, y.index) })
	b.rec.serverRequests = append(b.rec.serverRequests, a)
	if p.Call != nil {
		b.serverRequests[p.Call] = a
	}
}

// revisionOf returns the revision that a modern message says it is of; "" of another.
func revisionOf(data []byte) string {
	if !bytes.Contains(data, []byte(mcp.MetaProtocolVersion)) && !bytes.Contains(data, []byte(`\u`)) {
		return ""
	}
	if jsonwire.Valid(data, 0) != nil {
		return ""
	}
	for _, raw := range splitBatch(data) {
		if s := jsonwire.Text(jsonwire.Lookup(raw, "params", "_meta", mcp.MetaProtocolVersion)); s != "" {
			return s
		}
	}
	return ""
}
