package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"time"

	"mcpwire/internal/base/wait"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonedit"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/rpc"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Limits of a catalog.
const (
	// maxItems limits the items of one list of a server.
	maxItems = 20_000
	// maxCatalogBytes limits the bytes of the lists of a server in one catalog.
	maxCatalogBytes = 64 << 20
	// maxUpstreamBytes limits the bytes of all catalogs of an upstream, which has up to four for
	// each principal with PerPrincipal.
	maxUpstreamBytes = 256 << 20
	// maxPages limits the pages of one list of a server.
	maxPages = 1000
	// loadTimeout limits the time to read a catalog after the handshake, for which the bridge has
	// a timeout: a server may have to wait until others have started.
	loadTimeout = time.Minute
	// reloadPause is the time between two reads of a catalog that a server keeps announcing.
	reloadPause = 250 * time.Millisecond
	// minRetry and maxRetry limit the pause after a failure.
	minRetry = time.Second
	maxRetry = 30 * time.Second
	// retryFor is how long a failed catalog is read again after a client needed it, if no client
	// wants to know of changes.
	retryFor = 10 * time.Minute
)

// kindTexts has the method, the member of the result and the naming member of each kind.
var kindTexts = [numKinds]struct{ method, member, name, capability, changed string }{
	KindTool:     {mcp.MethodToolsList, "tools", "name", "tools", mcp.NotificationToolsChanged},
	KindPrompt:   {mcp.MethodPromptsList, "prompts", "name", "prompts", mcp.NotificationPromptsChanged},
	KindResource: {mcp.MethodResourcesList, "resources", "uri", "resources", mcp.NotificationResourcesChanged},
	KindTemplate: {mcp.MethodResourceTemplatesList, "resourceTemplates", "uriTemplate", "resources", mcp.NotificationResourcesChanged},
}

// A snapshot is what a server offers at one time. It is immutable.
type snapshot struct {
	profile  *era.ServerProfile
	revision string
	loaded   time.Time
	// bytes is the length of the lists.
	bytes int
	lists [numKinds]itemList
	// apps says that the server has MCP Apps: what it lists may depend on the client.
	apps bool
}

// An itemList is a list of a server.
type itemList struct {
	items []item
	// ttl is the shortest ttlMs of the pages.
	ttl int64
	// sum identifies the content.
	sum uint64
	// warned and hidden count the decisions of Options.Pin.
	warned, hidden int
	// problem says why the list may lack items, or is "".
	problem string
	// announced counts the changes that the server announced.
	announced uint64
}

// An item is a tool, prompt, resource or template.
type item struct {
	// own is the server's own name, URI or URI template.
	own string
	// raw is the object as the server sent it, and name the position of the JSON text of own.
	raw  []byte
	name jsonedit.Range
	// hidden says that Options.Pin hides it.
	hidden bool
	// app says that it is a tool of an MCP App.
	app bool
	sum uint64
}

// seed makes the sums of this process.
var seed = maphash.MakeSeed()

// A catalog reads and holds what a server offers to clients of one era. Its methods may be called
// by many goroutines at once.
type catalog struct {
	be *backend
	// era is that of the clients.
	era bridge.Era
	// apps says that it is for clients with MCP Apps.
	apps bool
	// name is one of Catalogs.
	name   string
	ctx    context.Context
	cancel context.CancelFunc

	mu   sync.Mutex
	snap *snapshot
	// err is the error of the last attempt, or nil.
	err error
	// dirty says that the server announced a change after the last read began.
	dirty bool
	// announced counts the changes that the server announced.
	announced [numKinds]uint64
	// loading is closed when the current read ends; nil without one. loadBegan is its start.
	loading   chan struct{}
	loadBegan time.Time
	failures  int
	// retryAt is the earliest time of the next attempt after a failure.
	retryAt time.Time
	// wanted is the last time that a client needed the catalog.
	wanted time.Time
	// session is the session with a legacy server, or nil. opening is one whose handshake is not
	// complete, or nil.
	session, opening relay.Peer
	// subscribed says that a subscription runs, or that the server has none.
	subscribed bool
	// unsubscribe ends the subscription.
	unsubscribe context.CancelFunc
	// idle calls rest when no client has needed the catalog for the idle timeout.
	idle *time.Timer
	// resting says that changes are not announced, so that the snapshot may be out of date.
	resting bool
	closed  bool
}

