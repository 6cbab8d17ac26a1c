package server

import (
	"context"
	"sync"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// subscriptions are the subscriptions/listen requests of a session.
type subscriptions struct {
	mu    sync.Mutex
	count int
	tools map[*subscription]struct{} // those that want to hear of changes to the tools
}

type subscription struct {
	ctx  jsonrpc.Context
	meta []byte // the _meta that its notifications carry
}

// listen answers subscriptions/listen: first an acknowledgement that says what will be told, then what happens, and a result when the server ends it
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions). The page on cancellation asks for a
// notifications/cancelled besides. Clients take that for an abrupt end if it comes before the result, and for nothing behind it, so there is none.
func (s *session) listen(r *jsonrpc.Request, ex era.Exchange, dst []byte) ([]byte, error) {
	filter, ok := r.Param("notifications")
	if !ok || filter[0] != '{' {
		return dst, invalidParams("params.notifications must be an object")
	}
	wantsTools := false
	members := jsonwire.ObjectMembers(filter)
	for members.Next() {
		if members.KeyIs("toolsListChanged") {
			wantsTools = string(members.Value()) == "true"
		}
	}
	sub := &subscription{meta: append(append([]byte(`{"`+mcp.MetaSubscriptionID+`":`), r.ID...), '}')}
	r.InitContext(&sub.ctx, ex.Meta.Trace)
	if err := s.subs.open(sub, wantsTools); err != nil {
		return dst, err
	}
	defer s.subs.close(sub)
	select {
	case <-sub.ctx.Done(): // it was cancelled: nothing is sent
	case <-s.conn.Ending():
	}
	return s.srv.identity.Empty(dst, ex.Features, sub.meta), nil
}

// params returns the params of one of its notifications, with another member or "".
func (b *subscription) params(member string) []byte {
	return append(append(append([]byte(`{"_meta":`), b.meta...), member...), '}')
}

// open acknowledges the subscription, and only then lets notifications follow.
func (l *subscriptions) open(b *subscription, wantsTools bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count >= maxSubscriptions {
		return jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many subscriptions on this connection (limit %d)", maxSubscriptions)
	}
	honoured := `,"notifications":{}`
	if wantsTools {
		honoured = `,"notifications":{"toolsListChanged":true}`
	}
	if err := b.ctx.Notify(mcp.NotificationAcknowledged, b.params(honoured)); err != nil {
		return err
	}
	l.count++
	if wantsTools {
		if l.tools == nil {
			l.tools = make(map[*subscription]struct{})
		}
		l.tools[b] = struct{}{}
	}
	return nil
}

func (l *subscriptions) close(b *subscription) {
	l.mu.Lock()
	l.count--
	delete(l.tools, b)
	l.mu.Unlock()
}

// announce tells every session that the list of tools has changed. It does not wait for anybody.
func (s *Server) announce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for x := range s.sessions {
		x.changed = true
		if !x.telling {
			x.telling = true
			x.announcer.Go(x.announce)
		}
	}
}

// announce tells the peer until there is nothing left to tell. Changes in quick succession, or while the peer does not read, are told once.
func (s *session) announce() {
	for s.takeChange() {
		s.tellChange()
	}
}

// announcerPatience is how long the end of a session waits for its announcer: a write that nothing can interrupt leaves it behind.
const announcerPatience = time.Second

// waitAnnouncer waits for the announcer of a session that has ended, and is not among the server's any more.
func (s *session) waitAnnouncer() {
	s.srv.mu.Lock()
	telling := s.telling
	s.srv.mu.Unlock()
	if !telling {
		return
	}
	gone := make(chan struct{})
	go func() {
		s.announcer.Wait()
		close(gone)
	}()
	select {
	case <-gone:
	case <-time.After(announcerPatience):
		s.log.Warn("a write cannot be interrupted, and is left behind")
	}
}

func (s *session) takeChange() bool {
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	taken := s.changed
	s.changed, s.telling = false, taken
	return taken
}

func (s *session) tellChange() {
	if s.era.Legacy() != nil {
		if err := s.conn.Notify(context.Background(), mcp.NotificationToolsChanged, nil); err != nil {
			s.log.Debug("list_changed not sent", "error", err)
		}
	}
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	for b := range s.subs.tools {
		if err := b.ctx.Notify(mcp.NotificationToolsChanged, b.params("")); err != nil {
			s.log.Debug("list_changed not sent", "error", err)
		}
	}
}
