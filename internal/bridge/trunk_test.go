package bridge

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// meta is the metadata of a modern request, with another member.
func meta(more string) string {
	return `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}` + more + `}`
}

// onMux has legacy clients, and a modern one, share a modern server.
func onMux(t *testing.T, n int) (clients []*pipe, listens []string, m, srv *pipe, f *farm) {
	f = newFarm(t)
	b := f.bridge(&Options{ServerEra: EraModern, Shared: true, DrainTimeout: time.Nanosecond})
	for i := range n {
		c, _ := client0(t, b)
		c.send(hello)
		if i == 0 {
			srv = f.next()
		}
		srv.send(answering(srv.request("server/discover"), `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"logging":{}},"ttlMs":0,"cacheScope":"private"}`))
		c.reads(`"id":0,"result"`)
		c.send(confirmed)
		listens = append(listens, heeding(srv))
		clients = append(clients, c)
	}
	m, _ = client0(t, b)
	return clients, listens, m, srv, f
}

// heeding has a server begin a subscription, and returns its id.
func heeding(srv *pipe) string {
	srv.t.Helper()
	id := srv.request("subscriptions/listen")
	srv.send(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `},"notifications":{"toolsListChanged":true}}}`)
	return id
}

// changed is what a server says on a subscription.
func changed(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}}}`
}

const toolsChanged = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`

// quiet has each client ask something, whose answer is the next that it reads.
func quiet(srv *pipe, m *pipe, legacy ...*pipe) {
	srv.t.Helper()
	for _, c := range append(legacy, m) {
		params := ""
		if c == m {
			params = `,"params":{` + meta("") + `}`
		}
		c.send(`{"jsonrpc":"2.0","id":"next","method":"x/next"` + params + `}`)
		srv.send(answering(srv.request("x/next"), `{"resultType":"complete"}`))
		c.reads(`"id":"next","result"`)
	}
}

// TestTrunk: clients of both eras share a modern server, and each gets what is its own.
func TestTrunk(t *testing.T) {
	clients, listens, m, srv, _ := onMux(t, 2)
	a, b := clients[0], clients[1]
	srv.send(changed(listens[1]))
	b.wants(toolsChanged)
	quiet(srv, m, a)
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"p"}}}`
	ids := map[string]*pipe{}
	var order []string
	for _, c := range []*pipe{a, b, m} {
		if c == m {
			c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",` + meta(`,"progressToken":"p"`) + `}}`)
		} else {
			c.send(call)
		}
		id := srv.request("tools/call", `"progressToken":`)
		if ids[id] != nil {
			t.Fatalf("the id %s is given twice", id)
		}
		ids[id], order = c, append(order, id)
	}
	for _, id := range order {
		srv.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + id + `,"progress":1}}`)
		ids[id].wants(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`)
	}
	m.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	srv.reads("notifications/cancelled", `"requestId":`+order[2])
	srv.send(answering(order[1], `{"resultType":"complete","content":[]}`))
	b.wants(answering("1", `{"content":[]}`))
	a.f.Close()
	got := srv.read() + srv.read()
	for _, id := range []string{order[0], listens[0]} {
		if !strings.Contains(got, `"requestId":`+id) {
			t.Errorf("got %s, want an end to %s", got, id)
		}
	}
	srv.send(changed(listens[0]), answering(order[0], `{"resultType":"complete","content":[]}`)) // too late
	quiet(srv, m, b)
}

// TestTrunkLogs: log messages, which say nothing of whose they are, go to the one client that can have asked for them.
func TestTrunkLogs(t *testing.T) {
	clients, _, m, srv, _ := onMux(t, 2)
	a, b := clients[0], clients[1]
	const log = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`
	begin := func(c *pipe, level string) string {
		if c == m {
			c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",` + meta(`,"io.modelcontextprotocol/logLevel":"`+level+`"`) + `}}`)
			return srv.request("tools/call")
		}
		if level != "" {
			c.send(`{"jsonrpc":"2.0","id":"l","method":"logging/setLevel","params":{"level":"` + level + `"}}`)
			c.wants(answering(`"l"`, "{}"))
		}
		c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`)
		return srv.request("tools/call")
	}
	end := func(c *pipe, id string) {
		srv.send(answering(id, `{"resultType":"complete","content":[]}`))
		c.reads(`"id":1,"result"`)
	}
	srv.send(log) // of nobody
	quiet(srv, m, a, b)
	first := begin(a, "debug")
	other := begin(b, "") // has not asked for any
	srv.send(log)
	a.wants(log)
	quiet(srv, m, b)
	end(b, other)
	other = begin(m, "warning") // not for this one
	srv.send(log)
	a.wants(log)
	end(m, other)
	other = begin(m, "info")
	srv.send(log) // of one or the other
	quiet(srv, m, a, b)
	end(a, first)
	srv.send(log)
	m.wants(log)
	end(m, other)
	quiet(srv, m, a, b)
}

// TestTrunkRestart: when the server is gone, all who wait are told at once, and all subscriptions are made again.
func TestTrunkRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, _, m, srv, f := onMux(t, 3)
		for _, c := range clients {
			c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`)
			srv.reads("tools/call")
		}
		m.send(`{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + meta("") + `}}`)
		heeding(srv)
		m.reads("subscriptions/acknowledged")
		m.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",` + meta("") + `}}`)
		srv.reads("tools/call")
		start := time.Now()
		srv.f.Close()
		for _, c := range append(clients, m) {
			c.reads(`"id":1,"error":{"code":-32603`)
		}
		if d := time.Since(start); d > 10*time.Millisecond {
			t.Errorf("they waited %v", d)
		}
		srv = f.next()
		for range 4 {
			heeding(srv)
		}
		for _, c := range clients {
			c.wants(toolsChanged)
		}
		m.wants(changed(`"l"`))
		quiet(srv, m, clients...)
	})
}

// TestTrunkIdle: the connection outlives the last client for a while, and not for longer.
func TestTrunkIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		b := f.bridge(&Options{ServerEra: EraModern, Shared: true, IdleTimeout: time.Minute})
		var srv *pipe
		visit := func(text string) {
			c, done := client0(t, b)
			c.send(text)
			if srv == nil {
				srv = f.next()
			}
			srv.send(answering(srv.request("server/discover"), `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":0,"cacheScope":"private"}`))
			c.reads(`"result"`)
			c.f.Close()
			<-done
			<-time.After(50 * time.Second)
		}
		visit(hello)
		visit(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + meta("") + `}}`)
		visit(hello)
		if n := b.openConnections.Load(); n != 1 {
			t.Errorf("%d connections to the server while clients come and go, want 1", n)
		}
		<-time.After(11 * time.Second)
		synctest.Wait()
		if n := b.openConnections.Load(); n != 0 || len(b.pool) != 0 {
			t.Errorf("%d connections and %d that are shared, without clients", n, len(b.pool))
		}
	})
}
