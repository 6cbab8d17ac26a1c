package replay

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxFailures is the number of consecutive requests without a response that ends the replay.
const maxFailures = 3

// A player plays a recording. It is for one goroutine.
//
// The flow is:
//
//	play              start inbox.fill, which reads; then run
//	run               handshake if the recording has none; then each frame
//	  playFrame       await the responses that preceded the frame, prepare and send it
//	    prepare       substitute new cursors, states and task ids; skip hidden messages
//	  playResponse    wait for an input request of the server, then respond
//	waitUntil         used by all waits: takes arrivals and runs due replies and polls
//	  handleArrival   handleRequest, tracker.route or handleResponse
//	comparer.result   compare; results.add reports in recorded order
//	finish            wait for the remaining responses; reportRest reports all others
type player struct {
	rec      *Recording
	origin   *resend.Origin
	conn     conn
	opts     *Options
	inbox    *inbox
	comparer *comparer

	// calls are indexed by call.
	calls []liveCall
	// serverRequests are indexed by serverRequest.
	serverRequests []liveRequest
	// pending are the calls without a response.
	pending     pendingCalls
	tracker     tracker
	substitutes substitutes
	results     results
	// unownedMethods are the methods of notifications without a request.
	unownedMethods []string
	// oneWay has the exchanges of messages without a response, and whether they have ended.
	oneWay map[uint64]bool
	// syntheticID is the id of a pending synthetic handshake.
	syntheticID string
	// polls counts repeated task requests.
	polls int
	// failures counts consecutive requests without a response.
	failures int
	// responses counts the received responses.
	responses int
	fatal     error
}

// A state is the progress of a call.
type state uint8

const (
	unsent state = iota
	sent
	done
)

// A liveCall is the state of a call in the replay.
type liveCall struct {
	call  *call
	state state
	id    jsonrpc.ID
	// message is the sent message.
	message []byte
	at      time.Time
	// lastActivity is the time of the last sign of progress.
	lastActivity  time.Time
	notifications notificationLog
	// response is the last response.
	response  *element
	responseN uint64
	latency   time.Duration
	// pollAt is the time to poll the task again. Zero means never.
	pollAt time.Time
}

// pendingCalls are the requests without a response, in the order sent.
type pendingCalls []*liveCall

// find returns the request that a response is for, or nil.
func (l pendingCalls) find(m *jsonrpc.Message, exchange uint64) *liveCall {
	key := m.ID.Key()
	var matching, others []*liveCall
	for _, c := range l {
		inExchange, hasID := exchange > 0 && c.notifications.exchange == exchange, c.id.Key() == key
		switch {
		case inExchange && hasID:
			return c
		case inExchange:
			matching = append(matching, c)
		case hasID:
			others = append(others, c)
		}
	}
	if len(matching) == 1 && m.Kind == jsonrpc.KindError && (len(m.ID) == 0 || m.ID.IsNull()) {
		return matching[0]
	}
	if len(others) == 1 {
		return others[0]
	}
	return nil
}

// canceledBy returns the request that a cancellation names, or nil.
func (l pendingCalls) canceledBy(m *jsonrpc.Message) *liveCall {
	id, ok := m.Param("requestId")
	if string(m.Method) != mcp.NotificationCancelled || !ok {
		return nil
	}
	return l.withID(jsonrpc.ID(id))
}

// isStaleCancellation reports whether a notification cancels a request that is not pending.
func (l pendingCalls) isStaleCancellation(m *jsonrpc.Message) bool {
	_, ok := m.Param("requestId")
	return ok && string(m.Method) == mcp.NotificationCancelled && l.canceledBy(m) == nil
}

// withID returns the first request with an id, or nil.
func (l pendingCalls) withID(id jsonrpc.ID) *liveCall {
	for _, c := range l {
		if c.id.Key() == id.Key() {
			return c
		}
	}
	return nil
}

