package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// TestListTasks checks that tasks/list has the caller's tasks of all upstreams, although the
// servers do not distinguish callers, and that task requests are audited and limited.
func TestListTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var audit []string
		var limited bool
		worker := func(name string) Upstream {
			srv := server.MustNew(name, "1", &server.Options{Revisions: []mcp.Revision{mcp.LatestLegacyRevision}, Limits: server.Limits{PageSize: 2}, Tasks: &server.TaskOptions{}})
			must(server.AddToolWith(srv, mcp.Tool{Name: "work", Execution: &mcp.ToolExecution{TaskSupport: mcp.TaskSupportOptional}}, func(context.Context, none) (string, error) { return name, nil }))
			t.Cleanup(func() { srv.Close(context.Background()) })
			u := streamUpstream(name, srv)
			u.Isolation = IsolateNone
			return u
		}
		works := true
		g := newGateway(t, &Options{
			Upstreams: []Upstream{worker("one"), worker("broken"), worker("two")},
			Admit: func(context.Context, string) (func(), error) {
				if limited {
					return nil, &relay.RejectedError{Status: http.StatusTooManyRequests, Reason: "slow down"}
				}
				return nil, nil
			},
			Check: func(_ context.Context, call *CallInfo) error {
				if call.Method == mcp.MethodTasksList && call.Upstream == "broken" && !works {
					return jsonrpc.Errorf(jsonrpc.CodeInternalError, "internal failure")
				}
				return nil
			},
			Audit: func(r *CallRecord) {
				name := r.Name
				if strings.HasPrefix(r.Method, "tasks/") && name != "" {
					name = "ID"
				}
				audit = append(audit, strings.Join([]string{r.Method, r.Upstream, name, string(r.Outcome)}, " "))
			},
		})
		defer g.Close()
		type user struct {
			ctx context.Context
			s   relay.Peer
		}
		users := map[string]user{}
		for _, name := range []string{"ann", "bob"} {
			ctx := as(t.Context(), name)
			s := g.Session(ctx, senderFunc(func([]byte) error { return nil }))
			defer s.Close()
			handshake := request(t, ctx, s, mcp.MethodInitialize, `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`)
			if !strings.Contains(handshake, `"tasks":{"list":{},"cancel":{}`) {
				t.Errorf("handshake: got %s, want the capability tasks.list", handshake)
			}
			users[name] = user{ctx, s}
		}
		ask := func(name, method, params string) string {
			return request(t, users[name].ctx, users[name].s, method, params)
		}
		started := map[string][]string{}
		for i := range 3 {
			for _, name := range []string{"ann", "bob"} {
				for _, up := range []string{"one", "two"} {
					if name == "bob" && up == "two" && i > 0 {
						continue
					}
					id := jsonwire.Text(jsonwire.Lookup([]byte(ask(name, mcp.MethodToolsCall, `{"name":"`+up+`__work","arguments":{},"task":{}}`)), "result", "task", "taskId"))
					if id == "" {
						t.Fatal("the result of the call has no task")
					}
					started[name] = append(started[name], id)
				}
			}
		}
		time.Sleep(time.Second)
		// list returns the ids on all pages.
		list := func(name string) (ids []string) {
			cursor := ""
			for range 20 {
				got := []byte(ask(name, mcp.MethodTasksList, "{"+cursor+"}"))
				for e := jsonwire.ArrayElements(jsonwire.Lookup(got, "result", "tasks")); e.Next(); {
					ids = append(ids, jsonwire.Text(jsonwire.Lookup(e.Value(), "taskId")))
				}
				next := jsonwire.Lookup(got, "result", "nextCursor")
				if next == nil {
					return ids
				}
				cursor = `"cursor":` + string(next)
			}
			t.Errorf("the list of %s has more than 20 pages", name)
			return ids
		}
		for name := range users {
			want := slices.Sorted(slices.Values(started[name]))
			if diff := cmp.Diff(want, slices.Sorted(slices.Values(list(name)))); diff != "" {
				t.Errorf("tasks of %s (-want +got):\n%s", name, diff)
			}
		}
		first := ask("ann", mcp.MethodTasksList, "{}")
		cursor := string(jsonwire.Lookup([]byte(first), "result", "nextCursor"))
		if cursor == "" {
			t.Fatalf("got %s, want a next page", first)
		}
		for _, tt := range []struct{ user, cursor, want string }{
			{"bob", cursor, `"code":-32602`},
			{"ann", `"forged"`, `"code":-32602`},
			{"ann", `17`, `"code":-32602`},
			{"ann", cursor, `"tasks":[`},
		} {
			if got := ask(tt.user, mcp.MethodTasksList, `{"cursor":`+tt.cursor+`}`); !strings.Contains(got, tt.want) {
				t.Errorf("%s with %s: got %s, want %s in it", tt.user, tt.cursor, got, tt.want)
			}
		}
		works = false
		seen := ""
		for got := first; seen == ""; {
			next := jsonwire.Lookup([]byte(got), "result", "nextCursor")
			if next == nil {
				break
			}
			got = ask("ann", mcp.MethodTasksList, `{"cursor":`+string(next)+`}`)
			seen = string(jsonwire.Lookup([]byte(got), "result", "_meta", MetaStale))
		}
		if seen != `["broken"]` {
			t.Errorf("stale: got %s, want the broken upstream", seen)
		}
		audit = nil
		task := started["ann"][0]
		for _, tt := range []struct{ user, method, want string }{
			{"ann", mcp.MethodTasksGet, `"status":"completed"`},
			{"ann", mcp.MethodTasksResult, `"text":"one"`},
			{"ann", mcp.MethodTasksCancel, `"code":-32602`}, // the task has ended
			{"bob", mcp.MethodTasksGet, `"code":-32602`},
		} {
			if got := ask(tt.user, tt.method, `{"taskId":"`+task+`"}`); !strings.Contains(got, tt.want) {
				t.Errorf("%s %s: got %s, want %s in it", tt.user, tt.method, got, tt.want)
			}
		}
		limited = true
		for _, method := range []string{mcp.MethodTasksGet, mcp.MethodTasksResult, mcp.MethodTasksCancel, mcp.MethodTasksList} {
			if got := ask("ann", method, `{"taskId":"`+task+`"}`); !strings.Contains(got, "slow down") {
				t.Errorf("%s above the limit: got %s", method, got)
			}
		}
		want := []string{
			"tasks/get one ID ok", "tasks/result one ID ok", "tasks/cancel one ID error", "tasks/get  ID denied",
			"tasks/get one ID rejected", "tasks/result one ID rejected", "tasks/cancel one ID rejected", "tasks/list one  rejected",
		}
		if diff := cmp.Diff(want, audit); diff != "" {
			t.Errorf("audit (-want +got):\n%s", diff)
		}
	})
}

