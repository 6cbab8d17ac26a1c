package bridge

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// takesTasks is the _meta of a modern client that has the tasks extension.
const takesTasks = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":"p","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

func callOf(id int, meta string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t",%s}}`, id, meta)
}

// TestLateTask: a task that the server makes of a call which was given up by then is cancelled, since
// nobody else gets to know it.
func TestLateTask(t *testing.T) {
	const task, complete = `{"resultType":"task","taskId":"a\"b","status":"working"}`, `{"resultType":"complete","content":[]}`
	byNotification := func(_ *Bridge, near *pipe) {
		near.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	}
	for _, tt := range []struct {
		name   string
		opts   Options
		meta   string
		giveUp func(b *Bridge, near *pipe) // nil is not at all
		after  time.Duration
		answer string
		want   bool
	}{
		{"cancelled", Options{}, takesTasks, byNotification, 0, task, true},
		{"cancelled, ids are replaced", Options{Shared: true}, takesTasks, byNotification, 0, task, true},
		{"timeout", Options{CallTimeout: time.Second}, takesTasks, func(*Bridge, *pipe) { time.Sleep(2 * time.Second) }, 0, task, true},
		{"result", Options{}, takesTasks, byNotification, 0, complete, false},
		{"too late", Options{}, takesTasks, byNotification, lateTime + time.Second, task, false},
		{"client without tasks", Options{}, `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`, byNotification, 0, task, false},
		{"not given up", Options{}, takesTasks, nil, 0, task, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFarm(t)
				tt.opts.Near, tt.opts.Far = EraModern, EraModern
				b := f.bridge(&tt.opts)
				near, _ := client0(t, b)
				near.send(callOf(1, tt.meta))
				far := f.next()
				id := far.request("tools/call")
				if tt.giveUp != nil {
					tt.giveUp(b, near)
					far.reads("notifications/cancelled", `"requestId":`+id)
				}
				time.Sleep(tt.after)
				far.send(answering(id, tt.answer), answering(id, tt.answer))
				if tt.want {
					cancel := far.request(`"tasks/cancel"`, `{"taskId":"a\"b",`, `"io.modelcontextprotocol/tasks":{}`)
					if line := []byte(far.last); locate(line, "params", "_meta", "progressToken").found() {
						t.Errorf("got %s", line)
					}
					far.send(answering(cancel, `{"resultType":"complete"}`))
				}
				if tt.opts.CallTimeout != 0 {
					near.reads(`"id":1,"error"`)
				} else if tt.giveUp == nil {
					near.reads(`"id":1,"result"`)
				}
				near.send(callOf(2, tt.meta))
				far.send(answering(far.request("tools/call"), complete)) // and nothing before it
				near.reads(`"id":2,"result"`)
			})
		})
	}
}

// TestLateTaskHungUp: the same over HTTP, where the client closes its request.
func TestLateTaskHungUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		b := f.bridge(&Options{Near: EraModern, Far: EraModern})
		cl := b.newClient(nil, "", true)
		defer cl.close()
		ctx, hangUp := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			frame, m := parsed(t, callOf(1, takesTasks))
			_, err := cl.await(ctx, frame, m, nil, nil)
			done <- err
		}()
		far := f.next()
		id := far.request("tools/call")
		hangUp()
		if err := <-done; err == nil {
			t.Error("a request without a client was answered")
		}
		far.reads("notifications/cancelled")
		far.send(answering(id, `{"resultType":"task","taskId":"a"}`))
		far.request(`"tasks/cancel"`, `{"taskId":"a",`)
	})
}

// TestLateTasks: only so many calls are remembered, and for no longer than they must.
func TestLateTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlain(&Bridge{}, false)
		for range 2 {
			for i := range 2 * maxLate {
				c := &call{far: []byte(fmt.Sprint(i)), sent: []byte(callOf(i, takesTasks))}
				p.calls[idKey(c.far)] = c
				if !p.drop(c) || p.drop(c) {
					t.Fatal("a call is given up once")
				}
			}
			if n := len(p.late); n != maxLate {
				t.Errorf("%d calls are remembered, want %d", n, maxLate)
			}
			time.Sleep(lateTime + time.Second)
		}
	})
}
