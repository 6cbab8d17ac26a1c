package bridge

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/jsonrpc"
)

// shared has two clients on one connection that have shaken hands.
func sharing(t *testing.T) (f *farm, a, b, srv *pipe) {
	f = newFarm(t)
	br := f.bridge(with(legacy, func(o *Options) { o.Shared = true }))
	a, _ = client0(t, br)
	b, _ = client0(t, br)
	a.send(hello)
	srv = f.next()
	id := srv.request(`"initialize"`, `"capabilities":{}`, `"protocolVersion":"2025-11-25"`)
	srv.send(answering(id, `{"protocolVersion":"2025-11-25","capabilities":{"resources":{"subscribe":true}}}`))
	a.wants(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"resources":{"subscribe":true}}}}`)
	a.send(confirmed)
	srv.wants(confirmed)
	b.send(strings.Replace(hello, `"id":0`, `"id":"b"`, 1)) // the server does not hear of it
	b.wants(`{"jsonrpc":"2.0","id":"b","result":{"protocolVersion":"2025-11-25","capabilities":{"resources":{"subscribe":true}}}}`)
	return f, a, b, srv
}

// TestSharedIDs: two clients use the same ids and tokens, and each gets what is its own.
func TestSharedIDs(t *testing.T) {
	_, a, b, srv := sharing(t)
	call := `{"jsonrpc":"2.0", "id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"p"},"x":1.0}}`
	a.send(call)
	first := srv.request(`"x":1.0`)
	b.send(call)
	second := srv.request(`"x":1.0`)
	if first == second {
		t.Fatalf("both calls have the id %s", first)
	}
	srv.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":` + second + `}}`)
	b.wants(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":"p"}}`)
	srv.send(`{"result":{"for":"b"},"id":`+second+`,"jsonrpc":"2.0"}`, `{"result":{"for":"a"},"id":`+first+`,"jsonrpc":"2.0"}`)
	b.wants(`{"result":{"for":"b"},"id":1,"jsonrpc":"2.0"}`)
	a.wants(`{"result":{"for":"a"},"id":1,"jsonrpc":"2.0"}`)
}

func TestSharedCancel(t *testing.T) {
	_, a, b, srv := sharing(t)
	a.send(`{"jsonrpc":"2.0","id":1,"method":"slow"}`)
	first := srv.request("slow")
	b.send(`{"jsonrpc":"2.0","id":1,"method":"slow"}`)
	second := srv.request("slow")
	b.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}`)
	srv.wants(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + second + `}}`)
	srv.send(answering(second, "{}"), answering(first, "{}"))
	a.wants(answering("1", "{}"))
	b.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	srv.send(answering(srv.request("ping"), "{}"))
	b.wants(answering("2", "{}")) // and nothing of the request that was cancelled
}

// TestSharedSubscriptions: a client hears of what it has subscribed to, and ends the others' subscriptions neither by unsubscribing nor by going.
func TestSharedSubscriptions(t *testing.T) {
	_, a, b, srv := sharing(t)
	subscribe := func(p *pipe, method string) {
		p.send(`{"jsonrpc":"2.0","id":5,"method":"resources/` + method + `","params":{"uri":"a:b"}}`)
	}
	for _, p := range []*pipe{a, b} {
		subscribe(p, "subscribe")
		srv.send(answering(srv.request("resources/subscribe"), "{}"))
		p.wants(answering("5", "{}"))
	}
	updated := `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:b"}}`
	srv.send(updated)
	a.wants(updated)
	b.wants(updated)
	subscribe(b, "unsubscribe")
	b.wants(answering("5", "{}")) // a is still subscribed
	srv.send(updated)
	a.wants(updated)
	a.f.Close()
	srv.reads("resources/unsubscribe", `"uri":"a:b"`)
	b.send(`{"jsonrpc":"2.0","id":6,"method":"ping"}`)
	srv.reads("ping")
}

// TestSharedQuestions: nobody can be asked, since nobody has said that he can.
func TestSharedQuestions(t *testing.T) {
	_, _, _, srv := sharing(t)
	srv.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":2,"method":"sampling/createMessage","params":{}}`)
	srv.wants(answering("1", "{}"))
	srv.reads(`"id":2,"error":{"code":-32601`)
}

func TestSharedCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, a, b, srv := sharing(t)
		a.send(`{"jsonrpc":"2.0","id":1,"method":"slow"}`)
		srv.reads("slow")
		b.send(`{"jsonrpc":"2.0","id":2,"method":"slow"}`)
		srv.reads("slow")
		srv.f.Close()
		a.reads(`"id":1,"error"`)
		b.reads(`"id":2,"error"`)
		srv = f.next()
		srv.send(answering(srv.request("initialize"), `{"protocolVersion":"2025-11-25","capabilities":{}}`))
		srv.wants(confirmed)
		b.send(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
		srv.send(answering(srv.request("ping"), "{}"))
		b.wants(answering("3", "{}"))
	})
}

// TestSharedSlow: a client that does not read is cut off, and holds up nobody.
func TestSharedSlow(t *testing.T) {
	_, a, b, srv := sharing(t)
	news := `{"jsonrpc":"2.0","method":"n","params":{"x":"` + strings.Repeat("x", 1<<20) + `"}}`
	for range maxOutbox>>20 + 3 {
		srv.send(news)
		b.wants(news)
	}
	a.send(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
	b.send(`{"jsonrpc":"2.0","id":4,"method":"pong"}`)
	srv.send(answering(srv.request("pong"), "{}"))
	b.wants(answering("4", "{}"))
}

// TestListenIDs: subscriptions of clients without a session keep apart, and survive the server.
func TestListenIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		br := f.bridge(&Options{ClientEra: EraModern, ServerEra: EraModern})
		out := newOutbox()
		cl := br.newClient(nil, "", true)
		defer cl.close()
		var got []string
		listen := func(frame string) *call {
			m := new(jsonrpc.Message)
			if err := jsonrpc.Parse([]byte(frame), m, 0); err != nil {
				t.Fatal(err)
			}
			return cl.request(t.Context(), []byte(frame), m, out, func(response []byte) { got = append(got, string(response)) })
		}
		take := func() (list []string) {
			synctest.Wait()
			for _, message := range out.take(false) {
				list = append(list, string(message))
			}
			return list
		}
		meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
		listen(`{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + meta + `}}`)
		srv := f.next()
		id := srv.request("subscriptions/listen")
		ack := func(id string) string {
			return `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `},"notifications":{"toolsListChanged":true}}}`
		}
		srv.send(ack(id))
		if list := take(); len(list) != 1 || list[0] != ack(`"l"`) {
			t.Errorf("acknowledged by %q", list)
		}
		srv.f.Close()
		srv = f.next()
		if again := srv.request("subscriptions/listen"); again != id {
			t.Errorf("it was made again as %s, want %s", again, id)
		}
		srv.send(ack(id))
		want := `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}`
		if list := take(); len(list) != 1 || list[0] != want {
			t.Errorf("got  %q\nwant %s", list, want)
		}
		srv.send(`{"jsonrpc":"2.0","id":` + id + `,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}}}`)
		synctest.Wait()
		if len(got) != 1 || got[0] != `{"jsonrpc":"2.0","id":"l","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}` {
			t.Errorf("answer: %q", got)
		}
	})
}

// TestSharedIdle: what clients share ends when it was without any for long, not before, and the next client has a new one.
func TestSharedIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		br := f.bridge(with(legacy, func(o *Options) { o.Shared, o.IdleTimeout = true, time.Minute }))
		visit := func(first bool) *pipe {
			client, done := client0(t, br)
			client.send(hello)
			var srv *pipe
			if first {
				srv = f.next()
				srv.send(answering(srv.request(`"initialize"`), `{"protocolVersion":"2025-11-25","capabilities":{}}`))
			}
			client.reads(`"id":0,"result"`)
			if client.send(confirmed); first {
				srv.wants(confirmed)
			}
			client.f.Close()
			<-done
			return srv
		}
		srv := visit(true)
		<-time.After(59 * time.Second)
		visit(false)
		<-time.After(59 * time.Second)
		synctest.Wait()
		if n := br.openConnections.Load(); n != 1 {
			t.Errorf("%d connections to the server while clients come and go, want 1", n)
		}
		<-time.After(2 * time.Second)
		if _, err := srv.f.ReadFrame(); err == nil {
			t.Error("the connection goes on without clients")
		}
		synctest.Wait()
		if n := len(br.pool); n != 0 {
			t.Errorf("%d connections are shared by nobody", n)
		}
		visit(true)
	})
}
