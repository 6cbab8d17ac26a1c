package streamable_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

// TestSubscribeElsewhere shows that a client that has the response to resources/subscribe is
// notified of all later changes, whichever node got the request.
func TestSubscribeElsewhere(t *testing.T) {
	const uri = "test://x"
	add := func(srv *server.Server) {
		if err := server.AddResource(srv, mcp.Resource{URI: uri, Name: "x"}, func(context.Context) (string, error) { return "", nil }); err != nil {
			t.Fatal(err)
		}
	}
	inNetwork(t, 2, add, func(net *network, all []*endpoint) {
		net.storeLate.Store(true)
		v := all[0].visit("2025-11-25", "{}", nil)
		f := (&legacySession{all[1], v.headers}).listen("")
		synctest.Wait()
		advance(time.Second)
		if got := v.post(request(1, "resources/subscribe", `{"uri":"`+uri+`"}`)); got.status != 200 || strings.Contains(got.body, "error") {
			t.Fatalf("%d %s", got.status, got.body)
		}
		all[1].srv.ResourceUpdated(uri)
		told := make(chan struct{})
		go func() {
			defer close(told)
			f.wantMessage("resources/updated")
		}()
		advance(5 * time.Second)
		select {
		case <-told:
		default:
			t.Error("the client is not notified of a change")
		}
		f.resp.Body.Close()
		<-told
	})
}

