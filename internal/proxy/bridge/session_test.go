package bridge

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// initializeWith returns the initialize request of a client with these capabilities.
func initializeWith(capabilities string) string {
	return strings.Replace(initialize, `"capabilities":{}`, `"capabilities":`+capabilities, 1)
}

// allCapabilities are the capabilities of a client that supports all input requests.
const allCapabilities = `{"elicitation":{},"roots":{"listChanged":true},"sampling":{}}`

// joinSession returns n clients that share a session with a server that has these capabilities.
func joinSession(t *testing.T, n int, capabilities string) (clients []*pipe, srv *pipe, f *fakeServer) {
	f = newFakeServer(t)
	b := f.bridge(with(legacy, func(o *Options) { o.Shared, o.DrainTimeout = true, time.Nanosecond }))
	for i := range n {
		c, _ := dialPipe(t, b)
		c.send(initializeWith(allCapabilities))
		if i == 0 {
			srv = f.next()
			srv.send(resultFor(srv.request(`"initialize"`, `"capabilities":`+allCapabilities), `{"protocolVersion":"2025-11-25","capabilities":`+capabilities+`}`))
		}
		c.reads(`"id":0,"result":{"protocolVersion":"2025-11-25"`)
		c.send(initialized)
		if i == 0 {
			srv.wants(initialized)
		}
		clients = append(clients, c)
	}
	return clients, srv, f
}

// checkOnly sends a message from the server, and checks that only the client who gets it, or none
// if who is nil: the next message of each client in all must be the response to a new request.
func checkOnly(t *testing.T, srv *pipe, message string, who *pipe, all []*pipe) {
	t.Helper()
	srv.send(message)
	if who != nil {
		who.wants(message)
	}
	for _, c := range all {
		c.send(`{"jsonrpc":"2.0","id":"next","method":"x/next"}`)
		srv.send(resultFor(srv.request("x/next"), "{}"))
		c.wants(resultFor(`"next"`, "{}"))
	}
}

// startCall makes a client call a tool, and returns the id of the call at the server.
func startCall(c, srv *pipe, id string) string {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"p"}}}`)
	return srv.request("tools/call")
}

// TestSessionInputRequests checks that an input request goes to the client that has a call in
// flight, or had the last one, and that only the response of that client is forwarded.
func TestSessionInputRequests(t *testing.T) {
	clients, srv, _ := joinSession(t, 3, `{}`)
	a, b, c := clients[0], clients[1], clients[2]
	call := startCall(a, srv, "1")
	inputRequest := func(id string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}}`
	}
	checkOnly(t, srv, inputRequest(`"q1"`), a, clients)
	response := `{"jsonrpc":"2.0","id":"q1","result":{"action":"decline"}}`
	b.send(response) // not b's request: dropped
	a.send(response)
	srv.wants(response)
	other := startCall(b, srv, "1") // two clients have a pending call: the last one gets the input request
	checkOnly(t, srv, inputRequest("2"), b, clients)
	b.f.Close()
	got := srv.read() + srv.read()
	for _, want := range []string{`"id":2,"error":{"code":-32603,"message":"the client that got the request disconnected"`, `"requestId":` + other} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s in it", got, want)
		}
	}
	srv.send(resultFor(call, "{}"))
	a.wants(resultFor("1", "{}"))
	c.send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
	srv.reads("roots/list_changed")
	checkOnly(t, srv, `{"jsonrpc":"2.0","id":3,"method":"roots/list"}`, c, []*pipe{a, c})
}

// TestSessionUndeclared checks that an input request for which no client has declared the
// capability is rejected, and reaches no client.
func TestSessionUndeclared(t *testing.T) {
	_, a, b, srv := twoClients(t)
	for method, reason := range map[string]string{
		"elicitation/create": "has declared elicitation by form", "roots/list": "has declared roots", "sampling/createMessage": "has declared sampling",
	} {
		srv.send(`{"jsonrpc":"2.0","id":"q","method":"` + method + `","params":{}}`)
		srv.reads(`"id":"q","error"`, reason)
	}
	for _, p := range []*pipe{a, b} {
		p.send(`{"jsonrpc":"2.0","id":6,"method":"x"}`)
		srv.send(resultFor(srv.request(`"x"`), "{}"))
		p.wants(resultFor("6", "{}"))
	}
}

