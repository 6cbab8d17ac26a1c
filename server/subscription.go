package server

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpwire/internal/base/sparse"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

const (
	maxSubscriptions       = 64   // per connection
	maxSubscribedResources = 1024 // per connection
)

var errTooManySubscribed = jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many resources watched on this connection (limit %d)", maxSubscribedResources)

// subscriptions holds what the client of a session is subscribed to: by subscriptions/listen, or by
// resources/subscribe in legacy revisions.
type subscriptions struct {
	peer      *peer
	resources *resourceSet
	tasks     *taskServer

	// uris and taskIDs count the subscriptions to each resource and to each task.
	uris, taskIDs subscriptionCounts
	legacy        legacySubscriptions

	// mu is also held while sending, so that no notification precedes its acknowledgement.
	mu sync.Mutex
	// active holds the subscriptions/listen requests.
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
// as an abrupt end before the result, and ignore it after. offered are the lists that the server
// advertises.
func (ss *subscriptions) listen(c *Call, r *rpc.Request, offered listChange, dst []byte) ([]byte, error) {
	filter, ok := r.Param("notifications")
	if !ok || filter[0] != '{' {
		return dst, invalidParams("params.notifications must be an object")
	}
	sub := &subscription{call: c, meta: append(append([]byte(`{"`+mcp.MetaSubscriptionID+`":`), r.ID...), '}')}
	if err := ss.readFilter(sub, offered, filter); err != nil {
		return dst, err
	}
	if err := ss.start(sub); err != nil {
		return dst, err
	}
	end := func(dst []byte) []byte {
		ss.end(sub)
		return c.results().empty(dst, sub.meta)
	}
	if r.MayDefer() && ss.peer.chain == nil { // middleware must see the end
		return dst, &rpc.Deferred{Result: end}
	}
	select {
	case <-sub.call.Done(): // canceled: the response is not sent
	case <-ss.peer.conn.Draining():
	}
	return end(dst), nil
}

// start registers and acknowledges the subscription.
func (ss *subscriptions) start(sub *subscription) (err error) {
	if !ss.uris.add(sub.uris, maxSubscribedResources) {
		return errTooManySubscribed
	}
	if sub.tasks, err = ss.tasks.subscribable(sub.call, sub.tasks); err == nil {
		if !ss.taskIDs.add(sub.tasks, maxSubscribedTasks) {
			err = errTooManyTasks
		} else if err = ss.add(sub); err != nil {
			ss.taskIDs.remove(sub.tasks)
		}
	}
	if err != nil {
		ss.uris.remove(sub.uris)
	}
	return err
}

func (ss *subscriptions) end(sub *subscription) {
	ss.mu.Lock()
	delete(ss.active, sub)
	ss.mu.Unlock()
	ss.taskIDs.remove(sub.tasks)
	ss.uris.remove(sub.uris)
}

// readFilter reads the parts of the filter that the server supports.
func (ss *subscriptions) readFilter(sub *subscription, offered listChange, filter []byte) (err error) {
	members := jsonwire.ObjectMembers(filter)
	for members.Next() {
		switch {
		case string(members.Value()) == "null": // as if absent
			continue
		case members.KeyIs("resourceSubscriptions"):
			uris, ok := era.StringArray(members.Value())
			if !ok {
				return invalidParams("params.notifications.resourceSubscriptions must be an array of URIs")
			}
			if sub.uris, err = ss.subscribable(sub.call.view, uris); err != nil {
				return err
			}
			continue
		case members.KeyIs("taskIds"):
			var ok bool
			if sub.tasks, ok = era.StringArray(members.Value()); !ok {
				return invalidParams("params.notifications.taskIds must be an array of task ids")
			}
			continue
		}
		for _, c := range listChanges {
			if members.KeyIs(c.member) && string(members.Value()) == "true" {
				sub.wants |= c.bit & offered
			}
		}
	}
	return nil
}

// filter returns the accepted filter.
func (s *subscription) filter() *mcp.SubscriptionFilter {
	return &mcp.SubscriptionFilter{
		ToolsListChanged: s.wants&toolsChanged != 0, ResourcesListChanged: s.wants&resourcesChanged != 0, PromptsListChanged: s.wants&promptsChanged != 0,
		ResourceSubscriptions: s.uris, TaskIDs: s.tasks,
	}
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
	accepted := mcp.Append([]byte(`,"notifications":`), sub.filter(), mcp.RevisionNone)
	if err := sub.call.Notify(mcp.NotificationAcknowledged, sub.params(accepted)); err != nil {
		return err
	}
	sparse.Set(&ss.active, sub, struct{}{})
	return nil
}

// covers reports whether a subscription to a resource includes an updated one: the same resource,
// or one below it.
func covers(subscribed, updated string) bool {
	rest, ok := strings.CutPrefix(updated, subscribed)
	return ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(subscribed, "/"))
}