// TestTaskOwners checks that the number of stored owners is limited, and that the oldest is evicted
// first.
func TestTaskOwners(t *testing.T) {
	var o taskOwners
	task := func(i int) OwnedTask { return OwnedTask{"ann", "up", fmt.Sprint(i)} }
	for i := range maxOwnedTasks {
		o.add(task(i))
	}
	o.add(task(0))
	o.add(task(maxOwnedTasks))
	for i, want := range map[int]bool{0: true, 1: false, 2: true, maxOwnedTasks: true, maxOwnedTasks + 1: false} {
		if got := o.has(task(i)); got != want {
			t.Errorf("task %d: got %v, want %v", i, got, want)
		}
	}
	if len(o.tasks) != maxOwnedTasks || o.recent.Len() != maxOwnedTasks {
		t.Errorf("got %d tasks and %d in the list, want %d", len(o.tasks), o.recent.Len(), maxOwnedTasks)
	}
}

// owners are TaskOwners.
type owners struct {
	lives  map[OwnedTask]time.Duration
	broken bool
}

func (o *owners) Add(_ context.Context, t OwnedTask, life time.Duration) error {
	o.lives[t] = life
	return nil
}

func (o *owners) Has(_ context.Context, t OwnedTask) (bool, error) {
	if o.broken {
		return false, errors.New("broken")
	}
	return o.lives[t] > 0, nil
}

// TestSharedTaskOwners checks that a gateway that has not seen the start of a task lists it for its owner
// if TaskOwners know it, and that it says so if they fail.
func TestSharedTaskOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := server.MustNew("up", "1", &server.Options{Revisions: []mcp.Revision{mcp.LatestLegacyRevision}, Tasks: &server.TaskOptions{}})
		defer srv.Close(context.Background())
		must(server.AddToolWith(srv, mcp.Tool{Name: "work", Execution: &mcp.ToolExecution{TaskSupport: mcp.TaskSupportOptional}}, func(context.Context, none) (string, error) { return "", nil }))
		u := streamUpstream("up", srv)
		u.Isolation = IsolateNone
		known := &owners{lives: map[OwnedTask]time.Duration{}}
		g := newGateway(t, &Options{Upstreams: []Upstream{u}, TaskOwners: known})
		defer g.Close()
		lists := map[string]func() string{}
		for _, name := range []string{"ann", "bob"} {
			ctx := as(t.Context(), name)
			s := g.Session(ctx, senderFunc(func([]byte) error { return nil }))
			defer s.Close()
			request(t, ctx, s, mcp.MethodInitialize, `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`)
			lists[name] = func() string { return request(t, ctx, s, mcp.MethodTasksList, "{}") }
			if name == "ann" {
				for _, ttl := range []string{"60000", "999999999999"} {
					request(t, ctx, s, mcp.MethodToolsCall, `{"name":"up__work","arguments":{},"task":{"ttl":`+ttl+`}}`)
				}
			}
		}
		var lives []time.Duration
		for task, life := range known.lives {
			if task.Upstream != "up" || !strings.Contains(task.Principal, "ann") {
				t.Errorf("the owner of %+v", task)
			}
			lives = append(lives, life)
		}
		slices.Sort(lives)
		if len(lives) != 2 || lives[0] != time.Minute || lives[1] > maxTaskLife {
			t.Errorf("the tasks are remembered for %v", lives)
		}
		g.tasks = taskOwners{} // as after a restart
		for name, want := range map[string]int{"ann": 2, "bob": 0} {
			if got := strings.Count(lists[name](), `"taskId"`); got != want {
				t.Errorf("%s sees %d tasks, want %d", name, got, want)
			}
		}
		g.tasks = taskOwners{}
		known.broken = true
		if got := lists["ann"](); !strings.Contains(got, `"tasks":[]`) || !strings.Contains(got, `"mcpwire.gateway/stale":["up"]`) {
			t.Errorf("if the owners are unknown: %s", got)
		}
	})
}