// TestSessionKinds checks that clients with different capabilities, revisions, names or users have
// different sessions, and that the server gets their own initialize request.
func TestSessionKinds(t *testing.T) {
	f := newFakeServer(t)
	b := f.bridge(with(legacy, func(o *Options) { o.Shared = true }))
	for _, kind := range []struct{ owner, initialize string }{
		{"u", initialize}, {"u", initializeWith(allCapabilities)}, {"v", initialize}, {"u", strings.ReplaceAll(initialize, "2025-11-25", "2025-06-18")}, {"u", strings.Replace(initialize, `"c"`, `"d"`, 1)},
	} {
		out := newOutbox()
		cl := b.newClient(out, kind.owner, false)
		defer cl.close()
		frame, m := parsed(t, kind.initialize)
		responses := make(chan []byte, 1)
		cl.request(t.Context(), frame, m, nil, func(a []byte) { responses <- a })
		srv := f.next() // a new connection for each kind
		id := srv.request(`"initialize"`)
		if want, got := strings.Replace(kind.initialize, `"id":0`, `"id":`+id, 1), srv.last; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		srv.send(resultFor(id, `{"protocolVersion":"2025-11-25","capabilities":{}}`))
		<-responses
		again := b.newClient(newOutbox(), kind.owner, false)
		defer again.close()
		frame, m = parsed(t, strings.Replace(kind.initialize, `"id":0`, `"id":"again"`, 1))
		again.request(t.Context(), frame, m, nil, func(a []byte) { responses <- a })
		if got := string(<-responses); !strings.Contains(got, `"again","result"`) {
			t.Errorf("second client of the same kind: got %s", got)
		}
	}
}

// TestSessionsEvicted checks that the number of connections without clients is limited to
// MaxSessions, even if each client has another name.
func TestSessionsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		b := f.bridge(with(legacy, func(o *Options) { o.Shared, o.MaxSessions = true, 3 }))
		var first *pipe
		for i := range 6 {
			c, done := dialPipe(t, b)
			c.send(strings.Replace(initialize, `"c"`, `"c`+string(rune('0'+i))+`"`, 1))
			srv := f.next()
			if first == nil {
				first = srv
			}
			srv.send(resultFor(srv.request(`"initialize"`), `{"protocolVersion":"2025-11-25","capabilities":{}}`))
			c.reads(`"id":0,"result"`)
			c.f.Close()
			<-done
			<-time.After(2 * time.Second) // until queued messages are sent
		}
		if n := b.openConnections.Load(); n != 3 {
			t.Errorf("got %d connections without clients, want 3", n)
		}
		if _, err := first.f.ReadFrame(); err == nil {
			t.Error("the first connection is open, want it evicted")
		}
	})
}

