package replay

import (
	"bytes"
	"context"
	"strconv"
	"time"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// How long it takes until a task that is not done is asked for again, if the server does not say, and whatever it says.
const (
	defaultPoll = 250 * time.Millisecond
	minPoll     = 10 * time.Millisecond
	maxPoll     = 2 * time.Second
)

const working = "working" // the status of a task that goes on without anybody

// maxTasks is how many ids of tasks are remembered.
const maxTasks = 10_000

// taskIDs returns the ids of tasks that a result has in it, of either design.
func taskIDs(result []byte) [][]byte {
	var list [][]byte
	for _, place := range [][]string{{"taskId"}, {"task", "taskId"}} {
		if id := jsonwire.Lookup(result, place...); len(id) > 0 && id[0] == '"' {
			list = append(list, id)
		}
	}
	return list
}

// learn remembers what the server has chosen this time in the place of what it chose then.
func (p *player) learn(l *liveCall) {
	p.origin.Params = learnParams(p.origin.Params, l.call.method, l.result())
	old, now := taskIDs(l.call.result()), taskIDs(l.result())
	for i := range min(len(old), len(now)) {
		if len(p.tasks) < maxTasks {
			p.tasks[jsonwire.Text(old[i])] = now[i]
		}
	}
}

// replaceTaskIDs returns a message with the ids that tasks have this time.
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

// needsPoll reports whether the answer says of a task that it is not as far as it was. It is asked for once more then.
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

// poll asks for a task once more.
func (p *player) poll(ctx context.Context, l *liveCall) error {
	l.pollAt = time.Time{}
	p.polls++
	l.id = jsonrpc.StringID("mcpwire-poll-" + strconv.Itoa(p.polls))
	s, err := p.deliver(ctx, edit(l.message, []string{"id"}, func([]byte) []byte { return l.id }))
	l.notifications.exchange = s.Exchange
	return err
}

// wasWorking reports whether the recorded answer says that a task goes on: how far it is now is a matter of time.
func (p *player) wasWorking(l *liveCall) bool {
	return !p.opts.Strict && l.call.method == mcp.MethodTasksGet && l.response.m.Kind == jsonrpc.KindResponse && jsonwire.Text(jsonwire.Lookup(l.call.result(), "status")) == working
}