func newPlayer(rec *Recording, o *resend.Origin, c conn, opts *Options) *player {
	p := &player{
		rec: rec, origin: o, conn: c, opts: opts, inbox: newInbox(), comparer: newComparer(rec, opts),
		calls: make([]liveCall, len(rec.calls)), serverRequests: make([]liveRequest, len(rec.serverRequests)), oneWay: map[uint64]bool{},
		substitutes: substitutes{tasks: map[string][]byte{}, set: opts.Set}, results: newResults(rec, opts),
	}
	for i := range p.calls {
		p.calls[i].call = rec.calls[i]
	}
	for i := range p.serverRequests {
		p.serverRequests[i].recorded = rec.serverRequests[i]
	}
	return p
}

// isSelected reports whether to send a request.
func (r *Recording) isSelected(c *call, opts *Options) bool {
	return c.method == mcp.MethodInitialize || opts.Select(r.Capture, c.n)
}

// playFrame sends a frame at the right time.
func (p *player) playFrame(ctx context.Context, f *frame) error {
	wait := p.await
	if f.aborted != nil {
		wait = p.awaitCanceled
	}
	if err := wait(ctx, f.after); err != nil {
		return err
	}
	if err := p.waitRecorded(ctx, f); err != nil {
		return err
	}
	if l := p.canceledCall(f); l != nil {
		if done, err := p.playCancellation(ctx, f, l); done {
			return err
		}
	}
	var raws [][]byte
	var calls []*liveCall
	for i := range f.elements {
		el := &f.elements[i]
		raw, err := p.prepare(f, el)
		if err != nil {
			return err
		}
		if raw == nil {
			continue
		}
		raws = append(raws, raw)
		if el.call != nil {
			l := &p.calls[el.call.index]
			l.id, l.message = el.m.ID, raw
			calls = append(calls, l)
		}
	}
	if len(raws) == 0 {
		return nil
	}
	for _, l := range calls {
		if err := p.waitFreeID(ctx, l); err != nil {
			return err
		}
	}
	return p.send(ctx, f, raws, calls)
}

// waitFreeID waits until no pending request has the same id.
func (p *player) waitFreeID(ctx context.Context, l *liveCall) error {
	if p.origin.Transport == capture.TransportHTTP { // exchanges distinguish requests over HTTP
		return nil
	}
	if other := p.pending.withID(l.id); other != nil {
		return p.awaitOne(ctx, other)
	}
	return nil
}

func (p *player) send(ctx context.Context, f *frame, raws [][]byte, calls []*liveCall) error {
	message := raws[0]
	if f.batch {
		message = append(append([]byte{'['}, bytes.Join(raws, []byte{','})...), ']')
	}
	at := time.Now()
	s, err := p.deliver(ctx, message)
	if err != nil {
		return err
	}
	for _, l := range calls {
		l.state, l.at, l.lastActivity = sent, at, at
		l.notifications = notificationLog{exchange: s.Exchange, token: l.call.token, isSubscription: l.call.notifications.isSubscription, onAdd: func() { l.lastActivity = time.Now() }}
		p.tracker.add(&l.notifications)
		p.pending = append(p.pending, l)
	}
	if len(calls) > 0 || s.Exchange == 0 {
		return nil
	}
	// A later message might overtake this one otherwise.
	if err := p.waitExchange(ctx, s.Exchange); err != nil {
		return err
	}
	if len(f.elements) == 1 && string(f.elements[0].m.Method) == mcp.NotificationInitialized {
		p.openStream(ctx)
	}
	return nil
}

// deliver sends a message of any kind.
func (p *player) deliver(ctx context.Context, message []byte) (wireclient.Sent, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.opts.Timeout, fmt.Errorf("replay: %w: the server did not read a message within %v", resend.ErrTimeout, p.opts.Timeout))
	defer cancel()
	return p.conn.Send(ctx, message)
}

// waitExchange waits for the end of the exchange of a message without a response.
func (p *player) waitExchange(ctx context.Context, exchange uint64) error {
	p.oneWay[exchange] = false
	defer delete(p.oneWay, exchange)
	_, err := p.waitUntil(ctx, time.Now().Add(p.opts.Timeout), func() bool { return p.oneWay[exchange] })
	return err
}

// openStream opens the standing stream, if the client had one.
func (p *player) openStream(ctx context.Context) {
	if p.origin.StandingStream && !p.origin.Modern {
		p.conn.OpenStream(ctx)
	}
}