// TestSessionTasks checks that a server's messages about a task go to the task's client, also after
// the call, and that the capability for tasks of clients is not forwarded.
func TestSessionTasks(t *testing.T) {
	clients, srv, _ := joinSession(t, 2, `{}`)
	a, b := clients[0], clients[1]
	call := startCall(a, srv, "1")
	created := `{"task":{"taskId":"T","status":"working"}}`
	srv.send(resultFor(call, created))
	a.wants(resultFor("1", created))
	startCall(b, srv, "1") // in flight
	checkOnly(t, srv, `{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"T","status":"working"}}`, a, clients)
	checkOnly(t, srv, `{"jsonrpc":"2.0","id":9,"method":"sampling/createMessage","params":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"T"}}}}`, a, clients)
	srv.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":` + call + `}}`)
	a.wants(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":"p"}}`)
	a.send(`{"jsonrpc":"2.0","id":2,"method":"tasks/result","params":{"taskId":"T"}}`)
	srv.send(resultFor(srv.request("tasks/result"), "{}"))
	a.wants(resultFor("2", "{}"))
	checkOnly(t, srv, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":2,"progressToken":`+call+`}}`, nil, clients)
	checkOnly(t, srv, `{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"T","status":"completed"}}`, nil, clients)
	checkOnly(t, srv, `{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"unknown","status":"completed"}}`, nil, clients)
	if got, want := string(sharedInitialize([]byte(initializeWith(`{"tasks":{"list":{}},"roots":{}}`)), []byte("7"))), strings.Replace(initializeWith(`{"roots":{}}`), `"id":0`, `"id":7`, 1); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestSessionPages checks that the notification about a completed elicitation goes to the client
// that got its URL in an error.
func TestSessionPages(t *testing.T) {
	clients, srv, _ := joinSession(t, 2, `{}`)
	a, b := clients[0], clients[1]
	call := startCall(a, srv, "1")
	srv.send(`{"jsonrpc":"2.0","id":` + call + `,"error":{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","elicitationId":"E","url":"https://a","message":"?"}]}}}`)
	a.reads(`"id":1,"error":{"code":-32042`)
	startCall(b, srv, "1")
	done := `{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"E"}}`
	checkOnly(t, srv, done, a, clients)
	checkOnly(t, srv, done, nil, clients) // only once
}

// TestSessionLogs checks that each client gets log messages of its own level and above, and none
// that may belong to another client's call.
func TestSessionLogs(t *testing.T) {
	clients, srv, _ := joinSession(t, 3, `{"logging":{}}`)
	a, b, c := clients[0], clients[1], clients[2]
	log := func(level string) string {
		return `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"` + level + `","data":1}}`
	}
	srv.send(log("debug")) // without a level and without a call
	for _, one := range clients {
		one.wants(log("debug"))
	}
	set := func(p *pipe, level, sent string) {
		t.Helper()
		p.send(`{"jsonrpc":"2.0","id":"l","method":"logging/setLevel","params":{"level":"` + level + `"}}`)
		if sent != "" {
			srv.send(resultFor(srv.request("logging/setLevel", `"level":"`+sent+`"`), "{}"))
		}
		p.wants(resultFor(`"l"`, "{}"))
	}
	set(a, "error", "info") // the others have no level yet
	set(b, "debug", "debug")
	set(c, "warning", "")
	srv.send(log("debug"), log("warning"), log("error"))
	a.wants(log("error"))
	b.wants(log("debug"), log("warning"), log("error"))
	c.wants(log("warning"), log("error"))
	first := startCall(a, srv, "1")
	checkOnly(t, srv, log("error"), a, []*pipe{b, c})
	checkOnly(t, srv, log("warning"), nil, []*pipe{b, c})
	startCall(c, srv, "1")
	checkOnly(t, srv, log("error"), nil, []*pipe{b}) // may belong to a's or c's call
	srv.send(resultFor(first, "{}"))
	a.wants(resultFor("1", "{}"))
	checkOnly(t, srv, log("error"), c, []*pipe{a, b})
	b.f.Close()
	srv.reads("logging/setLevel", `"level":"warning"`) // the lowest level of the others
}

// TestSessionParts checks that a client gets only updates of sub-resources of its subscriptions,
// and that a subscription is kept if one client subscribes while another unsubscribes.
func TestSessionParts(t *testing.T) {
	clients, srv, _ := joinSession(t, 2, `{"resources":{"subscribe":true}}`)
	a, b := clients[0], clients[1]
	subscribe := func(p *pipe, method, uri string) {
		p.send(`{"jsonrpc":"2.0","id":5,"method":"resources/` + method + `","params":{"uri":"` + uri + `"}}`)
	}
	subscribe(a, "subscribe", "a:b")
	srv.send(resultFor(srv.request("resources/subscribe"), "{}"))
	a.wants(resultFor("5", "{}"))
	updated := func(uri string) string {
		return `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"` + uri + `"}}`
	}
	checkOnly(t, srv, updated("a:b/c"), a, clients)
	checkOnly(t, srv, updated("a:bc"), nil, clients)
	checkOnly(t, srv, updated("z"), nil, clients)
	subscribe(b, "subscribe", "a:b")
	id := srv.request("resources/subscribe")
	subscribe(a, "unsubscribe", "a:b") // not forwarded, because b's subscription is pending
	a.wants(resultFor("5", "{}"))
	srv.send(resultFor(id, "{}"))
	b.wants(resultFor("5", "{}"))
	checkOnly(t, srv, updated("a:b"), b, clients)
}

// TestSessionRestart checks that all pending requests fail at once when the server ends, that the
// next server gets all subscriptions, and that the clients get list-changed notifications.
func TestSessionRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, srv, f := joinSession(t, 3, `{"resources":{"subscribe":true},"tools":{}}`)
		for i, c := range clients[:2] {
			c.send(`{"jsonrpc":"2.0","id":5,"method":"resources/subscribe","params":{"uri":"a:` + string(rune('0'+i)) + `"}}`)
			srv.send(resultFor(srv.request("resources/subscribe"), "{}"))
			c.wants(resultFor("5", "{}"))
		}
		for _, c := range clients {
			startCall(c, srv, "1")
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
			t.Errorf("the errors took %v, want at most 10 ms", d)
		}
		srv = f.next()
		srv.send(resultFor(srv.request(`"initialize"`, `"capabilities":`+allCapabilities), `{"protocolVersion":"2025-11-25","capabilities":{"resources":{"subscribe":true},"tools":{}}}`))
		srv.wants(initialized)
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

// TestSessionBegin checks that an input request right after the handshake goes to the client of
// that handshake, after the response to initialize.
func TestSessionBegin(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			b := f.bridge(with(legacy, func(o *Options) { o.Shared = true }))
			a, _ := dialPipe(t, b)
			a.send(initializeWith(allCapabilities), initialized) // without waiting for the response
			srv := f.next()
			srv.send(resultFor(srv.request(`"initialize"`), `{"protocolVersion":"2025-11-25","capabilities":{}}`))
			srv.wants(initialized)
			inputRequest := `{"jsonrpc":"2.0","id":1,"method":"roots/list"}`
			srv.send(inputRequest)
			a.reads(`"id":0,"result"`)
			a.wants(inputRequest)
		})
	}
}

