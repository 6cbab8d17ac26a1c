package server

import (
	"encoding/json"

	"mcpwire/mcp"
)

type jsonText = json.RawMessage

// taskIDLen is how many bytes a task's id encodes.
const taskIDLen = 8 + 16

// coreTask returns the task in the shape of 2025-11-25.
func (t *Task) coreTask() *mcp.Task {
	ttl, poll := t.TTL.Milliseconds(), t.PollInterval.Milliseconds()
	return &mcp.Task{
		TaskID: t.ID, Status: t.Status, StatusMessage: t.StatusMessage, CreatedAt: formatTime(t.Created), LastUpdatedAt: formatTime(t.Updated),
		TTL: &ttl, PollInterval: &poll,
	}
}

// extensionTask returns the task in the shape of the extension.
func (t *Task) extensionTask() mcp.ExtensionTask {
	ttl, poll := t.TTL.Milliseconds(), t.PollInterval.Milliseconds()
	return mcp.ExtensionTask{
		TaskID: t.ID, Status: t.Status, StatusMessage: t.StatusMessage, CreatedAt: formatTime(t.Created), LastUpdatedAt: formatTime(t.Updated),
		TTLMs: &ttl, PollIntervalMs: &poll,
	}
}

// detailedTask returns the task with all that its status has: the open questions, the result or the error.
func (t *Task) detailedTask() mcp.DetailedTask {
	d := mcp.DetailedTask{ExtensionTask: t.extensionTask()}
	switch t.Status {
	case mcp.TaskStatusInputRequired:
		d.InputRequests = t.InputRequests
	case mcp.TaskStatusCompleted:
		d.Result = t.Result
	case mcp.TaskStatusFailed:
		d.Error = t.Error
	}
	return d
}

// appendCreated appends the answer to the request whose call has become a task.
func (tr *taskRun) appendCreated(dst []byte) []byte {
	c := tr.call
	if tr.task.Core {
		return (&mcp.CreateTaskResult{Task: *tr.task.coreTask()}).AppendRevision(dst, c.ex.Revision)
	}
	t := tr.task.extensionTask()
	return c.session.srv.results.EndAs(trimObject(t.AppendRevision(dst, c.ex.Revision)), c.ex.Features, resultTypeTask)
}

// resultTypeTask tells a task from a result.
const resultTypeTask = "task"

// appendDetailed appends the answer to tasks/get of the extension.
func (s *session) appendDetailed(c *Call, t *Task, dst []byte) []byte {
	d := t.detailedTask()
	return s.srv.results.End(trimObject(d.AppendRevision(dst, c.ex.Revision)), c.ex.Features)
}

// trimObject takes off the brace that ends an object with members, so that more can follow.
func trimObject(dst []byte) []byte { return dst[:len(dst)-1] }
