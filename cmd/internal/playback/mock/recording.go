package mock

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/messages"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonedit"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc/traffic"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

var (
	// ErrTooLarge is wrapped by the error for a capture that exceeds [ReadOptions.MaxBytes].
	ErrTooLarge = errors.New("mock: the capture is too large")
	// ErrNothing is returned for a capture without an answered request, or without a known
	// revision.
	ErrNothing = errors.New("mock: the capture has neither a complete handshake nor a request of a revision without one")
)

// DefaultMaxBytes is the default memory limit of a Recording.
const DefaultMaxBytes = 256 << 20

// ReadOptions are the options of [Read]. nil means defaults.
type ReadOptions struct {
	// MaxBytes limits the approximate memory of a Recording in bytes: the messages of the server,
	// and some for each request. Zero means [DefaultMaxBytes].
	MaxBytes int
}

// A Recording is the recorded traffic of a server. It is immutable.
type Recording struct {
	// Name is the server's name from the head of the capture.
	Name  string
	Notes Notes

	sessions []*session
	methods  map[methodKey]*method
	// modern has the revisions of answered modern requests, in ascending order.
	modern []mcp.Revision
	// legacy has the revisions negotiated in handshakes, in ascending order.
	legacy []mcp.Revision
	// streams reports that most responses came in event streams.
	streams bool
	// lenient reports that the server answered before the handshake was complete.
	lenient bool
}

// Notes are facts about a Recording that a user should know.
type Notes struct {
	// Requests counts requests that were answered or refused by HTTP.
	Requests int
	// Unanswered counts the others.
	Unanswered int
	// Redacted counts hidden values in the server's messages.
	Redacted int
	// Missing is the minimum number of events missing from the capture.
	Missing uint64
	// Truncated counts incomplete messages.
	Truncated int
	// Stray counts lines of the server that are not messages. They are not sent.
	Stray int
	// Unclaimed counts messages of the server that belong to no known request. They are not sent.
	Unclaimed int
}

// A methodKey is a method in one era, since the responses differ between eras.
type methodKey struct {
	modern bool
	name   string
}

// A method holds all requests of one method.
type method struct {
	all      []*exchange
	byParams map[lookupKey][]*exchange
	byTarget map[lookupKey][]*exchange
	// masks are the different masks of the requests.
	masks     []*mask
	maskTexts []string
}

// succeeded reports whether a request had a result.
func (m *method) succeeded() bool {
	return slices.ContainsFunc(m.all, func(e *exchange) bool { return e.hasResponse && !e.failed })
}

// A lookupKey indexes requests by their params outside a mask, or by their target.
type lookupKey struct {
	isInputRound bool
	mask         int
	params       sum
	target       string
}

// maxMasks limits the different masks of one method, since each needs another lookup. Requests with
// other masks match only exactly.
const maxMasks = 64

// Read reads a capture. opts may be nil. The error is that of events, [ErrNothing], or wraps
// [ErrTooLarge].
func Read(events iter.Seq2[*capture.Event, error], opts *ReadOptions) (*Recording, error) {
	limit := DefaultMaxBytes
	if opts != nil && opts.MaxBytes > 0 {
		limit = opts.MaxBytes
	}
	rd := newReader(limit)
	for e, err := range events {
		if err != nil {
			return nil, err
		}
		rd.add(e)
		if rd.heldBytes > limit {
			return nil, fmt.Errorf("%w: the server's part of it takes more than %d MiB of memory", ErrTooLarge, limit>>20)
		}
	}
	t := rd.finish()
	if t.Notes.Requests == 0 || len(t.Revisions()) == 0 {
		return nil, ErrNothing
	}
	return t, nil
}

// Revisions returns the revisions with answers in the capture, in ascending order.
func (r *Recording) Revisions() []mcp.Revision { return append(slices.Clone(r.legacy), r.modern...) }

// lacksDescription reports whether the method is the one with which a server describes itself, and
// was not recorded. A client may use another process for that request than for the others.
func (r *Recording) lacksDescription(modern bool, name string) bool {
	return r.methods[methodKey{modern, name}] == nil && (modern && name == mcp.MethodDiscover || !modern && name == mcp.MethodInitialize && len(r.legacy) > 0)
}

