package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	mcpclient "mcpwire/client"
	"mcpwire/internal/test/wait"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// twoClients returns two clients that share one connection, after the handshake.
func twoClients(t *testing.T) (f *fakeServer, a, b, srv *pipe) {
	f = newFakeServer(t)
	br := f.bridge(with(legacy, func(o *Options) { o.Shared = true }))
	a, _ = dialPipe(t, br)
	b, _ = dialPipe(t, br)
	a.send(initialize)
	srv = f.next()
	id := srv.request(`"initialize"`, `"capabilities":{}`, `"protocolVersion":"2025-11-25"`)
	srv.send(resultFor(id, `{"protocolVersion":"2025-11-25","capabilities":{"resources":{"subscribe":true}}}`))
	a.wants(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"resources":{"subscribe":true}}}}`)
	a.send(initialized)
	srv.wants(initialized)
	b.send(strings.Replace(initialize, `"id":0`, `"id":"b"`, 1)) // not forwarded to the server
	b.wants(`{"jsonrpc":"2.0","id":"b","result":{"protocolVersion":"2025-11-25","capabilities":{"resources":{"subscribe":true}}}}`)
	return f, a, b, srv
}

// TestSharedIDs checks that two clients that use the same ids and tokens each get only their own
// messages.
func TestSharedIDs(t *testing.T) {
	_, a, b, srv := twoClients(t)
	call := `{"jsonrpc":"2.0", "id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"p"},"x":1.0}}`
	a.send(call)
	first := srv.request(`"x":1.0`)
	b.send(call)
	second := srv.request(`"x":1.0`)
	if first == second {
		t.Fatalf("both calls have the id %s, want different ids", first)
	}
	srv.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":` + second + `}}`)
	b.wants(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":"p"}}`)
	srv.send(`{"result":{"for":"b"},"id":`+second+`,"jsonrpc":"2.0"}`, `{"result":{"for":"a"},"id":`+first+`,"jsonrpc":"2.0"}`)
	b.wants(`{"result":{"for":"b"},"id":1,"jsonrpc":"2.0"}`)
	a.wants(`{"result":{"for":"a"},"id":1,"jsonrpc":"2.0"}`)
}

func TestSharedCancel(t *testing.T) {
	_, a, b, srv := twoClients(t)
	a.send(`{"jsonrpc":"2.0","id":1,"method":"slow"}`)
	first := srv.request("slow")
	b.send(`{"jsonrpc":"2.0","id":1,"method":"slow"}`)
	second := srv.request("slow")
	b.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}`)
	srv.wants(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + second + `}}`)
	srv.send(resultFor(second, "{}"), resultFor(first, "{}"))
	a.wants(resultFor("1", "{}"))
	b.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	srv.send(resultFor(srv.request("ping"), "{}"))
	b.wants(resultFor("2", "{}")) // no message about the canceled request
}

// TestSharedSubscriptions checks that a client gets the updates that it has subscribed to, and that
// the subscriptions of others continue when it unsubscribes or disconnects.
func TestSharedSubscriptions(t *testing.T) {
	_, a, b, srv := twoClients(t)
	subscribe := func(p *pipe, method string) {
		p.send(`{"jsonrpc":"2.0","id":5,"method":"resources/` + method + `","params":{"uri":"a:b"}}`)
	}
	for _, p := range []*pipe{a, b} {
		subscribe(p, "subscribe")
		srv.send(resultFor(srv.request("resources/subscribe"), "{}"))
		p.wants(resultFor("5", "{}"))
	}
	updated := `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:b"}}`
	srv.send(updated)
	a.wants(updated)
	b.wants(updated)
	subscribe(b, "unsubscribe")
	b.wants(resultFor("5", "{}")) // not forwarded, because a is still subscribed
	srv.send(updated)
	a.wants(updated)
	a.f.Close()
	srv.reads("resources/unsubscribe", `"uri":"a:b"`)
	b.send(`{"jsonrpc":"2.0","id":6,"method":"ping"}`)
	srv.reads("ping")
}

// TestSharedInputRequests checks that a shared server cannot send input requests, because no
// client's capabilities are declared.
func TestSharedInputRequests(t *testing.T) {
	_, _, _, srv := twoClients(t)
	srv.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":2,"method":"sampling/createMessage","params":{}}`)
	srv.wants(resultFor("1", "{}"))
	srv.reads(`"id":2,"error":{"code":-32601`)
}

func TestSharedCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, a, b, srv := twoClients(t)
		a.send(`{"jsonrpc":"2.0","id":1,"method":"slow"}`)
		srv.reads("slow")
		b.send(`{"jsonrpc":"2.0","id":2,"method":"slow"}`)
		srv.reads("slow")
		srv.f.Close()
		a.reads(`"id":1,"error"`)
		b.reads(`"id":2,"error"`)
		srv = f.next()
		srv.send(resultFor(srv.request("initialize"), `{"protocolVersion":"2025-11-25","capabilities":{}}`))
		srv.wants(initialized)
		b.send(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
		srv.send(resultFor(srv.request("ping"), "{}"))
		b.wants(resultFor("3", "{}"))
	})
}

// TestSharedSlow checks that a client that does not read is disconnected, and delays no other.
func TestSharedSlow(t *testing.T) {
	_, a, b, srv := twoClients(t)
	large := `{"jsonrpc":"2.0","method":"n","params":{"x":"` + strings.Repeat("x", 1<<20) + `"}}`
	for range 2*maxOutbox>>20 + 3 { // one outbox is being written while the next one fills up
		srv.send(large)
		b.wants(large)
	}
	for err := error(nil); err == nil; {
		_, err = a.f.ReadFrame()
	}
	b.send(`{"jsonrpc":"2.0","id":4,"method":"pong"}`)
	srv.send(resultFor(srv.request("pong"), "{}"))
	b.wants(resultFor("4", "{}"))
}

// TestListenIDs checks that a subscription of a client without a session has its own id at the
// server, and survives a restart of the server.
func TestListenIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
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
				list = append(list, string(message.frame))
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
			t.Errorf("acknowledgment: got %q", list)
		}
		srv.f.Close()
		srv = f.next()
		if again := srv.request("subscriptions/listen"); again != id {
			t.Errorf("id after the restart: got %s, want %s", again, id)
		}
		srv.send(ack(id))
		want := `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}`
		if list := take(); len(list) != 1 || list[0] != want {
			t.Errorf("got  %q\nwant %s", list, want)
		}
		srv.send(`{"jsonrpc":"2.0","id":` + id + `,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}}}`)
		synctest.Wait()
		if len(got) != 1 || got[0] != `{"jsonrpc":"2.0","id":"l","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}` {
			t.Errorf("response: got %q", got)
		}
	})
}

// TestSharedIdle checks that a shared upstream without clients ends after the idle timeout, and
// that the next client gets a new one.
func TestSharedIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		br := f.bridge(with(legacy, func(o *Options) { o.Shared, o.IdleTimeout = true, time.Minute }))
		visit := func(first bool) *pipe {
			client, done := dialPipe(t, br)
			client.send(initialize)
			var srv *pipe
			if first {
				srv = f.next()
				srv.send(resultFor(srv.request(`"initialize"`), `{"protocolVersion":"2025-11-25","capabilities":{}}`))
			}
			client.reads(`"id":0,"result"`)
			if client.send(initialized); first {
				srv.wants(initialized)
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
			t.Errorf("got %d connections to the server before the idle timeout, want 1", n)
		}
		<-time.After(2 * time.Second)
		if _, err := srv.f.ReadFrame(); err == nil {
			t.Error("the connection is open after the idle timeout")
		}
		synctest.Wait()
		if n := len(br.pool); n != 0 {
			t.Errorf("got %d upstreams in the pool, want 0", n)
		}
		visit(true)
	})
}

// sharedBridge returns a bridge whose clients share a server of these revisions, and the number of
// its connections.
func sharedBridge(t *testing.T, o *Options, revisions []mcp.Revision) (b *Bridge, connections *atomic.Int32) {
	connections = new(atomic.Int32)
	connect := connectTo(t, revisions)
	o.Shared = true
	o.Connect = func(ctx context.Context, stderr io.Writer) (jsonrpc.Framer, error) {
		connections.Add(1)
		return connect(ctx, stderr)
	}
	return newBridge(t, o), connections
}

