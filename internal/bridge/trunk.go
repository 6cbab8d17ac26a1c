package bridge

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"mcpwire/internal/translate"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A trunk is the user of a line to a modern server that clients of both eras share. The server keeps nothing between requests, so that all that has to be kept apart is whose
// they are, which their ids tell.
type trunk struct {
	*commons
	line *line
	ids  atomic.Int64 // of requests to the server

	mu       sync.Mutex
	plain    *plain // of modern clients, all of them; nil as long as there was none
	branches map[*translated]struct{}
	calls    map[int64]branch // of legacy clients, under way
	ended    bool
}

// A branch is whose a request is.
type branch struct {
	of     *translated
	hears  mcp.LoggingLevel // of log messages; LevelNone is none
	silent bool             // it is a subscription, which nothing belongs to that does not say so
}

func newTrunk(s *commons, l *line) *trunk {
	k := &trunk{commons: s, branches: map[*translated]struct{}{}, calls: map[int64]branch{}, line: l}
	if l == nil {
		k.line = s.b.prepareLine(k)
		s.b.wg.Go(k.line.run)
	} else {
		l.hand(k, nil)
	}
	return k
}

// admit implements sharer.
func (k *trunk) admit(cl *client, near Era) party {
	k.mu.Lock()
	defer k.mu.Unlock()
	if near == EraLegacy {
		p := prepareTranslated(k.b, translate.NewLegacyToModern(&translate.Options{IDs: &k.ids}))
		p.members[cl] = struct{}{}
		p.line, p.trunk, p.over = k.line, k, k.ended
		k.branches[p] = struct{}{}
		return p
	}
	p := k.plainLocked()
	p.join(cl)
	return p
}

// plainLocked returns what modern clients talk to, and the bridge itself.
func (k *trunk) plainLocked() *plain {
	if k.plain == nil {
		k.plain = newPlain(k.b, true)
		k.plain.line, k.plain.commons, k.plain.ids, k.plain.over = k.line, k.commons, &k.ids, k.ended
	}
	return k.plain
}

// end implements sharer.
func (k *trunk) end() { k.line.close() }

// isUp implements sharer.
func (k *trunk) isUp() bool { return k.line.isUp() }

// alive implements sharer.
func (k *trunk) alive(ctx context.Context) error {
	k.mu.Lock()
	p := k.plainLocked()
	k.mu.Unlock()
	return p.alive(ctx)
}

// own notes whose a request is that is about to be sent.
func (k *trunk) own(id int64, p *translated, frame []byte) {
	level, _ := mcp.ParseLoggingLevel(text(locate(frame, "params", "_meta", mcp.MetaLogLevel).of(frame)))
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls[id] = branch{p, level, text(locate(frame, "method").of(frame)) == mcp.MethodSubscriptionsListen}
}

// disown forgets a request that was given up.
func (k *trunk) disown(id int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.calls, id)
}

// leave forgets a client.
func (k *trunk) leave(p *translated) {
	k.mu.Lock()
	delete(k.branches, p)
	maps.DeleteFunc(k.calls, func(_ int64, one branch) bool { return one.of == p })
	k.mu.Unlock()
	k.left()
}

// all returns those whom something is told that concerns the connection.
func (k *trunk) all() (all []user) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.plain != nil {
		all = append(all, k.plain)
	}
	for p := range k.branches {
		all = append(all, p)
	}
	return all
}

// received implements user.
func (k *trunk) received(frame []byte, m *jsonrpc.Message, from origin) {
	id, says := translate.Route(frame)
	if !says {
		id, says = intOf(from.call)
	}
	k.mu.Lock()
	to, legacy := k.calls[id]
	p := k.plain
	if over := len(m.Method) == 0 || string(m.Method) == mcp.NotificationCancelled; legacy && over {
		delete(k.calls, id)
	}
	k.mu.Unlock()
	switch {
	case legacy:
		to.of.received(frame, m, from)
	case !says && m.Kind == jsonrpc.KindNotification:
		k.unrouted(frame, m, from)
	case p != nil:
		p.received(frame, m, from)
	default:
		from.lane.record(toClient, frame)
		k.b.metrics.strays.Add(1)
	}
}

// unrouted hands on what does not say whose it is: to the client that it must be of, and to nobody if it may be that of several.
func (k *trunk) unrouted(frame []byte, m *jsonrpc.Message, from origin) {
	level, isLog := levelOf(m)
	found := map[*translated]struct{}{}
	k.mu.Lock()
	for _, one := range k.calls {
		if !one.silent && (!isLog || one.hears != mcp.LevelNone && level >= one.hears) {
			found[one.of] = struct{}{}
		}
	}
	p := k.plain
	k.mu.Unlock()
	modern := 0
	if p != nil {
		modern = len(p.talking(m))
	}
	switch {
	case modern == 1 && len(found) == 0:
		p.received(frame, m, from)
	case modern == 0 && len(found) == 1:
		for one := range found {
			one.received(frame, m, from)
		}
	default:
		event := from.lane.record(toClient, frame)
		k.line.lane.note("message " + strconv.FormatUint(event, 10) + " goes no further: nothing says which client it is for")
	}
}

// callFailed implements user.
func (k *trunk) callFailed(id jsonrpc.ID, err error) {
	n, _ := intOf(id)
	k.mu.Lock()
	to, legacy := k.calls[n]
	delete(k.calls, n)
	p := k.plain
	k.mu.Unlock()
	if legacy {
		to.of.callFailed(id, err)
	} else if p != nil {
		p.callFailed(id, err)
	}
}

// missed implements user.
func (k *trunk) missed() {
	for _, u := range k.all() {
		u.missed()
	}
}

// connected implements user.
func (k *trunk) connected(ctx context.Context) (err error) {
	for _, u := range k.all() {
		err = errors.Join(err, u.connected(ctx))
	}
	return err
}

// disconnected implements user. Each is told which of its own requests were not sent.
func (k *trunk) disconnected(err error, unsent []item) {
	k.mu.Lock()
	k.ended = k.ended || err == errLineClosed
	p := k.plain
	of := map[*translated][]item{}
	for one := range k.branches {
		of[one] = nil
	}
	unsent = slices.DeleteFunc(unsent, func(it item) bool {
		n, ok := intOf(it.id)
		one, legacy := k.calls[n]
		if ok && legacy {
			of[one.of] = append(of[one.of], it)
		}
		return ok && legacy
	})
	clear(k.calls)
	k.mu.Unlock()
	if p != nil {
		p.disconnected(err, unsent)
	}
	for one, items := range of {
		one.disconnected(err, items)
	}
}

// needed implements user.
func (k *trunk) needed() bool {
	return slices.ContainsFunc(k.all(), user.needed)
}
