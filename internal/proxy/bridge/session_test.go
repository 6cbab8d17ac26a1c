package bridge

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// hi is the handshake of a client with these capabilities.
func hi(capabilities string) string {
	return strings.Replace(hello, `"capabilities":{}`, `"capabilities":`+capabilities, 1)
}

const able = `{"elicitation":{},"roots":{"listChanged":true},"sampling":{}}`

// inSession returns n clients that share a session with a server with these capabilities.
func inSession(t *testing.T, n int, capabilities string) (clients []*pipe, srv *pipe, f *farm) {
	f = newFarm(t)
	b := f.bridge(with(legacy, func(o *Options) { o.Shared, o.DrainTimeout = true, time.Nanosecond }))
	for i := range n {
		c, _ := client0(t, b)
		c.send(hi(able))
		if i == 0 {
			srv = f.next()
			srv.send(answering(srv.request(`"initialize"`, `"capabilities":`+able), `{"protocolVersion":"2025-11-25","capabilities":`+capabilities+`}`))
		}
		c.reads(`"id":0,"result":{"protocolVersion":"2025-11-25"`)
		c.send(confirmed)
		if i == 0 {
			srv.wants(confirmed)
		}
		clients = append(clients, c)
	}
	return clients, srv, f
}

// only has the server send a message that just one of the clients may get. Each client gets a
// request afterwards, which it must read next.
func only(t *testing.T, srv *pipe, message string, who *pipe, all []*pipe) {
	t.Helper()
	srv.send(message)
	if who != nil {
		who.wants(message)
	}
	for _, c := range all {
		c.send(`{"jsonrpc":"2.0","id":"next","method":"x/next"}`)
		srv.send(answering(srv.request("x/next"), "{}"))
		c.wants(answering(`"next"`, "{}"))
	}
}

// begin has a client call a tool, and returns the id that the server knows the call by.
func begin(c, srv *pipe, id string) string {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"p"}}}`)
	return srv.request("tools/call")
}

// TestSessionInputRequests shows that an input request goes to the client that has a call in
// flight, or had the last one, and that only that client's answer counts.
func TestSessionInputRequests(t *testing.T) {
	clients, srv, _ := inSession(t, 3, `{}`)
	a, b, c := clients[0], clients[1], clients[2]
	call := begin(a, srv, "1")
	ask := func(id string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}}`
	}
	only(t, srv, ask(`"q1"`), a, clients)
	answer := `{"jsonrpc":"2.0","id":"q1","result":{"action":"decline"}}`
	b.send(answer) // which it was not asked
	a.send(answer)
	srv.wants(answer)
	other := begin(b, srv, "1") // two have a pending request: the last gets the input request
	only(t, srv, ask("2"), b, clients)
	b.f.Close() // and goes
	got := srv.read() + srv.read()
	for _, want := range []string{`"id":2,"error":{"code":-32603,"message":"the client that got the request disconnected"`, `"requestId":` + other} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s in it", got, want)
		}
	}
	srv.send(answering(call, "{}"))
	a.wants(answering("1", "{}"))
	c.send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
	srv.reads("roots/list_changed")
	only(t, srv, `{"jsonrpc":"2.0","id":3,"method":"roots/list"}`, c, []*pipe{a, c})
}

// TestSessionUndeclared shows that an input request that no client has declared support for is
// refused, and reaches no client.
func TestSessionUndeclared(t *testing.T) {
	_, a, b, srv := sharing(t)
	for method, says := range map[string]string{
		"elicitation/create": "has declared elicitation by form", "roots/list": "has declared roots", "sampling/createMessage": "has declared sampling",
	} {
		srv.send(`{"jsonrpc":"2.0","id":"q","method":"` + method + `","params":{}}`)
		srv.reads(`"id":"q","error"`, says)
	}
	for _, p := range []*pipe{a, b} {
		p.send(`{"jsonrpc":"2.0","id":6,"method":"x"}`)
		srv.send(answering(srv.request(`"x"`), "{}"))
		p.wants(answering("6", "{}"))
	}
}