func newCatalog(be *backend, clientEra bridge.Era, apps bool, name string) *catalog {
	c := &catalog{be: be, era: clientEra, apps: apps, name: name}
	// The gateway's own requests act for the principal of the backend, or for nobody.
	c.ctx, c.cancel = context.WithCancel(bridge.Uncounted(be.base))
	c.idle = time.AfterFunc(be.u.idleTimeout(), c.rest)
	c.idle.Stop()
	return c
}

// rest ends the session and the subscription, so that the server's process can end, unless a client
// wants to know of changes. The snapshot stays.
func (c *catalog) rest() {
	watched := c.be.u.g.announcer.isWatched()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	if watched || c.loading != nil {
		c.idle.Reset(c.be.u.idleTimeout())
		c.mu.Unlock()
		return
	}
	c.resting = true
	session := c.session
	c.session = nil
	if c.unsubscribe != nil {
		c.unsubscribe()
	}
	c.mu.Unlock()
	if session != nil {
		session.Close()
	}
}

// close ends the session and the subscription.
func (c *catalog) close() {
	c.cancel()
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		c.be.u.catalogBytes.Add(-int64(c.heldLocked()))
	}
	c.idle.Stop()
	c.mu.Unlock()
	c.drop()
}

// heldLocked returns the bytes of the last snapshot.
func (c *catalog) heldLocked() int {
	if c.snap == nil {
		return 0
	}
	return c.snap.bytes
}

// current returns the last snapshot, or nil, and reports if the last attempt to renew it failed.
func (c *catalog) current() (snap *snapshot, stale bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.snap, c.err != nil
}

// want starts to read the catalog if it is missing, changed or older than maxAge. It returns a
// channel that is closed when the read ends, and when it began; nil if the caller need not wait,
// because the last read has failed, or because the catalog is only old, unless strict is set.
func (c *catalog) want(maxAge time.Duration, strict bool) (done <-chan struct{}, began time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.wanted = now
	if !c.closed {
		c.idle.Reset(c.be.u.idleTimeout())
	}
	needed := c.snap == nil || c.dirty
	old := !needed && (c.resting || now.Sub(c.snap.loaded) > maxAge)
	if (needed || old) && !now.Before(c.retryAt) {
		c.startLocked(0)
	}
	if c.loading == nil || c.err != nil || !needed && !(strict && old) {
		return nil, now
	}
	return c.loading, c.loadBegan
}

// tooSlow says that clients do not wait for the current read.
func (c *catalog) tooSlow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loading != nil && c.err == nil {
		c.err = errors.New("the server has not sent its lists yet")
		c.be.u.g.generation.Add(1)
	}
}

// startLocked starts to read the catalog after a pause, unless that has begun.
func (c *catalog) startLocked(pause time.Duration) {
	if c.loading != nil || c.closed {
		return
	}
	c.loading, c.loadBegan = make(chan struct{}), time.Now()
	if !c.be.u.g.running.Start(func() { c.run(pause) }) {
		close(c.loading)
		c.loading, c.closed = nil, true
	}
}

// announcedChange takes the notification of a change from the server. Clients are notified even if
// the lists are the same again when they are read.
func (c *catalog) announcedChange(method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range kindTexts {
		if kindTexts[k].changed == method {
			c.announced[k]++
		}
	}
	c.changedLocked()
}

// changed says that the lists may have changed.
func (c *catalog) changed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changedLocked()
}

func (c *catalog) changedLocked() {
	c.dirty = true
	c.startLocked(max(time.Until(c.loadBegan.Add(reloadPause)), 0))
}

