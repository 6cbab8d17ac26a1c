package server

import (
	"encoding/json"

	"mcpwire/mcp"
)

type jsonText = json.RawMessage

// taskIDLen is how many bytes a task's id encodes.
const taskIDLen = 8 + 16

// core returns the task in the shape of 2025-11-25.
func (t *Task) core() *mcp.Task {
	ttl, poll := t.TTL.Milliseconds(), t.PollInterval.Milliseconds()
	return &mcp.Task{
		TaskID: t.ID, Status: t.Status, StatusMessage: t.StatusMessage, CreatedAt: isoTime(t.Created), LastUpdatedAt: isoTime(t.Updated),
		TTL: &ttl, PollInterval: &poll,
	}
}

// extension returns the task in the shape of the extension.
func (t *Task) extension() mcp.ExtensionTask {
	ttl, poll := t.TTL.Milliseconds(), t.PollInterval.Milliseconds()
	return mcp.ExtensionTask{
		TaskID: t.ID, Status: t.Status, StatusMessage: t.StatusMessage, CreatedAt: isoTime(t.Created), LastUpdatedAt: isoTime(t.Updated),
		TTLMs: &ttl, PollIntervalMs: &poll,
	}
}

// detailed returns the task with all that its status has: the open questions, the result or the error.
func (t *Task) detailed() mcp.DetailedTask {
	d := mcp.DetailedTask{ExtensionTask: t.extension()}
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
func (run *taskRun) appendCreated(dst []byte) []byte {
	c := run.call
	if run.task.Core {
		return (&mcp.CreateTaskResult{Task: *run.task.core()}).AppendRevision(dst, c.ex.Revision)
	}
	t := run.task.extension()
	return c.session.srv.identity.EndAs(trimObject(t.AppendRevision(dst, c.ex.Revision)), c.ex.Features, resultTypeTask)
}

// resultTypeTask tells a task from a result.
const resultTypeTask = "task"

// appendDetailed appends the answer to tasks/get of the extension.
func (s *session) appendDetailed(c *Call, t *Task, dst []byte) []byte {
	d := t.detailed()
	return s.srv.identity.End(trimObject(d.AppendRevision(dst, c.ex.Revision)), c.ex.Features)
}

// trimObject takes off the brace that ends an object with members, so that more can follow.
func trimObject(dst []byte) []byte { return dst[:len(dst)-1] }
