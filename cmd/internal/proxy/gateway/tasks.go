package gateway

import (
	"bytes"
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"mcpwire/auth"
	"mcpwire/internal/base/sparse"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonedit"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/rpc"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Limits of tasks/list.
const (
	// maxOwnedTasks limits the tasks whose owners the gateway remembers. The oldest are forgotten,
	// and no longer listed.
	maxOwnedTasks = 10_000
	// maxTaskPages limits the requests to servers for one request of a client.
	maxTaskPages = 16
	// maxTaskCursor limits the length of a server's own cursor.
	maxTaskCursor = 8 << 10
)

// ownerWait limits the wait for Options.TaskOwners.
const ownerWait = 3 * time.Second

// maxTaskLife limits how long Options.TaskOwners remembers a task.
const maxTaskLife = 24 * time.Hour

// TaskOwners remember which principal has started a task, for several gateways and across restarts.
// Their methods may be called by many goroutines at once.
type TaskOwners interface {
	// Add remembers a task for a time.
	Add(ctx context.Context, t OwnedTask, life time.Duration) error
	// Has reports whether a task is remembered.
	Has(ctx context.Context, t OwnedTask) (bool, error)
}

// An OwnedTask is a task of a principal. ID is the server's own.
type OwnedTask struct{ Principal, Upstream, ID string }

// taskOwners remembers which principal has started a task. A server cannot tell the principals
// apart if the gateway uses the same credentials for all of them, and lists the tasks of all. The
// zero value is ready to use.
type taskOwners struct {
	mu sync.Mutex
	// tasks holds the elements of recent.
	tasks map[OwnedTask]*list.Element
	// recent holds the tasks, the latest first.
	recent list.List
}

// add remembers a task.
func (o *taskOwners) add(t OwnedTask) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e := o.tasks[t]; e != nil {
		o.recent.MoveToFront(e)
		return
	}
	sparse.Set(&o.tasks, t, o.recent.PushFront(t))
	if len(o.tasks) > maxOwnedTasks {
		delete(o.tasks, o.recent.Remove(o.recent.Back()).(OwnedTask))
	}
}

func (o *taskOwners) has(t OwnedTask) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tasks[t] != nil
}

// ownsTask reports if the principal has started the task. Without login, everybody is the same
// user.
func (g *Gateway) ownsTask(ctx context.Context, t OwnedTask) (bool, error) {
	if t.Principal == "" || g.tasks.has(t) {
		return true, nil
	}
	shared := g.state.Load().opts.TaskOwners
	if shared == nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, ownerWait)
	defer cancel()
	ok, err := shared.Has(ctx, t)
	if ok {
		g.tasks.add(t)
	}
	return ok, err
}

// ownTasks remembers the task in the response to a call of a legacy client.
func (s *scope) ownTasks(frame []byte) {
	if s.era == bridge.EraModern || s.principal == "" {
		return
	}
	id := era.LookupString(frame, "result", "task", "taskId")
	if id == "" {
		return
	}
	t := OwnedTask{s.principal, s.be.u.name, id}
	s.g.tasks.add(t)
	opts := &s.g.state.Load().opts
	if opts.TaskOwners == nil {
		return
	}
	life := maxTaskLife
	if ms, ok := jsonwire.ParseInt(era.Lookup(frame, "result", "task", "ttl")); ok && ms >= 0 && ms < maxTaskLife.Milliseconds() {
		life = time.Duration(ms) * time.Millisecond
	}
	// The task runs also if the client is gone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), ownerWait)
	defer cancel()
	if err := opts.TaskOwners.Add(ctx, t, life); err != nil {
		opts.Logger.Warn("other nodes will not list a task", "upstream", t.Upstream, "error", err)
	}
}

// listsTasks reports if an upstream lists tasks.
func (ix *index) listsTasks(upstream int) bool {
	snap := ix.snaps[upstream]
	return snap != nil && era.Lookup(snap.profile.Capabilities, "tasks", "list") != nil
}

// listTasks answers tasks/list with the tasks of one upstream after the other. Its cursor names the
// upstream and has the server's own cursor. An upstream that fails is left out.
func (s *session) listTasks(ctx context.Context, o *bridge.Origin, m *jsonrpc.Message, out rpc.Sender, dst []byte) ([]byte, error) {
	ix := s.g.index(ctx, bridge.EraLegacy)
	view := ix.st.view(ctx)
	listing := slices.DeleteFunc(slices.Clone(ix.st.upstreams), func(u *upstream) bool {
		i := slices.Index(ix.st.upstreams, u)
		return !ix.listsTasks(i) || view != nil && !ix.shows(i, view)
	})
	at, cursor, err := s.taskCursor(ctx, m, listing)
	if err != nil {
		return dst, err
	}
	var items, failed []byte
	for n := 0; n < maxTaskPages && at < len(listing) && len(items) == 0; n++ {
		u := listing[at]
		page, err := s.taskPage(ctx, o, u, cursor, m, out)
		if err != nil {
			if _, rejected := errors.AsType[*relay.RejectedError](err); rejected || ctx.Err() != nil {
				return dst, err
			}
			failed = jsonwire.AppendQuote(append(failed, ','), u.name)
		}
		items = page.items
		if cursor = page.next; cursor == nil {
			at++
		}
	}
	result := []byte(`{"tasks":[`)
	if len(items) > 0 {
		result = append(result, items[1:]...)
	}
	result = append(result, ']')
	if at < len(listing) {
		plain := append(append([]byte(listing[at].name), 0), cursor...)
		if result, _, err = s.g.ring.Seal(append(result, `,"nextCursor":"`...), purposeCursor, plain, cursorData(ctx, bridge.EraLegacy, numKinds)); err != nil {
			return dst, err
		}
		result = append(result, '"')
	}
	if failed != nil {
		failed[0] = '['
		result = append(append(append(result, `,"_meta":{"`+MetaStale+`":`...), failed...), "]}"...)
	}
	return jsonrpc.AppendResult(dst, m.ID, append(result, '}')), nil
}

// taskCursor returns where the page that a request is for begins: the index of the upstream, and
// the JSON text of the server's own cursor or nil.
func (s *session) taskCursor(ctx context.Context, m *jsonrpc.Message, listing []*upstream) (at int, cursor []byte, err error) {
	plain, err := s.g.openCursor(ctx, bridge.EraLegacy, numKinds, m)
	if plain == nil {
		return 0, nil, err
	}
	name, cursor, _ := bytes.Cut(plain, []byte{0})
	at = slices.IndexFunc(listing, func(u *upstream) bool { return u.name == string(name) })
	if at < 0 {
		return 0, nil, errCursor
	}
	if len(cursor) == 0 {
		cursor = nil
	}
	return at, cursor, nil
}

// A tasksPage is a page of the tasks of an upstream.
type tasksPage struct {
	// items are those of the caller, each after a comma.
	items []byte
	// next is the JSON text of the server's own cursor, or nil after the last page.
	next []byte
}

// taskPage requests a page of an upstream's tasks.
func (s *session) taskPage(ctx context.Context, o *bridge.Origin, u *upstream, cursor []byte, m *jsonrpc.Message, out rpc.Sender) (page tasksPage, err error) {
	params := []byte("{}")
	if cursor != nil {
		params = append(append([]byte(`{"cursor":`), cursor...), '}')
	}
	own := new(jsonrpc.Message)
	c := &call{target: target{upstream: u, kind: KindTool}, era: bridge.EraLegacy, m: own, frame: jsonrpc.AppendRequest(nil, m.ID, mcp.MethodTasksList, params)}
	if err := jsonrpc.Parse(c.frame, own, 0); err != nil {
		return page, err
	}
	result, err := resultOf(s.g.perform(ctx, c, nil, nil, func(ctx context.Context, sc *scope, frame []byte) ([]byte, error) {
		return s.forward(ctx, o, sc, frame, own, out, nil)
	}))
	if err != nil {
		return page, err
	}
	principal := auth.PrincipalOf(ctx).ID()
	key := s.g.state.Load().taskKeys[0]
	for elements := jsonwire.ArrayElements(era.Lookup(result, "tasks")); elements.Next(); {
		id := era.LookupString(elements.Value(), "taskId")
		if id == "" {
			continue
		}
		if ok, err := s.g.ownsTask(ctx, OwnedTask{principal, u.name, id}); err != nil {
			return page, fmt.Errorf("the owner of a task is unknown: %w", err)
		} else if !ok {
			continue
		}
		exposed := jsonwire.AppendQuote(nil, exposedTask(key, principal, u.name, id))
		page.items = append(append(page.items, ','), jsonedit.Splice(elements.Value(), jsonedit.Locate(elements.Value(), "taskId"), exposed)...)
	}
	next := era.Lookup(result, "nextCursor")
	if len(next) > 0 && next[0] == '"' && len(next) <= maxTaskCursor && !bytes.Equal(next, cursor) {
		page.next = next
	}
	return page, nil
}
