package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	mcpclient "mcpwire/client"
	"mcpwire/jsonrpc"
)

// TestSharedStorm: whatever becomes of the server while many clients of both eras use it, each request is answered, with its own answer or an error, and in the end all is well.
func TestSharedStorm(t *testing.T) {
	for _, serverEra := range []Era{EraAuto, EraLegacy, EraModern} {
		t.Run("server "+serverEra.String(), func(t *testing.T) {
			connect := connectTo(t, serverEra.revisions())
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
			var right, wrong atomic.Int32
			guests := make([]*mcpclient.Client, 16)
			for i := range guests {
				guests[i] = guest(t, b, "", fmt.Sprint("user", i), []Era{EraLegacy, EraModern}[i%2], nil)
			}
			for i, c := range guests {
				all.Go(func() {
					for n := range 40 {
						want := fmt.Sprint(i, "/", n)
						switch got, err := mcpclient.CallTool[string](t.Context(), c, "echo", json.RawMessage(`{"Text":"`+want+`"}`)); {
						case err != nil:
							wrong.Add(1)
						case got != want:
							t.Errorf("client %d got %q, want %q", i, got, want)
						default:
							right.Add(1)
						}
						if i == 0 && n%10 == 5 {
							kill()
						}
					}
				})
			}
			all.Wait()
			t.Logf("%d answers, %d errors", right.Load(), wrong.Load())
			for i, c := range guests {
				await(t, "the server to be back", func() bool {
					got, err := mcpclient.CallTool[string](t.Context(), c, "echo", json.RawMessage(`{"Text":"x"}`))
					return err == nil && got == "x"
				})
				visits(t, c, i)
			}
		})
	}
}

// TestSharedUnreachable: clients that come while the server is away are told so, all by one attempt; they are served when it is back, without a connection for each.
func TestSharedUnreachable(t *testing.T) {
	for _, clientEra := range []Era{EraLegacy, EraModern} {
		synctest.Test(t, func(t *testing.T) {
			f := newFarm(t)
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
			first := hello
			if clientEra == EraModern {
				first = `{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{` + meta("") + `}}`
			}
			var clients []*pipe
			for range 10 {
				c, _ := client0(t, b)
				c.send(first)
				clients = append(clients, c)
			}
			for _, c := range clients {
				c.reads(`"id":0,"error":{"code":-32603`, errTest.Error())
			}
			if n := attempts.Load(); n != 1 {
				t.Errorf("%d attempts for all, want 1", n)
			}
			away = false
			<-time.After(time.Minute)
			for _, c := range clients {
				c.send(first)
			}
			srv := f.next()
			srv.send(answering(srv.request("method"), map[Era]string{
				EraLegacy: `{"protocolVersion":"2025-11-25","capabilities":{}}`,
				EraModern: `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":0,"cacheScope":"private"}`,
			}[clientEra]))
			if clientEra == EraModern {
				for range clients {
					srv.send(answering(srv.request("server/discover"), `{"resultType":"complete"}`))
				}
			}
			for _, c := range clients {
				c.reads(`"id":0,"result"`)
			}
			if n := attempts.Load(); n != 2 {
				t.Errorf("%d attempts, want 2", n)
			}
		})
	}
}

// TestSharedSilent: a server that is silent before a handshake is not asked again for each client what it is.
func TestSharedSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		b := f.bridge(&Options{Shared: true})
		var clients []*pipe
		for range 3 {
			c, _ := client0(t, b)
			c.send(`{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{` + asks + `}}}`)
			clients = append(clients, c)
		}
		srv := f.next()
		srv.reads("server/discover")
		srv.send(answering(srv.request("ping"), "{}"))
		welcomed(srv)
		for _, c := range clients {
			c.reads(`"id":0,"result"`)
		}
	})
}
