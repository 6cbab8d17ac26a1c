package client

import (
	"slices"
	"sync"

	"mcpwire/mcp"
)

// watchers are the calls and the tasks that want to see notifications while they last.
type watchers struct {
	mu      sync.Mutex
	byToken map[int64]*watch
	logs    map[*watch]struct{}
}

// add registers a watch for what the server sends under its token, and for log messages if it wants any.
func (w *watchers) add(in *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byToken == nil {
		w.byToken, w.logs = make(map[int64]*watch), make(map[*watch]struct{})
	}
	if in.progress != nil {
		w.byToken[in.token] = in
	}
	if in.log != nil {
		w.logs[in] = struct{}{}
	}
}

// remove takes a watch out again, if there is one.
func (w *watchers) remove(in *watch) {
	if in == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byToken, in.token)
	delete(w.logs, in)
}

func (w *watchers) tellProgress(token int64, params []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if in := w.byToken[token]; in != nil {
		in.put(notice{false, slices.Clone(params)})
	}
}

func (w *watchers) tellLog(level mcp.LoggingLevel, params []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var own []byte // one copy for all
	for in := range w.logs {
		if level < in.level {
			continue
		}
		if own == nil {
			own = slices.Clone(params)
		}
		in.put(notice{true, own})
	}
}

// Bounds of the notifications that wait for the callbacks of one call.
const (
	maxNotices     = 256
	maxNoticeBytes = 4 << 20 // but one may be larger
)

// A watch is what a call wants to hear of while it lasts. It holds the notifications until the goroutine that waits for the answer takes them.
type watch struct {
	c        *Client
	token    int64 // under which progress comes
	level    mcp.LoggingLevel
	progress func(mcp.ProgressNotificationParams) // may be nil
	log      func(mcp.LoggingMessageNotificationParams)

	calling sync.Mutex // held while callbacks run: of a task, several goroutines may hear

	mu    sync.Mutex
	items []notice
	bytes int
	ready chan struct{} // has a token when there are items
}

type notice struct {
	log    bool // it is a log message, else progress
	params []byte
}

// newWatch returns what the options want to hear, or nil if that is nothing.
func (c *Client) newWatch(o *callOptions) *watch {
	if o.progress == nil && o.log == nil {
		return nil
	}
	return &watch{c: c, level: o.logLevel, progress: o.progress, log: o.log, ready: make(chan struct{}, 1)}
}

// begin has the notifications come from now on, under a token of their own.
func (w *watch) begin() {
	w.token = w.c.tokens.Add(1)
	w.c.watchers.add(w)
}

// put adds a notification. If there is no room the oldest go: of progress, the newest says all.
func (w *watch) put(n notice) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.items = append(w.items, n)
	w.bytes += len(n.params)
	for len(w.items) > maxNotices || w.bytes > maxNoticeBytes && len(w.items) > 1 {
		w.bytes -= len(w.items[0].params)
		w.items = slices.Delete(w.items, 0, 1)
	}
	w.signal()
}

func (w *watch) signal() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// take returns what has come.
func (w *watch) take() []notice {
	w.mu.Lock()
	defer w.mu.Unlock()
	items := w.items
	w.items, w.bytes = nil, 0
	return items
}

// news is a channel that has something when there may be something to take; nil if there is no watch.
func (w *watch) news() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.ready
}

// callBack passes what has come to the callbacks, and reports whether there was progress.
func (w *watch) callBack() (progress bool) {
	if w == nil || !w.calling.TryLock() {
		return false // somebody is at it
	}
	defer w.hush()
	for _, n := range w.take() {
		progress = progress || !n.log
		if err := w.tell(n); err != nil {
			w.c.log.Warn("notification dropped: it is malformed", "log", n.log, "error", err)
		}
	}
	return progress
}

// hush ends callBack. What came too late for it is for the next one, whoever that is.
func (w *watch) hush() {
	w.calling.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.items) > 0 {
		w.signal()
	}
}

func (w *watch) tell(n notice) error {
	if n.log {
		var p mcp.LoggingMessageNotificationParams
		if err := p.UnmarshalJSON(n.params); err != nil {
			return err
		}
		w.log(p)
		return nil
	}
	var p mcp.ProgressNotificationParams
	if err := p.UnmarshalJSON(n.params); err != nil {
		return err
	}
	w.progress(p)
	return nil
}
