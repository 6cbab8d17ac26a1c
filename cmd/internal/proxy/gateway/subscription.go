package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"mcpwire/internal/base/wait"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonedit"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxSubscribed limits the resources and tasks of one subscription.
const maxSubscribed = 1024

// A subscription is a subscriptions/listen request of a modern client. The gateway itself knows
// about the lists; resources and tasks it subscribes at their upstreams, as parts.
type subscription struct {
	g   *Gateway
	id  jsonrpc.ID
	ctx context.Context
	// origin is the request.
	origin *bridge.Origin
	// ended gets an element when a part has ended after the acknowledgment.
	ended chan struct{}

	mu  sync.Mutex
	out rpc.Sender
	// acknowledged says that the client has the acknowledgment. Until then notifications wait.
	acknowledged bool
	waiting      []waitingMessage
}

// A waitingMessage is a notification that waits for the acknowledgment.
type waitingMessage struct {
	frame []byte
	from  bridge.Provenance
}

// A part is the part of a subscription at one upstream.
type part struct {
	sub   *subscription
	scope scope
	// uris and tasks are the JSON texts of the client's own names, by the server's.
	uris, tasks map[string][]byte
	// settled is closed when the part is acknowledged or has failed.
	settled chan struct{}
	once    sync.Once
	// release ends what Options.Admit counts; it may be nil.
	release func()
	// granted is what the server acknowledged; nil if it failed with err.
	granted []byte
	err     error
	// records are the records of the resources and tasks for Options.Audit.
	records []*CallRecord
}

