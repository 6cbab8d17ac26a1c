package replay

import (
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

// learn remembers the server's new values for the recorded ones.
func (p *player) learn(l *liveCall) {
	if l.call.method == mcp.MethodToolsList {
		p.origin.Params = wireclient.LearnParams(p.origin.Params, l.response.result())
	}
	p.substitutes.learnTasks(l.call.response.result(), l.response.result())
}

// needsPoll reports whether a task has not reached its recorded status. It then schedules a poll.
func (p *player) needsPoll(l *liveCall, now time.Time) bool {
	c := l.call
	if c.method != mcp.MethodTasksGet || jsonwire.Text(jsonwire.Lookup(l.response.result(), "status")) != working || c.response == nil {
		return false
	}
	if status := jsonwire.Text(jsonwire.Lookup(c.response.result(), "status")); status == "" || status == working || now.Sub(l.at) > p.opts.Timeout {
		return false
	}
	wait := defaultPoll
	for _, name := range []string{"pollIntervalMs", "pollInterval"} {
		if ms, ok := jsonwire.ParseInt(jsonwire.Lookup(l.response.result(), name)); ok {
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
