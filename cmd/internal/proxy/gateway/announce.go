package gateway

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/base/wait"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/mcp"
)

// announcePause is the least time between two announcements to clients.
const announcePause = time.Second

// allKinds are the notifications of all lists.
var allKinds = []string{mcp.NotificationToolsChanged, mcp.NotificationPromptsChanged, mcp.NotificationResourcesChanged}

// An announcer notifies clients that the lists that they see have changed. Its methods may be
// called by many goroutines at once.
type announcer struct {
	g *Gateway
	// notify has an element if something has changed.
	notify chan struct{}

	mu       sync.Mutex
	watchers map[*watcher]struct{}
}

// A watcher is a client that wants to know of changes.
type watcher struct {
	// ctx has the caller.
	ctx context.Context
	era bridge.Era
	// notifications are those that the client wants.
	notifications []string
	// sums holds the sum of what the client sees for each notification. Only one goroutine uses it
	// after add, which has set busy.
	sums []uint64
	// busy says that a goroutine compares and sends.
	busy atomic.Bool
	// again says that something has changed since it began.
	again atomic.Bool
	// send sends a notification. It must not be called concurrently.
	send func(notification string)
}

// start begins to announce for g.
func (a *announcer) start(g *Gateway) {
	a.g, a.watchers, a.notify = g, map[*watcher]struct{}{}, make(chan struct{}, 1)
	g.running.Start(a.run)
}

// add adds a watcher for the notifications, whose list must not change.
func (a *announcer) add(ctx context.Context, clientEra bridge.Era, notifications []string, send func(string)) *watcher {
	w := &watcher{ctx: ctx, era: clientEra, notifications: notifications, sums: make([]uint64, len(notifications)), send: send}
	for i, n := range notifications {
		w.sums[i] = a.g.visibleSum(ctx, clientEra, n)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watchers[w] = struct{}{}
	return w
}

// remove removes a watcher.
func (a *announcer) remove(w *watcher) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.watchers, w)
}

// isWatched reports if there are watchers.
func (a *announcer) isWatched() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.watchers) > 0
}

// changed says that a catalog or the configuration has changed.
func (a *announcer) changed() { wait.Signal(a.notify) }

// run notifies the watchers of changes, at most once in announcePause.
func (a *announcer) run() {
	for {
		select {
		case <-a.notify:
		case <-a.g.ctx.Done():
			return
		}
		a.mu.Lock()
		all := slices.Collect(maps.Keys(a.watchers))
		a.mu.Unlock()
		for _, w := range all {
			a.inform(w)
		}
		wait.Sleep(a.g.ctx, announcePause)
	}
}

// inform notifies a watcher of changes in a goroutine, so that a client that does not read delays
// no other.
func (a *announcer) inform(w *watcher) {
	w.again.Store(true)
	if !w.busy.CompareAndSwap(false, true) {
		return // the goroutine looks again
	}
	ok := a.g.running.Start(func() {
		for w.again.Swap(false) {
			a.announce(w)
		}
		w.busy.Store(false)
		if w.again.Load() {
			a.inform(w)
		}
	})
	if !ok {
		w.busy.Store(false)
	}
}

// announce sends a watcher the notifications of the lists that have changed for it.
func (a *announcer) announce(w *watcher) {
	for i, n := range w.notifications {
		if sum := a.g.visibleSum(w.ctx, w.era, n); sum != w.sums[i] && w.ctx.Err() == nil {
			w.sums[i] = sum
			w.send(n)
		}
	}
}

// visibleSum identifies what the caller of ctx sees of the lists that a notification is about.
func (g *Gateway) visibleSum(ctx context.Context, clientEra bridge.Era, notification string) (sum uint64) {
	ix := g.index(ctx, clientEra)
	view := ix.st.view(ctx)
	for k := range kindTexts {
		if kindTexts[k].changed == notification {
			sum = sum*1_000_003 ^ ix.list(Kind(k), view).sum
		}
	}
	return sum
}
