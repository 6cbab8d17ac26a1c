package replay

import (
	"bytes"
	"context"
	"strconv"
	"time"

	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// The interval of task polling: the default, and the limits of the server's value.
const (
	defaultPoll = 250 * time.Millisecond
	minPoll     = 10 * time.Millisecond
	maxPoll     = 2 * time.Second
)

// working is the status of a task that needs no input.
const working = "working"

// maxTasks limits the remembered task ids.
const maxTasks = 10_000

// taskIDs returns the task ids in a result, in either design of tasks.
func taskIDs(result []byte) [][]byte {
	var list [][]byte
	for _, place := range [][]string{{"taskId"}, {"task", "taskId"}} {
		if id := jsonwire.Lookup(result, place...); len(id) > 0 && id[0] == '"' {
			list = append(list, id)
		}
	}
	return list
}

// learn remembers the server's new values for the recorded ones.
func (p *player) learn(l *liveCall) {
	if l.call.method == mcp.MethodToolsList {
		p.origin.Params = wireclient.LearnParams(p.origin.Params, l.result())
	}
	old, now := taskIDs(l.call.result()), taskIDs(l.result())
	for i := range min(len(old), len(now)) {
		if len(p.tasks) < maxTasks {
			p.tasks[jsonwire.Text(old[i])] = now[i]
		}
	}
}

// replaceTaskIDs returns a message with the new task ids.
func (p *player) replaceTaskIDs(raw []byte) []byte {
	if len(p.tasks) == 0 {
		return raw
	}
	renamed := func(old []byte) []byte {
		if now, ok := p.tasks[jsonwire.Text(old)]; ok && len(old) > 0 {
			return now
		}
		return old
	}
	for _, top := range []string{"params", "result"} {
		raw = edit(raw, []string{top, "_meta", mcp.MetaRelatedTask, "taskId"}, renamed)
	}
	raw = edit(raw, []string{"params", "taskId"}, renamed)
	return edit(raw, []string{"params", "notifications", "taskIds"}, func(old []byte) []byte {
		if len(old) == 0 || old[0] != '[' {
			return old
		}
		var ids [][]byte
		elements := jsonwire.ArrayElements(old)
		for elements.Next() {
			ids = append(ids, renamed(elements.Value()))
		}
		return append(append([]byte{'['}, bytes.Join(ids, []byte{','})...), ']')
	})
}

// needsPoll reports whether a task has not reached its recorded status. It then schedules a poll.
func (p *player) needsPoll(l *liveCall, now time.Time) bool {
	c := l.call
	if c.method != mcp.MethodTasksGet || jsonwire.Text(jsonwire.Lookup(l.result(), "status")) != working || c.response == nil {
		return false
	}
	if status := jsonwire.Text(jsonwire.Lookup(c.result(), "status")); status == "" || status == working || now.Sub(l.at) > p.opts.Timeout {
		return false
	}
	wait := defaultPoll
	for _, name := range []string{"pollIntervalMs", "pollInterval"} {
		if ms, ok := jsonwire.ParseInt(jsonwire.Lookup(l.result(), name)); ok {
			wait = min(max(time.Duration(min(ms, maxPoll.Milliseconds()))*time.Millisecond, minPoll), maxPoll)
		}
	}
	l.pollAt = now.Add(wait)
	return true
}

// poll requests a task again.
func (p *player) poll(ctx context.Context, l *liveCall) error {
	l.pollAt = time.Time{}
	p.polls++
	l.id = jsonrpc.StringID("mcpwire-poll-" + strconv.Itoa(p.polls))
	s, err := p.deliver(ctx, edit(l.message, []string{"id"}, func([]byte) []byte { return l.id }))
	l.notifications.exchange = s.Exchange
	return err
}

// wasWorking reports whether the recorded response is that of a working task, whose progress
// depends on time.
func (p *player) wasWorking(l *liveCall) bool {
	return !p.opts.Strict && l.call.method == mcp.MethodTasksGet && l.response.m.Kind == jsonrpc.KindResponse && jsonwire.Text(jsonwire.Lookup(l.call.result(), "status")) == working
}