// dialAs connects a client of an era for a user, over HTTP if url is not empty.
func dialAs(t *testing.T, b *Bridge, url, user string, era Era, change func(*mcpclient.Options)) *mcpclient.Client {
	t.Helper()
	var transport mcpclient.Transport
	if url != "" {
		transport = streamable.NewTransport(url, nil)
	} else {
		ours, theirs := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.Serve(context.Background(), jsonrpc.NewFramer(theirs, nil))
		}()
		t.Cleanup(func() { <-done })
		transport = mcpclient.FramerTransport(jsonrpc.NewFramer(ours, nil))
	}
	o := &mcpclient.Options{
		Info: mcp.Implementation{Name: "c"}, Revisions: era.Revisions(),
		Input: mcpclient.InputOptions{
			Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: json.RawMessage(`{"Name":"` + user + `"}`)}, nil
			},
			Roots: func(context.Context) ([]mcp.Root, error) { return []mcp.Root{{URI: "file:///" + user}}, nil },
		},
	}
	if change != nil {
		change(o)
	}
	c, err := mcpclient.Dial(t.Context(), transport, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestSharedEras checks that clients of each era share a server of each era over one connection,
// with responses, progress and input requests.
func TestSharedEras(t *testing.T) {
	for _, clientEra := range []Era{EraLegacy, EraModern} {
		for _, serverEra := range []Era{EraLegacy, EraModern} {
			for _, known := range []bool{false, true} {
				for _, transport := range []string{"pipe", "http"} {
					t.Run(fmt.Sprintf("%v to %v over %s, known %t", clientEra, serverEra, transport, known), func(t *testing.T) {
						o := new(Options)
						if known {
							o.ServerEra = serverEra
						}
						b, connections := sharedBridge(t, o, serverEra.Revisions())
						url := ""
						if transport == "http" {
							url = served(t, b, nil).URL + "/mcp"
						}
						var all sync.WaitGroup
						clients := make([]*mcpclient.Client, 8)
						for i := range clients {
							all.Go(func() { clients[i] = dialAs(t, b, url, fmt.Sprint("user", i), clientEra, nil) })
						}
						all.Wait()
						for i, c := range clients {
							if got, err := mcpclient.CallTool[string](t.Context(), c, "ask", json.RawMessage(`{}`)); err != nil || got != fmt.Sprint("you are user", i) {
								t.Errorf("client %d: got %q, %v", i, got, err)
							}
							if got, err := mcpclient.CallTool[string](t.Context(), c, "roots", json.RawMessage(`{}`)); err != nil || got != "1" {
								t.Errorf("client %d: got %q, %v", i, got, err)
							}
						}
						for i, c := range clients { // after the input requests, which have no unique client while several calls are in flight
							all.Go(func() { checkCalls(t, c, i) })
						}
						all.Wait()
						if n := connections.Load(); n != 1 {
							t.Errorf("got %d connections to the server, want 1", n)
						}
					})
				}
			}
		}
	}
}

// TestChain checks that a client's capabilities reach a legacy server through two bridges.
func TestChain(t *testing.T) {
	for _, shared := range []bool{false, true} {
		last := newBridge(t, &Options{Connect: connectTo(t, EraLegacy.Revisions()), Shared: shared})
		b := newBridge(t, &Options{Shared: shared, Connect: func(context.Context, io.Writer) (jsonrpc.Framer, error) {
			ours, theirs := net.Pipe()
			go last.Serve(context.Background(), jsonrpc.NewFramer(theirs, nil))
			return jsonrpc.NewFramer(ours, nil), nil
		}})
		c := dialAs(t, b, "", "me", EraModern, nil)
		if got, err := mcpclient.CallTool[string](t.Context(), c, "ask", json.RawMessage(`{}`)); err != nil || got != "you are me" {
			t.Errorf("shared %t: got %q, %v", shared, got, err)
		}
	}
}

// checkCalls makes calls of client i, and checks their results and progress.
func checkCalls(t *testing.T, c *mcpclient.Client, i int) {
	for n := range 20 {
		want := fmt.Sprint(i, "/", n)
		if got, err := mcpclient.CallTool[string](t.Context(), c, "echo", json.RawMessage(`{"Text":"`+want+`"}`)); err != nil || got != want {
			t.Errorf("client %d: got %q, %v, want %q", i, got, err, want)
		}
		progress := 0
		count := mcpclient.WithProgress(func(*mcp.ProgressNotificationParams) { progress++ })
		if got, err := mcpclient.CallTool[string](t.Context(), c, "steps", json.RawMessage(`{}`), count); err != nil || got != "done" || progress != 1 {
			t.Errorf("client %d: got %q, %v, with %d progress notifications", i, got, err, progress)
		}
	}
}

// TestSharedRestarts checks that each request of many clients of both eras gets its own result or
// an error while the server restarts, and a result afterwards.
func TestSharedRestarts(t *testing.T) {
	for _, serverEra := range []Era{EraAuto, EraLegacy, EraModern} {
		t.Run("server "+serverEra.String(), func(t *testing.T) {
			connect := connectTo(t, serverEra.Revisions())
			var mu sync.Mutex
			var up []jsonrpc.Framer
			b := newBridge(t, &Options{
				Shared: true, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond,
				Connect: func(ctx context.Context, w io.Writer) (jsonrpc.Framer, error) {
					f, err := connect(ctx, w)
					mu.Lock()
					defer mu.Unlock()
					up = append(up, f)
					return f, err
				},
			})
			kill := func() {
				mu.Lock()
				defer mu.Unlock()
				for _, f := range up {
					f.Close()
				}
				up = nil
			}
			var all sync.WaitGroup
			var results, failures atomic.Int32
			clients := make([]*mcpclient.Client, 16)
			for i := range clients {
				clients[i] = dialAs(t, b, "", fmt.Sprint("user", i), []Era{EraLegacy, EraModern}[i%2], nil)
			}
			for i, c := range clients {
				all.Go(func() {
					for n := range 40 {
						want := fmt.Sprint(i, "/", n)
						switch got, err := mcpclient.CallTool[string](t.Context(), c, "echo", json.RawMessage(`{"Text":"`+want+`"}`)); {
						case err != nil:
							failures.Add(1)
						case got != want:
							t.Errorf("client %d: got %q, want %q", i, got, want)
						default:
							results.Add(1)
						}
						if i == 0 && n%10 == 5 {
							kill()
						}
					}
				})
			}
			all.Wait()
			t.Logf("%d results, %d errors", results.Load(), failures.Load())
			for i, c := range clients {
				wait.Until(t, "the restart of the server", func() bool {
					got, err := mcpclient.CallTool[string](t.Context(), c, "echo", json.RawMessage(`{"Text":"x"}`))
					return err == nil && got == "x"
				})
				checkCalls(t, c, i)
			}
		})
	}
}

// TestSharedUnreachable checks that clients that connect while the server is unreachable get the
// error of one shared attempt, and share one connection when the server is reachable again.
func TestSharedUnreachable(t *testing.T) {
	for _, clientEra := range []Era{EraLegacy, EraModern} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			var attempts atomic.Int32
			away := true
			f.fail = func() error {
				attempts.Add(1)
				if <-time.After(time.Second); away {
					return errTest
				}
				return nil
			}
			b := f.bridge(&Options{Shared: true})
			first := initialize
			if clientEra == EraModern {
				first = `{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{` + meta("") + `}}`
			}
			var clients []*pipe
			for range 10 {
				c, _ := dialPipe(t, b)
				c.send(first)
				clients = append(clients, c)
			}
			for _, c := range clients {
				c.reads(`"id":0,"error":{"code":-32603`, errTest.Error())
			}
			if n := attempts.Load(); n != 1 {
				t.Errorf("got %d attempts for all clients, want 1", n)
			}
			away = false
			<-time.After(time.Minute)
			for _, c := range clients {
				c.send(first)
			}
			srv := f.next()
			srv.send(resultFor(srv.request("method"), map[Era]string{
				EraLegacy: `{"protocolVersion":"2025-11-25","capabilities":{}}`,
				EraModern: `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":0,"cacheScope":"private"}`,
			}[clientEra]))
			if clientEra == EraModern {
				for range clients {
					srv.send(resultFor(srv.request("server/discover"), `{"resultType":"complete"}`))
				}
			}
			for _, c := range clients {
				c.reads(`"id":0,"result"`)
			}
			if n := attempts.Load(); n != 2 {
				t.Errorf("got %d attempts, want 2", n)
			}
		})
	}
}

