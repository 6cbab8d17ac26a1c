package replay

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/cmd/internal/trace/messages"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc/rpcbatch"
	"mcpwire/internal/rpc/traffic"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Recording is the client's side of a session, with the responses it got.
type Recording struct {
	// Capture is the id of the capture.
	Capture string
	// Session is the number of the session in the capture. Modern requests over HTTP have no
	// session; for them it is that of the first request.
	Session uint64
	// Name is the server's name in the capture.
	Name      string
	Transport capture.Transport
	// Modern reports a session without a handshake.
	Modern bool
	// Revision is the negotiated revision, or that of modern requests. Empty means unknown.
	Revision string
	// Redact is the redaction of the capture.
	Redact capture.RedactionMode
	// First is the number of the event with the first message.
	First uint64
	// Synthetic reports that the recording lacks the handshake, and that Run creates one.
	Synthetic bool

	frames         []*frame
	calls          []*call
	serverRequests []*serverRequest
	// unownedMethods are the methods of notifications without a request, each once.
	unownedMethods []string
	// standingStream reports that the client had a standing stream, or a transport that needs none.
	standingStream bool
	params         map[string][]mcp.HeaderParam
}

// Requests returns the number of requests of the client.
func (r *Recording) Requests() int { return len(r.calls) }

// Has reports whether choose selects a request, see [Options.Select]. A nil choose selects all.
func (r *Recording) Has(choose func(captureID string, n uint64) bool) bool {
	return choose == nil || slices.ContainsFunc(r.calls, func(c *call) bool { return choose(r.Capture, c.n) })
}

// A frame is a message or batch of the client.
type frame struct {
	n uint64
	t time.Duration
	// since is the time of the last earlier event that the frame may have waited for.
	since    time.Duration
	batch    bool
	elements []element
	// after has the calls that were answered since the previous frame.
	after []*call
	// reply is the server's request that the frame answers, or nil.
	reply *serverRequest
	// cut reports that the capture has only the beginning.
	cut bool
	// aborted is the call whose HTTP request the client ended. Nothing is sent then.
	aborted *call
	// notified is, for a cancellation, the number of earlier notifications for its request.
	notified int
}

// An element is a message, alone or in a batch.
type element struct {
	raw []byte
	// m aliases raw.
	m jsonrpc.Message
	// redacted are the hidden places, as pointers into raw.
	redacted []string
	// moreRedacted counts hidden places beyond redacted.
	moreRedacted int
	// call is the call that the message begins, or nil.
	call *call
}

// result returns the result in a response. It is nil for an error, and for a nil response.
func (e *element) result() []byte {
	if e == nil {
		return nil
	}
	return e.m.Result
}

// A call is a request of the client.
type call struct {
	index int
	n     uint64
	t     time.Duration
	// id is the key of the request's id, see jsonrpc.ID.Key.
	id     string
	method string
	target string
	// token is the progress token as JSON text.
	token    string
	exchange uint64

	// response is nil if none came.
	response   *element
	responseT  time.Duration
	responseAt time.Time
	// status is that of an HTTP response without a message.
	status        int
	notifications notificationLog

	// inputRound is the call whose input requests this one answers; page is the call whose result
	// has this one's cursor.
	inputRound, page *call
}

// A serverRequest is a request of the server.
type serverRequest struct {
	index   int
	n       uint64
	t       time.Duration
	at      time.Time
	method  string
	request element
	// reply is nil if the client did not answer.
	reply  *element
	replyT time.Duration
	// pendingCalls are the calls without a response at that time.
	pendingCalls []*call
}

// clientClosed is the end of an exchange that the client ended early.
const clientClosed = "client closed"

// maxExchanges limits the remembered pending HTTP exchanges.
const maxExchanges = 4096