// subscribable returns the URIs that the caller can read, without duplicates.
func (ss *subscriptions) subscribable(v *View, uris []string) (list []string, err error) {
	if len(uris) > maxSubscribedResources {
		return nil, errTooManySubscribed
	}
	seen := make(map[string]struct{})
	for _, uri := range uris {
		if _, ok := seen[uri]; !ok && ss.resources.has(v, uri) {
			list = append(list, uri)
		}
		seen[uri] = struct{}{}
	}
	return list, nil
}

// subscribe answers resources/subscribe of legacy clients. Repeating it has no effect. Modern
// clients list resources in subscriptions/listen.
// (https://modelcontextprotocol.io/specification/2025-11-25/server/resources#subscriptions)
func (ss *subscriptions) subscribe(c *Call, r *rpc.Request, dst []byte) ([]byte, error) {
	_, uri, err := ss.resources.param(r)
	if err != nil {
		return dst, err
	}
	if !ss.resources.has(c.view, uri) {
		return dst, errResourceNotFound(uri, c.ex.Revision)
	}
	if !ss.legacy.add(uri, c.view, &ss.uris) {
		return dst, errTooManySubscribed
	}
	return c.results().empty(dst, nil), nil
}

// unsubscribe answers resources/unsubscribe. It ignores URIs without a subscription, whose resource
// may be gone.
func (ss *subscriptions) unsubscribe(c *Call, r *rpc.Request, dst []byte) ([]byte, error) {
	uri, err := stringParam(r, "uri")
	if err != nil {
		return dst, err
	}
	ss.legacy.remove(uri, &ss.uris)
	return c.results().empty(dst, nil), nil
}

func (ss *subscriptions) notifyListChanged(c listChange, notification string) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for sub := range ss.active {
		if sub.wants&c != 0 {
			ss.peer.logDropped(notification, sub.call.Notify(notification, sub.params(nil)))
		}
	}
}

// notifyUpdated notifies the subscriptions to a resource.
func (ss *subscriptions) notifyUpdated(uri string) {
	member := jsonwire.AppendQuote([]byte(`"uri":`), uri)
	if ss.legacy.cover(uri, ss.resources) {
		ss.peer.notify(mcp.NotificationResourceUpdated, append(append([]byte{'{'}, member...), '}'))
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for sub := range ss.active {
		for _, subscribed := range sub.uris {
			if covers(subscribed, uri) && !ss.resources.hides(sub.call.view, uri) {
				ss.peer.logDropped(mcp.NotificationResourceUpdated, sub.call.Notify(mcp.NotificationResourceUpdated, sub.params(append([]byte{','}, member...))))
				break
			}
		}
	}
}

// notifyTask notifies the subscriptions to a task of the extension.
func (ss *subscriptions) notifyTask(t *Task) {
	d := t.detailedTask()
	text := mcp.Append(nil, &d, mcp.RevisionNone)
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for sub := range ss.active {
		if slices.Contains(sub.tasks, t.ID) {
			ss.peer.logDropped(mcp.NotificationTasks, sub.call.Notify(mcp.NotificationTasks, sub.params(append([]byte{','}, text[1:len(text)-1]...))))
		}
	}
}

// subscriptionCounts counts the subscriptions to each resource or task, by URI or id.
type subscriptionCounts struct {
	mu     sync.Mutex
	byName map[string]int
}

// add adds subscriptions. It returns false, and adds none, if there are more than limit.
func (sc *subscriptionCounts) add(names []string, limit int) bool {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if len(sc.byName)+len(names) > limit {
		return false
	}
	if sc.byName == nil {
		sc.byName = make(map[string]int)
	}
	for _, name := range names {
		sc.byName[name]++
	}
	return true
}

func (sc *subscriptionCounts) remove(names []string) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	for _, name := range names {
		if sc.byName[name]--; sc.byName[name] <= 0 {
			delete(sc.byName, name)
		}
	}
}

// has reports whether there is a subscription.
func (sc *subscriptionCounts) has(name string) bool {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return sc.byName[name] > 0
}

// names returns what there is a subscription to.
func (sc *subscriptionCounts) names() []string {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return slices.Collect(maps.Keys(sc.byName))
}

