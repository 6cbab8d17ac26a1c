package bridge

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// asks is the metadata of a modern client that can be asked.
const asks = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"roots":{}}`

// crowded has modern clients share a session with a legacy server.
func crowded(t *testing.T, n int) (clients []*pipe, far *pipe, f *farm, b *Bridge) {
	f = newFarm(t)
	b = f.bridge(&Options{Far: EraLegacy, Shared: true, DrainTimeout: time.Nanosecond})
	for i := range n {
		c, _ := client0(t, b)
		c.send(`{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{` + asks + `}}}`)
		if i == 0 {
			far = f.next()
			welcomed(far)
		}
		c.reads(`"id":0,"result":{"supportedVersions"`)
		clients = append(clients, c)
	}
	return clients, far, f, b
}

// welcomed has a server shake hands.
func welcomed(far *pipe) {
	far.t.Helper()
	far.send(answering(far.request(`"initialize"`, `"elicitation":{`), `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"s","version":"1"}}`))
	far.wants(confirmed)
}

// calls has a client call a tool, and returns the id that the server knows the call by.
func calls(c, far *pipe, more string) string {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",` + asks + more + `}}}`)
	return far.request("tools/call")
}

// still has each client make a request, whose answer is the next that it reads.
func still(far *pipe, clients ...*pipe) {
	far.t.Helper()
	for _, c := range clients {
		c.send(`{"jsonrpc":"2.0","id":"next","method":"x/next","params":{` + asks + `}}}`)
		far.send(answering(far.request("x/next"), "{}"))
		c.reads(`"id":"next","result"`)
	}
}

// TestCrowd: modern clients with the same ids share a session with a legacy server, and each gets what is its own.
func TestCrowd(t *testing.T) {
	clients, far, _, _ := crowded(t, 3)
	a, b, c := clients[0], clients[1], clients[2]
	first, second := calls(a, far, `,"progressToken":"p"`), calls(b, far, `,"progressToken":"p"`)
	for id, who := range map[string]*pipe{first: a, second: b} {
		far.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + id + `,"progress":1}}`)
		who.wants(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`)
	}
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`) // which is none of its own
	b.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	far.reads("notifications/cancelled", `"requestId":`+second)
	far.send(answering(second, `{"content":[]}`), answering(first, `{"content":[]}`))
	a.reads(`"id":1,"result":{"content":[]`)
	still(far, clients...)

	for i, one := range clients[:2] {
		one.send(`{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":` + []string{"true", "false"}[i] + `},` + asks + `}}}`)
		one.reads("subscriptions/acknowledged", `"io.modelcontextprotocol/subscriptionId":"l"`)
	}
	far.send(toolsChanged)
	a.reads("tools/list_changed", `"io.modelcontextprotocol/subscriptionId":"l"`)
	still(far, clients...)

	first = calls(a, far, "")
	far.send(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
	state := a.reads(`"id":1,"result"`, `"inputRequests":{"input-1":{"method":"roots/list"`)
	state = text(locate([]byte(state), "result", "requestState").of([]byte(state)))
	still(far, b, c)
	a.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","requestState":"` + state + `","inputResponses":{"input-1":{"roots":[]}},` + asks + `}}}`)
	far.reads(`"id":"q","result":{"roots":[]}`)
	second = calls(b, far, "")
	a.f.Close()
	far.reads("notifications/cancelled", `"requestId":`+first)
	far.send(answering(second, `{"content":[]}`))
	b.reads(`"id":1,"result"`)
	still(far, b, c)
}

// TestCrowdLogs: a log message goes to the only one whose it can be.
func TestCrowdLogs(t *testing.T) {
	clients, far, _, _ := crowded(t, 2)
	const log = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`
	a, b := clients[0], clients[1]
	a.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",` + asks + `,"io.modelcontextprotocol/logLevel":"debug"}}}`)
	far.send(answering(far.request("logging/setLevel"), "{}"))
	first := far.request("tools/call")
	far.send(log)
	a.wants(log)
	second := calls(b, far, "") // has not asked for any, but may be what it is about
	far.send(log)
	still(far, b)
	far.send(answering(second, `{"content":[]}`))
	b.reads(`"id":1,"result"`)
	far.send(log)
	a.wants(log)
	far.send(answering(first, `{"content":[]}`), log)
	a.reads(`"id":1,"result"`)
	still(far, a, b)
}

// TestCrowdRestart: when the server is gone, all who wait are told at once, and the next one is asked for what they listen to.
func TestCrowdRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, far, f, b := crowded(t, 3)
		if err := alive(t, b, far, true); err != nil {
			t.Errorf("the server is not alive: %v", err)
		}
		for _, c := range clients {
			c.send(`{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + asks + `}}}`)
			c.reads("subscriptions/acknowledged")
			calls(c, far, "")
		}
		start := time.Now()
		if err := alive(t, b, far, false); err == nil {
			t.Error("a server that is gone is alive")
		}
		for _, c := range clients {
			c.reads(`"id":1,"error":{"code":-32603`)
		}
		if d := time.Since(start); d > 10*time.Millisecond {
			t.Errorf("they waited %v", d)
		}
		far = f.next()
		welcomed(far)
		for _, c := range clients {
			c.reads("tools/list_changed")
		}
		still(far, clients...)
	})
}

// alive asks for a sign of life of the server, which gives one or goes.
func alive(t *testing.T, b *Bridge, far *pipe, answers bool) error {
	t.Helper()
	done := make(chan error)
	go func() { done <- b.sharedUp().alive(context.Background()) }()
	id := far.request(`"ping"`)
	if answers {
		far.send(answering(id, "{}"))
	} else {
		far.f.Close()
	}
	return <-done
}

// TestCrowdKinds: who can be asked something else has another session, and so have other users.
func TestCrowdKinds(t *testing.T) {
	f := newFarm(t)
	b := f.bridge(&Options{Far: EraLegacy, Shared: true})
	for _, kind := range []struct{ owner, asks, declared string }{
		{"u", asks, `"elicitation":{`}, {"v", asks, `"elicitation":{`}, {"u", strings.ReplaceAll(asks, `"elicitation":{},`, ""), `"capabilities":{"roots":{}}`},
	} {
		cl := b.newClient(newOutbox(), kind.owner, false)
		defer cl.close()
		frame, m := parsed(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+kind.asks+`}}}`)
		cl.request(t.Context(), frame, m, nil, func([]byte) {})
		far := f.next()
		far.reads(`"initialize"`, kind.declared)
	}
}
