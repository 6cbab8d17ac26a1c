package check

import (
	"bytes"
	"cmp"
	"container/list"
	"errors"
	"hash/maphash"
	"iter"
	"maps"
	"slices"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/base/defaults"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc/traffic"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Options configure a Checker. A nil *Options means defaults.
type Options struct {
	// Revision is the revision to check all traffic against. With RevisionNone, the traffic
	// determines it.
	Revision mcp.Revision
	// Only lists the ids of the rules to check; empty means all. Disabled lists rules that are not
	// checked. "group/*" selects all rules whose ids begin with "group/". Unknown ids are ignored;
	// see [Lookup].
	Only, Disabled []string
	// Transport is the transport of captures that do not name it. Empty means unknown.
	Transport capture.Transport
	// Limits bound the memory.
	Limits Limits
}

// Limits bound the memory of a Checker. State evicted because of them causes no findings.
type Limits struct {
	// MaxSessions limits the sessions. Zero means 1024.
	MaxSessions int
	// MaxExchanges limits the open HTTP exchanges. Zero means 8192.
	MaxExchanges int
	// MaxPending limits the pending requests. Zero means 16384.
	MaxPending int
	// MaxParamBytes limits the stored params of pending requests, in bytes. Zero means 16 MiB.
	MaxParamBytes int
	// MaxTools limits the tools of one server. Zero means 4096.
	MaxTools int
	// MaxPerRule limits the findings of one rule; later ones are dropped. Zero means 1000.
	MaxPerRule int
}

// A Checker checks events against the rules, one at a time, also while the traffic is still going
// on. Options.Limits bound its memory. It must not be used by several goroutines at once.
type Checker struct {
	opts   Options
	limits Limits
	rules  *ruleSet
	seed   maphash.Seed

	// event, frame, message and view are those of the current event. frame is not used if the event
	// has one.
	event   capture.Event
	frame   traffic.Frame
	message message
	view    view
	// params, result and meta have the places of the members of the current message.
	params, result, meta index
	// calls holds the pending calls of all sessions, in the order of their requests.
	calls      list.List
	paramBytes int
	// callsEvicted is set once pending calls were evicted.
	callsEvicted    bool
	sessions        map[sessionKey]*session
	sharedHTTP      map[sessionKey]*sharedHTTP
	endpoints       map[endpointKey]*session
	captures        map[string]*captureState
	exchanges       map[exchangeKey]*exchange
	sessionCount    uint64
	ticks           uint64
	sessionsEvicted uint64
	capturesEvicted uint64
	closed          bool
}

// New returns a Checker. opts may be nil.
func New(opts *Options) *Checker {
	ck := &Checker{
		seed: maphash.MakeSeed(), sessions: map[sessionKey]*session{},
		sharedHTTP: map[sessionKey]*sharedHTTP{}, endpoints: map[endpointKey]*session{},
		captures: map[string]*captureState{}, exchanges: map[exchangeKey]*exchange{},
	}
	if opts != nil {
		ck.opts = *opts
	}
	ck.limits = ck.opts.Limits
	defaults.IfNotPositive(&ck.limits.MaxSessions, 1024)
	defaults.IfNotPositive(&ck.limits.MaxExchanges, 8192)
	defaults.IfNotPositive(&ck.limits.MaxPending, 16384)
	defaults.IfNotPositive(&ck.limits.MaxParamBytes, 16<<20)
	defaults.IfNotPositive(&ck.limits.MaxTools, 4096)
	defaults.IfNotPositive(&ck.limits.MaxPerRule, 1000)
	ck.rules = newRuleSet(&ck.opts)
	return ck
}

// Run checks the events of r up to its end; r may hold several concatenated captures. It yields
// findings as they are made. An error of r ends the iteration. opts may be nil.
func Run(r *capture.Reader, opts *Options) iter.Seq2[Finding, error] {
	return func(yield func(Finding, error) bool) {
		ck := New(opts)
		for e, err := range r.Events() {
			if err != nil {
				yield(Finding{}, err)
				return
			}
			for _, f := range ck.Add(r.Head(), e) {
				if !yield(f, nil) {
					return
				}
			}
		}
		for _, f := range ck.Close() {
			if !yield(f, nil) {
				return
			}
		}
	}
}

// Add checks the next event and returns its findings, which belong to the caller. head is the head
// of the event's capture, or nil if unknown. Add keeps neither head nor e.
func (ck *Checker) Add(head *capture.Head, e *capture.Event) []Finding {
	if ck.closed || e == nil {
		return nil
	}
	e = ck.prepare(head, e)
	r := ck.captureOf(e.Capture)
	r.lastN, r.lastT = max(r.lastN, e.N), max(r.lastT, int64(e.T))
	switch e.Kind {
	case capture.KindHead:
		if r.lastN == 0 {
			r.lostAt = 0 // it is seen from its beginning
		}
		return nil
	case capture.KindGap:
		ck.noteGap(r, e)
		return nil
	case capture.KindTail:
		if e.Tail != nil && e.Tail.Lost > 0 {
			r.lostAt = max(r.lostAt, e.N, 1)
		}
		return nil
	case capture.KindNote, capture.KindTranslate:
		return nil
	}
	if framed := e.Kind == capture.KindMessage || e.Kind == capture.KindInvalid; framed && e.Dir != capture.ToServer && e.Dir != capture.ToClient {
		// The direction is unknown, so the message is treated as lost.
		r.lostAt = max(r.lostAt, e.N, 1)
		return nil
	}
	v := &ck.view
	*v = view{checker: ck, e: e, exchange: ck.exchangeOf(e)}
	ck.handleEvent(v)
	return v.findings
}

// prepare returns a copy of the event with the capture's id and non-nil details for its kind. It
// also notes the capture's transport.
func (ck *Checker) prepare(head *capture.Head, e *capture.Event) *capture.Event {
	c := &ck.event
	*c = *e
	if c.Kind == capture.KindHead && c.Head != nil {
		head = c.Head
	}
	if c.Capture == "" && head != nil {
		c.Capture = head.ID
	}
	if head != nil {
		ck.captureOf(c.Capture).transport = head.Transport
	} else if ck.opts.Transport != "" {
		ck.captureOf(c.Capture).transport = ck.opts.Transport
	}
	if c.Kind == capture.KindRequest && c.Request == nil {
		c.Request = &capture.Request{}
	}
	if c.Kind == capture.KindResponse && c.Response == nil {
		c.Response = &capture.Response{}
	}
	if c.Kind == capture.KindSSE && c.SSE == nil {
		c.SSE = &capture.SSE{}
	}
	if c.Kind == capture.KindExit && c.Exit == nil {
		c.Exit = &capture.Exit{}
	}
	return c
}

// noteGap notes that events are missing.
func (ck *Checker) noteGap(r *captureState, e *capture.Event) {
	n := e.N
	if e.Gap != nil && e.Gap.Lost > 0 {
		n += e.Gap.Lost - 1
	}
	r.lostAt = max(r.lostAt, n, r.lastN, 1)
}

// Close returns the findings that depend on the end of the traffic. Later calls of Add return
// nothing.
func (ck *Checker) Close() []Finding {
	if ck.closed {
		return nil
	}
	ck.closed = true
	var all []Finding
	for _, s := range slices.SortedFunc(maps.Values(ck.sessions), func(a, b *session) int { return cmp.Compare(a.number, b.number) }) {
		e := &capture.Event{Capture: s.key.capture, N: s.lastN, Session: s.key.number}
		v := &view{checker: ck, e: e, session: s}
		v.rev, v.modern = ck.revisionOf(s)
		for _, r := range ck.rules.ends {
			ck.runRule(v, r, r.end)
		}
		all = append(all, v.findings...)
	}
	return all
}

// revisionOf returns the revision of a session as a whole, or RevisionNone if it is unknown, and
// whether it is modern.
func (ck *Checker) revisionOf(s *session) (mcp.Revision, bool) {
	switch {
	case ck.opts.Revision != mcp.RevisionNone:
		return ck.opts.Revision, era.Of(ck.opts.Revision).Modern
	case s.initializeResult != 0:
		return s.rev, false
	case s.modern:
		return mcp.LatestRevision, true
	}
	return mcp.RevisionNone, false
}

// runRule runs f for a rule, unless the rule has reached MaxPerRule.
func (ck *Checker) runRule(v *view, r *rule, f func(*view)) {
	if f == nil || r.findings >= ck.limits.MaxPerRule {
		return
	}
	before := len(v.findings)
	v.rule = r
	f(v)
	r.findings += len(v.findings) - before
}

// handleEvent runs the rules on an event and then records its effects.
//
// The flow of an event is:
//
//	Add              adds the capture's facts; handles head, gap and tail
//	└ handleEvent    notes request and response heads, splits by kind
//	  ├ resolve        finds the session
//	  ├ eventRevision  decides the revision to check against
//	  ├ runEventRules  runs rules and observers on an event without a message
//	  ├ rememberEvent  updates session, exchange and endpoints
//	  └ handleFrame    (KindMessage) treats invalid JSON like KindInvalid
//	    ├ handleBatch    splits an array into messages
//	    └ handleMessage  finds session, call and revision; runs the rules
//	      └ rememberMessage  updates the session, then runs the observers
func (ck *Checker) handleEvent(v *view) {
	e := v.e
	switch e.Kind {
	case capture.KindRequest:
		if v.exchange != nil {
			v.exchange.setRequest(e)
		}
	case capture.KindResponse:
		if v.exchange != nil {
			v.exchange.setResponse(e)
		}
	case capture.KindMessage:
		ck.handleFrame(v)
		return
	}
	if v.exchange != nil && v.exchange.session == nil && e.Kind == capture.KindRequest && v.exchange.method == "POST" && v.exchange.requestHeader("Mcp-Session-Id") == "" {
		// The body will determine the session.
		ck.runEventRules(v)
		return
	}
	v.session = ck.resolve(e, v.exchange, nil)
	v.session.lastN = e.N
	v.rev, v.modern = ck.eventRevision(v)
	ck.runEventRules(v)
	ck.rememberEvent(v)
}

// runEventRules runs the rules and the observers on an event without a message.
func (ck *Checker) runEventRules(v *view) {
	if v.session == nil {
		return
	}
	for _, r := range ck.rules.events[v.e.Kind] {
		if (r.dir == "" || r.dir == v.e.Dir) && r.appliesTo(v.rev) {
			ck.runRule(v, r, r.check)
		}
	}
	for i := range ck.rules.observers {
		o := &ck.rules.observers[i]
		if (o.dir == "" || o.dir == v.e.Dir) && slices.Contains(o.events, v.e.Kind) {
			o.observe(v)
		}
	}
}

// eventRevision returns the revision to check an event without a message against, and whether it is
// modern.
func (ck *Checker) eventRevision(v *view) (mcp.Revision, bool) {
	if v.exchange != nil && ck.opts.Revision == mcp.RevisionNone {
		if v.exchange.call != nil {
			return v.exchange.call.rev, v.exchange.call.modern
		}
		if r, ok := mcp.ParseRevision(v.exchange.requestHeader("MCP-Protocol-Version")); ok {
			return r, era.Of(r).Modern
		}
	}
	return ck.revisionOf(v.session)
}

// rememberEvent records the effects of an event without a message.
func (ck *Checker) rememberEvent(v *view) {
	e, s := v.e, v.session
	switch e.Kind {
	case capture.KindResponse:
		if id := v.exchange.responseHeader("Mcp-Session-Id"); id != "" && v.exchange.call != nil && v.exchange.call.method == mcp.MethodInitialize {
			ck.setSessionID(s, id)
		}
	case capture.KindSSE:
		if v.exchange != nil && e.SSE.Event == "endpoint" && v.exchange.method == "GET" {
			ck.addEndpoint(v.exchange, e)
		}
	case capture.KindEOF:
		s.ended[e.Dir] = e.N
		if e.Dir == capture.ToServer {
			s.clientClosedT = e.T
		}
	case capture.KindExit:
		s.exited = e.N
	case capture.KindStart:
		ck.restart(s)
	case capture.KindEnd:
		if v.exchange != nil {
			ck.endExchange(e, v.exchange)
		}
	case capture.KindInvalid, capture.KindBody:
		if e.Cut {
			s.lostAt = max(s.lostAt, e.N)
		}
	}
}

// restart handles a server that is started again on the same pipe. Pending calls are lost and
// request ids may be reused; capabilities and tools are kept.
func (ck *Checker) restart(s *session) {
	if s.exited != 0 || s.messages > 0 {
		s.lostAt, s.restarted = max(s.lostAt, s.exited), true
		for c := range s.allCalls() {
			if s.exited == 0 || c.n < s.exited {
				ck.removeCall(c)
			}
		}
	}
	s.exited = 0
	clear(s.ended)
}

// endExchange handles the end of an HTTP exchange. It drops a pending modern call, because its
// response cannot arrive elsewhere. It also drops a legacy call with an error status: that is the
// response, even if its body has no id or is not JSON.
func (ck *Checker) endExchange(e *capture.Event, x *exchange) {
	if c := x.call; c != nil && (c.modern || x.status >= 300) && !x.answered && x.session != nil {
		ck.removeCall(c)
	}
	delete(ck.exchanges, exchangeKey{e.Capture, e.Exchange})
}

// handleFrame handles the bytes of a message or batch.
func (ck *Checker) handleFrame(v *view) {
	e := v.e
	f := e.Frame.Or(&ck.frame, e.Data)
	if e.Cut || f.Err != nil {
		if err := jsonwire.Valid(e.Data, 0); e.Cut || err != nil {
			ck.handleInvalid(v, err)
			return
		}
	}
	data := trim(e.Data)
	root := "/msg"
	if slices.Contains(e.Redacted, "/raw") || slices.Contains(e.Redacted, "/b64") {
		// The redacted place is unknown.
		root = ""
	}
	v.root = root
	switch {
	case f.Batch:
		ck.handleBatch(v, data)
	case f.Err == nil:
		ck.message = messageOf(&f.Messages[0].Message, data)
		ck.handleMessage(v, &ck.message)
	default:
		ck.message = parseMessage(data)
		ck.handleMessage(v, &ck.message)
	}
}

// handleInvalid handles the bytes of a frame that is cut, or not JSON because of err.
func (ck *Checker) handleInvalid(v *view, err error) {
	e := v.e
	v.session = ck.resolve(e, v.exchange, nil)
	v.session.lastN = e.N
	if syntax, ok := errors.AsType[*jsonwire.SyntaxError](err); e.Cut || ok && syntax.Depth {
		v.session.lostAt = max(v.session.lostAt, e.N)
		return
	}
	bad := *e
	bad.Kind = capture.KindInvalid
	v.e = &bad
	v.rev, v.modern = ck.eventRevision(v)
	ck.runEventRules(v)
}

// handleBatch handles the messages of an array.
func (ck *Checker) handleBatch(v *view, data []byte) {
	root := v.root
	any := false
	for i, raw := range elements(data) {
		if i >= maxBatch {
			if v.session != nil {
				v.session.lostAt = max(v.session.lostAt, v.e.N)
			}
			break
		}
		any = true
		m := parseMessage(raw)
		m.batch, m.index = true, i
		if v.root = root; root != "" {
			v.root += pointer(i)
		}
		ck.handleMessage(v, &m)
	}
	if !any {
		m := message{kind: kindOther, raw: data, batch: true}
		ck.handleMessage(v, &m)
	}
}

const maxBatch = 1000

func trim(b []byte) []byte { return bytes.Trim(b, " \t\r\n") }

// handleMessage runs the rules on a message and then records its effects.
func (ck *Checker) handleMessage(v *view, m *message) {
	v.msg, v.call, v.shapeFindings, v.shapeChecked = m, nil, nil, false
	ck.params.reset()
	ck.result.reset()
	ck.meta.reset()
	v.invalidKnown = false
	v.session = ck.resolve(v.e, v.exchange, m)
	v.session.lastN = v.e.N
	v.session.messages++
	if m.is(kindResponse) && m.paired() {
		if v.call = v.session.callFor(v); v.call != nil && v.call.listed != v.session.tools.changes {
			// The definition may have changed during the call.
			v.call.tool = nil
		}
	}
	v.rev, v.modern = ck.revisionFor(v)
	if m.is(kindRequest) {
		v.call = newCall(v)
	}
	method := m.method
	if m.is(kindResponse) {
		method = ""
		if v.call != nil {
			method = v.call.method
		}
	}
	for _, r := range ck.rules.rulesFor(m.kind, method, v.e.Dir, v.rev) {
		ck.runRule(v, r, r.check)
	}
	ck.rememberMessage(v, method)
}

// elapsed returns how much of the recording came after the time t in it.
func (r *captureState) elapsed(t time.Duration) time.Duration { return time.Duration(r.lastT) - t }

// revisionFor returns the revision to check a message against, and whether it is modern.
//
// One frame proves nothing about the peer: a client request in modern form is checked as modern,
// but the server may not support that revision.
func (ck *Checker) revisionFor(v *view) (mcp.Revision, bool) {
	if r := ck.opts.Revision; r != mcp.RevisionNone {
		return r, era.Of(r).Modern
	}
	m, s := v.msg, v.session
	switch {
	case m.is(kindCall) && v.toServer():
		return ck.revisionOfClient(v)
	case m.is(kindResponse) && v.call != nil:
		if v.call.method == mcp.MethodInitialize && !v.call.modern {
			if r, ok := mcp.ParseRevision(jsonwire.Text(v.result("protocolVersion"))); ok {
				return r, era.Of(r).Modern
			}
		}
		return v.call.rev, v.call.modern
	case m.is(kindCall) && (v.meta(mcp.MetaSubscriptionID) != nil || m.method == mcp.NotificationAcknowledged):
		if s.initializeResult == 0 {
			return mcp.LatestRevision, true
		}
	case m.method == mcp.NotificationProgress:
		if p := progressOf(v); p != nil {
			return p.call.rev, p.call.modern
		}
	}
	if v.exchange != nil && v.exchange.call != nil && v.toClient() {
		return v.exchange.call.rev, v.exchange.call.modern
	}
	if s.initializeResult == 0 && s.initialize != nil {
		return s.initialize.rev, false
	}
	return ck.revisionOf(s)
}

// revisionOfClient is revisionFor for requests and notifications of the client.
func (ck *Checker) revisionOfClient(v *view) (mcp.Revision, bool) {
	m, s := v.msg, v.session
	header, hasHeader := mcp.RevisionNone, false
	if v.exchange != nil {
		header, hasHeader = mcp.ParseRevision(v.exchange.requestHeader("MCP-Protocol-Version"))
	}
	switch date := metaVersion(m); {
	case date != nil:
		if r, ok := mcp.ParseRevision(jsonwire.Text(date)); ok && era.Of(r).Modern {
			return r, true
		}
		// The metadata makes it modern, whatever the value.
		return mcp.LatestRevision, true
	case hasHeader && era.Of(header).Modern:
		return header, true
	case s.initializeResult != 0:
		return s.rev, false
	case m.method == mcp.MethodInitialize:
		if r, ok := mcp.ParseRevision(jsonwire.Text(v.param("protocolVersion"))); ok && !era.Of(r).Modern {
			return r, false
		}
		return mcp.LatestLegacyRevision, false
	case m.method == mcp.MethodDiscover || m.method == mcp.MethodSubscriptionsListen:
		return mcp.LatestRevision, true
	case s.initialize != nil:
		return s.initialize.rev, false
	case hasHeader:
		return header, false
	case s.modern && s.transport == transportStdio:
		return mcp.LatestRevision, true
	case v.exchange != nil && v.exchange.method == "POST" && v.exchange.requestHeader("MCP-Protocol-Version") == "":
		return mcp.Revision20250326, false
	}
	return mcp.RevisionNone, false
}

// rememberMessage records the effects of a message, after the rules have run.
func (ck *Checker) rememberMessage(v *view, method string) {
	m := v.msg
	switch {
	case m.is(kindRequest):
		ck.rememberRequest(v)
	case m.is(kindNotification):
		ck.rememberNotification(v)
	case m.is(kindResponse):
		ck.rememberResponse(v)
	}
	for i := range ck.rules.observers {
		o := &ck.rules.observers[i]
		if o.kinds&m.kind != 0 && (o.dir == "" || o.dir == v.e.Dir) && (len(o.methods) == 0 || slices.Contains(o.methods, method)) {
			o.observe(v)
		}
	}
	if m.is(kindResponse) && v.call != nil {
		ck.removeCall(v.call)
	}
	if v.exchange != nil && v.toServer() {
		v.exchange.posted++
	}
}

func (ck *Checker) rememberRequest(v *view) {
	m, s, c := v.msg, v.session, v.call
	if m.paired() {
		if s.certain || s.key.id != "" {
			s.ids[v.e.Dir].add(idKey(m.id), ck.seed)
		}
		ck.addCall(c)
	}
	if v.exchange != nil && v.toServer() && v.exchange.call == nil {
		v.exchange.call = c
	}
	if m.method == mcp.MethodInitialize && v.toServer() && !v.modern {
		s.initialize = c
		if s.initializeResult == 0 {
			s.clientCaps = cloneBounded(v.param("capabilities"))
		}
	}
	rememberToken(v)
}

func (ck *Checker) rememberNotification(v *view) {
	m, s := v.msg, v.session
	switch m.method {
	case mcp.NotificationInitialized:
		if v.toServer() && s.initialized == 0 {
			s.initialized = v.e.N
		}
	case mcp.NotificationToolsChanged:
		s.tools.reset()
	case mcp.NotificationCancelled:
		if c := s.pendingCall(v.e.Dir, v.param("requestId")); c != nil && c.canceled == 0 {
			c.canceled, c.canceledT = v.e.N, v.e.T
		}
	case mcp.NotificationProgress:
		rememberProgress(v)
	}
}

func (ck *Checker) rememberResponse(v *view) {
	m, s, c := v.msg, v.session, v.call
	if c == nil {
		return
	}
	s.answered[c.dir].add(idKey(c.id), v.e.N)
	if c.exchange != nil && c.exchange.call == c {
		c.exchange.answered = true
	}
	forgetToken(v, c)
	if c.dir != capture.ToServer {
		return
	}
	s.newestAnswered = max(s.newestAnswered, c.n)
	if c.modern && modernAnswer(v) {
		s.modern = true
	}
	if !m.is(kindResult) {
		return
	}
	switch c.method {
	case mcp.MethodInitialize:
		if !c.modern && isObject(m.result) {
			s.serverVersion = clip.Prefix(jsonwire.Text(v.result("protocolVersion")), maxShown)
			s.rev, _ = mcp.ParseRevision(s.serverVersion)
			s.initializeResult, s.serverCaps = v.e.N, cloneBounded(v.result("capabilities"))
			s.clientCaps = cloneBounded(c.param("capabilities"))
		}
	case mcp.MethodDiscover:
		if caps := v.result("capabilities"); isObject(caps) && s.initializeResult == 0 {
			s.serverCaps = cloneBounded(caps)
		}
	case mcp.MethodToolsList:
		// Otherwise it may be the previous list.
		if v.complete() && c.listed == s.tools.changes {
			s.tools.addPage(v.e.N, c.param("cursor"), m.result, ck.limits.MaxTools)
		}
	}
}

// modernAnswer reports whether a response to a modern request shows that the server supports the
// modern era.
func modernAnswer(v *view) bool {
	if v.msg.is(kindError) {
		return era.IsModernError(&jsonrpc.Error{Code: jsonrpc.Code(v.msg.code())})
	}
	for _, name := range []string{"resultType", "supportedVersions", "ttlMs", "cacheScope"} {
		if v.result(name) != nil {
			return true
		}
	}
	return v.meta(mcp.MetaServerInfo) != nil
}