// run reads the catalog, and again if it changed meanwhile.
func (c *catalog) run(pause time.Duration) {
	for again := true; again; {
		if pause > 0 && !wait.Sleep(c.ctx, pause) {
			pause = 0
		}
		c.mu.Lock()
		c.dirty, c.resting = false, false
		c.mu.Unlock()
		snap, err := c.load(c.ctx)
		again = c.finished(snap, err)
		pause = reloadPause
	}
}

// finished records the result of a read. It reports if the catalog changed meanwhile.
func (c *catalog) finished(snap *snapshot, err error) (again bool) {
	g := c.be.u.g
	c.mu.Lock()
	if err == nil && !c.closed {
		more := int64(snap.bytes - c.heldLocked())
		if c.be.u.catalogBytes.Add(more) > maxUpstreamBytes && more > 0 {
			c.be.u.catalogBytes.Add(-more)
			err = fmt.Errorf("the lists of all users of the upstream have more than %d bytes", maxUpstreamBytes)
		}
	}
	changed := (err == nil) != (c.err == nil)
	c.err = err
	if err != nil {
		c.failures++
		pause := wait.Backoff(minRetry, maxRetry, c.failures, rand.Float64())
		c.retryAt = time.Now().Add(pause)
		if !c.closed && (time.Since(c.wanted) < retryFor || g.announcer.isWatched()) {
			g.running.Start(func() { c.retry(pause) })
		}
	} else {
		changed = changed || !sameLists(c.snap, snap)
		c.snap, c.failures, c.retryAt = snap, 0, time.Time{}
	}
	if changed {
		g.generation.Add(1) // before those who wait for the read look at the index
	}
	again = err == nil && c.dirty && !c.closed
	if !again {
		close(c.loading)
		c.loading = nil
	}
	closed := c.closed
	c.mu.Unlock()
	switch {
	case err == nil && changed:
		g.announcer.changed()
	case err != nil && !closed:
		g.state.Load().opts.Logger.Warn("the lists of an upstream could not be read", "upstream", c.be.u.name, "error", err)
	}
	return again
}

// sameLists reports if two snapshots show the same to clients.
func sameLists(a, b *snapshot) bool {
	if a == nil || b == nil {
		return false
	}
	for k := range a.lists {
		if a.lists[k].sum != b.lists[k].sum || a.lists[k].ttl != b.lists[k].ttl || a.lists[k].announced != b.lists[k].announced {
			return false
		}
	}
	return string(a.profile.Capabilities) == string(b.profile.Capabilities) && a.profile.Instructions == b.profile.Instructions
}

// retry reads the catalog again after a failure.
func (c *catalog) retry(pause time.Duration) {
	if !wait.Sleep(c.ctx, pause) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		c.startLocked(0)
	}
}

// load reads the catalog.
func (c *catalog) load(ctx context.Context) (*snapshot, error) {
	snap := &snapshot{loaded: time.Now()}
	c.mu.Lock()
	for k := range snap.lists {
		snap.lists[k].announced = c.announced[k]
	}
	c.mu.Unlock()
	request, err := c.open(ctx, snap)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	size := 0
	for k := range snap.lists {
		kind := Kind(k)
		if era.Lookup(snap.profile.Capabilities, kindTexts[k].capability) == nil {
			continue
		}
		if err := c.loadList(ctx, request, kind, &snap.lists[k], &size); err != nil {
			c.drop()
			return nil, fmt.Errorf("%s: %w", kindTexts[k].method, err)
		}
		if p := snap.lists[k].problem; p != "" {
			if old, _ := c.current(); old == nil || old.lists[k].problem != p {
				c.be.u.g.state.Load().opts.Logger.Warn("a list of an upstream may lack items: "+p, "upstream", c.be.u.name, "method", kindTexts[k].method)
			}
		}
	}
	definition := append(jsonwire.AppendQuote([]byte(`{"instructions":`), snap.profile.Instructions), '}')
	if c.pin(&snap.lists[KindTool], KindServer, "instructions", definition) {
		snap.profile.Instructions = ""
	}
	snap.bytes = size
	snap.findApps()
	return snap, nil
}

