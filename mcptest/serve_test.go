package mcptest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/mcptest"
)

func TestConnect(t *testing.T) {
	for _, r := range mcp.Revisions() {
		t.Run(r.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := mcptest.Connect(t, newWords(t), &client.Options{Revisions: []mcp.Revision{r}})
				if got := c.Revision(); got != r {
					t.Errorf("revision: got %v, want %v", got, r)
				}
				if got, err := client.CallTool[int](t.Context(), c, "word_count", map[string]any{"text": "a b c"}); got != 3 || err != nil {
					t.Errorf("got %d, %v", got, err)
				}
			})
		})
	}
}

func TestConnectFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := failures(t, func(t testing.TB) {
			mcptest.Connect(t, serverFunc(func(context.Context, jsonrpc.Framer) error { return nil }), nil)
			t.Error("the test continued after the failure")
		})
		if len(got) != 1 || !strings.HasPrefix(got[0], "dial the server under test: ") {
			t.Errorf("failures %q", got)
		}
	})
}

// ask sends a message and returns the next one.
func ask(t testing.TB, e jsonrpc.Framer, message string) string {
	t.Helper()
	if err := e.WriteFrame([]byte(message)); err != nil {
		return fmt.Sprint(err)
	}
	frame, err := e.ReadFrame()
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(frame)
}

func TestScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := mcptest.Script(t, func(p *mcptest.Peer) {
			p.Expect(mcptest.Request(0, "$id", "ping", ""))
			p.Send(mcptest.Result("$id", "{}"))
			p.ExpectClose()
		})
		defer e.Close()
		if got, want := ask(t, e, `{"jsonrpc":"2.0","id":7,"method":"ping"}`), `{"jsonrpc":"2.0","id":7,"result":{}}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestScriptFailures(t *testing.T) {
	one := func(p *mcptest.Peer) {
		p.Expect("1")
		p.Send("-1")
	}
	tests := []struct {
		name   string
		script func(p *mcptest.Peer)
		client func(t testing.TB, e jsonrpc.Framer)
		want   []string
	}{
		{"none", one, func(t testing.TB, e jsonrpc.Framer) {
			if got := ask(t, e, "1"); got != "-1" {
				t.Errorf("client: got %s", got)
			}
		}, nil},
		// The client gets an error, and the rest of its test continues.
		{"another message", one, func(t testing.TB, e jsonrpc.Framer) {
			if got := ask(t, e, "2"); got != "EOF" {
				t.Errorf("client: got %s", got)
			}
		}, []string{"Expect: got another message\n    the message: got 2, want 1\nwant: 1\ngot:  2\nthe session so far:\n  < 2"}},
		{"not completed", one, func(testing.TB, jsonrpc.Framer) {},
			[]string{"Expect: the other side has closed the connection\nwant: 1\nthe session so far:\n  ! the other side has closed the connection"}},
		{"more than expected", one, func(t testing.TB, e jsonrpc.Framer) {
			ask(t, e, "1")
			e.WriteFrame([]byte("2"))
		}, []string{"1 unexpected messages; the last: 2\nthe session so far:\n  < 1\n  > -1\n  < 2\n  ! the other side has closed the connection"}},
		{"the script closes", func(p *mcptest.Peer) {
			p.Expect("1")
			p.Close()
		}, func(t testing.TB, e jsonrpc.Framer) {
			if got := ask(t, e, "1"); got != "EOF" {
				t.Errorf("client: got %s", got)
			}
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := failures(t, func(t testing.TB) { tt.client(t, mcptest.Script(t, tt.script)) })
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("failures (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestScriptThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		got := failures(t, func(t testing.TB) { mcptest.Script(t, func(*mcptest.Peer) { <-gate }) })
		if want := []string{"the script has not returned within 30s of the end of the test"}; cmp.Diff(want, got) != "" {
			t.Errorf("failures %q", got)
		}
		close(gate)
	})
}

func TestCheckLeaks(t *testing.T) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	got := failures(t, func(t testing.TB) {
		mcptest.CheckLeaks(t)
		go leave(stop, stopped)
	})
	if len(got) != 1 || !strings.HasPrefix(got[0], "leaked goroutines: ") || !strings.Contains(got[0], "mcptest_test.leave") {
		t.Errorf("failures: %q", got)
	}
	// A goroutine that was started before is not a leak of this test.
	got = failures(t, func(t testing.TB) {
		mcptest.CheckLeaks(t)
		p := mcptest.NewPeer(t, mcptest.Serve(t, echo))
		p.Send("1")
		p.Expect("1")
		mcptest.Script(t, func(p *mcptest.Peer) { p.ExpectClose() })
	})
	if len(got) > 0 {
		t.Errorf("failures without a leak: %q", got)
	}
	close(stop)
	<-stopped
}

func leave(stop, stopped chan struct{}) {
	<-stop
	close(stopped)
}
