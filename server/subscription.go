package server

import (
	"strings"
	"sync"
	"time"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/internal/wait"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

const (
	maxSubscriptions       = 64   // per connection
	maxSubscribedResources = 1024 // per connection
)

var errTooManySubscribed = jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many resources watched on this connection (limit %d)", maxSubscribedResources)

// subscriptions holds the subscriptions/listen requests of a session.
type subscriptions struct {
	mu     sync.Mutex
	active map[*subscription]struct{}
}

type subscription struct {
	call *Call
	// meta is the _meta of its notifications.
	meta  []byte
	wants listChange
	// uris lists the URIs of resources.
	uris []string
	// tasks lists the ids of tasks.
	tasks []string
}

// listen answers subscriptions/listen: first an acknowledgement with the accepted filter, then
// notifications, and a result when the server ends the subscription
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions). The page
// on cancellation also asks for a notifications/cancelled. The server sends none: clients treat it
// as an abrupt end before the result, and ignore it after.
func (s *session) listen(c *Call, r *rpc.Request, dst []byte) ([]byte, error) {
	filter, ok := r.Param("notifications")
	if !ok || filter[0] != '{' {
		return dst, invalidParams("params.notifications must be an object")
	}
	if s.stateless != nil {
		return s.stateless.listenInOwnSession(c, r, dst)
	}
	sub := &subscription{call: c, meta: append(append([]byte(`{"`+mcp.MetaSubscriptionID+`":`), r.ID...), '}')}
	if err := s.readFilter(sub, c.view, filter); err != nil {
		return dst, err
	}
	if err := s.subscribeTo(sub); err != nil {
		return dst, err
	}
	end := func(dst []byte) []byte {
		s.subs.remove(sub)
		s.unsubscribeTasks(sub.tasks)
		s.unsubscribeURIs(sub.uris)
		return s.srv.results.Empty(dst, c.ex.Features, sub.meta)
	}
	if r.MayDefer() && s.srv.chain == nil { // middleware must see the end
		return dst, &rpc.Deferred{Result: end}
	}
	select {
	case <-sub.call.Done(): // canceled: the response is not sent
	case <-s.peer.conn.Draining():
	}
	return end(dst), nil
}

// subscribeTo registers and acknowledges the subscription.
func (s *session) subscribeTo(sub *subscription) (err error) {
	if err := s.subscribeURIs(sub.uris); err != nil {
		return err
	}
	if sub.tasks, err = s.subscribeTasks(sub.call, sub.tasks); err == nil {
		if err = s.subs.add(sub); err != nil {
			s.unsubscribeTasks(sub.tasks)
		}
	}
	if err != nil {
		s.unsubscribeURIs(sub.uris)
	}
	return err
}

// readFilter reads the parts of the filter that the server supports.
func (s *session) readFilter(sub *subscription, v *View, filter []byte) (err error) {
	members := jsonwire.ObjectMembers(filter)
	for members.Next() {
		switch {
		case string(members.Value()) == "null": // as if absent
			continue
		case members.KeyIs("resourceSubscriptions"):
			uris, ok := stringArray(members.Value())
			if !ok {
				return invalidParams("params.notifications.resourceSubscriptions must be an array of URIs")
			}
			if sub.uris, err = s.subscribable(v, uris); err != nil {
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
		for _, c := range listChanges {
			if members.KeyIs(c.member) && string(members.Value()) == "true" && s.srv.advertises(c.bit) {
				sub.wants |= c.bit
			}
		}
	}
	return nil
}

// appendFilter appends the accepted filter for the acknowledgement.
func (s *subscription) appendFilter(dst []byte) []byte {
	dst = append(dst, `,"notifications":{`...)
	start := len(dst)
	for _, c := range listChanges {
		if s.wants&c.bit != 0 {
			dst = append(jsonwire.AppendQuote(dst, c.member), ":true,"...)
		}
	}
	dst = appendStrings(dst, `"resourceSubscriptions":[`, s.uris)
	dst = appendStrings(dst, `"taskIds":[`, s.tasks)
	if len(dst) > start {
		dst = dst[:len(dst)-1]
	}
	return append(dst, '}')
}

// appendStrings appends an array member and a comma, unless the array is empty.
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

// params returns the params of a notification. Each of the other members must have a comma before
// it.
func (s *subscription) params(members []byte) []byte {
	return append(append(append([]byte(`{"_meta":`), s.meta...), members...), '}')
}

// add acknowledges the subscription before it enables notifications.
func (ss *subscriptions) add(sub *subscription) error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if len(ss.active) >= maxSubscriptions {
		return jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many subscriptions on this connection (limit %d)", maxSubscriptions)
	}
	if err := sub.call.Notify(mcp.NotificationAcknowledged, sub.params(sub.appendFilter(nil))); err != nil {
		return err
	}
	if ss.active == nil {
		ss.active = make(map[*subscription]struct{})
	}
	ss.active[sub] = struct{}{}
	return nil
}

func (ss *subscriptions) remove(sub *subscription) {
	ss.mu.Lock()
	delete(ss.active, sub)
	ss.mu.Unlock()
}

// covers reports whether a subscription to a resource includes an updated one: the same resource,
// or one below it.
func covers(subscribed, updated string) bool {
	rest, ok := strings.CutPrefix(updated, subscribed)
	return ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(subscribed, "/"))
}

