package mock

import (
	"slices"
	"strconv"
	"strings"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// An incoming is one recorded message while it is read.
type incoming struct {
	rd   *reading
	l    *lane
	e    *capture.Event
	p    *capture.Part
	m    *jsonrpc.Message
	text []byte
}

func (in *incoming) fromClient() {
	switch {
	case in.m.Kind == jsonrpc.KindRequest:
		in.request()
	case in.m.Kind == jsonrpc.KindNotification && string(in.m.Method) == mcp.NotificationInitialized:
		if h := in.l.session.hello; h != nil {
			h.last = in.e.T // what comes by itself, comes from here on
		}
		in.l.ready = true
	case in.m.Kind == jsonrpc.KindNotification && string(in.m.Method) == mcp.NotificationCancelled:
		if id, _, ok := (era.Cancellation{}).Target(in.m); ok {
			for _, x := range in.l.open {
				x.cancelled = x.cancelled || x.id.Equal(id)
			}
		}
	case in.p.Call != nil: // an answer to the server
		if o := in.rd.asks[in.p.Call]; o != nil {
			o.step().told = true
			o.entry.last = max(o.entry.last, in.e.T)
			delete(in.rd.asks, in.p.Call)
		}
	}
}

// request begins an entry.
func (in *incoming) request() {
	rd, l, m := in.rd, in.l, in.m
	x := &entry{n: in.e.N, method: string(m.Method), modern: isModern(m.Params), revision: revisionOf(m.Params), last: in.e.T, id: m.ID.Clone()}
	if !x.modern || in.e.Exchange == 0 {
		x.of = l.session
	}
	var covers string
	x.mask, covers = maskOf(in.e.Redacted, in.place()+"/params")
	if covers != "" {
		rd.spelt[x] = covers
	}
	x.shape = shapeOf(x.method, m.Params, x.mask)
	if len(m.Params) < rd.limit {
		x.params = clip(spelt(m.Params), maxParams)
	}
	rd.held += entryCost + len(x.method) + len(x.shape.target) + len(x.params) + 2*len(covers)
	rd.order = append(rd.order, x)
	if x.method == mcp.MethodInitialize {
		l.session.client = clip(clientOf(m.Params), 256)
		l.session.hello = x
	}
	l.last = x
	if in.p.Call == nil {
		return // nobody can tell its answer
	}
	l.open = append(l.open, x)
	early := !x.modern && !l.ready && x.method != mcp.MethodInitialize && x.method != mcp.MethodPing
	rd.waiting[in.p.Call] = &pending{x, l, early}
	if in.e.Exchange != 0 {
		rd.exchange[exchangeKey{in.e.Capture, in.e.Exchange}] = x
	}
	if token := tokenOf(m); token != nil && len(token) < maxParams {
		l.tokens[string(token)] = x
	}
}

// place is where the message is in the line of its event, as a JSON pointer.
func (in *incoming) place() string {
	if in.p.Batch {
		return "/msg/" + strconv.Itoa(in.p.Index)
	}
	return "/msg"
}

func (in *incoming) fromServer() {
	switch in.m.Kind {
	case jsonrpc.KindResponse, jsonrpc.KindError:
		in.answer()
	case jsonrpc.KindRequest, jsonrpc.KindNotification:
		in.spoke()
	}
}

// answer ends an entry.
func (in *incoming) answer() {
	rd := in.rd
	w := rd.waiting[in.p.Call]
	if in.p.Call == nil || w == nil {
		rd.t.Notes.Orphans++
		return
	}
	x, l := w.entry, w.lane
	delete(rd.waiting, in.p.Call)
	l.open = slices.DeleteFunc(l.open, func(o *entry) bool { return o == x })
	if key := (exchangeKey{in.e.Capture, in.p.Call.Exchange}); rd.exchange[key] == x {
		delete(rd.exchange, key)
	}
	x.gap = x.gapSince(in.e.T)
	x.answer, x.done, x.responseN, x.failed = rd.frame(in.text), true, in.e.N, in.m.Kind == jsonrpc.KindError
	if in.e.SSE != nil {
		rd.inStream++
	}
	switch {
	case x.failed:
	case w.early:
		rd.t.lenient = true
	case x.modern:
		rd.spoken(x.revision, l)
	case x.method == mcp.MethodInitialize:
		if hello, err := era.ReadInitialize(in.m.Result); err == nil && len(hello.Versions) > 0 {
			l.session.revision, _ = mcp.ParseRevision(hello.Versions[0])
		}
	}
}

// spoke adds what the server sent by itself, or for a request, to an entry.
func (in *incoming) spoke() {
	s := step{n: in.e.N, method: string(in.m.Method), ask: in.m.Kind == jsonrpc.KindRequest}
	if s.ask {
		s.asked = string(in.m.ID)
	}
	owner, later := in.owner(&s)
	if owner == nil {
		in.rd.t.Notes.Orphans++
		return
	}
	if s.method == mcp.NotificationCancelled {
		if id, _, ok := (era.Cancellation{}).Target(in.m); ok {
			s.cancels = string(id)
		}
	}
	s.gap = owner.gapSince(in.e.T)
	s.text = in.rd.frame(in.text)
	in.rd.held += stepCost + len(s.method) + len(s.asked)
	list := &owner.steps
	if later {
		list = &owner.later
	}
	*list = append(*list, s)
	if s.ask && in.p.Call != nil {
		in.rd.asks[in.p.Call] = &owned{owner, later, len(*list) - 1}
	}
}

// owner returns the entry that a message of the server is part of, and whether it stands behind its answer. It completes the step.
func (in *incoming) owner(s *step) (x *entry, later bool) {
	l := in.l
	if s.method == mcp.NotificationProgress {
		s.of = l.tokens[string(era.Lookup(in.m.Params, mcp.MetaProgressToken))]
		if s.of == nil {
			return nil, false
		}
		if !s.of.done {
			return s.of, false
		}
	}
	if id := subscriptionOf(in.m.Params); id != nil {
		for _, x := range l.open {
			if x.isListen() && x.id.Equal(id) {
				return x, false
			}
		}
	}
	if x := in.rd.exchange[exchangeKey{in.e.Capture, in.e.Exchange}]; x != nil {
		return x, false
	}
	for _, x := range slices.Backward(l.open) {
		if !x.isListen() {
			s.aside = in.e.Exchange != 0
			return x, false
		}
	}
	if l.last != nil && l.last.isListen() && !l.last.done {
		return l.last, false
	}
	return l.last, true
}

// subscriptionOf returns the id of the subscription that a notification is of.
func subscriptionOf(params []byte) jsonrpc.ID {
	if !era.IsObject(params) {
		return nil
	}
	return jsonrpc.ID(era.Lookup(params, "_meta", mcp.MetaSubscriptionID))
}

// withoutMeta returns params without their metadata.
func withoutMeta(params []byte) []byte {
	if !era.IsObject(params) {
		return params
	}
	return era.Rewrite(nil, params, func(m *jsonwire.Members) []byte {
		if m.KeyIs("_meta") {
			return nil
		}
		return m.Value()
	}, nil)
}

// clip cuts a text that is longer than n bytes.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