// description returns the result of that method. It declares the capabilities for the recorded
// methods.
func (r *Recording) description(modern bool) []byte {
	caps := map[string]map[string]any{}
	for key, m := range r.methods {
		need := era.ServerCapability(key.name, true)
		if strings.HasPrefix(key.name, "tasks/") && modern {
			need = []string{"extensions", mcp.ExtensionTasks}
		}
		if key.modern != modern || need == nil || !m.succeeded() {
			continue
		}
		if caps[need[0]] == nil {
			caps[need[0]] = map[string]any{}
		}
		if len(need) > 1 && need[0] == "extensions" {
			caps[need[0]][need[1]] = struct{}{}
		} else if len(need) > 1 {
			caps[need[0]][need[1]] = true
		}
	}
	if listen := r.methods[methodKey{true, mcp.MethodSubscriptionsListen}]; modern && listen != nil {
		for _, name := range []string{"tools", "prompts", "resources"} {
			if caps[name] != nil {
				caps[name]["listChanged"] = true
			}
		}
	}
	info := map[string]string{"name": cmp.Or(r.Name, "recorded"), "version": "0"}
	result := map[string]any{"capabilities": caps}
	if modern {
		result["supportedVersions"] = json.RawMessage(era.AppendRevisions(nil, r.modern))
		result["resultType"], result["ttlMs"], result["cacheScope"] = "complete", 0, "private"
		result["_meta"] = map[string]any{mcp.MetaServerInfo: info}
	} else {
		result["protocolVersion"], result["serverInfo"] = r.legacy[0].String(), info
	}
	text, err := json.Marshal(result)
	if err != nil {
		return []byte("{}") // cannot fail
	}
	return text
}

// put adds an exchange to the index.
func (r *Recording) put(x *exchange) {
	key := methodKey{x.modern, x.method}
	m := r.methods[key]
	if m == nil {
		m = &method{byParams: map[lookupKey][]*exchange{}, byTarget: map[lookupKey][]*exchange{}, masks: []*mask{nil}, maskTexts: []string{""}}
		r.methods[key] = m
	}
	m.all = append(m.all, x)
	i := slices.Index(m.maskTexts, x.maskText)
	if i < 0 && len(m.masks) <= maxMasks {
		i = len(m.masks)
		m.masks, m.maskTexts = append(m.masks, x.mask), append(m.maskTexts, x.maskText)
	}
	if i >= 0 {
		k := lookupKey{isInputRound: x.matchKey.isInputRound, mask: i, params: x.matchKey.params}
		m.byParams[k] = append(m.byParams[k], x)
	}
	k := lookupKey{isInputRound: x.matchKey.isInputRound, target: x.matchKey.target}
	m.byTarget[k] = append(m.byTarget[k], x)
}

// lookup returns the exchanges with the same params, in order. Hidden values match anything.
func (m *method) lookup(name string, params []byte, s matchKey) []*exchange {
	if list := m.byParams[lookupKey{isInputRound: s.isInputRound, params: s.params}]; len(list) > 0 {
		return list
	}
	for i, k := range m.masks[1:] {
		masked := matchKeyOf(name, params, k)
		if list := m.byParams[lookupKey{isInputRound: s.isInputRound, mask: i + 1, params: masked.params}]; len(list) > 0 {
			return list
		}
	}
	return nil
}

// rules returns the protocol rules for the requests of one client.
func (r *Recording) rules() *era.Session {
	return era.NewSession(era.Config{Revisions: r.Revisions(), Lenient: r.lenient, Custom: r.mayHave})
}

// mayHave reports whether to allow a method that the negotiated revision lacks: one that was
// recorded, or one of no revision.
func (r *Recording) mayHave(name []byte) bool {
	for _, modern := range []bool{false, true} {
		if m := r.methods[methodKey{modern, string(name)}]; m != nil && m.succeeded() {
			return modern || string(name) != mcp.MethodInitialize // no modern server has it
		}
	}
	for _, rev := range mcp.Revisions() {
		if era.Of(rev).HasMethod(name) {
			return false
		}
	}
	return true
}

// The approximate memory of an exchange and a step in addition to their texts, in bytes.
const (
	exchangeCost = 1024
	stepCost     = 256
)

