package bridge

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/internal/json/jsonedit"
)

// asks is the metadata of a modern client that accepts input requests.
const asks = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"roots":{}}`

// manyClients has modern clients share a session with a legacy server.
func manyClients(t *testing.T, n int) (clients []*pipe, srv *pipe, f *farm, b *Bridge) {
	f = newFarm(t)
	b = f.bridge(&Options{ServerEra: EraLegacy, Shared: true, DrainTimeout: time.Nanosecond})
	for i := range n {
		c, _ := client0(t, b)
		c.send(`{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{` + asks + `}}}`)
		if i == 0 {
			srv = f.next()
			welcomed(srv)
		}
		c.reads(`"id":0,"result":{"supportedVersions"`)
		clients = append(clients, c)
	}
	return clients, srv, f, b
}

// welcomed performs a server's handshake.
func welcomed(srv *pipe) {
	srv.t.Helper()
	srv.send(answering(srv.request(`"initialize"`, `"elicitation":{`), `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"s","version":"1"}}`))
	srv.wants(confirmed)
}

// calls has a client call a tool, and returns the id that the server knows the call by.
func calls(c, srv *pipe, more string) string {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",` + asks + more + `}}}`)
	return srv.request("tools/call")
}

// still has each client make a request, whose answer is the next that it reads.
func still(srv *pipe, clients ...*pipe) {
	srv.t.Helper()
	for _, c := range clients {
		c.send(`{"jsonrpc":"2.0","id":"next","method":"x/next","params":{` + asks + `}}}`)
		srv.send(answering(srv.request("x/next"), "{}"))
		c.reads(`"id":"next","result"`)
	}
}

// TestManyClients shows that modern clients with the same ids share a session with a legacy server,
// and that each gets only its own messages.
func TestManyClients(t *testing.T) {
	clients, srv, _, _ := manyClients(t, 3)
	a, b, c := clients[0], clients[1], clients[2]
	first, second := calls(a, srv, `,"progressToken":"p"`), calls(b, srv, `,"progressToken":"p"`)
	for id, who := range map[string]*pipe{first: a, second: b} {
		srv.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + id + `,"progress":1}}`)
		who.wants(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`)
	}
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`) // which is not one of its own
	b.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	srv.reads("notifications/cancelled", `"requestId":`+second)
	srv.send(answering(second, `{"content":[]}`), answering(first, `{"content":[]}`))
	a.reads(`"id":1,"result":{"content":[]`)
	still(srv, clients...)

	for i, one := range clients[:2] {
		one.send(`{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":` + []string{"true", "false"}[i] + `},` + asks + `}}}`)
		one.reads("subscriptions/acknowledged", `"io.modelcontextprotocol/subscriptionId":"l"`)
	}
	srv.send(toolsChanged)
	a.reads("tools/list_changed", `"io.modelcontextprotocol/subscriptionId":"l"`)
	still(srv, clients...)

	first = calls(a, srv, "")
	srv.send(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
	state := a.reads(`"id":1,"result"`, `"inputRequests":{"input-1":{"method":"roots/list"`)
	state = stringOf(jsonedit.Locate([]byte(state), "result", "requestState").Of([]byte(state)))
	still(srv, b, c)
	a.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","requestState":"` + state + `","inputResponses":{"input-1":{"roots":[]}},` + asks + `}}}`)
	srv.reads(`"id":"q","result":{"roots":[]}`)
	second = calls(b, srv, "")
	a.f.Close()
	srv.reads("notifications/cancelled", `"requestId":`+first)
	srv.send(answering(second, `{"content":[]}`))
	b.reads(`"id":1,"result"`)
	still(srv, b, c)
}

// TestManyClientLogs shows that a log message goes to a client only if it can be for no other.
func TestManyClientLogs(t *testing.T) {
	clients, srv, _, _ := manyClients(t, 2)
	const log = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`
	a, b := clients[0], clients[1]
	a.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",` + asks + `,"io.modelcontextprotocol/logLevel":"debug"}}}`)
	srv.send(answering(srv.request("logging/setLevel"), "{}"))
	first := srv.request("tools/call")
	srv.send(log)
	a.wants(log)
	second := calls(b, srv, "") // has not requested any, but may be its subject
	srv.send(log)
	still(srv, b)
	srv.send(answering(second, `{"content":[]}`))
	b.reads(`"id":1,"result"`)
	srv.send(log)
	a.wants(log)
	srv.send(answering(first, `{"content":[]}`), log)
	a.reads(`"id":1,"result"`)
	still(srv, a, b)
}

// TestManyClientsRestart checks that all pending requests fail at once when the server is gone, and
// that the next server gets their subscriptions.
func TestManyClientsRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, srv, f, b := manyClients(t, 3)
		if err := alive(t, b, srv, true); err != nil {
			t.Errorf("the server is not alive: %v", err)
		}
		for _, c := range clients {
			c.send(`{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + asks + `}}}`)
			c.reads("subscriptions/acknowledged")
			calls(c, srv, "")
		}
		start := time.Now()
		if err := alive(t, b, srv, false); err == nil {
			t.Error("a server that is gone is alive")
		}
		for _, c := range clients {
			c.reads(`"id":1,"error":{"code":-32603`)
		}
		if d := time.Since(start); d > 10*time.Millisecond {
			t.Errorf("they waited %v", d)
		}
		srv = f.next()
		welcomed(srv)
		for _, c := range clients {
			c.reads("tools/list_changed")
		}
		still(srv, clients...)
	})
}

// alive pings the server, which answers or closes the connection.
func alive(t *testing.T, b *Bridge, srv *pipe, answers bool) error {
	t.Helper()
	done := make(chan error)
	go func() { done <- b.anyShared().ping(context.Background()) }()
	id := srv.request(`"ping"`)
	if answers {
		srv.send(answering(id, "{}"))
	} else {
		srv.f.Close()
	}
	return <-done
}

// TestManyClientKinds checks that clients with other capabilities have another session, and so do
// other users.
func TestManyClientKinds(t *testing.T) {
	f := newFarm(t)
	b := f.bridge(&Options{ServerEra: EraLegacy, Shared: true})
	for _, kind := range []struct{ owner, asks, declared string }{
		{"u", asks, `"elicitation":{`}, {"v", asks, `"elicitation":{`}, {"u", strings.ReplaceAll(asks, `"elicitation":{},`, ""), `"capabilities":{"roots":{}}`},
	} {
		cl := b.newClient(newOutbox(), kind.owner, false)
		defer cl.close()
		frame, m := parsed(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+kind.asks+`}}}`)
		cl.request(t.Context(), frame, m, nil, func([]byte) {})
		srv := f.next()
		srv.reads(`"initialize"`, kind.declared)
	}
}