// TestSharedSilent checks that a server that does not respond before a handshake is probed once,
// and not for each client.
func TestSharedSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		b := f.bridge(&Options{Shared: true})
		var clients []*pipe
		for range 3 {
			c, _ := dialPipe(t, b)
			c.send(`{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{` + inputMeta + `}}}`)
			clients = append(clients, c)
		}
		srv := f.next()
		srv.reads("server/discover")
		srv.send(resultFor(srv.request("ping"), "{}"))
		serverHandshake(srv)
		for _, c := range clients {
			c.reads(`"id":0,"result"`)
		}
	})
}

// meta returns the metadata of a modern request, with more members.
func meta(more string) string {
	return `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}` + more + `}`
}

// mixedClients returns n legacy clients and a modern one that share a modern server.
func mixedClients(t *testing.T, n int) (clients []*pipe, listens []string, m, srv *pipe, f *fakeServer) {
	f = newFakeServer(t)
	b := f.bridge(&Options{ServerEra: EraModern, Shared: true, DrainTimeout: time.Nanosecond})
	for i := range n {
		c, _ := dialPipe(t, b)
		c.send(initialize)
		if i == 0 {
			srv = f.next()
		}
		srv.send(resultFor(srv.request("server/discover"), `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"logging":{}},"ttlMs":0,"cacheScope":"private"}`))
		c.reads(`"id":0,"result"`)
		c.send(initialized)
		listens = append(listens, acceptListen(srv))
		clients = append(clients, c)
	}
	m, _ = dialPipe(t, b)
	return clients, listens, m, srv, f
}