// A requestFunc makes a request with the params, the members of which are given as JSON text, and
// returns the result.
type requestFunc func(ctx context.Context, method, members string) ([]byte, error)

// clientProfile describes the gateway to servers. It declares what clients may have, because some
// servers have tools for clients with certain capabilities only.
func (c *catalog) clientProfile() *era.ClientProfile {
	p := &era.ClientProfile{
		Info: mcp.Implementation{Name: "mcpwire gateway", Version: "1"},
		Form: true, URL: true, Sampling: true, SamplingTools: true, Roots: true,
	}
	if c.apps {
		p.Extensions = map[string]json.RawMessage{extensionApps: json.RawMessage(`{"mimeTypes":["text/html;profile=mcp-app"]}`)}
	}
	return p
}

// open begins or continues the conversation with the server, and reads its profile.
func (c *catalog) open(ctx context.Context, snap *snapshot) (request requestFunc, err error) {
	if c.era == bridge.EraModern {
		return c.openModern(ctx, snap)
	}
	return c.openLegacy(ctx, snap)
}

func (c *catalog) openModern(ctx context.Context, snap *snapshot) (requestFunc, error) {
	f := era.Of(mcp.LatestRevision)
	profile := c.clientProfile()
	capabilities, _ := profile.Capabilities(f)
	meta := string(append(profile.AppendMeta([]byte(`"_meta":`), f, capabilities), '}'))
	request := func(ctx context.Context, method, members string) ([]byte, error) {
		if members != "" {
			members += ","
		}
		return exchange(ctx, c.be.stateless, method, "{"+members+meta+"}")
	}
	result, err := request(ctx, mcp.MethodDiscover, "")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", mcp.MethodDiscover, err)
	}
	if snap.profile, err = era.ReadDiscover(result); err != nil {
		return nil, fmt.Errorf("%s: %w", mcp.MethodDiscover, err)
	}
	modern, legacy := era.Common(mcp.Revisions(), snap.profile.Versions)
	snap.revision = modern.String()
	if modern == mcp.RevisionNone {
		snap.revision = legacy.String()
	}
	c.subscribe(snap.profile.Capabilities, meta)
	return request, nil
}