// maxParams limits the stored params of a request, for messages, in bytes.
const maxParams = 2048

// A reader builds a Recording from events. ownerOf decides which messages belong together.
type reader struct {
	rec            *Recording
	limit          int
	heldBytes      int
	messages       *messages.Source
	texts          map[string]string
	sessions       map[sessionKey]*sessionReader
	order          []*exchange
	pendingCalls   map[*traffic.Call]*pending
	serverRequests map[*traffic.Call]ownedStep
	// httpExchanges has the HTTP exchanges with an unanswered request.
	httpExchanges map[httpExchangeKey]*exchange
	// inStream counts the responses in event streams.
	inStream int
}

// A sessionKey identifies an ordered conversation of a client and a server.
type sessionKey struct {
	capture string
	session uint64
}

type httpExchangeKey struct {
	capture string
	number  uint64
}

// A sessionReader is the state of one session or connection while it is read.
type sessionReader struct {
	session *session
	// pending has the client's pending requests, oldest first.
	pending []*exchange
	tokens  map[string]*exchange
	// initialized reports that the handshake is complete.
	initialized bool
	// last is the client's last request. Unsolicited messages follow it.
	last *exchange
}

// A pending request has no response yet.
type pending struct {
	exchange *exchange
	session  *sessionReader
	// early reports that the request came before the handshake was complete.
	early bool
}

// An ownedStep is an input request of the server in its exchange.
type ownedStep struct {
	exchange *exchange
	step     *step
}

func newReader(limit int) *reader {
	return &reader{
		rec: &Recording{methods: map[methodKey]*method{}}, limit: limit, messages: messages.New(0), texts: map[string]string{},
		sessions: map[sessionKey]*sessionReader{}, pendingCalls: map[*traffic.Call]*pending{}, serverRequests: map[*traffic.Call]ownedStep{}, httpExchanges: map[httpExchangeKey]*exchange{},
	}
}

