//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"
)

// maxVerified limits the items of each kind that verify looks at: the last ones.
const maxVerified = 200

// recovered waits until each client has made another call, which it must within recoverTime.
func (l *load) recovered(ctx context.Context) {
	l.mu.Lock()
	before := maps.Clone(l.progress)
	l.mu.Unlock()
	limit := recoverTime
	if l.forgets { // a client pauses for a minute after eight attempts to listen
		limit += time.Minute
	}
	deadline := time.Now().Add(limit)
	for {
		var waiting []string
		l.mu.Lock()
		for who, n := range before {
			if l.progress[who] == n && who != "subscriber "+legacy && who != "subscriber "+modern {
				waiting = append(waiting, who)
			}
		}
		l.mu.Unlock()
		if len(waiting) == 0 || ctx.Err() != nil {
			return
		}
		if time.Now().After(deadline) {
			slices.Sort(waiting)
			l.led.violation("%v after the fault, these have not made a call: %v\n%s", limit, waiting, l.led.String())
			return
		}
		<-time.After(pollInterval)
	}
}

// verify checks that acknowledged changes are there. All nodes must run.
func (l *load) verify(ctx context.Context) string {
	c := newHTTPClient()
	tasks := l.verifyTasks(ctx, c)
	deleted, states, streams := last(l.deleted), last(l.states), last(l.streams)
	if l.forgets {
		states, streams = nil, nil
	}
	for _, s := range deleted {
		l.check(ctx, "a session that its client has ended", func(url string) error {
			_, err := s.call(ctx, url, "ping", "{}", 0)
			if hasStatus(err, http.StatusNotFound) {
				return nil
			}
			if err == nil {
				err = errors.New("it is alive")
			}
			return err
		})
	}
	for _, st := range states {
		l.check(ctx, "a request state that was used", func(url string) error {
			_, err := callModern(ctx, c, url, "tools/call", "greet", st.params)
			switch {
			case err == nil:
				l.led.violation("a request state was used again, at %s", url)
			case hasStatus(err, http.StatusServiceUnavailable):
				return err
			}
			return nil
		})
	}
	for _, seen := range streams {
		l.check(ctx, "a stream", func(url string) error { return seen.verify(ctx, url) })
	}
	return fmt.Sprintf("%s; %d sessions stay ended, %d states stay used, %d streams are the same at all nodes", tasks, len(deleted), len(states), len(streams))
}

func last[T any](all []T) []T { return all[max(0, len(all)-maxVerified):] }

// check calls fn for each node, again if its backend is unavailable.
func (l *load) check(ctx context.Context, what string, fn func(url string) error) {
	for _, n := range l.b.nodes {
		err := fn(n.url())
		for deadline := time.Now().Add(healTime); err != nil && time.Now().Before(deadline) && ctx.Err() == nil; err = fn(n.url()) {
			<-time.After(pollInterval)
		}
		if err != nil && ctx.Err() == nil {
			l.led.violation("%s, at node %s: %v", what, n.name, err)
		}
	}
}

// verify reads the stream again, from its first event.
func (seen streamSeen) verify(ctx context.Context, url string) error {
	want := seen.events
	if len(want) < 2 || slices.ContainsFunc(want, func(e event) bool { return e.id == "" }) {
		return nil // the event store failed meanwhile
	}
	again := &stream{id: seen.requestID(), last: want[0].id}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := seen.session.resume(ctx, url, again); err != nil {
		return err
	}
	if !slices.Equal(again.events, want[1:]) {
		return fmt.Errorf("it has the events %v, the client got %v", again.events, want[1:])
	}
	return nil
}

// requestID returns the id of the request of the stream, which the last event has.
func (seen streamSeen) requestID() string {
	var m message
	_ = json.Unmarshal([]byte(seen.events[len(seen.events)-1].data), &m) // it was read as a response
	return string(m.ID)
}

// verifyTasks waits until the tasks have ended. None may be lost.
func (l *load) verifyTasks(ctx context.Context, c *http.Client) string {
	var completed, failed int
	for _, t := range l.tasks {
		status, err := t.wait(ctx, c, l.url())
		switch {
		case ctx.Err() != nil:
			return "interrupted"
		case err != nil:
			l.led.violation("task %s: %v", t.id, err)
		case status == "completed":
			completed++
		case status == "failed":
			failed++
		default:
			l.led.violation("task %s is %s for more than %v", t.id, status, healTime)
		}
	}
	if failed > 0 && !l.faults {
		l.led.violation("%d tasks failed", failed)
	}
	return fmt.Sprintf("of %d tasks %d completed, %d failed with their node, 0 may be lost", len(l.tasks), completed, failed)
}

// wait returns the state of a task that has ended, or does not end within healTime.
func (t *taskSeen) wait(ctx context.Context, c *http.Client, url string) (status string, err error) {
	for deadline := time.Now().Add(healTime); ; {
		var result json.RawMessage
		if t.session == nil {
			result, err = callModern(ctx, c, url, "tasks/get", t.id, fmt.Sprintf(`{"taskId":%q}`, t.id))
		} else {
			var st *stream
			if st, err = t.session.call(ctx, url, "tasks/get", fmt.Sprintf(`{"taskId":%q}`, t.id), 0); err == nil {
				result = st.response.Result
				if st.response.Error != nil {
					err = st.response.Error
				}
			}
		}
		var r struct{ Status string }
		if err == nil {
			err = json.Unmarshal(result, &r)
		}
		if err == nil && r.Status != "working" || time.Now().After(deadline) || ctx.Err() != nil {
			return r.Status, err
		}
		<-time.After(pollInterval)
	}
}

// runs returns how often the nodes that run have begun the work with an id.
func (l *load) runs(ctx context.Context, id string) (total int, err error) {
	for _, n := range l.b.nodes {
		if n.pid() == 0 {
			continue
		}
		result, err := callModern(ctx, newHTTPClient(), n.url(), "tools/call", "runs", fmt.Sprintf(`{"name":"runs","arguments":{"id":%q}}`, id))
		if err != nil {
			return 0, err
		}
		var r struct{ StructuredContent workOutput }
		if err := json.Unmarshal(result, &r); err != nil {
			return 0, err
		}
		total += r.StructuredContent.Runs
	}
	return total, nil
}
