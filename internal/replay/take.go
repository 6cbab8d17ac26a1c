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

// took takes something that has come.
func (p *player) took(ctx context.Context, x arrival) error {
	if x.Ended {
		return p.ended(x)
	}
	for _, raw := range split(x.Data) {
		el := element{raw: raw}
		if jsonrpc.Parse(raw, &el.m, 0) != nil {
			p.sum.Stray++
			continue
		}
		var err error
		switch el.m.Kind {
		case jsonrpc.KindRequest:
			err = p.asked(ctx, &el, x)
		case jsonrpc.KindNotification:
			if !p.tracker.note(&el.m, x.Exchange) {
				p.kinds = addKind(p.kinds, string(el.m.Method))
			}
		default:
			err = p.answered(&el, x)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ended takes the end of an exchange: what was not answered by then is not any more.
func (p *player) ended(x arrival) error {
	if _, ok := p.tells[x.Exchange]; ok {
		p.tells[x.Exchange] = true
	}
	if p.o.Transport == resend.SSE && x.Err == nil && x.Status/100 == 2 { // the answer comes on the stream
		return nil
	}
	for _, l := range slices.Clone(p.open) {
		if l.seen.exchange != x.Exchange || x.Exchange == 0 {
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
		if err := p.lose(l, err); err != nil {
			return err
		}
	}
	return nil
}

// find returns the request that an answer is for, or nil.
func (p *player) find(m *jsonrpc.Message, exchange uint64) *live {
	key := idKey(m.ID)
	var near, far []*live
	for _, l := range p.open {
		if exchange > 0 && l.seen.exchange == exchange {
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

// answered takes an answer.
func (p *player) answered(el *element, x arrival) error {
	if p.made != "" && idKey(el.m.ID) == p.made {
		p.made = ""
		if el.m.Kind == jsonrpc.KindError {
			p.fatal = p.refused(&el.m, x.N)
		}
		return nil
	}
	l := p.find(&el.m, x.Exchange)
	if l == nil {
		p.sum.Stray++
		return nil
	}
	p.bad = 0
	l.answer, l.answerN, l.again = el, x.N, time.Time{}
	if l.took == 0 {
		l.took = max(x.at.Sub(l.at), 1)
	}
	if p.goesOn(l, x.at) {
		return nil
	}
	p.answers++
	p.learn(l)
	p.settle(l)
	return p.mistaken(l, nil)
}

// lose is told that no answer comes to a request.
func (p *player) lose(l *live, err error) error {
	if l.answer != nil { // an earlier one, to a task that was asked for
		p.settle(l)
		return nil
	}
	r := &Result{Status: Lost, Why: err.Error()}
	if l.call.answer == nil { // as it was
		r.Status, r.OK = Open, true
	}
	p.close(l, r)
	if r.OK {
		return nil
	}
	p.bad++
	if err := p.mistaken(l, err); err != nil {
		return err
	}
	if p.bad >= maxBad || p.answers == 0 {
		return err
	}
	return nil
}

// expire is told that the answer has not come in time.
func (p *player) expire(l *live) error {
	if l.answer != nil {
		p.settle(l)
		return nil
	}
	p.close(l, &Result{Status: Timeout, Why: fmt.Sprintf("no answer within %v", p.opts.Timeout)})
	if p.bad++; p.bad >= maxBad || l.call.method == mcp.MethodInitialize || p.rec.Modern && p.answers == 0 {
		return p.late("the answer to " + l.call.method)
	}
	return nil
}

// settle compares the answer of a request.
func (p *player) settle(l *live) {
	c := l.call
	r := &Result{Status: Same, OK: true, LiveN: l.answerN}
	ms := float64(l.took) / float64(time.Millisecond)
	r.Live = &ms
	switch {
	case c.answer == nil:
		r.Status = Open
		if c.seen.standing && l.answer.m.Kind == jsonrpc.KindError {
			r.Status, r.OK = Different, false
			r.Differences = p.cmp.answers(side{}, side{}, &jsonrpc.Message{}, &l.answer.m)
		}
	case p.underWay(l):
		r.Why = "the task was under way, and how far is a matter of time"
	default:
		was := side{raw: c.answer.raw, at: c.answerAt, hidden: c.answer.hidden}
		r.Differences = p.cmp.answers(was, side{raw: l.answer.raw, at: time.Now()}, &c.answer.m, &l.answer.m)
		if ok, old, now := sameTraces(&c.seen, &l.seen, p.opts.Strict); !ok {
			r.Differences = append(r.Differences, Difference{Op: "notifications", Old: strings.Join(old, " "), New: strings.Join(now, " ")})
		}
		if slices.ContainsFunc(r.Differences, func(d Difference) bool { return !d.Note }) {
			r.Status, r.OK = Different, false
		}
		p.noteVersion(l, r)
	}
	p.close(l, r)
}

// noteVersion notes that the version of a modern server, which it says in each answer, is another one; once.
func (p *player) noteVersion(l *live, r *Result) {
	if p.version || !p.rec.Modern || p.opts.Strict {
		return
	}
	place := []string{"_meta", mcp.MetaServerInfo, "version"}
	old, now := jsonwire.Text(jsonwire.Lookup(l.call.result(), place...)), jsonwire.Text(jsonwire.Lookup(l.answer.m.Result, place...))
	if old != "" && now != "" && old != now {
		p.version = true
		pointer := "/result/_meta/" + pointerEscapes.Replace(mcp.MetaServerInfo) + "/version"
		r.Differences = append(r.Differences, Difference{Op: "replace", Pointer: pointer, Old: string(quoted(old)), New: string(quoted(now)), Note: true})
	}
}

// close notes what became of a request that was sent.
func (p *player) close(l *live, r *Result) {
	l.state, l.again = done, time.Time{}
	p.tracker.remove(&l.seen)
	p.open = slices.DeleteFunc(p.open, func(x *live) bool { return x == l })
	p.resolve(l.call, r)
}

// resolve notes what became of a request.
func (p *player) resolve(c *call, r *Result) {
	r.N, r.Method, r.Target = c.n, c.method, c.target
	if c.answer != nil {
		ms := float64(c.answerT-c.t) / float64(time.Millisecond)
		r.Recorded = &ms
	}
	p.calls[c.index].state = done
	p.put(c.index, r)
}

// put notes a result, and tells what is known in its order.
func (p *player) put(i int, r *Result) {
	p.results[i] = r
	for p.told < len(p.order) {
		r := p.results[p.order[p.told]]
		if r == nil {
			return
		}
		p.told++
		p.tell(r)
	}
}

func (p *player) tell(r *Result) {
	if r.Method == "" { // it was not chosen
		return
	}
	if r.Differences == nil {
		r.Differences = []Difference{}
	}
	p.sum.count(r)
	p.opts.Report(r)
}

// refused is the error for a handshake that the server refuses.
func (p *player) refused(m *jsonrpc.Message, n uint64) error {
	e := m.Clone().Err()
	if e.Code == jsonrpc.CodeMethodNotFound || e.Code == mcp.CodeUnsupportedProtocolVersion {
		return &EraError{Revision: p.rec.Revision, Err: e}
	}
	return &resend.HandshakeError{N: n, Err: e}
}

// mistaken tells whether the first answer shows that the session cannot be had with this server: cause is why there is none, if there is none.
func (p *player) mistaken(l *live, cause error) error {
	c := l.call
	if c.result() == nil || cause == nil && l.answer.m.Kind != jsonrpc.KindError {
		return nil
	}
	if c.method == mcp.MethodInitialize {
		if cause == nil {
			return p.refused(&l.answer.m, l.answerN)
		}
		if s, ok := errors.AsType[*resend.StatusError](cause); ok && s.Status == http.StatusBadRequest {
			return &EraError{Revision: p.rec.Revision, Err: cause}
		}
		return cause
	}
	if !p.rec.Modern || p.answers > 1 {
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
	e := l.answer.m.Clone().Err()
	foreign := []jsonrpc.Code{jsonrpc.CodeInvalidRequest, -32000, -32002, mcp.CodeUnsupportedProtocolVersion}
	if slices.Contains(foreign, e.Code) || e.Code == jsonrpc.CodeMethodNotFound && c.method == mcp.MethodDiscover {
		return &EraError{Modern: true, Revision: cmp.Or(p.rec.Revision, ""), Err: e}
	}
	return nil
}