// TestSessionKinds checks that a server sees each client's true capabilities: clients that declare
// others get their own session, and so do other users.
func TestSessionKinds(t *testing.T) {
	f := newFarm(t)
	b := f.bridge(with(legacy, func(o *Options) { o.Shared = true }))
	for _, kind := range []struct{ owner, hello string }{
		{"u", hello}, {"u", hi(able)}, {"v", hello}, {"u", strings.ReplaceAll(hello, "2025-11-25", "2025-06-18")}, {"u", strings.Replace(hello, `"c"`, `"d"`, 1)},
	} {
		out := newOutbox()
		cl := b.newClient(out, kind.owner, false)
		defer cl.close()
		frame, m := parsed(t, kind.hello)
		answered := make(chan []byte, 1)
		cl.request(t.Context(), frame, m, nil, func(a []byte) { answered <- a })
		srv := f.next() // another one each time
		id := srv.request(`"initialize"`)
		if want, got := strings.Replace(kind.hello, `"id":0`, `"id":`+id, 1), srv.last; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		srv.send(answering(id, `{"protocolVersion":"2025-11-25","capabilities":{}}`))
		<-answered
		again := b.newClient(newOutbox(), kind.owner, false)
		defer again.close()
		frame, m = parsed(t, strings.Replace(kind.hello, `"id":0`, `"id":"again"`, 1))
		again.request(t.Context(), frame, m, nil, func(a []byte) { answered <- a })
		if got := string(<-answered); !strings.Contains(got, `"again","result"`) {
			t.Errorf("the next one of its kind got %s", got)
		}
	}
}

// TestSessionsEvicted shows that there are no more connections without clients than the limit of
// clients, whatever clients say about themselves.
func TestSessionsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		b := f.bridge(with(legacy, func(o *Options) { o.Shared, o.MaxSessions = true, 3 }))
		var first *pipe
		for i := range 6 {
			c, done := client0(t, b)
			c.send(strings.Replace(hello, `"c"`, `"c`+string(rune('0'+i))+`"`, 1))
			srv := f.next()
			if first == nil {
				first = srv
			}
			srv.send(answering(srv.request(`"initialize"`), `{"protocolVersion":"2025-11-25","capabilities":{}}`))
			c.reads(`"id":0,"result"`)
			c.f.Close()
			<-done
			<-time.After(2 * time.Second) // for what waits to be sent
		}
		if n := b.openConnections.Load(); n != 3 {
			t.Errorf("%d connections without clients, want 3", n)
		}
		if _, err := first.f.ReadFrame(); err == nil {
			t.Error("the first one goes on")
		}
	})
}