// acceptListen acknowledges the next subscription at the server, and returns its id.
func acceptListen(srv *pipe) string {
	srv.t.Helper()
	id := srv.request("subscriptions/listen")
	srv.send(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `},"notifications":{"toolsListChanged":true}}}`)
	return id
}

// changed returns the notification of a changed list of tools on a subscription.
func changed(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}}}`
}

const toolsChanged = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`

// checkNoMessageMixed makes a request of each client, and checks that the response is the next
// message that it gets.
func checkNoMessageMixed(srv *pipe, m *pipe, legacy ...*pipe) {
	srv.t.Helper()
	for _, c := range append(legacy, m) {
		params := ""
		if c == m {
			params = `,"params":{` + meta("") + `}`
		}
		c.send(`{"jsonrpc":"2.0","id":"next","method":"x/next"` + params + `}`)
		srv.send(resultFor(srv.request("x/next"), `{"resultType":"complete"}`))
		c.reads(`"id":"next","result"`)
	}
}

// TestShared checks that clients of both eras that share a modern server each get only their own
// messages.
func TestShared(t *testing.T) {
	clients, listens, m, srv, _ := mixedClients(t, 2)
	a, b := clients[0], clients[1]
	srv.send(changed(listens[1]))
	b.wants(toolsChanged)
	checkNoMessageMixed(srv, m, a)
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
			t.Fatalf("two calls have the id %s", id)
		}
		ids[id], order = c, append(order, id)
	}
	for _, id := range order {
		srv.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + id + `,"progress":1}}`)
		ids[id].wants(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`)
	}
	m.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	srv.reads("notifications/cancelled", `"requestId":`+order[2])
	srv.send(resultFor(order[1], `{"resultType":"complete","content":[]}`))
	b.wants(resultFor("1", `{"content":[]}`))
	a.f.Close()
	got := srv.read() + srv.read()
	for _, id := range []string{order[0], listens[0]} {
		if !strings.Contains(got, `"requestId":`+id) {
			t.Errorf("got %s, want a cancellation of %s", got, id)
		}
	}
	srv.send(changed(listens[0]), resultFor(order[0], `{"resultType":"complete","content":[]}`)) // too late
	checkNoMessageMixed(srv, m, b)
}

// TestSharedLogs checks that a log message, which identifies no client, goes to a client only if no
// other can have requested it.
func TestSharedLogs(t *testing.T) {
	clients, _, m, srv, _ := mixedClients(t, 2)
	a, b := clients[0], clients[1]
	const log = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`
	begin := func(c *pipe, level string) string {
		if c == m {
			c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",` + meta(`,"io.modelcontextprotocol/logLevel":"`+level+`"`) + `}}`)
			return srv.request("tools/call")
		}
		if level != "" {
			c.send(`{"jsonrpc":"2.0","id":"l","method":"logging/setLevel","params":{"level":"` + level + `"}}`)
			c.wants(resultFor(`"l"`, "{}"))
		}
		c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`)
		return srv.request("tools/call")
	}
	end := func(c *pipe, id string) {
		srv.send(resultFor(id, `{"resultType":"complete","content":[]}`))
		c.reads(`"id":1,"result"`)
	}
	srv.send(log) // for no call
	checkNoMessageMixed(srv, m, a, b)
	first := begin(a, "debug")
	other := begin(b, "") // without a log level
	srv.send(log)
	a.wants(log)
	checkNoMessageMixed(srv, m, b)
	end(b, other)
	other = begin(m, "warning") // level above the message
	srv.send(log)
	a.wants(log)
	end(m, other)
	other = begin(m, "info")
	srv.send(log) // for either of two calls
	checkNoMessageMixed(srv, m, a, b)
	end(a, first)
	srv.send(log)
	m.wants(log)
	end(m, other)
	checkNoMessageMixed(srv, m, a, b)
}

// TestSharedRestart checks that all pending requests fail at once when the server ends, and that
// all subscriptions are reopened.
func TestSharedRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, _, m, srv, f := mixedClients(t, 3)
		for _, c := range clients {
			c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`)
			srv.reads("tools/call")
		}
		m.send(`{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + meta("") + `}}`)
		acceptListen(srv)
		m.reads("subscriptions/acknowledged")
		m.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",` + meta("") + `}}`)
		srv.reads("tools/call")
		start := time.Now()
		srv.f.Close()
		for _, c := range append(clients, m) {
			c.reads(`"id":1,"error":{"code":-32603`)
		}
		if d := time.Since(start); d > 10*time.Millisecond {
			t.Errorf("the errors took %v, want at most 10 ms", d)
		}
		srv = f.next()
		for range 4 {
			acceptListen(srv)
		}
		for _, c := range clients {
			c.wants(toolsChanged)
		}
		m.wants(changed(`"l"`))
		checkNoMessageMixed(srv, m, clients...)
	})
}

