package server

import (
	"errors"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// anonymousTaskOwner returns who may ask for the tasks that the call makes.
func (c *Call) taskOwner() string {
	if c.ex.Modern && c.Principal().ID == "" {
		return "" // whoever knows the id
	}
	return c.session.legacyTaskOwner()
}

func unknownTask(id string) error { return invalidParams("there is no task %q", clip(id)) }

// findTask returns the task that the request names, if the caller may ask for it.
func (s *session) findTask(c *Call, r *jsonrpc.Request) (*Task, error) {
	id, err := stringParam(r, "taskId")
	if err != nil {
		return nil, err
	}
	t, err := s.srv.tasks.opts.Store.Task(c, id)
	switch {
	case errors.Is(err, ErrTaskNotFound):
		return nil, unknownTask(id)
	case err != nil:
		return nil, err
	case t.Owner != c.taskOwner() || t.Core != c.ex.CoreTasks:
		return nil, unknownTask(id)
	}
	return t, nil
}

// taskMethod answers the methods of both designs of tasks.
func (s *session) taskMethod(c *Call, r *jsonrpc.Request, dst []byte) ([]byte, error) {
	if c.ex.Modern && !c.hasTasks() {
		return dst, missingTasksCapability()
	}
	if c.method == mcp.MethodTasksList {
		return s.listTasks(c, r, dst)
	}
	t, err := s.findTask(c, r)
	if err != nil {
		return dst, err
	}
	switch c.method {
	case mcp.MethodTasksResult:
		return s.taskResult(c, t, dst)
	case mcp.MethodTasksUpdate:
		if err := s.updateTaskInput(c, r, t); err != nil {
			return dst, err
		}
		return s.srv.results.Empty(dst, c.ex.Features, nil), nil
	case mcp.MethodTasksCancel:
		return s.cancelTask(c, t, dst)
	}
	if t.Core {
		return t.coreTask().AppendRevision(dst, c.ex.Revision), nil
	}
	return s.appendDetailed(c, t, dst), nil
}

// cancelTask answers tasks/cancel: the core protocol with the task, which must not have ended, the extension with nothing.
func (s *session) cancelTask(c *Call, t *Task, dst []byte) ([]byte, error) {
	now, err := s.srv.updateTask(c, t.ID, canceled("The task was cancelled by request."))
	if err == nil {
		s.srv.tasks.cancelRun(t.ID)
	}
	switch {
	case errors.Is(err, ErrTaskNotFound):
		return dst, unknownTask(t.ID)
	case errors.Is(err, errTaskEnded) && t.Core:
		return dst, invalidParams("the task has ended already, it is %s", string(t.Status))
	case err != nil && !errors.Is(err, errTaskEnded):
		return dst, err
	case t.Core:
		return now.coreTask().AppendRevision(dst, c.ex.Revision), nil
	}
	return s.srv.results.Empty(dst, c.ex.Features, nil), nil
}

// maxTaskWaits is how many tasks/result requests of one connection may wait at once.
const maxTaskWaits = 64

// taskResult answers tasks/result, when the task has ended, with what the request would have been answered with.
func (s *session) taskResult(c *Call, t *Task, dst []byte) ([]byte, error) {
	if !t.Ended() {
		if s.taskWaits.Add(1) > maxTaskWaits {
			s.taskWaits.Add(-1)
			return dst, jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many tasks/result requests are waiting (limit %d)", maxTaskWaits)
		}
		defer s.taskWaits.Add(-1)
	}
	for !t.Ended() {
		next, err := s.srv.tasks.opts.Store.Wait(c, t.ID, t.Version)
		if errors.Is(err, ErrTaskNotFound) {
			return dst, unknownTask(t.ID)
		}
		if err != nil {
			return dst, err
		}
		t = next
	}
	if t.Error != nil {
		return dst, t.Error
	}
	return append(dst, withRelatedTask(t.Result, t.ID)...), nil
}

// updateTaskInput takes the answers of tasks/update to questions that are open. Others are passed over.
func (s *session) updateTaskInput(c *Call, r *jsonrpc.Request, t *Task) error {
	responses, ok := r.Param("inputResponses")
	if !ok || responses[0] != '{' {
		return invalidParams("params.inputResponses must be an object")
	}
	_, err := s.srv.updateTask(c, t.ID, func(t *Task) error {
		found, err := t.applyResponses(responses)
		if err == nil && !found {
			err = errNoResponse
		}
		return err
	})
	switch {
	case errors.Is(err, errNoResponse), errors.Is(err, errTaskEnded): // nobody waits for it, which the client need not know
		return nil
	case errors.Is(err, ErrTaskNotFound):
		return unknownTask(t.ID)
	}
	return err
}

var errNoResponse = errors.New("no question is answered")

// listTasks answers tasks/list. Tasks of the extension, which the owner may have too, make pages shorter.
func (s *session) listTasks(c *Call, r *jsonrpc.Request, dst []byte) ([]byte, error) {
	after := ""
	if cursor, ok := r.Param("cursor"); ok && string(cursor) != "null" {
		text, err := stringParam(r, "cursor")
		if err != nil {
			return dst, err
		}
		if id, err := taskIDEncoding.DecodeString(text); err != nil || len(id) != taskIDLen {
			return dst, invalidParams("params.cursor is not one that this server gave out")
		}
		after = text
	}
	own, err := s.srv.tasks.opts.Store.Tasks(c, c.taskOwner(), after, s.srv.opts.PageSize+1)
	if err != nil {
		return dst, err
	}
	page := mcp.ListTasksResult{Tasks: []mcp.Task{}}
	if len(own) > s.srv.opts.PageSize {
		own = own[:s.srv.opts.PageSize]
		page.NextCursor = &own[len(own)-1].ID
	}
	for _, t := range own {
		if !t.Core {
			continue
		}
		page.Tasks = append(page.Tasks, *t.coreTask())
	}
	return page.AppendRevision(dst, c.ex.Revision), nil
}

// formatTime is the form of times in tasks.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }
