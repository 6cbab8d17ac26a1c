package bridge

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/internal/json/jsonedit"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
)

// inputMeta is the metadata of a modern client that supports elicitation and roots, without the
// closing brace.
const inputMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"roots":{}}`

// manyClients returns modern clients that share a session with a legacy server.
func manyClients(t *testing.T, n int) (clients []*pipe, srv *pipe, f *fakeServer, b *Bridge) {
	f = newFakeServer(t)
	b = f.bridge(&Options{ServerEra: EraLegacy, Shared: true, DrainTimeout: time.Nanosecond})
	for i := range n {
		c, _ := dialPipe(t, b)
		c.send(`{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{` + inputMeta + `}}}`)
		if i == 0 {
			srv = f.next()
			serverHandshake(srv)
		}
		c.reads(`"id":0,"result":{"supportedVersions"`)
		clients = append(clients, c)
	}
	return clients, srv, f, b
}

// serverHandshake performs the server side of a handshake.
func serverHandshake(srv *pipe) {
	srv.t.Helper()
	srv.send(resultFor(srv.request(`"initialize"`, `"elicitation":{`), `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"s","version":"1"}}`))
	srv.wants(initialized)
}

// startModernCall makes a client call a tool, and returns the id of the call at the server.
func startModernCall(c, srv *pipe, more string) string {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",` + inputMeta + more + `}}}`)
	return srv.request("tools/call")
}

// checkNoMessage makes a request of each client, and checks that the response is the next message
// that it gets.
func checkNoMessage(srv *pipe, clients ...*pipe) {
	srv.t.Helper()
	for _, c := range clients {
		c.send(`{"jsonrpc":"2.0","id":"next","method":"x/next","params":{` + inputMeta + `}}}`)
		srv.send(resultFor(srv.request("x/next"), "{}"))
		c.reads(`"id":"next","result"`)
	}
}

// TestManyClients checks that each of several modern clients with the same ids gets only its own
// messages from a session that they share with a legacy server.
func TestManyClients(t *testing.T) {
	clients, srv, _, _ := manyClients(t, 3)
	a, b, c := clients[0], clients[1], clients[2]
	first, second := startModernCall(a, srv, `,"progressToken":"p"`), startModernCall(b, srv, `,"progressToken":"p"`)
	for id, who := range map[string]*pipe{first: a, second: b} {
		srv.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + id + `,"progress":1}}`)
		who.wants(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`)
	}
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`) // not a request of c
	b.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	srv.reads("notifications/cancelled", `"requestId":`+second)
	srv.send(resultFor(second, `{"content":[]}`), resultFor(first, `{"content":[]}`))
	a.reads(`"id":1,"result":{"content":[]`)
	checkNoMessage(srv, clients...)

	for i, one := range clients[:2] {
		one.send(`{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":` + []string{"true", "false"}[i] + `},` + inputMeta + `}}}`)
		one.reads("subscriptions/acknowledged", `"io.modelcontextprotocol/subscriptionId":"l"`)
	}
	srv.send(toolsChanged)
	a.reads("tools/list_changed", `"io.modelcontextprotocol/subscriptionId":"l"`)
	checkNoMessage(srv, clients...)

	first = startModernCall(a, srv, "")
	srv.send(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
	state := a.reads(`"id":1,"result"`, `"inputRequests":{"input-1":{"method":"roots/list"`)
	state = jsonwire.Text(jsonedit.Locate([]byte(state), "result", "requestState").Of([]byte(state)))
	checkNoMessage(srv, b, c)
	a.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","requestState":"` + state + `","inputResponses":{"input-1":{"roots":[]}},` + inputMeta + `}}}`)
	srv.reads(`"id":"q","result":{"roots":[]}`)
	second = startModernCall(b, srv, "")
	a.f.Close()
	srv.reads("notifications/cancelled", `"requestId":`+first)
	srv.send(resultFor(second, `{"content":[]}`))
	b.reads(`"id":1,"result"`)
	checkNoMessage(srv, b, c)
}

// TestManyClientLogs checks that a log message goes to a client only if it cannot be for another.
func TestManyClientLogs(t *testing.T) {
	clients, srv, _, _ := manyClients(t, 2)
	const log = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`
	a, b := clients[0], clients[1]
	a.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",` + inputMeta + `,"io.modelcontextprotocol/logLevel":"debug"}}}`)
	srv.send(resultFor(srv.request("logging/setLevel"), "{}"))
	first := srv.request("tools/call")
	srv.send(log)
	a.wants(log)
	second := startModernCall(b, srv, "") // b has requested no logs, but the log may be about its call
	srv.send(log)
	checkNoMessage(srv, b)
	srv.send(resultFor(second, `{"content":[]}`))
	b.reads(`"id":1,"result"`)
	srv.send(log)
	a.wants(log)
	srv.send(resultFor(first, `{"content":[]}`), log)
	a.reads(`"id":1,"result"`)
	checkNoMessage(srv, a, b)
}