// TestSharedIdleMixed checks that a connection is kept for the idle timeout after the last client
// of either era has disconnected.
func TestSharedIdleMixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		b := f.bridge(&Options{ServerEra: EraModern, Shared: true, IdleTimeout: time.Minute})
		var srv *pipe
		visit := func(text string) {
			c, done := dialPipe(t, b)
			c.send(text)
			if srv == nil {
				srv = f.next()
			}
			srv.send(resultFor(srv.request("server/discover"), `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":0,"cacheScope":"private"}`))
			c.reads(`"result"`)
			c.f.Close()
			<-done
			<-time.After(50 * time.Second)
		}
		visit(initialize)
		visit(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + meta("") + `}}`)
		visit(initialize)
		if n := b.openConnections.Load(); n != 1 {
			t.Errorf("got %d connections to the server before the idle timeout, want 1", n)
		}
		<-time.After(11 * time.Second)
		synctest.Wait()
		if n := b.openConnections.Load(); n != 0 || len(b.pool) != 0 {
			t.Errorf("got %d connections and %d upstreams in the pool without clients, want 0", n, len(b.pool))
		}
	})
}

// TestGroupIdle checks that the client of requests without a session ends after the idle timeout,
// which counts from the end of the last request.
func TestGroupIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		h := f.bridge(&Options{ServerEra: EraModern, IdleTimeout: time.Minute}).Relay().(*httpHandler)
		groups := func() int {
			synctest.Wait()
			h.mu.Lock()
			defer h.mu.Unlock()
			return len(h.groups)
		}
		var srv *pipe
		call := func(took time.Duration) {
			m := new(jsonrpc.Message)
			frame := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",` + meta("") + `}}`)
			if err := jsonrpc.Parse(frame, m, 0); err != nil {
				t.Fatal(err)
			}
			answered := make(chan error, 1)
			go func() {
				_, err := h.Stateless().Request(t.Context(), frame, m, nil, nil)
				answered <- err
			}()
			if srv == nil {
				srv = f.next()
			}
			request := srv.request("tools/call")
			<-time.After(took)
			srv.send(resultFor(request, `{"resultType":"complete","content":[]}`))
			if err := <-answered; err != nil {
				t.Fatal(err)
			}
		}
		call(0)
		<-time.After(40 * time.Second)
		call(90 * time.Second) // it runs when the timeout after the first call is over
		if n := groups(); n != 1 {
			t.Fatalf("got %d groups after a long call, want 1", n)
		}
		<-time.After(59 * time.Second)
		if n := groups(); n != 1 {
			t.Errorf("got %d groups before the idle timeout, want 1", n)
		}
		<-time.After(2 * time.Second)
		if n := groups(); n != 0 {
			t.Errorf("got %d groups after the idle timeout, want 0", n)
		}
	})
}
