package server

import (
	"strings"
	"sync"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

const (
	maxSubscriptions = 64   // of one connection
	maxWatched       = 1024 // resources that one connection may watch
)

var errWatched = jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many resources watched on this connection (limit %d)", maxWatched)

// subscriptions are the subscriptions/listen requests of a session.
type subscriptions struct {
	mu   sync.Mutex
	open map[*subscription]struct{}
}

type subscription struct {
	ctx   *Call
	meta  []byte // the _meta that its notifications carry
	wants change
	uris  []string // of resources
	tasks []string // ids
}

// listen answers subscriptions/listen: first an acknowledgement that says what will be told, then what happens, and a result when the server ends it
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions). The page on cancellation asks for a
// notifications/cancelled besides. Clients take that for an abrupt end if it comes before the result, and for nothing behind it, so there is none.
func (s *session) listen(c *Call, r *jsonrpc.Request, dst []byte) ([]byte, error) {
	filter, ok := r.Param("notifications")
	if !ok || filter[0] != '{' {
		return dst, invalidParams("params.notifications must be an object")
	}
	if s.shared != nil {
		return s.shared.listenAlone(c, r, dst)
	}
	sub := &subscription{ctx: c, meta: append(append([]byte(`{"`+mcp.MetaSubscriptionID+`":`), r.ID...), '}')}
	if err := s.readFilter(sub, c.view, filter); err != nil {
		return dst, err
	}
	if err := s.subscribeTo(sub); err != nil {
		return dst, err
	}
	end := func(dst []byte) []byte {
		s.subs.remove(sub)
		s.unwatchTasks(sub.tasks)
		s.unwatch(sub.uris)
		return s.srv.identity.Empty(dst, c.ex.Features, sub.meta)
	}
	if r.MayStand() && s.srv.chain == nil { // middleware has to see the end
		return dst, &jsonrpc.Outstanding{End: end}
	}
	select {
	case <-sub.ctx.Done(): // it was cancelled: nothing is sent
	case <-s.conn.Ending():
	}
	return end(dst), nil
}

// subscribeTo begins to watch what the subscription is about, and acknowledges it.
func (s *session) subscribeTo(sub *subscription) (err error) {
	if err := s.watch(sub.uris); err != nil {
		return err
	}
	if sub.tasks, err = s.watchTasks(sub.ctx, sub.tasks); err == nil {
		if err = s.subs.add(sub); err != nil {
			s.unwatchTasks(sub.tasks)
		}
	}
	if err != nil {
		s.unwatch(sub.uris)
	}
	return err
}

// readFilter takes from the filter what the server honours.
func (s *session) readFilter(sub *subscription, v *View, filter []byte) (err error) {
	members := jsonwire.ObjectMembers(filter)
	for members.Next() {
		switch {
		case string(members.Value()) == "null": // as if it were absent
			continue
		case members.KeyIs("resourceSubscriptions"):
			uris, ok := stringArray(members.Value())
			if !ok {
				return invalidParams("params.notifications.resourceSubscriptions must be an array of URIs")
			}
			if sub.uris, err = s.watchable(v, uris); err != nil {
				return err
			}
			continue
		case members.KeyIs("taskIds"):
			var ok bool
			if sub.tasks, ok = stringArray(members.Value()); !ok {
				return invalidParams("params.notifications.taskIds must be an array of task ids")
			}
			continue
		}
		for _, c := range changes {
			if members.KeyIs(c.member) && string(members.Value()) == "true" && s.srv.declares(c.bit) {
				sub.wants |= c.bit
			}
		}
	}
	return nil
}

// honoured appends the filter that the acknowledgement echoes.
func (b *subscription) honoured(dst []byte) []byte {
	dst = append(dst, `,"notifications":{`...)
	start := len(dst)
	for _, c := range changes {
		if b.wants&c.bit != 0 {
			dst = append(jsonwire.AppendQuote(dst, c.member), ":true,"...)
		}
	}
	dst = appendStrings(dst, `"resourceSubscriptions":[`, b.uris)
	dst = appendStrings(dst, `"taskIds":[`, b.tasks)
	if len(dst) > start {
		dst = dst[:len(dst)-1]
	}
	return append(dst, '}')
}

// appendStrings appends a member that is an array, and a comma, unless the array is empty.
func appendStrings(dst []byte, head string, list []string) []byte {
	if len(list) == 0 {
		return dst
	}
	dst = append(dst, head...)
	for i, text := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonwire.AppendQuote(dst, text)
	}
	return append(dst, "],"...)
}

// stringArray reads the text of an array of strings.
func stringArray(text []byte) (list []string, ok bool) {
	if text[0] != '[' {
		return nil, false
	}
	elements := jsonwire.ArrayElements(text)
	for elements.Next() {
		v := elements.Value()
		if v[0] != '"' {
			return nil, false
		}
		list = append(list, jsonwire.UnquoteString(v[1:len(v)-1]))
	}
	return list, true
}

// params returns the params of one of its notifications, with other members, each with a comma before it.
func (b *subscription) params(members []byte) []byte {
	return append(append(append([]byte(`{"_meta":`), b.meta...), members...), '}')
}

// add acknowledges the subscription, and only then lets notifications follow.
func (l *subscriptions) add(b *subscription) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= maxSubscriptions {
		return jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many subscriptions on this connection (limit %d)", maxSubscriptions)
	}
	if err := b.ctx.Notify(mcp.NotificationAcknowledged, b.params(b.honoured(nil))); err != nil {
		return err
	}
	if l.open == nil {
		l.open = make(map[*subscription]struct{})
	}
	l.open[b] = struct{}{}
	return nil
}

func (l *subscriptions) remove(b *subscription) {
	l.mu.Lock()
	delete(l.open, b)
	l.mu.Unlock()
}

// watches reports whether one who watches a resource is told of an update of another: the same one, or one below it.
func watches(watched, updated string) bool {
	rest, ok := strings.CutPrefix(updated, watched)
	return ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(watched, "/"))
}

// watchable returns those of the URIs that the caller can read, each once.
func (s *session) watchable(v *View, uris []string) (list []string, err error) {
	if len(uris) > maxWatched {
		return nil, errWatched
	}
	seen := make(map[string]struct{})
	for _, uri := range uris {
		if _, ok := seen[uri]; !ok && s.srv.hasResource(v, uri) {
			list = append(list, uri)
		}
		seen[uri] = struct{}{}
	}
	return list, nil
}

// watch counts resources that the peer wants to hear of.
func (s *session) watch(uris []string) error {
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	if len(s.watched)+len(uris) > maxWatched {
		return errWatched
	}
	if s.watched == nil {
		s.watched = make(map[string]int)
	}
	for _, uri := range uris {
		s.watched[uri]++
	}
	return nil
}

func (s *session) unwatch(uris []string) {
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	for _, uri := range uris {
		if s.watched[uri]--; s.watched[uri] <= 0 {
			delete(s.watched, uri)
		}
	}
}
