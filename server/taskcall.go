package server

import (
	"context"
	"errors"
	"strconv"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A taskSupport is whether a tool can run as a task.
type taskSupport uint8

const (
	taskForbidden taskSupport = iota
	taskOptional
	taskRequired
)

// taskSupportOf reads what a tool's definition says.
func taskSupportOf(def *mcp.Tool) (taskSupport, bool) {
	if def.Execution == nil {
		return taskForbidden, true
	}
	switch def.Execution.TaskSupport {
	case "", mcp.TaskSupportForbidden:
		return taskForbidden, true
	case mcp.TaskSupportOptional:
		return taskOptional, true
	case mcp.TaskSupportRequired:
		return taskRequired, true
	}
	return taskForbidden, false
}

var (
	errTaskSupport = errors.New("execution.taskSupport must be forbidden, optional or required")
	errNoTasks     = errors.New("its execution.taskSupport says that it runs as a task: set Options.Tasks")
)

// wantsTask decides whether the call of a tool may become a task, and for how long that would be kept.
func (c *Call) wantsTask(t *tool, r *jsonrpc.Request) (ttl time.Duration, yes bool, err error) {
	tm := c.session.srv.tasks
	if tm == nil {
		return 0, false, nil
	}
	switch {
	case c.ex.CoreTasks:
		task, asked := r.Param("task")
		asked = asked && string(task) != "null"
		switch {
		case !asked && t.taskSupport == taskRequired:
			return 0, false, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "tool %s runs as a task only: send params.task", t.key)
		case !asked:
			return 0, false, nil
		case t.taskSupport == taskForbidden:
			return 0, false, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "tool %s does not run as a task: leave out params.task", t.key)
		}
		ttl, err = requestedTTL(task, tm.opts.TTL)
		return ttl, err == nil, err
	case !c.ex.Modern || t.taskSupport == taskForbidden:
		return 0, false, nil
	case c.hasTasks():
		return tm.opts.TTL, true, nil
	case t.taskSupport == taskRequired:
		return 0, false, missingTasksCapability()
	}
	return 0, false, nil
}

// requestedTTL is what the client asks for, or what the server has at most.
func requestedTTL(task []byte, limit time.Duration) (time.Duration, error) {
	var meta mcp.TaskMetadata
	if err := meta.UnmarshalJSON(task); err != nil {
		return 0, invalidParams("params.task: %v", err)
	}
	switch {
	case meta.TTL == nil || *meta.TTL >= limit.Milliseconds():
		return limit, nil
	case *meta.TTL <= 0:
		return 0, invalidParams("params.task.ttl must be greater than 0, not %s", strconv.FormatInt(*meta.TTL, 10))
	}
	return time.Duration(*meta.TTL) * time.Millisecond, nil
}

// hasTasks reports whether the client has declared the tasks extension.
func (c *Call) hasTasks() bool {
	_, ok := c.ClientExtension(mcp.ExtensionTasks)
	return ok
}

// missingTasksCapability is the error for a client that has not declared the tasks extension.
func missingTasksCapability() *jsonrpc.Error {
	return mcp.MissingRequiredClientCapability(mcp.ClientCapabilities{Extensions: map[string]jsonText{mcp.ExtensionTasks: jsonText("{}")}})
}

// callAsTask answers the call of a tool that may become a task: with the task, or with what the tool returned before it became one.
func (s *session) callAsTask(c *Call, t *tool, r *jsonrpc.Request, args, dst []byte, ttl time.Duration) ([]byte, error) {
	reqCtx := c.context() // from here on the Call stands for that of the task
	run, err := s.srv.tasks.newRun(c, args, ttl)
	if err != nil {
		return dst, err
	}
	defer run.releaseUnlessTask() // not before what the handler returned is settled, for which the Call must go on
	d := c.inputState()
	d.requester = &taskRequester{run: run, inner: d.requester}
	after := s.srv.tasks.opts.After
	if run.task.Core || after <= 0 || t.taskSupport == taskRequired {
		if err := reqCtx.Err(); err != nil {
			return dst, err
		}
		if _, err := run.becomeTask(reqCtx); err != nil {
			return dst, err
		}
		run.start(t.invoke)
		return run.appendCreated(dst), nil
	}
	stop := context.AfterFunc(reqCtx, func() { run.cancelUnlessTask(context.Cause(reqCtx)) })
	defer stop()
	run.start(t.invoke)
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-run.done:
	case <-timer.C:
		begun, err := run.becomeTask(reqCtx)
		if begun {
			return run.appendCreated(dst), nil
		}
		if err != nil { // the handler is at work, and to end it half-way is worse than to wait
			c.Logger().Warn("no task was made of a call, which is waited for", "error", err)
		}
		<-run.done
	}
	return c.respond(r, dst, append(dst, run.out...), run.err)
}

// cancelIfUnsent cancels the task that the call has become, if it has, should the client not be told of
// it: because the answer is not sent, or is an error of a middleware's, and told is false. A task of
// the core protocol goes on: its owner finds it in the list.
func (c *Call) cancelIfUnsent(r *jsonrpc.Request, sent bool) {
	run := c.run.Load()
	switch {
	case run == nil || run.task.Core || !run.isTask():
	case sent:
		r.OnUnsent(run.cancelUnsent)
	default:
		run.cancelUnsent()
	}
}

// sendNotification sends a notification that belongs to the call. What a task has to tell cannot belong to a request any more: the core protocol keeps the token
// for as long as the task goes on, the extension has neither progress nor log messages.
func (c *Call) sendNotification(method string, params []byte) error {
	run := c.run.Load()
	switch {
	case run == nil || !run.isTask():
		return c.Notify(method, params)
	case !run.task.Core:
		return nil
	case run.ctx.Err() != nil:
		return jsonrpc.ErrRequestEnded
	}
	return c.session.sendNotification(c, c, method, withRelatedTask(params, run.task.ID))
}
