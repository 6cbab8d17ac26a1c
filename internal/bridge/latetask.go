package bridge

import (
	"context"
	"slices"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

const (
	maxAbandoned     = 256             // calls that were given up whose answer is of interest
	abandonedTimeout = 5 * time.Second // for the answer, and for the server to take the cancellation
)

// A abandonedCall is a call that was given up, and of which the server may make a task all the same: then
// nobody but the bridge gets to know the task.
type abandonedCall struct {
	key      string // of the id that the server knows
	meta     []byte // _meta of the call, which says that its client takes tasks
	deadline time.Time
}

// giveUpLocked is removeCallLocked for a call whose answer nobody waits for any more.
func (p *passthrough) giveUpLocked(c *call) bool {
	if !p.removeCallLocked(c) {
		return false
	}
	meta := locate(c.taskFrame, "params", "_meta")
	if !meta.found() || !locate(c.taskFrame, "params", "_meta", mcp.MetaClientCapabilities, "extensions", mcp.ExtensionTasks).found() {
		return true
	}
	now := time.Now()
	p.abandoned = slices.DeleteFunc(p.abandoned, func(l abandonedCall) bool { return now.After(l.deadline) })
	if len(p.abandoned) < maxAbandoned {
		own := era.Rewrite(nil, meta.slice(c.taskFrame), func(m *jsonwire.Members) []byte {
			if m.KeyIs(mcp.MetaProgressToken) {
				return nil
			}
			return m.Value()
		}, nil)
		p.abandoned = append(p.abandoned, abandonedCall{idKey(c.serverID), own, now.Add(abandonedTimeout)})
	}
	return true
}

// lateTaskLocked takes the answer to a call that was given up, and returns the task that the
// server has made of it, and the _meta to talk of it with; "" if it has made none.
func (p *passthrough) lateTaskLocked(m *jsonrpc.Message) (task string, meta []byte) {
	key := idKey(m.ID)
	i := slices.IndexFunc(p.abandoned, func(l abandonedCall) bool { return l.key == key })
	if i < 0 {
		return "", nil
	}
	l := p.abandoned[i]
	p.abandoned = slices.Delete(p.abandoned, i, i+1)
	if m.Kind != jsonrpc.KindResponse || time.Now().After(l.deadline) || era.ResultType(m.Result) != mcp.ResultTypeTask {
		return "", nil
	}
	return stringOf(locate(m.Result, "taskId").slice(m.Result)), l.meta
}

// cancelTask cancels a task that no client knows.
func (p *passthrough) cancelTask(id string, meta []byte) {
	ctx, cancel := context.WithTimeout(p.b.ctx, abandonedTimeout)
	defer cancel()
	params := jsonwire.AppendQuote([]byte(`{"taskId":`), id)
	params = append(append(append(params, `,"_meta":`...), meta...), '}')
	p.upstream.rec.note("a task is cancelled: its call was given up before it was answered")
	answer, err := p.roundTrip(ctx, func(id jsonrpc.ID) []byte { return jsonrpc.AppendRequest(nil, id, mcp.MethodTasksCancel, params) })
	if err == nil && answer.Kind == jsonrpc.KindError {
		err = answer.Err()
	}
	if err != nil {
		p.b.opts.Logger.Info("task not cancelled", "task", id, "error", err)
	}
}