// subscribable returns the URIs that the caller can read, without duplicates.
func (s *session) subscribable(v *View, uris []string) (list []string, err error) {
	if len(uris) > maxSubscribedResources {
		return nil, errTooManySubscribed
	}
	seen := make(map[string]struct{})
	for _, uri := range uris {
		if _, ok := seen[uri]; !ok && s.srv.resources.has(v, uri) {
			list = append(list, uri)
		}
		seen[uri] = struct{}{}
	}
	return list, nil
}

// subscribeURIs counts subscriptions to resources.
func (s *session) subscribeURIs(uris []string) error {
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	if len(s.subscribedURIs)+len(uris) > maxSubscribedResources {
		return errTooManySubscribed
	}
	if s.subscribedURIs == nil {
		s.subscribedURIs = make(map[string]int)
	}
	for _, uri := range uris {
		s.subscribedURIs[uri]++
	}
	return nil
}

func (s *session) unsubscribeURIs(uris []string) {
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	for _, uri := range uris {
		if s.subscribedURIs[uri]--; s.subscribedURIs[uri] <= 0 {
			delete(s.subscribedURIs, uri)
		}
	}
}

// subscribe answers resources/subscribe of legacy clients. Repeating it has no effect. Modern
// clients list resources in subscriptions/listen.
// (https://modelcontextprotocol.io/specification/2025-11-25/server/resources#subscriptions)
func (s *session) subscribe(c *Call, r *rpc.Request, dst []byte) ([]byte, error) {
	_, uri, err := s.srv.resources.param(r)
	if err != nil {
		return dst, err
	}
	if !s.srv.resources.has(c.view, uri) {
		return dst, mcp.ResourceNotFound(uri, c.ex.Revision)
	}
	subs := &s.legacySubs
	subs.mu.Lock()
	defer subs.mu.Unlock()
	if _, ok := subs.uris[uri]; !ok {
		if err := s.subscribeURIs([]string{uri}); err != nil {
			return dst, err
		}
		if subs.uris == nil {
			subs.uris = make(map[string]*View)
		}
		subs.uris[uri] = c.view
	}
	return s.srv.results.Empty(dst, c.ex.Features, nil), nil
}

// unsubscribe answers resources/unsubscribe. It ignores URIs without a subscription, whose resource
// may be gone.
func (s *session) unsubscribe(c *Call, r *rpc.Request, dst []byte) ([]byte, error) {
	uri, err := stringParam(r, "uri")
	if err != nil {
		return dst, err
	}
	subs := &s.legacySubs
	subs.mu.Lock()
	defer subs.mu.Unlock()
	if _, ok := subs.uris[uri]; ok {
		delete(subs.uris, uri)
		s.unsubscribeURIs([]string{uri})
	}
	return s.srv.results.Empty(dst, c.ex.Features, nil), nil
}

// pendingNotifications are the notifications that a session has not sent yet. They are guarded by
// Server.mu.
type pendingNotifications struct {
	changed listChange
	// updated holds the URIs of updated resources.
	updated map[string]struct{}
	// elicitations holds the ids of finished elicitations with web pages.
	elicitations []string
	// tasks holds the ids of changed tasks.
	tasks map[string]struct{}
	// sending is set while the notifier goroutine runs.
	sending bool
}

// announce notifies all sessions of a list change, here and, through the bus, at other servers. It
// does not block.
func (s *Server) announce(c listChange) {
	s.announceLocal(c)
	for _, l := range listChanges {
		if l.bit == c {
			s.bus.publish(Event{Kind: l.event})
		}
	}
}

func (s *Server) announceLocal(c listChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sess := range s.sessions {
		sess.pending.changed |= c
		sess.startNotifierLocked()
	}
}