func (rd *reader) sessionFor(e *capture.Event) *sessionReader {
	key := sessionKey{e.Capture, e.Session}
	l := rd.sessions[key]
	if l == nil {
		rd.heldBytes += exchangeCost
		s := &session{number: e.Session}
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

// message handles an event with a message or a batch.
func (rd *reader) message(e *capture.Event) {
	l := rd.sessionFor(e)
	if e.Exchange != 0 {
		l.session.http = true
	}
	if e.Dir == capture.ToClient {
		rd.rec.Notes.Redacted += len(e.Redacted) + e.RedactedMore
	}
	f := rd.messages.Add(e)
	if len(f.Messages) == 0 {
		return
	}
	texts := wireclient.Split(e.Data)
	for i := range f.Messages {
		m := &f.Messages[i]
		in := &incoming{reader: rd, session: l, event: e, batch: f.Batch, m: m, text: texts[m.Index]}
		if e.Dir == capture.ToServer {
			in.fromClient()
		} else {
			in.fromServer()
		}
	}
}

// frame returns the frame of a message and counts its memory.
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

// finish returns the Recording.
func (rd *reader) finish() *Recording {
	t := rd.rec
	answered := 0
	for _, e := range rd.order {
		t.put(e)
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
	for key, m := range t.methods { // without a handshake, the capture began later
		if len(t.legacy)+len(t.modern) == 0 && !key.modern && m.succeeded() && t.methods[methodKey{false, mcp.MethodInitialize}] == nil {
			t.legacy = []mcp.Revision{mcp.LatestLegacyRevision}
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

// dropUnanswered removes unanswered requests from the lists with answered ones: a repeated request
// was answered in the end.
func (m *method) dropUnanswered() {
	for _, lists := range []map[lookupKey][]*exchange{m.byParams, m.byTarget} {
		for key, list := range lists {
			if slices.ContainsFunc(list, func(e *exchange) bool { return e.hasResponse }) {
				lists[key] = slices.DeleteFunc(list, func(e *exchange) bool { return !e.hasResponse })
			}
		}
	}
}

// delaySince returns the time from the previous event of the exchange to one at t.
func (x *exchange) delaySince(t time.Duration) time.Duration {
	gap := max(t-x.lastAt, 0)
	x.lastAt = max(t, x.lastAt)
	return gap
}

// isSubscription reports whether the request lasts as long as the client listens.
func (x *exchange) isSubscription() bool { return x.method == mcp.MethodSubscriptionsListen }

// clientOf returns the name of the client that sent initialize.
func clientOf(params []byte) string { return era.LookupString(params, "clientInfo", "name") }

// An incoming is one recorded message while it is read.
type incoming struct {
	reader  *reader
	session *sessionReader
	event   *capture.Event
	// batch reports that the message is one of a batch.
	batch bool
	m     *traffic.Message
	text  []byte
}

func (in *incoming) fromClient() {
	switch {
	case in.m.Kind == jsonrpc.KindRequest:
		in.request()
	case in.m.Kind == jsonrpc.KindNotification && string(in.m.Method) == mcp.NotificationInitialized:
		if h := in.session.session.initialize; h != nil {
			h.lastAt = in.event.T // unsolicited messages count from here
		}
		in.session.initialized = true
	case in.m.Kind == jsonrpc.KindNotification && string(in.m.Method) == mcp.NotificationCancelled:
		if id, _, ok := (era.Cancellation{}).Target(&in.m.Message); ok {
			for _, x := range in.session.pending {
				x.cancelled = x.cancelled || x.id.Equal(id)
			}
		}
	case in.m.Call != nil: // a response to the server
		if o, ok := in.reader.serverRequests[in.m.Call]; ok {
			o.step.responded = true
			o.exchange.lastAt = max(o.exchange.lastAt, in.event.T)
			delete(in.reader.serverRequests, in.m.Call)
		}
	}
}

// request begins an exchange.
func (in *incoming) request() {
	rd, l, m := in.reader, in.session, in.m
	x := &exchange{n: in.event.N, method: string(m.Method), modern: isModern(m.Params), revision: revisionOf(m.Params), lastAt: in.event.T, id: m.ID.Clone()}
	if !x.modern || in.event.Exchange == 0 {
		x.session = l.session
	}
	x.mask, x.maskText = maskOf(in.event.Redacted, in.pointer()+"/params")
	x.matchKey = matchKeyOf(x.method, m.Params, x.mask)
	if len(m.Params) < rd.limit {
		x.params = clip.String(paramsText(m.Params), maxParams)
	}
	rd.heldBytes += exchangeCost + len(x.method) + len(x.matchKey.target) + len(x.params) + 2*len(x.maskText)
	rd.order = append(rd.order, x)
	if x.method == mcp.MethodInitialize {
		l.session.client = clip.String(clientOf(m.Params), 256)
		l.session.initialize = x
	}
	l.last = x
	if in.m.Call == nil {
		return // its response cannot be identified
	}
	l.pending = append(l.pending, x)
	early := !x.modern && !l.initialized && x.method != mcp.MethodInitialize && x.method != mcp.MethodPing
	rd.pendingCalls[in.m.Call] = &pending{x, l, early}
	if in.event.Exchange != 0 {
		rd.httpExchanges[httpExchangeKey{in.event.Capture, in.event.Exchange}] = x
	}
	if token := tokenOf(&m.Message); token != nil && len(token) < maxParams {
		l.tokens[string(token)] = x
	}
}

// pointer returns a JSON pointer to the message in the line of its event.
func (in *incoming) pointer() string {
	if in.batch {
		return "/msg/" + strconv.Itoa(in.m.Index)
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

// addResponse completes an exchange.
func (in *incoming) addResponse() {
	rd := in.reader
	w := rd.pendingCalls[in.m.Call]
	if in.m.Call == nil || w == nil {
		rd.rec.Notes.Unclaimed++
		return
	}
	x, l := w.exchange, w.session
	delete(rd.pendingCalls, in.m.Call)
	l.pending = slices.DeleteFunc(l.pending, func(o *exchange) bool { return o == x })
	if key := (httpExchangeKey{in.event.Capture, in.m.Call.Exchange}); rd.httpExchanges[key] == x {
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
		l.session.modern = true
		if x.revision.Modern() && !slices.Contains(rd.rec.modern, x.revision) {
			rd.rec.modern = append(rd.rec.modern, x.revision)
		}
	case x.method == mcp.MethodInitialize:
		if initialize, err := era.ReadInitialize(in.m.Result); err == nil && len(initialize.Versions) > 0 {
			l.session.revision, _ = mcp.ParseRevision(initialize.Versions[0])
		}
	}
}

// addServerMessage adds a message other than a response to an exchange.
func (in *incoming) addServerMessage() {
	s := &step{n: in.event.N, method: string(in.m.Method), isRequest: in.m.Kind == jsonrpc.KindRequest}
	if s.isRequest {
		s.requestID = string(in.m.ID)
	}
	owner, later := in.ownerOf(s)
	if owner == nil {
		in.reader.rec.Notes.Unclaimed++
		return
	}
	if s.method == mcp.NotificationCancelled {
		if id, _, ok := (era.Cancellation{}).Target(&in.m.Message); ok {
			s.cancels = string(id)
		}
	}
	s.delay = owner.delaySince(in.event.T)
	s.text = in.reader.frame(in.text)
	in.reader.heldBytes += stepCost + len(s.method) + len(s.requestID)
	if later {
		owner.trailing = append(owner.trailing, s)
	} else {
		owner.steps = append(owner.steps, s)
	}
	if s.isRequest && in.m.Call != nil {
		in.reader.serverRequests[in.m.Call] = ownedStep{owner, s}
	}
}

// ownerOf returns the exchange that a message of the server belongs to, and whether the message
// came after its response. It completes the step.
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

// subscriptionOf returns the id of a notification's subscription.
func subscriptionOf(params []byte) jsonrpc.ID {
	return era.Lookup(params, "_meta", mcp.MetaSubscriptionID)
}

// withoutMeta returns params without their metadata.
func withoutMeta(params []byte) []byte {
	if !era.IsObject(params) {
		return params
	}
	return era.Rewrite(nil, params, era.Without("_meta"), nil)
}

// An exchange is a recorded request with all messages that belong to it.
type exchange struct {
	// n and responseN are the numbers of its events.
	n, responseN uint64
	// session is nil for an exchange without a session.
	session *session
	modern  bool
	// revision is from the request's metadata. Legacy requests have none.
	revision mcp.Revision
	method   string
	matchKey matchKey
	mask     *mask

	// steps precede the response.
	steps       []*step
	response    frame
	hasResponse bool
	// failed reports that the response is an error.
	failed bool
	// delay is the time before the response.
	delay time.Duration
	// trailing has the unsolicited messages before the client's next request.
	trailing []*step

	// params is the canonical text, shortened, for messages.
	params string
	// status is that of an HTTP refusal without a response.
	status int
	// cancelled reports that the client canceled the request.
	cancelled bool

	// The reader uses these fields.
	// maskText is equal for equal masks.
	maskText string
	// lastAt is the time of the previous event.
	lastAt time.Duration
	id     jsonrpc.ID
}

// A step is a message of the server other than a response.
type step struct {
	n uint64
	// delay is the time since the previous message.
	delay     time.Duration
	text      frame
	method    string
	isRequest bool
	// requestID is the recorded id.
	requestID string
	// responded reports that the client answered.
	responded bool
	// outOfBand marks a message that belongs to no request but came while one was pending.
	outOfBand bool
	// progressOf is the exchange whose progress the step reports.
	progressOf *exchange
	// cancels is the id of the input request that the step cancels.
	cancels string
}

// A session is a recorded session.
type session struct {
	number uint64
	http   bool
	// client is the name of the client.
	client     string
	revision   mcp.Revision
	initialize *exchange
	// modern reports answered requests of a modern revision.
	modern bool
}

// A matchKey holds the parts of a request that must match.
type matchKey struct {
	target string
	// params excludes _meta and the additional members of an input round.
	params sum
	// meta is _meta without the members that differ from call to call.
	meta         sum
	isInputRound bool
	state        sum
	inputs       sum
}

const (
	inputResponses = "inputResponses"
	requestState   = "requestState"
)

// matchKeyOf returns the match key of a request. params is valid JSON, or nil.
func matchKeyOf(method string, params []byte, m *mask) matchKey {
	if !era.IsObject(params) {
		return matchKey{params: sumOf(params, m)}
	}
	var meta, inputs, state []byte
	for o := jsonwire.ObjectMembers(params); o.Next(); {
		switch {
		case o.KeyIs("_meta"):
			meta = o.Value()
		case o.KeyIs(inputResponses):
			inputs = o.Value()
		case o.KeyIs(requestState):
			state = o.Value()
		}
	}
	s := matchKey{target: targetOf(method, params)}
	if era.AllowsInput(method) {
		s.inputs, s.state = sumOf(inputs, m.member(inputResponses)), sumOf(state, m.member(requestState))
		s.isInputRound = inputs != nil || state != nil
	}
	left := []string{"_meta"}
	if s.isInputRound {
		left = append(left, inputResponses, requestState)
	}
	rest := era.Rewrite(nil, params, era.Without(left...), nil)
	if len(rest) > len("{}") {
		s.params = sumOf(rest, m)
	}
	s.meta = metaSum(meta, m.member("_meta"))
	return s
}

// withoutVolatile leaves out the members of _meta that differ between calls or clients.
var withoutVolatile = era.Without(mcp.MetaProgressToken, mcp.MetaProtocolVersion, mcp.MetaClientCapabilities, mcp.MetaClientInfo, mcp.MetaLogLevel,
	"traceparent", "tracestate", "baggage")

func metaSum(meta []byte, m *mask) sum {
	if !era.IsObject(meta) {
		return sum{}
	}
	rest := era.Rewrite(nil, meta, withoutVolatile, nil)
	if len(rest) <= len("{}") {
		return sum{}
	}
	return sumOf(rest, m)
}

// targetOf returns the tool, prompt, resource or task that a request concerns.
func targetOf(method string, params []byte) string {
	if name := era.NameParam(method); name != "" {
		return era.LookupString(params, name)
	}
	switch method {
	case mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe:
		return era.LookupString(params, "uri")
	case mcp.MethodTasksGet, mcp.MethodTasksResult, mcp.MethodTasksCancel, mcp.MethodTasksUpdate:
		return era.LookupString(params, "taskId")
	case mcp.MethodComplete:
		if name := era.LookupString(params, "ref", "name"); name != "" {
			return name
		}
		return era.LookupString(params, "ref", "uri")
	}
	return ""
}

// isModern reports whether a request carries its revision.
func isModern(params []byte) bool {
	return era.Lookup(params, "_meta", mcp.MetaProtocolVersion) != nil
}

// revisionOf returns the revision that a request carries.
func revisionOf(params []byte) mcp.Revision {
	r, _ := mcp.ParseRevision(era.LookupString(params, "_meta", mcp.MetaProtocolVersion))
	return r
}

// tokenOf returns the progress token of a request, or nil.
func tokenOf(m *jsonrpc.Message) []byte {
	return era.Lookup(m.Params, "_meta", mcp.MetaProgressToken)
}

// A frame is the text of a recorded message, on one line, without its id.
type frame struct {
	head, tail string
	// hasID reports that an id is between head and tail.
	hasID bool
}

// frameOf removes the id from a valid message.
func frameOf(text []byte) frame {
	text = jsonwire.OneLine(text)
	if at := jsonedit.Locate(text, "id"); at.Found() {
		return frame{string(text[:at.Start]), string(text[at.End:]), true}
	}
	return frame{head: string(text)}
}

// append appends the message, with id if it has one.
func (f *frame) append(dst []byte, id jsonrpc.ID) []byte {
	dst = append(dst, f.head...)
	if f.hasID {
		dst = append(dst, id...)
		dst = append(dst, f.tail...)
	}
	return dst
}

// withMember returns a message with another value at a path, if the path exists.
func withMember(text, value []byte, path ...string) []byte {
	if at := jsonedit.Locate(text, path...); at.Found() {
		return jsonedit.Splice(text, at, value)
	}
	return text
}

// withSubscription returns a message of a subscription with another subscription id.
func withSubscription(text []byte, id jsonrpc.ID) []byte {
	text = withMember(text, id, "params", "_meta", mcp.MetaSubscriptionID)
	return withMember(text, id, "result", "_meta", mcp.MetaSubscriptionID)
}
