package translate

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

const (
	statePurpose = "bridge request state 1"
	maxState     = 1 << 10 // bytes of a sealed state
)

// ask answers a request of the client with the server's questions. The call to the server stays open.
func (t *ModernClient) ask(r *errand) {
	x := r.near
	if x == nil || len(r.fresh) == 0 {
		return
	}
	t.later.stop(r.gather)
	r.round++
	r.open = append(r.open, r.fresh...)
	r.fresh = nil
	result := []byte(`{"inputRequests":{`)
	var of []uint64
	for i, q := range r.open {
		of = append(of, q.mark)
		if i > 0 {
			result = append(result, ',')
		}
		result = q.appendTo(result, q.key)
	}
	plain := binary.AppendUvarint(binary.AppendUvarint(nil, r.number), uint64(r.round))
	state, _, err := t.opts.Ring.Seal(nil, statePurpose, plain, t.bind(r))
	if err != nil {
		t.giveUp(r, "the bridge cannot seal")
		t.fail(x, internal("the request state cannot be sealed"), "refused")
		return
	}
	result = jsonwire.AppendQuote(append(result, `},"requestState":`...), state)
	result = append(result, `,"resultType":"`+mcp.ResultTypeInputRequired+`"`...)
	if t.server.info != nil {
		result = append(append(result, `,"_meta":{"`+mcp.MetaServerInfo+`":`...), t.server.info...)
		result = append(result, '}')
	}
	t.hold(r)
	t.reply(x, append(result, '}'), r.open[0].Method+" → input_required", of...)
}

// hold keeps an errand for a client that is away. Beyond the limit the one that waits for the longest is given up.
func (t *ModernClient) hold(r *errand) {
	if len(t.held) >= t.opts.Limits.Held {
		var oldest *errand
		for _, one := range t.held {
			if oldest == nil || one.giveUp.at.Before(oldest.giveUp.at) || one.giveUp.at.Equal(oldest.giveUp.at) && one.number < oldest.number {
				oldest = one
			}
		}
		t.giveUp(oldest, "too many clients did not come back")
	}
	t.held[r.number] = r
	r.giveUp = t.after(t.opts.Limits.HoldFor, func() { t.giveUp(r, "the client did not come back") })
	t.doubtLater(r)
}

// doubtLater has the questions of an errand doubted from time to time while its client is away.
func (t *ModernClient) doubtLater(r *errand) {
	r.doubt = t.after(max(t.opts.Limits.HoldFor/5, time.Second), func() {
		t.doubt(r)
		t.doubtLater(r)
	})
}

var errState = &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "invalid params: params.requestState is not valid for this request, or not any more: " +
	"start over without requestState and inputResponses"}

// resume takes a request that brings answers, and has the server go on.
func (t *ModernClient) resume(x *exchange, m *jsonrpc.Message, state []byte) {
	r := t.heldFor(m, state)
	if r == nil {
		t.fail(x, errState, "requestState refused")
		return
	}
	answers, ok := m.Param("inputResponses")
	if ok && string(answers) != "null" && !era.IsObject(answers) {
		t.fail(x, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: inputResponses is no object"), "refused")
		return
	}
	given := make(map[*question][]byte)
	for _, q := range r.open {
		v := era.Lookup(answers, q.key)
		if v == nil {
			continue
		}
		if err := q.CheckAnswer(v); err != nil {
			t.fail(x, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: inputResponses has %s under %s", err, q.key), "refused")
			return
		}
		given[q] = v
	}
	delete(t.held, r.number)
	t.later.stop(r.giveUp)
	t.later.stop(r.doubt)
	r.near, x.errand = x, r
	asked := r.open
	r.open = nil
	for _, q := range asked {
		v := given[q]
		if v == nil {
			r.fresh = append(r.fresh, q)
			continue
		}
		if q.page && era.LookupString(v, "action") != "accept" {
			r.refused = true
		}
		t.answerFar(q, q.Answer(v, t.legacyFeatures()), "inputResponses → "+q.Method)
	}
	t.goOn(r)
}

// legacyFeatures are those of the server, or of the latest legacy revision.
func (t *ModernClient) legacyFeatures() *era.Features {
	if t.server.features != nil {
		return t.server.features
	}
	return era.Of(t.opts.Legacy)
}

// goOn does what comes next for an errand whose client is back.
func (t *ModernClient) goOn(r *errand) {
	switch {
	case r.result != nil:
		asked := r.fresh
		r.fresh = nil
		for _, q := range asked {
			if q.guessed {
				r.fresh = append(r.fresh, q) // for other requests
			} else {
				t.leave(q)
			}
		}
		t.deliver(r, *r.result)
	case r.refused:
		x := r.near
		t.release(r)
		t.fail(x, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "the server requires a page to be opened, which the user declined"), "refused")
	case len(r.fresh) > 0:
		t.adoptOrphans(r)
		t.ask(r)
	case r.unsent:
		t.whenReady(r.near, func() { t.begin(r) })
	case r.id == 0: // the server is gone, and with it the call
		t.deliver(r, answer{err: internal("the session with the server was lost while the client answered")})
	default:
		if t.adoptOrphans(r); len(r.fresh) > 0 {
			r.gather = t.after(t.opts.Limits.Gather, func() { t.ask(r) })
		}
	}
}

// heldFor returns the errand that a state belongs to, nil if the state is not valid for the request, or not any more.
func (t *ModernClient) heldFor(m *jsonrpc.Message, state []byte) *errand {
	text, ok := jsonrpc.ID(state).Text()
	if !ok {
		return nil
	}
	plain, _, err := t.opts.Ring.Open(text, maxState, statePurpose, t.boundTo(string(m.Method), m.Params))
	if err != nil {
		return nil
	}
	number, n := binary.Uvarint(plain)
	if n <= 0 {
		return nil
	}
	round, _ := binary.Uvarint(plain[n:])
	r := t.held[number]
	if r == nil || uint64(r.round) != round {
		return nil
	}
	return r
}

// bind finds out what states of the errand are good for, once: few are ever asked for, and it takes a look at all params. It must be called before these change.
func (t *ModernClient) bind(r *errand) []byte {
	if r.bound == nil {
		r.bound = t.boundTo(r.method, r.params)
	}
	return r.bound
}

// boundTo returns what a request's states are good for: this session, the method, and the params but for those that differ between the rounds or mean nothing: what
// [plainParams] leaves of them gives the same.
func (t *ModernClient) boundTo(method string, params []byte) []byte {
	byKey := make(map[string][]byte)
	members := jsonwire.ObjectMembers(params)
	for members.Next() {
		switch key := members.KeyString(); {
		case key == "_meta", key == "inputResponses", key == "requestState", key == "task" && method == mcp.MethodToolsCall:
		default:
			byKey[key] = members.Value()
		}
	}
	h := sha256.New()
	var buf []byte
	for _, text := range []string{t.nonce, method} {
		buf = append(binary.AppendUvarint(buf, uint64(len(text))), text...)
	}
	h.Write(buf)
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		buf = jsonwire.AppendCompact(append(jsonwire.AppendQuote(buf[:0], key), ':'), byKey[key])
		h.Write(append(buf, ','))
	}
	return h.Sum(nil)
}