// TestSessionTasks checks that a server's messages about a task go to the task's client, also after
// the call. Tasks of clients are not declared.
func TestSessionTasks(t *testing.T) {
	clients, srv, _ := inSession(t, 2, `{}`)
	a, b := clients[0], clients[1]
	call := begin(a, srv, "1")
	made := `{"task":{"taskId":"T","status":"working"}}`
	srv.send(answering(call, made))
	a.wants(answering("1", made))
	begin(b, srv, "1") // which is under way
	only(t, srv, `{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"T","status":"working"}}`, a, clients)
	only(t, srv, `{"jsonrpc":"2.0","id":9,"method":"sampling/createMessage","params":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"T"}}}}`, a, clients)
	srv.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":` + call + `}}`)
	a.wants(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":"p"}}`)
	a.send(`{"jsonrpc":"2.0","id":2,"method":"tasks/result","params":{"taskId":"T"}}`)
	srv.send(answering(srv.request("tasks/result"), "{}"))
	a.wants(answering("2", "{}"))
	only(t, srv, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":2,"progressToken":`+call+`}}`, nil, clients)
	only(t, srv, `{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"T","status":"completed"}}`, nil, clients)
	only(t, srv, `{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"unknown","status":"completed"}}`, nil, clients)
	if got, want := string(sharedInitialize([]byte(hi(`{"tasks":{"list":{}},"roots":{}}`)), []byte("7"))), strings.Replace(hi(`{"roots":{}}`), `"id":0`, `"id":7`, 1); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestSessionPages checks that the notification about a visited page goes to the client that got
// its URL, in a request or an error.
func TestSessionPages(t *testing.T) {
	clients, srv, _ := inSession(t, 2, `{}`)
	a, b := clients[0], clients[1]
	call := begin(a, srv, "1")
	srv.send(`{"jsonrpc":"2.0","id":` + call + `,"error":{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","elicitationId":"E","url":"https://a","message":"?"}]}}}`)
	a.reads(`"id":1,"error":{"code":-32042`)
	begin(b, srv, "1")
	done := `{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"E"}}`
	only(t, srv, done, a, clients)
	only(t, srv, done, nil, clients) // it was notified
}

// TestSessionLogs shows that each client gets log messages from its own level on, and none that may
// be for another one.
func TestSessionLogs(t *testing.T) {
	clients, srv, _ := inSession(t, 3, `{"logging":{}}`)
	a, b, c := clients[0], clients[1], clients[2]
	log := func(level string) string {
		return `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"` + level + `","data":1}}`
	}
	srv.send(log("debug")) // nobody has chosen, nobody has anything under way
	for _, one := range clients {
		one.wants(log("debug"))
	}
	set := func(p *pipe, level, sent string) {
		t.Helper()
		p.send(`{"jsonrpc":"2.0","id":"l","method":"logging/setLevel","params":{"level":"` + level + `"}}`)
		if sent != "" {
			srv.send(answering(srv.request("logging/setLevel", `"level":"`+sent+`"`), "{}"))
		}
		p.wants(answering(`"l"`, "{}"))
	}
	set(a, "error", "info") // the others have not chosen
	set(b, "debug", "debug")
	set(c, "warning", "")
	srv.send(log("debug"), log("warning"), log("error"))
	a.wants(log("error"))
	b.wants(log("debug"), log("warning"), log("error"))
	c.wants(log("warning"), log("error"))
	first := begin(a, srv, "1")
	only(t, srv, log("error"), a, []*pipe{b, c})
	only(t, srv, log("warning"), nil, []*pipe{b, c})
	begin(c, srv, "1")
	only(t, srv, log("error"), nil, []*pipe{b}) // whose is it?
	srv.send(answering(first, "{}"))
	a.wants(answering("1", "{}"))
	only(t, srv, log("error"), c, []*pipe{a, b})
	b.f.Close()
	srv.reads("logging/setLevel", `"level":"warning"`) // as much as the others want
}

// TestSessionParts shows that a client is notified only of parts of what it has subscribed to.
// Clients that subscribe while a subscription ends keep theirs.
func TestSessionParts(t *testing.T) {
	clients, srv, _ := inSession(t, 2, `{"resources":{"subscribe":true}}`)
	a, b := clients[0], clients[1]
	subscribe := func(p *pipe, method, uri string) {
		p.send(`{"jsonrpc":"2.0","id":5,"method":"resources/` + method + `","params":{"uri":"` + uri + `"}}`)
	}
	subscribe(a, "subscribe", "a:b")
	srv.send(answering(srv.request("resources/subscribe"), "{}"))
	a.wants(answering("5", "{}"))
	updated := func(uri string) string {
		return `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"` + uri + `"}}`
	}
	only(t, srv, updated("a:b/c"), a, clients)
	only(t, srv, updated("a:bc"), nil, clients)
	only(t, srv, updated("z"), nil, clients)
	subscribe(b, "subscribe", "a:b")
	id := srv.request("resources/subscribe")
	subscribe(a, "unsubscribe", "a:b") // the server must not get this: b is about to be subscribed
	a.wants(answering("5", "{}"))
	srv.send(answering(id, "{}"))
	b.wants(answering("5", "{}"))
	only(t, srv, updated("a:b"), b, clients)
}

// TestSessionRestart checks that all pending requests fail at once when the server is gone. The
// next server gets all subscriptions, and the clients get list-changed notifications.
func TestSessionRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, srv, f := inSession(t, 3, `{"resources":{"subscribe":true},"tools":{}}`)
		for i, c := range clients[:2] {
			c.send(`{"jsonrpc":"2.0","id":5,"method":"resources/subscribe","params":{"uri":"a:` + string(rune('0'+i)) + `"}}`)
			srv.send(answering(srv.request("resources/subscribe"), "{}"))
			c.wants(answering("5", "{}"))
		}
		for _, c := range clients {
			begin(c, srv, "1")
		}
		srv.send(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		clients[2].reads("roots/list")
		start := time.Now()
		srv.f.Close()
		for _, c := range clients[:2] {
			c.reads(`"id":1,"error"`)
		}
		got := clients[2].read() + clients[2].read()
		if !strings.Contains(got, `"requestId":"q"`) || !strings.Contains(got, `"id":1,"error"`) {
			t.Errorf("got %s", got)
		}
		if d := time.Since(start); d > 10*time.Millisecond {
			t.Errorf("they waited %v", d)
		}
		srv = f.next()
		srv.send(answering(srv.request(`"initialize"`, `"capabilities":`+able), `{"protocolVersion":"2025-11-25","capabilities":{"resources":{"subscribe":true},"tools":{}}}`))
		srv.wants(confirmed)
		got = srv.read() + srv.read()
		for _, want := range []string{`"uri":"a:0"`, `"uri":"a:1"`} {
			if strings.Count(got, want) != 1 {
				t.Errorf("got %s, want %s in it", got, want)
			}
		}
		for _, c := range clients {
			c.reads("tools/list_changed")
			c.reads("resources/list_changed")
		}
	})
}

// TestSessionBegin checks that an input request right after the handshake is answered by the client
// of that handshake.
func TestSessionBegin(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			f := newFarm(t)
			b := f.bridge(with(legacy, func(o *Options) { o.Shared = true }))
			a, _ := client0(t, b)
			a.send(hi(able), confirmed) // before it has the answer
			srv := f.next()
			srv.send(answering(srv.request(`"initialize"`), `{"protocolVersion":"2025-11-25","capabilities":{}}`))
			srv.wants(confirmed)
			ask := `{"jsonrpc":"2.0","id":1,"method":"roots/list"}`
			srv.send(ask)
			a.reads(`"id":0,"result"`)
			a.wants(ask)
		})
	}
}

