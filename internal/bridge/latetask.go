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
	maxLate  = 256             // calls that were given up whose answer is of interest
	lateTime = 5 * time.Second // for the answer, and for the server to take the cancellation
)

// A lateCall is a call that was given up, and of which the server may make a task all the same: then
// nobody but the bridge gets to know the task.
type lateCall struct {
	key   string // of the id that the server knows
	meta  []byte // _meta of the call, which says that its client takes tasks
	until time.Time
}

// giveUpLocked is forgetLocked for a call whose answer nobody waits for any more.
func (p *plain) giveUpLocked(c *call) bool {
	if !p.forgetLocked(c) {
		return false
	}
	meta := locate(c.sent, "params", "_meta")
	if !meta.found() || !locate(c.sent, "params", "_meta", mcp.MetaClientCapabilities, "extensions", mcp.ExtensionTasks).found() {
		return true
	}
	now := time.Now()
	p.late = slices.DeleteFunc(p.late, func(l lateCall) bool { return now.After(l.until) })
	if len(p.late) < maxLate {
		own := era.Rewrite(nil, meta.of(c.sent), func(m *jsonwire.Members) []byte {
			if m.KeyIs(mcp.MetaProgressToken) {
				return nil
			}
			return m.Value()
		}, nil)
		p.late = append(p.late, lateCall{idKey(c.far), own, now.Add(lateTime)})
	}
	return true
}

// answeredLateLocked takes the answer to a call that was given up, and returns the task that the
// server has made of it, and the _meta to talk of it with; "" if it has made none.
func (p *plain) answeredLateLocked(m *jsonrpc.Message) (task string, meta []byte) {
	key := idKey(m.ID)
	i := slices.IndexFunc(p.late, func(l lateCall) bool { return l.key == key })
	if i < 0 {
		return "", nil
	}
	l := p.late[i]
	p.late = slices.Delete(p.late, i, i+1)
	if m.Kind != jsonrpc.KindResponse || time.Now().After(l.until) || era.ResultType(m.Result) != mcp.ResultTypeTask {
		return "", nil
	}
	return text(locate(m.Result, "taskId").of(m.Result)), l.meta
}

// cancelTask cancels a task that no client knows.
func (p *plain) cancelTask(id string, meta []byte) {
	ctx, cancel := context.WithTimeout(p.b.ctx, lateTime)
	defer cancel()
	params := jsonwire.AppendQuote([]byte(`{"taskId":`), id)
	params = append(append(append(params, `,"_meta":`...), meta...), '}')
	p.line.lane.note("a task is cancelled: its call was given up before it was answered")
	answer, err := p.ask(ctx, func(id jsonrpc.ID) []byte { return jsonrpc.AppendRequest(nil, id, mcp.MethodTasksCancel, params) })
	if err == nil && answer.Kind == jsonrpc.KindError {
		err = answer.Err()
	}
	if err != nil {
		p.b.opts.Logger.Info("task not cancelled", "task", id, "error", err)
	}
}