// Read returns the recordings of the sessions in captures, in the order in which they began. Modern
// requests over HTTP have no session; together they are one recording. opts may be nil.
func Read(ctx context.Context, events iter.Seq2[*capture.Event, error], opts *ReadOptions) ([]*Recording, error) {
	r := &reader{opts: opts.withDefaults(), byName: map[string]*builder{}}
	for e, err := range events {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("replay: read the recording: %w", err)
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
	opts     ReadOptions
	head     *capture.Head
	messages *messages.Source
	// started reports that a process was started.
	started bool
	bytes   int64

	// bySession has the builders of the current capture by session.
	bySession map[uint64]*builder
	// byName has the builders by the name of a group.
	byName map[string]*builder
	// httpExchanges has the exchanges of the current capture.
	httpExchanges map[uint64]*httpExchange
	all           []*Recording
	builders      []*builder
}

// An httpExchange is an HTTP exchange.
type httpExchange struct {
	method, version string
	status          int
	calls           []*call
}

func (r *reader) add(e *capture.Event) error {
	if e.Kind == capture.KindHead || r.messages == nil {
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
	r.messages = messages.New(0)
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
		if strings.EqualFold(h.Name, wireclient.HeaderVersion) {
			x.version = strings.TrimSpace(h.Value)
		}
	}
	r.httpExchanges[e.Exchange] = x
}

// exchangeEnded handles the end of an exchange: its status applies to the calls without a response.
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
	if r.bytes += int64(len(e.Data)) + 256; r.bytes > r.opts.MaxBytes {
		return fmt.Errorf("replay: the recording has %w: more than %d bytes of messages", ErrTooLarge, r.opts.MaxBytes)
	}
	f := r.messages.Add(e)
	if f == nil {
		f = new(traffic.Frame)
	}
	if e.Dir == capture.ToServer {
		r.builderFor(e).addClientFrame(e, f, r.httpExchanges[e.Exchange])
	} else if g := r.bySession[e.Session]; g != nil {
		g.addServerFrame(e, f)
	}
	return nil
}

// builderFor returns the builder for a message of a client.
func (r *reader) builderFor(e *capture.Event) *builder {
	if g := r.bySession[e.Session]; g != nil {
		return g
	}
	version := resend.RevisionOf(e.Data)
	if x := r.httpExchanges[e.Exchange]; x != nil && version == "" {
		if rev, ok := mcp.ParseRevision(x.version); ok && rev.Modern() {
			version = x.version
		}
	}
	name := strconv.FormatUint(e.Session, 10)
	web := e.Exchange > 0 || !r.started && r.head.Transport == capture.TransportHTTP
	if web && version != "" {
		name = "modern" // connections have no meaning
	}
	g := r.byName[name]
	if g == nil {
		rec := &Recording{
			Capture: cmp.Or(r.head.ID, e.Capture), Session: e.Session, Name: r.head.Name, Redact: r.head.Redact, First: e.N,
			Transport: capture.TransportStdio, Modern: version != "", Revision: version, standingStream: !web,
		}
		if web {
			rec.Transport = capture.TransportHTTP
		}
		g = &builder{rec: rec, calls: map[*traffic.Call]*call{}, serverRequests: map[*traffic.Call]*serverRequest{}}
		r.byName[name] = g
		r.builders = append(r.builders, g)
	}
	r.bySession[e.Session] = g
	return g
}

// finish completes the recordings of a capture.
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
	rec *Recording
	// calls are the calls without a response.
	calls          map[*traffic.Call]*call
	serverRequests map[*traffic.Call]*serverRequest
	tracker        tracker
	// after has the calls answered since the last frame.
	after []*call
	last  time.Duration
}