// subscribe subscribes to the changes of the lists, unless that was done.
func (c *catalog) subscribe(capabilities []byte, meta string) {
	filter := ""
	for _, name := range []string{"tools", "prompts", "resources"} {
		if string(era.Lookup(capabilities, name, "listChanged")) == "true" {
			filter += `,"` + name + `ListChanged":true`
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if filter == "" || c.subscribed || c.closed {
		return
	}
	params := `{"notifications":{` + filter[1:] + `},` + meta + `}`
	ctx, cancel := context.WithCancel(c.ctx)
	c.unsubscribe = cancel
	c.subscribed = c.be.u.g.running.Start(func() {
		defer cancel()
		began := time.Now()
		_, err := exchangeWith(ctx, c.be.stateless, mcp.MethodSubscriptionsListen, params, catalogSender{c})
		refused := false
		if e, ok := errors.AsType[*jsonrpc.Error](err); ok && e.Code == jsonrpc.CodeMethodNotFound {
			refused = true // it announces nothing
		}
		c.mu.Lock()
		c.subscribed = refused
		c.mu.Unlock()
		if refused || ctx.Err() != nil {
			return
		}
		if wait.Sleep(ctx, max(maxRetry-time.Since(began), minRetry)) {
			c.changed() // notifications may be lost; this subscribes again
		}
	})
}

func (c *catalog) setOpening(peer relay.Peer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opening = peer
}

func (c *catalog) openLegacy(ctx context.Context, snap *snapshot) (requestFunc, error) {
	c.mu.Lock()
	peer := c.session
	c.mu.Unlock()
	f := era.Of(mcp.LatestLegacyRevision)
	if peer == nil {
		if peer = c.be.relay.Session(c.ctx, catalogSender{c}); peer == nil {
			return nil, errors.New("too many sessions")
		}
		c.setOpening(peer)
		defer c.setOpening(nil)
		profile := c.clientProfile()
		capabilities, _ := profile.Capabilities(f)
		result, err := exchange(ctx, peer, mcp.MethodInitialize, string(profile.AppendInitialize(nil, f, capabilities)))
		if err == nil {
			snap.profile, err = era.ReadInitialize(result)
		}
		if err != nil {
			peer.Close()
			return nil, fmt.Errorf("%s: %w", mcp.MethodInitialize, err)
		}
		notify(ctx, peer, jsonrpc.AppendNotification(nil, mcp.NotificationInitialized, nil))
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			peer.Close()
			return nil, ErrClosed
		}
		c.session = peer
		c.mu.Unlock()
	} else {
		was, _ := c.current()
		if was == nil {
			c.drop()
			return nil, errors.New("the session has no handshake")
		}
		snap.profile = was.profile
	}
	snap.revision = snap.profile.Versions[0]
	return func(ctx context.Context, method, members string) ([]byte, error) {
		return exchange(ctx, peer, method, "{"+members+"}")
	}, nil
}

// drop ends the session with a legacy server. After an error, the next attempt begins anew.
func (c *catalog) drop() {
	c.mu.Lock()
	session := c.session
	c.session = nil
	c.mu.Unlock()
	if session != nil {
		session.Close()
	}
}

// loadList reads all pages of a list. size counts the bytes of the catalog.
func (c *catalog) loadList(ctx context.Context, request requestFunc, kind Kind, list *itemList, size *int) error {
	texts := &kindTexts[kind]
	members := ""
	var pages era.Pages
	for page := 0; ; page++ {
		if page >= maxPages {
			return fmt.Errorf("more than %d pages", maxPages)
		}
		result, err := request(ctx, texts.method, members)
		if e, ok := errors.AsType[*jsonrpc.Error](err); ok && e.Code == jsonrpc.CodeMethodNotFound {
			return nil
		}
		if err != nil {
			return err
		}
		if *size += len(result); *size > maxCatalogBytes {
			return fmt.Errorf("the lists have more than %d bytes", maxCatalogBytes)
		}
		if ttl, ok := jsonwire.ParseInt(era.Lookup(result, "ttlMs")); page == 0 || ttl < list.ttl {
			list.ttl = 0
			if ok {
				list.ttl = max(ttl, 0)
			}
		}
		if err := c.appendItems(list, kind, era.Lookup(result, texts.member), page > 0, &pages); err != nil {
			return err
		}
		cursor := era.Lookup(result, "nextCursor")
		if cursor == nil || cursor[0] != '"' {
			return nil
		}
		if pages.Repeats(string(cursor)) {
			list.problem = "it ends here, because the server repeats a cursor"
			return nil
		}
		members = `"cursor":` + string(cursor)
	}
}

// appendItems appends the items of a page. Of a later page, it skips the items that pages has.
func (c *catalog) appendItems(list *itemList, kind Kind, array []byte, later bool, pages *era.Pages) error {
	if len(array) == 0 || array[0] != '[' {
		list.problem = kindTexts[kind].member + " is no array"
		return nil
	}
	for elements := jsonwire.ArrayElements(array); elements.Next(); {
		raw := elements.Value()
		if !era.IsObject(raw) {
			continue
		}
		at := jsonedit.Locate(raw, kindTexts[kind].name)
		if !at.Found() || raw[at.Start] != '"' {
			continue
		}
		it := item{own: jsonwire.Text(at.Of(raw)), raw: raw, name: at, sum: maphash.Bytes(seed, raw)}
		if !pages.IsNew(it.own) && later {
			continue
		}
		if it.hidden = c.pin(list, kind, it.own, raw); it.hidden {
			it.sum++
		}
		if len(list.items) >= maxItems {
			return fmt.Errorf("more than %d items", maxItems)
		}
		list.items = append(list.items, it)
		list.sum = list.sum*1_000_003 ^ it.sum
	}
	return nil
}

// pin asks Options.Pin about a definition. It counts the decision in list, and reports if it hides
// the item.
func (c *catalog) pin(list *itemList, kind Kind, name string, definition []byte) (hidden bool) {
	st := c.be.u.g.state.Load()
	if st.opts.Pin == nil {
		return false
	}
	decision := st.opts.Pin(c.be.u.name, c.name, kind, name, definition)
	switch decision {
	case PinWarn:
		list.warned++
	case PinHide:
		list.hidden++
	}
	return decision == PinHide
}

// A catalogSender takes the messages of a server to the gateway itself.
type catalogSender struct{ c *catalog }

// Send implements rpc.Sender.
func (s catalogSender) Send(message []byte) error {
	m := new(jsonrpc.Message)
	if err := jsonrpc.Parse(message, m, 0); err != nil {
		return err
	}
	switch m.Kind {
	case jsonrpc.KindNotification:
		if isListChanged(string(m.Method)) {
			s.c.announcedChange(string(m.Method))
		}
	case jsonrpc.KindRequest:
		s.c.answer(m)
	}
	return nil
}

// answer answers a request of the server. There is no user, and there are no roots.
func (c *catalog) answer(m *jsonrpc.Message) {
	c.mu.Lock()
	peer := c.session
	if peer == nil {
		peer = c.opening
	}
	c.mu.Unlock()
	if peer == nil {
		return
	}
	var frame []byte
	switch string(m.Method) {
	case mcp.MethodPing:
		frame = jsonrpc.AppendResult(nil, m.ID, []byte("{}"))
	case mcp.MethodRootsList:
		frame = jsonrpc.AppendResult(nil, m.ID, []byte(`{"roots":[]}`))
	case mcp.MethodElicit:
		frame = jsonrpc.AppendResult(nil, m.ID, []byte(`{"action":"decline"}`))
	default:
		frame = jsonrpc.AppendError(nil, m.ID, jsonrpc.MethodNotFound(string(m.Method)), false)
	}
	// The bridge must not be called while it sends.
	c.be.u.g.running.Start(func() { respond(c.ctx, peer, frame) })
}

// requestID is the id of the gateway's own requests. A session has only one of them at a time.
const requestID = `"mcpwire-gateway"`

// exchange makes a request of the gateway's own and returns the result. An error response is a
// *jsonrpc.Error.
func exchange(ctx context.Context, peer relay.Peer, method, params string) ([]byte, error) {
	return exchangeWith(ctx, peer, method, params, nil)
}

// exchangeWith is exchange with a sender for the messages that precede the response.
func exchangeWith(ctx context.Context, peer relay.Peer, method, params string, out rpc.Sender) ([]byte, error) {
	frame := jsonrpc.AppendRequest(nil, jsonrpc.ID(requestID), method, []byte(params))
	m := new(jsonrpc.Message)
	if err := jsonrpc.Parse(frame, m, 0); err != nil {
		return nil, err
	}
	return resultOf(peer.Request(ctx, frame, m, out, nil))
}

// respond sends a response to a request of the server.
func respond(ctx context.Context, peer relay.Peer, frame []byte) {
	m := new(jsonrpc.Message)
	if jsonrpc.Parse(frame, m, 0) == nil {
		peer.Response(ctx, frame, m)
	}
}

// notify sends a notification of the gateway's own.
func notify(ctx context.Context, peer relay.Peer, frame []byte) {
	m := new(jsonrpc.Message)
	if jsonrpc.Parse(frame, m, 0) == nil {
		peer.Notification(ctx, frame, m)
	}
}
