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
	reader  *reader
	session *sessionReader
	event   *capture.Event
	p       *capture.Message
	m       *jsonrpc.Message
	text    []byte
}

func (in *incoming) fromClient() {
	switch {
	case in.m.Kind == jsonrpc.KindRequest:
		in.request()
	case in.m.Kind == jsonrpc.KindNotification && string(in.m.Method) == mcp.NotificationInitialized:
		if h := in.session.session.initialize; h != nil {
			h.lastAt = in.event.T // what comes by itself, comes from here on
		}
		in.session.initialized = true
	case in.m.Kind == jsonrpc.KindNotification && string(in.m.Method) == mcp.NotificationCancelled:
		if id, _, ok := (era.Cancellation{}).Target(in.m); ok {
			for _, x := range in.session.pending {
				x.cancelled = x.cancelled || x.id.Equal(id)
			}
		}
	case in.p.Call != nil: // an answer to the server
		if o := in.reader.serverRequests[in.p.Call]; o != nil {
			o.step().responded = true
			o.exchange.lastAt = max(o.exchange.lastAt, in.event.T)
			delete(in.reader.serverRequests, in.p.Call)
		}
	}
}

// request begins an entry.
func (in *incoming) request() {
	rd, l, m := in.reader, in.session, in.m
	x := &exchange{n: in.event.N, method: string(m.Method), modern: isModern(m.Params), revision: revisionOf(m.Params), lastAt: in.event.T, id: m.ID.Clone()}
	if !x.modern || in.event.Exchange == 0 {
		x.session = l.session
	}
	var covers string
	x.mask, covers = maskOf(in.event.Redacted, in.pointer()+"/params")
	if covers != "" {
		rd.maskTexts[x] = covers
	}
	x.matchKey = matchKeyOf(x.method, m.Params, x.mask)
	if len(m.Params) < rd.limit {
		x.params = clip(paramsText(m.Params), maxParams)
	}
	rd.heldBytes += exchangeCost + len(x.method) + len(x.matchKey.target) + len(x.params) + 2*len(covers)
	rd.order = append(rd.order, x)
	if x.method == mcp.MethodInitialize {
		l.session.client = clip(clientOf(m.Params), 256)
		l.session.initialize = x
	}
	l.last = x
	if in.p.Call == nil {
		return // nobody can tell its answer
	}
	l.pending = append(l.pending, x)
	early := !x.modern && !l.initialized && x.method != mcp.MethodInitialize && x.method != mcp.MethodPing
	rd.pendingCalls[in.p.Call] = &pending{x, l, early}
	if in.event.Exchange != 0 {
		rd.httpExchanges[httpExchangeKey{in.event.Capture, in.event.Exchange}] = x
	}
	if token := tokenOf(m); token != nil && len(token) < maxParams {
		l.tokens[string(token)] = x
	}
}

// pointer is where the message is in the line of its event, as a JSON pointer.
func (in *incoming) pointer() string {
	if in.p.Batch {
		return "/msg/" + strconv.Itoa(in.p.Index)
	}
	return "/msg"
}

func (in *incoming) fromServer() {
	switch in.m.Kind {
	case jsonrpc.KindResponse, jsonrpc.KindError:
		in.addResponse()
	case jsonrpc.KindRequest, jsonrpc.KindNotification:
		in.addServerMessage()
	}
}

// addResponse ends an entry.
func (in *incoming) addResponse() {
	rd := in.reader
	w := rd.pendingCalls[in.p.Call]
	if in.p.Call == nil || w == nil {
		rd.rec.Notes.Unclaimed++
		return
	}
	x, l := w.exchange, w.session
	delete(rd.pendingCalls, in.p.Call)
	l.pending = slices.DeleteFunc(l.pending, func(o *exchange) bool { return o == x })
	if key := (httpExchangeKey{in.event.Capture, in.p.Call.Exchange}); rd.httpExchanges[key] == x {
		delete(rd.httpExchanges, key)
	}
	x.delay = x.delaySince(in.event.T)
	x.response, x.hasResponse, x.responseN, x.failed = rd.frame(in.text), true, in.event.N, in.m.Kind == jsonrpc.KindError
	if in.event.SSE != nil {
		rd.inStream++
	}
	switch {
	case x.failed:
	case w.early:
		rd.rec.lenient = true
	case x.modern:
		rd.noteRevision(x.revision, l)
	case x.method == mcp.MethodInitialize:
		if hello, err := era.ReadInitialize(in.m.Result); err == nil && len(hello.Versions) > 0 {
			l.session.revision, _ = mcp.ParseRevision(hello.Versions[0])
		}
	}
}

// addServerMessage adds what the server sent by itself, or for a request, to an entry.
func (in *incoming) addServerMessage() {
	s := step{n: in.event.N, method: string(in.m.Method), isRequest: in.m.Kind == jsonrpc.KindRequest}
	if s.isRequest {
		s.requestID = string(in.m.ID)
	}
	owner, later := in.ownerOf(&s)
	if owner == nil {
		in.reader.rec.Notes.Unclaimed++
		return
	}
	if s.method == mcp.NotificationCancelled {
		if id, _, ok := (era.Cancellation{}).Target(in.m); ok {
			s.cancels = string(id)
		}
	}
	s.delay = owner.delaySince(in.event.T)
	s.text = in.reader.frame(in.text)
	in.reader.heldBytes += stepCost + len(s.method) + len(s.requestID)
	list := &owner.steps
	if later {
		list = &owner.trailing
	}
	*list = append(*list, s)
	if s.isRequest && in.p.Call != nil {
		in.reader.serverRequests[in.p.Call] = &ownedStep{owner, later, len(*list) - 1}
	}
}

// ownerOf returns the entry that a message of the server is part of, and whether it stands behind its answer. It completes the step.
func (in *incoming) ownerOf(s *step) (x *exchange, later bool) {
	l := in.session
	if s.method == mcp.NotificationProgress {
		s.progressOf = l.tokens[string(era.Lookup(in.m.Params, mcp.MetaProgressToken))]
		if s.progressOf == nil {
			return nil, false
		}
		if !s.progressOf.hasResponse {
			return s.progressOf, false
		}
	}
	if id := subscriptionOf(in.m.Params); id != nil {
		for _, x := range l.pending {
			if x.isSubscription() && x.id.Equal(id) {
				return x, false
			}
		}
	}
	if x := in.reader.httpExchanges[httpExchangeKey{in.event.Capture, in.event.Exchange}]; x != nil {
		return x, false
	}
	for _, x := range slices.Backward(l.pending) {
		if !x.isSubscription() {
			s.outOfBand = in.event.Exchange != 0
			return x, false
		}
	}
	if l.last != nil && l.last.isSubscription() && !l.last.hasResponse {
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
