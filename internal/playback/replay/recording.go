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
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/playback/resend"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Recording is what the client has said in a session, with what it was answered.
type Recording struct {
	Capture   string // id of the capture
	Session   uint64 // its number in the capture, or of modern requests over HTTP, which have no sessions, that of the first
	Name      string // of the server, as the capture has it
	Transport resend.Transport
	Modern    bool   // it has no handshake
	Revision  string // that was agreed on, or that requests say; "" if the capture does not say
	Redact    string // what was hidden: "default", "custom" or "off"
	First     uint64 // number of the event with the first message
	// Synthetic tells that the recording does not have the handshake, and that one is made up.
	Synthetic bool

	frames         []*frame
	calls          []*call
	serverRequests []*serverRequest
	unownedMethods []string // methods of notifications that belong to no request, each once
	standingStream bool     // the client had a standing stream open, or needed none for what it would bring
	params         map[string][]mcp.HeaderParam
}

// Requests is how many requests the client has sent.
func (r *Recording) Requests() int { return len(r.calls) }

// Has reports whether one of the requests is chosen, see [Options.Select]. All are if choose is nil.
func (r *Recording) Has(choose func(captureID string, n uint64) bool) bool {
	return choose == nil || slices.ContainsFunc(r.calls, func(c *call) bool { return choose(r.Capture, c.n) })
}

// A frame is what the client has sent at once.
type frame struct {
	n        uint64
	t        time.Duration
	since    time.Duration // when the last thing happened before that it may have waited for
	batch    bool
	elements []element
	after    []*call        // that were answered since the frame before
	reply    *serverRequest // it answers a request of the server, and is nothing else
	cut      bool           // the capture has only the beginning
	aborted  *call          // nothing was sent: the client ended the HTTP request of this one
	notified int            // of a frame that gives up a request: how many notifications had come for it
}

// An element is a message, alone or in a batch.
type element struct {
	raw          []byte
	m            jsonrpc.Message // aliases raw
	redacted     []string        // places that were hidden, as pointers into raw
	moreRedacted int             // places that are not in hidden
	call         *call           // that it begins; nil if it is no request
}

// A call is a request of the client's.
type call struct {
	index    int
	n        uint64
	t        time.Duration
	id       string // comparable
	method   string
	target   string
	token    string // of progress, JSON text
	exchange uint64

	response      *element // nil if none came
	responseT     time.Duration
	responseAt    time.Time
	status        int // of an HTTP response without an answer
	notifications notificationLog

	// inputRound is the request whose answer asked for input, which this one brings, and page the one whose answer has the cursor.
	inputRound, page *call
}

// An ask is a request of the server's.
type serverRequest struct {
	index        int
	n            uint64
	t            time.Duration
	at           time.Time
	method       string
	request      element
	reply        *element // nil if the client did not answer
	replyT       time.Duration
	pendingCalls []*call // that waited for their answer then
}

// idKey is equal for equal ids.
func idKey(id jsonrpc.ID) string {
	if s, ok := id.Text(); ok {
		return `"` + s
	}
	return string(id)
}

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

// maxTools is how many tools with arguments in headers are remembered.
const maxTools = 10_000

// finish completes a recording: which request builds on the answer to which, and how the session began.
func (b *builder) finish() {
	r := b.rec
	hello := false
	for _, c := range r.calls {
		if c.method == mcp.MethodInitialize {
			hello = true
			if v := jsonwire.Text(jsonwire.Lookup(c.result(), "protocolVersion")); v != "" {
				r.Revision = v
			}
		}
		r.params = learnParams(r.params, c.method, c.result())
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

// result is what the call was answered; nil if that is no result.
func (c *call) result() []byte {
	if c.response == nil {
		return nil
	}
	return c.response.m.Result
}

// dependencies are the answers that a request can build on, the last of each kind: by its method and its cursor; by method, target and state; by the id of the task.
type dependencies struct{ pages, inputRounds, tasks map[string]*call }

// resolve finds the request that a request builds on, and remembers the request for those that build on it.
func (d *dependencies) resolve(el *element) {
	c, params := el.call, el.m.Params
	responses, state := jsonwire.Lookup(params, "inputResponses"), jsonwire.Lookup(params, "requestState")
	b := d.inputRounds[inputRoundKey(c, state)]
	if c.method == mcp.MethodTasksUpdate {
		b = d.tasks[c.target]
	}
	if (responses != nil || state != nil) && b != nil && hasMembers(jsonwire.Lookup(b.result(), "inputRequests"), responses) {
		c.inputRound = b
	}
	if cursor := jsonwire.Text(jsonwire.Lookup(params, "cursor")); cursor != "" {
		c.page = d.pages[c.method+"\x00"+cursor]
	}

	result := c.result()
	if cursor := jsonwire.Text(jsonwire.Lookup(result, "nextCursor")); cursor != "" {
		d.pages[c.method+"\x00"+cursor] = c
	}
	if jsonwire.Text(jsonwire.Lookup(result, "resultType")) == mcp.ResultTypeInputRequired {
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

// learnParams adds what the result of tools/list says of arguments in headers. The map is changed.
func learnParams(known map[string][]mcp.HeaderParam, method string, result []byte) map[string][]mcp.HeaderParam {
	tools := jsonwire.Lookup(result, "tools")
	if method != mcp.MethodToolsList || len(tools) == 0 || tools[0] != '[' {
		return known
	}
	list := jsonwire.ArrayElements(tools)
	for list.Next() {
		name, schema := jsonwire.Text(jsonwire.Lookup(list.Value(), "name")), jsonwire.Lookup(list.Value(), "inputSchema")
		if schema == nil {
			continue
		}
		params, err := mcp.HeaderParams(schema)
		switch {
		case err != nil || len(params) == 0:
			delete(known, name)
		case len(known) < maxTools:
			if known == nil {
				known = map[string][]mcp.HeaderParam{}
			}
			known[name] = params
		}
	}
	return known
}

// paramsOf is a copy of what the recording knows, to be changed.
func (r *Recording) paramsOf() map[string][]mcp.HeaderParam {
	if r.params == nil {
		return map[string][]mcp.HeaderParam{}
	}
	return maps.Clone(r.params)
}
