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
	byNotification := func(_ *Bridge, client *pipe) {
		client.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	}
	for _, tt := range []struct {
		name   string
		opts   Options
		meta   string
		giveUp func(b *Bridge, client *pipe) // nil is not at all
		after  time.Duration
		answer string
		want   bool
	}{
		{"cancelled", Options{}, takesTasks, byNotification, 0, task, true},
		{"cancelled, ids are replaced", Options{Shared: true}, takesTasks, byNotification, 0, task, true},
		{"timeout", Options{CallTimeout: time.Second}, takesTasks, func(*Bridge, *pipe) { time.Sleep(2 * time.Second) }, 0, task, true},
		{"result", Options{}, takesTasks, byNotification, 0, complete, false},
		{"too late", Options{}, takesTasks, byNotification, abandonedTimeout + time.Second, task, false},
		{"client without tasks", Options{}, `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`, byNotification, 0, task, false},
		{"not given up", Options{}, takesTasks, nil, 0, task, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFarm(t)
				tt.opts.ClientEra, tt.opts.ServerEra = EraModern, EraModern
				b := f.bridge(&tt.opts)
				client, _ := client0(t, b)
				client.send(callOf(1, tt.meta))
				srv := f.next()
				id := srv.request("tools/call")
				if tt.giveUp != nil {
					tt.giveUp(b, client)
					srv.reads("notifications/cancelled", `"requestId":`+id)
				}
				time.Sleep(tt.after)
				srv.send(answering(id, tt.answer), answering(id, tt.answer))
				if tt.want {
					cancel := srv.request(`"tasks/cancel"`, `{"taskId":"a\"b",`, `"io.modelcontextprotocol/tasks":{}`)
					if line := []byte(srv.last); locate(line, "params", "_meta", "progressToken").found() {
						t.Errorf("got %s", line)
					}
					srv.send(answering(cancel, `{"resultType":"complete"}`))
				}
				if tt.opts.CallTimeout != 0 {
					client.reads(`"id":1,"error"`)
				} else if tt.giveUp == nil {
					client.reads(`"id":1,"result"`)
				}
				client.send(callOf(2, tt.meta))
				srv.send(answering(srv.request("tools/call"), complete)) // and nothing before it
				client.reads(`"id":2,"result"`)
			})
		})
	}
}

// TestLateTaskHungUp: the same over HTTP, where the client closes its request.
func TestLateTaskHungUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		b := f.bridge(&Options{ClientEra: EraModern, ServerEra: EraModern})
		cl := b.newClient(nil, "", true)
		defer cl.close()
		ctx, hangUp := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			frame, m := parsed(t, callOf(1, takesTasks))
			_, err := cl.roundTrip(ctx, frame, m, nil, nil)
			done <- err
		}()
		srv := f.next()
		id := srv.request("tools/call")
		hangUp()
		if err := <-done; err == nil {
			t.Error("a request without a client was answered")
		}
		srv.reads("notifications/cancelled")
		srv.send(answering(id, `{"resultType":"task","taskId":"a"}`))
		srv.request(`"tasks/cancel"`, `{"taskId":"a",`)
	})
}

// TestLateTasks: only so many calls are remembered, and for no longer than they must.
func TestLateTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newUnboundPassthrough(&Bridge{}, false)
		for range 2 {
			for i := range 2 * maxAbandoned {
				c := &call{serverID: []byte(fmt.Sprint(i)), taskFrame: []byte(callOf(i, takesTasks))}
				p.calls[idKey(c.serverID)] = c
				if !p.giveUp(c) || p.giveUp(c) {
					t.Fatal("a call is given up once")
				}
			}
			if n := len(p.abandoned); n != maxAbandoned {
				t.Errorf("%d calls are remembered, want %d", n, maxAbandoned)
			}
			time.Sleep(abandonedTimeout + time.Second)
		}
	})
}