// TestListenAnywhere shows that a client that listens is notified of changes at all nodes, whichever
// nodes got the parts of its handshake, its subscription and its GET. The first node gets its
// initialize request.
func TestListenAnywhere(t *testing.T) {
	const uri, nodes = "test://x", 3
	add := func(srv *server.Server) {
		if err := server.AddResource(srv, mcp.Resource{URI: uri, Name: "x"}, func(context.Context) (string, error) { return "", nil }); err != nil {
			t.Fatal(err)
		}
	}
	for name, keys := range map[string]*server.StateKeys{"sealed": newStateKeys(t), "stored": nil} {
		t.Run(name, func(t *testing.T) {
			so := &server.Options{Bus: server.NewMemoryBus(), StateKeys: keys}
			inNetworkOf(t, so, streamable.NewMemoryEvents(nil), nodes, add, func(net *network, all []*endpoint) {
				for path := range nodes * nodes * nodes * 2 {
					initialized, subscribed, listened, listensFirst := path%nodes, path/nodes%nodes, path/nodes/nodes%nodes, path/nodes/nodes/nodes == 1
					what := fmt.Sprintf("initialized at %d, subscribed at %d, listens at %d, first: %t", initialized, subscribed, listened, listensFirst)
					headers := map[string]string{"Mcp-Protocol-Version": "2025-11-25"}
					headers["Mcp-Session-Id"] = all[0].do("POST", initialize("2025-11-25", "{}"), nil).header.Get("Mcp-Session-Id")
					at := func(i int) *legacySession { return &legacySession{all[i], headers} }
					if got := at(initialized).post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`); got.status != 202 {
						t.Fatalf("%s: %d %s", what, got.status, got.body)
					}
					var f *eventReader
					if listensFirst {
						f = at(listened).listen("")
					}
					if got := at(subscribed).post(request(1, "resources/subscribe", `{"uri":"`+uri+`"}`)); got.status != 200 || strings.Contains(got.body, "error") {
						t.Fatalf("%s: %d %s", what, got.status, got.body)
					}
					if !listensFirst {
						f = at(listened).listen("")
					}
					synctest.Wait()
					f.wantWithin(what, "resources/updated", func() { all[path%nodes].srv.ResourceUpdated(uri) })
					f.wantWithin(what, "tools/list_changed", all[path%nodes].announce)
					f.resp.Body.Close()
					at(listened).do("DELETE", "", headers)
					synctest.Wait()
				}
			})
		})
	}
}

// TestListenWithKeys shows that a client that listens at a process is notified of changes there,
// although another process that shares only keys got its notifications/initialized.
func TestListenWithKeys(t *testing.T) {
	so := &server.Options{StateKeys: newStateKeys(t)}
	start := func(t *testing.T) (*server.Server, *streamable.Handler) {
		srv := server.MustNew("test", "1", so)
		t.Cleanup(func() { srv.Close(context.Background()) })
		addTools(t, srv)
		return srv, streamable.MustHandler(srv, nil)
	}
	inBubbleWithAll(t, 2, start, func(all []*endpoint) {
		for _, version := range legacyVersions {
			headers := map[string]string{"Mcp-Protocol-Version": version}
			headers["Mcp-Session-Id"] = all[0].do("POST", initialize(version, "{}"), nil).header.Get("Mcp-Session-Id")
			if got := (&legacySession{all[1], headers}).post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`); got.status != 202 {
				t.Fatalf("%s: %d %s", version, got.status, got.body)
			}
			f := (&legacySession{all[0], headers}).listen("")
			synctest.Wait()
			f.wantWithin(version, "tools/list_changed", all[0].announce)
			f.resp.Body.Close()
			synctest.Wait()
		}
	})
}

// wantWithin reads events, in a bubble, until one has the text, which must come within ten seconds
// after the change.
func (f *eventReader) wantWithin(what, text string, change func()) {
	f.t.Helper()
	found := make(chan bool, 1)
	go func() {
		for {
			ev, err := f.r.Read()
			if err != nil || strings.Contains(string(ev.Data), text) {
				found <- err == nil
				return
			}
		}
	}()
	change()
	limit := time.AfterFunc(10*time.Second, func() { f.resp.Body.Close() })
	defer limit.Stop()
	if !<-found {
		f.t.Errorf("%s: no %s", what, text)
	}
}

// TestListenerElsewhere shows that a client gets each message that belongs to no request once, at
// the node where it last opened a stream, whichever node sends it.
func TestListenerElsewhere(t *testing.T) {
	for name, bus := range map[string]server.Bus{"with a bus": server.NewMemoryBus(), "without": nil} {
		t.Run(name, func(t *testing.T) {
			goOn := make(map[string]chan string)
			inNetworkOf(t, &server.Options{Bus: bus, Tasks: &server.TaskOptions{}}, streamable.NewMemoryEvents(nil), 3, func(srv *server.Server) {
				texts := make(chan string)
				goOn[string(rune('a'+len(goOn)))] = texts
				err := server.AddToolWith(srv, mcp.Tool{Name: "job", Execution: &mcp.ToolExecution{TaskSupport: mcp.TaskSupportRequired}}, func(ctx context.Context, _ struct{}) (string, error) {
					for {
						select {
						case text, ok := <-texts:
							if !ok {
								return "done", nil
							}
							if err := server.CallOf(ctx).Log(mcp.LevelError, "", text); err != nil {
								return "", err
							}
						case <-ctx.Done():
							return "", ctx.Err()
						}
					}
				})
				if err != nil {
					t.Fatal(err)
				}
			}, func(net *network, all []*endpoint) {
				v := all[0].visit("2025-11-25", "{}", nil)
				at := func(i int) *legacySession { return &legacySession{all[i], v.headers} }
				if got := v.post(request(1, "tools/call", `{"name":"job","task":{}}`)); got.status != 200 || !strings.Contains(got.body, `"taskId"`) {
					t.Fatalf("%d %s", got.status, got.body)
				}
				log := func(text string) { goOn["a"] <- text }
				f := at(1).listen("")
				log("one")
				f.wantMessage(`"data":"one"`)
				all[0].announce()
				f.wantMessage("tools/list_changed")
				log("two")
				f.wantMessage(`"data":"two"`)
				ended := make(chan string)
				go func() {
					_, data := f.next()
					ended <- data
				}()
				g := at(2).listen("")
				if data := <-ended; data != "EOF" {
					t.Errorf("event %s", data)
				}
				log("three")
				g.wantMessage(`"data":"three"`)
				all[1].announce()
				g.wantMessage("tools/list_changed")
				log("four")
				last, data := g.next()
				if !strings.Contains(data, `"data":"four"`) {
					t.Errorf("event %s", data)
				}
				g.resp.Body.Close()
				synctest.Wait()
				log("five")
				synctest.Wait()
				net.leave("node3")
				log("six")
				synctest.Wait()
				h := at(1).listen(last)
				for _, text := range []string{"five", "six"} {
					h.wantMessage(`"data":"` + text + `"`)
				}
				h.wantMessage("tools/list_changed") // node3 is gone, with its messages
				h.wantMessage("resources/list_changed")
				log("seven")
				h.wantMessage(`"data":"seven"`)
				h.resp.Body.Close()
				close(goOn["a"])
				synctest.Wait()
			})
		})
	}
}

// TestListenerGone shows that a client whose stream was at a node that is gone or stops is notified
// of all possible changes until it opens a stream at another node.
func TestListenerGone(t *testing.T) {
	const uri = "test://x"
	add := func(srv *server.Server) {
		if err := server.AddResource(srv, mcp.Resource{URI: uri, Name: "x"}, func(context.Context) (string, error) { return "", nil }); err != nil {
			t.Fatal(err)
		}
	}
	for name, end := range map[string]func(net *network, e *endpoint){
		"killed":  func(net *network, _ *endpoint) { net.leave("node2") },
		"stopped": func(_ *network, e *endpoint) { e.h.Shutdown(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			inNetworkOf(t, &server.Options{Bus: server.NewMemoryBus()}, streamable.NewMemoryEvents(nil), 3, add, func(net *network, all []*endpoint) {
				v := all[0].visit("2025-11-25", "{}", nil)
				if got := v.post(request(1, "resources/subscribe", `{"uri":"`+uri+`"}`)); got.status != 200 || strings.Contains(got.body, "error") {
					t.Fatalf("%d %s", got.status, got.body)
				}
				f := (&legacySession{all[1], v.headers}).listen("")
				synctest.Wait()
				advance(time.Minute)
				end(net, all[1])
				f.resp.Body.Close()
				synctest.Wait()
				all[0].srv.ResourceUpdated(uri)
				all[0].announce()
				advance(time.Second)
				g := (&legacySession{all[2], v.headers}).listen("")
				told := make(chan string)
				go func() {
					defer close(told)
					var texts []string
					for _, data := g.next(); data != "EOF"; _, data = g.next() {
						texts = append(texts, data)
					}
					told <- strings.Join(texts, "\n")
				}()
				advance(time.Minute)
				v.do("DELETE", "", v.headers)
				texts := <-told
				g.resp.Body.Close()
				for _, want := range []string{"tools/list_changed", "resources/updated"} {
					if n := strings.Count(texts, want); n != 1 {
						t.Errorf("notified %d times of %s: %s", n, want, texts)
					}
				}
			})
		})
	}
}

// TestListenerWithoutStore shows that a client that opens a stream at another node gets the
// messages of that node, even if the store of sessions fails or has lost the session's record.
func TestListenerWithoutStore(t *testing.T) {
	for name, fail := range map[string]func(n *network){
		"fails": func(n *network) { n.storeDown.Store(true) },
		"lost":  func(n *network) { n.storeLost.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			inNetworkOf(t, &server.Options{Bus: server.NewMemoryBus()}, streamable.NewMemoryEvents(nil), 2, func(*server.Server) {}, func(net *network, all []*endpoint) {
				v := all[0].visit("2025-11-25", "{}", nil)
				at := &legacySession{all[1], v.headers}
				for range 3 { // changes the record several times
					v.listen("").resp.Body.Close()
					synctest.Wait()
					at.listen("").resp.Body.Close()
					synctest.Wait()
				}
				v.listen("").resp.Body.Close()
				synctest.Wait()
				fail(net)
				f := at.listen("")
				advance(3 * time.Second) // it has stopped watching the store
				all[0].announce()
				told := make(chan string, 1)
				go func() {
					for {
						if _, data := f.next(); data != "" {
							told <- data
							return
						}
					}
				}()
				select {
				case data := <-told:
					if !strings.Contains(data, "tools/list_changed") {
						t.Errorf("event %s", data)
					}
				case <-time.After(time.Minute):
					t.Error("the client is not told")
				}
				net.storeDown.Store(false)
				advance(2 * time.Second)
				f.resp.Body.Close()
				synctest.Wait()
			})
		})
	}
}