// TestManyClientsRestart checks that all pending requests fail at once when the server ends, and
// that the next server gets the subscriptions of the clients.
func TestManyClientsRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, srv, f, b := manyClients(t, 3)
		if err := pingServer(t, b, srv, true); err != nil {
			t.Errorf("ping: %v", err)
		}
		for _, c := range clients {
			c.send(`{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + inputMeta + `}}}`)
			c.reads("subscriptions/acknowledged")
			startModernCall(c, srv, "")
		}
		start := time.Now()
		if err := pingServer(t, b, srv, false); err == nil {
			t.Error("ping of a server that has ended: got no error")
		}
		for _, c := range clients {
			c.reads(`"id":1,"error":{"code":-32603`)
		}
		if d := time.Since(start); d > 10*time.Millisecond {
			t.Errorf("the errors took %v, want at most 10 ms", d)
		}
		srv = f.next()
		serverHandshake(srv)
		for _, c := range clients {
			c.reads("tools/list_changed")
		}
		checkNoMessage(srv, clients...)
	})
}

// pingServer pings the server, which responds or closes the connection.
func pingServer(t *testing.T, b *Bridge, srv *pipe, respond bool) error {
	t.Helper()
	done := make(chan error)
	go func() { done <- b.anyShared().ping(context.Background()) }()
	id := srv.request(`"ping"`)
	if respond {
		srv.send(resultFor(id, "{}"))
	} else {
		srv.f.Close()
	}
	return <-done
}

// TestManyClientKinds checks that clients with different capabilities, and clients of different
// users, have different sessions.
func TestManyClientKinds(t *testing.T) {
	f := newFakeServer(t)
	b := f.bridge(&Options{ServerEra: EraLegacy, Shared: true})
	for _, kind := range []struct{ owner, inputMeta, declared string }{
		{"u", inputMeta, `"elicitation":{`}, {"v", inputMeta, `"elicitation":{`}, {"u", strings.ReplaceAll(inputMeta, `"elicitation":{},`, ""), `"capabilities":{"roots":{}}`},
	} {
		cl := b.newClient(newOutbox(), kind.owner, false)
		defer cl.close()
		frame, m := parsed(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+kind.inputMeta+`}}}`)
		cl.request(t.Context(), frame, m, nil, func([]byte) {})
		srv := f.next()
		srv.reads(`"initialize"`, kind.declared)
	}
}

// TestHandshakeTimeout checks that requests of modern clients fail after ConnectTimeout, not
// CallTimeout, if a legacy server does not respond to initialize, and that a server that does not
// respond to a ping either is started again.
func TestHandshakeTimeout(t *testing.T) {
	for _, shared := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			b := f.bridge(&Options{ServerEra: EraLegacy, Shared: shared, ConnectTimeout: 10 * time.Second, CallTimeout: time.Hour, DrainTimeout: time.Nanosecond})
			c, _ := dialPipe(t, b)
			start := time.Now()
			c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",` + inputMeta + `}}}`)
			srv := f.next()
			srv.request(`"initialize"`)
			c.reads(`"id":1,"error":{"code":-32603,"message":"the server has not responded to initialize for 10s"`)
			if d := time.Since(start); d != 10*time.Second {
				t.Errorf("shared %v: the error took %v, want 10s", shared, d)
			}
			srv.request(`"ping"`)
			<-time.After(time.Minute)
			c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t",` + inputMeta + `}}}`)
			srv = f.next()
			serverHandshake(srv)
			<-time.After(time.Minute) // a handshake in time ends the timeout
			srv.send(resultFor(srv.request("tools/call"), `{"content":[]}`))
			c.reads(`"id":2,"result"`)
		})
	}
}

// TestCancelSpelling checks that a client can cancel a call with its id in another spelling, in each
// pair of eras. A number with a fraction or an exponent is no id, and cancels nothing.
func TestCancelSpelling(t *testing.T) {
	for _, pair := range [][2]Era{{EraLegacy, EraLegacy}, {EraLegacy, EraModern}, {EraModern, EraLegacy}, {EraModern, EraModern}} {
		for _, shared := range []bool{false, true} {
			for _, ids := range [][2]string{{`1`, `1`}, {`1`, `1.0`}, {`-0`, `0`}, {`"ab"`, `"a\u0062"`}, {`"a\u0062"`, `"ab"`}, {`"/"`, `"\/"`}} {
				t.Run(fmt.Sprintf("%v to %v, shared %t, %s canceled as %s", pair[0], pair[1], shared, ids[0], ids[1]), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						f := newFakeServer(t)
						c, _ := dialPipe(t, f.bridge(&Options{ClientEra: pair[0], ServerEra: pair[1], Shared: shared, DrainTimeout: time.Nanosecond}))
						params := `{"name":"t"}`
						if pair[0] == EraModern {
							params = `{"name":"t",` + meta("") + `}`
						} else {
							c.send(initialize)
						}
						call := `{"jsonrpc":"2.0","id":` + ids[0] + `,"method":"tools/call","params":` + params + `}`
						if pair[0] == EraModern {
							c.send(call)
						}
						srv := f.next()
						switch {
						case pair[1] == EraLegacy:
							srv.send(resultFor(srv.request("initialize"), `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`))
						case pair[0] == EraLegacy:
							srv.send(resultFor(srv.request("server/discover"), `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`))
						}
						if pair[0] == EraLegacy {
							c.reads(`"id":0,"result"`)
							c.send(initialized, call)
						}
						if pair[1] == EraLegacy {
							srv.reads("notifications/initialized")
						}
						id := srv.request("tools/call")
						c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + ids[1] + `}}`)
						c.send(`{"jsonrpc":"2.0","id":"next","method":"x/next","params":` + params + `}`) // comes after it
						if ids[1] == "1.0" {
							srv.reads("x/next")
							return
						}
						got := srv.reads("notifications/cancelled")
						if target := jsonrpc.ID(jsonwire.Lookup([]byte(got), "params", "requestId")); !target.Equal(jsonrpc.ID(id)) {
							t.Errorf("got %s, want the cancellation of %s", got, id)
						}
					})
				})
			}
		}
	}
}
