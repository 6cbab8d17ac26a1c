package cluster

import (
	"cmp"
	"context"
	"errors"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

const (
	// reapInterval is the interval of searches for lost tasks. There is one more when a node is
	// gone. A task is lost if its node was gone in all of them for that time: a node that connects
	// to the backend again may count as gone for a moment.
	reapInterval = 5 * time.Second
	// maxRuns limits the tasks of all nodes that one search looks at.
	maxRuns = 100_000
)

// taskRuns knows which node runs which task, so that a task whose node is gone fails, instead of
// running forever. Each task that has not ended has a record.
type taskRuns struct {
	store   *taskStore
	records *records
	// suspects has the tasks whose node was gone in the last search, and when that was first seen.
	suspects map[string]time.Time
}

// taskRun is the record of a task that runs.
type taskRun struct {
	Task string `json:"task"`
	// Node is the id of the node that runs it.
	Node string `json:"node"`
}

func (tr *taskRuns) key(id string) string { return tr.store.n.key("task run", id) }

// begin notes that this node runs a task, which is created after that.
func (tr *taskRuns) begin(ctx context.Context, id string) error {
	value, err := encode(&taskRun{id, tr.store.n.id})
	if err != nil {
		return err
	}
	return tr.records.create(ctx, tr.key(id), value)
}

// end notes that a task has ended. If that fails, a search does it.
func (tr *taskRuns) end(ctx context.Context, id string) {
	if err := tr.records.remove(ctx, tr.key(id)); err != nil {
		tr.store.n.opts.Logger.Debug("the end of a task is not noted", "error", err)
	}
}

// reap searches for lost tasks until ctx ends.
func (tr *taskRuns) reap(ctx context.Context) {
	ticker := time.NewTicker(reapInterval)
	defer ticker.Stop()
	for {
		_, changed := tr.store.n.Members()
		select {
		case <-changed:
			ticker.Reset(reapInterval)
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if err := tr.search(ctx); err != nil && ctx.Err() == nil {
			tr.store.n.opts.Logger.Warn("no search for tasks whose node is gone", "error", err)
		}
	}
}

// search fails the tasks whose node is gone. One node does it: the one with the least id.
func (tr *taskRuns) search(ctx context.Context) error {
	n := tr.store.n
	if members, _ := n.Members(); len(members) == 0 || members[0].ID != n.id {
		clear(tr.suspects)
		return nil
	}
	suspects, now := make(map[string]time.Time), time.Now()
	ctx, cancel := bound(ctx)
	defer cancel()
	values, err := tr.records.list(ctx, n.tenant, maxRuns)
	if err != nil {
		return err
	}
	var failed error // one task does not keep the others from failing
	for _, value := range values {
		var run taskRun
		if err := decode(value, &run); err != nil {
			failed = cmp.Or(failed, err)
			continue
		}
		if (coordinator{n}).HasMember(run.Node) {
			continue
		}
		since, ok := tr.suspects[run.Task]
		if !ok {
			since = now
		}
		if now.Sub(since) >= reapInterval {
			err := tr.fail(ctx, run.Task)
			if err == nil {
				continue
			}
			if ctx.Err() != nil {
				return err
			}
			failed = cmp.Or(failed, err)
		}
		suspects[run.Task] = since
	}
	tr.suspects = suspects
	return failed
}

// errTaskOver ends an update of a task that has ended.
var errTaskOver = errors.New("the task has ended")

// fail ends a task whose node is gone.
func (tr *taskRuns) fail(ctx context.Context, id string) error {
	t, err := tr.store.Update(ctx, id, func(t *server.Task) error {
		if t.Ended() {
			return errTaskOver
		}
		t.Status, t.StatusMessage = mcp.TaskStatusFailed, "the process that ran the task was lost"
		t.InputRequests, t.InputResponses = nil, nil
		t.Error = &jsonrpc.Error{
			Code: jsonrpc.CodeInternalError, Message: "the process that ran the task was lost; it may have done a part of it",
			Data: []byte(`{"reason":"node lost","mayHaveRun":true}`),
		}
		t.Updated = time.Now()
		return nil
	})
	switch {
	case errors.Is(err, errTaskOver), errors.Is(err, server.ErrTaskNotFound):
		tr.end(ctx, id)
		return nil
	case err != nil:
		return err
	}
	if err := tr.store.n.Bus().Publish(ctx, server.TaskUpdated(t)); err != nil {
		tr.store.n.opts.Logger.Debug("clients are not notified of a task that was lost", "error", err)
	}
	return nil
}