// listen serves a subscription until it ends.
func (p *statelessPeer) listen(ctx context.Context, o *bridge.Origin, frame []byte, m *jsonrpc.Message, out rpc.Sender, dst []byte) ([]byte, error) {
	g := p.g
	filter, _ := m.Param("notifications")
	if !era.IsObject(filter) {
		return answerError(ctx, dst, m.ID, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "invalid params: notifications must be an object"})
	}
	if out == nil {
		return answerError(ctx, dst, m.ID, errors.New("a subscription needs a stream"))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sub := &subscription{g: g, id: m.ID, ctx: ctx, out: out, origin: o, ended: make(chan struct{}, 1)}
	p.add(sub)
	defer p.remove(sub)
	parts, err := sub.parts(filter, m)
	if err != nil {
		return answerError(ctx, dst, m.ID, err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for _, part := range parts {
		wg.Go(func() { part.run(ctx, frame, m) })
	}
	timer := time.NewTimer(g.state.Load().opts.ListWait)
	for _, part := range parts {
		select {
		case <-part.settled:
		case <-timer.C:
			timer.Reset(0) // for the other parts
		case <-ctx.Done():
		}
	}
	timer.Stop()
	granted, notifications, refusal := sub.granted(filter, parts)
	if refusal != nil {
		return answerError(ctx, dst, m.ID, refusal)
	}
	// Watch before the acknowledgment, so that no change is missed after it.
	w := g.announcer.add(ctx, bridge.EraModern, notifications, func(n string) {
		sub.send(jsonrpc.AppendNotification(nil, n, append(sub.appendMeta([]byte(`{`)), '}')), bridge.Provenance{})
	})
	defer g.announcer.remove(w)
	sub.acknowledge(granted)
	select {
	case <-sub.ended:
	case <-g.ctx.Done():
	case <-ctx.Done():
		return dst, context.Cause(ctx)
	}
	result := append(sub.appendMeta([]byte(`{"resultType":"complete",`)), '}')
	return jsonrpc.AppendResult(dst, m.ID, result), nil
}

// end ends the subscription with a result.
func (sub *subscription) end() { wait.Signal(sub.ended) }

// appendMeta appends the member _meta with the id of the subscription.
func (sub *subscription) appendMeta(dst []byte) []byte {
	dst = append(dst, `"_meta":{"`+mcp.MetaSubscriptionID+`":`...)
	return append(append(dst, sub.id...), '}')
}

// parts returns the parts of a subscription with a filter, which m requests. Resources and tasks
// that nobody has are not part of it.
func (sub *subscription) parts(filter []byte, m *jsonrpc.Message) ([]*part, error) {
	g := sub.g
	audit := g.state.Load().opts.Audit
	byUpstream := map[*upstream]*part{}
	var list []*part
	add := func(u *upstream) *part {
		p := byUpstream[u]
		if p == nil {
			p = &part{sub: sub, uris: map[string][]byte{}, tasks: map[string][]byte{}, settled: make(chan struct{})}
			p.scope.be = &backend{u: u} // run replaces it
			byUpstream[u] = p
			list = append(list, p)
		}
		return p
	}
	n := 0
	for _, name := range []string{"resourceSubscriptions", "taskIds"} {
		for elements := jsonwire.ArrayElements(era.Lookup(filter, name)); elements.Next(); {
			text, ok := jsonrpc.ID(elements.Value()).Text()
			if n++; n > maxSubscribed {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "invalid params: too many resources or tasks in one subscription"}
			}
			if !ok {
				continue
			}
			var t target
			if name == "taskIds" {
				t.kind = KindTool
				t.upstream, t.own = g.ownTask(sub.ctx, text)
			} else {
				t, _ = g.findResource(sub.ctx, bridge.EraModern, KindResource, text)
			}
			var record *CallRecord
			if audit != nil {
				record = newRecord(sub.ctx, &call{target: t, m: m})
			}
			if t.upstream == nil {
				if record != nil {
					record.Name = text
					record.finish(OutcomeDenied, nil, nil)
					audit(record)
				}
				continue
			}
			p := add(t.upstream)
			if name == "taskIds" {
				p.tasks[t.own] = elements.Value()
			} else {
				p.uris[t.own] = elements.Value()
			}
			if record != nil {
				p.records = append(p.records, record)
			}
		}
	}
	return list, nil
}

// granted returns the filter that the gateway acknowledges, and the notifications about lists in
// it. If nothing but parts was requested and all failed, it returns the error of one.
func (sub *subscription) granted(filter []byte, parts []*part) (granted []byte, notifications []string, err error) {
	granted = []byte{'{'}
	seen := map[string]bool{}
	for i := range kindTexts {
		t := &kindTexts[i]
		if !seen[t.changed] && string(era.Lookup(filter, t.capability+"ListChanged")) == "true" {
			granted = append(granted, `"`+t.capability+`ListChanged":true,`...)
			notifications = append(notifications, t.changed)
		}
		seen[t.changed] = true
	}
	var uris, tasks []byte
	failed := 0
	for _, p := range parts {
		select {
		case <-p.settled:
		default:
			failed++ // too slow
			continue
		}
		if p.err != nil {
			failed, err = failed+1, p.err
			continue
		}
		uris = appendGranted(uris, era.Lookup(p.granted, "resourceSubscriptions"), p.uris)
		tasks = appendGranted(tasks, era.Lookup(p.granted, "taskIds"), p.tasks)
	}
	if len(notifications) > 0 || failed < len(parts) {
		err = nil
	}
	if uris != nil {
		granted = append(append(append(granted, `"resourceSubscriptions":[`...), uris[1:]...), "],"...)
	}
	if tasks != nil {
		granted = append(append(append(granted, `"taskIds":[`...), tasks[1:]...), "],"...)
	}
	if n := len(granted); granted[n-1] == ',' {
		granted = granted[:n-1]
	}
	return append(granted, '}'), notifications, err
}

// appendGranted appends the client's texts of the granted names, each after a comma.
func appendGranted(dst, granted []byte, texts map[string][]byte) []byte {
	for elements := jsonwire.ArrayElements(granted); elements.Next(); {
		name, _ := jsonrpc.ID(elements.Value()).Text()
		if text := texts[name]; text != nil {
			dst = append(append(dst, ','), text...)
		}
	}
	return dst
}

// acknowledge sends the acknowledgment, and what has waited for it.
func (sub *subscription) acknowledge(granted []byte) {
	params := append(sub.appendMeta([]byte{'{'}), `,"notifications":`...)
	params = append(append(params, granted...), '}')
	sub.mu.Lock()
	defer sub.mu.Unlock()
	sub.acknowledged = true
	sub.sendLocked(jsonrpc.AppendNotification(nil, mcp.NotificationAcknowledged, params), bridge.Provenance{})
	for _, m := range sub.waiting {
		sub.sendLocked(m.frame, m.from)
	}
	sub.waiting = nil
}

// maxWaiting limits the notifications that wait for an acknowledgment.
const maxWaiting = 1024

// send sends a notification after the acknowledgment.
func (sub *subscription) send(message []byte, from bridge.Provenance) error {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.acknowledged {
		return sub.sendLocked(message, from)
	}
	if len(sub.waiting) < maxWaiting {
		sub.waiting = append(sub.waiting, waitingMessage{append([]byte(nil), message...), from})
	}
	return nil
}

func (sub *subscription) sendLocked(message []byte, from bridge.Provenance) error {
	sub.origin.Sent(message, from)
	return sub.out.Send(message)
}

// run subscribes at the upstream, until the subscription or its part ends. For the limits, it is a
// call until the server has acknowledged it.
func (p *part) run(ctx context.Context, frame []byte, m *jsonrpc.Message) {
	u := p.scope.be.u
	var err error
	if admit := p.sub.g.state.Load().opts.Admit; admit != nil {
		if p.release, err = admit(ctx, u.name); err != nil {
			p.settle(nil, err)
			return
		}
	}
	be, err := u.acquire(ctx)
	if err != nil {
		p.settle(nil, err)
		return
	}
	defer be.release()
	p.scope = p.sub.g.scope(ctx, be, bridge.EraModern)
	own := jsonedit.Splice(frame, jsonedit.Locate(frame, "params", "notifications"), p.filter())
	if _, err = resultOf(be.stateless.Request(be.callerContext(ctx), own, m, p, nil)); err == nil {
		err = errors.New("the server has ended the subscription")
	}
	if !p.settle(nil, err) && p.err == nil {
		p.sub.end()
	}
}

// filter returns the filter for the upstream.
func (p *part) filter() []byte {
	dst := []byte{'{'}
	for _, list := range []struct {
		name  string
		names map[string][]byte
	}{{"resourceSubscriptions", p.uris}, {"taskIds", p.tasks}} {
		if len(list.names) == 0 {
			continue
		}
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = append(dst, `"`+list.name+`":`...)
		first := byte('[')
		for name := range list.names {
			dst = jsonwire.AppendQuote(append(dst, first), name)
			first = ','
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// settle records the acknowledgment or the failure of the part. It reports if it was the first.
func (p *part) settle(granted []byte, err error) (first bool) {
	p.once.Do(func() {
		first = true
		p.granted, p.err = granted, err
		if p.release != nil {
			p.release()
		}
		p.audit()
		close(p.settled)
	})
	return first
}

// audit records whether the server has granted the resources and tasks.
func (p *part) audit() {
	audit := p.sub.g.state.Load().opts.Audit
	if audit == nil || len(p.records) == 0 {
		return
	}
	granted := map[string]bool{}
	for _, name := range []string{"resourceSubscriptions", "taskIds"} {
		for elements := jsonwire.ArrayElements(era.Lookup(p.granted, name)); elements.Next(); {
			own, _ := jsonrpc.ID(elements.Value()).Text()
			granted[own] = true
		}
	}
	for _, r := range p.records {
		outcome := OutcomeError // the server does not notify of changes of it
		switch {
		case p.err != nil:
			if o := outcomeOfError(p.err); o != OutcomeCanceled || p.sub.ctx.Err() != nil {
				outcome = o
			}
		case granted[r.Name]:
			outcome = OutcomeOK
		}
		r.finish(outcome, nil, p.err)
		audit(r)
	}
}

// Send implements rpc.Sender.
func (p *part) Send(message []byte) error { return p.SendFrom(message, bridge.Provenance{}) }

// SendFrom implements bridge.ProvenanceSender, for the messages of the server.
func (p *part) SendFrom(message []byte, from bridge.Provenance) error {
	m := new(jsonrpc.Message)
	if err := jsonrpc.Parse(message, m, 0); err != nil {
		return err
	}
	if string(m.Method) == mcp.NotificationAcknowledged {
		granted, _ := m.Param("notifications")
		p.settle(append([]byte(nil), granted...), nil)
		return nil
	}
	if m.Kind != jsonrpc.KindNotification || isListChanged(string(m.Method)) || p.scope.hides(m) {
		return nil
	}
	uri, _ := textParam(m, "uri")
	if own := p.uris[uri]; own != nil { // the client may have used the server's own URI
		return p.sub.send(jsonedit.Splice(message, jsonedit.Locate(message, "params", "uri"), own), from)
	}
	return p.sub.send(p.scope.message(message, m), from)
}
