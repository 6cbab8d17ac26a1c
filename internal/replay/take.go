package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"mcpwire/internal/jsonwire"
	"mcpwire/internal/resend"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// handleArrival takes something that has come.
func (p *player) handleArrival(ctx context.Context, x arrival) error {
	if x.Ended {
		return p.handleEnd(x)
	}
	for _, raw := range splitBatch(x.Data) {
		el := element{raw: raw}
		if jsonrpc.Parse(raw, &el.m, 0) != nil {
			p.summary.Stray++
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

// handleEnd takes the end of an exchange: what was not answered by then is not any more.
func (p *player) handleEnd(x arrival) error {
	if _, ok := p.oneWay[x.Exchange]; ok {
		p.oneWay[x.Exchange] = true
	}
	if p.origin.Transport == resend.SSE && x.Err == nil && x.Status/100 == 2 { // the answer comes on the stream
		return nil
	}
	for _, l := range slices.Clone(p.pending) {
		if l.notifications.exchange != x.Exchange || x.Exchange == 0 {
			continue
		}
		var err error
		switch {
		case x.Err != nil:
			err = &resend.EndedError{Err: x.Err}
		case x.Status/100 != 2:
			err = &resend.StatusError{Status: x.Status, N: x.N}
		default:
			err = resend.ErrNoAnswer
		}
		if err := p.markLost(l, err); err != nil {
			return err
		}
	}
	return nil
}

// findCall returns the request that an answer is for, or nil.
func (p *player) findCall(m *jsonrpc.Message, exchange uint64) *liveCall {
	key := idKey(m.ID)
	var near, far []*liveCall
	for _, l := range p.pending {
		if exchange > 0 && l.notifications.exchange == exchange {
			near = append(near, l)
		}
		if idKey(l.id) == key {
			far = append(far, l)
		}
	}
	for _, l := range near {
		if idKey(l.id) == key {
			return l
		}
	}
	if len(near) == 1 && m.Kind == jsonrpc.KindError && (len(m.ID) == 0 || m.ID.IsNull()) {
		return near[0]
	}
	if len(far) == 1 {
		return far[0]
	}
	return nil
}

// handleResponse takes an answer.
func (p *player) handleResponse(el *element, x arrival) error {
	if p.syntheticID != "" && idKey(el.m.ID) == p.syntheticID {
		p.syntheticID = ""
		if el.m.Kind == jsonrpc.KindError {
			p.fatal = p.handshakeError(&el.m, x.N)
		}
		return nil
	}
	l := p.findCall(&el.m, x.Exchange)
	if l == nil {
		p.summary.Stray++
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
	p.compareResponse(l)
	return p.eraError(l, nil)
}

// markLost is told that no answer comes to a request.
func (p *player) markLost(l *liveCall, err error) error {
	if l.response != nil { // an earlier one, to a task that was asked for
		p.compareResponse(l)
		return nil
	}
	r := &Result{Status: Lost, Why: err.Error()}
	if l.call.response == nil { // as it was
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

// markTimeout is told that the answer has not come in time.
func (p *player) markTimeout(l *liveCall) error {
	if l.response != nil {
		p.compareResponse(l)
		return nil
	}
	p.finishCall(l, &Result{Status: Timeout, Why: fmt.Sprintf("no answer within %v", p.opts.Timeout)})
	if p.failures++; p.failures >= maxFailures || l.call.method == mcp.MethodInitialize || p.rec.Modern && p.responses == 0 {
		return p.timeoutError("the answer to " + l.call.method)
	}
	return nil
}

// compareResponse compares the answer of a request.
func (p *player) compareResponse(l *liveCall) {
	c := l.call
	r := &Result{Status: Same, OK: true, LiveN: l.responseN}
	ms := float64(l.latency) / float64(time.Millisecond)
	r.Live = &ms
	switch {
	case c.response == nil:
		r.Status = Open
		if c.notifications.isSubscription && l.response.m.Kind == jsonrpc.KindError {
			r.Status, r.OK = Different, false
			r.Differences = p.comparer.compareResponses(side{}, side{}, &jsonrpc.Message{}, &l.response.m)
		}
	case p.wasWorking(l):
		r.Why = "the task was under way, and how far is a matter of time"
	default:
		was := side{raw: c.response.raw, at: c.responseAt, redacted: c.response.redacted}
		r.Differences = p.comparer.compareResponses(was, side{raw: l.response.raw, at: time.Now()}, &c.response.m, &l.response.m)
		if ok, old, now := sameNotifications(&c.notifications, &l.notifications, p.opts.Strict); !ok {
			r.Differences = append(r.Differences, Difference{Op: "notifications", Old: strings.Join(old, " "), New: strings.Join(now, " ")})
		}
		if slices.ContainsFunc(r.Differences, func(d Difference) bool { return !d.Note }) {
			r.Status, r.OK = Different, false
		}
		p.noteVersion(l, r)
	}
	p.finishCall(l, r)
}

// noteVersion notes that the version of a modern server, which it says in each answer, is another one; once.
func (p *player) noteVersion(l *liveCall, r *Result) {
	if p.versionNoted || !p.rec.Modern || p.opts.Strict {
		return
	}
	place := []string{"_meta", mcp.MetaServerInfo, "version"}
	old, now := jsonwire.Text(jsonwire.Lookup(l.call.result(), place...)), jsonwire.Text(jsonwire.Lookup(l.response.m.Result, place...))
	if old != "" && now != "" && old != now {
		p.versionNoted = true
		pointer := "/result/_meta/" + pointerEscapes.Replace(mcp.MetaServerInfo) + "/version"
		r.Differences = append(r.Differences, Difference{Op: "replace", Pointer: pointer, Old: string(quoted(old)), New: string(quoted(now)), Note: true})
	}
}

// finishCall notes what became of a request that was sent.
func (p *player) finishCall(l *liveCall, r *Result) {
	l.state, l.pollAt = done, time.Time{}
	p.tracker.remove(&l.notifications)
	p.pending = slices.DeleteFunc(p.pending, func(x *liveCall) bool { return x == l })
	p.resolve(l.call, r)
}

// resolve notes what became of a request.
func (p *player) resolve(c *call, r *Result) {
	r.N, r.Method, r.Target = c.n, c.method, c.target
	if c.response != nil {
		ms := float64(c.responseT-c.t) / float64(time.Millisecond)
		r.Recorded = &ms
	}
	p.calls[c.index].state = done
	p.addResult(c.index, r)
}

// addResult notes a result, and tells what is known in its order.
func (p *player) addResult(i int, r *Result) {
	p.results[i] = r
	for p.reported < len(p.order) {
		r := p.results[p.order[p.reported]]
		if r == nil {
			return
		}
		p.reported++
		p.report(r)
	}
}

func (p *player) report(r *Result) {
	if r.Method == "" { // it was not chosen
		return
	}
	if r.Differences == nil {
		r.Differences = []Difference{}
	}
	p.summary.count(r)
	p.opts.Report(r)
}

// handshakeError is the error for a handshake that the server refuses.
func (p *player) handshakeError(m *jsonrpc.Message, n uint64) error {
	e := m.Clone().Err()
	if e.Code == jsonrpc.CodeMethodNotFound || e.Code == mcp.CodeUnsupportedProtocolVersion {
		return &EraError{Revision: p.rec.Revision, Err: e}
	}
	return &resend.HandshakeError{N: n, Err: e}
}

// eraError tells whether the first answer shows that the session cannot be had with this server: cause is why there is none, if there is none.
func (p *player) eraError(l *liveCall, cause error) error {
	c := l.call
	if c.result() == nil || cause == nil && l.response.m.Kind != jsonrpc.KindError {
		return nil
	}
	if c.method == mcp.MethodInitialize {
		if cause == nil {
			return p.handshakeError(&l.response.m, l.responseN)
		}
		if s, ok := errors.AsType[*resend.StatusError](cause); ok && s.Status == http.StatusBadRequest {
			return &EraError{Revision: p.rec.Revision, Err: cause}
		}
		return cause
	}
	if !p.rec.Modern || p.responses > 1 {
		return nil
	}
	if s, ok := errors.AsType[*resend.StatusError](cause); ok {
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
		return &EraError{Modern: true, Revision: cmp.Or(p.rec.Revision, ""), Err: e}
	}
	return nil
}