// TestSessionEager checks that requests that a client sends before its handshake is answered are
// forwarded in order after the server's handshake, and fail if the negotiation fails.
func TestSessionEager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		b := f.bridge(with(legacy, func(o *Options) { o.Shared = true }))
		a, _ := client0(t, b)
		a.send(`{"jsonrpc":"2.0","id":"p","method":"ping"}`, `{"jsonrpc":"2.0","id":"e","method":"tools/list"}`)
		a.wants(answering(`"p"`, "{}"))
		a.reads(`"e","error":{"code":-32600`, "send initialize first")
		eager := []string{hello, confirmed, `{"jsonrpc":"2.0","id":1,"method":"a"}`, `{"jsonrpc":"2.0","id":2,"method":"b"}`}
		a.send(eager...)
		srv := f.next()
		id := srv.request(`"initialize"`)
		srv.send(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32000,"message":"not today"}}`)
		a.reads(`"id":0,"error":{"code":-32000`, "not today")
		for _, id := range []string{"1", "2"} {
			a.reads(`"id":` + id + `,"error"`)
		}
		a.send(eager...)
		srv.send(answering(srv.request(`"initialize"`), `{"protocolVersion":"2025-11-25","capabilities":{}}`))
		srv.wants(confirmed)
		a.reads(`"id":0,"result"`)
		for _, method := range []string{"a", "b"} {
			srv.send(answering(srv.request(`"`+method+`"`), "{}"))
		}
		a.wants(answering("1", "{}"), answering("2", "{}"))
	})
}

// TestSessionWaiting shows that requests of a client before the handshake are queued up to a limit.
func TestSessionWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		b := f.bridge(with(legacy, func(o *Options) { o.Shared, o.MaxQueue = true, 1000 }))
		a, _ := client0(t, b)
		a.send(hello)
		srv := f.next()
		id := srv.request(`"initialize"`)
		synctest.Wait() // until messages that arrived during negotiation are forwarded: their queue has its own bound
		text := strings.Repeat("x", 600)
		a.send(`{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":"`+text+`"}}`, `{"jsonrpc":"2.0","id":2,"method":"b","params":{"x":"`+text+`"}}`)
		a.reads(`"id":2,"error":{"code":-32603`, errQueueFull.Error())
		srv.send(answering(id, `{"protocolVersion":"2025-11-25","capabilities":{}}`))
		a.reads(`"id":0,"result"`)
		srv.send(answering(srv.request(`"method":"a"`), "{}"))
		a.wants(answering("1", "{}"))
	})
}