// ResourceUpdated notifies the clients that are subscribed to the resource, or to one that contains
// it, of an update. It does not wait for them. Updates in quick succession are merged.
// (https://modelcontextprotocol.io/specification/2026-07-28/server/resources#subscriptions)
func (s *Server) ResourceUpdated(uri string) {
	s.resourceUpdatedLocal(uri)
	s.bus.publish(Event{Kind: ResourceUpdated, Name: uri})
}

func (s *Server) resourceUpdatedLocal(uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sess := range s.sessions {
		if anyCovers(sess.subscribedURIs, uri) && len(sess.pending.updated) < maxPendingUpdates {
			if sess.pending.updated == nil {
				sess.pending.updated = make(map[string]struct{})
			}
			sess.pending.updated[uri] = struct{}{}
			sess.startNotifierLocked()
		}
	}
}

// anyCovers reports whether a subscription to one of the resources includes uri. It is like covers,
// without a loop over the subscriptions.
func anyCovers(subscribed map[string]int, uri string) bool {
	if subscribed[uri] > 0 {
		return true
	}
	for i := range len(uri) {
		if uri[i] == '/' && (subscribed[uri[:i]] > 0 || subscribed[uri[:i+1]] > 0) {
			return true
		}
	}
	return false
}

// maxPendingUpdates limits the pending updates of a session whose peer does not read. Further ones
// are lost.
const maxPendingUpdates = 4096

// startNotifierLocked starts the notifier goroutine unless it runs. The caller must hold Server.mu.
func (s *session) startNotifierLocked() {
	if !s.pending.sending {
		s.pending.sending = true
		s.notifier.Go(s.sendPending)
	}
}

// sendPending sends notifications until none are pending. Changes in quick succession, or while the
// peer does not read, are merged.
func (s *session) sendPending() {
	for {
		n := s.takePending()
		if n.empty() {
			return
		}
		s.sendNotifications(n)
	}
}

func (s *session) takePending() pendingNotifications {
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	n := s.pending
	s.pending = pendingNotifications{sending: !n.empty()}
	return n
}

func (pn *pendingNotifications) empty() bool {
	return pn.changed == 0 && len(pn.updated) == 0 && len(pn.elicitations) == 0 && len(pn.tasks) == 0
}

func (s *session) sendNotifications(n pendingNotifications) {
	for _, c := range listChanges {
		if n.changed&c.bit != 0 {
			s.notifyListChanged(c.bit, c.notification)
		}
	}
	for uri := range n.updated {
		s.notifyUpdated(uri)
	}
	for id := range n.tasks {
		s.notifyTask(id)
	}
	for _, id := range n.elicitations {
		s.notifyElicitationComplete(id)
	}
}

func (s *session) notifyListChanged(c listChange, notification string) {
	if s.handshake.era.Legacy() != nil {
		s.peer.notify(notification, nil)
	}
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	for sub := range s.subs.active {
		if sub.wants&c != 0 {
			s.peer.logDropped(notification, sub.call.Notify(notification, sub.params(nil)))
		}
	}
}

func (s *session) notifyUpdated(uri string) {
	member := jsonwire.AppendQuote([]byte(`"uri":`), uri)
	if s.legacySubscribed(uri) {
		s.peer.notify(mcp.NotificationResourceUpdated, append(append([]byte{'{'}, member...), '}'))
	}
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	for sub := range s.subs.active {
		for _, subscribed := range sub.uris {
			if covers(subscribed, uri) && !s.srv.resources.hides(sub.call.view, uri) {
				s.peer.logDropped(mcp.NotificationResourceUpdated, sub.call.Notify(mcp.NotificationResourceUpdated, sub.params(append([]byte{','}, member...))))
				break
			}
		}
	}
}

// notifierTimeout limits how long the end of a session waits for its notifier goroutine. A write
// that cannot be interrupted is abandoned.
const notifierTimeout = time.Second

// waitNotifier waits for the notifier goroutine of a session that has ended and is untracked.
func (s *session) waitNotifier() {
	s.srv.mu.Lock()
	sending := s.pending.sending
	s.srv.mu.Unlock()
	if !sending {
		return
	}
	if !wait.Timeout(notifierTimeout, s.notifier.Wait) {
		s.log.Warn("a write cannot be interrupted: its goroutine leaks")
	}
}

// legacySubscriptions holds the resources that a legacy client has subscribed to with
// resources/subscribe, each with the client's View at that time.
type legacySubscriptions struct {
	mu   sync.Mutex
	uris map[string]*View
}

func (s *session) legacySubscribed(uri string) bool {
	s.legacySubs.mu.Lock()
	defer s.legacySubs.mu.Unlock()
	for subscribed, view := range s.legacySubs.uris {
		if covers(subscribed, uri) && !s.srv.resources.hides(view, uri) {
			return true
		}
	}
	return false
}
