package server

import (
	"sync"
	"time"

	"mcpwire/internal/wait"
)

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

// addLists adds changed lists. Like the other methods that add changes, it does not block, and must
// not be called after wait.
func (n *notifier) addLists(c listChange) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pending.lists |= c
	n.startLocked()
}

func (n *notifier) addResource(uri string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addUpdateLocked(&n.pending.resources, uri)
}

func (n *notifier) addTask(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addUpdateLocked(&n.pending.tasks, id)
}

func (n *notifier) addElicitation(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pending.elicitations = append(n.pending.elicitations, id)
	n.startLocked()
}

func (n *notifier) addUpdateLocked(set *map[string]struct{}, name string) {
	if len(*set) >= maxPendingUpdates {
		return
	}
	if *set == nil {
		*set = make(map[string]struct{})
	}
	(*set)[name] = struct{}{}
	n.startLocked()
}

// startLocked starts the goroutine unless it runs.
func (n *notifier) startLocked() {
	if !n.running {
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