// cover reports whether a subscription to a resource includes uri. It is like covers, without a
// loop over the subscriptions.
func (sc *subscriptionCounts) cover(uri string) bool {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.byName[uri] > 0 {
		return true
	}
	for i := range len(uri) {
		if uri[i] == '/' && (sc.byName[uri[:i]] > 0 || sc.byName[uri[:i+1]] > 0) {
			return true
		}
	}
	return false
}

// legacySubscriptions holds the resources that a legacy client has subscribed to with
// resources/subscribe, each with the client's View at that time.
type legacySubscriptions struct {
	mu   sync.Mutex
	uris map[string]*View
}

// add adds and counts a subscription unless there is one. It returns false if there are too many.
func (ls *legacySubscriptions) add(uri string, v *View, counts *subscriptionCounts) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if _, ok := ls.uris[uri]; ok {
		return true
	}
	if !counts.add([]string{uri}, maxSubscribedResources) {
		return false
	}
	sparse.Set(&ls.uris, uri, v)
	return true
}

// remove removes a subscription if there is one.
func (ls *legacySubscriptions) remove(uri string, counts *subscriptionCounts) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if _, ok := ls.uris[uri]; ok {
		delete(ls.uris, uri)
		counts.remove([]string{uri})
	}
}

// cover reports whether a subscription includes the resource and its View does not hide it.
func (ls *legacySubscriptions) cover(uri string, resources *resourceSet) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for subscribed, view := range ls.uris {
		if covers(subscribed, uri) && !resources.hides(view, uri) {
			return true
		}
	}
	return false
}

// A notifier tells the client of a session about changes, on its own goroutine. Changes in quick
// succession, or while the peer does not read, are merged.
type notifier struct {
	// send sends the notifications of changes. It blocks while the peer does not read.
	send      func(changes)
	goroutine sync.WaitGroup

	mu      sync.Mutex
	pending changes
	// running is set while the goroutine runs.
	running bool
}

// changes are what the client of a session must learn.
type changes struct {
	lists listChange
	// resources holds the URIs of updated resources.
	resources map[string]struct{}
	// tasks holds the ids of changed tasks.
	tasks map[string]struct{}
	// elicitations holds the ids of finished elicitations with web pages.
	elicitations []string
}

func (cs *changes) empty() bool {
	return cs.lists == 0 && len(cs.resources) == 0 && len(cs.tasks) == 0 && len(cs.elicitations) == 0
}

// maxPendingUpdates limits the updated resources, and the changed tasks, of a session whose peer
// does not read. Further ones are lost.
const maxPendingUpdates = 4096

// addUpdates adds updated resources or changed tasks.
func addUpdates(set *map[string]struct{}, names ...string) {
	for _, name := range names {
		if len(*set) < maxPendingUpdates {
			sparse.Set(set, name, struct{}{})
		}
	}
}

// add calls add with the pending changes, and starts the goroutine unless it runs. add must not
// block. The method must not be called after wait.
func (n *notifier) add(add func(*changes)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if add(&n.pending); !n.running && !n.pending.empty() {
		n.running = true
		n.goroutine.Go(n.run)
	}
}

// run sends notifications until no changes are pending.
func (n *notifier) run() {
	for {
		c := n.take()
		if c.empty() {
			return
		}
		n.send(c)
	}
}

// take returns the pending changes. If there are none, the goroutine must end.
func (n *notifier) take() changes {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.pending
	n.pending, n.running = changes{}, !c.empty()
	return c
}

// notifierTimeout limits how long the end of a session waits for its notifier. A write that cannot
// be interrupted is abandoned.
const notifierTimeout = time.Second

// wait waits for the goroutine after the end of the session. It returns false if the goroutine
// leaks.
func (n *notifier) wait() bool {
	n.mu.Lock()
	running := n.running
	n.mu.Unlock()
	return !running || wait.Timeout(notifierTimeout, n.goroutine.Wait)
}

// listenInOwnSession answers subscriptions/listen with a new session, because the limits on
// subscriptions apply to each client.
func (s *session) listenInOwnSession(c *Call, r *rpc.Request, dst []byte) ([]byte, error) {
	sess := &session{srv: s.srv, log: s.log, detached: true, identity: c.identity(), peer: s.peer, tasks: s.tasks}
	sess.handshake.era, sess.peer.values = s.handshake.era, c
	sess.init()
	s.srv.sessions.add(sess)
	dst, err := sess.subs.listen(c, r, s.srv.announcedLists(), dst)
	if deferred, ok := err.(*rpc.Deferred); ok {
		end := deferred.Result
		deferred.Result = func(dst []byte) []byte {
			sess.untrack()
			return end(dst)
		}
		return dst, deferred
	}
	sess.untrack()
	return dst, err
}
