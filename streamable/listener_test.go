package streamable_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

// A client gets what belongs to no request, each message once, at the process where it has listened
// last, from whatever process it comes.
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
				at := func(i int) *visitor { return &visitor{all[i], v.headers} }
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
				log("seven")
				h.wantMessage(`"data":"seven"`)
				h.resp.Body.Close()
				close(goOn["a"])
				synctest.Wait()
			})
		})
	}
}