// handshake begins a legacy session if the recording lacks the handshake.
func (p *player) handshake(ctx context.Context) error {
	id := jsonrpc.StringID("mcpwire-replay")
	initialize := resend.SyntheticInitialize(p.rec.Revision, cmp.Or(p.opts.Resend.Tool, "mcpwire"), id, true)
	p.syntheticID = id.Key()
	if _, err := p.deliver(ctx, initialize); err != nil {
		return err
	}
	ok, err := p.waitUntil(ctx, time.Now().Add(p.opts.Timeout), func() bool { return p.syntheticID == "" })
	if err != nil {
		return err
	}
	if !ok {
		return p.timeoutError("the handshake")
	}
	s, err := p.deliver(ctx, jsonrpc.AppendNotification(nil, mcp.NotificationInitialized, nil))
	if err != nil {
		return err
	}
	if s.Exchange > 0 {
		if err := p.waitExchange(ctx, s.Exchange); err != nil {
			return err
		}
	}
	p.openStream(ctx)
	return nil
}

func (p *player) timeoutError(what string) error {
	return fmt.Errorf("replay: %w: %s took longer than %v", resend.ErrTimeout, what, p.opts.Timeout)
}

// prepare returns the message to send, with the server's new values. It returns nil and reports the
// message if it must not be sent.
func (p *player) prepare(f *frame, el *element) ([]byte, error) {
	c := el.call
	switch {
	case c != nil && !p.rec.isSelected(c, p.opts):
		p.calls[c.index].state = done
		p.results.add(&p.results.calls[c.index], &Result{})
		return nil, nil
	case len(el.m.Method) == 0 || f.cut:
		p.skip(f, el, Skipped, "it is not a message, or only part of it was recorded", nil)
		return nil, nil
	case c == nil && p.pending.isStaleCancellation(&el.m):
		return nil, nil
	}
	raw := el.raw
	if c != nil {
		var why string
		if raw, why = p.substitute(el); why != "" {
			p.skip(f, el, Skipped, why, nil)
			return nil, nil
		}
	}
	raw = p.substitutes.fill(raw, el.redacted)
	hidden := p.substitutes.hidden(raw, el.redacted)
	if len(hidden) == 0 && el.moreRedacted == 0 {
		return raw, nil
	}
	if c != nil && c.method == mcp.MethodInitialize {
		if len(hidden) == 0 {
			hidden = []string{""}
		}
		return nil, &resend.RedactedError{What: "handshake", Pointers: hidden, More: el.moreRedacted}
	}
	p.skip(f, el, Redacted, "it has values that were redacted when recorded", hidden)
	return nil, nil
}

// skip notes that a message is not sent.
func (p *player) skip(f *frame, el *element, status Status, why string, hidden []string) {
	r := &Result{Status: status, OK: status == Skipped, Why: why, Redacted: hidden}
	if el.call != nil {
		p.resolve(el.call, r)
		return
	}
	r.N, r.Method = f.n, string(el.m.Method)
	if r.Method == "" {
		r.Method = "?"
	}
	p.results.report(r)
}

// substitute returns a request with values from earlier responses. why says why it cannot be sent.
func (p *player) substitute(el *element) (raw []byte, why string) {
	c := el.call
	if c.response == nil && c.status >= 400 {
		return nil, "the server rejected it with its HTTP status when recorded"
	}
	raw = el.raw
	if c.page != nil {
		cursor := jsonwire.Lookup(p.calls[c.page.index].response.result(), "nextCursor")
		if len(cursor) == 0 || cursor[0] != '"' {
			return nil, "no further page this time"
		}
		raw = edit(raw, []string{"params", "cursor"}, func([]byte) []byte { return cursor })
	}
	if c.inputRound == nil {
		return raw, ""
	}
	result := p.calls[c.inputRound.index].response.result()
	requests, state := jsonwire.Lookup(result, "inputRequests"), jsonwire.Lookup(result, "requestState")
	if c.method != mcp.MethodTasksUpdate && jsonwire.Text(jsonwire.Lookup(result, "resultType")) != string(mcp.ResultTypeInputRequired) || requests == nil && state == nil {
		return nil, "the server did not request input this time"
	}
	raw = edit(raw, []string{"params", "inputResponses"}, func(old []byte) []byte {
		if requests == nil {
			return nil
		}
		return inputResponses(jsonwire.Lookup(c.inputRound.response.result(), "inputRequests"), old, requests)
	})
	if c.method != mcp.MethodTasksUpdate {
		raw = edit(raw, []string{"params", "requestState"}, func([]byte) []byte { return state })
	}
	return raw, ""
}