// addClientFrame adds a frame of the client.
func (b *builder) addClientFrame(e *capture.Event, in *traffic.Frame, x *httpExchange) {
	f := &frame{n: e.N, t: e.T, since: b.last, after: b.after, cut: e.Cut, batch: rpcbatch.Is(e.Data)}
	b.after, b.last = nil, e.T
	data := bytes.Clone(e.Data)
	if len(in.Messages) == 0 {
		f.elements = []element{{raw: data}}
		b.rec.frames = append(b.rec.frames, f)
		return
	}
	raws := wireclient.Split(data)
	for i := range in.Messages {
		p := &in.Messages[i]
		el := newElement(raws[p.Index], e, in.Batch, p)
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

// newElement returns the element of a message. raw is a copy of its text, which the element keeps.
func newElement(raw []byte, e *capture.Event, batch bool, p *traffic.Message) element {
	prefix := "/msg"
	if batch {
		prefix += "/" + strconv.Itoa(p.Index)
	}
	el := element{raw: raw, redacted: resend.RedactedBelow(e, prefix), moreRedacted: e.RedactedMore}
	_ = jsonrpc.Parse(raw, &el.m, 0) // p aliases the event
	return el
}

// addCall adds a request.
func (b *builder) addCall(e *capture.Event, el *element) *call {
	m := &el.m
	c := &call{index: len(b.rec.calls), n: e.N, t: e.T, id: m.ID.Key(), method: string(m.Method), exchange: e.Exchange, target: targetOf(m)}
	meta, _ := m.Param("_meta")
	c.token = string(jsonwire.Lookup(meta, mcp.MetaProgressToken))
	c.notifications = notificationLog{exchange: e.Exchange, token: c.token, isSubscription: c.method == mcp.MethodSubscriptionsListen}
	b.tracker.add(&c.notifications)
	b.rec.calls = append(b.rec.calls, c)
	return c
}

// targetOf returns the tool, prompt, resource or task of a request.
func targetOf(m *jsonrpc.Message) string {
	for _, name := range []string{"name", "uri", "taskId"} {
		if v, _ := m.Param(name); len(v) > 0 && v[0] == '"' {
			return jsonwire.Text(v)
		}
	}
	return ""
}

// addReply adds a response of the client as a separate frame.
func (b *builder) addReply(f *frame, el element, p *traffic.Message) {
	a := b.serverRequests[p.Call]
	if p.Call == nil || a == nil {
		return // to an unknown request
	}
	delete(b.serverRequests, p.Call)
	a.reply, a.replyT = &el, f.t
	b.rec.frames = append(b.rec.frames, &frame{n: f.n, t: f.t, since: max(f.since, a.t), after: f.after, elements: []element{el}, reply: a})
	f.after = nil
}

// addServerFrame adds a frame of the server.
func (b *builder) addServerFrame(e *capture.Event, in *traffic.Frame) {
	if len(in.Messages) == 0 {
		return
	}
	raws := wireclient.Split(bytes.Clone(e.Data))
	for i := range in.Messages {
		p := &in.Messages[i]
		switch el := newElement(raws[p.Index], e, in.Batch, p); p.Kind {
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

func (b *builder) addServerRequest(e *capture.Event, el element, p *traffic.Message) {
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

// finish completes a recording: the dependencies between requests, and the beginning of the
// session.
func (b *builder) finish() {
	r := b.rec
	hello := false
	for _, c := range r.calls {
		if c.method == mcp.MethodInitialize {
			hello = true
			if v := jsonwire.Text(jsonwire.Lookup(c.response.result(), "protocolVersion")); v != "" {
				r.Revision = v
			}
		}
		if c.method == mcp.MethodToolsList {
			r.params = wireclient.LearnParams(r.params, c.response.result())
		}
	}
	if hello {
		r.Modern = false
	} else if !r.Modern {
		r.Synthetic = true
	}
	l := dependencies{pages: map[string]*call{}, inputRounds: map[string]*call{}, tasks: map[string]*call{}}
	for _, f := range r.frames {
		for i := range f.elements {
			if el := &f.elements[i]; el.call != nil {
				l.resolve(el)
			}
		}
	}
}

// dependencies are the last responses that a request can depend on: by method and cursor; by
// method, target and state; by task id.
type dependencies struct{ pages, inputRounds, tasks map[string]*call }

// resolve finds the request that a request depends on, and remembers the request for later ones.
func (d *dependencies) resolve(el *element) {
	c, params := el.call, el.m.Params
	responses, state := jsonwire.Lookup(params, "inputResponses"), jsonwire.Lookup(params, "requestState")
	b := d.inputRounds[inputRoundKey(c, state)]
	if c.method == mcp.MethodTasksUpdate {
		b = d.tasks[c.target]
	}
	if (responses != nil || state != nil) && b != nil && hasMembers(jsonwire.Lookup(b.response.result(), "inputRequests"), responses) {
		c.inputRound = b
	}
	if cursor := jsonwire.Text(jsonwire.Lookup(params, "cursor")); cursor != "" {
		c.page = d.pages[c.method+"\x00"+cursor]
	}

	result := c.response.result()
	if cursor := jsonwire.Text(jsonwire.Lookup(result, "nextCursor")); cursor != "" {
		d.pages[c.method+"\x00"+cursor] = c
	}
	if jsonwire.Text(jsonwire.Lookup(result, "resultType")) == string(mcp.ResultTypeInputRequired) {
		d.inputRounds[inputRoundKey(c, jsonwire.Lookup(result, "requestState"))] = c
	}
	if c.method == mcp.MethodTasksGet && jsonwire.Lookup(result, "inputRequests") != nil {
		d.tasks[c.target] = c
	}
}

func inputRoundKey(c *call, state []byte) string {
	return c.method + "\x00" + c.target + "\x00" + jsonwire.Text(state)
}

// hasMembers reports whether an object has all the names of another.
func hasMembers(object, names []byte) bool {
	have := memberSet(object)
	for name := range memberSet(names) {
		if !have[name] {
			return false
		}
	}
	return true
}

func memberSet(object []byte) map[string]bool {
	set := map[string]bool{}
	if len(object) == 0 || object[0] != '{' {
		return set
	}
	members := jsonwire.ObjectMembers(object)
	for members.Next() {
		set[members.KeyString()] = true
	}
	return set
}

// paramsOf returns a copy of the recorded header parameters.
func (r *Recording) paramsOf() map[string][]mcp.HeaderParam {
	if r.params == nil {
		return map[string][]mcp.HeaderParam{}
	}
	return maps.Clone(r.params)
}