// TestSessionEager checks that requests that a client sends before the response to its handshake
// are forwarded in order after the server's handshake, and fail if the handshake fails.
func TestSessionEager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		b := f.bridge(with(legacy, func(o *Options) { o.Shared = true }))
		a, _ := dialPipe(t, b)
		a.send(`{"jsonrpc":"2.0","id":"p","method":"ping"}`, `{"jsonrpc":"2.0","id":"e","method":"tools/list"}`)
		a.wants(resultFor(`"p"`, "{}"))
		a.reads(`"e","error":{"code":-32600`, "send initialize first")
		early := []string{initialize, initialized, `{"jsonrpc":"2.0","id":1,"method":"a"}`, `{"jsonrpc":"2.0","id":2,"method":"b"}`}
		a.send(early...)
		srv := f.next()
		id := srv.request(`"initialize"`)
		srv.send(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32000,"message":"not today"}}`)
		a.reads(`"id":0,"error":{"code":-32000`, "not today")
		for _, id := range []string{"1", "2"} {
			a.reads(`"id":` + id + `,"error"`)
		}
		a.send(early...)
		srv.send(resultFor(srv.request(`"initialize"`), `{"protocolVersion":"2025-11-25","capabilities":{}}`))
		srv.wants(initialized)
		a.reads(`"id":0,"result"`)
		for _, method := range []string{"a", "b"} {
			srv.send(resultFor(srv.request(`"`+method+`"`), "{}"))
		}
		a.wants(resultFor("1", "{}"), resultFor("2", "{}"))
	})
}

// TestSessionWaiting checks that requests of a client before the end of the handshake are queued up
// to a limit.
func TestSessionWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		b := f.bridge(with(legacy, func(o *Options) { o.Shared, o.MaxQueue = true, 1000 }))
		a, _ := dialPipe(t, b)
		a.send(initialize)
		srv := f.next()
		id := srv.request(`"initialize"`)
		synctest.Wait() // until messages that arrived during the detection are forwarded: their queue has its own limit
		text := strings.Repeat("x", 600)
		a.send(`{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":"`+text+`"}}`, `{"jsonrpc":"2.0","id":2,"method":"b","params":{"x":"`+text+`"}}`)
		a.reads(`"id":2,"error":{"code":-32603`, errQueueFull.Error())
		srv.send(resultFor(id, `{"protocolVersion":"2025-11-25","capabilities":{}}`))
		a.reads(`"id":0,"result"`)
		srv.send(resultFor(srv.request(`"method":"a"`), "{}"))
		a.wants(resultFor("1", "{}"))
	})
}

func newOutbox() *outbox { return &outbox{notify: make(chan struct{}, 1)} }