// handleArrival handles an incoming message or the end of an exchange.
func (p *player) handleArrival(ctx context.Context, x arrival) error {
	if x.Ended {
		return p.handleEnd(x)
	}
	for _, raw := range wireclient.Split(x.Data) {
		el := element{raw: raw}
		if jsonrpc.Parse(raw, &el.m, 0) != nil {
			p.results.summary.Stray++
			continue
		}
		var err error
		switch el.m.Kind {
		case jsonrpc.KindRequest:
			err = p.handleRequest(ctx, &el, x)
		case jsonrpc.KindNotification:
			if !p.tracker.route(&el.m, x.Exchange) {
				p.unownedMethods = addKind(p.unownedMethods, string(el.m.Method))
			}
		default:
			err = p.handleResponse(&el, x)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// handleEnd handles the end of an exchange: no further responses come in it.
func (p *player) handleEnd(x arrival) error {
	if _, ok := p.oneWay[x.Exchange]; ok {
		p.oneWay[x.Exchange] = true
	}
	failure := x.Failure()
	if failure == nil && p.origin.Transport == capture.TransportSSE {
		return nil // the response comes on the stream
	}
	if failure == nil {
		failure = resend.ErrNoAnswer
	}
	for _, l := range slices.Clone(p.pending) {
		if l.notifications.exchange != x.Exchange || x.Exchange == 0 {
			continue
		}
		if err := p.markLost(l, failure); err != nil {
			return err
		}
	}
	return nil
}

// handleResponse handles a response.
func (p *player) handleResponse(el *element, x arrival) error {
	if p.syntheticID != "" && el.m.ID.Key() == p.syntheticID {
		p.syntheticID = ""
		if el.m.Kind == jsonrpc.KindError {
			p.fatal = p.rec.handshakeError(&el.m, x.N)
		}
		return nil
	}
	l := p.pending.find(&el.m, x.Exchange)
	if l == nil {
		p.results.summary.Stray++
		return nil
	}
	p.failures = 0
	l.response, l.responseN, l.pollAt = el, x.N, time.Time{}
	if l.latency == 0 {
		l.latency = max(x.at.Sub(l.at), 1)
	}
	if p.needsPoll(l, x.at) {
		return nil
	}
	p.responses++
	p.learn(l)
	p.finishCall(l, p.comparer.result(l))
	return p.eraError(l, nil)
}

// markLost notes that a request gets no response.
func (p *player) markLost(l *liveCall, err error) error {
	if l.response != nil { // an earlier response to a task poll
		p.finishCall(l, p.comparer.result(l))
		return nil
	}
	r := &Result{Status: Lost, Why: err.Error()}
	if l.call.response == nil { // as recorded
		r.Status, r.OK = Open, true
	}
	p.finishCall(l, r)
	if r.OK {
		return nil
	}
	p.failures++
	if err := p.eraError(l, err); err != nil {
		return err
	}
	if p.failures >= maxFailures || p.responses == 0 {
		return err
	}
	return nil
}

// markTimeout notes that a response has not come in time.
func (p *player) markTimeout(l *liveCall) error {
	if l.response != nil {
		p.finishCall(l, p.comparer.result(l))
		return nil
	}
	p.finishCall(l, &Result{Status: Timeout, Why: fmt.Sprintf("no response within %v", p.opts.Timeout)})
	if p.failures++; p.failures >= maxFailures || l.call.method == mcp.MethodInitialize || p.rec.Modern && p.responses == 0 {
		return p.timeoutError("the response to " + l.call.method)
	}
	return nil
}

// finishCall notes the result of a sent request.
func (p *player) finishCall(l *liveCall, r *Result) {
	l.state, l.pollAt = done, time.Time{}
	p.tracker.remove(&l.notifications)
	p.pending = slices.DeleteFunc(p.pending, func(x *liveCall) bool { return x == l })
	p.resolve(l.call, r)
}

// resolve notes the result of a request.
func (p *player) resolve(c *call, r *Result) {
	r.N, r.Method, r.Target = c.n, c.method, c.target
	if c.response != nil {
		ms := float64(c.responseT-c.t) / float64(time.Millisecond)
		r.Recorded = &ms
	}
	p.calls[c.index].state = done
	p.results.add(&p.results.calls[c.index], r)
}

// handshakeError returns the error for a rejected handshake.
func (r *Recording) handshakeError(m *jsonrpc.Message, n uint64) error {
	e := m.Clone().Err()
	if e.Code == jsonrpc.CodeMethodNotFound || e.Code == mcp.CodeUnsupportedProtocolVersion {
		return &EraError{Revision: r.Revision, Err: e}
	}
	return &resend.HandshakeError{N: n, Err: e}
}

// eraError returns an error if the first response shows that the server does not accept the
// session. A non-nil cause says why no response came.
func (p *player) eraError(l *liveCall, cause error) error {
	c := l.call
	if c.response.result() == nil || cause == nil && l.response.m.Kind != jsonrpc.KindError {
		return nil
	}
	if c.method == mcp.MethodInitialize {
		if cause == nil {
			return p.rec.handshakeError(&l.response.m, l.responseN)
		}
		if s, ok := errors.AsType[*wireclient.StatusError](cause); ok && s.Status == http.StatusBadRequest {
			return &EraError{Revision: p.rec.Revision, Err: cause}
		}
		return cause
	}
	if !p.rec.Modern || p.responses > 1 {
		return nil
	}
	if s, ok := errors.AsType[*wireclient.StatusError](cause); ok {
		if slices.Contains([]int{http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable}, s.Status) {
			return &EraError{Modern: true, Revision: p.rec.Revision, Err: cause}
		}
		return cause
	}
	if cause != nil {
		return cause
	}
	e := l.response.m.Clone().Err()
	foreign := []jsonrpc.Code{jsonrpc.CodeInvalidRequest, -32000, -32002, mcp.CodeUnsupportedProtocolVersion}
	if slices.Contains(foreign, e.Code) || e.Code == jsonrpc.CodeMethodNotFound && c.method == mcp.MethodDiscover {
		return &EraError{Modern: true, Revision: p.rec.Revision, Err: e}
	}
	return nil
}

// waitUntil waits for done or the deadline, and reports done. Meanwhile it handles arrivals. An
// error ends the replay.
func (p *player) waitUntil(ctx context.Context, deadline time.Time, done func() bool) (bool, error) {
	for {
		list, ended := p.inbox.take()
		for _, x := range list {
			if err := p.handleArrival(ctx, x); err != nil {
				return false, err
			}
		}
		switch {
		case p.fatal != nil:
			return false, p.fatal
		case done():
			return true, nil
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case ended != nil:
			return false, ended
		case !time.Now().Before(deadline):
			return false, nil
		}
		next, err := p.runDue(ctx, deadline)
		if err != nil {
			return false, err
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-p.inbox.ready:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// runDue sends due replies and polls. It returns the time of the next one, or the deadline.
func (p *player) runDue(ctx context.Context, deadline time.Time) (time.Time, error) {
	now := time.Now()
	next := deadline
	sooner := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	for i := range p.serverRequests {
		a := &p.serverRequests[i]
		if !a.waiting {
			continue
		}
		if t := a.at.Add(p.replyDelay(a.recorded)); !now.Before(t) {
			if err := p.respond(ctx, a); err != nil {
				return next, err
			}
		} else {
			sooner(t)
		}
	}
	for _, l := range slices.Clone(p.pending) {
		if l.pollAt.IsZero() {
			continue
		}
		if !now.Before(l.pollAt) {
			if err := p.poll(ctx, l); err != nil {
				return next, err
			}
		} else {
			sooner(l.pollAt)
		}
	}
	return next, nil
}

// replyDelay returns the delay of a response to the server.
func (p *player) replyDelay(a *serverRequest) time.Duration {
	if p.opts.Timing == Keep {
		return max(replyDelay, a.replyT-a.t)
	}
	return replyDelay
}

// await waits for the responses to those of the requests that were sent.
func (p *player) await(ctx context.Context, calls []*call) error {
	for _, c := range calls {
		if err := p.awaitOne(ctx, &p.calls[c.index]); err != nil {
			return err
		}
	}
	return nil
}

// awaitOne waits for the response to a request, as long as there is progress.
func (p *player) awaitOne(ctx context.Context, l *liveCall) error {
	for l.state == sent {
		_, err := p.waitUntil(ctx, l.lastActivity.Add(p.opts.Timeout), func() bool { return l.state == done })
		if err != nil {
			return err
		}
		if l.state == sent && !time.Now().Before(l.lastActivity.Add(p.opts.Timeout)) {
			if err := p.markTimeout(l); err != nil {
				return err
			}
		}
	}
	return p.fatal
}

// waitRecorded waits for the recorded time before a frame.
func (p *player) waitRecorded(ctx context.Context, f *frame) error {
	if p.opts.Timing != Keep {
		return nil
	}
	_, err := p.waitUntil(ctx, time.Now().Add(f.t-f.since), func() bool { return false })
	return err
}

// finish waits for the remaining responses after everything was sent.
func (p *player) finish(ctx context.Context) error {
	for _, l := range slices.Clone(p.pending) {
		if l.call.response == nil {
			continue
		}
		if err := p.awaitOne(ctx, l); err != nil {
			return err
		}
	}
	quiet := func() bool { return len(p.missingMethods()) == 0 && !p.hasPendingRequest() }
	_, err := p.waitUntil(ctx, time.Now().Add(idleTimeout), quiet)
	if _, ok := errors.AsType[*wireclient.EndedError](err); ok {
		return nil // the server is not needed anymore
	}
	return err
}

// hasPendingRequest reports whether a request of the server awaits its response or has not come
// yet.
func (p *player) hasPendingRequest() bool {
	for i := range p.serverRequests {
		if p.serverRequests[i].waiting || p.results.serverRequests[i] == nil {
			return true
		}
	}
	return false
}

// missingMethods returns the recorded notifications without a request that have not come.
func (p *player) missingMethods() (list []string) {
	for _, k := range p.rec.unownedMethods {
		if !slices.Contains(p.unownedMethods, k) {
			list = append(list, k)
		}
	}
	return list
}

// reportRest reports everything else. err is the reason for an early end, or nil.
func (p *player) reportRest(err error) {
	for i := range p.calls {
		l := &p.calls[i]
		switch {
		case l.state == done && p.results.calls[i] != nil:
		case l.state == sent && l.call.response == nil:
			p.finishCall(l, &Result{Status: Open, OK: true})
		case l.state == sent && err != nil:
			p.finishCall(l, &Result{Status: Lost, Why: err.Error()})
		case l.state == sent: // impossible after finish
			p.finishCall(l, &Result{Status: Lost})
		default:
			if p.rec.isSelected(l.call, p.opts) {
				p.results.summary.Unsent++
			}
			p.results.add(&p.results.calls[i], &Result{})
		}
	}
	for i := range p.serverRequests {
		a := &p.serverRequests[i]
		switch {
		case p.results.serverRequests[i] != nil:
		case err != nil:
			p.results.add(&p.results.serverRequests[i], &Result{})
		default:
			p.noteMissing(a)
		}
	}
	missing := p.missingMethods()
	if err != nil || len(missing) == 0 {
		return
	}
	r := &Result{Method: "notifications", Status: Same, OK: true, Differences: []Difference{{Op: "notifications", Old: strings.Join(missing, " "), Note: true}}}
	if p.opts.Strict {
		r.Status, r.OK, r.Differences[0].Note = Different, false, false
	}
	p.results.report(r)
}
